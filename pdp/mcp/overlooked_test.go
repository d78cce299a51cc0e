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

// A server of the legacy era asks a client of the modern one in the course of a request that has no input. It is told that
// it may not, and the request goes on.
func TestAskedWithoutInput(t *testing.T) {
	t.Parallel()
	methods := map[string]string{
		"completion/complete": `{"ref":{"type":"ref/prompt","name":"greet"},"argument":{"name":"a","value":"b"}}`,
		"resources/list":      `{}`, "prompts/list": `{}`,
	}
	s := newSiege(t, camp{change: asksPeople, answers: mcptest.Answers{Eras: []string{"legacy"}, Handle: func(c *mcptest.Call) bool {
		if methods[c.Method] != "" {
			c.Message(`{"jsonrpc":"2.0","id":"asked-in-` + c.Method + `","method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{}}}}`)
		}
		return false
	}}})
	v := s.stranger("modern", s.issuer.Token(t, nil))
	v.capabilities = takesForms
	for method, params := range methods {
		got := v.ask(method, params)
		declined := false
		for _, g := range s.rec.Got() {
			declined = declined || bytes.Contains(g.Body, []byte(`"id":"asked-in-`+method+`"`)) && bytes.Contains(g.Body, []byte(`"error"`))
		}
		if !got.ran() || !declined {
			t.Errorf("%s: declined %t, %s", method, declined, got)
		}
	}
}

// Who may not call anything hears nothing of what the server says when it is asked for its tools.
func TestWordsBeforeADecision(t *testing.T) {
	t.Parallel()
	const word = "w0rd-of-the-server"
	s := newSiege(t, camp{policies: map[string]string{"a.cedar": `permit(principal, action == Action::"session", resource);`}, answers: mcptest.Answers{Handle: func(c *mcptest.Call) bool {
		if c.Method == "tools/list" {
			c.Error(`{"code":-32000,"message":"` + word + `","data":"` + word + `"}`)
			return true
		}
		return false
	}}})
	for _, era := range eras {
		v := s.stranger(era, s.issuer.Token(t, nil))
		if got := v.call("look", `{}`); strings.Contains(got.text, word) || got.fault == nil && got.status == 200 {
			t.Errorf("%s: %s", era, got)
		}
	}
}

// A tool that is listed twice is not there, also where one of its two definitions is none.
func TestTwoDefinitions(t *testing.T) {
	t.Parallel()
	const broken, good = `{"name":"look","inputSchema":{"type":"object","x-authzen-mapping":7}}`, `{"name":"look","inputSchema":{"type":"object"}}`
	for _, tools := range []string{`[` + broken + `,` + good + `]`, `[` + good + `,` + broken + `]`} {
		s := newSiege(t, camp{answers: mcptest.Answers{Tools: tools}})
		for _, era := range eras {
			v := s.visitor(era, nil)
			if got := v.call("look", `{}`); got.ran() {
				t.Errorf("%s, %s: %s", tools, era, got)
			}
			if got := v.ask("tools/list", `{}`); strings.Contains(got.text, `"look"`) {
				t.Errorf("%s, %s: %s", tools, era, got)
			}
		}
	}
}

// What the server has not agreed to tell of, no client is told that it will be.
func TestSubscriptionsThatFail(t *testing.T) {
	t.Parallel()
	s := newSiege(t, camp{answers: mcptest.Answers{Eras: []string{"modern"}, Handle: func(c *mcptest.Call) bool {
		if c.Method == "subscriptions/listen" {
			c.Error(`{"code":-32000,"message":"not today"}`)
			return true
		}
		return false
	}}})
	v := s.visitor("legacy", nil)
	for range 3 {
		if got := v.ask("resources/subscribe", `{"uri":"mem://notes"}`); got.fault == nil {
			t.Error(got)
		}
	}
}

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
