package authzenclient_test

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"policy-service/evaluation/authzenclient"
)

// watches watches, and fails on an error.
func watches(t *testing.T, c *authzenclient.Client, after string, wait time.Duration) authzenclient.Changes {
	t.Helper()
	changes, err := c.Watch(t.Context(), after, wait)
	if err != nil {
		t.Fatal(err)
	}
	return changes
}

// One watch follows all that a PEP has people asked about, in each tenant by itself.
func TestWatch(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	c := d.pep()
	none := watches(t, c, "", 30*time.Second)
	if none.Cursor() == "" || none.More() || len(none.TaskIDs()) > 0 {
		t.Errorf("at first: %v", none)
	}
	ask := func(n int) authzenclient.Handle {
		s, err := c.Ask(t.Context(), denies(t, c, push(map[string]any{"n": n})))
		d.must(err)
		return s.Handle()
	}
	first := ask(1)
	began := watches(t, c, none.Cursor(), 0)
	if !slices.Equal(began.TaskIDs(), []string{first.TaskID()}) {
		t.Errorf("began: %v", began.TaskIDs())
	}
	d.says("approve")()
	second := ask(2)
	waits := watches(t, d.pep(), "", 0)
	if !slices.Equal(waits.TaskIDs(), []string{second.TaskID()}) {
		t.Errorf("there wait %v", waits.TaskIDs())
	}
	changed := watches(t, c, began.Cursor(), 0)
	if s, ok := changed.Of(first); !ok || !s.Approved() {
		t.Errorf("the first: %v", s)
	}
	if s, ok := changed.Of(second); !ok || !s.Pending() || len(s.Approvals()) != 1 {
		t.Errorf("the second: %v", s)
	}

	asked := len(d.waits)
	c = d.pep(saysWhenWaited(d, d.says("deny")))
	last := watches(t, c, changed.Cursor(), 30*time.Second)
	s, ok := last.Of(second)
	if !ok || s.Pending() || s.Approved() || s.Err() == nil || len(d.waits) != asked || len(last.TaskIDs()) != 1 {
		t.Errorf("the last: %v, %v", s, last.TaskIDs())
	}
	if _, ok := last.Of(first); ok {
		t.Error("the first has changed again")
	}
	approved, _ := changed.Of(first)
	if e := c.Use(t.Context(), approved, nil).Discharge(t.Context(), nil); !e.Permitted() {
		t.Errorf("used: %v", e)
	}

	acme := d.pep(authzenclient.WithTenant("acme"))
	if there := watches(t, acme, "", 0); len(there.TaskIDs()) > 0 {
		t.Errorf("in another tenant: %v", there.TaskIDs())
	}
	for _, other := range []*authzenclient.Client{acme, d.pep(authzenclient.WithKey(d.key["other"]))} {
		if there, err := other.Watch(t.Context(), changed.Cursor(), 0); err == nil && len(there.TaskIDs()) > 0 {
			t.Errorf("another sees %v", there.TaskIDs())
		}
	}
	var failure *authzenclient.Error
	if _, err := d.pep(authzenclient.WithKey(d.key["decides"])).Watch(t.Context(), "", 0); !errors.As(err, &failure) || failure.Status != 403 || failure.Op != "watch" {
		t.Errorf("who may ask nobody: %v", err)
	}
}

// A PDP that holds no answer back is asked with pauses; what it says is read whole or not at all.
func TestWatchHostile(t *testing.T) {
	t.Parallel()
	const nothing = `{"tasks":[],"cursor":"c+1"}`
	answers := func(body string) []said { return []said{{200, body, nil}} }
	for name, test := range map[string]struct {
		answers []said
		ids     string // "" is an error
		asked   string
	}{
		"nothing, for long":  {answers(nothing), "none", "30s - - -"},
		"takes no wait":      {[]said{{400, `{}`, nil}, {200, nothing, nil}}, "none", "30s - - - -"},
		"one":                {answers(`{"tasks":[` + pendingTask + `],"cursor":"c"}`), "t1", "30s"},
		"one, twice":         {answers(`{"tasks":[` + pendingTask + `,` + approvedYes + `],"cursor":"c"}`), "t1", "30s"},
		"of several":         {answers(`{"tasks":[` + strings.Replace(pendingTask, `"display"`, `"items":[{}],"display"`, 1) + `,` + pendingTask + `],"cursor":"c"}`), "t1", "30s"},
		"more":               {answers(`{"tasks":[],"cursor":"c","more":true}`), "none", "30s"},
		"more, without end":  {answers(`{"tasks":[],"cursor":"a+b c","more":true}`), "", "30s"},
		"no cursor":          {answers(`{"tasks":[]}`), "", "30s"},
		"an empty cursor":    {answers(`{"tasks":[],"cursor":""}`), "", "30s"},
		"no tasks":           {answers(`{"cursor":"c"}`), "", "30s"},
		"tasks null":         {answers(`{"tasks":null,"cursor":"c"}`), "", "30s"},
		"a task that is odd": {answers(`{"tasks":[` + pendingTask + `,{}],"cursor":"c"}`), "", "30s"},
		"a member twice":     {answers(`{"tasks":[],"tasks":[` + pendingTask + `],"cursor":"c"}`), "", "30s"},
		"gone":               {[]said{{410, `{}`, nil}}, "", "30s -"},
		"not offered":        {[]said{{404, `{}`, nil}}, "", "30s -"},
		"moved":              {[]said{{302, "", []string{"Location", "EVIL/access/v1/requests"}}}, "", "30s"},
		"down":               {[]said{{503, nothing, nil}}, "", "30s -"},
		"left alone, long":   {[]said{{429, nothing, []string{"Retry-After", "3600"}}, {200, nothing, nil}}, "", "30s"},
		"left alone, a bit":  {[]said{{503, nothing, []string{"Retry-After", "7"}}, {200, `{"tasks":[` + pendingTask + `],"cursor":"c"}`, nil}}, "t1", "30s -"},
	} {
		t.Run(name, func(t *testing.T) {
			h := fair()
			var asked []string
			h.before = func(w http.ResponseWriter, r *http.Request) bool {
				if after := r.URL.Query().Get("after"); r.Method != http.MethodGet || after != "a+b c" || r.URL.Path != "/access/v1/requests" {
					t.Errorf("asked %s %s", r.Method, r.URL)
				}
				wait := r.URL.Query().Get("wait")
				if wait == "" {
					wait = "-"
				}
				a := test.answers[min(len(asked), len(test.answers)-1)]
				asked = append(asked, wait)
				w.Header().Set("Content-Type", "application/json")
				for n := 0; n+1 < len(a.headers); n += 2 {
					w.Header().Set(a.headers[n], h.text(a.headers[n+1]))
				}
				w.WriteHeader(a.status)
				_, _ = io.WriteString(w, h.text(a.body))
				return true
			}
			c := h.client(t, authzenclient.WithJitter(func() float64 { return 1 - 1e-9 }))
			began := h.now
			changes, err := c.Watch(t.Context(), "a+b c", time.Hour)
			got := strings.Join(changes.TaskIDs(), " ")
			if err == nil && got == "" {
				got = "none"
			}
			if got != test.ids || strings.Join(asked, " ") != test.asked {
				t.Errorf("got %q, %v, asked %v", got, err, asked)
			}
			var failure *authzenclient.Error
			if err != nil && (!errors.As(err, &failure) || failure.Op != "watch") {
				t.Errorf("got %v", err)
			}
			if took := h.now.Sub(began); name == "left alone, a bit" {
				if took != 7*time.Second {
					t.Errorf("it was left alone for %v", took)
				}
			} else if (test.asked == "30s - - -" || test.asked == "30s - - - -") != (took == 30*time.Second) {
				t.Errorf("took %v", took)
			}
		})
	}
}

// What another tenant's tasks have become is nothing that one learns of its own, be they called the same.
func TestWatchIsOfOneTenant(t *testing.T) {
	t.Parallel()
	h := fair()
	h.before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"tasks":[`+approvedYes+`],"cursor":"c"}`)
		return true
	}
	c := h.client(t)
	s, err := c.Ask(t.Context(), c.Enforce(t.Context(), question, nil))
	if err != nil {
		t.Fatal(err)
	}
	if own, ok := watches(t, c, "", 0).Of(s.Handle()); !ok || !own.Approved() {
		t.Errorf("its own: %v", own)
	}
	if other, ok := watches(t, h.again(t, authzenclient.WithTenant("acme")), "", 0).Of(s.Handle()); ok || other.Approved() {
		t.Errorf("the other tenant's: %v", other)
	}
	if none, ok := (authzenclient.Changes{}).Of(s.Handle()); ok || none.Approved() {
		t.Errorf("of nothing: %v", none)
	}
}
