package mcp_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

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
