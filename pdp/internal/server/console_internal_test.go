package server

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// What the console asks for is a request of its own: it has what the console gave it, and nothing of the browser's
// request but its context.
func TestConsoleAsksForItself(t *testing.T) {
	t.Parallel()
	type key struct{}
	var got *http.Request
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		w.Header().Set("X-Of", "the answer")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.Copy(w, r.Body)
	})
	r, err := http.NewRequestWithContext(context.WithValue(t.Context(), key{}, "browser"), http.MethodPost, "https://localhost/v1/approvals?tenant=a", strings.NewReader("said"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Host, r.TLS = "localhost", &tls.ConnectionState{Version: tls.VersionTLS13}
	answer, err := fromConsole{api}.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil || string(body) != "said" || answer.StatusCode != http.StatusTeapot || answer.Header.Get("X-Of") != "the answer" {
		t.Errorf("got %d %s, %v", answer.StatusCode, body, err)
	}
	if got.Host != "console.invalid" || got.RemoteAddr != "" || got.TLS != r.TLS || len(got.Header) != 1 || got.RequestURI != "/v1/approvals?tenant=a" || got.Context().Value(key{}) != "browser" {
		t.Errorf("asked %s %s from %q with %v", got.Host, got.RequestURI, got.RemoteAddr, got.Header)
	}
	if r.Host != "localhost" {
		t.Error("the console's own request was changed")
	}
}

// Who goes away from a page takes with them what the page asked for, and a request that is cut off is no answer.
func TestConsoleAsksNoLongerThanItsBrowser(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	asked := make(chan bool)
	transport := fromConsole{http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	})}
	go func() { <-asked; leave() }()
	for _, want := range []error{io.ErrUnexpectedEOF, context.Canceled} {
		answer, err := transport.RoundTrip(httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/me", nil))
		if err == nil {
			_ = answer.Body.Close()
		}
		if !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
}
