package clients_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"policy-service/pdp/pdptest/lies"
	"policy-service/pdp/pdptest/night"
)

// A testCase is calls of one client.
type testCase struct {
	name string
	lie  func() http.HandlerFunc // nil for the real server
	// options are those of the client. URL is put after the front's own, and Credential names a key.
	options options
	steps   []step
}

type step struct {
	call
	before func(*front, *call) // runs before the call
	filed  func(*front)        // the act of people once they are asked
	want   result
	// asked is how often the PDP was asked, if it is not 0; -1 is never. receipts are those that it got.
	asked    int
	receipts string
}

func ask(action, id string, context ...string) json.RawMessage {
	q := fmt.Sprintf(`{"subject":{"type":"user","id":"alice"},"action":{"name":%q},"resource":{"type":"doc","id":%q}`, action, id)
	if len(context) > 0 {
		q += `,"context":` + context[0]
	}
	return json.RawMessage(q + "}")
}

var (
	read      = ask("read", "d1")
	useTool   = json.RawMessage(`{"subject":{"type":"agent","id":"bot"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"b:go"},"context":{"arguments":{"n":1.5,"s":"é"}}}`)
	approval  = ask("push", "d1", `{"approval_id":"ap_1"}`)
	yes       = result{Allowed: true, Acted: 1, Result: "done"}
	undecided = func(kind string) result { return result{Kind: kind} }
	refusal   = func(status int) result { return result{Kind: "refused", Status: status} }
	none      = 0
	two       = 2
)

// lying is a case of one call of enforce, against a PDP that lies.
func lying(name string, answer http.HandlerFunc, want result, asked int) testCase {
	return testCase{name: name, lie: func() http.HandlerFunc { return answer }, options: options{Retries: &none},
		steps: []step{{call: call{Do: "enforce", Question: read}, want: want, asked: asked}}}
}

// The drafts of obligations that a client can speak.
const (
	october = ""
	july    = "july"
)

// cases are the table by a draft, and capable is the part of it that needs keys. Each client has to come to the same results.
func cases(draft string) (all []testCase) {
	all = append(all, answered()...)
	all = append(all, obliged()...)
	all = append(all, failing()...)
	all = append(all, repeated()...)
	all = append(all, batches()...)
	all = append(all, searched(draft)...)
	all = append(all, ofTenants(draft)...)
	return append(all, approved()...)
}

// ofTenants are calls about tenants of one PDP, by clients that are made of one.
func ofTenants(draft string) []testCase {
	about := func(tenant string) call { return call{Do: "enforce", Question: read, Tenant: tenant} }
	done := result{Allowed: true, Acted: 1, Result: "done", Named: true}
	broken := result{Kind: "unavailable", Status: 500}
	circuit := options{Retries: &none, Breaker: &breaker{Failures: 2, CoolDown: 600_000}}
	allows := says(200, `{"decision":true}`)
	owes := `{"decision":true,"context":{"obligations":[{"id":"a","type":"custom","properties":{"vendor":"policy-service","type":"log","properties":{}}}]}}`
	if draft == july {
		owes = `{"decision":true,"context":{"obligations":[{"id":"a","type":"log","properties":{}}]}}`
	}
	reporting := circuit
	reporting.Handlers = map[string]string{"log": "ok"}
	kept := done
	kept.Handled = []string{"log"}
	return []testCase{
		{name: "tenants", steps: []step{
			{call: about(""), want: done, asked: 1},
			{call: about("acme"), want: result{Kind: "denied", ReasonUser: "Acme is closed.", Named: true}, asked: 1},
			{call: about("nowhere"), want: refusal(404), asked: 1},
			{call: about("default"), want: done, asked: 1},
		}},
		{name: "one circuit for all tenants", lie: func() http.HandlerFunc { return says(500, "{}") }, options: circuit, steps: []step{
			{call: about("acme"), want: broken, asked: 1},
			{call: about("default"), want: broken, asked: 1},
			{call: about("other"), want: undecided("open"), asked: -1},
			{call: about(""), want: undecided("open"), asked: -1},
		}},
		{name: "tenants that the PDP refuses, and one that it does not", options: circuit, steps: []step{
			{call: about("nowhere"), want: refusal(404), asked: 1},
			{call: about("nowhere"), want: refusal(404), asked: 1},
			{call: about("elsewhere"), want: refusal(404), asked: 1},
			{call: about("default"), want: done, asked: 1},
		}},
		{name: "a tenant that asks too often", lie: func() http.HandlerFunc { return badFor("acme", says(429, "{}"), allows) }, options: circuit, steps: []step{
			{call: about("acme"), want: result{Kind: "unavailable", Status: 429}, asked: 1},
			{call: about("acme"), want: result{Kind: "unavailable", Status: 429}, asked: 1},
			{call: about("acme"), want: result{Kind: "unavailable", Status: 429}, asked: 1},
			{call: about("default"), want: result{Allowed: true, Acted: 1, Result: "done"}, asked: 1},
		}},
		{name: "a tenant that reports too often", lie: func() http.HandlerFunc {
			return badFor("acme", says(200, owes, "X-Decision-Id", "busy"), says(200, owes, "X-Decision-Id", "d1"))
		}, options: reporting, steps: []step{
			{call: about("acme"), want: kept, receipts: "a discharged"},
			{call: about("acme"), want: kept, receipts: "a discharged"},
			{call: about("acme"), want: kept, receipts: "a discharged"},
			{call: about("default"), want: kept, receipts: "a discharged"},
		}},
		{name: "a tenant whose answers are too large", lie: func() http.HandlerFunc {
			return badFor("acme", says(200, `{"decision":true,"context":{"x":"`+strings.Repeat("x", 2<<20)+`"}}`), allows)
		}, options: circuit, steps: []step{
			{call: about("acme"), want: undecided("odd"), asked: 1},
			{call: about("acme"), want: undecided("odd"), asked: 1},
			{call: about("acme"), want: undecided("odd"), asked: 1},
			{call: about("default"), want: result{Allowed: true, Acted: 1, Result: "done"}, asked: 1},
		}},
		{name: "too many requests of the client itself", lie: func() http.HandlerFunc { return says(429, "{}") }, options: circuit, steps: []step{
			{call: about(""), want: result{Kind: "unavailable", Status: 429}, asked: 1},
			{call: about(""), want: result{Kind: "unavailable", Status: 429}, asked: 1},
			{call: about(""), want: undecided("open"), asked: -1},
		}},
	}
}

// badFor answers about one tenant with bad, and about others with good.
func badFor(tenant string, bad, good http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/tenants/"+tenant+"/") {
			bad(w, r)
			return
		}
		good(w, r)
	}
}

func answered() []testCase {
	named := func(r result) result { r.Named = true; return r }
	denied := named(result{Kind: "denied"})
	kept := denied
	kept.ReasonUser = "Documents are kept."
	return []testCase{
		{name: "yes", steps: []step{
			{call: call{Do: "evaluate", Question: read}, want: result{Allowed: true, Named: true}, asked: 1},
			{call: call{Do: "authorize", Question: read}, want: result{Allowed: true, Named: true}},
			{call: call{Do: "enforce", Question: read}, want: named(yes)},
		}},
		{name: "no", steps: []step{
			{call: call{Do: "evaluate", Question: ask("read", "d0")}, want: denied},
			{call: call{Do: "authorize", Question: ask("read", "d0")}, want: denied},
			{call: call{Do: "enforce", Question: ask("delete", "d1")}, want: kept},
		}},
		{name: "400", steps: []step{{call: call{Do: "enforce", Question: ask("read", "d1", `{"pdp":{}}`)}, want: refusal(400), asked: 1}}},
		{name: "401", options: options{Credential: "psk_nobody_0123456789"}, steps: []step{{call: call{Do: "enforce", Question: read}, want: refusal(401)}}},
		{name: "403", options: options{Credential: "searcher"}, steps: []step{{call: call{Do: "enforce", Question: read}, want: refusal(403)}}},
		{name: "404", options: options{URL: "/tenants/nowhere"}, steps: []step{{call: call{Do: "enforce", Question: read}, want: refusal(404)}}},
		{name: "413", steps: []step{{call: call{Do: "enforce", Question: ask("read", "d1", `{"x":"`+strings.Repeat("x", 1<<20)+`"}`)}, want: refusal(413)}}},
	}
}

// obliged has each type of obligation, with no handler, with one that does it, and with one that fails.
func obliged() (all []testCase) {
	for _, name := range slices.Sorted(maps.Keys(owed)) {
		q := ask("do."+name, "d1")
		with := func(handler string) options { return options{Handlers: map[string]string{name: handler}} }
		reason := "obligation_unsupported"
		if name == "approval_required" {
			reason = name
		}
		done := result{Allowed: true, Acted: 1, Result: "done", Handled: []string{name}, Named: true}
		evaluated := result{Kind: "denied", Reason: reason, Named: true}
		all = append(all,
			testCase{name: name + " without a handler", steps: []step{{call: call{Do: "enforce", Question: q}, want: evaluated}}},
			testCase{name: name + " done", options: with("ok"), steps: []step{
				{call: call{Do: "enforce", Question: q}, want: done, receipts: name + " discharged"},
				{call: call{Do: "authorize", Question: q}, want: result{Allowed: true, Handled: []string{name}, Named: true}, receipts: name + " discharged"},
				{call: call{Do: "evaluate", Question: q}, want: evaluated},
			}},
			testCase{name: name + " failed", options: with("fail"), steps: []step{
				{call: call{Do: "enforce", Question: q}, want: result{Kind: "obligated", Handled: []string{name}, Named: true}, receipts: name + " failed"},
			}},
		)
	}
	both := []string{"notification", "redact"}
	return append(all,
		testCase{name: "one of two fails", options: options{Handlers: map[string]string{"notification": "fail", "redact": "ok"}}, steps: []step{
			{call: call{Do: "enforce", Question: ask("both", "d1")}, want: result{Kind: "obligated", Handled: both, Named: true}, receipts: "notification failed, redact discharged"},
		}},
		testCase{name: "a change", options: options{Handlers: map[string]string{"notification": "ok", "redact": "change"}}, steps: []step{
			{call: call{Do: "enforce", Question: ask("both", "d1")}, want: result{Allowed: true, Acted: 1, Result: "changed:done", Handled: both, Named: true}, receipts: "notification discharged, redact discharged"},
			{call: call{Do: "authorize", Question: ask("both", "d1")}, want: result{Kind: "obligated", Handled: both, Named: true}, receipts: "notification discharged, redact failed"},
		}},
		testCase{name: "a change that breaks", options: options{Handlers: map[string]string{"redact": "breaks"}}, steps: []step{
			{call: call{Do: "enforce", Question: ask("do.redact", "d1")}, want: result{Kind: "obligated", Acted: 1, Handled: []string{"redact"}, Named: true}, receipts: "redact failed"},
		}},
		testCase{name: "obligations of a deny", options: options{Handlers: map[string]string{"notification": "ok"}}, steps: []step{
			{call: call{Do: "enforce", Question: ask("drop", "d1")}, want: result{Kind: "denied", Handled: []string{"notification"}, Named: true}, receipts: "kept discharged"},
		}},
		testCase{name: "all of several", options: options{Handlers: map[string]string{"notification": "ok"}}, steps: []step{
			{call: call{Do: "enforceAll", Questions: []json.RawMessage{read, ask("do.notification", "d1")}}, want: result{Allowed: true, Acted: 1, Result: "done", Handled: []string{"notification"}}, asked: 1},
			{call: call{Do: "enforceAll", Questions: []json.RawMessage{ask("do.notification", "d1"), ask("read", "d0")}}, want: result{Kind: "denied"}, receipts: "notification failed"},
			{call: call{Do: "enforceAll", Questions: []json.RawMessage{}}, want: undecided("not_asked"), asked: -1},
		}},
	)
}

// failing are answers that are none.
func failing() (all []testCase) {
	yes := `{"decision":true}`
	for _, status := range []int{500, 502, 503, 504, 429} {
		all = append(all, lying(fmt.Sprint(status), says(status, yes), result{Kind: "unavailable", Status: status}, 1))
	}
	for _, status := range []int{301, 302, 303, 307, 308} {
		all = append(all, lying(fmt.Sprintf("redirect %d", status), says(status, yes, "Location", "/elsewhere"), result{Kind: "odd", Status: status}, 1))
	}
	long := strings.Repeat("x", 1<<20)
	all = append(all,
		lying("204", says(204, ""), result{Kind: "odd", Status: 204}, 1),
		lying("201", says(201, yes), result{Kind: "odd", Status: 201}, 1),
		lying("another type", says(200, yes, "Content-Type", "application/problem+json"), undecided("odd"), 1),
		lying("garbage", says(200, "<html>yes</html>"), undecided("odd"), 1),
		lying("larger than 1 MiB", says(200, `{"decision":true,"x":"`+long+`"}`), undecided("odd"), 1),
		lying("not larger", says(200, `{"decision":true,"x":"`+long[:1<<20-30]+`"}`), result{Allowed: true, Acted: 1, Result: "done"}, 1),
		lying("spaces without end", says(200, yes+strings.Repeat(" ", 1<<21)), undecided("odd"), 1),
		lying("possible", says(200, `{"decision":true,"context":{"possible":true}}`), undecided("odd"), 1),
		lying("possible, and no", says(200, `{"decision":false,"context":{"possible":true}}`), undecided("denied"), 1),
		lying("no use counted", says(200, `{"decision":true,"context":{"capability":{"enforceable":false}}}`), undecided("odd"), 1),
		lying("a use counted", says(200, `{"decision":true,"context":{"capability":{"enforceable":true}}}`), result{Allowed: true, Acted: 1, Result: "done"}, 1),
		lying("a number", says(200, `{"decision":1}`), undecided("odd"), 1),
		lying("duplicate", says(200, `{"decision":false,"decision":true}`), undecided("odd"), 1),
		lying("cut before an answer", cut(""), undecided("unreachable"), 1),
		lying("cut within an answer", cut(`{"decision":true`), undecided("unreachable"), 1),
		lying("an answer to another question", says(200, yes, "X-Request-ID", "other"), undecided("odd"), 1),
	)
	repeats := func(w http.ResponseWriter, r *http.Request) {
		key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		said := fmt.Sprintf(`{"decision":false,"context":{"reason":"no %[1]s","reason_user":%[1]q}}`, key)
		if strings.HasSuffix(r.URL.Path, "s") {
			said = `{"evaluations":[` + said + `]}`
		}
		says(200, said)(w, r)
	}
	all = append(all,
		lying("the credential, repeated", repeats, result{Kind: "denied", Reason: "no …", ReasonUser: "…"}, 1),
		testCase{name: "the credential, repeated in a batch", lie: func() http.HandlerFunc { return repeats }, steps: []step{
			{call: call{Do: "batch", Questions: []json.RawMessage{read}}, want: result{Items: []item{{Kind: "denied", Reason: "no …"}}}},
		}},
	)
	late := lying("no answer in time", hangs, undecided("timed_out"), 1)
	late.options.Timeout = 300
	return append(all, late)
}

// repeated are calls that are sent again, or not.
func repeated() []testCase {
	yes := says(200, `{"decision":true}`)
	done := result{Allowed: true, Acted: 1, Result: "done"}
	lost := result{Kind: "unreachable", Spent: true}
	late := result{Kind: "timed_out", Spent: true}
	inTurns := func(answers ...http.HandlerFunc) func() http.HandlerFunc {
		return func() http.HandlerFunc { return inTurn(answers...) }
	}
	enforce := func(q json.RawMessage) call { return call{Do: "enforce", Question: q} }
	return []testCase{
		{name: "503 with Retry-After", lie: inTurns(says(503, "{}", "Retry-After", "0"), yes), steps: []step{{call: enforce(read), want: done, asked: 2}}},
		{name: "429 with Retry-After", lie: inTurns(says(429, "{}", "Retry-After", "0"), yes), steps: []step{{call: enforce(read), want: done, asked: 2}}},
		{name: "503 for long", lie: inTurns(says(503, "{}", "Retry-After", "3600"), yes), steps: []step{{call: enforce(read), want: result{Kind: "unavailable", Status: 503}, asked: 1}}},
		{name: "503 without Retry-After", lie: inTurns(says(503, "{}"), yes), steps: []step{{call: enforce(read), want: result{Kind: "unavailable", Status: 503}, asked: 1}}},
		{name: "cut, and asked again", lie: inTurns(cut(""), yes), steps: []step{{call: enforce(read), want: done, asked: 2}}},
		{name: "cut each time", lie: inTurns(cut("")), options: options{Retries: &two}, steps: []step{{call: enforce(read), want: undecided("unreachable"), asked: 3}}},
		{name: "cut with an approval", lie: inTurns(cut(""), yes), steps: []step{{call: enforce(approval), want: lost, asked: 1}}},
		{name: "cut within an answer to an approval", lie: inTurns(cut(`{"dec`), yes), steps: []step{{call: enforce(approval), want: lost, asked: 1}}},
		{name: "no answer in time to an approval", lie: inTurns(hangs), options: options{Timeout: 300}, steps: []step{{call: enforce(approval), want: late, asked: 1}}},
		{name: "500 with an approval", lie: inTurns(says(500, "{}")), steps: []step{{call: enforce(approval), want: result{Kind: "unavailable", Status: 500, Spent: true}, asked: 1}}},
		{name: "503 with an approval", lie: inTurns(says(503, "{}", "Retry-After", "0")), steps: []step{{call: enforce(approval), want: result{Kind: "unavailable", Status: 503}, asked: 1}}},
		{name: "an approval in a batch whose answer is odd", lie: inTurns(says(200, `{"evaluations":[]}`)), steps: []step{
			{call: call{Do: "enforceAll", Questions: []json.RawMessage{approval, read}}, want: result{Kind: "odd", Spent: true}, asked: 1},
		}},
		{name: "a refused approval is not gone", lie: inTurns(says(400, "{}")), steps: []step{{call: enforce(approval), want: refusal(400), asked: 1}}},
		{name: "breaker", lie: inTurns(says(500, "{}")), options: options{Retries: &none, Breaker: &breaker{Failures: 2, CoolDown: 600_000}}, steps: []step{
			{call: enforce(read), want: result{Kind: "unavailable", Status: 500}},
			{call: enforce(read), want: result{Kind: "unavailable", Status: 500}},
			{call: enforce(read), want: undecided("open"), asked: -1},
		}},
		{name: "no questions", steps: []step{{call: call{Do: "batch", Questions: []json.RawMessage{}}, want: undecided("not_asked"), asked: -1}}},
	}
}

func batches() []testCase {
	questions := []json.RawMessage{read, ask("read", "d0"), read, ask("do.log", "d1")}
	allow, deny := item{Allowed: true}, item{Kind: "denied"}
	skipped, owing := item{Kind: "skipped"}, item{Kind: "denied", Reason: "obligation_unsupported"}
	batch := func(name string, body string, want ...item) testCase {
		all := make([]json.RawMessage, len(want))
		for n := range all {
			all[n] = read
		}
		return testCase{name: name, lie: func() http.HandlerFunc { return says(200, body) }, steps: []step{
			{call: call{Do: "batch", Questions: all}, want: result{Items: want}},
		}}
	}
	odd := item{Kind: "odd"}
	return []testCase{
		{name: "batch", steps: []step{
			{call: call{Do: "batch", Questions: questions}, want: result{Items: []item{allow, deny, allow, owing}}, asked: 1},
			{call: call{Do: "batch", Questions: questions, Semantic: "deny_on_first_deny"}, want: result{Items: []item{allow, deny, skipped, skipped}}},
			{call: call{Do: "batch", Questions: questions, Semantic: "permit_on_first_permit"}, want: result{Items: []item{allow, skipped, skipped, skipped}}},
			{call: call{Do: "batch", Questions: []json.RawMessage{ask("read", "d1", `{"pdp":{}}`), read}}, want: result{Items: []item{{Kind: "bad_item"}, allow}}},
		}},
		batch("a single answer to a batch", `{"decision":true}`, odd, odd),
		batch("too few answers", `{"evaluations":[{"decision":true}]}`, odd, odd),
		batch("too many answers", `{"evaluations":[{"decision":true},{"decision":true},{"decision":true}]}`, odd, odd),
		batch("no answers", `{"evaluations":[]}`, odd, odd),
		batch("an array as the answer to a batch", `[{"decision":true}]`, odd),
		batch("an array as an answer of a batch", `{"evaluations":[[{"decision":true}]]}`, odd),
		batch("answers that are no array", `{"evaluations":{"0":{"decision":true}}}`, odd),
		batch("obligations beside the answers", `{"evaluations":[{"decision":true}],"context":{"obligations":[{"id":"a","type":"log","properties":{}}]}}`, item{Kind: "obligated"}),
		{name: "a single answer to all of several", lie: func() http.HandlerFunc { return says(200, `{"decision":true}`) }, steps: []step{
			{call: call{Do: "enforceAll", Questions: []json.RawMessage{read, read}}, want: undecided("odd")},
		}},
		{name: "one answer to all of several", lie: func() http.HandlerFunc { return says(200, `{"evaluations":[{"decision":true}]}`) }, steps: []step{
			{call: call{Do: "enforceAll", Questions: []json.RawMessage{read, read}}, want: undecided("odd")},
		}},
	}
}

func searched(draft string) []testCase {
	find := func(what, q string) call { return call{Do: "search", What: what, Question: json.RawMessage(q)} }
	page := func(body string) func() http.HandlerFunc { return func() http.HandlerFunc { return says(200, body) } }
	subjects := `{"subject":{"type":"user"},"action":{"name":"read"},"resource":{"type":"doc","id":"d1"}}`
	owing := result{Allowed: true, Found: []string{"y"}} // a result that owes is left out
	if draft == july {
		owing = undecided("obligated")
	}
	return []testCase{
		{name: "search", steps: []step{
			{call: find("subject", subjects), want: result{Allowed: true, Found: []string{"alice", "mia"}}, asked: 1},
			{call: find("resource", `{"subject":{"type":"user","id":"alice"},"action":{"name":"read"},"resource":{"type":"doc"}}`), want: result{Allowed: true, Found: []string{"d1", "d2", "d4", "d5"}}},
			{call: find("action", `{"subject":{"type":"user","id":"alice"},"resource":{"type":"doc","id":"d1"}}`), want: result{Allowed: true, Found: []string{"read"}}},
			{call: find("subject", `{"subject":{"type":"user"},"action":{"name":"delete"},"resource":{"type":"doc","id":"d1"}}`), want: result{Allowed: true}},
		}},
		{name: "search of another type", lie: page(`{"results":[{"type":"group","id":"x"}]}`), steps: []step{{call: find("subject", subjects), want: undecided("odd")}}},
		{name: "search that owes", lie: page(`{"results":[{"type":"user","id":"x","obligations":[{"id":"a","type":"log","properties":{}}]},{"type":"user","id":"y"}]}`), steps: []step{{call: find("subject", subjects), want: owing}}},
		{name: "search of pages", lie: func() http.HandlerFunc {
			return inTurn(says(200, `{"results":[{"type":"user","id":"a"}],"page":{"next_token":"t"}}`), says(200, `{"results":[{"type":"user","id":"b"}],"page":{"next_token":""}}`))
		}, steps: []step{{call: find("subject", subjects), want: result{Allowed: true, Found: []string{"a", "b"}}, asked: 2}}},
	}
}

// given puts the id of the approval that was given last into the context.
func given(f *front, c *call) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	var q struct {
		Context struct {
			Approval struct{ ID string }
		}
	}
	last := f.bodies[len(f.bodies)-1]
	if err := json.Unmarshal([]byte(last), &q); err != nil || q.Context.Approval.ID == "" {
		f.t.Errorf("no approval was presented: %v %s", err, last)
	}
	c.Question = ask("push", "d1", `{"approval_id":"`+q.Context.Approval.ID+`"}`)
}

// offering denies for a reason, offers an approval request all the same, and names no next action. The offer has more members.
func offering(reason string, more ...string) func() http.HandlerFunc {
	offer := `"access_request":{"expires_at":"2999-01-01T00:00:00Z","binding_token":"b"` + strings.Join(more, "") + `}`
	return func() http.HandlerFunc {
		return says(200, `{"decision":false,"context":{"reason":"`+reason+`",`+offer+`}}`)
	}
}

func approved() []testCase {
	push := call{Do: "enforce", Question: ask("push", "d1")}
	waiting := push
	waiting.Wait = 120
	denied := result{Kind: "denied", Reason: "approval_required", Named: true}
	done := result{Allowed: true, Acted: 1, Result: "done", Named: true}
	used := func(reason string) result { return result{Kind: "denied", Reason: reason, Named: true} }
	return []testCase{
		{name: "an approval from denied to used", steps: []step{
			{call: push, want: denied, asked: 1},
			{call: waiting, filed: decides("approve"), want: done, asked: 2},
			{call: push, before: given, want: used("approval_expired"), asked: 1},
		}},
		{name: "an approval that people refuse", steps: []step{{call: waiting, filed: decides("deny"), want: result{Kind: "not_approved"}}}},
		{name: "an approval that is revoked before its use", steps: []step{
			{call: waiting, filed: func(f *front) { decides("approve")(f); revokes(f) }, want: result{Kind: "not_approved"}},
		}},
		{name: "policies deny what was approved", lie: offering("policy_denied"), steps: []step{{call: waiting, want: result{Kind: "denied", Reason: "policy_denied"}, asked: 1}}},
		{name: "an approval that is about to count", lie: offering("grant_pending"), steps: []step{{call: waiting, want: result{Kind: "denied", Reason: "grant_pending"}, asked: 1}}},
		{name: "an approval that cannot be verified", lie: offering("approval_unverifiable"), steps: []step{{call: waiting, want: result{Kind: "denied", Reason: "approval_unverifiable"}, asked: 1}}},
		{name: "an approval request with a schema of its own", lie: offering("approval_required", `,"request_schema_url":"https://pdp.example.com/finance"`), steps: []step{{call: waiting, want: result{Kind: "not_asked", Reason: "approval_required"}, asked: 1}}},
		{name: "an approval request with a schema that is none", lie: offering("approval_required", `,"request_schema_url":7`), steps: []step{{call: waiting, want: result{Kind: "odd", Reason: "approval_required"}, asked: 1}}},
		{name: "waiting with a handler of approvals", options: options{Handlers: map[string]string{"approval_required": "ok"}}, steps: []step{
			{call: waiting, want: undecided("not_asked"), asked: -1},
		}},
	}
}

func capable() []testCase {
	asks := func(tool string, uses int) json.RawMessage {
		return json.RawMessage(fmt.Sprintf(`{"tenant_id":"default","holder":{"type":"agent","id":"bot"},"audience":"b","tools":[%q],"duration":3600,"max_uses":%d}`, tool, uses))
	}
	use := call{Do: "enforce", Question: useTool, UseCapability: true}
	risky := json.RawMessage(strings.Replace(string(useTool), "b:go", "b:risky", 1))
	done := result{Allowed: true, Acted: 1, Result: "done", Named: true}
	denied := func(reason string) result { return result{Kind: "denied", Reason: reason, Named: true} }
	return []testCase{
		{name: "a capability's story", steps: []step{
			{call: call{Do: "enforce", Question: useTool}, want: denied("capability_required")},
			{call: call{Do: "capability", Ask: asks("go", 2)}, want: result{Allowed: true}},
			{call: use, want: done, asked: 2},
			{call: call{Do: "enforce", Question: risky, UseCapability: true}, want: denied("capability_invalid")},
			{call: call{Do: "renew", Ask: asks("go", 2)}, want: result{Allowed: true}},
			{call: use, want: done},
			{call: use, want: denied("capability_invalid")},
		}},
		{name: "a capability that people grant", steps: []step{
			{call: call{Do: "capability", Ask: asks("risky", 2), Wait: 120}, filed: decides("approve"), want: result{Allowed: true}},
			{call: call{Do: "enforce", Question: risky, UseCapability: true}, want: done},
			{call: call{Do: "renew", Ask: asks("risky", 2), Wait: 120}, filed: decides("approve"), want: result{Allowed: true}},
		}},
		{name: "a capability that people refuse", steps: []step{
			{call: call{Do: "capability", Ask: asks("risky", 1), Wait: 120}, filed: decides("deny"), want: result{Kind: "not_approved"}},
		}},
		{name: "a capability that policies refuse", steps: []step{{call: call{Do: "capability", Ask: asks("never", 1)}, want: result{Kind: "denied"}}}},
	}
}

// TestTable runs the table through the clients that need nothing but Go and Python.
func TestTable(t *testing.T) {
	t.Parallel()
	t.Run("go", func(t *testing.T) {
		t.Parallel()
		byDrafts(t, func(*testing.T) driver { return &inGo{} }, func(draft string) []testCase { return append(cases(draft), capable()...) })
	})
	t.Run("python", func(t *testing.T) {
		t.Parallel()
		byDrafts(t, func(t *testing.T) driver { return run(t, "python", python(t), "tests/driver.py") }, cases)
	})
}

// python is the interpreter: that of the system, which has the packages of the system, or else any.
func python(t *testing.T) string {
	t.Helper()
	const system = "/usr/bin/python3"
	if _, err := os.Stat(system); err == nil {
		return system
	}
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Fatalf("no Python: %v; try to install python3", err)
	}
	return path
}

// TestTableOfOthers runs it through the clients that need programs of others.
func TestTableOfOthers(t *testing.T) {
	t.Parallel()
	night.Npm(t)
	t.Run("python, async", func(t *testing.T) {
		t.Parallel()
		open := func(t *testing.T) driver { return run(t, "python", python(t), "tests/driver.py", "--async") }
		byDrafts(t, open, func(draft string) []testCase { return append(cases(draft), capable()...) })
	})
	t.Run("typescript", func(t *testing.T) {
		t.Parallel()
		p, err := typescriptTests()
		if err != nil {
			t.Fatal(err)
		}
		open := func(t *testing.T) driver {
			return run(t, p.Dir, filepath.Join(p.Bin, "node"), "dist-test/test/driver.js")
		}
		byDrafts(t, open, func(draft string) []testCase { return append(cases(draft), capable()...) })
	})
	t.Run("python, with keys", func(t *testing.T) {
		t.Parallel()
		table(t, run(t, "python", python(t), "tests/driver.py"), october, capable())
	})
}

// byDrafts runs the table through one client that speaks October's draft of obligations, and through one that speaks July's.
// Then it has a proxy drop what the client declares.
func byDrafts(t *testing.T, open func(*testing.T) driver, cases func(draft string) []testCase) {
	for name, draft := range map[string]string{"october": october, "july": july} {
		t.Run(name, func(t *testing.T) { t.Parallel(); table(t, open(t), draft, cases(draft)) })
	}
	t.Run("stripped", func(t *testing.T) { t.Parallel(); stripped(t, open(t)) })
}

// table runs cases through one client, and all lies.
func table(t *testing.T, d driver, draft string, cases []testCase) {
	f := openFront(t, bundle(), `user::"mia"`)
	for _, c := range cases {
		c.options.Obligations = draft
		for n, s := range c.steps {
			t.Run(fmt.Sprintf("%s/%d", c.name, n+1), func(t *testing.T) { f.step(t, d, c, n, s) })
		}
	}
	lied(t, f, d, draft, nil)
}

// stripped has a proxy delete the member by which a client adopts October's draft. It must not act without the obligation done,
// also where the server sends obligations that were not declared.
func stripped(t *testing.T, d driver) {
	for _, undeclared := range []string{"deny", "allow"} {
		f := openFront(t, bundle("bundle.yaml", "undeclared_obligations: "+undeclared), `user::"mia"`)
		f.strips = "supported_mandatory_extensions"
		for _, name := range slices.Sorted(maps.Keys(owed)) {
			t.Run(undeclared+", "+name, func(t *testing.T) {
				// the forms of these are the same in both drafts
				known := slices.Contains([]string{"custom", "session_termination", "step-up"}, name)
				with := options{Handlers: map[string]string{name: "ok"}}
				for _, c := range []call{
					{Do: "enforce", Question: ask("do."+name, "d1"), Client: f.client(with)},
					{Do: "enforceAll", Questions: []json.RawMessage{read, ask("do."+name, "d1")}},
					{Do: "enforce", Question: ask("do."+name, "d1"), Client: f.client(options{})},
				} {
					got := d.do(t, c)
					if acts := known && (c.Client == nil || c.Client.Handlers != nil); got.Allowed != acts || got.Acted > 0 != acts || acts != (len(got.Handled) > 0) {
						t.Errorf("%s: %+v", c.Do, got)
					}
				}
				query := fmt.Sprintf(`{"subject":{"type":"user","id":"alice"},"action":{"name":"do.%s"},"resource":{"type":"doc"}}`, name)
				got := d.do(t, call{Do: "search", What: "resource", Question: json.RawMessage(query), Client: f.client(with)})
				if len(got.Found) > 0 && (len(got.Handled) == 0 || !known) {
					t.Errorf("search: %+v", got)
				}
			})
		}
	}
}

func (f *front) step(t *testing.T, d driver, c testCase, n int, s step) {
	if n == 0 {
		f.mu.Lock()
		f.before = nil
		if c.lie != nil {
			f.before = c.lie()
		}
		f.mu.Unlock()
		s.Client = f.client(c.options)
	}
	if s.before != nil {
		s.before(f, &s.call)
	}
	f.mu.Lock()
	f.asked, f.strays, f.receipts, f.filed = 0, 0, nil, s.filed
	f.mu.Unlock()
	got := d.do(t, s.call)
	if most := c.options.Timeout; n == 0 && 0 < most && most < usual && !f.wasAsked() { // its time was over before
		c.options.Timeout = 2 * most
		openFront(t, bundle(), `user::"mia"`).step(t, d, c, n, s) // what comes late for this one is not counted there
		return
	}
	if got.Status == http.StatusOK {
		got.Status = 0
	}
	switch s.Do {
	case "batch":
		got.Allowed = false
	case "enforceAll": // of its decisions each client may name any
		got.Named = false
	}
	if got.Kind == "not_approved" { // by which of the answers before is for each client to say
		got.Reason, got.Named, got.Waits = "", false, false
	}
	if want := s.want; !same(got, want) {
		t.Errorf("%s\ngot  %+v\nwant %+v", s.Do, got, want)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.asked != 0 && f.asked != max(0, s.asked) {
		t.Errorf("it was asked %d times, not %d", f.asked, max(0, s.asked))
	}
	if receipts := strings.Join(f.receipts, ", "); s.receipts != "" && receipts != s.receipts {
		t.Errorf("got receipts %q, want %q", receipts, s.receipts)
	}
	if f.strays > 0 {
		t.Errorf("%d requests went elsewhere", f.strays)
	}
}

func (f *front) client(o options) *options {
	o.URL = f.URL + o.URL
	if key, there := f.key[o.Credential]; there {
		o.Credential = key
	} else if o.Credential == "" {
		o.Credential = f.key["pep"]
	}
	if o.Timeout == 0 {
		o.Timeout = usual
	}
	return &o
}

// usual is the time that a client has, in milliseconds, where that is not the question.
const usual = 60_000

func (f *front) wasAsked() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked > 0
}

// same compares results. None and empty are the same.
func same(got, want result) bool {
	for _, r := range []*result{&got, &want} {
		if len(r.Handled) == 0 {
			r.Handled = nil
		}
		if len(r.Items) == 0 {
			r.Items = nil
		}
		if len(r.Found) == 0 {
			r.Found = nil
		}
	}
	return reflect.DeepEqual(got, want)
}

// differs are the lies of which a client may say another thing than Go's client, and why.
var differs = map[string]string{
	"body: reserved properties": "the names that Go reserves are no danger to a handler in another language",
	"envelope: 407":             "a proxy's own status: fetch gives no answer with it",
	"envelope: gzip, it says":   "Go's client decompresses before it looks, the others refuse to",
}

// lied tells all lies, and holds the client to a no, and to the kind that Go's client gives, unless its runtime has a reason.
func lied(t *testing.T, f *front, d driver, draft string, reasons map[string]string) {
	all := map[string]http.HandlerFunc{}
	for name, body := range lies.Bodies {
		if len(body) < lies.MaxBody { // the others are too large for clients with that bound
			all["body: "+name] = says(200, lies.InShape(body, "decision", "allow"), "X-Decision-Id", "d")
		}
	}
	for name, envelope := range lies.Envelopes() {
		all["envelope: "+name] = envelope.Handle
	}
	model := &inGo{}
	ask := call{Do: "enforce", Question: read, Client: f.client(options{Retries: &none, Breaker: &breaker{}, Handlers: map[string]string{}, Obligations: draft})}
	ask.Client.Timeout = usual
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) {
			f.mu.Lock()
			f.before, f.filed = all[name], nil
			f.mu.Unlock()
			got, want := d.do(t, ask), model.do(t, ask)
			if got.Allowed || got.Acted > 0 || got.Crash != "" {
				t.Fatalf("it reads as %+v", got)
			}
			if got.Kind != want.Kind && differs[name] == "" && reasons[name] == "" {
				t.Errorf("it is %q, and to Go's client %q", got.Kind, want.Kind)
			}
		})
	}
}
