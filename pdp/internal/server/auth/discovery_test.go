package auth

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"policy-service/pdp/pdptest/clock"
)

// provider is an issuer that publishes its keys, over real HTTP.
type provider struct {
	*httptest.Server
	fetches atomic.Int32
	mu      sync.Mutex
	keys    []signer
	down    bool
	answer  http.HandlerFunc // instead of what an issuer should say
	as      string           // the issuer it says it is, if not itself
}

func newProvider(t testing.TB, start func(http.Handler) *httptest.Server, keys ...signer) *provider {
	t.Helper()
	p := &provider{keys: keys}
	p.Server = start(p)
	t.Cleanup(p.Close)
	return p
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	keys, down, answer, as := p.keys, p.down, p.answer, cmp.Or(p.as, p.URL)
	p.mu.Unlock()
	switch {
	case down:
		http.Error(w, "down", http.StatusServiceUnavailable)
	case answer != nil:
		answer(w, r)
	case r.URL.Path == "/.well-known/openid-configuration":
		p.fetches.Add(1)
		_, _ = fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, as, p.URL+"/keys?p=1")
	default:
		set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
		for _, s := range keys {
			set.Keys = append(set.Keys, s.public())
		}
		b, _ := set.Keys[0].MarshalJSON()
		_, _ = fmt.Fprintf(w, `{"keys":[{"kty":"new","kid":"9"},%s`, b)
		for _, key := range set.Keys[1:] {
			b, _ := key.MarshalJSON()
			_, _ = fmt.Fprintf(w, ",%s", b)
		}
		_, _ = fmt.Fprint(w, "]}")
	}
}

func (p *provider) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

func (p *provider) jwt(t testing.TB, c *clock.Clock, log *slog.Logger) *JWT {
	t.Helper()
	issuer := decider("ES256")
	issuer.Issuer = p.URL
	j, err := NewJWT([]JWTIssuer{issuer}, JWTOptions{Now: c.Now, Logger: log, Transport: p.Client().Transport})
	must(t, err)
	return j
}

func (p *provider) token(t testing.TB, c *clock.Clock, s signer) string {
	t.Helper()
	return s.token(t, claims(c, map[string]any{"iss": p.URL, "exp": c.Now().Add(24 * time.Hour).Unix()}), nil)
}

func TestDiscovery(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(http.Handler) *httptest.Server{"http": httptest.NewServer, "https": httptest.NewTLSServer} {
		t.Run(name, func(t *testing.T) {
			c, s := clock.New(), newSigner(t, "1", jose.ES256)
			p := newProvider(t, start, s)
			j := p.jwt(t, c, nil)
			j.Warm(t.Context())
			for range 3 {
				if caller, err := j.Verify(t.Context(), p.token(t, c, s)); err != nil || caller.Name != "jwt:"+p.URL+"#alice" {
					t.Errorf("got %+v, %v", caller, err)
				}
			}
			if n := p.fetches.Load(); n != 1 {
				t.Errorf("fetched %d times, want once", n)
			}
		})
	}
}

func TestRotation(t *testing.T) {
	t.Parallel()
	c := clock.New()
	first, second := newSigner(t, "1", jose.ES256), newSigner(t, "2", jose.ES256)
	p := newProvider(t, httptest.NewServer, first)
	j := p.jwt(t, c, nil)
	if _, err := j.Verify(t.Context(), p.token(t, c, first)); err != nil {
		t.Fatal(err)
	}
	p.set(func() { p.keys = []signer{second} })
	if _, err := j.Verify(t.Context(), p.token(t, c, second)); err != nil {
		t.Errorf("the new key is not known at once: %v", err)
	}
	if _, err := j.Verify(t.Context(), p.token(t, c, first)); err == nil {
		t.Error("the key rotated out is still good")
	}
	// Withdrawn without a new key that anybody shows us.
	p.set(func() { p.keys = []signer{first} })
	c.Advance(keysKnown)
	if _, err := j.Verify(t.Context(), p.token(t, c, second)); err == nil {
		t.Error("the key withdrawn is still good")
	}
}

// Keys are not asked for with each token, and a withdrawn one stops soon, also after a new configuration.
func TestAWithdrawnKeyStops(t *testing.T) {
	t.Parallel()
	c, first, second := clock.New(), newSigner(t, "1", jose.ES256), newSigner(t, "2", jose.ES256)
	p := newProvider(t, httptest.NewServer, first)
	issuer := decider("ES256")
	issuer.Issuer = p.URL
	options := JWTOptions{Now: c.Now, Transport: p.Client().Transport}
	j, err := NewJWT([]JWTIssuer{issuer}, options)
	must(t, err)
	token := p.token(t, c, first)
	good := func(j *JWT) bool { _, err := j.Verify(t.Context(), token); return err == nil }
	if !good(j) {
		t.Fatal("the token is refused")
	}
	p.set(func() { p.keys = []signer{second} })
	c.Advance(keysFresh - 1)
	if !good(j) || p.fetches.Load() != 1 {
		t.Error("keys are asked for too early")
	}
	options.Before = j
	next, err := NewJWT([]JWTIssuer{issuer}, options)
	if err != nil || !good(next) || p.fetches.Load() != 1 {
		t.Errorf("a new configuration forgets the keys: %v", err)
	}
	c.Advance(keysKnown - keysFresh + 1)
	if good(j) || good(next) {
		t.Errorf("the key counts after %v", keysKnown)
	}
}

func TestUnknownKeyIDsDoNotHammerTheIssuer(t *testing.T) {
	t.Parallel()
	c, s := clock.New(), newSigner(t, "1", jose.ES256)
	p := newProvider(t, httptest.NewServer, s)
	j := p.jwt(t, c, nil)
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 25 {
				stranger := signer{fmt.Sprint("x", g, i), s.algorithm, s.private}
				if _, err := j.Verify(t.Context(), p.token(t, c, stranger)); err == nil {
					t.Error("a key id that nobody has is good")
				}
			}
		})
	}
	all.Wait()
	if n := p.fetches.Load(); n > fetchBurst {
		t.Errorf("100 tokens cost %d fetches, want at most %d", n, fetchBurst)
	}
	if _, err := j.Verify(t.Context(), p.token(t, c, s)); err != nil {
		t.Errorf("the issuer's own callers are kept out: %v", err)
	}
	c.Advance(fetchEvery)
	_, _ = j.Verify(t.Context(), p.token(t, c, signer{"y", s.algorithm, s.private}))
	if n := p.fetches.Load(); n > fetchBurst+1 {
		t.Errorf("%v later: %d fetches, want one more", fetchEvery, n)
	}
}

func TestKeysOutliveTheirIssuerForAnHour(t *testing.T) {
	t.Parallel()
	c, s := clock.New(), newSigner(t, "1", jose.ES256)
	p := newProvider(t, httptest.NewServer, s)
	var log syncBuilder
	j := p.jwt(t, c, slog.New(slog.NewTextHandler(&log, nil)))
	token := p.token(t, c, s)
	verify := func() error { _, err := j.Verify(t.Context(), token); return err }
	must(t, verify())
	p.set(func() { p.down = true })
	for range 11 {
		c.Advance(keysKnown)
		if err := verify(); err != nil {
			t.Fatalf("%v", err)
		}
	}
	c.Advance(keysKnown)
	if err := verify(); err == nil {
		t.Error("keys are kept for ever")
	}
	p.set(func() { p.down = false })
	c.Advance(fetchEvery)
	if err := verify(); err != nil {
		t.Errorf("the issuer is back, and its token refused: %v", err)
	}
	if text := log.String(); strings.Count(text, "level=ERROR") != 1 || strings.Count(text, "level=INFO") != 1 {
		t.Errorf("want one line for the beginning and one for the end:\n%s", text)
	}
}

func TestIssuersThatAreNotBelieved(t *testing.T) {
	t.Parallel()
	c, s := clock.New(), newSigner(t, "1", jose.ES256)
	other := newProvider(t, httptest.NewServer, s)
	for name, answer := range map[string]func(p *provider) http.HandlerFunc{
		"says it is another": func(p *provider) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				_, _ = fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, other.URL, other.URL+"/keys")
			}
		},
		"sends us to another host": func(p *provider) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				other.set(func() { other.as = p.URL }) // and there all would be well
				http.Redirect(w, r, other.URL+r.URL.Path, http.StatusFound)
			}
		},
		"sends us in circles": func(p *provider) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, http.StatusFound) }
		},
		"has its keys in a file": jwksURI("file:///etc/passwd"),
		"has its keys on http":   jwksURI("http://keys.example/keys"),
		"has no keys":            jwksURI(""),
		"talks without end": func(p *provider) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte(`{"issuer":"` + strings.Repeat("x", 2*maxJWKS)))
			}
		},
		"talks of something else": func(p *provider) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProvider(t, httptest.NewServer, s)
			p.set(func() { p.answer = answer(p) })
			var log syncBuilder
			j := p.jwt(t, c, slog.New(slog.NewTextHandler(&log, nil)))
			if caller, err := j.Verify(t.Context(), p.token(t, c, s)); err == nil {
				t.Errorf("got %+v", caller)
			}
			if text := log.String(); !strings.Contains(text, "level=ERROR") || len(text) > 1000 {
				t.Errorf("want an error of some length in the log: %.2000s", text)
			}
		})
	}
}

func jwksURI(uri string) func(p *provider) http.HandlerFunc {
	return func(p *provider) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, p.URL, uri)
		}
	}
}

// syncBuilder is a log that is read while it is written.
type syncBuilder struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *syncBuilder) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuilder) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// An issuer that stays when issuers change keeps the keys that are known of it, also
// while it is down; one that is new is asked.
func TestIssuersThatStayKeepTheirKeys(t *testing.T) {
	t.Parallel()
	c, s := clock.New(), newSigner(t, "1", jose.ES256)
	stays, comes := newProvider(t, httptest.NewServer, s), newProvider(t, httptest.NewServer, s)
	before := stays.jwt(t, c, nil)
	before.Warm(t.Context())
	stays.set(func() { stays.down = true })
	one, two := decider("ES256"), decider("ES256")
	one.Issuer, two.Issuer = stays.URL, comes.URL
	one.Permissions = []Permission{Search}
	j, err := NewJWT([]JWTIssuer{two, one}, JWTOptions{Now: c.Now, Before: before})
	must(t, err)
	for _, p := range []*provider{stays, comes} {
		caller, err := j.Verify(t.Context(), p.token(t, c, s))
		if err != nil || caller.May(Search) != (p == stays) {
			t.Errorf("got %+v, %v", caller, err)
		}
	}
	if without, err := NewJWT([]JWTIssuer{one}, JWTOptions{Now: c.Now}); err != nil {
		t.Error(err)
	} else if _, err := without.Verify(t.Context(), stays.token(t, c, s)); err == nil {
		t.Error("the issuer is not down, and this test shows nothing")
	}
}
