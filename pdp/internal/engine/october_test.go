package engine_test

import (
	"fmt"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp"
)

// adopting is a context that adopts October's draft, declares types, and holds more.
func adopting(types, more string) string {
	return `c{"supported_mandatory_extensions":["obligations"],"supported_obligations":[` + types + `]` + more + `}`
}

const octobersTypes = `"custom","notification","session_termination","step-up"`

// octobers is a bundle whose answers owe obligations, with more lines in bundle.yaml.
func octobers(t *testing.T, config string) *pdp.PDP {
	return one(`
		permit(principal is user, action == Action::"plain", resource);
		@obligation("tell") permit(principal is user, action == Action::"tell", resource);
		@obligation("up") permit(principal is user, action == Action::"up", resource);
		@obligation("hide") permit(principal is user, action == Action::"hide", resource);
		@obligation("agreed") permit(principal is user, action == Action::"agreed", resource);
		@obligation("approval_required") permit(principal, action == Action::"ask", resource);
		@obligation("approval_required,hide") permit(principal is user, action == Action::"askhide", resource);
		@obligation("tell,hide,end") forbid(principal, action == Action::"no", resource);`,
		"obligations.yaml", `
tell: {type: notification, properties: {to: "${context.to}", body: "${resource.id}"}}
up: {type: step-up, properties: {acr_value: gold}}
hide: {type: redact, properties: {fields: [/a]}}
agreed: {type: custom, properties: {vendor: dlp, type: mark}}
end: {type: session_termination, properties: {subject: "${principal.id}"}}
`, "bundle.yaml", config, "entities/e.json", entities(entity("doc", "1", "{}"), entity("doc", "2", "{}"), entity("doc", "3", "{}"))).Load(t)
}

const (
	told   = `{"id":"tell","type":"notification","properties":{"body":"1","to":["ann"]}}`
	hidden = `{"id":"hide","type":"custom","properties":{"properties":{"fields":["/a"]},"type":"redact","vendor":"policy-service"}}`
	ended  = `{"id":"end","type":"session_termination","properties":{"subject":"a"}}`
)

func allowing(obligations string) string {
	return `{"decision":true,"context":{"obligations":[` + obligations + `]}}`
}

// TestOctober has the cases of one decision, by the sections of Obligations Core and Standard Types.
func TestOctober(t *testing.T) {
	t.Parallel()
	const to = `,"to":"ann"`
	p, october := octobers(t, "obligations: july"), octobers(t, "obligations: october")
	permissive, permissiveOctober := octobers(t, "obligations: july\nundeclared_obligations: allow"), octobers(t, "obligations: october\nundeclared_obligations: allow")
	unsent := reason("obligation_unsupported")
	registered := func(types ...string) func(*pdp.Call) {
		return func(c *pdp.Call) { c.Registered, c.Obligations = true, types }
	}
	forwarded := func(c *pdp.Call) { c.Forwards = true }
	for _, test := range []struct {
		section string
		p       *pdp.PDP
		action  string
		context string
		want    string
		change  []func(*pdp.Call)
	}{
		{"5 the obligation object", p, "tell", adopting(octobersTypes, to), allowing(told), nil},
		{"5 no empty array", p, "plain", adopting(octobersTypes, ""), allow, nil},
		{"5.2 custom", p, "hide", adopting(`"custom"`, ""), allowing(hidden), nil},
		{"5.2 custom, not listed", p, "hide", adopting(`"notification"`, ""), unsent, nil},
		{"5.2 custom, as an author agreed on it", p, "agreed", adopting(`"custom"`, ""), allowing(`{"id":"agreed","type":"custom","properties":{"type":"mark","vendor":"dlp"}}`), nil},
		{"6.1 an extension that is not ours", p, "plain", `c{"supported_mandatory_extensions":["x","y"]}`, allow, nil},
		{"6.1 among others", p, "up", `c{"supported_mandatory_extensions":["x","obligations"],"supported_obligations":["step-up"]}`, allowing(`{"id":"up","type":"step-up","properties":{"acr_value":"gold"}}`), nil},
		{"6.1 not adopted", p, "up", `c{"supported_mandatory_extensions":[],"supported_obligations":["step-up"]}`, unsent, nil},
		{"6.1 not adopted, and registered", p, "up", `c{"supported_mandatory_extensions":["x"]}`, unsent, []func(*pdp.Call){registered("step-up")}},
		{"6.1 no array", p, "up", `c{"supported_mandatory_extensions":"obligations"}`, "400 /context/supported_mandatory_extensions", nil},
		{"6.1 no strings", p, "up", `c{"supported_mandatory_extensions":["obligations",1]}`, "400 /context/supported_mandatory_extensions/1", nil},
		{"6.1 null is absent", p, "up", `c{"supported_mandatory_extensions":null,"supported_obligations":["step-up"]}`, allowing(`{"id":"up","type":"step-up","properties":{"acr_value":"gold"}}`), nil},
		{"6.2 nothing listed", p, "up", `c{"supported_mandatory_extensions":["obligations"]}`, unsent, nil},
		{"6.2 nothing listed, and registered", p, "up", `c{"supported_mandatory_extensions":["obligations"]}`, unsent, []func(*pdp.Call){registered("step-up")}},
		{"6.2 what is not advertised is ignored", p, "hide", adopting(`"redact","unheard-of"`, ""), unsent, nil},
		{"6.2 a registration narrows", p, "up", adopting(`"step-up","custom"`, ""), unsent, []func(*pdp.Call){registered("redact")}},
		{"6.2 a registration narrows by our names", p, "hide", adopting(`"custom"`, ""), unsent, []func(*pdp.Call){registered("custom")}},
		{"6.2 registered and declared", p, "hide", adopting(`"custom"`, ""), allowing(hidden), []func(*pdp.Call){registered("redact")}},
		{"6.3 no setting sends what is not declared", permissive, "up", adopting(``, ""), unsent, nil},
		{"6.3 a deny's own, adopted", p, "no", adopting(octobersTypes, to), `{"decision":false,"context":{"obligations":[` + ended + `,` + hidden + `,` + told + `]}}`, nil},
		{"6.3 a deny's own, in part", p, "no", adopting(`"session_termination"`, to), `{"decision":false,"context":{"obligations":[` + ended + `]}}`, nil},
		{"6.3 a deny's own, none listed", p, "no", adopting(``, to), deny, nil},
		{"6.3 a deny's own, not adopted", permissive, "no", `c{"supported_mandatory_extensions":[],"to":"ann"}`, deny, nil},
		{"9 an intermediary", p, "up", adopting(octobersTypes, ""), unsent, []func(*pdp.Call){forwarded}},
		{"9 an intermediary, by July", p, "up", declaring(`"step-up"`, ""), allowing(`{"id":"up","type":"step-up","properties":{"acr_value":"gold"}}`), []func(*pdp.Call){forwarded}},
		{"approvals are requested", p, "ask", adopting(`"custom","log"`, ""), reason("approval_required"), nil},
		{"approvals are requested, listed alone", p, "ask", adopting(`"approval_required"`, ""), reason("approval_required"), nil},
		{"approvals are asked for by a PEP that says so", p, "ask", adopting(`"approval_required","custom"`, ""), allowing(`{"id":"approval_required","type":"custom","properties":{"properties":{},"type":"approval_required","vendor":"policy-service"}}`), nil},
		{"6.2 and not if it is not advertised", october, "ask", adopting(`"approval_required","custom"`, ""), reason("approval_required"), nil},
		{"approvals are requested, also beside others", p, "askhide", adopting(`"custom"`, ""), reason("approval_required"), nil},

		{"the bundle's draft: without the member", october, "up", declaring(`"step-up"`, ""), unsent, nil},
		{"the bundle's draft: registered", october, "up", "c{}", unsent, []func(*pdp.Call){registered("step-up")}},
		{"the bundle's draft: a deny's own", october, "no", declaring(octobersTypes, to), deny, nil},
		{"the bundle's draft: permissive", permissiveOctober, "up", "c{}", unsent, nil},
		{"the bundle's draft: adopted", october, "tell", adopting(octobersTypes, to), allowing(told), nil},
		{"the bundle's draft: nothing owed", october, "plain", "c{}", allow, nil},
	} {
		got := ask(t, test.p, q("user:a", test.action, "doc:1", test.context), test.change...)
		if got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.section, got, test.want)
		}
	}

	native := func(context string) string { return strings.Replace(nativeQuestion("ask", context), `"t"`, `"1"`, 1) }
	asks, refused := `{"allow":true,"obligations":{"approval_required":true}}`, `{"allow":false,"reason":"approval_required"}`
	for _, test := range []struct {
		section, context, want string
		change                 []func(*pdp.Call)
	}{
		{"the bundle's draft", `{}`, asks, nil},
		{"6.1 adopted", `{"supported_mandatory_extensions":["obligations"]}`, asks, nil},
		{"6.1 not adopted", `{"supported_mandatory_extensions":[]}`, refused, nil},
		{"9 an intermediary", `{"supported_mandatory_extensions":["obligations"]}`, refused, []func(*pdp.Call){forwarded}},
		{"9 an intermediary, by July", `{}`, asks, []func(*pdp.Call){forwarded}},
	} {
		if got := ask(t, october, native(test.context), test.change...); got != test.want {
			t.Errorf("native, %s:\n got %s\nwant %s", test.section, got, test.want)
		}
	}
}

// TestOctoberLeavesOut: 6.3, what a deny owes and may not send is in its record.
func TestOctoberLeavesOut(t *testing.T) {
	t.Parallel()
	p := octobers(t, "obligations: july")
	for context, want := range map[string]string{
		adopting(octobersTypes, `,"to":"ann"`):           "[]",
		adopting(`"session_termination"`, `,"to":"ann"`): "[{hide obligation_unsupported} {tell obligation_unsupported}]",
		adopting(`"session_termination"`, ""):            "[{tell obligation_unfilled} {hide obligation_unsupported}]",
		`c{"supported_mandatory_extensions":[]}`:         "[{tell obligation_unfilled} {end obligation_unsupported} {hide obligation_unsupported}]",
	} {
		d, err := p.Evaluate(t.Context(), pdp.Call{Request: decoded(t, q("user:a", "no", "doc:1", context))})
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(d.LeftOut); got != want {
			t.Errorf("%s: left out %s, want %s", context, got, want)
		}
	}
}

// TestOctoberPoliciesSeeNoDeclaration: 6.2, the declarations are no authorization attributes.
func TestOctoberPoliciesSeeNoDeclaration(t *testing.T) {
	t.Parallel()
	p := one(`permit(principal is user, action, resource) when { context has supported_mandatory_extensions };
		permit(principal is other, action, resource) unless { context has supported_mandatory_extensions };`,
		"schema.cedarschema", `entity user, other, doc; action x appliesTo { principal: [user, other], resource: doc, context: { supported_mandatory_extensions?: Set<String> } };`,
		"bundle.yaml", "unknown_properties: reject").Load(t)
	if got := ask(t, p, q("user:a", "x", "doc:1", adopting("", ""))); got != deny {
		t.Error(got)
	}
	if got := ask(t, p, q("other:a", "x", "doc:1", adopting("", ""))); got != allow {
		t.Error(got)
	}
}

// TestOctoberBatch: 6.4, a context of an item's own replaces the declarations of the batch, and one item makes October of all.
func TestOctoberBatch(t *testing.T) {
	t.Parallel()
	const up = `{"decision":true,"context":{"obligations":[{"id":"up","type":"step-up","properties":{"acr_value":"gold"}}]}}`
	const adopts = `{"supported_mandatory_extensions":["obligations"],"supported_obligations":["step-up"]}`
	unsent, july := reason("obligation_unsupported"), `{"decision":false,"context":{"reason":"obligation_unsupported","required_obligations":["step-up"]}}`
	p := octobers(t, "obligations: july")
	for name, test := range map[string]struct {
		context string
		items   []string
		want    []string
	}{
		"the default":                  {adopts, []string{"", ""}, []string{up, up}},
		"a context of its own":         {adopts, []string{"", `{"ip":"::1"}`, `{"supported_obligations":["step-up"]}`, `{}`}, []string{up, unsent, unsent, unsent}},
		"an item's declarations":       {`{"ip":"::1"}`, []string{adopts, "", `{"supported_obligations":["step-up"]}`}, []string{up, unsent, unsent}},
		"a default nobody inherits":    {adopts, []string{`{"supported_obligations":["step-up"]}`}, []string{unsent}},
		"an item that lists nothing":   {``, []string{`{"supported_mandatory_extensions":[]}`, `{"supported_obligations":["step-up"]}`}, []string{unsent, unsent}},
		"July":                         {`{"supported_obligations":["step-up"]}`, []string{"", `{"ip":"::1"}`, `{"supported_obligations":[]}`}, []string{up, up, july}},
		"July, and an item of October": {`{"supported_obligations":["step-up"]}`, []string{`{"ip":"::1"}`, adopts}, []string{unsent, up}},
	} {
		body := `{"subject":{"type":"user","id":"a"},"action":{"name":"up"},"resource":{"type":"doc","id":"1"}`
		if test.context != "" {
			body += `,"context":` + test.context
		}
		var items []string
		for _, context := range test.items {
			if items = append(items, "{}"); context != "" {
				items[len(items)-1] = `{"context":` + context + `}`
			}
		}
		body += `,"evaluations":[` + strings.Join(items, ",") + `]}`
		if got, want := askBatch(t, p, body), `{"evaluations":[`+strings.Join(test.want, ",")+`]}`; got != want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want)
		}
	}
	body := `{"subject":{"type":"user","id":"a"},"action":{"name":"up"},"resource":{"type":"doc","id":"1"},"context":{"supported_mandatory_extensions":7},"evaluations":[{},{"context":{}}]}`
	if got := askBatch(t, p, body); !strings.Contains(got, `"message":"/context/supported_mandatory_extensions: not an array of strings"`) || !strings.HasSuffix(got, unsent+"]}") {
		t.Errorf("a declaration that is none: %s", got)
	}
}

func askBatch(t *testing.T, p *pdp.PDP, body string) string {
	t.Helper()
	batch, err := evaluation.DecodeBatch([]byte(body), "", evaluation.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	answer, err := p.EvaluateBatch(t.Context(), pdp.BatchCall{Batch: batch})
	if err != nil {
		t.Fatal(err)
	}
	text, err := evaluation.Answers(answer.Items)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestOctoberSearch: 7.3, obligations stand in the context of a result, one id is one obligation, and what may not be sent is
// left out with its result.
func TestOctoberSearch(t *testing.T) {
	t.Parallel()
	p := octobers(t, "obligations: july")
	search := func(action, context string) string {
		body := fmt.Sprintf(`{"subject":{"type":"user","id":"a"},"action":{"name":%q},"resource":{"type":"doc"},"context":%s}`, action, context)
		s, err := evaluation.DecodeSearch(evaluation.ResourceSearch, []byte(body), "", evaluation.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		answer, err := p.Search(t.Context(), pdp.SearchCall{Search: s, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		return string(evaluation.AnswerSearch(evaluation.ResourceSearch, answer.Draft, answer.Found, nil))
	}
	result := func(doc, members string) string { return `{"type":"doc","id":"` + doc + `"` + members + `}` }
	tell := func(id, doc, to string) string {
		return `"obligations":[{"id":"` + id + `","type":"notification","properties":{"body":"` + doc + `","to":` + to + `}}]`
	}
	hides := `,"context":{"obligations":[` + hidden + `]}`
	for context, want := range map[string]string{
		`{"supported_mandatory_extensions":["obligations"],"supported_obligations":["notification"],"to":"ann"}`: `{"results":[` +
			result("1", `,"context":{`+tell("tell", "1", `["ann"]`)+`}`) + `,` +
			result("2", `,"context":{`+tell("tell~2", "2", `["ann"]`)+`}`) + `,` +
			result("3", `,"context":{`+tell("tell~3", "3", `["ann"]`)+`}`) + `]}`,
		`{"supported_mandatory_extensions":["obligations"],"to":"ann"}`:                             `{"results":[]}`,
		`{"supported_mandatory_extensions":[],"supported_obligations":["notification"],"to":"ann"}`: `{"results":[]}`,
		`{"supported_obligations":["notification"],"to":"ann"}`: `{"results":[` +
			result("1", `,`+tell("tell", "1", `"ann"`)+`,"context":{`+tell("tell", "1", `"ann"`)+`}`) + `,` +
			result("2", `,`+tell("tell", "2", `"ann"`)+`,"context":{`+tell("tell", "2", `"ann"`)+`}`) + `,` +
			result("3", `,`+tell("tell", "3", `"ann"`)+`,"context":{`+tell("tell", "3", `"ann"`)+`}`) + `]}`,
	} {
		if got := search("tell", context); got != want {
			t.Errorf("%s:\n got %s\nwant %s", context, got, want)
		}
	}
	want := `{"results":[` + result("1", hides) + `,` + result("2", hides) + `,` + result("3", hides) + `]}`
	if got := search("hide", `{"supported_mandatory_extensions":["obligations"],"supported_obligations":["custom"]}`); got != want {
		t.Errorf("one obligation of three results:\n got %s\nwant %s", got, want)
	}
}

// TestOctoberNotification: Standard Types 3.2, each destination stands once in an array.
func TestOctoberNotification(t *testing.T) {
	t.Parallel()
	const policy = `@obligation("tell") permit(principal is user, action, resource);`
	notify := func(config, to string) *pdp.PDP {
		return one(policy, "bundle.yaml", config, "obligations.yaml", `tell: {type: notification, properties: {to: `+to+`, body: b, topic: t}}`).Load(t)
	}
	several := notify("obligations: october", `[ann, "${context.who}", "${context.too}"]`)
	for context, want := range map[string]string{
		`,"who":"bob","too":"cyd"`: `["ann","bob","cyd"]`,
		`,"who":"ann","too":"bob"`: `["ann","bob"]`,
		`,"who":"","too":"bob"`:    "",
	} {
		expected := reason("obligation_unfilled")
		if want != "" {
			expected = allowing(`{"id":"tell","type":"notification","properties":{"body":"b","to":` + want + `,"topic":"t"}}`)
		}
		if got := ask(t, several, q("user:a", "x", "doc:1", adopting(`"notification"`, context))); got != expected {
			t.Errorf("%s:\n got %s\nwant %s", context, got, expected)
		}
	}
	one := notify("obligations: july", "[ann]")
	for context, want := range map[string]string{adopting(`"notification"`, ""): `["ann"]`, declaring(`"notification"`, ""): `"ann"`} {
		if got := ask(t, one, q("user:a", "x", "doc:1", context)); !strings.Contains(got, `"to":`+want) {
			t.Errorf("%s: %s", context, got)
		}
	}
}
