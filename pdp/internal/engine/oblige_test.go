package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp"
)

// declaring is a context that declares obligation types, and holds more.
func declaring(types, more string) string {
	return `c{"supported_obligations":[` + types + `]` + more + `}`
}

const (
	needsApproval = `{"decision":false,"context":{"reason":"approval_required","required_obligations":["approval_required"]}}`
	withApproval  = `{"decision":true,"context":{"obligations":[{"id":"approval_required","type":"approval_required","properties":{}}]}}`
)

func unsupported(types string) string {
	return `{"decision":false,"context":{"reason":"obligation_unsupported","required_obligations":[` + types + `]}}`
}

func TestObligations(t *testing.T) {
	t.Parallel()
	const yaml = `
tell: {type: notification, properties: {to: security, body: "${principal.id} did ${action.name} to ${resource.id}: ${context.why} ${context.n} ${context.b}"}}
tell-too: {type: notification, properties: {to: security, body: "${principal.id} did ${action.name} to ${resource.id}: ${context.why} ${context.n} ${context.b}"}}
hide: {type: redact, properties: {fields: [/a, /b]}}
gold: {type: step-up, properties: {acr_value: gold}}
gold-too: {type: step-up, properties: {acr_value: gold}}
silver: {type: step-up, properties: {acr_value: silver}}
asked: {type: step-up, properties: {acr_value: "${context.level}"}}
watch: {type: log, on: both}
`
	bundleOf := func(policies string) small { return one(policies, "obligations.yaml", yaml) }
	const all = `"approval_required","capability_terms","custom","log","notification","redact","session_termination","step-up"`
	for name, test := range map[string]struct {
		bundle small
		asked  []asked
	}{
		"declared or not": {bundleOf(`@obligation("approval_required") permit(principal is user, action, resource);`), []asked{
			{q("user:a", "x", "doc:1"), needsApproval},
			{q("user:a", "x", "doc:1", declaring(`"approval_required"`, "")), withApproval},
			{q("user:a", "x", "doc:1", declaring(`"log","unheard-of"`, "")), needsApproval},
			{q("user:a", "x", "doc:1", declaring("", "")), needsApproval},
			{q("user:a", "x", "doc:1", `c{"supported_obligations":"approval_required"}`), "400 /context/supported_obligations"},
			{q("nobody:a", "x", "doc:1"), deny},
		}},
		"no claim of an approval counts": {bundleOf(`@obligation("approval_required") permit(principal is user, action, resource);
			permit(principal is other, action, resource) when { context.approved || context.justification == "approved" || context.pdp.approved || context has approval };`), []asked{
			{q("user:a", "x", "doc:1", `c{"approved":true}`), needsApproval},
			{q("user:a", "x", "doc:1", `c{"justification":"approved"}`), needsApproval},
			{q("user:a", "x", "doc:1", `c{"approval":{"id":"x"},"approval_id":"x","evaluation_id":"x","access_request":{}}`), needsApproval},
			{q("user:a", "x", "doc:1", `a{"approved":true}`, `s{"approved":true}`, `r{"approved":true}`), needsApproval},
			{q("user:a", "x", "doc:1", declaring(`"approval_required"`, `,"approved":true,"justification":"approved"`)), withApproval},
			{q("other:a", "x", "doc:1", `c{"approved":true,"justification":"approved","approval":{"id":"x"}}`), deny},
			{q("user:a", "x", "doc:1", `c{"pdp":{"approved":true}}`), "400 /context/pdp"},
		}},
		"all determining permits, in order, equal ones once": {bundleOf(`
			@id("2") @obligation("watch, hide") permit(principal is user, action, resource);
			@id("1") @obligation("tell-too,tell") permit(principal is user, action, resource is doc);
			@id("3") @obligation("gold") permit(principal is user, action, resource is page);`), []asked{
			{q("user:a", "x", "doc:1", declaring(all, `,"why":"because ${principal.id}","n":1.0,"b":true`)), `{"decision":true,"context":{"obligations":[` +
				`{"id":"hide","type":"redact","properties":{"fields":["/a","/b"]}},` +
				`{"id":"tell","type":"notification","properties":{"body":"a did x to 1: because ${principal.id} 1 true","to":"security"}},` +
				`{"id":"watch","type":"log","properties":{}}]}}`},
			{q("user:a", "x", "doc:1", declaring(`"redact"`, `,"why":"w","n":1,"b":true`)), unsupported(`"log","notification"`)},
		}},
		"what cannot be filled denies": {bundleOf(`@obligation("tell") permit(principal is user, action, resource);`), []asked{
			{q("user:a", "x", "doc:1", declaring(all, `,"why":"w","n":1`)), reason("obligation_unfilled")},
			{q("user:a", "x", "doc:1", declaring(all, `,"why":{},"n":1,"b":true`)), reason("obligation_unfilled")},
			{q("user:a", "x", "doc:1", declaring(all, `,"why":"w","n":1.5,"b":true`)), reason("obligation_unfilled")},
			{q("user:a", "x", "doc:1", `c{"why":"w","n":1}`), reason("obligation_unfilled")},
		}},
		"what comes to nothing denies where something is needed": {bundleOf(`@obligation("asked") permit(principal is user, action, resource);`), []asked{
			{q("user:a", "x", "doc:1", declaring(all, `,"level":""`)), reason("obligation_unfilled")},
			{q("user:a", "x", "doc:1", declaring(all, `,"level":"gold"`)), `{"decision":true,"context":{"obligations":[{"id":"asked","type":"step-up","properties":{"acr_value":"gold"}}]}}`},
		}},
		"two of a kind that is met once deny": {bundleOf(`
			@obligation("gold") permit(principal is user, action, resource);
			@obligation("silver") permit(principal is user, action, resource is doc);
			@obligation("gold-too") permit(principal is user, action, resource is page);`), []asked{
			{q("user:a", "x", "doc:1", declaring(all, "")), reason("obligation_conflict")},
			{q("user:a", "x", "doc:1"), reason("obligation_conflict")},
			{q("user:a", "x", "page:1", declaring(all, "")), `{"decision":true,"context":{"obligations":[{"id":"gold","type":"step-up","properties":{"acr_value":"gold"}}]}}`},
			{q("user:a", "x", "page:1"), unsupported(`"step-up"`)},
		}},
		"a deny's own": {bundleOf(`permit(principal is user, action, resource);
			@obligation("watch") @reason_user("no") forbid(principal, action == Action::"del", resource);
			@obligation("tell, gold, silver, hide") forbid(principal, action == Action::"burn", resource);`), []asked{
			{q("user:a", "x", "doc:1"), allow},
			{q("user:a", "del", "doc:1"), `{"decision":false,"context":{"reason_user":"no","obligations":[{"id":"watch","type":"log","properties":{}}]}}`},
			{q("user:a", "burn", "doc:1"), `{"decision":false,"context":{"obligations":[{"id":"hide","type":"redact","properties":{"fields":["/a","/b"]}}]}}`},
		}},
		"an errored permit": {bundleOf(`permit(principal is user, action, resource);
			@id("p") @obligation("watch") permit(principal is user, action, resource is doc) when { context.level > 1 };
			permit(principal is user, action, resource is page) when { context.level > 1 };`), []asked{
			{q("user:a", "x", "doc:1"), reason("policy_error")},
			{q("user:a", "x", "page:1"), allow},
			{q("user:a", "x", "doc:1", `c{"level":0}`), allow},
			{q("user:a", "x", "doc:1", declaring(`"log"`, `,"level":2`)), `{"decision":true,"context":{"obligations":[{"id":"watch","type":"log","properties":{}}]}}`},
		}},
		"an errored permit, ignored": {one(`permit(principal is user, action, resource);
			@obligation("log") permit(principal is user, action, resource) when { context.level > 1 };`, "bundle.yaml", "forbid_errors: ignore"), []asked{
			{q("user:a", "x", "doc:1"), allow}, {q("user:a", "x", "doc:1", `c{"level":1.5}`), reason("policy_error")},
		}},
		"the permissive reading": {one(`@obligation("approval_required, log") permit(principal is user, action, resource);`, "bundle.yaml", "undeclared_obligations: allow"), []asked{
			{q("user:a", "x", "doc:1"), `{"decision":true,"context":{"obligations":[{"id":"approval_required","type":"approval_required","properties":{}},{"id":"log","type":"log","properties":{}}]}}`},
		}},
		"native": {bundleOf(`@obligation("approval_required") permit(principal is agent, action == Action::"a", resource);
			@obligation("approval_required, watch") permit(principal is agent, action == Action::"b", resource);
			@obligation("hide") permit(principal is agent, action == Action::"c", resource);
			@obligation("tell") forbid(principal is agent, action == Action::"d", resource);`), []asked{
			{nativeQuestion("a", "{}"), `{"allow":true,"obligations":{"approval_required":true}}`},
			{nativeQuestion("b", "{}"), `{"allow":false,"reason":"obligation_unsupported","required_obligations":["log"]}`},
			{nativeQuestion("b", `{"supported_obligations":["log"]}`), `{"allow":true,"obligations":{"approval_required":true,"log":true}}`},
			{nativeQuestion("c", `{"supported_obligations":["redact"]}`), `{"allow":true,"obligations":{"redact":true},"obligation_details":[{"id":"hide","type":"redact","properties":{"fields":["/a","/b"]}}]}`},
			{nativeQuestion("d", `{"why":"w","n":1,"b":false}`), `{"allow":false,"obligations":{"notification":true},"obligation_details":[{"id":"tell","type":"notification","properties":{"body":"a did d to t: w 1 false","to":"security"}}]}`},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := test.bundle.Load(t)
			for _, a := range test.asked {
				if got := ask(t, p, a.request); got != a.want {
					t.Errorf("%s\n got %s\nwant %s", a.request, got, a.want)
				}
			}
		})
	}
}

// A text shows what is below a member of the context, if it is a string, an integer, a boolean or a decimal.
func TestTextsOfWhatIsBelow(t *testing.T) {
	t.Parallel()
	const policy = `@obligation("tell") permit(principal is user, action == Action::"pay", resource is doc);`
	const schema = `entity user, doc; action pay appliesTo { principal: user, resource: doc, context: { arguments?: { amount?: decimal, ` +
		`n?: Long, who?: String, sure?: Bool, at?: datetime, by?: user, deep?: { who?: String }, list?: Set<String> } } };`
	say := func(text string, files ...string) small {
		return one(policy, append(files, "obligations.yaml", `tell: {type: notification, properties: {to: x, body: "`+text+`"}}`)...)
	}
	typed := func(text string) small { return say(text, "schema.cedarschema", schema) }
	told := func(body string) string {
		return `{"decision":true,"context":{"obligations":[{"id":"tell","type":"notification","properties":{"body":"` + body + `","to":"x"}}]}}`
	}
	unfilled := reason("obligation_unfilled")
	for name, test := range map[string]struct {
		small
		arguments, want string
	}{
		"each kind":               {typed("${context.arguments.amount} ${context.arguments.n} ${context.arguments.who} ${context.arguments.sure}"), `{"amount":750.50,"n":3.0,"who":"sue","sure":false}`, told("750.5 3 sue false")},
		"a decimal that is whole": {typed("${context.arguments.amount}"), `{"amount":500}`, told("500.0")},
		"deeper":                  {typed("by ${context.arguments.deep.who}"), `{"deep":{"who":"${principal.id}"}}`, told("by ${principal.id}")},
		"without a schema":        {say("${context.arguments.a.b.c}, ${context.arguments.n}"), `{"a":{"b":{"c":"x"}},"n":750}`, told("x, 750")},
		"a name with a sign":      {say("${context.arguments.a-b}"), `{"a-b":"x"}`, told("x")},
		"missing":                 {typed("${context.arguments.n}"), `{}`, unfilled},
		"missing above":           {typed("${context.arguments.deep.who}"), `{}`, unfilled},
		"null":                    {say("${context.arguments.n}"), `{"n":null}`, unfilled},
		"below a string":          {say("${context.arguments.who.x}"), `{"who":"sue"}`, unfilled},
		"an object":               {typed("${context.arguments.deep}"), `{"deep":{"who":"x"}}`, unfilled},
		"a list":                  {typed("${context.arguments.list}"), `{"list":["x"]}`, unfilled},
		"a time":                  {typed("${context.arguments.at}"), `{"at":"2026-01-01"}`, unfilled},
		"beyond a reference":      {typed("${context.arguments.by.id}"), `{"by":{"type":"user","id":"x"}}`, unfilled},
		"a fraction, no schema":   {say("${context.arguments.amount}"), `{"amount":750.5}`, unfilled},
		"a name with a dot":       {say("${context.arguments.a.b}"), `{"a.b":"x"}`, unfilled},
		"a secret":                {say("${context.token}"), `{}, "token": "hunter22"`, told("…")},
		"a secret that is short":  {say("${context.pin_secret}"), `{}, "pin_secret": 1234`, told("…")},
		"a secret that is none":   {say("${context.token}"), `{}, "token": {"a": "hunter22"}`, unfilled},
	} {
		p := test.Load(t)
		asked := q("user:a", "pay", "doc:1", declaring(`"notification"`, `,"arguments":`+test.arguments))
		if got := ask(t, p, asked); got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, test.want)
		}
	}
}

// What masks hide no text shows, whichever way a request is put.
func TestTextsOfWhatIsMasked(t *testing.T) {
	t.Parallel()
	b := one(`@obligation("tell") permit(principal is user, action, resource);`,
		"obligations.yaml", `tell: {type: notification, properties: {to: x, body: "${context.arguments.iban} ${context.arguments.n}"}}`)
	masked := func(_ context.Context, path []string) bool { return slices.Equal(path, []string{"arguments", "iban"}) }
	p, err := pdp.New(b.Source(), pdp.Options{Masked: masked})
	if err != nil {
		t.Fatal(err)
	}
	request := decoded(t, q("user:a", "pay", "doc:1", declaring(`"notification"`, `,"arguments":{"iban":"DE02","n":7}`)))
	single, err := p.Evaluate(t.Context(), pdp.Call{Request: request})
	if err != nil {
		t.Fatal(err)
	}
	batch, err := p.EvaluateBatch(t.Context(), pdp.BatchCall{Batch: evaluation.Batch{Items: []evaluation.Item{{Request: request}}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []evaluation.Decision{single, batch.Items[0]} {
		if body, _ := d.Obligations[0].Properties.Get("body"); body.Text() != "… 7" {
			t.Errorf("it says %q", body.Text())
		}
	}
}

func nativeQuestion(action, context string) string {
	return fmt.Sprintf(`{"tenant_id":"default","actor":{"actor_id":"a","actor_type":"agent"},"action":%q,"resource":{"type":"tool","id":"t"},"context":%s}`, action, context)
}

// A request cannot declare more than its caller's registration.
func TestRegistration(t *testing.T) {
	t.Parallel()
	p := one(`@obligation("log") permit(principal is user, action, resource);`).Load(t)
	const withLog = `{"decision":true,"context":{"obligations":[{"id":"log","type":"log","properties":{}}]}}`
	for name, test := range map[string]struct {
		registered []string
		context    string
		want       string
	}{
		"neither":               {nil, "c{}", unsupported(`"log"`)},
		"registered alone":      {[]string{"log"}, "c{}", withLog},
		"registered as nothing": {[]string{}, declaring(`"log"`, ""), unsupported(`"log"`)},
		"another registered":    {[]string{"redact"}, declaring(`"log","redact"`, ""), unsupported(`"log"`)},
		"both":                  {[]string{"log", "redact"}, declaring(`"log"`, ""), withLog},
		"request takes it back": {[]string{"log"}, declaring("", ""), unsupported(`"log"`)},
		"request alone":         {nil, declaring(`"log"`, ""), withLog},
	} {
		got := ask(t, p, q("user:a", "x", "doc:1", test.context), func(c *pdp.Call) {
			c.Registered, c.Obligations = test.registered != nil, test.registered
		})
		if got != test.want {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
}

// What a template copies into every item of a batch, and every result of a
// search, is bounded.
func TestFilledObligationsAreBounded(t *testing.T) {
	t.Parallel()
	var docs []string
	for n := range 60 {
		docs = append(docs, entity("doc", fmt.Sprint(n), "{}"))
	}
	p := one(`@obligation("copy") permit(principal is user, action, resource);`, "obligations.yaml", `copy: {type: custom, properties: {a: "${context.a}"}}`, "entities/e.json", entities(docs...)).Load(t)
	context := `{"supported_obligations":["custom"],"a":"` + strings.Repeat("a", 900_000) + `"}`
	items := strings.TrimSuffix(strings.Repeat(`{"resource":{"type":"doc","id":"1"}},`, 30), ",")
	batch, err := evaluation.DecodeBatch([]byte(`{"subject":{"type":"user","id":"a"},"action":{"name":"x"},"context":`+context+`,"evaluations":[`+items+`]}`), "", evaluation.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	var large *evaluation.Error
	if _, err := p.EvaluateBatch(t.Context(), pdp.BatchCall{Batch: batch}); !errors.As(err, &large) || !large.TooLarge {
		t.Errorf("a batch of 27 MB: %v", err)
	}
	s, err := evaluation.DecodeSearch(evaluation.ResourceSearch, []byte(`{"subject":{"type":"user","id":"a"},"action":{"name":"x"},"resource":{"type":"doc"},"context":`+context+`}`), "", evaluation.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	found, pages, more := 0, 0, true
	for call := (pdp.SearchCall{Search: s, Limit: evaluation.MaxPage}); more; pages++ {
		answer, err := p.Search(t.Context(), call)
		if err != nil {
			t.Fatal(err)
		}
		found, call.After, more = found+len(answer.Found), answer.Last, answer.More
	}
	if found != 60 || pages < 3 {
		t.Errorf("%d results in %d pages", found, pages)
	}
}

// A search shows what comes with no obligation, or with declared ones.
func TestSearchObligations(t *testing.T) {
	t.Parallel()
	p := one(`permit(principal is user, action, resource == doc::"1"); @obligation("log") permit(principal is user, action, resource == doc::"2");`,
		"entities/e.json", entities(entity("doc", "1", "{}"), entity("doc", "2", "{}"))).Load(t)
	for declared, want := range map[string]string{
		``:      `{"results":[{"type":"doc","id":"1"}]}`,
		`"log"`: `{"results":[{"type":"doc","id":"1"},{"type":"doc","id":"2","obligations":[{"id":"log","type":"log","properties":{}}],"context":{"obligations":[{"id":"log","type":"log","properties":{}}]}}]}`,
	} {
		body := `{"subject":{"type":"user","id":"a"},"action":{"name":"x"},"resource":{"type":"doc"},"context":{"supported_obligations":[` + declared + `]}}`
		s, err := evaluation.DecodeSearch(evaluation.ResourceSearch, []byte(body), "", evaluation.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		answer, err := p.Search(t.Context(), pdp.SearchCall{Search: s, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		if got := string(evaluation.AnswerSearch(evaluation.ResourceSearch, answer.Draft, answer.Found, nil)); got != want {
			t.Errorf("declaring %s: got %s, want %s", declared, got, want)
		}
	}
}
