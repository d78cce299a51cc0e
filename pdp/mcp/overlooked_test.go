package mcp_test

import (
	"bytes"
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

// What a client says beside an answer for the server stays here, as what it says beside a request does.
func TestMetaOfAnswers(t *testing.T) {
	t.Parallel()
	const mark = "m4rk-of-the-client"
	form := `"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{}}}`
	for _, server := range eras {
		s := newSiege(t, camp{change: asksPeople, answers: mcptest.Answers{Eras: []string{server}, Handle: func(c *mcptest.Call) bool {
			switch {
			case c.Method != "tools/call", bytes.Contains(c.Params, []byte("inputResponses")):
				return false
			case c.Modern:
				c.Result(`{"resultType":"input_required","inputRequests":{"a":{` + form + `}}}`)
			default:
				c.Message(`{"jsonrpc":"2.0","id":"q",` + form + `}`)
				c.Result(`{"content":[]}`)
			}
			return true
		}}})
		v := s.stranger("modern", s.issuer.Token(t, nil))
		v.capabilities = takesForms
		asked := v.call("look", `{}`)
		_, rest, _ := strings.Cut(string(asked.result), `"inputRequests":{"`)
		key, _, _ := strings.Cut(rest, `"`)
		state := ""
		if text := member(asked, "requestState"); text != "" {
			state = `,"requestState":"` + text + `"`
		}
		v.ask("tools/call", `{"name":"look","arguments":{},"inputResponses":{"`+key+`":{"action":"accept","content":{},"_meta":{"secret":"`+mark+`"}}}`+state+`}`)
		answered := false
		for _, g := range s.rec.Got() {
			answered = answered || bytes.Contains(g.Body, []byte(`"action":"accept"`))
		}
		if where := s.rec.Saw(mark); where != "" || !answered {
			t.Errorf("%s: answered %t; the mark is in %s", server, answered, where)
		}
	}
}
