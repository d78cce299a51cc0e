package door_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/door"
)

// credential authenticates every request with an Authorization as its caller.
type credential struct{ caller *auth.Caller }

func (c credential) Authenticate(r *http.Request) (auth.Caller, error) {
	if r.Header.Get("Authorization") == "" {
		return auth.Caller{}, &auth.Refusal{Kind: auth.ErrUnauthenticated, Detail: "no credential", Credential: auth.ByNone}
	}
	return *c.caller, nil
}

type uncounted struct{}

func (uncounted) Problem(int, bool)          {}
func (uncounted) Limit(string)               {}
func (uncounted) Undecided(string)           {}
func (uncounted) Credential(auth.Credential) {}

// A request is wrong in everything. Mending what it is refused for, one thing after the other, shows the order in
// which Admit checks.
func TestTheOrderOfAdmission(t *testing.T) {
	t.Parallel()
	clock := time.Unix(1000, 0)
	caller := auth.Caller{Name: "key:pep", Tenants: []string{"acme"}}
	var room error = door.TooMany("log_full", time.Second, http.StatusServiceUnavailable, "no room")
	d := door.New(door.Options{
		Limits:     evaluation.Limits{Body: 10},
		Load:       door.LoadConfig{RequestTime: time.Second, RateLimit: door.RateLimit{Rate: door.Rate{PerSecond: 1}}},
		Now:        func() time.Time { return clock },
		Log:        slog.New(slog.DiscardHandler),
		Meters:     uncounted{},
		LogContext: (*http.Request).Context,
		Callers:    func(context.Context) door.Authenticator { return credential{&caller} },
		HasTenant:  func(name string) (bool, error) { return name == "acme", nil },
		Room:       func(*auth.Caller) error { return room },
		Explain:    func(error, evaluation.Shape) *door.Problem { return nil },
	})
	need := door.Need{
		Permission: auth.Decide,
		AllTenants: "not for all tenants",
		Tenant:     true,
		Absent:     door.NewProblem(http.StatusNotFound, "not here"),
		Records:    true,
		Parameters: door.NoParameters,
		Body:       door.JSON,
		Work:       door.ShortWork,
	}
	header, body, query, tenant := http.Header{}, strings.Repeat("x", 11), "?more=1", "other"
	for _, step := range []struct {
		refusal string
		mend    func()
	}{
		{"413", func() { body = "{}" }},
		{"no credential", func() { header.Set("Authorization", "any") }},
		{"no such tenant", func() { tenant = "acme" }},
		{"the permission decide", func() { caller.Permissions = []auth.Permission{auth.Decide} }},
		{"not for all tenants", func() { caller.AllTenants = true }},
		{"not here", func() { need.Absent = nil }},
		{"the Content-Type", func() { header.Set("Content-Type", "application/json"); d.Charge(caller, 2) }},
		{"more often than it may", func() {}},
		{"no room", func() { room = nil }},
		{"no parameter more", func() { query = "" }},
		{"", func() {}},
	} {
		r := httptest.NewRequest(http.MethodPost, "/tenants/"+tenant+query, strings.NewReader(body))
		r.Header = header
		c := echo.New().NewContext(r, httptest.NewRecorder())
		c.SetPath(door.TenantPrefix)
		c.SetParamNames("tenant")
		c.SetParamValues(tenant)
		a, err := d.Admit(c, need)
		switch {
		case step.refusal == "" && (err != nil || a.Caller.Name != caller.Name || a.Tenant != "acme" || string(a.Body) != "{}"):
			t.Errorf("nothing is wrong: %v, %+v", err, a)
		case step.refusal != "" && (err == nil || !strings.Contains(err.Error(), step.refusal)):
			t.Errorf("got %v, want %q", err, step.refusal)
		}
		step.mend()
		if room == nil || step.refusal == "more often than it may" {
			clock = clock.Add(time.Hour) // what was asked costs nothing any more
		}
	}
}

// The query of a route that names no parameters is left alone, and that of a route without any must be empty.
func TestParameters(t *testing.T) {
	t.Parallel()
	d := door.New(door.Options{
		Now:     time.Now,
		Meters:  uncounted{},
		Callers: func(context.Context) door.Authenticator { return auth.Loopback{} },
	})
	for _, test := range []struct {
		query   string
		known   []string
		refusal string
	}{
		{"?any=1&any=", nil, ""},
		{"", door.NoParameters, ""},
		{"?any=1", door.NoParameters, "there is no parameter any; there are none here"},
		{"?any=1", []string{"any"}, ""},
		{"?any=1&any=2", []string{"any"}, "more than once"},
		{"?any=", []string{"any"}, "is empty"},
		{"?any=%ff", []string{"any"}, "not UTF-8"},
		{"?%3cscript%3e=1", []string{"any"}, "there is no parameter of that name"},
		{"?any=%", []string{"any"}, "cannot be read"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/"+test.query, nil)
		r.Host = "localhost"
		_, err := d.Admit(echo.New().NewContext(r, httptest.NewRecorder()), door.Need{Parameters: test.known})
		switch {
		case test.refusal == "" && err != nil, test.refusal != "" && (err == nil || !strings.Contains(err.Error(), test.refusal)):
			t.Errorf("%s: got %v, want %q", test.query, err, test.refusal)
		}
	}
}
