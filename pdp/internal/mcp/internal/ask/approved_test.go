package ask_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
	"policy-service/pdp/internal/mcp/internal/ask"
	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/pdptest/mcptest"
)

// From the deny to the call that goes on twice, each question is the PDP's to answer, and each yes is for one call.
func TestApprovedCall(t *testing.T) {
	t.Parallel()
	o := people(t)
	op := o.call(alice(t), o.a, `{"target":"production","n":null}`)
	w, s := o.files(op)
	id, task := s.Approvals()[0], s.Task().ID()
	if !s.Pending() || id == "" || id == task {
		t.Fatalf("%v, %q", s, id)
	}
	ends := o.Now().Add(10 * time.Minute).Format(time.RFC3339)
	want := `{"code":-32001,"message":"Authorization required: a person must approve this call. Send the same call again: it runs once the approval request ` +
		id + ` is approved, which can be until ` + ends + `","data":{"type":"tool_call_blocked","reason":"a person must approve this call","suggestion":"send the call again",` +
		`"authorizationRequest":{"id":"` + id + `","tool":"shown__a","arguments":{"target":"production","n":null},"requester":"orchestrator",` +
		`"reason":"a person must approve this call","expiresAt":"` + ends + `"}}}`
	if got := w.Required(s); string(got.Failure(rpc.IntID(1)).Error) != want || got.Kind != ask.Denied || got.Wanted != nil {
		t.Errorf("got  %s\nwant %s", got.Failure(rpc.IntID(1)).Error, want)
	}
	// An equal call joins, and so does another gateway; with other members in another order it is equal.
	if _, other := o.files(o.call(alice(t), o.a, `{"n":null,"target":"\u0070roduction"}`)); other.Task().ID() != task {
		t.Errorf("%s does not join %s", other.Task().ID(), task)
	}
	if _, other := o.files(o.call(alice(t), o.a, `{"target":"production"}`)); other.Task().ID() == task {
		t.Error("another call joins") // null is not absent
	}
	o.says("approve", s)
	// The state that a client keeps is the task alone; the repetition says the call.
	repeated, refusal := o.Wanted(t.Context(), op)
	if refusal != nil {
		t.Fatal(refusal)
	}
	if _, refusal := repeated.Ask(t.Context()); refusal == nil || refusal.Kind != ask.Unavailable {
		t.Errorf("of a repetition people are asked by what nobody denied: %+v", refusal)
	}
	s, err := approvals.Look(t.Context(), repeated.PDP(), moved(t, s))
	o.must(err)
	if !s.Approved() || s.Approvals()[0] != id {
		t.Fatalf("%v, %v", s, s.Approvals())
	}
	if _, again := o.files(op); !again.Approved() || again.Task().ID() != task {
		t.Errorf("an equal call does not find the approval: %v", again)
	}
	o.taken()
	op.Answered.Standing = &s
	permit := o.permit(op)
	if bodies := o.taken(); len(bodies) != 1 || !strings.Contains(bodies[0], `"approval":{"id":"`+id) || !strings.Contains(bodies[0], `"target":"production"`) {
		t.Errorf("asked %q", bodies)
	}
	for round := range 3 {
		op = goesOn(t, permit, op)
		if permit = o.permit(op); !strings.Contains(o.taken()[0], `"continues":{"decision":"`) {
			t.Errorf("round %d", round)
		}
		if o.forwards(op) {
			t.Errorf("round %d goes on twice", round)
		}
		o.taken()
	}
	plain := o.call(alice(t), o.a, `{"free":1}`)
	if _, ok := o.permit(plain).Continuation(); ok {
		t.Error("a permit that rests on no approval goes on")
	}
	if _, ok := (&ask.Permit{}).Continuation(); ok {
		t.Error("the zero permit goes on")
	}
}

// moved is the task of s, after it was written and read.
func moved(t *testing.T, s approvals.Standing) (task approvals.Task) {
	t.Helper()
	text, err := json.Marshal(s.Task())
	must(t, err)
	must(t, json.Unmarshal(text, &task))
	return task
}

// Of people's no, and of every other end, the client learns by the code of its era, and the reason is one line of data.
func TestApprovedNot(t *testing.T) {
	t.Parallel()
	for _, mode := range []ask.Errors{ask.ErrorsCOAZ, ask.ErrorsSEP, ask.ErrorsMCPX} {
		o := people(t, func(options *ask.Options) { options.Errors, options.DenyStatus = mode, 403 })
		for name, test := range map[string]struct {
			ends   func(w *ask.Wanted, s approvals.Standing)
			reason string
			again  bool // whether people have said nothing, so that the call can be sent again
		}{
			"denied": {func(_ *ask.Wanted, s approvals.Standing) { o.says("deny", s) }, "not on a Sunday", false},
			"no reason": {func(_ *ask.Wanted, s approvals.Standing) {
				o.does("decision", `{"decision":"deny","reason":"\u202e \u200b"}`, s)
			}, "a person said no", false},
			"expired":   {func(*ask.Wanted, approvals.Standing) { o.Advance(10 * time.Minute) }, "nobody decided in time", false},
			"cancelled": {func(w *ask.Wanted, s approvals.Standing) { o.must(approvals.Cancel(t.Context(), w.PDP(), s.Task())) }, "an equal call that has ended took back what people were asked", true},
		} {
			for _, e := range []era.Era{era.Legacy, era.Modern} {
				op := o.call(alice(t), o.a, `{"case":"`+name+" "+e.String()+`"}`)
				op.Era = e
				w, s := o.files(op)
				id := s.Approvals()[0]
				test.ends(w, s)
				for until := time.Now().Add(time.Minute); s.Pending() && time.Now().Before(until); s = o.look(w, s) { // the PDP ends it in its own time
				}
				got := w.Denied(s)
				d := told(t, got)
				code := map[ask.Errors]int{ask.ErrorsSEP: -32401, ask.ErrorsMCPX: -32002}[mode]
				if code == 0 || mode == ask.ErrorsMCPX && e == era.Modern {
					code = -32001
				}
				message, typ, suggestion := "Authorization denied", "authorization_denied", ""
				if test.again {
					next := test.reason + ". Send the same call again to have people asked anew; the approval was " + id
					message, typ, suggestion = "Authorization required: "+next, "tool_call_blocked", "send the call again"
					if mode == ask.ErrorsMCPX {
						message, suggestion = "Authorization required", next
					}
					if code == -32002 {
						code = -32001
					}
				}
				if got.Code != code || got.Message != message || got.Status != 403 || got.Kind != ask.Denied {
					t.Errorf("%s, %s, %s: %d %s, status %d", mode, name, e, got.Code, got.Message, got.Status)
				}
				if d.Type != typ || d.Reason != test.reason || d.AuthorizationID != id || d.Suggestion != suggestion {
					t.Errorf("%s, %s, %s: %+v, want the reason %q and the id %s", mode, name, e, d, test.reason, id)
				}
				op.Answered.Standing = &s
				if o.taken(); o.forwards(op) || len(o.taken()) != 0 {
					t.Errorf("%s, %s: it is asked about as approved", mode, name)
				}
			}
		}
	}
}

// An approval that the PDP has not settled yet, and a next round of one, are refused for a reason of their own, and permit nothing.
func TestApprovedPending(t *testing.T) {
	t.Parallel()
	for _, mode := range []ask.Errors{ask.ErrorsCOAZ, ask.ErrorsSEP, ask.ErrorsMCPX} {
		o := people(t, func(options *ask.Options) { options.Errors = mode })
		for _, e := range []era.Era{era.Legacy, era.Modern} {
			call := o.call(alice(t), o.a, `{"case":"`+e.String()+`"}`)
			call.Era = e
			use := o.approved(call)
			went := o.call(alice(t), o.a, `{"went":"`+e.String()+`"}`)
			went.Era = e
			went = o.approved(went)
			round := goesOn(t, o.permit(went), went)
			for name, op := range map[string]ask.Operation{"use": use, "round": round} {
				for context, after := range map[string]int{
					`"reason":"grant_pending","next_action":"retry","retry_after":7`: 7,
					`"reason":"grant_pending"`:                                       5, // by the reason alone
				} {
					over := o.meanwhile(func(r *http.Request, _ func() (*http.Response, error)) (*http.Response, error) {
						return says(r, `{"decision":false,"context":{`+context+`}}`), nil
					})
					_, got := o.outcome(op)
					over()
					d := told(t, got)
					code := map[ask.Errors]int{ask.ErrorsSEP: -32401}[mode]
					if code == 0 {
						code = -32001
					}
					if got.Code != code || got.Kind != ask.Pending || got.Undecided != "" || got.Wanted != nil {
						t.Errorf("%s, %s, %s: %+v", mode, e, name, got)
					}
					again := fmt.Sprintf("send the same call again after %d s", after)
					if d.Type != "tool_call_blocked" || d.Reason != "grant_pending" || d.RetryAfter != after ||
						!strings.HasSuffix(got.Words, again) || mode == ask.ErrorsMCPX && !strings.HasSuffix(d.Suggestion, again) || mode != ask.ErrorsMCPX && d.Suggestion != "send the call again" {
						t.Errorf("%s, %s, %s: %+v, %s", mode, e, name, d, got.Words)
					}
					if name == "use" && d.AuthorizationID != op.Answered.Standing.Approvals()[0] {
						t.Errorf("%s, %s: %+v", mode, e, d)
					}
				}
				if !o.forwards(op) {
					t.Errorf("%s, %s: %s is lost", mode, e, name)
				}
			}
		}
	}
}

// A call that people cannot be asked about has no Wanted, and no word of theirs counts for it: nothing is asked then.
func TestApprovedNobody(t *testing.T) {
	t.Parallel()
	declared := func(action string) string {
		return `{"evaluation":{"subject":{"type":"identity","id":"$token.sub"},"action":{"name":"` + action + `"},"resource":{"type":"public","id":"1"},"context":{"arguments":"$params.arguments"}}}`
	}
	coaz := func(o *ask.Options) { o.Ask = ask.COAZ }
	operator := func(context string) func(*ask.Options) {
		return func(o *ask.Options) {
			o.Mappings = mapped(t, map[string]string{"tools/call": `{"evaluation":{"subject":{"type":"user","id":"$token.sub"},"action":{"name":"own"},"resource":{"type":"tool","id":"x"},"context":` + context + `}}`})
		}
	}
	person := `"person":"` + evaluation.PersonOf("https://idp.example.com", "alice") + `"`
	for name, test := range map[string]struct {
		set   func(*ask.Options)
		tool  string
		asked bool
	}{
		"ours":                   {func(*ask.Options) {}, plainTool, true},
		"by the tool's name":     {func(o *ask.Options) { o.Ask = ask.ToolInvoke }, plainTool, true},
		"the binding's":          {coaz, plainTool, true},
		"by its letter":          {func(o *ask.Options) { o.Ask, o.Strict = ask.COAZ, true }, plainTool, false},
		"declared, beside":       {func(*ask.Options) {}, declares("a", declared("read")), true},
		"declared alone":         {func(o *ask.Options) { o.Declared = ask.Instead }, declares("a", declared("asks")), false},
		"declared wants it":      {func(*ask.Options) {}, declares("a", declared("asks")), false},
		"operator, whole":        {operator(`{"arguments":"$params.arguments",` + person + `}`), plainTool, false},
		"operator, nobody":       {operator(`{"arguments":"$params.arguments"}`), plainTool, false},
		"operator, no arguments": {operator(`{` + person + `}`), plainTool, false},
	} {
		o := people(t, test.set)
		op := o.call(alice(t), o.tool(test.tool, nil), `{"n":1}`)
		got, refusal := o.outcome(op)
		if refusal == nil || (refusal.Wanted != nil) != test.asked {
			t.Errorf("%s: %s", name, got)
			continue
		}
		if strings.Contains(got, `"id"`) {
			t.Errorf("%s has an id that nobody filed: %s", name, got)
		}
		plan, _ := o.Plan(t.Context(), op)
		wanted, none := o.Wanted(t.Context(), op)
		whole := name != "declared wants it" && test.asked || name == "declared wants it" // the trusted question would be
		if plan.Whole(plan.Len()-1) != whole || (wanted != nil) != whole || (none == nil) != whole {
			t.Errorf("%s: whole %v, %v, %v", name, plan.Whole(plan.Len()-1), wanted, none)
		}
		if o.taken(); whole {
			continue
		}
		other := people(t) // whose approval is good, if it were for this
		approved := other.approved(other.call(alice(t), other.a, `{"n":1}`))
		op.Answered = approved.Answered
		if o.forwards(op) || len(o.taken()) != 0 {
			t.Errorf("%s: asked with an approval", name)
		}
		op.Answered = goesOn(t, other.permit(approved), op).Answered
		if o.forwards(op) || len(o.taken()) != 0 {
			t.Errorf("%s: asked as the next round", name)
		}
	}
	o := people(t)
	approved := o.approved(o.call(alice(t), o.a, `{}`))
	after := goesOn(t, o.permit(o.approved(o.call(alice(t), o.a, `{"n":1}`))), approved)
	both := approved
	both.Answered.Continues = after.Answered.Continues
	zero, none := approved, approved
	zero.Answered = ask.Answered{Standing: &approvals.Standing{}}
	none.Answered = ask.Answered{Continues: &authzenclient.Continuation{}}
	ping := request(alice(t), "ping", `{}`)
	ping.Answered = approved.Answered
	list := request(alice(t), "resources/read", `{"uri":"x"}`)
	list.Answered = approved.Answered
	o.taken()
	for name, op := range map[string]ask.Operation{"both": both, "zero": zero, "zero round": none, "nothing is asked": ping, "no call": list} {
		if o.forwards(op) || len(o.taken()) != 0 {
			t.Errorf("%s is asked", name)
		}
	}
	if !o.forwards(approved) {
		t.Error("the approval is lost")
	}
}

// An approval is for one call of one principal, one tool and its definition, and once. An attempt that does not count spends nothing.
func TestApprovedOther(t *testing.T) {
	t.Parallel()
	for _, form := range []ask.Ask{ask.ToolInvoke, ask.COAZ} {
		o := people(t, func(options *ask.Options) { options.Ask = form })
		agent := alice(t)
		agent.Client, agent.Agent.ID = "other", "other"
		agent.Claims = parsed(t, `{"client_id":"other"}`).Beside(agent.Claims)
		person := alice(t)
		person.Person = evaluation.PersonOf("https://idp.example.com", "bob")
		good := o.approved(o.call(alice(t), o.a, `{"to":"x"}`))
		for name, op := range map[string]ask.Operation{
			"arguments":  o.call(alice(t), o.a, `{"to":"y"}`),
			"none":       o.call(alice(t), o.a, ``),
			"more":       o.call(alice(t), o.a, `{"to":"x","b":null}`),
			"agent":      o.call(agent, o.a, `{"to":"x"}`),
			"person":     o.call(person, o.a, `{"to":"x"}`),
			"definition": o.call(alice(t), o.tool(`{"name":"a","description":"Now it deletes.","inputSchema":{}}`, nil), `{"to":"x"}`),
		} {
			op.Answered = good.Answered
			got, refusal := o.outcome(op)
			if refusal == nil || refusal.Wanted != nil || refusal.Kind != ask.Denied {
				t.Errorf("%s, another %s: %s", form, name, got)
			}
		}
		if form == ask.ToolInvoke {
			op := o.call(alice(t), o.a, `{"to":"x"}`, `,"_meta":{"io.policy-service/purpose":"another"}`)
			op.Answered = good.Answered
			if o.forwards(op) {
				t.Error("another purpose is permitted")
			}
		}
		if !o.forwards(good) {
			t.Errorf("%s: the approval is lost", form)
		}
		_, refusal := o.outcome(good)
		if d := told(t, refusal); refusal.Code != -32001 || d.Suggestion != "send the call again" || refusal.Wanted != nil || d.AuthorizationID == "" {
			t.Errorf("used up by an equal call: %+v", d)
		}
		// Sent again, people are asked anew.
		plain := good
		plain.Answered = ask.Answered{}
		if _, s := o.files(plain); !s.Pending() {
			t.Errorf("sent again: %v", s)
		}
	}
}

// An approval that ends between a person's yes and its use is refused with the reason.
func TestApprovedThenNot(t *testing.T) {
	t.Parallel()
	o := people(t)
	ready := func(arguments string) ask.Operation { return o.approved(o.call(alice(t), o.a, arguments)) }
	refused := func(name string, op ask.Operation, code int, typ, reason, suggestion string) {
		t.Helper()
		got, refusal := o.outcome(op)
		if refusal == nil {
			t.Fatalf("%s: %s", name, got)
		}
		if d := told(t, refusal); refusal.Code != code || refusal.Wanted != nil || d.Type != typ || d.Reason != reason || d.Suggestion != suggestion {
			t.Errorf("%s: %s", name, got)
		}
	}
	revoked := ready(`{"n":"revoked"}`)
	o.does("revoke", `{"reason":"changed my mind"}`, *revoked.Answered.Standing)
	refused("revoked", revoked, -32001, "authorization_denied", "an approver took it back", "")

	used := ready(`{"n":"revoked between rounds"}`)
	next := goesOn(t, o.permit(used), used)
	refused("used up", used, -32001, "tool_call_blocked", "the approval does not count any more: an equal call has used it, its time is up, or an approver took it back", "send the call again")
	o.Advance(15 * time.Minute)
	refused("too late to go on", next, -32001, "authorization_denied", "the approval has ended", "")

	ended := ready(`{"n":"ended"}`)
	o.Advance(5 * time.Minute)
	refused("its time is up", ended, -32001, "tool_call_blocked", "the approval does not count any more: an equal call has used it, its time is up, or an approver took it back", "send the call again")

	// The policies that decide are those of now: here the tool says meanwhile that it is another.
	frozen := ready(`{"n":"frozen"}`)
	op := o.call(alice(t), o.a, `{"n":"frozen","frozen":1}`)
	op.Answered = frozen.Answered
	refused("denied by policy", op, -32001, "tool_call_blocked", "frozen", "")
}

// If the declared question denies, the approval is not used, and it is still there when it permits.
func TestApprovedDeclaredFirst(t *testing.T) {
	t.Parallel()
	o := people(t)
	declared := func(action string) ask.Operation {
		return o.call(alice(t), o.tool(declares("a", `{"evaluation":{"subject":{"type":"identity","id":"$token.sub"},"action":{"name":"$params.arguments.action"},"resource":{"type":"public","id":"1"}}}`), nil), `{"action":"`+action+`"}`)
	}
	op := o.approved(declared("read"))
	never := declared("never")
	never.Answered = op.Answered
	o.taken()
	if got, refusal := o.outcome(never); refusal == nil || !strings.Contains(got, "that one never") {
		t.Errorf("%s", got)
	}
	if bodies := o.taken(); len(bodies) != 1 || strings.Contains(bodies[0], `"approval"`) {
		t.Errorf("asked %q", bodies)
	}
	if !o.forwards(op) {
		t.Error("the approval is lost")
	}
	if bodies := o.taken(); len(bodies) != 2 || strings.Contains(bodies[0], `"approval"`) || !strings.Contains(bodies[1], `"approval"`) {
		t.Errorf("asked %q", bodies)
	}
	op = o.approved(declared("read"))
	op = goesOn(t, o.permit(op), op)
	o.taken()
	never.Answered = op.Answered
	if o.forwards(never) || len(o.taken()) != 1 {
		t.Error("what the server's question denies goes on")
	}
	if !o.forwards(op) {
		t.Error("the next round is lost")
	}
	if bodies := o.taken(); len(bodies) != 2 || strings.Contains(bodies[0], `"approval"`) || !strings.Contains(bodies[1], `"continues"`) {
		t.Errorf("asked %q", bodies)
	}
}

// The PDP's obligations are owed also where people have approved.
func TestApprovedOwes(t *testing.T) {
	t.Parallel()
	o := people(t)
	op := o.approved(o.call(alice(t), o.a, `{"masked":1}`))
	p := o.permit(op)
	got, refusal := p.Result(result(`{"structuredContent":{"ssn":"123-45-6789","a":1}}`))
	if refusal != nil || string(got.Result) != `{"structuredContent":{"a":1}}` {
		t.Errorf("%s, %+v", got.Result, refusal)
	}
	p.Done(t.Context())
	if next := o.permit(goesOn(t, p, op)); next.Passes() {
		t.Error("the next round owes nothing")
	}
	if lines := o.records("receipt"); len(lines) != 1 {
		t.Errorf("%d receipts", len(lines))
	}
}

// If the PDP is away the call is refused for now, and the approval is there when it is back. If an answer is lost, the
// approval may be used: nothing is asked again, and nothing is forwarded.
func TestApprovedAway(t *testing.T) {
	t.Parallel()
	o := people(t)
	op := o.approved(o.call(alice(t), o.a, `{}`))
	w, s := o.files(o.call(alice(t), o.a, `{"n":1}`))
	away := func(name string, refusal *ask.Refusal) {
		t.Helper()
		if d := told(t, refusal); refusal.Code != -32603 || refusal.Kind != ask.Unavailable || d.RetryAfter < 1 || d.Suggestion != "retry after" {
			t.Errorf("%s: %+v, %s", name, d, refusal.Message)
		}
	}
	back := o.meanwhile(func(*http.Request, func() (*http.Response, error)) (*http.Response, error) { return nil, errCut })
	_, refusal := o.outcome(op)
	away("use", refusal)
	_, err := approvals.Look(t.Context(), w.PDP(), s.Task())
	away("look", w.Failed(err))
	_, refusal = w.Ask(t.Context())
	away("ask", refusal)
	back()
	if !o.forwards(op) {
		t.Error("the approval is lost")
	}
	op = o.approved(o.call(alice(t), o.a, `{"n":2}`))
	lost := 0
	back = o.meanwhile(func(r *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		answer, err := send()
		if err != nil || !decides(r) {
			return answer, err
		}
		if lost++; !strings.Contains(read(t, answer), `"decision":true`) {
			t.Error("the PDP denies, so nothing is lost")
		}
		return nil, errCut
	})
	_, refusal = o.outcome(op)
	away("lost", refusal)
	if back(); lost != 1 {
		t.Errorf("it was sent %d times", lost)
	}
	if o.forwards(op) {
		t.Error("an approval counts twice")
	}
}

// No lie of a PDP becomes a permit, whether people were not asked, have approved, or did before. An approval that a lie
// has hidden is there after it.
func TestApprovedLies(t *testing.T) {
	t.Parallel()
	o := people(t)
	var lie atomic.Pointer[string]
	liar := mcptest.NewLiar(t, o.pdp.URL, func(int64) string { return *lie.Load() })
	to, err := url.Parse(liar.URL)
	o.must(err)
	plain := o.call(alice(t), o.a, `{}`)
	used := o.approved(o.call(alice(t), o.a, `{"n":1}`))
	next := goesOn(t, o.permit(used), used)
	use := o.approved(o.call(alice(t), o.a, `{"n":2}`))
	w, pending := o.files(o.call(alice(t), o.a, `{"n":3}`))
	for _, l := range mcptest.Lies() {
		if l == "connection: hangs" || l == "connection: drips" {
			continue // their five seconds each are TestLyingPDP's
		}
		lie.Store(&l)
		over := o.meanwhile(func(r *http.Request, _ func() (*http.Response, error)) (*http.Response, error) {
			r.URL.Host = to.Host
			return http.DefaultTransport.RoundTrip(r)
		})
		for name, op := range map[string]ask.Operation{"plain": plain, "use": use, "next round": next} {
			if o.forwards(op) {
				t.Errorf("%s: %s is permitted", l, name)
			}
		}
		if _, refusal := w.Ask(t.Context()); refusal == nil || refusal.Kind != ask.Unavailable && refusal.Kind != ask.Unmapped {
			t.Errorf("%s: asked: %+v", l, refusal)
		}
		if s, err := approvals.Look(t.Context(), w.PDP(), pending.Task()); err == nil {
			t.Errorf("%s: looked: %v", l, s)
		} else if r := w.Failed(err); r.Kind != ask.Unavailable && r.Kind != ask.Unmapped {
			t.Errorf("%s: %+v", l, r)
		}
		over()
	}
	for name, op := range map[string]ask.Operation{"use": use, "next round": next} {
		if !o.forwards(op) {
			t.Errorf("%s is lost", name)
		}
	}
	if s := o.look(w, pending); !s.Pending() {
		t.Errorf("%v", s)
	}
}

// What a PDP says of people that they did not say is no permit either: the last question is asked, and answers.
func TestApprovedForged(t *testing.T) {
	t.Parallel()
	o := people(t)
	call := o.call(alice(t), o.a, `{}`)
	w, s := o.files(call)
	id := s.Approvals()[0]
	forged := func(body string) func() {
		return o.meanwhile(func(r *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
			if decides(r) {
				return send()
			}
			return says(r, body), nil
		})
	}
	task := func(status, approval string) string {
		return fmt.Sprintf(`{"task":{"id":%q,"status":%q,"status_endpoint":%q,"approvals":[{"id":%q}]},"result":{"mode":"reevaluate","approval":%s}}`,
			s.Task().ID(), status, o.pdp.URL+"/access/v1/requests/"+s.Task().ID(), id, approval)
	}
	for name, test := range map[string]struct{ status, approval, until string }{
		"not yet":     {"approved", id, "2030-01-01T00:00:00Z"},
		"no such":     {"approved", "01900000-0000-7000-8000-000000000000", "2030-01-01T00:00:00Z"},
		"its own end": {"approved", id, "2020-01-01T00:00:00Z"},
		"pending":     {"pending", id, "2030-01-01T00:00:00Z"},
		"denied":      {"denied", id, "2030-01-01T00:00:00Z"},
	} {
		over := forged(task(test.status, fmt.Sprintf(`{"id":%q,"approved_until":%q,"state":"x"}`, test.approval, test.until)))
		op := o.brings(w, s, call)
		over()
		if o.forwards(op) {
			t.Errorf("%s is permitted", name)
		}
		over = forged(task(test.status, fmt.Sprintf(`{"id":%q,"approved_until":%q}`, test.approval, test.until)))
		op = o.brings(w, s, call)
		over()
		got, refusal := o.outcome(op)
		if refusal == nil || (refusal.Kind == ask.Pending) != (name == "not yet") {
			t.Errorf("%s, without a state: %s", name, got)
		}
	}
	// A deny that says what an allow does is a deny, and with an obligation that nobody can do people are not asked.
	plain, declared := call, o.call(alice(t), o.tool(declares("a", `{"evaluation":{"subject":{"type":"identity","id":"$token.sub"},"action":{"name":"read"},"resource":{"type":"public","id":"1"}}}`), nil), `{}`)
	for name, body := range map[string]string{
		"declared":      `{"decision":false,"context":{"reason":"approval_required","access_request":{"expires_at":"2030-01-01T00:00:00Z","binding_token":"x"}}}`,
		"an obligation": `{"decision":false,"context":{"reason":"approval_required","obligations":[{"id":"x","type":"unheard"}],"access_request":{"expires_at":"2030-01-01T00:00:00Z","binding_token":"x"}}}`,
		"no offer":      `{"decision":false,"context":{"reason":"approval_required"}}`,
		"an odd offer":  `{"decision":false,"context":{"reason":"approval_required","access_request":{"binding_token":"x"}}}`,
		"over":          `{"decision":false,"context":{"reason":"approval_required","next_action":"none","access_request":{"expires_at":"2030-01-01T00:00:00Z","binding_token":"x"}}}`,
		"another why":   `{"decision":false,"context":{"reason":"other","access_request":{"expires_at":"2030-01-01T00:00:00Z","binding_token":"x"}}}`,
	} {
		over := o.meanwhile(func(r *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
			if decides(r) {
				_, _ = io.Copy(io.Discard, r.Body)
				return says(r, body), nil
			}
			return send()
		})
		if call = plain; name == "declared" {
			call = declared
		}
		got, refusal := o.outcome(call)
		if over(); refusal == nil || refusal.Wanted != nil {
			t.Errorf("%s: %s", name, got)
		}
	}
	o.says("approve", s)
	if !o.forwards(o.brings(w, s, plain)) {
		t.Error("the approval is lost")
	}
}
