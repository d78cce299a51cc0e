package approvals_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
)

const secret = "psk_abc_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG"

var question = evaluation.Request{
	Subject:  evaluation.Entity{Type: "user", ID: "alice"},
	Action:   evaluation.Action{Name: "read"},
	Resource: evaluation.Entity{Type: "doc", ID: "plan"},
}

// answering is a client of a PDP that answers every request with 200, JSON and a body. No wait of the client takes time.
func answering(t testing.TB, body string) *authzenclient.Client {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	c, err := authzenclient.New(s.URL, authzenclient.WithClock(nil, func(ctx context.Context, _ time.Duration) error { return ctx.Err() }))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestMain starts the servers of the examples.
func TestMain(m *testing.M) {
	stop, err := withPeople()
	stopAgents := func() {}
	if err == nil {
		stopAgents, err = withAgents()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	stop()
	stopAgents()
	os.Exit(code)
}
