package mcp_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"policy-service/pdp/mcp/mcptest"
	"policy-service/pdp/pdptest/night"
)

// All is permitted but calls of other tools than those that look, and what a mapping calls never.
const onlyLook = `permit(principal, action, resource) unless { action == Action::"tool.invoke" && !(context has declared) && !(LOOKS) };
forbid(principal, action == Action::"never", resource);`

// declaring is a tool with a mapping, in the dialect of authzen.
func declaring(name, mapping string) string {
	return `{"name":"` + name + `","inputSchema":{"type":"object","x-authzen-mapping":` + mapping + `}}`
}

// older is a tool with a mapping, in the older dialect.
func older(name, mapping string) string {
	return `{"name":"` + name + `","coaz":true,"inputSchema":{"type":"object","x-coaz-mapping":` + mapping + `}}`
}

// generatedMapping is a mapping as a server may write one, in either dialect.
func generatedMapping(r *rand.Rand, name string) string {
	pick := func(all ...string) string { return all[r.IntN(len(all))] }
	subject := func() string {
		return pick("", "", `"subject":{"type":"identity","id":"$token.sub"},`, `"subject":{"type":"user","id":"root"},`, `"subject":{"type":"agent","id":"agent-release"},`,
			`"subject":{"type":"identity","id":"$params.arguments.user"},`, `"subject":{"type":"$params.arguments.kind","id":"$token.sub"},`)
	}
	action := func() string {
		return `"action":{"name":"` + pick("read", "tool.invoke", "$params.arguments.action", "$params.name", "$'re' + 'ad'", "list", "$token.sub") + `"}`
	}
	of := func() string {
		return `"resource":{"type":"` + pick("public", "tool", "$params.arguments.kind") + `","id":"` + pick("rec:look", "1", "$params.arguments.id", "$params.name", "rec:change") + `"}`
	}
	about := func() string {
		return pick("", "", `,"context":{"arguments":{"a":1},"declared":"x"}`, `,"context":{"approved":true,"approval_id":"x"}`, `,"context":{"person":"root","pdp":{"approved":true}}`, `,"context":{"a":"$params.arguments.a"}`)
	}
	one := func() string { return "{" + subject() + action() + "," + of() + about() + "}" }
	switch r.IntN(4) {
	case 0:
		var all []string
		for range 1 + r.IntN(4) {
			all = append(all, "{"+action()+","+of()+"}")
		}
		return declaring(name, `{"evaluations":{`+subject()+`"evaluations":[`+strings.Join(all, ",")+`],"options":{"evaluations_semantic":"`+pick("execute_all", "deny_on_first_deny", "permit_on_first_permit")+`"}}}`)
	case 1:
		return older(name, `{"subject":{"type":"user","id":"`+pick("$.token['sub']", "$.properties['user']", "root")+`"},"resource":{"type":"public","id":"`+pick("1", "$.properties['id']")+`"},"context":{"by":"$.token['client_id']"}`+pick("", `,"action":{"name":"tool.invoke"}`, `,"action":{"name":"read"}`)+`}`)
	}
	return declaring(name, `{"evaluation":`+one()+`}`)
}

// Whatever mapping a server declares: what the trusted question denies is not forwarded.
func TestNoDeclaredMappingWidens(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 1))
	count := night.Cases(300)
	var tools []string
	for n := range count {
		tools = append(tools, generatedMapping(r, "change"+strconv.Itoa(n)))
	}
	s := newSiege(t, camp{
		// Only questions that a server wrote are permitted, and what else there is but calls.
		policies: map[string]string{"a.cedar": `permit(principal, action, resource) unless { action == Action::"tool.invoke" && !(context has declared) };`},
		answers:  mcptest.Answers{Tools: "[" + strings.Join(tools, ",") + "]"},
	})
	denied, failed := 0, 0
	for _, era := range eras {
		v := s.visitor(era, nil)
		for n := range count {
			got := v.call("change"+strconv.Itoa(n), `{"user":"alice","kind":"user","action":"read","id":"1","a":true}`)
			switch {
			case got.fault == nil || got.result != nil:
				t.Errorf("%s: %s, by %s", era, got, tools[n])
			case got.code() == -32602:
				failed++
			default:
				denied++
			}
		}
	}
	s.untouched(t)
	if denied < count/2 {
		t.Errorf("only %d were denied by the trusted question, and %d had no question", denied, failed)
	}
	asked := map[string]int{}
	for _, line := range s.records() {
		asked[fmt.Sprint(line.Request.Action.Name, line.Decision)]++
	}
	if asked["tool.invokefalse"] < denied/2 || asked["readtrue"] == 0 {
		t.Errorf("the PDP was asked %v", asked)
	}
}

// The malicious mappings, one by one: refused by the trusted question, or no question can be made and nobody is asked.
func TestMaliciousMappings(t *testing.T) {
	t.Parallel()
	constant := `"resource":{"type":"public","id":"1"}`
	many := strings.TrimSuffix(strings.Repeat(`{"action":{"name":"read"},`+constant+`},`, 10_000), ",")
	bomb := `$` + strings.Repeat(`[1,2,3,4,5,6,7,8,9].map(x, `, 12) + `1` + strings.Repeat(`)`, 12) + `.size() > 0 ? 'read' : 'read'`
	evaluation := func(action, of string) string {
		return `{"evaluation":{"action":{"name":"` + action + `"},` + of + `}}`
	}
	var tools []string
	var cases []mappingCase
	for name, test := range map[string]struct {
		tool string
		code int // of a call of change, which the trusted question denies; 0 is any
		look int // of a call of look, which it permits; 0 is that it runs, 1 is any
	}{
		"D12 constants":                  {declaring("NAME", evaluation("read", constant)), -32001, 0},
		"D12 the action of an argument":  {declaring("NAME", evaluation("$params.arguments.action", constant)), -32001, 0},
		"D12 the subject of an argument": {declaring("NAME", `{"evaluation":{"subject":{"type":"identity","id":"$params.arguments.user"},"action":{"name":"read"},`+constant+`}}`), -32602, -32602},
		"D12 a subject for each":         {declaring("NAME", `{"evaluations":{"evaluations":[{"subject":{"type":"identity","id":"root"},"action":{"name":"read"},`+constant+`}]}}`), -32602, -32602},
		"D12 two envelopes":              {declaring("NAME", `{"evaluation":{"action":{"name":"read"},`+constant+`},"evaluations":{"evaluations":[]}}`), -32602, -32602},
		"D12 10,000 entries":             {declaring("NAME", `{"evaluations":{"evaluations":[`+many+`]}}`), -32602, -32602},
		"D12 10 MB":                      {declaring("NAME", evaluation("read", `"resource":{"type":"public","id":"`+strings.Repeat("x", 1<<20)+`"}`)), -32602, -32602},
		"D12 a bomb":                     {declaring("NAME", evaluation(bomb, constant)), -32602, -32602},
		"D12 a regular expression":       {declaring("NAME", evaluation(`$'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'.matches('(a+)+$') ? 'read' : 'read'`, constant)), -32001, 0},
		"D12 what an operator may use":   {declaring("NAME", evaluation("$server.name", constant)), -32602, -32602},
		"D13 absent":                     {declaring("NAME", `{"evaluation":{"action":{"name":"read"},`+constant+`,"context":{"case":"$params.?arguments.?case"}}}`), -32001, 0},
		"D14 an empty id":                {declaring("NAME", evaluation("read", `"resource":{"type":"public","id":"$''"}`)), -32602, -32602},
		"D14 a list":                     {declaring("NAME", evaluation("read", `"resource":{"type":"public","id":"$['a','b']"}`)), -32602, -32602},
		"D14 a number":                   {declaring("NAME", evaluation("read", `"resource":{"type":"public","id":"$1"}`)), -32602, -32602},
		"D14 null":                       {declaring("NAME", evaluation("$null", constant)), -32602, -32602},
		"D14 nothing there":              {declaring("NAME", evaluation("$params.arguments.absent", constant)), -32602, -32602},
		"D15 coaz alone":                 {`{"name":"NAME","coaz":true,"inputSchema":{"type":"object"}}`, -32602, -32602},
		"D15 a mapping without coaz":     {`{"name":"NAME","inputSchema":{"type":"object","x-coaz-mapping":{}}}`, -32001, 0},
		"D15 both dialects, one says no": {`{"name":"NAME","coaz":true,"inputSchema":{"type":"object","x-authzen-mapping":` + evaluation("never", constant) + `,"x-coaz-mapping":{"subject":{"type":"user","id":"$.token['sub']"},"resource":{"type":"public","id":"1"},"context":{}}}}`, 0, 1},
		"D17 a filter":                   {older("NAME", `{"subject":{"type":"user","id":"$.token['sub']"},"resource":{"type":"public","id":"$.properties[?(@.a)]"},"context":{}}`), -32602, -32602},
		"D17 a wildcard":                 {older("NAME", `{"subject":{"type":"user","id":"$.token['sub']"},"resource":{"type":"public","id":"$.properties.*"},"context":{}}`), -32602, -32602},
		"D17 any depth":                  {older("NAME", `{"subject":{"type":"user","id":"$.token['sub']"},"resource":{"type":"public","id":"$..id"},"context":{}}`), -32602, -32602},
		"D17 a slice":                    {older("NAME", `{"subject":{"type":"user","id":"$.token['sub']"},"resource":{"type":"public","id":"$.properties.a[0:1]"},"context":{}}`), -32602, -32602},
		"D17 a function":                 {older("NAME", `{"subject":{"type":"user","id":"$.token['sub']"},"resource":{"type":"public","id":"$.properties.length()"},"context":{}}`), -32602, -32602},
	} {
		cases = append(cases, mappingCase{name, test.code, test.look})
		n := strconv.Itoa(len(cases))
		tools = append(tools, strings.ReplaceAll(test.tool, "NAME", "look"+n), strings.ReplaceAll(test.tool, "NAME", "change"+n))
	}
	s := newSiege(t, camp{policies: map[string]string{"a.cedar": strings.Replace(onlyLook, "LOOKS", looks(len(cases)), 1)}, answers: mcptest.Answers{Tools: "[" + strings.Join(tools, ",") + "]"}})
	const secret = "the-secret-of-an-argument"
	ran := 0
	for _, era := range eras {
		v := s.visitor(era, nil)
		for n, test := range cases {
			arguments := `{"action":"read","user":"root","id":"1","s":"` + secret + `"}`
			got, looked := v.call("change"+strconv.Itoa(n+1), arguments), v.call("look"+strconv.Itoa(n+1), arguments)
			if got.ran() || test.change != 0 && got.code() != test.change {
				t.Errorf("%s, %s: change: %s, want %d", test.name, era, got, test.change)
			}
			if test.look != 1 && (looked.code() != test.look || looked.ran() != (test.look == 0)) {
				t.Errorf("%s, %s: look: %s, want %d", test.name, era, looked, test.look)
			}
			if looked.ran() {
				ran++
			}
		}
		if strings.Contains(v.heard.String()+s.logs.String(), secret) {
			t.Errorf("%s: an argument is quoted", era)
		}
	}
	if n := len(s.executed()); n != ran {
		t.Errorf("%d were executed, want %d", n, ran)
	}
}

// mappingCase is what becomes of the calls of two tools with one mapping.
type mappingCase struct {
	name         string
	change, look int
}

// looks is a condition: the resource is one of so many tools that look.
func looks(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = `tool::"rec:look` + strconv.Itoa(i+1) + `"`
	}
	return "[" + strings.Join(all, ", ") + "].contains(resource)"
}
