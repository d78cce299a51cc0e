package mcp_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"go.yaml.in/yaml/v3"

	pdpserver "policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest/clock"
	"policy-service/pdp/pdptest/mcptest"
	"policy-service/pdp/pdptest/toolaccess"
)

// accessTools are the tools of the server whose owner declares who may use them.
var accessTools = []string{"read_file", "read_dir", "look", "change", "Look", "remove"}

// accessCallers are those who come. Each is another entity for policies.
var accessCallers = []struct {
	claims mcptest.Claims
	is     toolaccess.Agent
}{
	{mcptest.Claims{"client_id": "desktop"}, toolaccess.Agent{Type: "agent", ID: "desktop", In: []string{`team::"red"`, `agent::"desktop"`}}},
	{mcptest.Claims{"client_id": "newcomer"}, toolaccess.Agent{Type: "agent", ID: "newcomer"}},
	{mcptest.Claims{"client_id": nil}, toolaccess.Agent{Type: "user", ID: "alice"}},
	{mcptest.Claims{"client_id": "alice"}, toolaccess.Agent{Type: "agent", ID: "alice"}},
}

// accessDeclared are declarations in all modes. END is when something ends.
var accessDeclared = map[string]string{
	"allowlist": `
mode: allowlist
subjects: [agent, user]
rules:
- {agent: desktop, tools: [look], expires: END}
- {agent: {in: 'team::"red"'}, tools: read_*}
- {agent: desktop, tools: change, requires_approval: true}
- {agent: {type: user, id: alice}, tools: "*", expires: END}
- {agent: alice, tools: [remove, Look], requires_approval: true}
`,
	"denylist": `
mode: denylist
rules:
- {agent: desktop, tools: "*", expires: END}
- {agent: "*", tools: [remove]}
- {agent: alice, tools: read_*}
`,
	"open": `
mode: open
rules:
- {agent: "*", tools: [remove, change], requires_approval: true}
- {agent: {type: user, id: alice}, tools: l*, requires_approval: true, expires: END}
`,
	"hybrid": `
mode: hybrid
default: deny
rules:
- {agent: desktop, tools: "*", effect: allow}
- {agent: desktop, tools: [remove], effect: deny, expires: END}
- {agent: alice, tools: look, effect: allow, requires_approval: true}
- {agent: {in: 'team::"red"'}, tools: read_d*, effect: deny}
`,
}

// A client sees the tools that are declared to be open to it, with those that wait for somebody, and no others; it calls what
// it sees, and a search finds the same. What ends does so at that instant, for whoever has its list already. Whatever is
// permitted besides opens nothing.
func TestDeclaredAccess(t *testing.T) {
	t.Parallel()
	for mode, text := range accessDeclared {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			at := clock.New()
			end := at.Now().Add(10 * time.Minute)
			text := strings.ReplaceAll(text, "END", end.Format(time.RFC3339))
			d := toolaccess.Declaration{Owner: "rec"}
			orFail(t, yaml.Unmarshal([]byte(text), &d))
			var tools, entities []string
			for _, name := range accessTools {
				tools = append(tools, fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"}}`, name))
				entities = append(entities, fmt.Sprintf(`{"uid":{"type":"tool","id":"rec:%s"},"attrs":{},"parents":[]}`, name))
			}
			entities = append(entities, `{"uid":{"type":"agent","id":"desktop"},"attrs":{},"parents":[{"type":"team","id":"red"}]}`)
			s := newSiege(t, camp{
				policies: map[string]string{
					"bundle.yaml": "allow_trivial: true\n", "all.cedar": `@id("all") permit (principal, action, resource);`,
					"access/rec.yaml": text, "entities/e.json": "[" + strings.Join(entities, ",") + "]",
				},
				answers: mcptest.Answers{Tools: "[" + strings.Join(tools, ",") + "]"}, now: at.Now,
				serve: func(_ *siege, c *pdpserver.Config) { c.Program.PDP.Now = at.Now },
			})
			var visitors []*visitor
			for _, era := range eras {
				for _, who := range accessCallers {
					visitors = append(visitors, s.visitor(era, who.claims))
				}
			}
			ran, seen := 0, map[string]bool{}
			for _, now := range []time.Time{at.Now(), end.Add(-time.Millisecond), end, end.Add(time.Second)} {
				at.Advance(now.Sub(at.Now()))
				for n, v := range visitors {
					who := accessCallers[n%len(accessCallers)].is
					if v.era == "modern" { // whether a server may be used is kept for two seconds, by the token
						v.token = s.issuer.Token(t, accessCallers[n%len(accessCallers)].claims)
					}
					var shown, waits []string
					for _, name := range accessTools {
						if allow, approval := toolaccess.Answer([]toolaccess.Declaration{d}, who, "rec:"+name, now); allow {
							shown = append(shown, name)
							if approval != "" {
								waits = append(waits, name)
							}
						}
					}
					seen[fmt.Sprint(who, shown, waits)] = true
					ran += accessUsed(t, v, who, shown, waits)
				}
			}
			if called := slices.DeleteFunc(s.executed(), func(method string) bool { return method != "tools/call" }); len(called) != ran || ran == 0 {
				t.Errorf("%d calls ran, and the server got %d", ran, len(called))
			}
			if len(seen) <= len(accessCallers) {
				t.Errorf("nobody has seen a change: %v", seen)
			}
		})
	}
}

// accessUsed holds what a visitor sees, finds and calls to what is open. It counts the calls that ran.
func accessUsed(t *testing.T, v *visitor, who toolaccess.Agent, shown, waits []string) (ran int) {
	t.Helper()
	if got := shownTo(t, v); !slices.Equal(got, shown) {
		t.Errorf("%s: %v sees %q, want %q", v.era, who, got, shown)
	}
	if got, want := accessFound(t, v.s, who), slices.Sorted(slices.Values(shown)); !slices.Equal(got, want) {
		t.Errorf("%v finds %q, want %q", who, got, want)
	}
	for _, name := range accessTools {
		got := v.call(name, `{}`)
		switch waits, open := slices.Contains(waits, name), slices.Contains(shown, name); {
		case open && !waits:
			if !got.ran() {
				t.Errorf("%s: %v calls %s: %s", v.era, who, name, got)
				continue
			}
			ran++
		case got.ran() || got.code() != -32001:
			t.Errorf("%s: %v calls %s: %s", v.era, who, name, got)
		case waits != strings.Contains(got.text, bundleAsks):
			t.Errorf("%s: %v calls %s, which waits for somebody (%t): %s", v.era, who, name, waits, got)
		}
	}
	return ran
}

// accessFound are the tools that a resource search finds, sorted, without their owner.
func accessFound(t *testing.T, s *siege, who toolaccess.Agent) (names []string) {
	t.Helper()
	var r struct {
		Results []struct {
			ID string `json:"id"`
		} `json:"results"`
	}
	answer := s.pdp.Post("/access/v1/search/resource", fmt.Sprintf(
		`{"subject":{"type":%q,"id":%q},"action":{"name":"tool.invoke"},"resource":{"type":"tool"},"context":{"supported_obligations":["approval_required"]}}`, who.Type, who.ID))
	orFail(t, json.Unmarshal([]byte(answer.Body), &r))
	for _, one := range r.Results {
		names = append(names, strings.TrimPrefix(one.ID, "rec:"))
	}
	return names
}
