package console_test

import (
	"cmp"
	"crypto/ed25519"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"html"
	"maps"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest"
)

// rightsReaders are people with each permission in each tenant: a group is a permission in one. They log in at the issuer, and
// come to the API with a token of the same claims.
func rightsReaders() (all []rightsPerson) {
	for name, groups := range map[string]string{
		"log here":                                "log.read@default",
		"log and explain here":                    "log.read@default explain@default",
		"log here, explain in acme":               "log.read@default explain@acme",
		"log in acme, explain here":               "log.read@acme explain@default",
		"log and explain in acme":                 "log.read@acme explain@acme",
		"log everywhere, explain in acme":         "log.read@* explain@acme",
		"log in acme, explain everywhere":         "log.read@acme explain@*",
		"explain everywhere":                      "explain@*",
		"admin here":                              "capability.admin@default",
		"admin in acme, log here":                 "capability.admin@acme log.read@default",
		"approves here, log in acme":              "approve@default log.read@acme",
		"approves in acme, admin here, log there": "approve@acme capability.admin@default log.read@acme",
		"everything everywhere":                   "approve@* log.read@* explain@* capability.admin@*",
		"nothing":                                 "staff",
	} {
		all = append(all, rightsPerson{name: name, by: byIssuer, principal: "olive", groups: strings.Fields(groups), token: true})
	}
	slices.SortFunc(all, func(a, b rightsPerson) int { return cmp.Compare(a.name, b.name) })
	return append(all, rightsPerson{name: "reader whose key is revoked", principal: "rex", tenants: []string{"*"}, permissions: []auth.Permission{auth.LogRead, auth.Explain}, revoked: true})
}

// rightsGroups are the grants of the groups of [rightsReaders].
func rightsGroups() (all []auth.ClaimGrant) {
	for _, p := range []auth.Permission{auth.Approve, auth.LogRead, auth.Explain, auth.CapabilityAdmin} {
		for _, tenant := range []string{"default", "acme", "*"} {
			all = append(all, auth.ClaimGrant{Claim: "groups", Value: string(p) + "@" + tenant, Permissions: []auth.Permission{p}, Tenants: []string{tenant}})
		}
	}
	return all
}

// tokenFor is the token with which a person of the issuer comes to the API.
func (w *rightsWorld) tokenFor(p rightsPerson) string {
	return w.provider.Sign(map[string]any{
		"iss": w.provider.URL, "aud": rightsAudience, "sub": p.principal, "groups": p.groups, "iat": w.Now().Unix(), "exp": w.Now().Add(12 * time.Hour).Unix(),
	})
}

const (
	rightsAudience = "api"
	rightsIssuer   = "https://pdp.example"
)

// rightsPagePolicies are those of [rightsWorld.records], beside those about approvals.
const rightsPagePolicies = `
@id("reads") permit(principal, action == Action::"read", resource);
@id("came-near") permit(principal, action == Action::"drop", resource) when { resource.id == "why-mark" };
@id("grants") permit(principal is agent, action == Action::"capability.grant", resource == server::"b");
`

// records puts records of each kind on record, in both tenants, and capabilities.
func (w *rightsWorld) records() {
	w.t.Helper()
	holder, err := capability.NewHolder(ed25519.NewKeyFromSeed([]byte(strings.Repeat("x", ed25519.SeedSize))))
	rightsMust(w.t, err)
	for _, tenant := range []string{"default", "acme"} {
		home := map[string]string{"default": "", "acme": "/tenants/acme"}[tenant]
		question := func(subject, action, more string) string {
			return fmt.Sprintf(`{"subject":{"type":"user","id":"%s-of-%s"},"action":{"name":%q},"resource":{"type":"doc","id":"plan"}%s}`, subject, tenant, action, more)
		}
		ask := func(path, body string) string {
			got := w.api("gateway", http.MethodPost, home+path, body)
			if got.Status != http.StatusOK {
				w.t.Fatalf("%s %s: %d %s", path, body, got.Status, got.Body)
			}
			return got.Header.Get("X-Decision-Id")
		}
		const evaluations = "/access/v1/evaluation"
		ask(evaluations, question("reader", "read", ""))
		ask(evaluations, question("dropper", "drop", ""))
		ask(evaluations, question("possible", "drop", `,"options":{"unknown":["/context/x"]}`))
		ask(evaluations+"s", `{"evaluations":[`+question("first", "read", "")+","+question("second", "drop", "")+"]}")
		ask("/access/v1/search/action", fmt.Sprintf(`{"subject":{"type":"user","id":"searcher-of-%s"},"resource":{"type":"doc","id":"plan"}}`, tenant))
		gone := ask(evaluations, question("gone", "read", ""))
		if got := w.api("keeper", http.MethodPost, "/v1/decisions/"+gone+"/redaction", `{"reason":"asked for"}`); got.Status >= 300 {
			w.t.Fatalf("redaction: %d %s", got.Status, got.Body)
		}
		w.gone = append(w.gone, gone)
		by := rightsIssuer
		if tenant != "default" {
			by += "/tenants/" + tenant
		}
		a := capability.Ask{Tenant: tenant, Holder: evaluation.Ref{Type: "agent", ID: "holder-of-" + tenant}, Audience: "b", Tools: []string{"*"}, Duration: time.Hour}
		rightsMust(w.t, holder.Request(&a, by, w.Now()))
		body, err := json.Marshal(a)
		rightsMust(w.t, err)
		if got := w.api("gateway", http.MethodPost, "/v1/capabilities", string(body)); got.Status != http.StatusCreated {
			w.t.Fatalf("a capability: %d %s", got.Status, got.Body)
		}
	}
}

// rightsIDs are the ids in an answer of the API, or in a page.
var rightsIDs = map[string]*regexp.Regexp{
	"request":    regexp.MustCompile(`(?:"id":"|/approvals/)([0-9a-f]{8}-[0-9a-f-]{27})`),
	"record":     regexp.MustCompile(`(?:"id":"|/decisions/)([0-9a-f]{8}-[0-9a-f-]{27}(?:\.[0-9]+)?)`),
	"capability": regexp.MustCompile(`(?:"id":"|/capabilities/)(cap_[0-9a-z]+)`),
	// Words of ours that stand in one record, request or capability, or in an explanation alone.
	"word": regexp.MustCompile(`((?:reader|dropper|possible|first|second|searcher|gone|holder)-of-(?:default|acme)|why-mark)`),
}

func rightsFound(kind, text string) (found []string) {
	for _, m := range rightsIDs[kind].FindAllStringSubmatch(html.UnescapeString(text), -1) {
		found = append(found, m[1])
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// rightsGiven are those of an answer that its page has to show: of a list, the ids of its items.
func rightsGiven(kind, body string) (given []string) {
	var list struct{ Items []struct{ ID string } }
	if kind == "word" || json.Unmarshal([]byte(body), &list, json.MatchCaseInsensitiveNames(true)) != nil {
		return rightsFound(kind, body)
	}
	for _, one := range list.Items {
		given = append(given, one.ID)
	}
	return given
}

// rightsShown is a page, and the answers of the API that it stands for.
type rightsShown struct {
	path string
	// by is the call whose answer decides if the page is there. Of its answer the page shows all ids and words of a kind.
	by   string
	kind string
	// also are calls from whose answers the page may have more.
	also []string
	// right is one that the page asks for besides, and tenant where; "" is anywhere.
	right  auth.Permission
	tenant string
	// gone is set if the answer is that the content is gone, and the page says so.
	gone bool
}

// rightsRows are the pages of each route. A route without pages is of a form, or holds nothing of a person.
func (w *rightsWorld) rightsRows(ids map[string]string) map[string][]rightsShown {
	rows := map[string][]rightsShown{
		"": {}, "/{$}": {}, "/login": {}, "/login/oidc": {}, "/login/callback": {}, "/style.css": {}, "/console.js": {}, "/icon.svg": {},
		"/logout": {}, "/approvals/{id}/decision": {}, "/approvals/{id}/revoke": {}, "/capabilities/{id}/revoke": {},
		"/approvals/stream": {}, // in TestRightsOfTheStream
	}
	for tab, query := range rightsTabsOfInbox {
		rows["/approvals"] = append(rows["/approvals"], rightsShown{path: "/approvals?" + tab, by: "/v1/approvals?limit=50&" + query, kind: "request"})
	}
	for name, id := range ids {
		one := "/v1/approvals/" + id
		also := []string{one + "/why", one + "/deciders", one + "/previous", "/v1/approvals?status=all&limit=200"}
		for _, whole := range []string{"", "?whole"} {
			rows["/approvals/{id}"] = append(rows["/approvals/{id}"], rightsShown{path: "/approvals/" + id + whole, by: one, also: also})
		}
		_ = name
	}
	rows["/approvals/{id}"] = append(rows["/approvals/{id}"], rightsShown{path: "/approvals/00000000-0000-7000-8000-000000000000", by: "/v1/approvals/00000000-0000-7000-8000-000000000000"})
	records := func(q string) {
		by := strings.Replace(q, "kind=all", "", 1)
		if !strings.Contains(q, "kind=") && !strings.Contains(q, "approval=") {
			by += "&kind=decision"
		}
		by = "/v1/decisions?limit=50&" + by
		rows["/decisions"] = append(rows["/decisions"], rightsShown{path: "/decisions?" + q, by: by, kind: "record", right: auth.LogRead})
	}
	for _, tenant := range []string{"default", "acme", "nosuch"} {
		for _, kind := range []string{"all", "possible", "search", "capability", "approval", "receipt", "admin"} {
			records("tenant=" + tenant + "&kind=" + kind)
		}
		records("tenant=" + tenant)
		records("tenant=" + tenant + "&subject=dropper-of-" + tenant)
	}
	records("")
	records("kind=all")
	records("kind=all&order=oldest")
	records("approval=" + ids["of another tenant"])
	records("approval=" + ids["pending"])
	for _, r := range w.recorded() {
		one := "/v1/decisions/" + r
		rows["/decisions/{id}"] = append(rows["/decisions/{id}"], rightsShown{
			path: "/decisions/" + r, by: one, kind: "word", right: auth.LogRead, gone: slices.Contains(w.gone, r),
			also: []string{one + "/explain", "/v1/log/checkpoint", "/v1/decisions?limit=200", "/v1/approvals?status=all&limit=200", "/v1/approvals?status=ended&limit=200"},
		})
	}
	rows["/decisions/{id}"] = append(rows["/decisions/{id}"], rightsShown{path: "/decisions/00000000-0000-7000-8000-000000000000", by: "/v1/decisions/00000000-0000-7000-8000-000000000000"})
	for _, tenant := range []string{"", "default", "acme"} {
		query := ""
		if tenant != "" {
			query = "&tenant=" + tenant
		}
		rows["/capabilities"] = append(rows["/capabilities"], rightsShown{
			path: "/capabilities?state=all" + query, by: "/v1/capabilities?limit=50" + query, right: auth.CapabilityAdmin, also: []string{"/v1/capabilities?tenant=default", "/v1/capabilities?tenant=acme"},
		})
	}
	for _, tenant := range []string{"default", "acme"} {
		got := w.api("keeper", http.MethodGet, "/v1/capabilities?tenant="+tenant, "")
		for _, id := range rightsFound("capability", got.Body) {
			rows["/capabilities/{id}"] = append(rows["/capabilities/{id}"], rightsShown{path: "/capabilities/" + id, by: "/v1/capabilities/" + id, kind: "word", right: auth.CapabilityAdmin, tenant: tenant})
		}
	}
	return rows
}

// recorded is a record of each kind, event and answer, of each tenant.
func (w *rightsWorld) recorded() (ids []string) {
	w.t.Helper()
	seen := map[string]bool{}
	for _, tenant := range []string{"default", "acme"} {
		for next := ""; ; {
			var page struct {
				Items []struct {
					ID, Kind, Event, Reason string
					Decision                jsontext.Value
				}
				Next string `json:"next_cursor"`
			}
			got := w.api("keeper", http.MethodGet, "/v1/decisions?limit=200&tenant="+tenant+next, "")
			rightsMust(w.t, json.Unmarshal([]byte(got.Body), &page, json.MatchCaseInsensitiveNames(true)))
			for _, r := range page.Items {
				if kind := strings.Join([]string{tenant, r.Kind, r.Event, string(r.Decision), r.Reason}, " "); !seen[kind] {
					seen[kind], ids = true, append(ids, r.ID)
				}
			}
			if page.Next == "" {
				break
			}
			next = "&cursor=" + page.Next
		}
	}
	w.t.Logf("records of %d kinds: %q", len(ids), slices.Sorted(maps.Keys(seen)))
	return append(ids, w.gone...)
}

// rightsAnswers are the answers of the API to one person. Nothing happens while pages are looked at, so each is asked for
// once.
type rightsAnswers struct {
	*rightsWorld
	who   string
	known map[string]pdptest.Response
}

func (a *rightsAnswers) get(path string) pdptest.Response {
	got, known := a.known[path]
	if !known {
		got = a.api(a.who, http.MethodGet, path, "")
		a.known[path] = got
	}
	return got
}

// has reports whether the API says that a person has a permission.
func (p rightsKnown) has(w *rightsAnswers, right auth.Permission, tenant string) bool {
	got := w.get("/v1/me")
	var me struct {
		Tenants, Permissions []string
		Grants               []struct{ Tenants, Permissions []string }
	}
	if p.answered(got.Status) != http.StatusOK || json.Unmarshal([]byte(got.Body), &me, json.MatchCaseInsensitiveNames(true)) != nil {
		return false
	}
	if len(me.Grants) == 0 {
		me.Grants = append(me.Grants, struct{ Tenants, Permissions []string }{me.Tenants, me.Permissions})
	}
	for _, g := range me.Grants {
		if slices.Contains(g.Permissions, string(right)) && (tenant == "" || slices.Contains(g.Tenants, tenant) || slices.Contains(g.Tenants, "*")) {
			return true
		}
	}
	return false
}

// rightsRoutes are the paths that a console registers, by its source.
func rightsRoutes(t *testing.T) (all []string) {
	t.Helper()
	set, consts := token.NewFileSet(), map[string]ast.Expr{}
	files, err := os.ReadDir(".")
	rightsMust(t, err)
	var routes *ast.FuncDecl
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(set, f.Name(), nil, 0)
		rightsMust(t, err)
		ast.Inspect(tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				for i, name := range n.Names {
					if i < len(n.Values) {
						consts[name.Name] = n.Values[i]
					}
				}
			case *ast.FuncDecl:
				if n.Name.Name == "routes" {
					routes = n
				}
			}
			return true
		})
	}
	var text func(ast.Expr) string
	text = func(e ast.Expr) string {
		switch e := e.(type) {
		case *ast.BasicLit:
			s, err := strconv.Unquote(e.Value)
			rightsMust(t, err)
			return s
		case *ast.Ident:
			return text(consts[e.Name])
		case *ast.BinaryExpr:
			return text(e.X) + text(e.Y)
		}
		t.Fatalf("the path %v is no constant", e)
		return ""
	}
	ast.Inspect(routes, func(n ast.Node) bool {
		if call, is := n.(*ast.CallExpr); is {
			if s, is := call.Fun.(*ast.SelectorExpr); is && slices.Contains([]string{"read", "page", "form", "take"}, s.Sel.Name) {
				all = append(all, text(call.Args[0]))
			}
		}
		return true
	})
	return all
}

// rightsWhy matches a sentence that each explanation has, and a page without one has not.
var rightsWhy = regexp.MustCompile(`The policies of then give|So the clauses are not judged again`)

var rightsBar = regexp.MustCompile(`(?s)<nav aria-label="Console">(.*?)</nav>`)

// bar are the pages to which the bar of a page leads.
func (p rightsPage) bar() (links []string) {
	for _, m := range regexp.MustCompile(`href="[^"]*/console([^"]*)"`).FindAllStringSubmatch(strings.Join(rightsBar.FindStringSubmatch(p.text), ""), -1) {
		links = append(links, m[1])
	}
	slices.Sort(links)
	return slices.Compact(links)
}

// openRightsPages is a world with records, capabilities, and requests in every state, and the people, who are logged in.
func openRightsPages(t *testing.T) (w *rightsWorld, people []rightsKnown, ids map[string]string) {
	t.Helper()
	all := append(rightsPeople(), rightsReaders()...)
	w = openRights(t, all, func(c *server.Config) {
		c.PublicURL = rightsIssuer
		c.Console.OIDC.Grants = append(c.Console.OIDC.Grants, rightsGroups()...)
	})
	ids = map[string]string{}
	states := rightsStates()
	slices.SortStableFunc(states, func(a, b rightsState) int {
		return map[bool]int{true: -1, false: 1}[a.name == rightsExpired]
	})
	for _, s := range states {
		ids[s.name] = w.makes(s)
	}
	w.records()
	for _, p := range all {
		if p.token {
			w.secret[p.name] = w.tokenFor(p)
		}
	}
	return w, w.logIn(all), ids
}

// Each page shows a person what the API gives that person, and is not there if the API gives nothing: of 40 kinds of people,
// and all pages of all routes. The bar leads to the pages that are there, and to no other.
func TestEveryPageIsThatOfTheAPI(t *testing.T) {
	t.Parallel()
	w, people, ids := openRightsPages(t)
	rows := w.rightsRows(ids)
	routes := rightsRoutes(t)
	for _, route := range routes {
		if _, known := rows[route]; !known {
			t.Errorf("the route %s has no row: which answers of the API do its pages stand for?", route)
		}
	}
	for route := range rows {
		if !slices.Contains(routes, route) {
			t.Errorf("the row %s has no route", route)
		}
	}
	if testing.Short() {
		n := 0
		people = slices.DeleteFunc(people, func(rightsKnown) bool { n++; return n%3 != 1 })
	}
	counts := rightsCounts{of: map[string]int64{}}
	var group sync.WaitGroup
	for _, p := range people {
		group.Go(func() {
			answers, opens := &rightsAnswers{w, p.name, map[string]pdptest.Response{}}, []string{}
			for _, path := range []string{"/approvals", "/capabilities", "/decisions"} {
				if p.web.get(path).status == http.StatusOK {
					opens = append(opens, path)
				}
			}
			for _, route := range slices.Sorted(maps.Keys(rows)) {
				for _, row := range rows[route] {
					p.looksAt(answers, row, opens, &counts)
				}
			}
		})
	}
	group.Wait()
	for what, least := range map[string]int64{"200": 500, "404": 1000, "303": 100, "410": 1, "word": 100, "why-mark": 4} {
		if testing.Short() {
			least = min(least, max(1, least/20))
		}
		if got := counts.get(what); got < least {
			t.Errorf("%s: %d times, want %d at least", what, got, least)
		}
	}
}

// looksAt has a person look at a page, and ask the API.
func (p rightsKnown) looksAt(w *rightsAnswers, row rightsShown, opens []string, counts *rightsCounts) {
	t, what := w.t, p.name+", "+row.path
	by := w.get(row.by)
	want := rightsPages(p.answered(by.Status))
	if by.Status == http.StatusGone && row.gone && want == http.StatusNotFound {
		want = http.StatusGone
	}
	if want != http.StatusSeeOther && row.right != "" && !p.has(w, row.right, row.tenant) {
		want = http.StatusNotFound
	}
	got := p.web.get(row.path)
	if want == http.StatusNotFound && strings.HasPrefix(row.path, "/approvals?") && len(opens) > 0 { // the way of people who approve nothing
		want = http.StatusSeeOther
	}
	counts.add(strconv.Itoa(got.status))
	if got.status != want {
		t.Errorf("%s: the page is %d, and the API answers %d to %s", what, got.status, by.Status, row.by)
		return
	}
	given := ""
	if by.Status == http.StatusOK {
		given = by.Body
	}
	for _, also := range row.also {
		if more := w.get(also); more.Status == http.StatusOK {
			given += more.Body
		}
	}
	for kind := range rightsIDs {
		for _, one := range rightsFound(kind, got.text) {
			counts.add(kind)
			counts.add(one)
			if !strings.Contains(given, one) && !strings.Contains(row.path, one) {
				t.Errorf("%s: it shows the %s %s, which the API does not give", what, kind, one)
			}
		}
	}
	if got.status == http.StatusOK && row.kind != "" {
		for _, one := range rightsGiven(row.kind, by.Body) {
			if !strings.Contains(html.UnescapeString(got.text), one) {
				t.Errorf("%s: it lacks the %s %s, which the API gives", what, row.kind, one)
			}
		}
	}
	if got.status == http.StatusOK || got.status == http.StatusNotFound {
		if bar := got.bar(); !slices.Equal(bar, opens) {
			t.Errorf("%s: the bar leads to %q, and there are %q", what, bar, opens)
		}
	}
	if strings.HasPrefix(row.by, "/v1/decisions/") && got.status == http.StatusOK {
		explained := w.get(row.by + "/explain")
		if there := rightsWhy.MatchString(got.text); there != (p.answered(explained.Status) == http.StatusOK) {
			t.Errorf("%s: it has a why: %t, and the API answers %d %s", what, there, explained.Status, rightsBrief(explained.Body, 200))
		}
	}
}

// The stream of a page says how many wait to whom the API lists them, and answers others with 401. A form answers nothing
// without its token, and a page takes no other method.
func TestRightsOfTheStream(t *testing.T) {
	t.Parallel()
	w, people, ids := openRightsPages(t)
	told := 0
	for _, p := range people {
		list, status := w.listed(p.name, "status=pending&voted=false")
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.URL+"/console/approvals/stream", nil)
		rightsMust(t, err)
		r.Header = http.Header{"Sec-Fetch-Site": {"same-origin"}, "Sec-Fetch-Dest": {"empty"}, "Sec-Fetch-Mode": {"cors"}, "Accept": {"application/json"}}
		want := map[bool]int{true: http.StatusOK, false: http.StatusUnauthorized}[p.answered(status) == http.StatusOK]
		answer, err := p.web.client.Do(r)
		rightsMust(t, err)
		var waits struct {
			N int `json:"n"`
		}
		if answer.StatusCode == http.StatusOK {
			rightsMust(t, json.UnmarshalRead(answer.Body, &waits))
			told++
		}
		_ = answer.Body.Close()
		if answer.StatusCode != want || want == http.StatusOK && waits.N != len(list) {
			t.Errorf("%s: the stream answers %d %+v, and the API lists %d with %d", p.name, answer.StatusCode, waits, len(list), status)
		}
		for _, form := range []string{"/approvals/" + ids["pending"] + "/decision", "/approvals/" + ids["approved"] + "/revoke", "/logout", "/capabilities/cap_0199f3a27c1e7d3a8f00c3b2a1908f7e/revoke"} {
			if got := p.web.get(form); got.status != http.StatusMethodNotAllowed {
				t.Errorf("%s: GET %s is %d", p.name, form, got.status)
			}
			if got := p.web.post(form, url.Values{"token": {"x"}, "reason": {"x"}}); got.status != http.StatusForbidden && got.status != http.StatusUnauthorized {
				t.Errorf("%s: %s without its token is %d", p.name, form, got.status)
			}
		}
	}
	if told < 8 {
		t.Errorf("only %d people are told", told)
	}
}
