package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/door"
)

func TestTeardownRunsAllOfItBackwards(t *testing.T) {
	t.Parallel()
	var order []string
	bang := errors.New("bang")
	var down lifetime
	for _, name := range []string{"first", "second", "third"} {
		down.add(name, func(context.Context) error {
			order = append(order, name)
			if name == "second" {
				return bang
			}
			return nil
		})
	}
	err := errors.Join(down.run(t.Context()), down.run(t.Context()))
	if !errors.Is(err, bang) || err.Error() != "stopping second: bang" {
		t.Errorf("got %v, want the name of what failed", err)
	}
	if want := []string{"third", "second", "first"}; !slices.Equal(order, want) {
		t.Errorf("ran %v, want %v once", order, want)
	}
}

func TestReadiness(t *testing.T) {
	t.Parallel()
	source := pdp.FS(fstest.MapFS{"a.cedar": {Data: []byte("permit (principal, action == Action::\"read\", resource);")}})
	ready, err := pdp.New(source, pdp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	of := func(p *pdp.PDP) *health {
		return &health{door: &door.Door{}, opened: func() []any { return []any{&policies{PDP: p}} }}
	}
	stopping := of(ready)
	stopping.door.Stopping.Store(true)
	for name, test := range map[string]struct {
		health *health
		code   int
		status string
	}{
		"ready":     {of(ready), http.StatusOK, "ready"},
		"stopping":  {stopping, http.StatusServiceUnavailable, "unavailable"},
		"no bundle": {of(pdp.Of(nil, pdp.Options{})), http.StatusServiceUnavailable, "unavailable"},
	} {
		code, state := test.health.readiness()
		if code != test.code || state.Status != test.status {
			t.Errorf("%s: got %d %s, want %d %s", name, code, state.Status, test.code, test.status)
		}
	}
}

func TestNoBundleDecidesNothing(t *testing.T) {
	t.Parallel()
	s, err := New(Config{Program: Program{Authenticator: auth.Loopback{}}})
	if err != nil {
		t.Fatal(err)
	}
	s.policies.PDP = pdp.Of(nil, pdp.Options{})
	for _, path := range []string{"/access/v1/evaluation", "/tenants/acme/access/v1/evaluation", "/v1/authorize"} {
		body := `{"tenant_id":"default","actor":{"actor_id":"a","actor_type":"u"},"subject":{"type":"u","id":"a"},"action":{"name":"read"},"resource":{"type":"d","id":"p"}}`
		if path == "/v1/authorize" {
			body = strings.Replace(body, `{"name":"read"}`, `"read"`, 1)
		}
		r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
		r.Host = "localhost"
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		public, _, err := s.handlers()
		if err != nil {
			t.Fatal(err)
		}
		public.ServeHTTP(w, r)
		if w.Code != http.StatusServiceUnavailable {
			t.Errorf("%s: got %d %s, want 503", path, w.Code, w.Body)
		}
	}
}

// An answer whose use is not counted is no answer, and the caller is told what to try.
func TestUnsettledIsNoAnswer(t *testing.T) {
	t.Parallel()
	for try, err := range map[string]error{
		"one process runs for each data directory": fmt.Errorf("%w: %w", pdp.ErrUnsettled, approval.ErrWithdrawn),
		"ask for another approval":                 fmt.Errorf("%w: %w", pdp.ErrUnsettled, approval.ErrUnavailable),
	} {
		for _, shape := range []evaluation.Shape{evaluation.Native, evaluation.AuthZEN} {
			p := explain(err, shape)
			if p == nil || p.Status != http.StatusServiceUnavailable || p.Undecided != "state" || !strings.Contains(p.Detail, "there is no answer") || !strings.Contains(p.Detail, try) {
				t.Errorf("%v: %+v", err, p)
			}
		}
	}
}
