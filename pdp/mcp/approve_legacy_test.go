package mcp_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
)

// What a call ends with that people were asked about.
type ending string

const (
	itRuns     ending = "it runs"
	isDenied   ending = "it is denied for good"
	mustAsk    ending = "people are to be waited for"
	wasChanged ending = "a person would have it changed"
	isInvalid  ending = "the answer is none"
)

func endingOf(t testing.TB, got echo) ending {
	t.Helper()
	var result struct {
		IsError    bool `json:"isError"`
		Structured struct {
			Type      string         `json:"type"`
			Suggested jsontext.Value `json:"suggested"`
		} `json:"structuredContent"`
	}
	if got.result != nil {
		orFail(t, json.Unmarshal(got.result, &result))
	}
	switch {
	case got.finals != 1 || got.status != http.StatusOK:
	case result.IsError && result.Structured.Type == "arguments_changed":
		return wasChanged
	case got.ran() && !result.IsError:
		return itRuns
	case got.kind() == "authorization_denied":
		return isDenied
	case strings.Contains(got.text, `"authorizationRequest"`) && got.fault != nil && strings.HasPrefix(got.fault.Message, "Authorization required: "):
		return mustAsk
	case got.code() == -32602:
		return isInvalid
	}
	return ending("something else: " + got.String())
}

// ends fails unless the call ends so, and the server has got what it ran, once.
func (d *dialogue) ends(want ending) (got echo) {
	d.v.s.t.Helper()
	got = d.end()
	if is := endingOf(d.v.s.t, got); is != want {
		d.v.s.t.Errorf("%s %s: %s, want %s", d.tool, d.arguments, is, want)
	}
	return got
}

// ran fails unless the server has got just these calls of a tool.
func (w *world) ran(tool string, arguments ...string) {
	w.t.Helper()
	if got := w.forwarded(tool); !slices.Equal(got, arguments) {
		w.t.Errorf("the server has got %q of %s, want %q", got, tool, arguments)
	}
}

// What a person answers in the client, the PDP is told by the person's own token, and what the PDP says then is done: once.
func TestApproveLegacyForm(t *testing.T) {
	t.Parallel()
	w := newPeople(t, land{})
	for _, one := range []struct {
		name, tool, answer string
		want               ending
		status, vote       string
	}{
		{"yes", "confirm", saysYes, itRuns, "used_up", `approve user::"alice" form key:gateway`},
		{"no", "confirm", saysNo, isDenied, "denied", `deny user::"alice" form key:gateway`},
		{"no with a reason", "confirm", `{"action":"accept","content":{"approve":false,"reason":"not today"}}`, isDenied, "denied", `deny user::"alice" form key:gateway`},
		{"nothing", "confirm", saysNothing, mustAsk, "pending", ""},
		{"no form", "confirm", `{"action":"accept","content":{"approve":"perhaps"}}`, isInvalid, "pending", ""},
		{"no action", "confirm", `{}`, isInvalid, "pending", ""},
		{"as it was", "review", `{"action":"accept","content":{"approve":true,"arguments.case":"as it was","arguments.n":7}}`, itRuns, "used_up", `approve user::"alice" form key:gateway`},
		{"a lone yes", "review", `{"action":"accept","content":{"approve":true}}`, itRuns, "used_up", `approve user::"alice" form key:gateway`},
		{"changed", "review", `{"action":"accept","content":{"approve":true,"arguments.case":"changed","arguments.n":8}}`, wasChanged, "cancelled", ""},
	} {
		t.Run(one.name, func(t *testing.T) {
			arguments := `{"case":` + inText(one.name) + `,"n":7}`
			v := w.client("legacy")
			before := w.approvals(one.tool)
			d := v.dialogue(one.tool, arguments)
			if d.form() == nil || !strings.Contains(string(d.asked), `"tool_approval"`) {
				t.Errorf("it is asked %s", d.asked)
			}
			d.answer(v, one.answer)
			got := d.ends(one.want)
			all := w.approvals(one.tool)[len(before):]
			if len(all) != 1 || all[0].Status != one.status || strings.Join(w.votes(all[0].ID), ",") != one.vote {
				t.Fatalf("the approval requests are %v, and they say %q", all, w.votes(all[0].ID))
			}
			ran := slices.Contains(w.forwarded(one.tool), arguments)
			if ran != (one.want == itRuns) {
				t.Errorf("it ran: %t", ran)
			}
			if one.want == mustAsk && !strings.Contains(got.text, all[0].ID) {
				t.Errorf("%s", got)
			}
			// What is answered when all is over changes nothing, and is not held against the client.
			d.answer(v, saysYes)
			d.answer(v, saysNo)
			if got := w.approval(all[0].ID); one.status != "pending" && got.Status != one.status {
				t.Errorf("afterwards it is %s", got.Status)
			}
			if got := w.forwarded(one.tool); slices.Contains(got, arguments) != ran {
				t.Errorf("afterwards the server has got %q", got)
			}
		})
	}
}

// A call that is sent again goes on from what people were asked before: nobody is asked twice. A person who would rather have
// other arguments has approved nothing, and the changed call is decided about anew.
func TestApproveLegacyAgain(t *testing.T) {
	t.Parallel()
	w := newPeople(t, land{})
	v := w.client("legacy")
	d := v.dialogue("confirm", `{"n":1}`)
	d.answer(v, saysNothing)
	d.ends(mustAsk)
	d = v.dialogue("confirm", `{ "n" : 1 }`) // the same value
	d.answer(v, saysYes)
	d.ends(itRuns)
	w.ran("confirm", `{ "n" : 1 }`)
	if all := w.approvals("confirm"); len(all) != 1 {
		t.Errorf("people were asked %d times", len(all))
	}

	d = v.dialogue("review", `{"n":1}`)
	d.answer(v, `{"action":"accept","content":{"approve":true,"arguments.n":2}}`)
	if got := d.ends(wasChanged); !strings.Contains(got.text, `"suggested":{"n":2}`) {
		t.Errorf("%s", got)
	}
	w.ran("review")
	d = v.dialogue("review", `{"n":2}`)
	d.answer(v, `{"action":"accept","content":{"approve":true,"arguments.n":2}}`)
	d.ends(itRuns)
	w.ran("review", `{"n":2}`)

	// A client whose person cannot be asked says so by an error: nobody has said anything.
	d = v.dialogue("confirm", `{"n":2}`)
	if got := v.send(`{"jsonrpc":"2.0","id":`+d.legacy.id+`,"error":{"code":-32603,"message":"there is nobody"}}`, v.headers("", "")...); got.status != http.StatusAccepted {
		t.Errorf("%s", got)
	}
	d.ends(mustAsk)
	if got := w.pending("confirm"); len(got) != 1 || len(w.votes(got[0])) != 0 {
		t.Errorf("%q", got)
	}
}

// Who has a person's answer hears from the PDP at once what came of it, also while it cannot be watched.
func TestApproveUnwatched(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			tap := newWiretap(t)
			tap.silent(func(r *http.Request, _ []byte) bool { return watches(r) })
			w := newPeople(t, land{before: tap.before, serve: tap.serve})
			v := w.client(era)
			for n, end := range []ending{itRuns, isDenied} {
				d := v.dialogue("confirm", fmt.Sprintf(`{"n":%d}`, n))
				d.answer(v, []string{saysYes, saysNo}[n])
				d.ends(end)
			}
			w.ran("confirm", `{"n":0}`)
		})
	}
}

// Others decide while a form is shown: the call goes on at once, or not, and the client is told to take the form away.
func TestApproveLegacyOthers(t *testing.T) {
	t.Parallel()
	w := newPeople(t, land{})
	v := w.client("legacy")
	for name, one := range map[string]struct {
		tool  string
		do    func(id string)
		want  ending
		taken bool
	}{
		"approved":  {"delegable", func(id string) { w.approve("mia", id) }, itRuns, true},
		"denied":    {"delegable", func(id string) { w.deny("mia", id, "not today") }, isDenied, true},
		"delegated": {"delegable", func(id string) { w.delegate("mia", id, "eve"); w.approve("eve", id) }, itRuns, true},
		"expired":   {"brief", func(string) { w.advance(4 * time.Second) }, isDenied, true},
	} {
		t.Run(name, func(t *testing.T) {
			arguments := `{"case":` + inText(name) + `}`
			d := v.dialogue(one.tool, arguments)
			one.do(w.asks(one.tool))
			got := d.ends(one.want)
			if name == "denied" && !strings.Contains(got.text, "not today") && !strings.Contains(got.text, "a person said no") {
				t.Errorf("why not is not said: %s", got)
			}
			taken := slices.ContainsFunc(got.before, func(m jsontext.Value) bool {
				return strings.Contains(string(m), `"notifications/cancelled"`) && strings.Contains(string(m), `"requestId":`+d.legacy.id)
			})
			if taken != one.taken {
				t.Errorf("the form is taken away: %t: %s", taken, got)
			}
			if ran := slices.Contains(w.forwarded(one.tool), arguments); ran != (one.want == itRuns) {
				t.Errorf("it ran: %t", ran)
			}
			d.answer(v, saysYes)
		})
	}
	t.Run("quorum of two", func(t *testing.T) {
		d := v.dialogue("pair", `{}`)
		id := w.asks("pair")
		d.answer(v, saysYes)
		mcptest.Until(t, "one of two has said yes", func() bool { return len(w.votes(id)) == 1 })
		w.ran("pair")
		w.approve("mia", id)
		if got := d.ends(itRuns); len(got.before) != 0 {
			t.Errorf("what is answered is taken away: %s", got)
		}
		w.ran("pair", `{}`)
	})
	t.Run("delegated in the form", func(t *testing.T) {
		d := v.dialogue("delegable", `{"case":"form"}`)
		id := w.asks("delegable")
		d.answer(v, `{"action":"accept","content":{"action":"delegate","delegateTo":"user::\"eve\""}}`)
		mcptest.Until(t, "it is delegated", func() bool { return len(w.votes(id)) == 1 })
		w.approve("eve", id)
		d.ends(itRuns)
	})
}

// Who may not decide by a form is shown none, and no answer that a client makes up is one.
func TestApproveLegacySecondPerson(t *testing.T) {
	t.Parallel()
	w := newPeople(t, land{})
	v := w.client("legacy")
	over := make(chan echo, 1)
	go func() {
		over <- v.ask("tools/call", `{"name":"second-person","arguments":{"n":1},"_meta":{"progressToken":"p"}}`)
	}()
	id := w.asks("second-person")
	confirms := v.dialogue("confirm", `{}`) // whose form is alice's
	for _, made := range []string{inText(id), `1`, `"a"`, `null`} {
		if got := v.reply(made, saysYes); got.status != http.StatusBadRequest {
			t.Errorf("an answer to %s: %s", made, got)
		}
	}
	confirms.answer(v, saysYes)
	confirms.ends(itRuns)
	if got := w.votes(id); len(got) != 0 {
		t.Errorf("they say %q", got)
	}
	w.approve("mia", id)
	got := <-over
	if endingOf(t, got) != itRuns || strings.Contains(got.text, "elicitation/create") {
		t.Errorf("%s", got)
	}
	if !slices.ContainsFunc(got.before, func(m jsontext.Value) bool {
		return strings.Contains(string(m), `"progressToken":"p"`) && strings.Contains(string(m), id)
	}) {
		t.Errorf("nobody is told that people are waited for: %s", got)
	}
	w.ran("second-person", `{"n":1}`)
	if want := []string{`approve user::"mia" api`}; !slices.Equal(w.votes(id), want) {
		t.Errorf("they say %q", w.votes(id))
	}
}

// While a person looks at a form the client hears now and then that people are waited for, if it wants to: else it would give up.
// It takes five seconds: those are between two words of progress.
func TestApproveLegacyProgress(t *testing.T) {
	t.Parallel()
	w := newPeople(t, land{})
	v := w.client("legacy")
	v.meta = `,"progressToken":"p"`
	d := v.dialogue("confirm", `{}`)
	id := w.asks("confirm")
	for !strings.Contains(d.legacy.lines.Text(), "notifications/progress") {
		if !d.legacy.lines.Scan() {
			t.Fatal("the client hears nothing")
		}
		if text := d.legacy.lines.Text(); strings.Contains(text, "notifications/progress") && (!strings.Contains(text, `"progressToken":"p"`) || !strings.Contains(text, id)) {
			t.Errorf("it hears %s", text)
		}
	}
	d.answer(v, saysYes)
	d.ends(itRuns)
}

// A client that takes no forms is asked nothing: the call waits, and is refused with what it waits for.
func TestApproveLegacyWait(t *testing.T) {
	t.Parallel()
	w := newPeople(t, land{change: hasten})
	v := w.plain("legacy")
	got := v.ask("tools/call", `{"name":"confirm","arguments":{"n":1},"_meta":{"progressToken":7}}`)
	if endingOf(t, got) != mustAsk || len(got.before) == 0 || strings.Contains(got.text, "elicitation") {
		t.Errorf("%s", got)
	}
	w.approve("alice", w.asks("confirm"))
	if got := v.call("confirm", `{"n":1}`); endingOf(t, got) != itRuns || len(w.approvals("confirm")) != 1 {
		t.Errorf("%s", got)
	}
	w.ran("confirm", `{"n":1}`)
	if got := w.pending("confirm"); len(got) != 0 {
		t.Errorf("%q wait", got)
	}
}

// A page is where the person decides: that it was opened says nothing, and that it was not opened ends the wait.
func TestApproveLegacyPage(t *testing.T) {
	t.Parallel()
	w := newPeople(t, land{change: func(c *mcp.Config) { c.Approvals.Channels = []string{"url", "wait"} }})
	v := w.client("legacy")
	for name, one := range map[string]struct {
		answer string
		want   ending
	}{
		"opened": {`{"action":"accept"}`, itRuns},
		// As if it were a form: nobody has decided.
		"opened and more": {saysYes, itRuns},
		"declined":        {saysNo, mustAsk},
		"cancelled":       {saysNothing, mustAsk},
	} {
		t.Run(name, func(t *testing.T) {
			d := v.dialogue("confirm", `{"case":`+inText(name)+`}`)
			id := w.asks("confirm")
			var page struct {
				Mode, URL     string
				ElicitationID jsontext.Value `json:"elicitationId"`
			}
			orFail(t, json.Unmarshal(d.asked, &page, json.MatchCaseInsensitiveNames(true)))
			if page.Mode != "url" || string(page.ElicitationID) != d.legacy.id || !strings.HasSuffix(page.URL, "/console/approvals/"+id) {
				t.Errorf("it is asked %s", d.asked)
			}
			d.answer(v, one.answer)
			if one.want == itRuns {
				if got := w.approval(id); got.Status != "pending" || len(got.Said) != 0 {
					t.Errorf("because the page was opened it is %s", got.Status)
				}
				w.approve("alice", id)
			}
			got := d.ends(one.want)
			if got := w.approval(id); one.want == mustAsk && (got.Status != "pending" || len(got.Said) != 0) {
				t.Errorf("because the page was not opened it is %s", got.Status)
			}
			if one.want == mustAsk {
				w.deny("alice", id, "no")
				return
			}
			if !slices.ContainsFunc(got.before, func(m jsontext.Value) bool {
				return strings.Contains(string(m), `"notifications/elicitation/complete"`) && strings.Contains(string(m), `"elicitationId":`+d.legacy.id)
			}) {
				t.Errorf("the client is not told that the page is done with: %s", got)
			}
		})
	}
	// Who opens no pages is sent to none.
	forms := w.stranger("legacy", w.issuer.Token(t, nil))
	forms.capabilities = `{"elicitation":{}}`
	forms.begin()
	over := make(chan echo, 1)
	go func() { over <- forms.call("confirm", `{"case":"forms"}`) }()
	w.approve("alice", w.asks("confirm"))
	if got := <-over; endingOf(t, got) != itRuns || strings.Contains(got.text, "elicitation") {
		t.Errorf("%s", got)
	}
}

// Who goes away does not wait any longer. What people were asked stays, or is taken back, as the operator wants it.
func TestApproveLegacyLeft(t *testing.T) {
	t.Parallel()
	for does, want := range map[mcp.OnDisconnect]string{mcp.DisconnectKeep: "pending", mcp.DisconnectCancel: "cancelled"} {
		t.Run(string(does), func(t *testing.T) {
			t.Parallel()
			w := newPeople(t, land{change: func(c *mcp.Config) { c.Approvals.OnDisconnect = does }})
			for name, leave := range map[string]func(v *visitor, d *dialogue, closes func()){
				"closed": func(_ *visitor, _ *dialogue, closes func()) { closes() },
				"notifications/cancelled": func(v *visitor, d *dialogue, _ func()) {
					note := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + lastID(v) + `}}`
					if got := v.send(note, v.headers("", "")...); got.status != http.StatusAccepted {
						t.Errorf("%s", got)
					}
					if got := endingOf(t, d.end()); got != mustAsk {
						t.Errorf("a call that is given up ends so: %s", got)
					}
				},
				"session ended": func(v *visitor, d *dialogue, _ func()) {
					if got, err := v.try(t.Context(), http.MethodDelete, "", v.headers("", "")...); err != nil || got.status != http.StatusNoContent {
						t.Errorf("%s, %v", got, err)
					}
					d.end()
				},
			} {
				arguments := `{"case":` + inText(name) + `}`
				v := w.client("legacy")
				closes := v.hangUp()
				d := v.dialogue("confirm", arguments)
				id := w.asks("confirm")
				leave(v, d, closes)
				mcptest.Until(t, "it is "+want, func() bool { return w.approval(id).Status == want })
				if want == "pending" { // and it is found again
					v = w.client("legacy")
					d = v.dialogue("confirm", arguments)
					d.answer(v, saysYes)
					d.ends(itRuns)
					if got := w.approval(id).Status; got != "used_up" {
						t.Errorf("%s: in the end it is %s", name, got)
					}
				} else if got := w.forwarded("confirm"); len(got) != 0 {
					t.Errorf("the server has got %q", got)
				}
			}
		})
	}
}

// lastID is the id of the last request of a client.
func lastID(v *visitor) string {
	id, _ := json.Marshal(v.id.Load())
	return string(id)
}

// hangUp has all that the client has under way break off when it is called.
func (v *visitor) hangUp() (now func()) {
	ctx, cancel := context.WithCancel(v.s.t.Context())
	inner := v.client.Transport
	client := *v.client
	client.Transport = roundTrip(func(r *http.Request) (*http.Response, error) { return inner.RoundTrip(r.WithContext(ctx)) })
	v.client = &client
	return cancel
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Two calls that want the same wait for one approval: who leaves takes it back from nobody, and one of them runs.
func TestApproveLegacyTogether(t *testing.T) {
	t.Parallel()
	w := newPeople(t, land{change: func(c *mcp.Config) { c.Approvals.OnDisconnect = mcp.DisconnectCancel }})
	one, two := w.client("legacy"), w.client("legacy")
	closes := one.hangUp()
	one.dialogue("confirm", `{}`)
	d := two.dialogue("confirm", `{}`)
	id := w.asks("confirm")
	closes()
	three := w.client("legacy").dialogue("confirm", `{}`)
	d.answer(two, saysYes)
	ends := []ending{endingOf(t, d.end()), endingOf(t, three.end())}
	if n := len(w.forwarded("confirm")); n != 1 || !slices.Contains(ends, itRuns) || ends[0] == ends[1] {
		t.Errorf("they end with %q, and the server has got %d", ends, n)
	}
	if got := w.approval(id); got.Status != "used_up" || got.Used != 1 {
		t.Errorf("it is %s", got.Status)
	}
}

// D30: an answer counts if it is to what this session was asked, by the principal of the answering request. Of two answers that
// contradict each other the first counts.
func TestApproveLegacyAnswersOfOthers(t *testing.T) {
	t.Parallel()
	w := newPeople(t, land{})
	alice, beside, bob := w.client("legacy"), w.client("legacy"), w.takesForms("legacy", mcptest.Claims{"sub": "bob"})
	calls, others := alice.dialogue("confirm", `{"n":1}`), beside.dialogue("confirm", `{"n":2}`)
	thief := w.stranger("legacy", bob.token)
	thief.session = alice.session
	id := calls.legacy.id
	for name, got := range map[string][2]int{
		"another session of hers":    {beside.reply(id, saysYes).status, http.StatusBadRequest},
		"another person":             {bob.reply(id, saysYes).status, http.StatusBadRequest},
		"another person, in hers":    {thief.reply(id, saysYes).status, http.StatusNotFound},
		"to what another was asked":  {alice.reply(others.legacy.id, saysYes).status, http.StatusBadRequest},
		"to the id of the approval":  {alice.reply(inText(w.pending("confirm")[0]), saysYes).status, http.StatusBadRequest},
		"to a part of the id":        {alice.reply(id[:len(id)-3]+`"`, saysYes).status, http.StatusBadRequest},
		"to its own session":         {alice.reply(inText(alice.session), saysYes).status, http.StatusBadRequest},
		"to null":                    {alice.reply(`null`, saysYes).status, http.StatusBadRequest},
		"with a result and an error": {alice.reply(id, saysYes+`,"error":{"code":1,"message":"m"}`).status, http.StatusBadRequest},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: status %d", name, got[0])
		}
	}
	for _, one := range w.pending("confirm") {
		if got := w.votes(one); len(got) != 0 {
			t.Errorf("they say %q", got)
		}
	}
	w.ran("confirm")
	calls.answer(alice, saysYes)
	calls.ends(itRuns)
	calls.answer(alice, saysNo) // it comes too late: before, the call would not have gone on
	others.answer(beside, saysNo)
	others.answer(beside, saysYes)
	others.ends(isDenied)
	w.ran("confirm", `{"n":1}`)
	for _, one := range w.approvals("confirm") {
		if got := w.votes(one.ID); len(got) != 1 {
			t.Errorf("they say %q", got)
		}
	}
	// In the same session: the answer to one call says nothing of another.
	first, second := alice.dialogue("confirm", `{"n":3}`), alice.dialogue("confirm", `{"n":4}`)
	first.answer(alice, saysNo)
	first.ends(isDenied)
	second.answer(alice, saysYes)
	second.ends(itRuns)
	w.ran("confirm", `{"n":1}`, `{"n":4}`)
}

// What a server asks is answered to the server alone, and what we ask to the PDP alone, whatever the answers say.
func TestApproveLegacyServerAsks(t *testing.T) {
	t.Parallel()
	server := new(asker)
	answers := server.answers("legacy")
	answers.Tools = `[{"name":"free","inputSchema":{"type":"object"}},{"name":"confirm","inputSchema":{"type":"object"}}]`
	w := newPeople(t, land{files: withRounds, answers: answers, change: relays})
	v := w.client("legacy")
	get := v.stream("") // what belongs to a call does not come there
	ours, theirs := v.dialogue("confirm", `{}`), v.dialogue("free", `{}`)
	id := w.asks("confirm")
	theirs.answer(v, saysYes)
	if got := theirs.end(); !got.ran() || !strings.Contains(got.text, `approve`) {
		t.Errorf("%s", got)
	}
	if got := v.reply(theirs.legacy.id, saysYes); got.status != http.StatusBadRequest {
		t.Errorf("a second time: %s", got)
	}
	if got := w.approval(id); got.Status != "pending" || len(got.Said) != 0 {
		t.Errorf("what a server was answered is a vote: %v", got)
	}
	w.ran("confirm")
	ours.answer(v, saysYes)
	// The server asks now, in the same call.
	for _, line := range w.rec.Got() {
		if strings.Contains(string(line.Body), "approve") && line.Method == "" && !strings.Contains(string(line.Body), `"q1"`) {
			t.Errorf("the server has got %s", line.Body)
		}
	}
	ours.legacy = ours.legacy.next(t)
	if !strings.Contains(ours.legacy.asks, "[rec asks] Who?") {
		t.Errorf("it is asked %s", ours.legacy.asks)
	}
	ours.answer(v, accepted)
	if got := ours.end(); !got.ran() || !strings.Contains(got.text, "x-answer") {
		t.Errorf("%s", got)
	}
	if got := w.votes(id); len(got) != 1 {
		t.Errorf("they say %q", got)
	}
	w.ran("confirm", `{}`)
	get.end()
	for get.lines.Scan() {
		if strings.Contains(get.lines.Text(), "elicitation") {
			t.Errorf("beside the call comes %s", get.lines.Text())
		}
	}
}

// next reads on until the client is asked something else.
func (c called) next(t testing.TB) called {
	t.Helper()
	for c.lines.Scan() {
		var m struct{ ID jsontext.Value }
		data, ok := strings.CutPrefix(c.lines.Text(), "data: ")
		if ok && strings.Contains(data, "elicitation/create") && json.Unmarshal([]byte(data), &m, json.MatchCaseInsensitiveNames(true)) == nil {
			c.id, c.asks = string(m.ID), data
			return c
		}
	}
	t.Fatal("nothing more is asked")
	return c
}

// Answers count as requests: who sends too many is told to wait, and an answer that is sent again counts.
func TestApproveLegacyTooMany(t *testing.T) {
	t.Parallel()
	w := newPeople(t, land{change: func(c *mcp.Config) {
		c.Limits.PerPrincipal.Rate = 1.0 / 60
		c.Limits.PerPrincipal.Burst, c.Limits.PerPrincipal.Concurrent = 2, 1
	}})
	v := w.client("legacy")
	d := v.dialogue("confirm", `{}`)
	if got := v.reply(d.legacy.id, saysYes); got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") == "" {
		t.Errorf("%s", got)
	}
	if got := w.votes(w.asks("confirm")); len(got) != 0 {
		t.Errorf("they say %q", got)
	}
	w.advance(time.Minute)
	d.answer(v, saysYes)
	d.ends(itRuns)
	w.ran("confirm", `{}`)
}
