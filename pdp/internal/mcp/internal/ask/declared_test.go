package ask_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation/coaz"
	"policy-service/pdp/internal/mcp/internal/ask"
)

// weather is the tool of 003, under another name and with another mapping.
func declares(name, mapping string) string {
	return `{"name":"` + name + `","inputSchema":{"type":"object","x-authzen-mapping":` + mapping + `}}`
}

const sepTool = `{"name":"get_customer","coaz":true,"description":"Get customer details","inputSchema":{"type":"object","properties":{"id":{"type":"string"},"case":{"type":"string"}},
	"x-coaz-mapping":{"resource":{"id":"$.properties['id']","type":"customer"},"subject":{"type":"user","id":"$.token['sub']"},"context":{"agent":"$.token['aud']","case":"$.properties['case']"}}}}`

// TestDeclaredSeesWhatIsForwarded: a server's mapping reads no param that the server does not get as it was sent.
func TestDeclaredSeesWhatIsForwarded(t *testing.T) {
	t.Parallel()
	reads := func(expression string) string {
		return `{"evaluation":{"action":{"name":"read"},"resource":{"type":"public","id":"` + expression + `"}}}`
	}
	const more = `,"onBehalfOf":"kim","_meta":{"example.com/tier":"gold","example.com/other":"x","progressToken":"p","io.policy-service/purpose":"why"}`
	s := open(t, map[string]string{"a.cedar": `@id("any") permit(principal, action, resource);`, "bundle.yaml": "allow_trivial: true\n"},
		func(o *ask.Options) { o.Meta = []string{"example.com/tier"} })
	for expression, want := range map[string]string{
		"$params.arguments.id": "1", "$params._meta['example.com/tier']": "gold", "$params._meta['example.com/other']": "", "$params._meta.progressToken": "",
		"$params._meta['io.policy-service/purpose']": "", "$params.onBehalfOf": "",
	} {
		got, refusal := s.outcome(s.call(alice(t), s.tool(declares("look", reads(expression)), nil), `{"id":"1"}`, more))
		bodies := strings.Join(s.taken(), " ")
		if want == "" && (refusal == nil || refusal.Code != -32602 || bodies != "") || want != "" && !strings.Contains(bodies, `"resource":{"type":"public","id":"`+want+`"}`) {
			t.Errorf("%s: %s, asked %s", expression, got, bodies)
		}
	}
}

// A declared question never permits a call that the trusted one denies, and it can deny by itself.
func TestDeclaredNarrows(t *testing.T) {
	t.Parallel()
	// Whatever the server makes of its question is permitted, but one thing; of the trusted ones only look is.
	bundle := map[string]string{"a.cedar": `@id("any") permit(principal, action, resource) unless { action == Action::"tool.invoke" };
		@id("trusted") permit(principal == agent::"orchestrator", action == Action::"tool.invoke", resource == tool::"jira-server-1:look");
		@id("no") @reason_user("Not\n\tthat  one.") forbid(principal, action == Action::"never", resource);
		@id("ask") @obligation("approval_required") permit(principal, action == Action::"asks", resource);`,
		"bundle.yaml": "allow_trivial: true\n"}
	bundle["a.cedar"] = strings.Replace(bundle["a.cedar"], `unless { action == Action::"tool.invoke" }`, `unless { [Action::"tool.invoke", Action::"asks"].contains(action) }`, 1)
	mapping := func(action string) string {
		return `{"evaluation":{"subject":{"type":"identity","id":"$token.sub"},"action":{"name":"` + action + `"},"resource":{"type":"public","id":"1"}}}`
	}
	s := open(t, bundle)
	ignoring := s.beside(func(o *ask.Options) { o.Declared = ask.Ignore })
	for name, test := range map[string]struct {
		tool, mapping     string
		code, asked       int // 0 is a permit
		withoutReading    int
		mustBeAskedOfTool bool
	}{
		"both permit":             {"look", mapping("read"), 0, 2, 0, true},
		"the declared one denies": {"look", mapping("never"), -32001, 1, 0, false},
		"it wants an approval":    {"look", mapping("asks"), -32001, 1, 0, false},
		"the trusted one denies":  {"delete_all", mapping("read"), -32001, 2, -32001, true},
		"by an argument":          {"delete_all", `{"evaluation":{"action":{"name":"$params.arguments.action"},"resource":{"type":"public","id":"$params.arguments.id"}}}`, -32001, 2, -32001, true},
		"many questions":          {"delete_all", `{"evaluations":{"evaluations":[{"action":{"name":"read"},"resource":{"type":"public","id":"1"}},{"action":{"name":"read"},"resource":{"type":"public","id":"2"}}]}}`, -32001, 2, -32001, true},
		"as if it were ours":      {"delete_all", `{"evaluation":{"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"jira-server-1:look"}}}`, -32001, 1, -32001, false},
		"another's subject":       {"look", `{"evaluation":{"subject":{"type":"identity","id":"root"},"action":{"name":"read"},"resource":{"type":"public","id":"1"}}}`, -32602, 0, 0, false},
		"an argument's subject":   {"look", `{"evaluation":{"subject":{"type":"identity","id":"$params.arguments.id"},"action":{"name":"read"},"resource":{"type":"public","id":"1"}}}`, -32602, 0, 0, false},
		"fails when it is called": {"look", `{"evaluation":{"action":{"name":"read"},"resource":{"type":"public","id":"$params.arguments.absent"}}}`, -32602, 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			op := s.call(alice(t), s.tool(declares(test.tool, test.mapping), nil), `{"action":"read","id":"1"}`)
			got, refusal := s.outcome(op)
			bodies := s.taken()
			if (refusal == nil) != (test.code == 0) || refusal != nil && refusal.Code != test.code || len(bodies) != test.asked {
				t.Errorf("%s, asked %q", got, bodies)
			}
			if trusted := len(bodies) > 0 && strings.Contains(bodies[len(bodies)-1], `"id":"jira-server-1:`+test.tool+`"`); trusted != test.mustBeAskedOfTool {
				t.Errorf("asked %q", bodies)
			}
			if len(bodies) == 2 && (!strings.Contains(bodies[0], `"declared":"`+op.Tool.Digest) || strings.Contains(bodies[1], `"declared"`)) {
				t.Errorf("who wrote which cannot be told: %q", bodies)
			}
			if refusal != nil && strings.Contains(string(refusal.Data), "authorizationRequest") {
				t.Errorf("people are to approve what a server asks: %s", got)
			}
			if name == "the declared one denies" && !strings.Contains(got, `"reason":"Not that one."`) {
				t.Errorf("%s", got)
			}
			got, refusal = ignoring.outcome(ignoring.call(alice(t), ignoring.tool(declares(test.tool, test.mapping), nil), `{}`))
			if (refusal == nil) != (test.withoutReading == 0) || refusal != nil && refusal.Code != test.withoutReading {
				t.Errorf("ignored: %s", got)
			}
		})
	}
	// A client cannot say that a server wrote our question, nor set members that only we set.
	tool := s.tool(declares("look", mapping("read")), nil)
	for _, name := range []string{"declared", "arguments", "agent", "on_behalf_of", "requester", "purpose", "person", "pdp", "action", "approval", "approval_id", "justification",
		"supported_obligations", "capability", "approved", "access_request", "evaluation_id"} {
		s.taken()
		got, refusal := s.outcome(s.call(alice(t), tool, `{}`, `,"_meta":{"io.policy-service/context":{"`+name+`":"x"}}`))
		if refusal == nil || refusal.Code != -32602 || !strings.Contains(got, name) || len(s.taken()) > 0 {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// The questions that a server's mapping makes of one call are bounded, in number and in bytes.
func TestDeclaredQuestionsAreBounded(t *testing.T) {
	t.Parallel()
	s := open(t, anything)
	asks := func(many int, context string) string {
		item := `{"action":{"name":"read"},"resource":{"type":"public","id":"1"}` + context + `}`
		return `{"evaluations":{"evaluations":[` + strings.TrimSuffix(strings.Repeat(item+",", many), ",") + `]}}`
	}
	const copies = `,"context":{"of":"$params.arguments.text"}`
	for name, test := range map[string]struct {
		mapping string
		text    int // bytes of the argument
		refused string
	}{
		"as many as may be":      {asks(16, ""), 1, ""},
		"too many":               {asks(17, ""), 1, "asks 17 questions about a call, and 16 are the most"},
		"an argument in each":    {asks(16, copies), 3 << 10, ""},
		"a long one in each":     {asks(16, copies), 8 << 10, "and 65536 are the most"},
		"a very long one in few": {asks(3, copies), 100 << 10, ""},
		"and in more":            {asks(5, copies), 100 << 10, "are the most"},
	} {
		got, refusal := s.outcome(s.call(alice(t), s.tool(declares("look", test.mapping), nil), `{"text":"`+strings.Repeat("x", test.text)+`"}`))
		asked := len(s.taken()) > 0
		if test.refused == "" && (refusal != nil || !asked) || test.refused != "" && (refusal == nil || refusal.Code != -32602 || !strings.Contains(refusal.Why+got, test.refused) || asked) {
			t.Errorf("%s: %.300s", name, got)
		}
	}
}

// A definition that cannot be compiled is neither listed nor called, and the error says why; a mapping that is not read does no harm.
func TestDefinitions(t *testing.T) {
	t.Parallel()
	s := open(t, anything)
	damaged := map[string]string{
		"no name": `{"inputSchema":{}}`, "an empty one": `{"name":""}`, "a number for one": `{"name":7}`, "twice": `{"name":"a","name":"b"}`, "no object": `[]`,
		"a mapping of nothing": declares("a", `{}`), "null": declares("a", `null`), "both envelopes": declares("a", `{"evaluation":{},"evaluations":{}}`),
		"no CEL":          declares("a", `{"evaluation":{"action":{"name":"$params.("},"resource":{"type":"x","id":"1"}}}`),
		"coaz without it": `{"name":"a","coaz":true,"inputSchema":{}}`,
		"a large mapping": declares("a", `{"evaluation":{"action":{"name":"x"},"resource":{"type":"x","id":"`+strings.Repeat("y", 40<<10)+`"}}}`),
		"large hints":     `{"name":"a","annotations":{"title":"` + strings.Repeat("y", 9<<10) + `"}}`,
		"deep hints":      `{"name":"a","annotations":` + strings.Repeat(`{"a":`, 12) + `1` + strings.Repeat(`}`, 12) + `}`,
		"too large":       `{"name":"a","description":"` + strings.Repeat("y", 300<<10) + `"}`,
		"an operator's":   declares("a", `{"evaluation":{"action":{"name":"$tool.name"},"resource":{"type":"x","id":"1"}}}`),
	}
	for name, definition := range damaged {
		if tool, err := s.Tool("srv", "a", jsontext.Value(definition), nil); err == nil || tool != nil || len(err.Error()) > 2000 {
			t.Errorf("%s: %v", name, err)
		}
	}
	bad, older := declares("a", `{}`), `{"name":"a","coaz":true,"inputSchema":{"x-coaz-mapping":{}}}`
	for name, test := range map[string]struct {
		definition string
		set        func(*ask.Options)
		good       bool
	}{
		"ignored":           {bad, func(o *ask.Options) { o.Declared = ask.Ignore }, true},
		"the older dialect": {bad, func(o *ask.Options) { o.Dialects = []coaz.Dialect{coaz.SEP} }, true},
		"the newer dialect": {older, func(o *ask.Options) { o.Dialects = []coaz.Dialect{coaz.AuthZEN} }, true},
		"both dialects":     {older, func(*ask.Options) {}, false},
	} {
		if _, err := s.beside(test.set).Tool("srv", "a", jsontext.Value(test.definition), nil); (err == nil) != test.good {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The digest is of the value, and of all of it.
	of := func(definition string) string { return s.tool(definition, nil).Digest }
	one := of(`{"name":"a","description":"x","n":1.0,"z":null}`)
	if same := of(`{ "z":null,"n":1,"description":"\u0078", "name":"a"}`); same != one || len(one) != 43 {
		t.Errorf("%s and %s", one, same)
	}
	for _, other := range []string{`{"name":"a","description":"x","n":1}`, `{"name":"a","description":"x","n":1,"z":0}`, `{"name":"a","description":"y","n":1,"z":null}`} {
		if of(other) == one {
			t.Errorf("%s has the same digest", other)
		}
	}
}

// Whatever a server says of whether its tool wants an approval can only ask for more.
func TestHints(t *testing.T) {
	t.Parallel()
	s := open(t, anything)
	for authorization, want := range map[string]string{
		`{"required":true,"mode":"user_approval","timeout":300,"message":"m"}`: `"approval_hint":{"message":"m","mode":"user_approval","required":true,"timeout":300}`,
		`{"required":false,"mode":"automatic"}`:                                `"approval_hint":{"mode":"automatic","required":false}`,
		`{}`:                                                                   `"approval_hint":{"required":false}`,
		`{"mode":"whatever"}`:                                                  `"approval_hint":{"required":true}`,
		`{"mode":7}`:                                                           `"approval_hint":{"required":true}`,
		`{"required":"no"}`:                                                    `"approval_hint":{"required":true}`,
		`{"required":0}`:                                                       `"approval_hint":{"required":true}`,
		`{"required":false,"timeout":-1}`:                                      `"approval_hint":{"required":true}`,
		`{"required":false,"timeout":"1"}`:                                     `"approval_hint":{"required":true}`,
		`true`:                                                                 `"approval_hint":{"required":true}`,
		`[]`:                                                                   `"approval_hint":{"required":true}`,
		`{"message":"a\u202eb\nc\u0000","x":1}`:                                `"approval_hint":{"message":"a b c","required":false}`,
		`null`:                                                                 ``,
	} {
		s.outcome(s.call(alice(t), s.tool(`{"name":"a","authorization":`+authorization+`}`, nil), ``))
		bodies := s.taken()
		if len(bodies) != 1 || want != "" && !strings.Contains(bodies[0], want) || want == "" && strings.Contains(bodies[0], "approval_hint") {
			t.Errorf("%s: %q", authorization, bodies)
		}
	}
}
