package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/go-json-experiment/json"

	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/internal/visible/hostile"
	"policy-service/pdp/pdptest/browsertest"
)

const recordsBundle = `
-- records.cedar --
// What people may read.
@id("readers")
permit (principal, action == Action::"read", resource)
when { principal has role && principal.role == "reader" }
unless { context has pin && context.pin == "0000" };
@id("tell") @obligation("tell")
permit (principal, action == Action::"tell", resource);
@id("<img src=x onerror=alert(1)>\u{202e}") @reason_user("<script>alert(1)</script>\u{2066}")
forbid (principal, action == Action::"odd", resource) when { context has "<b>\u{200b}" };
-- bundle.yaml --
types: {user: User, agent: Agent, tool: Tool}
unknown_entities: evaluate
-- obligations.yaml --
ask-lead: {type: approval_required, properties: {template: team-lead, timeout: 4h, valid_for: 15m, rounds: 3, delegable: true,
  message: "${principal.id} wants to use ${resource.id}."}}
ask-two: {type: approval_required, properties: {template: production, timeout: 4h, valid_for: 15m, quorum: 2,
  message: "${principal.id} wants to use ${resource.id}."}}
tell: {type: notification, properties: {to: ops, body: read}}
-- tenants/acme/acme.cedar --
@id("acme-read") permit (principal, action == Action::"read", resource);
`

// records are pages of the decision log, with their readers: auditor may have decisions explained, reader may not, both
// also approves, and acme is of that tenant alone.
type records struct {
	*pages
	ids  map[string]string
	data string
}

func openRecords(t *testing.T) *records {
	t.Helper()
	data := ""
	prepare := func(p *pages, c *server.Config) {
		data = c.Data
		c.DecisionLog.Mask = []string{"/context/pin"}
		p.key("auditor", auth.Principal{}, auth.LogRead, auth.Explain)
		p.key("reader", auth.Principal{}, auth.LogRead)
		p.key("searcher", auth.Principal{}, auth.Decide, auth.Search)
		p.key("both", auth.Principal{Type: "User", ID: "mia"}, auth.LogRead, auth.Explain, auth.Approve)
		secret, err := p.keys.Add(keys.Spec{Name: "acme", Grant: auth.Grant{Tenants: []string{"acme"}, Permissions: []auth.Permission{auth.LogRead, auth.Explain}}})
		p.must(err)
		p.secret["acme"] = secret
	}
	r := &records{pages: openPagesWith(t, prepare, recordsBundle), ids: map[string]string{}}
	r.data = data
	return r
}

// asked asks as a PEP, and keeps the id of the record.
func (r *records) asked(name, path, body string) string {
	r.t.Helper()
	got := r.Post(path, body, "Authorization", "Bearer "+r.secret["searcher"])
	if r.ids[name] = got.Header.Get("X-Decision-Id"); got.Status != http.StatusOK || r.ids[name] == "" {
		r.t.Fatalf("%s: %d %s", name, got.Status, got.Body)
	}
	return r.ids[name]
}

func readQuestion(subject, properties, context string) string {
	return fmt.Sprintf(`{"subject":{"type":"user","id":%q,"properties":%s},"action":{"name":"read"},"resource":{"type":"doc","id":"plan"},"context":%s}`, subject, properties, context)
}

const recordsEvaluation = "/access/v1/evaluation"

// A caller may send a megabyte. The page of its record is of a bounded size all the same, and says that there is more.
func TestPageOfALargeRecord(t *testing.T) {
	t.Parallel()
	r := openRecords(t)
	auditor := r.logIn("auditor")
	var many, pins strings.Builder
	for n := range 6000 {
		fmt.Fprintf(&many, `"name %d":"value",`, n)
		fmt.Fprintf(&pins, `"p%d":1,`, n)
	}
	for name, test := range map[string]struct{ context, want string }{
		"a value":  {`{"arguments":{"first":"one","text":"` + strings.Repeat("\u0430", 100_000) + `"}}`, `first " one " text " \u0430`},
		"a name":   {`{"arguments":{"` + strings.Repeat("n", 100_000) + `":1}}`, "nnnn … 1"},
		"members":  {`{"arguments":{` + many.String() + `"end":1}}`, "And 5901 more that are not shown."},
		"a masked": {`{"pin":{` + pins.String() + `"end":"0000"}}`, "Masked, so that the log does not hold it: /context/pin"},
	} {
		id := r.asked(name, recordsEvaluation, readQuestion("alice", `{}`, test.context))
		body := auditor.page("/console/decisions/" + id)
		if text := plain(body); len(body) > 200_000 || !strings.Contains(text, "it is too long for this page") && name != "a masked" || !strings.Contains(text, test.want) {
			t.Errorf("%s: %d bytes: %.3000s", name, len(body), text)
		}
	}
}

// A person who reads the log finds decisions by any filter, and goes on from page to page; no other person does.
func TestListOfRecords(t *testing.T) {
	t.Parallel()
	r := openRecords(t)
	for n := range 120 {
		r.asked("", recordsEvaluation, readQuestion(fmt.Sprintf("user-%03d", n), `{"role":"reader"}`, `{}`))
	}
	r.asked("deny", recordsEvaluation, readQuestion("nina", `{}`, `{}`))
	r.asked("told", recordsEvaluation, readQuestion("tina", `{}`, `{"arguments":{"page":7,"pages":{"a":1},"q":"é","y":1,"z":1},"justification":"the Q3 \"launch\""}`))
	r.asked("again", recordsEvaluation, readQuestion("gina", `{}`, `{"justification":"approved","purpose":"Friday"}`))
	r.asked("acme", "/tenants/acme"+recordsEvaluation, readQuestion("acme-person", `{}`, `{}`))
	auditor := r.logIn("auditor")
	if got := auditor.get("/console/approvals"); got.Status != http.StatusSeeOther || got.Header.Get("Location") != "/pdp/console/decisions" {
		t.Errorf("the inbox leads an auditor to %d %v", got.Status, got.Header)
	}
	body := auditor.page("/console/decisions")
	has(t, body, "<title>Records · policy-service", `href="/pdp/console/decisions" aria-current="true">Records</a>`, `href="/pdp/console/decisions/`+r.ids["deny"]+`" data-row`)
	has(t, plain(body), "user/nina read doc/plan", "Deny", "acme-read acme · key:searcher")
	has(t, body, `<form class="search"`)
	has(t, plain(body), `user/gina read doc/plan says " Friday "`) // the word approved is no reason: it asks for an approval
	has(t, plain(body), `user/tina read doc/plan page : 7 pages : {"a": 1} q : " é " and 2 more says " the Q3`)
	const recent = "Text is looked for in the records of the last 90 days."
	has(t, plain(auditor.page("/console/decisions?text=nothing")), recent, "Nothing matches the filter.")
	hasNot(t, plain(auditor.page("/console/decisions?text=nothing&since=400d"))+plain(body), recent)
	has(t, plain(auditor.page("/console/decisions?text=q3+\"launch")), "user/tina")
	older := regexp.MustCompile(`href="(/pdp/console/decisions\?[^"]*)" rel="next"`)
	newer := regexp.MustCompile(`href="(/pdp/console/decisions\?[^"]*)" rel="prev"`)
	go1 := func(body string, to *regexp.Regexp) string {
		t.Helper()
		found := to.FindStringSubmatch(body)
		if found == nil {
			t.Fatalf("there is no %s in %s", to, body)
		}
		return auditor.page(strings.ReplaceAll(found[1], "&amp;", "&"))
	}
	rows := regexp.MustCompile(`user/user-[0-9]{3} read`)
	second := go1(body, older)
	third := go1(second, older)
	seen := rows.FindAllString(plain(body)+plain(second)+plain(third), -1)
	if len(seen) != 120 || seen[0] != "user/user-119 read" || seen[119] != "user/user-000 read" || older.MatchString(third) {
		t.Errorf("got %d: %v", len(seen), seen)
	}
	if again := go1(third, newer); rows.FindString(plain(again)) != rows.FindString(plain(second)) {
		t.Errorf("newer than the third page is\n%s", plain(again))
	}
	for query, want := range map[string]int{
		"subject=user-007": 1, "subject=user/user-007&action=read": 1, "decision=deny": 0, "policy=readers&resource=doc/plan&since=1h": 50, "tenant=acme": 0, "kind=admin": 0, "from=2999-01-01": 0,
	} {
		if got := len(rows.FindAllString(plain(auditor.page("/console/decisions?"+query)), -1)); got != want {
			t.Errorf("%s: got %d, want %d", query, got, want)
		}
	}
	filtered := auditor.page("/console/decisions?subject=user-007&decision=allow")
	has(t, filtered, `name="subject" value="user-007"`, `<option value="allow" selected>`)
	has(t, plain(filtered), "log export --server "+r.Server.URL+" --subject=user-007 --decision=allow >records.ndjson")
	if got := auditor.get("/console/decisions?from=yesterday"); got.Status != http.StatusBadRequest || !strings.Contains(got.Body, `role="alert"`) {
		t.Errorf("got %d %s", got.Status, got.Body)
	}
	if acme := r.logIn("acme").page("/console/decisions"); !strings.Contains(acme, "acme-person") || strings.Contains(acme, "nina") || strings.Contains(acme, "user-") {
		t.Errorf("got %s", acme)
	}
	alice := r.logIn("alice")
	for _, path := range []string{"/console/decisions", "/console/decisions/" + r.ids["deny"]} {
		if got := alice.get(path); got.Status != http.StatusNotFound {
			t.Errorf("%s: got %d", path, got.Status)
		}
	}
	hasNot(t, alice.page("/console/approvals"), "Records")
}

// Where the files of the policies are gone, the page says so, and has the names of the policies.
func TestPageWithoutThePoliciesOfThen(t *testing.T) {
	t.Parallel()
	r := openRecords(t)
	r.asked("allow", recordsEvaluation, readQuestion("nina", `{"role":"reader"}`, `{}`))
	kept, err := filepath.Glob(filepath.Join(r.data, "log", "bundles", "*"))
	r.must(err)
	for _, name := range kept {
		r.must(os.Remove(name))
	}
	body := plain(r.logIn("auditor").page("/console/decisions/" + r.ids["allow"]))
	has(t, body, "It cannot be explained any more. These policies decided.", "the files of the bundle that decided are not kept here", "readers decided")
	hasNot(t, body, "@id(", "same answer")
}

// The words of policies, voters and callers are text, too.
func TestHostileWordsOfOthers(t *testing.T) {
	t.Parallel()
	r := openRecords(t)
	const words = "<img src=x onerror=alert(1)>\u202e\u2066<script>"
	id := r.asks("<b>tool", `{"arguments":{"<b>":"\u202e"}}`)
	got := r.Post("/v1/approvals/"+id+"/decision", `{"decision":"approve","reason":"`+words+`"}`, "Authorization", "Bearer "+r.secret["frank"])
	if got.Status != http.StatusOK {
		t.Fatalf("got %d %s", got.Status, got.Body)
	}
	r.asked("odd", recordsEvaluation, `{"subject":{"type":"user","id":"nina"},"action":{"name":"odd"},"resource":{"type":"doc","id":"plan"},"context":{"<b>\u200b":1}}`)
	auditor := r.logIn("auditor")
	for path, want := range map[string]string{
		"/console/decisions/" + r.ids["odd"]:   "&lt;img src=x onerror=alert(1)&gt;",
		"/console/decisions?kind=all":          "&lt;img",
		"/console/decisions?approval=" + id:    "&lt;script&gt;",
		"/console/decisions?kind=approval":     "&lt;b&gt;tool",
		"/console/decisions?decision=deny":     "&lt;img",
		"/console/decisions?text=onerror":      "onerror",
		"/console/decisions?subject=%3Cimg%3E": "&lt;img&gt;",
	} {
		body := auditor.page(path)
		has(t, body, want)
		if strings.ContainsAny(body, "\u202e\u200b\u2066") || strings.Contains(body, "<img") || strings.Contains(body, "<b>") || strings.Count(body, "<script") != 1 {
			t.Errorf("%s: got %s", path, body)
		}
	}
}

// The page of a decision says why, by the policies of then, and how to check it.
func TestPageOfADecision(t *testing.T) {
	t.Parallel()
	r := openRecords(t)
	r.asked("allow", recordsEvaluation, readQuestion("nina", `{"role":"reader"}`, `{"arguments":{"page":7}}`))
	r.asked("deny", recordsEvaluation, readQuestion("nina", `{"role":"guest"}`, `{}`))
	r.asked("masked", recordsEvaluation, readQuestion("nina", `{"role":"reader"}`, `{"pin":"0000"}`))
	r.asked("tell", recordsEvaluation, `{"subject":{"type":"user","id":"nina"},"action":{"name":"tell"},"resource":{"type":"doc","id":"plan"},"context":{"supported_obligations":["notification"]}}`)
	auditor := r.logIn("auditor")
	pageOf := func(name string) string { t.Helper(); return auditor.page("/console/decisions/" + r.ids[name]) }

	allow := pageOf("allow")
	has(t, allow, "<title>Record "+r.ids["allow"], `<h1>Decision <span class="status allow">Allow</span></h1>`)
	has(t, plain(allow), "Who user/nina", "Does read", "With doc/plan", "Arguments Name Value page 7", "About who asks Name Value role \" reader \"",
		"The policies of then give the same answer to the request on record.", "permit readers decided", "records.cedar:2:1",
		`held when { principal has role } held when { principal.role == "reader" } held unless {`, "principal.role sent", `@id("readers") permit (principal,`,
		"A page cannot prove the server that made it.", "policy-service log prove "+r.ids["allow"]+" --server "+r.Server.URL+" >proof.ndjson",
		"policy-service log verify proof.ndjson --key log.pub", "which covers this one")
	hasNot(t, plain(allow), "What people may read")
	has(t, plain(pageOf("deny")), "Deny", "came nearest, and did not apply", `did not hold when { principal.role == "reader" } not reached unless {`)
	masked := pageOf("masked")
	has(t, plain(masked), "masked", "Masked, so that the log does not hold it: /context/pin", "the answer may depend on it: /context/pin")
	if got := r.Post("/v1/decisions/"+r.ids["tell"]+"/obligations", `{"obligations":[{"id":"tell","status":"failed","detail":"nobody is there"}]}`, "Authorization", "Bearer "+r.secret["searcher"]); got.Status != http.StatusNoContent && got.Status != http.StatusOK {
		t.Fatalf("got %d %s", got.Status, got.Body)
	}
	has(t, plain(pageOf("tell")), "tell ( notification ): reported by the caller as failed: nobody is there")

	reader := r.logIn("reader").page("/console/decisions/" + r.ids["allow"])
	has(t, plain(reader), "The right to explain decisions of this tenant is missing", "readers decided")
	hasNot(t, plain(reader), "@id(")
	for _, path := range []string{"/console/decisions/nosuch", "/console/decisions/..", "/console/decisions/a b", "/console/decisions/" + strings.Repeat("a", 100)} {
		if got := auditor.get(path); got.Status != http.StatusNotFound {
			t.Errorf("%s: got %d", path, got.Status)
		}
	}
	if got := r.logIn("acme").get("/console/decisions/" + r.ids["allow"]); got.Status != http.StatusNotFound {
		t.Errorf("another tenant's: got %d", got.Status)
	}
	if got := r.Post("/v1/decisions/"+r.ids["deny"]+"/redaction", `{"reason":"erasure"}`, "Authorization", "Bearer "+r.secret["operator"]); got.Status != http.StatusNoContent {
		t.Fatalf("got %d %s", got.Status, got.Body)
	}
	got := auditor.get("/console/decisions/" + r.ids["deny"])
	if has(t, plain(got.Body), "The content of this record was removed"); got.Status != http.StatusGone || strings.Contains(got.Body, "nina") {
		t.Errorf("got %d %s", got.Status, got.Body)
	}
}

// Items of a batch show their inherited parts, and so do questions with options.unknown.
func TestPageOfAnItem(t *testing.T) {
	t.Parallel()
	r := openRecords(t)
	big := strings.Repeat("x", 2000)
	r.asked("batch", "/access/v1/evaluations", `{"subject":{"type":"user","id":"nina","properties":{"role":"reader","note":"`+big+`"}},"resource":{"type":"doc","id":"plan"},"context":{"shift":"night"},"evaluations":[{"action":{"name":"read"}},{"action":{"name":"write"}}]}`)
	r.asked("possible", "/access/v1/evaluations", `{"subject":{"type":"user","id":"nina"},"resource":{"type":"doc","id":"plan"},"options":{"unknown":["/subject/properties"]},"evaluations":[{"action":{"name":"read"}},{"action":{"name":"write"}}]}`)
	auditor := r.logIn("auditor")
	item := auditor.page("/console/decisions/" + r.ids["batch"] + ".0")
	has(t, item, `href="/pdp/console/decisions/`+r.ids["batch"]+`"`)
	has(t, plain(item), `shift " night "`, "note", "readers decided", "Allow")
	batch := auditor.page("/console/decisions/" + r.ids["batch"])
	has(t, plain(batch), "Record of batch")
	possible := auditor.page("/console/decisions/" + r.ids["possible"])
	has(t, possible, `href="/pdp/console/decisions/`+r.ids["possible"]+`.0"`)
	has(t, plain(possible), "user/nina read doc/plan Possible", "user/nina write doc/plan Impossible")
	has(t, plain(auditor.page("/console/decisions/"+r.ids["possible"]+".1")), "Impossible", "Does write", "It was asked what is possible, and nothing was decided.")
	has(t, plain(auditor.page("/console/decisions?kind=possible")), "2 questions")
}

// The story of an approval stands on the page of each of its records: each vote with its reason, and links both ways.
func TestStoryOfAnApproval(t *testing.T) {
	t.Parallel()
	r := openRecords(t)
	id := r.asks("github.push_code", push)
	frank := r.logIn("frank")
	if got := frank.says(frank.page("/console/approvals/"+id), "/decision", "decision", "approve", "reason", "the launch is on"); got.Status != http.StatusSeeOther {
		t.Fatalf("got %d %s", got.Status, got.Body)
	}
	again := strings.Replace(push, "{", `{"approval_id":"`+id+`",`, 1)
	used := r.Post("/v1/authorize", `{"tenant_id":"default","actor":{"actor_id":"agent-release","actor_type":"agent"},"action":"tool.invoke","resource":{"type":"tool","id":"github.push_code"},"context":`+again+`}`, "Authorization", "Bearer "+r.secret["gateway"])
	if !strings.Contains(used.Body, `"allow":true`) || strings.Contains(used.Body, "approval_required") {
		t.Fatalf("got %s", used.Body)
	}
	both := r.logIn("both")
	story := []string{"The approval request, step by step", "filed", `approve by User::"frank" through console : the launch is on`, "used"}
	decision := both.page("/console/decisions/" + used.Header.Get("X-Decision-Id"))
	has(t, plain(decision), append(story, "met by the approval "+id, "this record")...)
	if top, _, _ := strings.Cut(plain(decision), "The request, as it is on record"); !strings.Contains(top, `Approved by User::"frank"`) || !strings.Contains(top, "the launch is on") {
		t.Errorf("the top of the page of the decision is %s", top)
	}
	has(t, decision, `<li class="is-approve">`, `href="/pdp/console/approvals/`+id+`"`, `href="/pdp/console/decisions?approval=`+id+`"`)
	list := both.page("/console/decisions?approval=" + id)
	has(t, plain(list), `approval approve User::"frank"`, "the launch is on")
	waiting := regexp.MustCompile(`href="/pdp(/console/decisions/[^"]+)">its record</a>`).FindStringSubmatch(both.page("/console/approvals/" + id))
	if waiting == nil {
		t.Fatal("the request has no link to its record")
	}
	has(t, plain(both.page(waiting[1])), append(story, "Waiting")...)
	auditor := r.logIn("auditor").page("/console/decisions/" + used.Header.Get("X-Decision-Id"))
	has(t, plain(auditor), story...)
	hasNot(t, auditor, `href="/pdp/console/approvals/`+id+`"`)
	hasNot(t, frank.page("/console/approvals/"+id), "its record")
}

var typedInto = regexp.MustCompile(`<input name="[a-z]+" value="[^"]*"`)

// No text of a record is markup: no page gets an element, a script or a command of it.
func TestHostileRecords(t *testing.T) {
	t.Parallel()
	r := openRecords(t)
	auditor := r.logIn("auditor")
	for n, text := range hostile.UTF8() {
		if n%7 != 0 || len(text) > 2000 || text == "" {
			continue
		}
		quoted, err := json.Marshal(text)
		r.must(err)
		body := strings.ReplaceAll(`{"subject":{"type":"user","id":X,"properties":{"role":X}},"action":{"name":X},"resource":{"type":"doc","id":X},"context":{"arguments":{X:X}}}`, "X", string(quoted))
		asked := r.Post(recordsEvaluation, body, "Authorization", "Bearer "+r.secret["searcher"])
		if asked.Status != http.StatusOK {
			continue // a request that no PDP takes
		}
		for _, path := range []string{"/console/decisions/" + asked.Header.Get("X-Decision-Id"), "/console/decisions?" + url.Values{"subject": {text}}.Encode()} {
			got := auditor.get(path)
			if got.Status != http.StatusOK && got.Status != http.StatusBadRequest {
				t.Errorf("%q: %s: got %d", text, path, got.Status)
			}
			got.Body = typedInto.ReplaceAllString(got.Body, "") // there a browser does nothing with it
			if strings.ContainsAny(got.Body, "\u202e\u200b\u2066\x00") || strings.Contains(got.Body, "<img") || strings.Count(got.Body, "<script") != 1 {
				t.Errorf("%q: got %s", text, got.Body)
			}
		}
	}
	for _, text := range []string{"a'; rm -rf /", "$(id)", "`id`", "a b"} {
		body := plain(auditor.page("/console/decisions?" + url.Values{"subject": {text}}.Encode()))
		has(t, body, `'--subject=`+strings.ReplaceAll(text, "'", `'"'"'`)+`'`)
	}
	for _, text := range []string{"a\u202eb", `a\b`, "аdmin", strings.Repeat("x", 400)} {
		hasNot(t, plain(auditor.page("/console/decisions?"+url.Values{"subject": {text}}.Encode())), "--subject=")
	}
}

// Records can be found and read in a browser, wide and narrow, with scripts and without: by mouse and by keyboard, in dark,
// and nothing on the pages is out of reach.
func TestRecordsInABrowser(t *testing.T) {
	t.Parallel()
	r := openRecords(t)
	r.asked("allow", recordsEvaluation, readQuestion("nina", `{"role":"reader"}`, `{"pin":"1","arguments":{"page":7}}`))
	r.asked("deny", recordsEvaluation, readQuestion("nina", `{}`, `{}`))
	id := r.asks("github.push_code", push)
	frank := r.logIn("frank")
	if got := frank.says(frank.page("/console/approvals/"+id), "/decision", "decision", "approve", "reason", "the launch is on"); got.Status != http.StatusSeeOther {
		t.Fatalf("got %d %s", got.Status, got.Body)
	}
	voted := regexp.MustCompile(`href="/pdp(/console/decisions/[^"?]+)" data-row`).FindStringSubmatch(r.logIn("auditor").page("/console/decisions?event=approve&approval=" + id))
	if voted == nil {
		t.Fatal("the vote is not on record")
	}
	for name, options := range map[string][]browsertest.Option{
		"with scripts": {browsertest.Dark()}, "without": {browsertest.WithoutScript()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := browsertest.Open(t, r.Server.URL, options...)
			if name == "with scripts" {
				browsertest.Call(p, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: rightsLooks})
			}
			wrong := func(what string) {
				t.Helper()
				if name != "with scripts" {
					return
				}
				for _, one := range rightsFrom(p, "own", "structure", "contrast", "targets", "sideways") {
					t.Errorf("%s: %s", what, one)
				}
				for _, one := range rightsTabs(p) {
					t.Errorf("%s, the keyboard: %s", what, one)
				}
			}
			p.Goto("/console/login")
			p.Fill("API key", r.secret["both"])
			p.Loads(func() { p.Click("button", "Log in with the key") })
			for _, size := range [][2]int64{{1280, 800}, {390, 844}} {
				rightsResize(p, size[0], size[1])
				p.Goto("/console/approvals")
				p.Loads(func() { p.Click("link", "Records") })
				wrong("list")
				if !p.Has("heading", "Records") {
					t.Fatalf("got %s", p.Text())
				}
				p.Goto("/console/decisions?decision=allow")
				wrong("filtered")
				p.Fill("Who", "user/nina")
				p.Loads(func() { p.Click("button", "Search") })
				p.Loads(func() { p.Click("link", "user/nina read doc/plan") })
				if p.Path() != "/pdp/console/decisions/"+r.ids["allow"] || !p.Has("heading", "Why: by the policies of then") {
					t.Fatalf("at %s\n%s", p.Path(), p.Text())
				}
				wrong("decision")
				p.Goto("/console/decisions?approval=" + id)
				wrong("steps")
				p.Goto(voted[1])
				wrong("vote")
				p.Refused("/console/decisions?from=yesterday", http.StatusBadRequest)
			}
		})
	}
}
