package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"policy-service/pdp/internal/decisionlog/record"
)

// lists are the places that a gateway does not know while it lists tools.
const lists = `"options":{"unknown":["/context/arguments","/context/pdp/approved","/context/pdp/capability"]}`

// The answers to what is possible.
const (
	possible   = `{"decision":false,"context":{"possible":true}}`
	impossible = `{"decision":false,"context":{"possible":false}}`
)

// openList is a desk at which a gateway may list tools.
func openList(t *testing.T) *counter {
	t.Helper()
	files := approvalFiles("a.cedar", `
		@id("small") permit(principal, action == Action::"tool.invoke", resource == tool::"pay") when { context.arguments.amount < 100 };
		@id("told") @obligation("log") permit(principal, action == Action::"tool.invoke", resource == tool::"read");
		@id("sent") @reason_user("no") @obligation("tell") forbid(principal, action == Action::"tool.invoke", resource == tool::"wipe");`,
		"obligations.yaml", "tell: {type: notification, on: deny, properties: {to: x, body: y}}\n")
	return openDeskOn(t, files)
}

// record is what the auditor sees of a decision.
func (c *counter) record(id string) string {
	c.t.Helper()
	status, text := c.do("auditor", "GET", "/v1/decisions/"+id, "")
	if status != http.StatusOK {
		c.t.Fatalf("%s: got %d %s", id, status, text)
	}
	return text
}

// TestWhatIsPossible: the answers to a gateway that lists tools say no more than what is possible, and change nothing.
func TestWhatIsPossible(t *testing.T) {
	t.Parallel()
	c := openList(t)
	for tool, want := range map[string]string{
		"pay":  possible,
		"push": possible, // an approval would be owed
		"read": possible, // and here an obligation that the gateway does not declare
		"wipe": impossible,
		"none": impossible,
	} {
		for range 2 {
			if status, got := c.do("gateway", "POST", evaluationPath, "{"+wants(tool, "")+","+lists+"}"); status != http.StatusOK || got != want {
				t.Errorf("%s: got %d %s, want %s", tool, status, got, want)
			}
		}
	}
	if got := c.program("gateway").evaluates(wants("pay", "")); got.Decision {
		t.Errorf("without arguments, the call is allowed: %s", got.text)
	}
	if got := c.program("gateway").evaluates(wants("push", "")); got.Decision || got.Context.Request == nil {
		t.Errorf("the call itself can be requested: %s", got.text)
	}
	if steps, _ := c.log(); len(steps) > 0 {
		t.Errorf("something was filed: %v", steps)
	}
}

// TestPossibleSpendsNothing: an approval that is presented is there afterwards.
func TestPossibleSpendsNothing(t *testing.T) {
	t.Parallel()
	c := openList(t)
	gateway := c.program("gateway")
	approval, _ := gateway.granted(wants("push", push))
	presenting := wants("push", push+","+approval)
	for range 3 {
		if _, got := c.do("gateway", "POST", evaluationPath, "{"+presenting+","+lists+"}"); got != possible {
			t.Errorf("got %s", got)
		}
	}
	denied := strings.Replace(presenting, `"push"`, `"wipe"`, 1) // of which nobody is told why the approval does not count
	for body, want := range map[string]string{
		presenting + "," + lists + `,"evaluations":[{},{}]`: `{"evaluations":[` + possible + `,` + possible + `]}`,
		denied + "," + lists + `,"evaluations":[{}]`:        `{"evaluations":[` + impossible + `]}`,
		denied + "," + lists:                                impossible,
	} {
		if _, got := c.do("gateway", "POST", batchPath, "{"+body+"}"); got != want {
			t.Errorf("%s: got %s, want %s", body, got, want)
		}
	}
	if _, spent := c.log(); spent != 0 {
		t.Errorf("%d uses were spent", spent)
	}
	if got := gateway.evaluates(presenting); !got.Decision {
		t.Errorf("the approval is gone: %s", got.text)
	}
	if _, spent := c.log(); spent != 1 {
		t.Errorf("%d uses were spent", spent)
	}
}

// TestPossibleInABatch: defaults and options of items, and what is on record.
func TestPossibleInABatch(t *testing.T) {
	t.Parallel()
	c := openList(t)
	item := func(tool, more string) string { return `{"resource":{"type":"tool","id":"` + tool + `"}` + more + `}` }
	const defaults = `"subject":{"type":"agent","id":"bot"},"action":{"name":"tool.invoke"},"context":{"session":"s"}`
	body := batchBody(defaults+","+lists, item("pay", ""), item("pay", `,"options":{}`), item("wipe", ""), item("push", `,"options":{"unknown":["/context/pdp/approved"]}`),
		item("pay", `,"options":{"unknown":[]}`), item("pay", `,"options":{"unknown":["/resource/id"]}`))
	r, err := http.NewRequestWithContext(t.Context(), "POST", c.URL+batchPath, strings.NewReader(body))
	must(t, err)
	r.Header.Set("Authorization", c.key["gateway"])
	r.Header.Set("Content-Type", "application/json")
	response, err := c.Client.Do(r)
	must(t, err)
	defer func() { _ = response.Body.Close() }()
	var got struct{ Evaluations []json.RawMessage }
	must(t, json.NewDecoder(response.Body).Decode(&got))
	want := []string{
		possible, `{"decision":false}`, impossible, possible, impossible,
		`{"decision":false,"context":{"error":{"status":400,"message":"/evaluations/5/options/unknown/0: types, ids and names must be known, and are all that this is; name its properties, or one of them: /resource/properties/NAME"}}}`,
	}
	if len(got.Evaluations) != len(want) {
		t.Fatalf("got %s", got.Evaluations)
	}
	const unknown = `"unknown":["/context/arguments","/context/pdp/approved","/context/pdp/capability"],"inherits":["context"],`
	questions := []string{ // all that is possible is one record
		`{"n":0,"request":{"resource":{"type":"tool","id":"pay"}},` + unknown + `"possible":true,"determining":["small"]}`,
		`{"n":2,"request":{"resource":{"type":"tool","id":"wipe"}},` + unknown + `"possible":false,"determining":["sent"]}`,
		`{"n":3,"request":{"resource":{"type":"tool","id":"push"}},"unknown":["/context/pdp/approved"],"inherits":["context"],"possible":true,"determining":["ask"]}`,
		`{"n":4,"request":{"resource":{"type":"tool","id":"pay"}},"unknown":[],"inherits":["context"],"possible":false,"errors":[{"policy":"small","position":"a.cedar:9:3","kind":"missing_attribute"}]}`,
	}
	id := response.Header.Get("X-Decision-Id")
	whole := `"kind":"possible","caller":"key:gateway","request":{"subject":{"type":"agent","id":"bot"},"action":{"name":"tool.invoke"},"context":{"session":"s"}},"items":[` + strings.Join(questions, ",") + `],"bundle":"`
	for n, one := range want {
		if string(got.Evaluations[n]) != one {
			t.Errorf("item %d: got %s, want %s", n, got.Evaluations[n], one)
		}
		record := c.record(fmt.Sprintf("%s.%d", id, n))
		isPossible := one != `{"decision":false}` && n != 5
		if strings.Contains(record, `"id":"`+id+`.possible"`) != isPossible || strings.Contains(record, whole) != isPossible || strings.Contains(record, `"unknown"`) != isPossible {
			t.Errorf("item %d: the record is %s", n, record)
		}
		asked := `,"request":{"subject":{"type":"agent","id":"bot"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"` + []string{"pay", "pay", "wipe", "push", "pay"}[n%5] + `"},"context":{"session":"s"}},"receipts"`
		if n != 5 && !strings.Contains(record, asked) {
			t.Errorf("item %d: the record is %s, without %s", n, record, asked)
		}
	}
	for filter, want := range map[string]int{
		"decision=" + record.Possible: 1, "decision=" + record.Impossible: 1, "decision=" + record.Allow: 0, "decision=" + record.Deny: 2,
		"resource=wipe": 1, "resource=wipe&decision=possible": 0, "policy=sent": 1, "policy=sent&resource=push": 0, "kind=possible": 1, "subject=agent/bot": 2, "resource=tool/push&decision=possible": 1,
	} {
		if _, page := c.do("auditor", "GET", "/v1/decisions?"+filter, ""); strings.Count(page, `"bundle":"h1`) != want {
			t.Errorf("%s: got %s, want %d", filter, page, want)
		}
	}
	if status, text := c.do("auditor", "GET", "/v1/decisions/"+id+".2/proof", ""); status != http.StatusOK || !strings.Contains(text, whole) {
		t.Errorf("the proof is %d %s", status, text)
	}
	for _, none := range []string{id + ".6", id + ".02", id + ".-1", id + ".possible.2", id + ".possible.possible", id + ".2.possible", id + "."} {
		if status, text := c.do("auditor", "GET", "/v1/decisions/"+none, ""); status != http.StatusNotFound {
			t.Errorf("%s: got %d %s", none, status, text)
		}
	}
	for _, one := range []string{id + ".2", id + ".possible"} { // nothing is owed for what is possible
		if status, text := c.do("gateway", "POST", "/v1/decisions/"+one+"/obligations", `{"obligations":[{"id":"x","status":"discharged"}]}`); status != http.StatusNotFound {
			t.Errorf("a receipt of %s: got %d %s", one, status, text)
		}
	}
	if _, stats := c.do("auditor", "GET", "/v1/log/stats", ""); !strings.Contains(stats, `"allowed":0,"waiting":0,"possible":2,"impossible":2,"denied":2`) {
		t.Errorf("got %s", stats)
	}
	if _, csv := c.do("auditor", "GET", "/v1/log/export?format=csv", ""); strings.Count(csv, "gateway,possible,") != 2 || strings.Count(csv, "gateway,impossible,") != 2 {
		t.Errorf("got %s", csv)
	}
	series := counted(t, c.Get("/metrics", "Authorization", c.key["gateway"]).Body)
	for name, n := range series {
		if strings.HasPrefix(name, "policy_service_decisions_total") && n > 1 || strings.Contains(name, `decision="allow"`) && n > 0 {
			t.Errorf("%s is %v: what is possible is no decision about a call", name, n)
		}
	}
}

// TestPossibleNeedsSearch: who may not search is not told what is possible, by no route; and a place that cannot be
// unknown is malformed.
func TestPossibleNeedsSearch(t *testing.T) {
	t.Parallel()
	c := openList(t)
	const item = `"evaluations":[{},{"options":{"unknown":[]}}]`
	for name, tt := range map[string]struct {
		who, path, body string
		want            int
		says            string
	}{
		"single":         {"pep", evaluationPath, "{" + wants("pay", "") + "," + lists + "}", 403, "permission search"},
		"single, none":   {"pep", evaluationPath, "{" + wants("pay", "") + `,"options":{"unknown":[]}}`, 403, "permission search"},
		"batch":          {"pep", batchPath, "{" + wants("pay", "") + "," + lists + `,"evaluations":[{}]}`, 403, "permission search"},
		"item":           {"pep", batchPath, "{" + wants("pay", "") + "," + item + "}", 403, "permission search"},
		"batch of one":   {"pep", batchPath, "{" + wants("pay", "") + "," + lists + "}", 403, "permission search"},
		"no decide":      {"searcher", evaluationPath, "{" + wants("pay", "") + "," + lists + "}", 403, "permission decide"},
		"other options":  {"pep", batchPath, "{" + wants("pay", "") + `,"options":{"evaluations_semantic":"execute_all"}}`, 200, "decision"},
		"no pointer":     {"gateway", evaluationPath, "{" + wants("pay", "") + `,"options":{"unknown":["context"]}}`, 400, `"pointer":"/options/unknown/0"`},
		"the id":         {"gateway", evaluationPath, "{" + wants("pay", "") + `,"options":{"unknown":["/context/a","/subject/id"]}}`, 400, `"pointer":"/options/unknown/1"`},
		"the caller":     {"gateway", batchPath, "{" + wants("pay", "") + `,"options":{"unknown":["/context/pdp/caller"]},"evaluations":[{}]}`, 400, `"pointer":"/options/unknown/0"`},
		"too many":       {"gateway", evaluationPath, "{" + wants("pay", "") + `,"options":{"unknown":["/context/a"` + strings.Repeat(`,"/context/b"`, 16) + `]}}`, 400, `"pointer":"/options/unknown"`},
		"another tenant": {"gateway", "/tenants/acme" + evaluationPath, "{" + strings.Replace(wants("pay", ""), "tool.invoke", "read", 1) + "," + lists + "}", 200, possible},
	} {
		if status, got := c.do(tt.who, "POST", tt.path, tt.body); status != tt.want || !strings.Contains(got, tt.says) {
			t.Errorf("%s: got %d %s, want %d %s", name, status, got, tt.want, tt.says)
		}
	}
	// The native shape decides, and a search lists permits.
	body := strings.TrimSuffix(tool("push", push), "}") + "," + lists + "}"
	c.reply("pep", "POST", "/v1/authorize", body).is(t, "native", 400, `"pointer":"/options/unknown"`)
	search := `{"subject":{"type":"agent"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"push"},` + lists + `}`
	c.reply("searcher", "POST", "/access/v1/search/subject", search).is(t, "a search", 400, `"pointer":"/options/unknown"`)
	if steps, _ := c.log(); slices.Contains(steps, "requested") {
		t.Errorf("something was filed: %v", steps)
	}
}

// TestPossibleIsExplained: the explanation says which policies can apply.
func TestPossibleIsExplained(t *testing.T) {
	t.Parallel()
	c := openList(t)
	_, got := c.do("gateway", "POST", evaluationPath, "{"+wants("pay", "")+","+lists+"}", "X-Explain", "true")
	for _, says := range []string{`{"id":"small","effect":"permit","verdict":"unknown",`, `{"path":"context.arguments.amount","source":"unknown"}`, `"id":"blocked","effect":"forbid","verdict":"unknown"`} {
		if !strings.Contains(got, says) {
			t.Errorf("got %s, without %s", got, says)
		}
	}
}
