package mcp_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
	pdpserver "policy-service/pdp/server"
)

// ahead has a call under way, and gives what comes of it.
func (v *visitor) ahead(tool, arguments string) <-chan echo {
	over := make(chan echo, 1)
	go func() { over <- v.call(tool, arguments) }()
	return over
}

// askedBy has people asked in some ways, and a request held for so long.
func askedBy(wait time.Duration, ways ...string) func(*mcp.Config) {
	return func(c *mcp.Config) { c.Approvals.Channels, c.Approvals.Wait = ways, wait }
}

// required is the authorizationRequest of an error that says that people are asked.
func required(t *testing.T, got echo) (r struct{ ID, Tool, ExpiresAt string }) {
	t.Helper()
	var d struct {
		AuthorizationRequest struct{ ID, Tool, ExpiresAt string } `json:"authorizationRequest"`
		Suggestion           string                               `json:"suggestion"`
	}
	if got.code() != -32001 || json.Unmarshal(got.fault.Data, &d, json.MatchCaseInsensitiveNames(true)) != nil || d.AuthorizationRequest.ID == "" || d.Suggestion != "send the call again" {
		t.Fatalf("it is not told to send the call again: %s", got)
	}
	return d.AuthorizationRequest
}

// metered is a reader of what a gateway counts, and the gateway's end of it.
func metered() (*sdkmetric.ManualReader, mcp.Deps) {
	r := sdkmetric.NewManualReader()
	return r, mcp.Deps{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(r))}
}

// reached fails unless the server got these calls of a tool.
func (w *world) reached(tool string, want ...string) {
	w.t.Helper()
	if got := w.forwarded(tool); !slices.Equal(got, want) {
		w.t.Errorf("of %s the server got %q, want %q", tool, got, want)
	}
}

// A call waits for people, in either era, and goes on once they have approved it: once, as it came.
func TestApproveModernAndLegacyWait(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			w := newPeople(t, land{})
			over := w.plain(era).ahead("second-person", `{"n": 1.0}`)
			id := w.asks("second-person")
			w.untouched(t)
			w.approve("mia", id)
			if got := <-over; !got.ran() {
				t.Errorf("it came to %s", got)
			}
			w.reached("second-person", `{"n": 1.0}`)
			if got := w.approval(id); got.Status != "used_up" || got.Used != 1 {
				t.Errorf("the approval is %s, used %d times", got.Status, got.Used)
			}
		})
	}
}

// Who waits hears of it if they want to, and is told to send the call again if nobody decides in time: the same call goes on
// from there, and nobody is asked twice.
func TestApproveModernAndLegacyWaitAgain(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			w := newPeople(t, land{change: askedBy(100*time.Millisecond, "wait")})
			v := w.plain(era)
			v.meta = `,"progressToken":"p"`
			got := v.call("confirm", `{"n":1}`)
			id := required(t, got).ID
			if len(got.before) == 0 || !strings.Contains(string(got.before[0]), id) || !strings.Contains(string(got.before[0]), `"progressToken":"p"`) {
				t.Errorf("it hears %s", got.before)
			}
			if again := required(t, v.call("confirm", `{ "n":1.0 }`)).ID; again != id { // the same value
				t.Errorf("it is %s, and then %s", id, again)
			}
			w.untouched(t)
			w.approve("alice", id)
			if got := v.call("confirm", `{"n":1}`); !got.ran() {
				t.Errorf("it came to %s", got)
			}
			w.reached("confirm", `{"n":1}`)
			if all := w.approvals(""); len(all) != 1 || all[0].Status != "used_up" {
				t.Errorf("people were asked %v", all)
			}
			if next := required(t, v.call("confirm", `{"n":1}`)).ID; next == id {
				t.Error("an approval that was used counts for another call")
			}
		})
	}
}

// Where no policy lets anybody decide, nobody waits in vain, and nobody is told to come again. If the PDP does not say, somebody
// may decide.
func TestNoWaitForNobody(t *testing.T) {
	t.Parallel()
	lonely, _, _ := strings.Cut(peoplePolicies, `@id("the-person")`)
	for name, test := range map[string]struct {
		policies, says string
		silent         bool
	}{
		"nobody may":        {lonely, "ask for approval", false},
		"the PDP is silent": {lonely, "send the call again", true},
		"somebody may":      {peoplePolicies, "send the call again", false},
	} {
		for _, ways := range [][]string{{"form", "wait"}, {"form"}} {
			tap := newWiretap(t)
			tap.silent(func(r *http.Request, _ []byte) bool { return test.silent && strings.HasSuffix(r.URL.Path, "/deciders") })
			w := newPeople(t, land{before: tap.before, serve: tap.serve, change: askedBy(100*time.Millisecond, ways...), files: map[string]string{"people.cedar": test.policies}})
			for _, era := range eras {
				v := w.plain(era)
				v.meta = `,"progressToken":"p"`
				got := v.call("confirm", `{"of":"`+era+`"}`)
				waits := test.says == "send the call again" && len(ways) > 1
				if got.code() != -32001 || textOf(t, got.fault.Data, "suggestion") != test.says || !strings.Contains(got.fault.Message, textOf(t, got.fault.Data, "id")) || (len(got.before) > 0) != waits { // who waits hears so
					t.Errorf("%s by %q, %s: %s, before that %d", name, ways, era, got, len(got.before))
				}
			}
			w.untouched(t)
		}
	}
}

// What the person behind the token answers to a form is what they say: yes, no, or nothing.
func TestApproveModernForms(t *testing.T) {
	t.Parallel()
	w := newPeople(t, land{})
	v := w.client("modern")
	d := v.dialogue("confirm", `{"n": 1.0}`)
	if len(d.form()) != 2 || d.form()["approve"] == nil {
		t.Errorf("the form is %s", d.asked)
	}
	w.untouched(t)
	d.answer(v, saysYes)
	if got := d.end(); !got.ran() {
		t.Errorf("yes: %s", got)
	}
	w.reached("confirm", `{"n": 1.0}`)
	all := w.approvals("confirm")
	if want := []string{`approve user::"alice" form key:gateway`}; len(all) != 1 || !slices.Equal(w.votes(all[0].ID), want) {
		t.Errorf("on record is %v", all)
	}
	d.answer(v, saysYes)
	if got := d.end(); got.code() == 0 {
		t.Errorf("a second time: %s", got)
	}
	w.reached("confirm", `{"n": 1.0}`)

	d = v.dialogue("confirm", `{"n":2}`)
	d.answer(v, saysNo)
	if got := d.end(); got.code() != -32001 || got.kind() != "authorization_denied" {
		t.Errorf("no: %s", got)
	}
	d = v.dialogue("confirm", `{"n":3}`)
	d.answer(v, saysNothing)
	id := required(t, d.end()).ID
	if got := w.approval(id).Status; got != "pending" {
		t.Errorf("it is %s, and nobody has answered", got)
	}
	d = v.dialogue("confirm", `{"n":3}`)
	d.answer(v, saysYes)
	if got := d.end(); !got.ran() {
		t.Errorf("after nothing, yes: %s", got)
	}
	w.reached("confirm", `{"n": 1.0}`, `{"n":3}`)
	if got := len(w.approvals("")); got != 3 {
		t.Errorf("people were asked %d times", got)
	}
}

// While people have not decided, a client is told twice to send its call again with nothing to answer, and then that it is for
// now refused. What it was given goes on meanwhile.
func TestApproveModernEmptyRounds(t *testing.T) {
	t.Parallel()
	w := newPeople(t, land{change: askedBy(100*time.Millisecond, "url", "wait")})
	v := w.client("modern")
	d := v.dialogue("confirm", `{}`)
	if !strings.Contains(string(d.asked), `"mode":"url"`) || strings.Contains(string(d.asked), "elicitationId") {
		t.Errorf("it is asked %s", d.asked)
	}
	got := v.retry("confirm", `{}`, inText(d.modern.State), `{"`+d.modern.key()+`":{"action":"accept"}}`)
	states := []string{d.modern.State}
	for range 2 {
		var next stateAsked
		orFail(t, json.Unmarshal(got.result, &next))
		if next.Requests == nil || len(next.Requests) > 0 || next.State == "" || !strings.Contains(got.text, `"resultType":"input_required"`) {
			t.Fatalf("it is told %s", got)
		}
		states = append(states, next.State)
		got = v.retry("confirm", `{}`, inText(next.State), `{}`)
	}
	id := required(t, got).ID
	w.untouched(t)
	w.approve("alice", id)
	if got := v.retry("confirm", `{}`, inText(states[1]), `{}`); !got.ran() {
		t.Errorf("it came to %s", got)
	}
	for _, state := range states { // each was good for this one call
		if got := v.retry("confirm", `{}`, inText(state), `{}`); got.code() == 0 {
			t.Errorf("once more: %s", got)
		}
	}
	w.reached("confirm", `{}`)
	for _, nothing := range []string{`{"action":"decline"}`, saysNothing} { // the page was not opened: that says nothing of the call
		d := v.dialogue("confirm", `{"n":1}`)
		d.answer(v, nothing)
		if id := required(t, d.end()).ID; w.approval(id).Status != "pending" {
			t.Errorf("%s decides", nothing)
		}
	}
}

// One of two has said yes by the form: the other is waited for.
func TestApproveModernQuorum(t *testing.T) {
	t.Parallel()
	w := newPeople(t, land{})
	v := w.client("modern")
	d := v.dialogue("pair", `{"n":1}`)
	d.answer(v, saysYes)
	id := w.asks("pair")
	mcptest.Until(t, "alice has voted", func() bool { return len(w.votes(id)) == 1 })
	w.untouched(t)
	w.approve("noah", id)
	if got := d.end(); !got.ran() {
		t.Errorf("it came to %s", got)
	}
	w.reached("pair", `{"n":1}`)

	d = v.dialogue("pair", `{"n":2}`)
	d.answer(v, saysYes)
	id = w.asks("pair")
	mcptest.Until(t, "alice has voted", func() bool { return len(w.votes(id)) == 1 })
	w.deny("noah", id, "not today")
	if got := d.end(); got.kind() != "authorization_denied" {
		t.Errorf("it came to %s", got)
	}
	w.reached("pair", `{"n":1}`)
}

// Who has voted is shown nothing more: an equal call waits with the first.
func TestApproveModernVoted(t *testing.T) {
	t.Parallel()
	w := newPeople(t, land{change: askedBy(100*time.Millisecond, "form", "url", "wait")})
	v := w.client("modern")
	d := v.dialogue("pair", `{}`)
	d.answer(v, saysYes)
	id := required(t, d.end()).ID
	if again := required(t, v.call("pair", `{}`)).ID; again != id {
		t.Errorf("it is %s, and then %s", id, again)
	}
	w.approve("mia", id)
	if got := v.call("pair", `{}`); !got.ran() {
		t.Errorf("it came to %s", got)
	}
	w.reached("pair", `{}`)
}

// Where a form is none for the person behind the token, none is shown, and what their client says by itself decides nothing.
func TestApproveModernSecondPerson(t *testing.T) {
	t.Parallel()
	w := newPeople(t, land{})
	over := w.client("modern").ahead("second-person", `{"n":1}`)
	w.approve("mia", w.asks("second-person"))
	if got := <-over; !got.ran() {
		t.Errorf("it came to %s", got)
	}
	w.reached("second-person", `{"n":1}`)
}

// A person who changes arguments in a review has approved nothing, and the call with the other ones is another call.
func TestApproveModernChangedArguments(t *testing.T) {
	t.Parallel()
	w := newPeople(t, land{})
	v := w.client("modern")
	d := v.dialogue("review", `{"amount":100,"to":"mia","tags":["a"]}`)
	d.answer(v, `{"action":"accept","content":{"approve":true,"arguments.amount":50,"arguments.to":"mia","arguments.tags":"[\"a\"]"}}`)
	got := d.end()
	var said struct {
		IsError           bool `json:"isError"`
		StructuredContent struct {
			Type      string         `json:"type"`
			Suggested jsontext.Value `json:"suggested"`
		} `json:"structuredContent"`
	}
	if err := json.Unmarshal(got.result, &said); err != nil || !said.IsError || said.StructuredContent.Type != "arguments_changed" {
		t.Fatalf("it came to %s", got)
	}
	suggested := string(said.StructuredContent.Suggested)
	if suggested != `{"amount":50,"tags":["a"],"to":"mia"}` {
		t.Errorf("it suggests %s", suggested)
	}
	w.untouched(t)
	if all := w.approvals("review"); len(all) != 1 || all[0].Status != "cancelled" || len(all[0].Said) != 0 {
		t.Errorf("on record is %v", all)
	}
	d = v.dialogue("review", suggested)
	d.answer(v, `{"action":"accept","content":{"approve":true,"arguments.amount":50,"arguments.to":"mia","arguments.tags":"[\"a\"]"}}`)
	if got := d.end(); !got.ran() {
		t.Errorf("as suggested: %s", got)
	}
	w.reached("review", suggested)
}

// A tool that promises what its structured content is like keeps that promise: there are clients that take nothing else, also
// of an error. What a person would rather have is in the text.
func TestApproveModernAndLegacyChangedAsPromised(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			w := newPeople(t, land{answers: mcptest.Answers{Tools: `[{"name":"review","inputSchema":{"type":"object"},"outputSchema":{"type":"object","required":["sent"]}}]`}})
			v := w.client(era)
			d := v.dialogue("review", `{"amount":100}`)
			d.answer(v, `{"action":"accept","content":{"approve":true,"arguments.amount":50}}`)
			got := d.end()
			if text := string(got.result); !strings.Contains(text, `"isError":true`) || !strings.Contains(text, `{\"amount\":50}`) || strings.Contains(text, "structuredContent") {
				t.Errorf("it came to %s", got)
			}
			w.untouched(t)
		})
	}
}

// What a person is shown masked they have not changed: who says yes twice where another must say it, too, has nothing taken
// back, and who changes something else has the rest suggested as it was.
func TestApproveModernMasked(t *testing.T) {
	t.Parallel()
	w := newPeople(t, land{change: hasten, files: map[string]string{
		"obligations.yaml": peopleObligations + `
both: {type: approval_required, properties: {template: pair, message: "m", timeout: 10m, quorum: 2, form: review}}
`, "both.cedar": `@id("both") @obligation("both") permit (principal, action == Action::"tool.invoke", resource == tool::"rec:never");`}})
	v := w.client("modern")
	const arguments = `{"n":1,"password":"hunter2"}`
	d := v.dialogue("never", arguments)
	var masked string
	if orFail(t, json.Unmarshal(d.form()["arguments.password"], &struct {
		Default *string `json:"default"`
	}{&masked})); !strings.HasPrefix(masked, "hidden: 7 bytes (masked:") {
		t.Fatalf("it is shown %q", masked)
	}
	says := func(n string) string {
		return `{"action":"accept","content":{"approve":true,"arguments.n":` + n + `,"arguments.password":` + inText(masked) + `}}`
	}
	id := w.asks("never")
	for range 2 {
		if got := d.repeats(v, `{"`+d.modern.key()+`":`+says("1")+`}`); got.code() != -32001 {
			t.Errorf("one of two has said yes: %s", got)
		}
	}
	if got := w.approval(id); got.Status != "pending" || len(got.Said) != 1 {
		t.Errorf("it is %s: %v", got.Status, got.Said)
	}
	w.approve("mia", id)
	if got := d.repeats(v, `{}`); !got.ran() {
		t.Errorf("two of two: %s", got)
	}
	w.reached("never", arguments)

	d = v.dialogue("review", arguments)
	if got := d.repeats(v, `{"`+d.modern.key()+`":`+says("2")+`}`); !strings.Contains(string(got.result), `"suggested":{"n":2,"password":"hunter2"}`) {
		t.Errorf("it came to %s", got)
	}
}

// People approve a call of a tool as it was then. If it changes, what they were asked counts for nothing, and a state that is
// refused for it is good again when the tool is what it was.
func TestApproveModernChangedTool(t *testing.T) {
	t.Parallel()
	var tools atomic.Value
	tool := func(says string) string {
		return `[{"name":"confirm","description":"` + says + `","inputSchema":{"type":"object"}}]`
	}
	tools.Store(tool("one"))
	answers := mcptest.Answers{Eras: []string{"legacy"}, Tools: tool("one"), Handle: func(c *mcptest.Call) bool {
		if c.Method != "tools/list" {
			return false
		}
		c.Result(`{"tools":` + tools.Load().(string) + `}`)
		return true
	}}
	w := newPeople(t, land{answers: answers, change: func(c *mcp.Config) { c.List.Cache = time.Millisecond }})
	v := w.client("modern")
	listed := func(says string) {
		t.Helper()
		tools.Store(tool(says))
		mcptest.Until(t, "the tool says "+says, func() bool { return strings.Contains(v.ask("tools/list", `{}`).text, `"`+says+`"`) })
	}
	d := v.dialogue("confirm", `{}`)
	listed("another")
	if got := d.repeats(v, `{"`+d.modern.key()+`":`+saysYes+`}`); got.code() != -32602 {
		t.Errorf("another tool: %s", got)
	}
	id := w.asks("confirm")
	if got := w.votes(id); len(got) > 0 {
		t.Errorf("what was answered about the tool before counts: %q", got)
	}
	if len(w.forwarded("confirm")) > 0 {
		t.Error("it was called")
	}
	listed("one")
	if got := d.repeats(v, `{"`+d.modern.key()+`":`+saysYes+`}`); !got.ran() {
		t.Errorf("the tool that people were asked about: %s", got)
	}
	w.reached("confirm", `{}`)
}

// Equal calls wait for one answer. It counts once; the others are told to send theirs again, and then people are asked anew.
func TestApproveModernEqualCalls(t *testing.T) {
	t.Parallel()
	const calls = 8
	tap := newWiretap(t)
	w := newPeople(t, land{replicas: 2, before: tap.before, serve: tap.serve})
	var filed atomic.Int64
	tap.answers(func(rw http.ResponseWriter, r *http.Request, _ []byte) bool {
		if !submits(r) {
			return false
		}
		tap.proxy.ServeHTTP(rw, r)
		filed.Add(1)
		return true
	})
	over := make(chan echo, calls)
	for n := range calls {
		v := w.replicas[n%2].visitor(eras[n/2%2], nil)
		go func() { over <- v.call("second-person", `{"n":1}`) }()
	}
	mcptest.Until(t, "all have people asked", func() bool { return filed.Load() == calls }) // who comes after the use would have them asked anew
	id := w.asks("second-person")
	w.approve("mia", id)
	ran := 0
	for range calls {
		switch got := <-over; {
		case got.ran():
			ran++
		case !strings.Contains(got.text, "send the call again") && !strings.Contains(got.text, "retry after"):
			t.Errorf("it came to %s", got)
		}
	}
	if ran != 1 {
		t.Errorf("%d calls went on", ran)
	}
	w.reached("second-person", `{"n":1}`)
}

// A server that asks for input after the approval was used gets what it asks for, round by round, and nobody is asked again.
// Each round counts once.
func TestApproveModernContinues(t *testing.T) {
	t.Parallel()
	for name, up := range askers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answers := new(asker).answers(up.era)
			w := newPeople(t, land{files: withRounds, replicas: 1, answers: answersOf(answers), change: func(c *mcp.Config) {
				relays(c)
				c.Approvals.Channels = []string{"wait"}
			}})
			v := w.client("modern")
			over := v.ahead("confirm", `{"n":1}`)
			id := w.asks("confirm")
			w.approve("alice", id)
			asked := stateOf(t, <-over)
			again := asked
			if up.era == "legacy" { // what brings no answer is a round, too
				again = stateOf(t, v.retry("confirm", `{"n":1}`, inText(asked.State), `{}`))
			}
			answer := `{"` + again.key() + `":` + accepted + `}`
			done := make(chan echo, 8)
			for range cap(done) {
				go func() { done <- v.retry("confirm", `{"n":1}`, inText(again.State), answer) }()
			}
			ran := 0
			for range cap(done) {
				if got := <-done; got.ran() && strings.Contains(got.text, "x-answer") {
					ran++
				}
			}
			if ran != 1 {
				t.Errorf("one round went on %d times", ran)
			}
			if got := v.retry("confirm", `{"n":2}`, inText(again.State), answer); got.code() != -32602 {
				t.Errorf("another call: %s", got)
			}
			if all := w.approvals(""); len(all) != 1 || all[0].Used != 1 {
				t.Errorf("people were asked %v", all)
			}
		})
	}
}

// answersOf are the answers with the tools of a world.
func answersOf(a mcptest.Answers) mcptest.Answers {
	a.Tools = `[{"name":"confirm","inputSchema":{"type":"object"}}]`
	return a
}

// The same for a client of the legacy era, which is asked in the course of its call.
func TestApproveModernContinuesForLegacy(t *testing.T) {
	t.Parallel()
	for name, up := range askers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newPeople(t, land{files: withRounds, answers: answersOf(new(asker).answers(up.era)), change: func(c *mcp.Config) {
				relays(c)
				c.Approvals.Channels = []string{"wait"}
			}})
			v := w.client("legacy")
			approved := make(chan struct{})
			go func() {
				defer close(approved)
				w.approve("alice", w.asks("confirm"))
			}()
			d := v.dialogue("confirm", `{"n":1}`)
			<-approved
			d.answer(v, accepted)
			if got := d.end(); !got.ran() || !strings.Contains(got.text, "x-answer") {
				t.Errorf("it came to %s", got)
			}
			if all := w.approvals(""); len(all) != 1 || all[0].Used != 1 {
				t.Errorf("people were asked %v", all)
			}
		})
	}
}

// What a client brings is looked at before anybody is asked: what is no state of this very call has nobody asked, and costs the
// right one nothing.
func TestApproveModernForgeries(t *testing.T) {
	t.Parallel()
	w := newPeople(t, land{replicas: 2})
	v, elsewhere := w.client("modern"), w.replicas[1].takesForms("modern", nil)
	d, other := v.dialogue("confirm", `{"n":1}`), v.dialogue("confirm", `{"n":2}`)
	filed := len(w.approvals(""))
	answers := `{"` + d.modern.key() + `":` + saysYes + `}`
	stranger := w.replicas[0].takesForms("modern", mcptest.Claims{"sub": "mia"})
	for name, got := range map[string]echo{
		"forged":            v.retry("confirm", `{"n":3}`, `"forged"`, answers),
		"of another call":   v.retry("confirm", `{"n":1}`, inText(other.modern.State), answers),
		"of another tool":   v.retry("brief", `{"n":1}`, inText(d.modern.State), answers),
		"of alice":          stranger.retry("confirm", `{"n":1}`, inText(d.modern.State), answers),
		"the key":           v.retry("confirm", `{"n":1}`, inText(d.modern.key()), answers),
		"other arguments":   v.retry("confirm", `{"n":3}`, inText(d.modern.State), answers),
		"no state":          v.ask("tools/call", `{"name":"confirm","arguments":{"n":4},"inputResponses":`+answers+`}`),
		"answers of none":   v.ask("tools/call", `{"name":"confirm","arguments":{"n":5},"inputResponses":5}`),
		"to another method": v.ask("prompts/get", `{"name":"confirm","requestState":`+inText(d.modern.State)+`}`),
	} {
		if got.code() == 0 {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := len(w.approvals("")); got != filed {
		t.Errorf("%d more were filed", got-filed)
	}
	w.untouched(t)
	d.answer(elsewhere, saysYes)
	if got := d.end(); !got.ran() {
		t.Errorf("the right one: %s", got)
	}
	w.reached("confirm", `{"n":1}`)
}

// Who has as many calls that wait as may is refused, and nobody is asked.
func TestApproveModernLimits(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*mcp.Config){
		"each": func(c *mcp.Config) { c.Approvals.PerPrincipal = 2 },
		"all":  func(c *mcp.Config) { c.Approvals.PerPrincipal, c.Approvals.Waiting = 2, 2 },
	} {
		t.Run(name, func(t *testing.T) {
			w := newPeople(t, land{change: func(c *mcp.Config) {
				change(c)
				c.Limits.PerPrincipal.Concurrent = 1
			}})
			v := w.plain("modern")
			var over []<-chan echo
			for n := range 2 { // who waits is in nobody's way
				over = append(over, v.ahead("confirm", fmt.Sprintf(`{"n":%d}`, n)))
				mcptest.Until(t, "it waits", func() bool { return len(w.approvals("confirm")) == n+1 })
			}
			other := v
			if name == "all" {
				other = w.visitor("modern", mcptest.Claims{"sub": "mia"})
			}
			mcptest.Until(t, "there is a place to ask from", func() bool { return other.call("free", `{}`).ran() })
			if got := other.call("confirm", `{"n":2}`); got.kind() != "rate_limited" || !strings.Contains(got.text, "retry_after") {
				t.Errorf("one more: %s", got)
			}
			for _, a := range w.approvals("confirm") {
				w.approve("alice", a.ID)
			}
			for _, one := range over {
				if got := <-one; !got.ran() {
					t.Errorf("it came to %s", got)
				}
			}
			if got := len(w.approvals("")); got != 2 {
				t.Errorf("people were asked %d times", got)
			}
		})
	}
}

// A client that goes away leaves people asked, or has it taken back if the operator wants that and nobody else in the process
// waits for the same. What is approved then is nobody's call, until it is sent again.
func TestApproveModernGone(t *testing.T) {
	t.Parallel()
	for on, want := range map[mcp.OnDisconnect]string{mcp.DisconnectKeep: "pending", mcp.DisconnectCancel: "cancelled"} {
		for _, era := range eras {
			t.Run(string(on)+", "+era, func(t *testing.T) {
				meter, deps := metered()
				w := newPeople(t, land{deps: deps, change: func(c *mcp.Config) { c.Approvals.OnDisconnect = on }})
				v := w.plain(era)
				ctx, gone := context.WithCancel(t.Context())
				params := `{"name":"confirm","arguments":{"n":1}}`
				over := make(chan error, 1)
				go func() {
					_, err := v.try(ctx, http.MethodPost, v.text("tools/call", params), v.headers("tools/call", params)...)
					over <- err
				}()
				id := w.asks("confirm")
				other := w.plain(era).ahead("confirm", `{"n":1}`)
				mcptest.Until(t, "two wait", func() bool { return waitingIn(meter) == 2 })
				gone()
				if err := <-over; err == nil {
					t.Error("it was answered")
				}
				mcptest.Until(t, "one waits", func() bool { return waitingIn(meter) == 1 })
				if got := w.approval(id).Status; got != "pending" {
					t.Errorf("it is %s, and another waits for it", got)
				}
				w.approve("alice", id)
				if got := <-other; !got.ran() {
					t.Errorf("it came to %s", got)
				}

				ctx, gone = context.WithCancel(t.Context())
				params = `{"name":"confirm","arguments":{"n":2}}`
				go func() {
					_, err := v.try(ctx, http.MethodPost, v.text("tools/call", params), v.headers("tools/call", params)...)
					over <- err
				}()
				id = w.asks("confirm")
				mcptest.Until(t, "it waits", func() bool { return waitingIn(meter) == 1 })
				gone()
				<-over
				mcptest.Until(t, "it is "+want, func() bool { return waitingIn(meter) == 0 && w.approval(id).Status == want })
				w.reached("confirm", `{"n":1}`)
			})
		}
	}
}

// A client may go away while the PDP is asked something about its call. Then what people were asked is taken back, too, where
// the operator wants that.
func TestApproveModernAndLegacyGoneMeanwhile(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			door := newDoorway(t)
			w := newPeople(t, land{
				before: func(pdp string) string { door.leadTo(pdp); return door.url },
				serve:  func(c *pdpserver.Config) { c.PublicURL = door.url },
				change: func(c *mcp.Config) { c.Approvals.OnDisconnect = mcp.DisconnectCancel },
			})
			v := w.client(era)
			asked := door.hold(false, func(r *http.Request, _ []byte) bool { return strings.HasSuffix(r.URL.Path, "/elicitation") })
			ctx, gone := context.WithCancel(t.Context())
			over := make(chan error, 1)
			params := `{"name":"confirm","arguments":{}}`
			go func() {
				_, err := v.try(ctx, http.MethodPost, v.text("tools/call", params), v.headers("tools/call", params)...)
				over <- err
			}()
			<-asked.held
			id := w.asks("confirm")
			gone()
			<-over
			mcptest.Until(t, "it is taken back", func() bool { return w.approval(id).Status == "cancelled" })
			w.untouched(t)
		})
	}
}

// A token that expires ends a wait. People go on being asked, and the next token goes on from there.
// It takes as long as the token lasts.
func TestApproveModernExpired(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			w := newPeople(t, land{change: func(c *mcp.Config) { c.Approvals.OnDisconnect = mcp.DisconnectCancel }})
			v := w.visitor(era, mcptest.Claims{"exp": time.Now().Add(3 * time.Second).Unix()})
			id := required(t, v.call("confirm", `{}`)).ID
			if got := w.approval(id).Status; got != "pending" {
				t.Errorf("it is %s", got)
			}
			w.untouched(t)
			w.approve("alice", id)
			if got := w.plain(era).call("confirm", `{}`); !got.ran() {
				t.Errorf("with the next: %s", got)
			}
			w.reached("confirm", `{}`)
		})
	}
}

// If the PDP is away nothing is approved, whatever the client answers, and nothing goes on.
func TestApproveModernWithoutPDP(t *testing.T) {
	t.Parallel()
	w := newPeople(t, land{change: askedBy(100*time.Millisecond, "form", "wait")})
	v := w.client("modern")
	d := v.dialogue("confirm", `{}`)
	orFail(t, w.pdp.Stop(context.Background()))
	d.answer(v, saysYes)
	if got := d.end(); got.code() != -32603 || !strings.Contains(got.text, "retry_after") {
		t.Errorf("it came to %s", got)
	}
	w.untouched(t)
}

// A server that has learnt by what name a form is answered cannot ask by it: what is answered to a server is no approval.
func TestApproveModernNamesOfOurs(t *testing.T) {
	t.Parallel()
	var ours atomic.Value
	w := newPeople(t, land{files: withRounds, change: relays, answers: mcptest.Answers{Eras: []string{"modern"}, Handle: func(c *mcptest.Call) bool {
		if c.Method != "tools/call" {
			return false
		}
		c.Result(`{"resultType":"input_required","inputRequests":{` + inText(ours.Load().(string)) + `:{"method":"elicitation/create",` + askedForm + `}},"requestState":"theirs"}`)
		return true
	}}})
	v := w.client("modern")
	d := v.dialogue("confirm", `{}`)
	for name, want := range map[string]int{"theirs": 0, d.modern.key(): -32603} {
		ours.Store(name)
		d := v.dialogue("confirm", `{}`)
		d.answer(v, saysYes)
		if got := d.end(); got.code() != want {
			t.Errorf("a form by the name %q: %s", name, got)
		}
	}
}

// What one person has asked for keeps nobody else from asking, though both use the same agent; and by another agent the
// person has no more. Whoever has asked too often is told so, and when to try again.
func TestApprovalsAskedByOnePersonKeepNobodyElse(t *testing.T) {
	t.Parallel()
	w := newPeople(t, land{
		serve:  func(c *pdpserver.Config) { c.Approvals.MaxPendingPerSubject = 2 },
		change: func(c *mcp.Config) { c.Approvals.Channels, c.Approvals.Wait = []string{"wait"}, 100*time.Millisecond },
	})
	for n := range 2 {
		if got := w.visitor("modern", mcptest.Claims{"sub": "mallory"}).call("confirm", fmt.Sprintf(`{"n":%d}`, n)); got.kind() == "rate_limited" {
			t.Fatalf("%s", got)
		}
	}
	for _, era := range eras {
		for _, client := range []string{"agent-1", "agent-2"} {
			got := w.visitor(era, mcptest.Claims{"sub": "mallory", "client_id": client}).call("confirm", `{"n":"`+era+client+`"}`)
			if got.kind() != "rate_limited" || got.code() != -32001 || retryAfter(got) < 1 {
				t.Errorf("%s, %s: %s", era, client, got)
			}
		}
	}
	before := len(w.approvals("confirm"))
	if got := w.visitor("modern", mcptest.Claims{"sub": "bob"}).call("confirm", `{"n":7}`); got.kind() == "rate_limited" || len(w.approvals("confirm")) != before+1 {
		t.Errorf("another person: %s", got)
	}
}
