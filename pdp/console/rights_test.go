package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/server/auth"
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
		one := rightsKnown{p, w.web(nil)}
		if p.by == byAPIKey {
			got, want := one.web.logIn(w.secret[p.name]), http.StatusSeeOther
			if slices.Contains(p.permissions, auth.Relay) { // there is nobody behind a gateway's key
				want = http.StatusUnauthorized
			}
			if got.status != want {
				w.t.Errorf("%s logs in: got %d, want %d", p.name, got.status, want)
			}
		}
		all = append(all, one)
	}
	for _, p := range people {
		if p.revoked {
			rightsMust(w.t, w.keys.Revoke(p.name))
			for began := time.Now(); w.api(p.name, http.MethodGet, "/v1/approvals", "").Status != http.StatusUnauthorized; {
				if time.Since(began) > 10*time.Second {
					w.t.Fatalf("the key of %s counts although it is revoked", p.name)
				}
			}
		}
	}
	return all
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
	w := openRights(t, people, rightsConsole)
	states := rightsStates()
	slices.SortStableFunc(states, func(a, b rightsState) int { // time passes before anybody logs in
		return map[bool]int{true: -1, false: 1}[a.name == rightsExpired]
	})
	expired := w.makes(states[0])
	all := w.logIn(people)
	did := map[string]int{}
	for _, s := range states {
		id := expired
		if s.name != rightsExpired {
			id = w.makes(s)
		}
		for _, p := range all {
			what := p.name + ", " + s.name
			got := p.web.get("/approvals/" + id)
			api := w.api(p.name, http.MethodGet, "/v1/approvals/"+id, "")
			if slices.Contains(p.permissions, auth.Relay) { // who could not log in is nobody
				api.Status = http.StatusUnauthorized
			}
			if got.status != rightsPages(api.Status) {
				t.Errorf("%s: the page is %d, and the API answers %d", what, got.status, api.Status)
			}
			id = w.acts(p, s, id, got, did)
		}
	}
	if did["Approve"] < 20 || did["Deny"] < 20 || did["Delegate"] < 15 || did["Revoke"] < 5 || did["refused"] < 100 {
		t.Errorf("not enough was tried: %v", did)
	}
}

// acts has a person do everything about an approval request, by the API and in the console, and returns one that is in
// the same state still.
func (w *rightsWorld) acts(p rightsKnown, s rightsState, id string, page rightsPage, did map[string]int) string {
	w.t.Helper()
	t := w.t
	for _, a := range rightsActions {
		what := fmt.Sprintf("%s, %s, %s", p.name, s.name, a.button)
		to := "/approvals/" + id + "/" + a.path
		before := w.version(id, s)
		api := w.api(p.name, http.MethodPost, "/v1"+to, a.body)
		after := w.view(id, s)
		if api.Status == http.StatusOK {
			id = w.makes(s)
			to, page = "/approvals/"+id+"/"+a.path, p.web.get("/approvals/"+id)
		} else if w.version(id, s) != before {
			t.Fatalf("%s: the API refuses, and something has changed", what)
		}
		_, _, there := page.button(a.button)
		if there != (api.Status == http.StatusOK) {
			t.Errorf("%s: the button is there: %t, and the API answers %d %s", what, there, api.Status, api.Body)
		}
		form, known := rightsTokenFor(page, to)
		if !known { // the page has no form that is sent there
			if got := p.web.post(to, url.Values{"token": {"x"}, "version": {"1"}, "decision": a.form["decision"], "reason": {"x"}, "to": a.form["to"]}); got.status < 400 {
				t.Errorf("%s: without a token it is %d", what, got.status)
			}
			if w.version(id, s) != before && api.Status != http.StatusOK {
				t.Errorf("%s: without a token it counts", what)
			}
			did["refused"]++
			continue
		}
		for name, values := range a.form {
			form[name] = values
		}
		got := p.web.post(to, form)
		if got.status != rightsRuled(api.Status) {
			t.Errorf("%s: the console answers %d, and the API %d %s", what, got.status, api.Status, api.Body)
		}
		if api.Status != http.StatusOK {
			did["refused"]++
			if w.version(id, s) != before {
				t.Errorf("%s: it is refused, and something has changed", what)
			}
			continue
		}
		did[a.button]++
		if now := w.view(id, s); !now.like(after) {
			t.Errorf("%s: by the console it is %+v, and by the API %+v", what, now, after)
		}
		id = w.makes(s)
		page = p.web.get("/approvals/" + id)
	}
	return id
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

func (v rightsView) like(other rightsView) bool {
	for n := range v.Said {
		if n == len(v.Said)-1 && len(other.Said) == len(v.Said) {
			if v.Said[n].Via != "console" || other.Said[n].Via != "api" {
				return false
			}
			v.Said[n].Via = "api"
		}
	}
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

func (w *rightsWorld) version(id string, s rightsState) int {
	w.t.Helper()
	return w.view(id, s).Version
}
