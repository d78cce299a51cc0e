package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/internal/server/auth"
)

// rightsActions are what a person can say about an approval request: what the button says, and how the API and the
// console take it.
var rightsActions = []struct {
	button, path, body string
	form               url.Values
}{
	{"Approve", "decision", rightsYes, url.Values{"decision": {"approve"}, "reason": {"fine"}}},
	{"Deny", "decision", rightsNo, url.Values{"decision": {"deny"}, "reason": {"not today"}}},
	{"Delegate", "decision", `{"decision":"delegate","to":"user::\"zed\"","reason":"better you"}`, url.Values{"decision": {"delegate"}, "to": {`user::"zed"`}, "reason": {"better you"}}},
	{"Revoke", "revoke", `{"reason":"it was wrong"}`, url.Values{"reason": {"it was wrong"}}},
}

// rightsKnown is a person with their browser, logged in.
type rightsKnown struct {
	rightsPerson
	web *rightsWeb
}

// logIn logs everybody in who can log in, and then takes from them what they lose.
func (w *rightsWorld) logIn(people []rightsPerson) (all []rightsKnown) {
	w.t.Helper()
	for _, p := range people {
		one := rightsKnown{p, w.web(w.transport(p.name))}
		switch p.by {
		case byAPIKey:
			if got, want := one.web.logIn(w.secret[p.name]).status, p.answered(http.StatusSeeOther); got != want {
				w.t.Errorf("%s logs in: got %d, want %d", p.name, got, want)
			}
		case byIssuer:
			if got := one.web.logInAtProvider(p); got.status != http.StatusSeeOther || got.location != "/approvals" {
				w.t.Errorf("%s logs in: got %d to %s", p.name, got.status, got.location)
			}
		}
		all = append(all, one)
	}
	for _, p := range people {
		if p.revoked {
			rightsMust(w.t, w.keys.Revoke(p.name))
			for began := time.Now(); w.api(p.name, http.MethodGet, "/v1/approvals", "").Status != http.StatusUnauthorized; {
				if time.Since(began) > time.Minute {
					w.t.Fatalf("the key of %s counts although it is revoked", p.name)
				}
			}
		}
	}
	return all
}

// answered is the status of the API's answer to a person as far as the console knows them: neither a gateway's key nor a
// certificate is a login.
func (p rightsPerson) answered(status int) int {
	if slices.Contains(p.permissions, auth.Relay) || p.by == byCertificate {
		return http.StatusUnauthorized
	}
	return status
}

// rightsPages is what the console answers to the API's answer to a GET.
func rightsPages(api int) int {
	switch api {
	case http.StatusOK:
		return http.StatusOK
	case http.StatusUnauthorized:
		return http.StatusSeeOther // to the login
	}
	return http.StatusNotFound // of what a person may not see they are not told that it is there
}

// rightsRuled is what the console answers to the API's answer to a vote.
func rightsRuled(api int) int {
	if api == http.StatusOK {
		return http.StatusSeeOther // to the approval request
	}
	return api
}

// What people see and may do in the console is what the API shows them and lets them do, whoever they are and in
// whatever state an approval request is: the page is there or not; each button is there if it would count; and what is
// sent counts as it would there.
func TestRightsAreThoseOfTheAPI(t *testing.T) {
	t.Parallel()
	people := rightsPeople()
	w := openRights(t, people)
	states := rightsStates()
	slices.SortStableFunc(states, func(a, b rightsState) int { // time passes before anybody logs in
		return map[bool]int{true: -1, false: 1}[a.name == rightsExpired]
	})
	expired := w.makes(states[0])
	all := w.logIn(people)
	if testing.Short() { // who runs beside whom shows with a third of them
		n := 0
		all = slices.DeleteFunc(all, func(rightsKnown) bool { n++; return n%3 != 1 })
	}
	did := &rightsCounts{of: map[string]int64{}}
	for _, s := range states {
		var group sync.WaitGroup
		for _, p := range all {
			group.Go(func() {
				id := expired
				if s.name != rightsExpired {
					id = w.makes(s)
				}
				got := p.web.get("/approvals/" + id)
				api := p.answered(w.api(p.name, http.MethodGet, "/v1/approvals/"+id, "").Status)
				if got.status != rightsPages(api) {
					t.Errorf("%s, %s: the page is %d, and the API answers %d", p.name, s.name, got.status, api)
				}
				w.acts(p, s, id, got, did)
			})
		}
		group.Wait()
	}
	for what, least := range map[string]int64{"Approve": 40, "Deny": 40, "Delegate": 30, "Revoke": 5, "refused": 500} {
		if testing.Short() {
			least = max(1, least/10)
		}
		if got := did.get(what); got < least {
			t.Errorf("%s: tried %d times, want %d at least", what, got, least)
		}
	}
}

// rightsCounts counts what was tried.
type rightsCounts struct {
	mu sync.Mutex
	of map[string]int64
}

func (c *rightsCounts) add(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[what]++
}

func (c *rightsCounts) get(what string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[what]
}

// acts has a person do everything about an approval request, by the API and in the console.
func (w *rightsWorld) acts(p rightsKnown, s rightsState, id string, page rightsPage, did *rightsCounts) {
	w.t.Helper()
	t := w.t
	for _, a := range rightsActions {
		what := fmt.Sprintf("%s, %s, %s", p.name, s.name, a.button)
		to := "/approvals/" + id + "/" + a.path
		before := w.version(id, s)
		api := w.api(p.name, http.MethodPost, "/v1"+to, a.body)
		api.Status = p.answered(api.Status)
		after := w.view(id, s)
		if api.Status == http.StatusOK {
			id = w.makes(s)
			to, page = "/approvals/"+id+"/"+a.path, p.web.get("/approvals/"+id)
		} else if w.version(id, s) != before {
			t.Fatalf("%s: the API refuses, and something has changed", what)
		}
		_, _, there := page.button(a.button)
		if there != (api.Status == http.StatusOK) {
			t.Errorf("%s: the button is there: %t, and the API answers %d %s", what, there, api.Status, rightsBrief(api.Body, 150))
		}
		form, known := rightsTokenFor(page, to)
		if !known { // the page has no form that is sent there
			if got := p.web.post(to, url.Values{"token": {"x"}, "version": {"1"}, "decision": a.form["decision"], "reason": {"x"}, "to": a.form["to"]}); got.status < 400 {
				t.Errorf("%s: without a token it is %d", what, got.status)
			}
			if w.version(id, s) != before && api.Status != http.StatusOK {
				t.Errorf("%s: without a token it counts", what)
			}
			did.add("refused")
			continue
		}
		for name, values := range a.form {
			form[name] = values
		}
		got := p.web.post(to, form)
		if got.status != rightsRuled(api.Status) {
			t.Errorf("%s: the console answers %d, and the API %d %s", what, got.status, api.Status, rightsBrief(api.Body, 150))
		}
		if api.Status != http.StatusOK {
			did.add("refused")
			if w.version(id, s) != before {
				t.Errorf("%s: it is refused, and something has changed", what)
			}
			continue
		}
		did.add(a.button)
		now, byConsole := w.view(id, s), true
		if a.path == "decision" {
			now, byConsole = now.counted()
		}
		if !byConsole || !now.like(after) {
			t.Errorf("%s: by the console it is %+v, and by the API %+v", what, now, after)
		}
		id = w.makes(s)
		page = p.web.get("/approvals/" + id)
	}
}

// rightsTokenFor is what the form of a page sends to a path besides what people write and press.
func rightsTokenFor(p rightsPage, to string) (url.Values, bool) {
	for _, f := range p.forms() {
		if f.to == to {
			return f.hidden, true
		}
	}
	return nil, false
}

// rightsView is an approval request as far as the way by which somebody votes does not show.
type rightsView struct {
	Status  string
	Version int
	Said    []struct{ By, Decision, Reason, To, Via string }
}

// counted is the view of a vote by the console as if it had come by the API. It must say of the last vote that it came
// by the console.
func (v rightsView) counted() (rightsView, bool) {
	v.Said = slices.Clone(v.Said)
	last := &v.Said[len(v.Said)-1]
	was := last.Via
	last.Via = "api"
	return v, was == "console"
}

func (v rightsView) like(other rightsView) bool {
	return v.Status == other.Status && v.Version == other.Version && slices.Equal(v.Said, other.Said)
}

// view is an approval request as the program sees it that asked.
func (w *rightsWorld) view(id string, s rightsState) (v rightsView) {
	w.t.Helper()
	got := w.api(s.asker(), http.MethodGet, "/v1/approvals/"+id, "")
	if err := json.Unmarshal([]byte(got.Body), &v, json.MatchCaseInsensitiveNames(true)); got.Status != http.StatusOK || err != nil {
		w.t.Fatalf("%s sees %d %s", s.asker(), got.Status, got.Body)
	}
	return v
}

// version is that of an approval request. That time was up goes on record a moment later, and makes a version that says
// nothing new.
func (w *rightsWorld) version(id string, s rightsState) int {
	w.t.Helper()
	v := w.view(id, s)
	if s.name == rightsExpired && v.Status == "expired" {
		return -len(v.Said)
	}
	return v.Version
}
