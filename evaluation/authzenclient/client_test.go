package authzenclient_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
)

var question = evaluation.Request{
	Subject:  evaluation.Entity{Type: "user", ID: "alice"},
	Action:   evaluation.Action{Name: "read"},
	Resource: evaluation.Entity{Type: "doc", ID: "plan"},
}

// stub is a PDP that does whatever its handler does.
func stub(t testing.TB, handle http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		handle(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// says answers every request with 200, JSON and a body.
func says(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Request-ID", r.Header.Get("X-Request-ID"))
		_, _ = io.WriteString(w, body)
	}
}

// nap is a clock by which no wait takes time.
var nap = authzenclient.WithClock(time.Now, func(ctx context.Context, _ time.Duration) error { return ctx.Err() })

func newClient(t testing.TB, url string, options ...authzenclient.Option) *authzenclient.Client {
	t.Helper()
	c, err := authzenclient.New(url, append([]authzenclient.Option{nap, authzenclient.Patiently(), authzenclient.WithTenant("default")}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// wantDeny fails unless d is a deny with an error of that kind, and returns it.
func wantDeny(t testing.TB, d authzenclient.Decision, kind authzenclient.Kind) *authzenclient.Error {
	t.Helper()
	if d.Permitted() {
		t.Fatal("this reads as a permit")
	}
	var e *authzenclient.Error
	if !errors.As(d.Err(), &e) {
		t.Fatalf("got error %v, want one of kind %q", d.Err(), kind)
	}
	if e.Kind != kind || e.Op == "" {
		t.Fatalf("got %q of %q (%v), want %q", e.Kind, e.Op, e, kind)
	}
	return e
}

func TestPermitAndDeny(t *testing.T) {
	t.Parallel()
	permits := map[string]string{
		"plain":              `{"decision":true}`,
		"spaces":             " \n{ \"decision\" : true }\n",
		"null context":       `{"decision":true,"context":null}`,
		"context":            `{"decision":true,"context":{"id":"0","reason_admin":{"en":"x"},"reason_user":{"en":"y"}}}`,
		"no obligations":     `{"decision":true,"context":{"obligations":[]}}`,
		"null obligations":   `{"decision":true,"context":{"obligations":null}}`,
		"unknown members":    `{"decision":true,"future":[[[[{"a":1}]]]],"x":{"decision":false}}`,
		"name like decision": `{"Decision":false,"decision":true}`,
	}
	for name, body := range permits {
		t.Run(name, func(t *testing.T) {
			d := newClient(t, stub(t, says(body))).Evaluate(t.Context(), question)
			if !d.Permitted() || d.Err() != nil || d.String() != "permit" {
				t.Errorf("%s is %v", body, d)
			}
		})
	}
	c := newClient(t, stub(t, says(`{"decision":false,"context":{"reason":"unknown_entity","reason_user":"Who?","x":1}}`)))
	d := c.Evaluate(t.Context(), question)
	if d.Permitted() || d.Err() != nil || d.Reason() != "unknown_entity" || d.ReasonUser() != "Who?" || d.String() != "deny: unknown_entity" {
		t.Errorf("a deny is %v, %q, %q, %v", d, d.Reason(), d.ReasonUser(), d.Err())
	}
	if got := string(d.Context()); got != `{"reason":"unknown_entity","reason_user":"Who?","x":1}` {
		t.Errorf("context %s", got)
	}
	if d.RequestID() == "" {
		t.Error("no request id")
	}
	wantDeny(t, newClient(t, stub(t, says(`{"allow":true}`))).Evaluate(t.Context(), question), authzenclient.Odd)
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"", "pdp", "ftp://pdp", "https://", "https://:1", "https://u:secret@pdp", "https://pdp/?q", "https://pdp?", "https://pdp#f", "https://pdp#", "http://pdp.example.com", "http://10.0.0.1", "://", "https://pdp/%zz",
	} {
		if _, err := authzenclient.New(url); err == nil {
			t.Errorf("%q was accepted", url)
		} else if got := err.Error(); len(got) < 10 || strings.Contains(got, "secret") {
			t.Errorf("%q: %s", url, got)
		}
	}
	for name, option := range map[string]authzenclient.Option{
		"empty key":        authzenclient.WithKey(""),
		"key with newline": authzenclient.WithKey("a\nb"),
		"tenant":           authzenclient.WithTenant("../x"),
		"no tenant":        authzenclient.WithTenant(""),
		"timeout":          authzenclient.WithTimeout(0),
		"retries":          authzenclient.WithRetries(-1),
		"breaker":          authzenclient.WithBreaker(-1, 0),
		"body":             authzenclient.WithMaxBody(0),
		"page size":        authzenclient.WithPageSize(0),
		"origin":           authzenclient.WithEndpointOrigin("https://x/path"),
		"plain origin":     authzenclient.WithEndpointOrigin("http://x"),
		"no http client":   authzenclient.WithHTTPClient(nil),
	} {
		if _, err := authzenclient.New("https://pdp", option); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	for _, url := range []string{"https://pdp", "https://pdp/", "https://pdp:8443/base", "http://localhost:1", "http://127.0.0.1:1", "http://[::1]:1"} {
		if _, err := authzenclient.New(url); err != nil {
			t.Errorf("%q: %v", url, err)
		}
	}
	if _, err := authzenclient.New("http://pdp", authzenclient.WithPlainHTTP()); err != nil {
		t.Error(err)
	}
}
