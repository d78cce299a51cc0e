package mcp_test

import (
	"strings"
	"testing"

	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
)

// asksPeople has the server of a siege ask people.
func asksPeople(c *mcp.Config) {
	u := c.Upstreams["rec"]
	u.ServerRequests = mcp.ServerRequests{Elicitation: mcp.RelayOn}
	c.Upstreams["rec"] = u
}

const takesForms = `{"elicitation":{"form":{},"url":{}}}`

// A server that asks for input where it may not ask reaches nobody with that, whatever else its result holds.
func TestListsThatAsk(t *testing.T) {
	const asks = `"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{"mode":"url","message":"open","url":"https://evil.example/"}}},"requestState":"s"`
	lists := map[string]string{"tools/list": `"tools":` + siegeTools, "prompts/list": `"prompts":[{"name":"greet"}]`, "resources/list": `"resources":[{"uri":"mem://notes","name":"n"}]`}
	s := newSiege(t, camp{change: asksPeople, answers: mcptest.Answers{Eras: []string{"modern"}, Handle: func(c *mcptest.Call) bool {
		if lists[c.Method] == "" {
			return false
		}
		c.Result(`{` + asks + `,` + lists[c.Method] + `}`)
		return true
	}}})
	for _, era := range eras {
		v := s.stranger(era, s.issuer.Token(t, nil))
		v.capabilities = takesForms
		v.begin()
		for method := range lists {
			if got := v.ask(method, `{}`); strings.Contains(got.text, "evil.example") || got.fault == nil {
				t.Errorf("%s, %s: %s", era, method, got)
			}
		}
	}
}
