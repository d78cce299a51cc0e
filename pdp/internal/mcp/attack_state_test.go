package mcp_test

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/pdptest/mcptest"
)

// asker is a server that asks whoever calls it something, and answers with what it is answered.
type asker struct {
	replies sync.Map // channels for what clients of the legacy era answer, by what it asks by
	last    atomic.Int64
	posing  atomic.Pointer[asksBy]
}

// asksBy is what a server asks: key and state are what it asks by in the modern era, and id in the legacy era.
type asksBy struct{ key, state, id, params string }

// poses has it ask what looks like the gateway's own question, by names of the gateway's.
func (a *asker) poses(key, state, id string) { a.posing.Store(&asksBy{key, state, id, likeOurs}) }

// heard takes the answer to what was asked.
func (a *asker) heard(g mcptest.Got) {
	var id string
	if json.Unmarshal(g.ID, &id) != nil || g.Method != "" {
		return
	}
	if answer, waits := a.replies.LoadAndDelete(id); waits {
		answer.(chan string) <- string(g.Body)
	}
}

const askedForm = `"params":{"message":"Who?","requestedSchema":{"type":"object","properties":{"a":{"type":"string"}}}}`

func (a *asker) answers(eras ...string) mcptest.Answers {
	return mcptest.Answers{Eras: eras, Handle: a.handle, Heard: a.heard}
}

func (a *asker) handle(c *mcptest.Call) bool {
	if !slices.Contains([]string{"tools/call", "prompts/get", "resources/read"}, c.Method) {
		return false
	}
	by := cmp.Or(a.posing.Load(), &asksBy{"k", "theirs", fmt.Sprintf("q%d", a.last.Add(1)), askedForm})
	said := func(text string) string {
		kind := ""
		if c.Modern {
			kind = `"resultType":"complete",`
		}
		return `{` + kind + `"content":[{"type":"text","text":` + inText(text) + `}],"messages":[]}`
	}
	switch {
	case !c.Modern:
		answer := make(chan string, 1)
		a.replies.Store(by.id, answer)
		c.Message(`{"jsonrpc":"2.0","id":` + inText(by.id) + `,"method":"elicitation/create",` + by.params + `}`)
		select {
		case text := <-answer:
			c.Result(said(text))
		case <-c.Context.Done():
		}
	case strings.Contains(string(c.Params), `"requestState":`+inText(by.state)) && strings.Contains(string(c.Params), `"inputResponses"`):
		c.Result(said(string(c.Params)))
	default:
		c.Result(`{"resultType":"input_required","inputRequests":{` + inText(by.key) + `:{"method":"elicitation/create",` + by.params + `}},"requestState":` + inText(by.state) + `}`)
	}
	return true
}

// stateAsked is what a client of the modern era is asked.
type stateAsked struct {
	State    string                    `json:"requestState"`
	Requests map[string]jsontext.Value `json:"inputRequests"`
}

func (q stateAsked) key() string {
	for key := range q.Requests {
		return key
	}
	return ""
}

func stateOf(t testing.TB, got echo) (q stateAsked) {
	t.Helper()
	if err := json.Unmarshal(got.result, &q); err != nil || q.State == "" || len(q.Requests) != 1 || strings.Contains(got.text, "theirs") {
		t.Fatalf("nothing is asked: %s, %v", got, err)
	}
	return q
}

const accepted = `{"action":"accept","content":{"a":"x-answer"}}`

// retry sends a call again, with a state and an answer as they stand in JSON.
func (v *visitor) retry(tool, arguments, state, answers string) echo {
	v.s.t.Helper()
	return v.ask("tools/call", `{"name":"`+tool+`","arguments":`+arguments+`,"requestState":`+state+`,"inputResponses":`+answers+`}`)
}

// inText is a text as it stands in JSON.
func inText(s string) string {
	quoted, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(quoted)
}

// relays lets the server ask.
func relays(c *mcp.Config) {
	ofServer(func(u *mcp.UpstreamConfig) {
		u.ServerRequests = mcp.ServerRequests{Elicitation: mcp.RelayOn, Hosts: []string{"good.example", "good.example:8443"}}
	})(c)
}

// person is a client of the modern era that takes forms.
func (s *siege) person(claims mcptest.Claims) *visitor { return s.takesForms("modern", claims) }

// Who brings no answer is asked again. Of many who bring one at once, one gives it.
func TestStatesWithoutAnswer(t *testing.T) {
	t.Parallel()
	s := newSiege(t, camp{answers: new(asker).answers("legacy"), change: relays})
	alice := s.person(nil)
	asked := stateOf(t, alice.call("look", `{}`))
	before := len(s.executed())
	for name, answers := range map[string]string{
		"none": `{}`, "to something else": `{"k":` + accepted + `}`, "null": `{"` + asked.key() + `":null}`, "a text": `{"` + asked.key() + `":"accept"}`,
	} {
		if again := stateOf(t, alice.retry("look", `{}`, inText(asked.State), answers)); !maps.EqualFunc(again.Requests, asked.Requests, func(a, b jsontext.Value) bool { return string(a) == string(b) }) || again.State != asked.State {
			t.Errorf("%s: is asked for %v", name, again)
		}
	}
	if again := stateOf(t, alice.ask("tools/call", `{"name":"look","arguments":{},"requestState":`+inText(asked.State)+`}`)); again.State != asked.State {
		t.Errorf("is asked for %v", again)
	}
	if now := s.executed(); len(now) != before {
		t.Errorf("the server got %q", now[before:])
	}
	var all sync.WaitGroup
	var ran, refused atomic.Int64
	for range 32 {
		all.Go(func() {
			switch got := alice.retry("look", `{}`, inText(asked.State), `{"`+asked.key()+`":`+accepted+`}`); {
			case got.ran() && strings.Contains(got.text, "x-answer"):
				ran.Add(1)
			case got.code() == -32602:
				refused.Add(1)
			default:
				t.Errorf("%s", got)
			}
		})
	}
	all.Wait()
	if now := s.executed(); ran.Load() != 1 || refused.Load() != 31 || len(now) != before+1 {
		t.Errorf("%d ran, and the server got %q", ran.Load(), now[before:])
	}
}

// D30: an answer counts if who was asked gives it, in the session that was asked, once.
func TestAnswersOfOthers(t *testing.T) {
	inEras(t, func(t *testing.T, era string) {
		s := newSiege(t, camp{answers: new(asker).answers(era), change: relays})
		alice, beside, bob := s.listener(nil), s.listener(nil), s.listener(mcptest.Claims{"sub": "bob"})
		calls, others := alice.asked("look", `{}`), beside.asked("look", `{}`)
		before := len(s.executed())
		answer := func(v *visitor, id, member string) int {
			t.Helper()
			return v.send(`{"jsonrpc":"2.0","id":`+id+`,`+member+`}`, v.headers("", "")...).status
		}
		const yes = `"result":` + accepted
		thief := s.stranger("legacy", bob.token)
		thief.session = alice.session
		for name, got := range map[string][2]int{
			"another session of hers":    {answer(beside, calls.id, yes), http.StatusBadRequest},
			"another person":             {answer(bob, calls.id, yes), http.StatusBadRequest},
			"another person, in hers":    {answer(thief, calls.id, yes), http.StatusNotFound},
			"to what another was asked":  {answer(alice, others.id, yes), http.StatusBadRequest},
			"to the server's id":         {answer(alice, `"q1"`, yes), http.StatusBadRequest},
			"to a number":                {answer(alice, `1`, yes), http.StatusBadRequest},
			"to a part of the id":        {answer(alice, calls.id[:len(calls.id)-3]+`"`, yes), http.StatusBadRequest},
			"to null":                    {answer(alice, `null`, yes), http.StatusBadRequest},
			"with a result and an error": {answer(alice, calls.id, yes+`,"error":{"code":1,"message":"m"}`), http.StatusBadRequest},
		} {
			if got[0] != got[1] {
				t.Errorf("%s: status %d", name, got[0])
			}
		}
		if now := s.executed(); len(now) != before {
			t.Errorf("the server got %q", now[before:])
		}
		for n, want := range []int{http.StatusAccepted, http.StatusBadRequest} {
			if got := answer(alice, calls.id, strings.Replace(yes, "x-answer", fmt.Sprintf("x-answer %d", n), 1)); got != want {
				t.Errorf("answer %d has the status %d", n, got)
			}
		}
		if got := calls.rest(t); !strings.Contains(got, "x-answer 0") || strings.Contains(got, "x-answer 1") {
			t.Errorf("the call ends with %s", got)
		}
		if got := answer(beside, others.id, `"error":{"code":-1,"message":"no"}`); got != http.StatusAccepted {
			t.Errorf("an error as the answer has the status %d", got)
		}
		if got := others.rest(t); strings.Contains(got, "x-answer") {
			t.Errorf("the other call ends with %s", got)
		}
	})
}

// listener is a client of the legacy era that takes forms, with a session.
func (s *siege) listener(claims mcptest.Claims) *visitor { return s.takesForms("legacy", claims) }

// called is a call in the course of which its client was asked something.
type called struct {
	id     string // of what it was asked, as it stands in JSON
	asks   string
	params jsontext.Value
	lines  *bufio.Scanner
	leave  context.CancelFunc
}

// asked calls a tool, and reads on until it is asked something.
func (v *visitor) asked(tool, arguments string) called {
	v.s.t.Helper()
	c, got := v.asksOrEnds(tool, arguments)
	if c == nil {
		v.s.t.Fatalf("nothing is asked: %s", got)
	}
	return *c
}

// asksOrEnds calls a tool: either the client is asked something, or the call ends.
func (v *visitor) asksOrEnds(tool, arguments string) (c *called, got echo) {
	v.s.t.Helper()
	ctx, leave := context.WithCancel(v.s.t.Context())
	answer := v.opens(ctx, http.MethodPost, "tools/call", `{"name":"`+tool+`","arguments":`+arguments+`}`)
	v.s.t.Cleanup(func() {
		leave()
		_ = answer.Body.Close()
	})
	c = &called{lines: bufio.NewScanner(answer.Body), leave: leave}
	c.lines.Buffer(nil, 64<<20)
	if text, asks := c.next(); !asks {
		return nil, readAnswer(answer, []byte(text))
	}
	return c, got
}

// next reads on until the client is asked something, and reports whether it is. Said is all that was read.
func (c *called) next() (said string, asks bool) {
	var all strings.Builder
	for c.lines.Scan() {
		var m struct {
			ID     jsontext.Value
			Method string
			Params jsontext.Value
		}
		all.WriteString(c.lines.Text() + "\n")
		data, _ := strings.CutPrefix(c.lines.Text(), "data: ")
		if json.Unmarshal([]byte(data), &m, json.MatchCaseInsensitiveNames(true)) == nil && m.Method == "elicitation/create" {
			c.id, c.asks, c.params = string(m.ID), data, m.Params
			return all.String(), true
		}
	}
	return all.String(), false
}

// rest is what comes until the answer ends.
func (c called) rest(t testing.TB) string {
	t.Helper()
	var all strings.Builder
	for c.lines.Scan() {
		all.WriteString(c.lines.Text() + "\n")
	}
	return all.String()
}

// end is what came of the call in the end.
func (c called) end(t testing.TB) echo {
	t.Helper()
	stream := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}}
	return readAnswer(stream, []byte(c.rest(t)))
}
