package console_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"golang.org/x/net/html"

	"policy-service/pdp"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/visible/hostile"
)

// The tabs of the inbox, and what the API is asked for each.
var rightsTabsOfInbox = map[string]string{
	"tab=mine":                  "status=pending&voted=false",
	"":                          "status=pending&voted=false",
	"tab=said":                  "status=all&voted=true&order=newest",
	"tab=said&status=pending":   "status=pending&voted=true&order=newest",
	"tab=said&status=approved":  "status=approved&voted=true&order=newest",
	"tab=said&status=revoked":   "status=revoked&voted=true&order=newest",
	"tab=done":                  "status=ended&order=newest",
	"tab=done&status=denied":    "status=denied&order=newest",
	"tab=done&status=expired":   "status=expired&order=newest",
	"tab=done&status=used_up":   "status=used_up&order=newest",
	"tab=done&status=cancelled": "status=cancelled&order=newest",
	"tab=mine&tenant=acme":      "status=pending&voted=false&tenant=acme",
	"tab=mine&tenant=nosuch":    "status=pending&voted=false&tenant=nosuch",
	"tab=mine&template=pair":    "status=pending&voted=false&template=pair",
	"tab=mine&subject=agent/bot&resource=fixed":   "status=pending&voted=false&subject=agent/bot&resource=fixed",
	"tab=mine&action=nothing":                     "status=pending&voted=false&action=nothing",
	"tab=nosuch&status=denied&voted=true&limit=1": "status=pending&voted=false",
}

// The inbox lists what the API lists, whoever looks, on all of its pages.
func TestInboxIsThatOfTheAPI(t *testing.T) {
	t.Parallel()
	people := rightsPeople()
	w := openRights(t, people)
	states := rightsStates()
	slices.SortStableFunc(states, func(a, b rightsState) int {
		return map[bool]int{true: -1, false: 1}[a.name == rightsExpired]
	})
	for _, s := range states {
		n := 2
		if s.name == "pending" {
			n = 60 // a page has fewer
		}
		for range n {
			w.makes(s)
		}
	}
	most := 0
	for _, p := range w.logIn(people) {
		for tab, query := range rightsTabsOfInbox {
			want, status := w.listed(p.name, query)
			status = p.answered(status)
			if status != http.StatusOK {
				want := rightsPages(status)
				if slices.Contains(p.permissions, auth.LogRead) && want == http.StatusNotFound {
					want = http.StatusSeeOther // to the records
				}
				if got := p.web.get("/approvals?" + tab); got.status != want || len(got.rows()) > 0 {
					t.Errorf("%s, %s: the page is %d with %d rows, and the API answers %d", p.name, tab, got.status, len(got.rows()), status)
				}
				continue
			}
			if got := p.web.listed(tab); !slices.Equal(got, want) {
				t.Errorf("%s, %s: %d rows, and the API lists %d", p.name, tab, len(got), len(want))
			}
			most = max(most, len(want))
		}
	}
	if most < 60 {
		t.Errorf("nobody sees more than %d", most)
	}
}

// listed are the ids that the API lists, and the status of its answer.
func (w *rightsWorld) listed(who, query string) (ids []string, status int) {
	w.t.Helper()
	got := w.api(who, http.MethodGet, "/v1/approvals?limit=200&"+query, "")
	var page struct{ Items []struct{ ID string } }
	if got.Status == http.StatusOK {
		rightsMust(w.t, json.Unmarshal([]byte(got.Body), &page, json.MatchCaseInsensitiveNames(true)))
	}
	for _, one := range page.Items {
		ids = append(ids, one.ID)
	}
	return ids, got.Status
}

// listed are the ids that all pages of a tab list.
func (b *rightsWeb) listed(tab string) (ids []string) {
	b.w.t.Helper()
	for next := "/approvals?" + tab; next != ""; {
		page := b.get(next)
		if page.status != http.StatusOK {
			b.w.t.Errorf("%s is %d", next, page.status)
		}
		ids, next = append(ids, page.rows()...), ""
		for n := range page.root.Descendants() {
			if n.Data == "a" && rightsAttr(n, "rel") == "next" {
				next = strings.TrimPrefix(rightsAttr(n, "href"), "/console")
			}
		}
	}
	return ids
}

// A page that is older than what it is about decides nothing, whatever has happened meanwhile.
func TestStalePagesDecideNothing(t *testing.T) {
	t.Parallel()
	people := rightsPeople()
	w := openRights(t, people)
	all := w.logIn(people)
	is := func(p rightsKnown) bool { return p.name == "approver" }
	approver := all[slices.IndexFunc(all, is)]
	pending := rightsState{name: "pending", tool: "two"} // half an approval leaves it pending
	for name, happens := range map[string]func(id string){
		"somebody approves": func(id string) { w.says("voted", id, "decision", rightsYes) },
		"somebody denies":   func(id string) { w.says("voted", id, "decision", rightsNo) },
		"somebody delegates": func(id string) {
			w.says("delegated", id, "decision", `{"decision":"delegate","to":"user::\"dan\"","reason":"r"}`)
		},
		"the program cancels": func(id string) { w.says("asked", id, "cancel", "") },
		"the person votes":    func(id string) { w.says("approver", id, "decision", rightsYes) },
		"two approve": func(id string) {
			w.says("voted", id, "decision", rightsYes)
			w.says("all tenants", id, "decision", rightsYes)
		},
	} {
		for _, a := range rightsActions[:3] {
			id := w.makes(pending)
			to := "/approvals/" + id + "/" + a.path
			form, ok := rightsTokenFor(approver.web.get("/approvals/"+id), to)
			if !ok {
				t.Fatal("there is no form")
			}
			happens(id)
			before := w.view(id, pending)
			for field, values := range a.form {
				form[field] = values
			}
			want := http.StatusConflict
			if name == "the person votes" && a.button == "Approve" { // they have, and are told so
				want = http.StatusSeeOther
			}
			got := approver.web.post(to, form)
			if after := w.view(id, pending); got.status != want || !after.like(before) {
				t.Errorf("%s, then %s: got %d; it was %+v, and is %+v", name, a.button, got.status, before, after)
			}
			form.Set("version", fmt.Sprint(before.Version)) // the token is for another one
			if got, after := approver.web.post(to, form), w.view(id, pending); got.status != http.StatusForbidden || !after.like(before) {
				t.Errorf("%s, then %s with another version: got %d", name, a.button, got.status)
			}
		}
	}
}

// Whoever is no approver any more decides nothing by a page of before, and finds nothing there.
func TestRightsThatAreGone(t *testing.T) {
	t.Parallel()
	w, dir := newRightsWorld(t), t.TempDir()
	w.grants(rightsPerson{name: "approver", principal: "mia", tenants: []string{"*"}, permissions: []auth.Permission{auth.Approve}})
	w.grants(rightsPerson{name: "asked", tenants: []string{"*"}, permissions: []auth.Permission{auth.Decide}})
	write := func(name, text string) { rightsMust(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)) }
	write("a.cedar", strings.ReplaceAll(rightsPolicies, `principal in team::"leads"`, `principal == user::"mia"`))
	write("obligations.yaml", rightsObligations)
	w.open(pdp.Dir(dir))
	web := w.web(nil)
	web.logIn(w.secret["approver"])
	s := rightsState{name: "pending", tool: "one"}
	id := w.makes(s)
	form, ok := rightsTokenFor(web.get("/approvals/"+id), "/approvals/"+id+"/decision")
	write("a.cedar", rightsPolicies)
	rightsMust(t, w.Reload(t.Context()))
	maps.Copy(form, rightsActions[0].form)
	got := web.post("/approvals/"+id+"/decision", form)
	if now := w.view(id, s); !ok || got.status != http.StatusNotFound || now.Version != 1 {
		t.Errorf("got %d, and it is %+v", got.status, now)
	}
	if got := web.get("/approvals/" + id); got.status != http.StatusNotFound {
		t.Errorf("the page is %d", got.status)
	}
	if rows := web.get("/approvals").rows(); len(rows) > 0 {
		t.Errorf("the inbox has %q", rows)
	}
}

// rightsOutline is what a page is made of: its elements, and their attributes but for what somebody typed and where links
// lead that go on from there.
func rightsOutline(root *html.Node) string {
	var b strings.Builder
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		b.WriteString(n.Data)
		for _, a := range n.Attr {
			if a.Key == "value" || a.Key == "href" && strings.Contains(a.Val, "?") && strings.HasPrefix(a.Val, "/console/") {
				a.Val = ""
			}
			fmt.Fprintf(&b, " %s=%q", a.Key, a.Val)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// What stands in the address of a page is a text on it at most.
func TestHostileAddresses(t *testing.T) {
	t.Parallel()
	people := rightsPeople()
	w := openRights(t, people)
	nobody, known := w.web(w.transport("")), w.logIn(people)[1].web
	pages := map[string]struct {
		by   *rightsWeb
		path func(text string) string
	}{
		"the login":     {nobody, func(text string) string { return "/login?next=" + url.QueryEscape(text) }},
		"the filter":    {known, func(text string) string { return "/approvals?" + rightsFilter(text) }},
		"the cursor":    {known, func(text string) string { return "/approvals?cursor=" + url.QueryEscape(text) }},
		"nowhere":       {known, func(text string) string { return "/x" + url.PathEscape(text) }},
		"no request":    {known, func(text string) string { return "/approvals/x" + url.PathEscape(text) }},
		"the callback":  {nobody, func(text string) string { return "/login/callback?state=x&error=" + url.QueryEscape(text) }},
		"no parameters": {nobody, func(text string) string { return "/login?" + url.QueryEscape(text) + "=" + url.QueryEscape(text) }},
	}
	for name, page := range pages {
		harmless := page.by.get(page.path(rightsHarmless))
		outlines := []string{rightsOutline(harmless.root), rightsOutline(page.by.get(page.path("a/b")).root)} // no path has %2F
		for _, text := range append(someOf(hostile.UTF8()), "\xff\xfe") {
			if len(text) > 400 || strings.TrimSpace(text) == "" {
				continue // a server takes no such address, or it is none
			}
			got := page.by.get(page.path(text))
			if got.status != harmless.status && got.status != http.StatusBadRequest && got.status != http.StatusNotFound || len(got.location) > 0 && got.location != harmless.location {
				t.Errorf("%s, %.60q: got %d to %s, and %d to %s without it", name, text, got.status, got.location, harmless.status, harmless.location)
			}
			if got.status == harmless.status && !slices.Contains(outlines, rightsOutline(got.root)) {
				t.Errorf("%s, %.60q: another page: %s", name, text, rightsDifference(strings.Split(outlines[0], "\n"), strings.Split(rightsOutline(got.root), "\n")))
			}
		}
	}
}

func rightsFilter(text string) string {
	q := url.Values{}
	for _, name := range []string{"tab", "status", "tenant", "template", "subject", "resource", "action"} {
		q.Set(name, text)
	}
	return q.Encode()
}
