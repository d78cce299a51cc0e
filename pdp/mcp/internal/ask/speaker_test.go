package ask_test

import (
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp/mcp/internal/identity"
)

// Who asks, by what the token says.
func TestSpeaker(t *testing.T) {
	t.Parallel()
	s := open(t, anything)
	tool := s.tool(plainTool, nil)
	person := evaluation.PersonOf("https://idp.example.com", "alice")
	agent, user := identity.Entity{Type: "agent", ID: "bot"}, identity.Entity{Type: "user", ID: "alice"}
	for name, test := range map[string]struct {
		p                identity.Principal
		subject, context string
	}{
		"an agent for a person":   {identity.Principal{Agent: agent, User: user, Person: person}, `{"type":"agent","id":"bot"}`, `{"on_behalf_of":[{"id":"alice","type":"user"}],"person":"` + person + `"`},
		"a person":                {identity.Principal{User: user, Person: person}, `{"type":"user","id":"alice"}`, `{"person":"` + person + `"`},
		"an agent alone":          {identity.Principal{Agent: agent, User: identity.Entity{Type: "user", ID: "bot"}}, `{"type":"agent","id":"bot"}`, `{"supported`},
		"nobody knows who":        {identity.Principal{Agent: agent, User: user}, `{"type":"agent","id":"bot"}`, `{"on_behalf_of":[{"id":"alice","type":"user"}],"supported`},
		"an agent between":        {identity.Principal{Agent: agent, User: user, Claims: parsed(t, `{"act":{"sub":"bot","act":{"sub":"first"}}}`)}, `{"type":"agent","id":"bot"}`, `{"on_behalf_of":[{"id":"first","type":"agent"},{"id":"alice","type":"user"}]`},
		"a person, by an agent":   {identity.Principal{User: user, Claims: parsed(t, `{"act":{"sub":"bot"}}`)}, `{"type":"user","id":"alice"}`, `{"on_behalf_of":[{"id":"bot","type":"agent"}]`},
		"with what policies read": {identity.Principal{User: user, Claims: parsed(t, `{"roles":["a",null],"department_id":null,"iss":"x"}`)}, `{"type":"user","id":"alice","properties":{"roles":["a",null]}}`, `{"supported`},
	} {
		got, _ := s.outcome(s.call(&test.p, tool, ``))
		bodies := s.taken()
		if got != "permit" || len(bodies) != 1 || !strings.Contains(bodies[0], `{"subject":`+test.subject+`,"action"`) || !strings.Contains(bodies[0], `"context":`+test.context) {
			t.Errorf("%s: %s, %q", name, got, bodies)
		}
	}
}
