package approvals_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
)

// watches watches, and fails on an error.
func watches(t *testing.T, c *authzenclient.Client, after string, wait time.Duration) approvals.Changes {
	t.Helper()
	changes, err := approvals.Watch(t.Context(), c, after, wait)
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
	ask := func(n int) approvals.Task {
		s, err := approvals.Ask(t.Context(), c, denies(t, c, push(map[string]any{"n": n})))
		d.must(err)
		return s.Task()
	}
	first := ask(1)
	began := watches(t, c, none.Cursor(), 0)
	if !slices.Equal(began.TaskIDs(), []string{first.ID()}) {
		t.Errorf("began: %v", began.TaskIDs())
	}
	d.says("approve")()
	second := ask(2)
	waits := watches(t, d.pep(), "", 0)
	if !slices.Equal(waits.TaskIDs(), []string{second.ID()}) {
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
	if e := approvals.Use(t.Context(), c, approved, push(map[string]any{"n": 1}), nil).Discharge(t.Context(), nil); !e.Permitted() {
		t.Errorf("used: %v", e)
	}

	acme := d.pep(authzenclient.WithTenant("acme"))
	if there := watches(t, acme, "", 0); len(there.TaskIDs()) > 0 {
		t.Errorf("in another tenant: %v", there.TaskIDs())
	}
	for _, other := range []*authzenclient.Client{acme, d.pep(authzenclient.WithKey(d.key["other"]))} {
		if there, err := approvals.Watch(t.Context(), other, changed.Cursor(), 0); err == nil && len(there.TaskIDs()) > 0 {
			t.Errorf("another sees %v", there.TaskIDs())
		}
	}
	var failure *authzenclient.Error
	if _, err := approvals.Watch(t.Context(), d.pep(authzenclient.WithKey(d.key["decides"])), "", 0); !errors.As(err, &failure) || failure.Status != 403 || failure.Op != "watch" {
		t.Errorf("who may ask nobody: %v", err)
	}
}

// The PDP is asked once, and its answer is read whole or not at all.
func TestWatchHostile(t *testing.T) {
	t.Parallel()
	const nothing = `{"tasks":[],"cursor":"c+1"}`
	answers := func(body string) []said { return []said{{200, body, nil}} }
	for name, test := range map[string]struct {
		answers []said
		ids     string // "" is an error
	}{
		"nothing, for long":  {answers(nothing), "none"},
		"takes no wait":      {[]said{{400, `{}`, nil}}, ""},
		"one":                {answers(`{"tasks":[` + pendingTask + `],"cursor":"c"}`), "t1"},
		"one, twice":         {answers(`{"tasks":[` + pendingTask + `,` + approvedYes + `],"cursor":"c"}`), "t1"},
		"of several":         {answers(`{"tasks":[` + strings.Replace(pendingTask, `"display"`, `"items":[{}],"display"`, 1) + `,` + pendingTask + `],"cursor":"c"}`), "t1"},
		"more":               {answers(`{"tasks":[],"cursor":"c","more":true}`), "none"},
		"more, without end":  {answers(`{"tasks":[],"cursor":"a+b c","more":true}`), ""},
		"no cursor":          {answers(`{"tasks":[]}`), ""},
		"an empty cursor":    {answers(`{"tasks":[],"cursor":""}`), ""},
		"no tasks":           {answers(`{"cursor":"c"}`), ""},
		"tasks null":         {answers(`{"tasks":null,"cursor":"c"}`), ""},
		"a task that is odd": {answers(`{"tasks":[` + pendingTask + `,{}],"cursor":"c"}`), ""},
		"a member twice":     {answers(`{"tasks":[],"tasks":[` + pendingTask + `],"cursor":"c"}`), ""},
		"gone":               {[]said{{410, `{}`, nil}}, ""},
		"not offered":        {[]said{{404, `{}`, nil}}, ""},
		"moved":              {[]said{{302, "", []string{"Location", "EVIL/access/v1/requests"}}}, ""},
		"down":               {[]said{{503, nothing, nil}}, ""},
		"left alone, long":   {[]said{{429, nothing, []string{"Retry-After", "3600"}}, {200, nothing, nil}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := fair()
			var asked []string
			h.before = func(r *http.Request) (said, bool) {
				query := r.URL.Query()
				if r.Method != http.MethodGet || query.Get("after") != "a+b c" || r.URL.Path != "/access/v1/requests" {
					t.Errorf("asked %s %s", r.Method, r.URL)
				}
				asked = append(asked, query.Get("wait"))
				return test.answers[min(len(asked), len(test.answers))-1], true
			}
			c := h.client(t)
			changes, err := approvals.Watch(t.Context(), c, "a+b c", time.Hour)
			got := strings.Join(changes.TaskIDs(), " ")
			if err == nil && got == "" {
				got = "none"
			}
			if got != test.ids || strings.Join(asked, " ") != "30s" {
				t.Errorf("got %q, %v, asked %v", got, err, asked)
			}
			var failure *authzenclient.Error
			if err != nil && (!errors.As(err, &failure) || failure.Op != "watch") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// The PDP is asked to wait as long as there is time for.
func TestWaits(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		wait    time.Duration
		options []authzenclient.Option
		want    string
	}{
		"at once":         {0, nil, ""},
		"negative":        {-time.Hour, nil, ""},
		"a moment":        {time.Second - 1, nil, ""},
		"a second":        {1900 * time.Millisecond, nil, "1s"},
		"the longest":     {time.Hour, nil, "30s"},
		"the HTTP client": {time.Hour, []authzenclient.Option{authzenclient.WithTimeout(5 * time.Second), authzenclient.WithHTTPClient(&http.Client{Timeout: 20 * time.Second})}, "15s"},
		"its short time":  {time.Hour, []authzenclient.Option{authzenclient.WithTimeout(5 * time.Second), authzenclient.WithHTTPClient(&http.Client{Timeout: 5 * time.Second})}, ""},
	} {
		h, asked := fair(), "nothing"
		h.before = func(r *http.Request) (said, bool) {
			asked = r.URL.Query().Get("wait")
			return said{200, `{"tasks":[],"cursor":"c"}`, nil}, true
		}
		if watches(t, h.client(t, test.options...), "a", test.wait); asked != test.want {
			t.Errorf("%s: it was asked to wait %q", name, asked)
		}
	}
}

// Tasks of another tenant say nothing of those of the own one, be they called the same.
func TestWatchIsOfOneTenant(t *testing.T) {
	t.Parallel()
	h := fair()
	h.before = func(r *http.Request) (said, bool) {
		return said{200, `{"tasks":[` + approvedYes + `],"cursor":"c"}`, nil}, r.Method == http.MethodGet
	}
	c := h.client(t)
	s, err := approvals.Ask(t.Context(), c, c.Enforce(t.Context(), question, nil))
	if err != nil {
		t.Fatal(err)
	}
	if own, ok := watches(t, c, "", 0).Of(s.Task()); !ok || !own.Approved() {
		t.Errorf("its own: %v", own)
	}
	if other, ok := watches(t, h.again(t, authzenclient.WithTenant("acme")), "", 0).Of(s.Task()); ok || other.Approved() {
		t.Errorf("the other tenant's: %v", other)
	}
	if none, ok := (approvals.Changes{}).Of(s.Task()); ok || none.Approved() {
		t.Errorf("of nothing: %v", none)
	}
}
