package authzenclient_test

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/capability"
	"policy-service/pdp/pdptest"
)

var _ capability.Keys = (*authzenclient.Keys)(nil)

// jwk is a key of a set, whose bytes are all the same.
func jwk(id string, b byte) string {
	key, err := capability.NewKey(ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(b), 32))).Public())
	if err != nil {
		panic(err)
	}
	text, _ := key.MarshalJSON()
	return fmt.Sprintf(`{"kid":"%s",%s`, id, text[1:])
}

func jwkSet(keys ...string) string { return `{"keys":[` + strings.Join(keys, ",") + `]}` }

// keyServer is a service whose keys a test changes, with the clock of its client.
type keyServer struct {
	mu     sync.Mutex // guards what follows
	now    time.Time
	says   string // "" is a failure
	asked  int
	client *authzenclient.Client
}

func newKeyServer(t *testing.T, says string) *keyServer {
	s := &keyServer{now: pdptest.Now, says: says}
	url := stub(t, func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.asked++; r.URL.Path != "/.well-known/jwks.json" || r.Header.Get("Authorization") != "" {
			t.Errorf("asked for %s, with a credential: %t", r.URL, r.Header.Get("Authorization") != "")
		}
		if s.says == "" {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(s.says))
	})
	s.client = newClient(t, url, authzenclient.WithKey("secret"), authzenclient.WithClock(func() time.Time {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.now
	}, nil))
	return s
}

// TestKeys goes through what a verifier may find: each step is some time later, with what the service says from then on.
func TestKeys(t *testing.T) {
	t.Parallel()
	a, b, c := jwk("a", 'a'), jwk("b", 'b'), jwk("c", 'c')
	s := newKeyServer(t, jwkSet(a))
	for n, step := range []struct {
		later time.Duration
		says  string // "-" is a failure
		kid   string
		want  string // of the answer: found, not found, or an error
		asked int    // by now
	}{
		{0, "", "a", "found", 1},
		{59 * time.Second, jwkSet(b, a), "a", "found", 1},
		{time.Second, "", "a", "found", 2},
		{0, jwkSet(c, b), "b", "found", 2},
		{9 * time.Second, "", "c", "not found", 2}, // just asked
		{time.Second, "", "c", "found", 3},
		{0, "", "a", "not found", 3}, // rotated twice
		{10 * time.Second, "-", "d", "error", 4},
		{0, "", "c", "found", 4},
		{9 * time.Second, "", "d", "error", 4}, // not "not found": that is not known
		{time.Minute, "", "c", "found", 5},
		{13*time.Minute + 40*time.Second, "", "c", "found", 6},
		{time.Second, "", "c", "error", 6}, // not had for a quarter of an hour
		{10 * time.Second, jwkSet(a), "c", "not found", 7},
		{0, "", "a", "found", 7},
		{-time.Hour, jwkSet(b), "a", "not found", 8}, // the clock was set
	} {
		s.mu.Lock()
		s.now = s.now.Add(step.later)
		if step.says != "" {
			s.says = strings.TrimPrefix(step.says, "-")
		}
		s.mu.Unlock()
		key, found, err := s.client.Keys().Key(t.Context(), step.kid)
		got := map[bool]string{true: "found", false: "not found"}[found]
		if err != nil {
			got = "error"
			if failure := (*authzenclient.Error)(nil); !errors.As(err, &failure) || failure.Op != "keys" || found || key != nil {
				t.Errorf("step %d: %v, %t", n, err, found)
			}
		}
		if found && len(key) != ed25519.PublicKeySize {
			t.Errorf("step %d: a key of %d bytes", n, len(key))
		}
		s.mu.Lock()
		if got != step.want || s.asked != step.asked {
			t.Errorf("step %d: got %s (%v) after %d requests, want %s after %d", n, got, err, s.asked, step.want, step.asked)
		}
		s.mu.Unlock()
	}
}

// What is no set of keys gives none, and one that is good among it does not count.
func TestKeysThatAreNone(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"empty":         `{}`,
		"no keys":       jwkSet(),
		"no JSON":       `keys`,
		"twice":         jwkSet(jwk("a", 'a'), jwk("a", 'b')),
		"without a kid": jwkSet(jwk("a", 'a'), jwk("", 'b')),
		"short":         jwkSet(jwk("a", 'a'), `{"kid":"b","kty":"OKP","crv":"Ed25519","x":"AAAA"}`),
		"of others":     jwkSet(`{"kid":"a","kty":"RSA","n":"AAAA","e":"AQAB"}`),
		"many":          jwkSet(jwk("a", 'a'), strings.Repeat(`{"kty":"EC"},`, 20)+`{}`),
		"large":         jwkSet(jwk("a", 'a')) + strings.Repeat(" ", 64<<10),
		"member twice":  `{"keys":[],"keys":[` + jwk("a", 'a') + `]}`,
	} {
		if key, found, err := newKeyServer(t, body).client.Keys().Key(t.Context(), "a"); err == nil || found || key != nil {
			t.Errorf("%s: found %t, %v", name, found, err)
		}
	}
}

// Many that look for a key at once ask once, and one that gives up does not take the answer from the others.
func TestKeysAreFetchedOnce(t *testing.T) {
	t.Parallel()
	asked, may := atomic.Int32{}, make(chan struct{})
	client := newClient(t, stub(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		<-may
		says(jwkSet(jwk("a", 'a')))(w, r)
	}))
	gone, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, _, err := client.Keys().Key(gone, "a")
		ended <- err
	}()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("who gave up: %v", err)
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, found, err := client.Keys().Key(t.Context(), "a"); !found || err != nil {
				t.Errorf("found %t, %v", found, err)
			}
		})
	}
	close(may)
	all.Wait()
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

// TestKeysOfServer finds the key of a real server, which tells its clients to keep it for a minute.
func TestKeysOfServer(t *testing.T) {
	t.Parallel()
	s := pdptest.Start(t, docs())
	published := s.Get("/.well-known/jwks.json")
	var set jose.JSONWebKeySet
	if err := json.Unmarshal([]byte(published.Body), &set); err != nil || published.Header.Get("Cache-Control") != "public, max-age=60" {
		t.Fatal(published, err)
	}
	c := newClient(t, s.URL, authzenclient.WithTenant("acme"))
	key, found, err := c.Keys().Key(t.Context(), set.Keys[0].KeyID)
	if err != nil || !found || !key.Equal(set.Keys[0].Key) {
		t.Errorf("found %t, %v", found, err)
	}
}

// The keys are where the metadata say, and nowhere if that is elsewhere.
func TestKeysWhereDiscovered(t *testing.T) {
	t.Parallel()
	for at, want := range map[string]string{
		"https://pdp/keys":   "GET https://pdp/keys",
		"https://other/keys": "",
		"":                   "",
	} {
		asked := ""
		c, _ := scripted(t, []step{func(r *http.Request) (*http.Response, error) {
			if strings.Contains(r.URL.Path, "/.well-known/") {
				return answer(200, metadata[:len(metadata)-1]+`,"jwks_uri":"`+at+`"}`)(r)
			}
			asked = r.Method + " " + r.URL.String()
			return answer(200, jwkSet(jwk("a", 'a')))(r)
		}})
		if err := c.Discover(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, found, err := c.Keys().Key(t.Context(), "a")
		if found != (want != "") || (err == nil) != found || asked != want {
			t.Errorf("%q: asked %q, found %t, %v", at, asked, found, err)
		}
	}
}
