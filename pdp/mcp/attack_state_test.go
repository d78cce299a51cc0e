package mcp_test

import (
	"bufio"
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

	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
)

// replies are what clients of the legacy era answer to what a server asks.
type replies struct {
	mu  sync.Mutex
	all map[string]chan string
}

// to waits for the answer to what is asked by an id.
func (r *replies) to(id string) <-chan string {
	answer := make(chan string, 1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[string]chan string{}
	}
	r.all[id] = answer
	return answer
}

// heard takes the answer to what was asked.
func (r *replies) heard(g mcptest.Got) {
	var id string
	if json.Unmarshal(g.ID, &id) != nil || g.Method != "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if answer := r.all[id]; answer != nil {
		delete(r.all, id)
		answer <- string(g.Body)
	}
}

// asker is a server that asks whoever calls it something, and answers with what it is answered.
type asker struct {
	replies
	last atomic.Int64
}

const askedForm = `"params":{"message":"Who?","requestedSchema":{"type":"object","properties":{"a":{"type":"string"}}}}`

func (a *asker) answers(eras ...string) mcptest.Answers {
	return mcptest.Answers{Eras: eras, Handle: a.handle, Heard: a.heard}
}

func (a *asker) handle(c *mcptest.Call) bool {
	said := func(text string) string {
		kind := ""
		if c.Modern {
			kind = `"resultType":"complete",`
		}
		return `{` + kind + `"content":[{"type":"text","text":` + inText(text) + `}],"messages":[]}`
	}
	switch {
	case !slices.Contains([]string{"tools/call", "prompts/get", "resources/read"}, c.Method):
		return false
	case !c.Modern:
		id := fmt.Sprintf("q%d", a.last.Add(1))
		answer := a.to(id)
		c.Message(`{"jsonrpc":"2.0","id":"` + id + `","method":"elicitation/create",` + asksFor(c) + `}`)
		select {
		case text := <-answer:
			c.Result(said(text))
		case <-c.Context.Done():
		}
	case strings.Contains(string(c.Params), `"requestState":"theirs"`) && strings.Contains(string(c.Params), `"inputResponses"`):
		c.Result(said(string(c.Params)))
	default:
		c.Result(`{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create",` + asksFor(c) + `}},"requestState":"theirs"}`)
	}
	return true
}

// asksFor is what it asks: that a page be opened, if the call says which.
func asksFor(c *mcptest.Call) (params string) {
	var said struct{ Arguments struct{ URL jsontext.Value } }
	if err := json.Unmarshal(c.Params, &said, json.MatchCaseInsensitiveNames(true)); err != nil || said.Arguments.URL == nil {
		return askedForm
	}
	return `"params":{"mode":"url","message":"Open it","elicitationId":"theirs","url":` + string(said.Arguments.URL) + `}`
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
func (s *siege) person(claims mcptest.Claims) *visitor {
	s.t.Helper()
	v := s.stranger("modern", s.issuer.Token(s.t, claims))
	v.capabilities = `{"elicitation":{"form":{},"url":{}}}`
	return v
}

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
		stolen := *bob.s
		thief := stolen.stranger("legacy", bob.token)
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
func (s *siege) listener(claims mcptest.Claims) *visitor {
	s.t.Helper()
	v := s.stranger("legacy", s.issuer.Token(s.t, claims))
	v.capabilities = `{"elicitation":{"form":{},"url":{}}}`
	v.begin()
	return v
}

// called is a call in the course of which its client was asked something.
type called struct {
	id    string // of what it was asked, as it stands in JSON
	asks  string
	lines *bufio.Scanner
}

// answerTo calls a tool, and has of the answer what comes before its body.
func (v *visitor) answerTo(tool, arguments string) *http.Response {
	v.s.t.Helper()
	return v.opens(v.s.t.Context(), http.MethodPost, "tools/call", `{"name":"`+tool+`","arguments":`+arguments+`}`)
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
	answer := v.answerTo(tool, arguments)
	v.s.t.Cleanup(func() { _ = answer.Body.Close() })
	c = &called{lines: bufio.NewScanner(answer.Body)}
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
		}
		all.WriteString(c.lines.Text() + "\n")
		data, _ := strings.CutPrefix(c.lines.Text(), "data: ")
		if json.Unmarshal([]byte(data), &m, json.MatchCaseInsensitiveNames(true)) == nil && m.Method == "elicitation/create" {
			c.id, c.asks = string(m.ID), data
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
