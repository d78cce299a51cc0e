package auth

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"policy-service/pdp/pdptest/clock"
)

// answering is a server that says who asks, or why it does not.
func answering(a *Authenticator) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, err := a.Authenticate(r)
		var refusal *Refusal
		switch {
		case err == nil:
			_, _ = io.WriteString(w, caller.Name)
			return
		case !errors.As(err, &refusal):
			w.WriteHeader(http.StatusInternalServerError)
		case errors.Is(err, ErrUnauthenticated):
			w.Header().Set("WWW-Authenticate", refusal.Challenge)
			w.WriteHeader(http.StatusUnauthorized)
		default:
			w.WriteHeader(http.StatusForbidden)
		}
		_, _ = io.WriteString(w, err.Error())
	})
}

func do(t *testing.T, client *http.Client, url string, headers ...string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	must(t, err)
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Add(headers[i], headers[i+1])
	}
	w, err := client.Do(r)
	must(t, err)
	defer func() { _ = w.Body.Close() }()
	body, err := io.ReadAll(w.Body)
	must(t, err)
	if challenged := strings.HasPrefix(w.Header.Get("WWW-Authenticate"), "Bearer "); challenged != (w.StatusCode == http.StatusUnauthorized) {
		t.Errorf("%d with WWW-Authenticate %q", w.StatusCode, w.Header.Get("WWW-Authenticate"))
	}
	return fmt.Sprintf("%d %s", w.StatusCode, body)
}

func basic(id, key string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(id+":"+key))
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	c := clock.New()
	s := newSigner(t, "1", jose.ES256)
	keys := open(t, t.TempDir(), c)
	key, other := add(t, keys, "pep"), add(t, keys, "other")
	j, _ := fromFile(t, c, s)
	token := s.token(t, claims(c, nil), nil)
	server := httptest.NewServer(answering(&Authenticator{Keys: keys, JWT: j}))
	t.Cleanup(server.Close)
	const jwtCaller = "200 jwt:https://issuer.example#alice"
	for name, test := range map[string]struct {
		want    string
		headers []string
	}{
		"none":                     {"401 ", nil},
		"key":                      {"200 key:pep", []string{"Bearer " + key}},
		"lower case":               {"200 key:pep", []string{"bearer " + key}},
		"two spaces":               {"200 key:pep", []string{"Bearer  " + key}},
		"token":                    {jwtCaller, []string{"Bearer " + token}},
		"Basic":                    {"200 key:pep", []string{basic(KeyID(key), key)}},
		"Basic with wrong id":      {"401 ", []string{basic(KeyID(other), key)}},
		"Basic with the name":      {"401 ", []string{basic("pep", key)}},
		"Basic without id":         {"401 ", []string{basic("", key)}},
		"Basic with the secret":    {"401 ", []string{basic(KeyID(key), key[len(key)-secretLength:])}},
		"Basic with a token":       {"401 ", []string{basic("", token)}},
		"Basic without colon":      {"401 ", []string{"Basic " + base64.StdEncoding.EncodeToString([]byte(key))}},
		"Basic that is not base64": {"401 ", []string{"Basic " + key}},
		"Basic of nothing":         {"401 ", []string{basic("", "")}},
		"two, both good":           {"401 ", []string{"Bearer " + key, "Bearer " + key}},
		"two, one bad":             {"401 ", []string{"Bearer " + key, "Bearer x"}},
		"two in one":               {"401 ", []string{"Bearer " + key + ", Bearer " + key}},
		"empty":                    {"401 ", []string{""}},
		"empty and a good one":     {"401 ", []string{"", "Bearer " + key}},
		"scheme alone":             {"401 ", []string{"Bearer"}},
		"another scheme":           {"401 ", []string{"Digest " + key}},
		"no scheme":                {"401 ", []string{key}},
		"tab":                      {"401 ", []string{"Bearer\t" + key}},
		"garbage":                  {"401 ", []string{"Bearer x.y.z"}},
		"token with the prefix":    {"401 ", []string{"Bearer psk_" + token}},
	} {
		var headers []string
		for _, value := range test.headers {
			headers = append(headers, "Authorization", value)
		}
		if got := do(t, server.Client(), server.URL, headers...); !strings.HasPrefix(got, test.want) {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
}

func TestDoorOnLoopback(t *testing.T) {
	t.Parallel()
	dir, c := t.TempDir(), clock.New()
	server := httptest.NewServer(answering(&Authenticator{Keys: open(t, dir, c)}))
	t.Cleanup(server.Close)
	ask := func(headers ...string) string { return do(t, server.Client(), server.URL, headers...) }
	if got := ask(); got != "200 " {
		t.Errorf("without credentials: got %q, want an answer", got)
	}
	if got := ask("Host", "evil.example"); !strings.HasPrefix(got, "403 ") {
		t.Errorf("another Host: got %q, want 403", got)
	}
	command := open(t, dir, c)
	key := add(t, command, "pep")
	c.Advance(checkAtMost)
	if got := ask(); !strings.HasPrefix(got, "401 ") {
		t.Errorf("a key was added elsewhere: got %q, want the door closed", got)
	}
	if got := ask("Authorization", "Bearer "+key, "Host", "pdp.example"); got != "200 key:pep" {
		t.Errorf("with the key: got %q", got)
	}
	must(t, command.Revoke("pep"))
	c.Advance(checkAtMost)
	for _, headers := range [][]string{nil, {"Authorization", "Bearer " + key}} {
		if got := ask(headers...); !strings.HasPrefix(got, "401 ") {
			t.Errorf("the last key was revoked: got %q, want the door closed", got)
		}
	}
	must(t, os.Remove(filepath.Join(dir, KeyFile)))
	c.Advance(checkAtMost)
	if got := ask(); !strings.HasPrefix(got, "401 ") {
		t.Errorf("the keys are gone: got %q, want the door closed", got)
	}
}

func TestDoorIsForLoopbackOnly(t *testing.T) {
	t.Parallel()
	var nobody Authenticator
	r := httptest.NewRequest(http.MethodGet, "http://localhost/", nil)
	if caller, err := nobody.Authenticate(r); err != nil || !caller.AllTenants || !caller.May(Explain) || caller.May(LogRead) || caller.Registered {
		t.Errorf("got %+v, %v", caller, err)
	}
	address := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}
	if _, err := nobody.Authenticate(r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, address))); !errors.Is(err, ErrForbidden) {
		t.Errorf("on another address: got %v, want it forbidden", err)
	}
	if (&Authenticator{JWT: &JWT{}}).Configured() != true || nobody.Configured() {
		t.Error("what is configured is told wrongly")
	}
}

// A credential is in no error, log line or name, however wrong it is and
// whatever else is.
func TestNoCredentialGetsOut(t *testing.T) {
	t.Parallel()
	c := clock.New()
	s := newSigner(t, "1", jose.ES256)
	p := newProvider(t, httptest.NewServer, s)
	var log syncBuilder
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	dir := t.TempDir()
	keys := open(t, dir, c)
	keys.LogTo(logger)
	key := add(t, keys, "pep")
	a := &Authenticator{Keys: keys, JWT: p.jwt(t, c, logger)}
	server := httptest.NewServer(answering(a))
	t.Cleanup(server.Close)
	token := p.token(t, c, s)
	parts := strings.Split(token, ".")
	expired := s.token(t, claims(c, map[string]any{"iss": p.URL, "exp": 1}), nil)
	sent := []string{key, key + "x", key[:len(key)-1], token, token + "x", parts[0] + "." + parts[1], expired, "hunter2-hunter2"}
	var out strings.Builder
	for _, harm := range []func(){
		func() {},
		func() { p.set(func() { p.down = true }); c.Advance(2 * keysKept) },
		func() {
			must(t, os.WriteFile(filepath.Join(dir, KeyFile), []byte(key), 0o600))
			c.Advance(time.Second)
		},
	} {
		harm()
		fmt.Fprintln(&out, keys.List())
		for _, credential := range sent {
			for _, scheme := range []string{"Bearer ", "Basic ", "Digest ", ""} {
				out.WriteString(do(t, server.Client(), server.URL, "Authorization", scheme+credential) + "\n")
			}
			out.WriteString(do(t, server.Client(), server.URL, "Authorization", basic("pep", credential)) + "\n")
			_, err := keys.Add(KeySpec{Name: strings.Replace(credential, "hunter2", "psk_", 1)})
			fmt.Fprintf(&out, "%v\n", errors.Join(keys.Err(), keys.Revoke(credential), err))
		}
	}
	all := out.String() + log.String()
	secrets := append(sent, key[len(key)-secretLength:], parts[1], parts[2], strings.Split(expired, ".")[2])
	for i, secret := range secrets {
		if strings.Contains(all, secret) {
			t.Errorf("credential %d got out", i)
		}
	}
	for _, want := range []string{"200 key:pep", "200 jwt:", "401 ", "level=ERROR"} {
		if !strings.Contains(all, want) {
			t.Errorf("there is no %q in what was searched: the test proves nothing", want)
		}
	}
}
