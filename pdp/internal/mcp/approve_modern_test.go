package mcp_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"policy-service/pdp/internal/mcp"
	pdpserver "policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest/mcptest"
)

// askedBy has people asked in some ways, and a request held for so long.
func askedBy(wait time.Duration, ways ...string) func(*mcp.Config) {
	return func(c *mcp.Config) { c.Approvals.Channels, c.Approvals.Wait = ways, wait }
}

// required is the authorizationRequest of an error that says that people are asked.
func required(t *testing.T, got echo) wantedApproval {
	t.Helper()
	r := wantedBy(got)
	if r.ID == "" || textOf(t, got.fault.Data, "suggestion") != "send the call again" {
		t.Fatalf("it is not told to send the call again: %s", got)
	}
	return r
}

// wantedApproval is the authorizationRequest of an error.
type wantedApproval struct{ ID, Tool, ExpiresAt string }

// wantedBy is that of an answer, the zero value if it has none.
func wantedBy(got echo) wantedApproval {
	var d struct {
		Request wantedApproval `json:"authorizationRequest"`
	}
	if got.code() != -32001 || json.Unmarshal(got.fault.Data, &d, json.MatchCaseInsensitiveNames(true)) != nil {
		return wantedApproval{}
	}
	return d.Request
}

// metered is a reader of what a gateway counts, and the gateway's end of it.
func metered() (*sdkmetric.ManualReader, mcp.Deps) {
	r := sdkmetric.NewManualReader()
	return r, mcp.Deps{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(r))}
}

// Where no policy lets anybody decide, nobody waits in vain, and nobody is told to come again. If the PDP does not say, somebody
// may decide. The story people-silent has what a client hears that waits.
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
				if got.code() != -32001 || textOf(t, got.fault.Data, "suggestion") != test.says || !strings.Contains(got.fault.Message, textOf(t, got.fault.Data, "id")) || (len(got.before) > 0) != waits {
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
	got := v.retry("confirm", `{}`, inText(d.modern.State), d.says(saysOpened))
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
	v.retry("confirm", `{}`, inText(states[1]), `{}`).runs(t)
	for _, state := range states { // each was good for this one call
		if got := v.retry("confirm", `{}`, inText(state), `{}`); got.code() == 0 {
			t.Errorf("once more: %s", got)
		}
	}
	w.ran("confirm", `{}`)
	for _, nothing := range []string{saysNo, saysNothing} { // the page was not opened: that says nothing of the call
		d := v.dialogue("confirm", `{"n":1}`)
		d.answer(v, nothing)
		w.is(required(t, d.end()).ID, "pending")
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
	_, field, _ := strings.Cut(string(d.asked), `"arguments.password":`)
	masked := textOf(t, jsontext.Value(field), "default")
	if !strings.HasPrefix(masked, "hidden: 7 bytes (masked:") {
		t.Fatalf("it is shown %q", masked)
	}
	says := func(n string) string {
		return d.says(`{"action":"accept","content":{"approve":true,"arguments.n":` + n + `,"arguments.password":` + inText(masked) + `}}`)
	}
	id := w.asks("never")
	for range 2 { // one of two has said yes
		d.repeats(v, says("1")).refused(t, -32001, "", "")
	}
	w.is(id, "pending")
	w.voted(id, "approve"+byForm)
	w.approve("mia", id)
	d.repeats(v, `{}`).runs(t)
	w.ran("never", arguments)

	d = v.dialogue("review", arguments)
	if got := d.repeats(v, says("2")); !strings.Contains(string(got.result), `"suggested":{"n":2,"password":"hunter2"}`) {
		t.Errorf("it came to %s", got)
	}
}

// A client that goes away leaves people asked, or has it taken back if the operator wants that and nobody else in the process
// waits for the same. What is approved then is nobody's call, until it is sent again.
func TestApproveModernGone(t *testing.T) {
	for on, want := range map[mcp.OnDisconnect]string{mcp.DisconnectKeep: "pending", mcp.DisconnectCancel: "cancelled"} {
		for _, era := range eras {
			t.Run(string(on)+", "+era, func(t *testing.T) {
				meter, deps := metered()
				w := newPeople(t, land{deps: deps, change: func(c *mcp.Config) { c.Approvals.OnDisconnect = on }})
				v := w.plain(era)
				wait := func(n int64) {
					mcptest.Until(t, fmt.Sprint(n, " wait"), func() bool { return waitingIn(meter) == n })
				}
				first := v.waits("confirm", `{"n":1}`)
				id := w.asks("confirm")
				other := w.plain(era).waits("confirm", `{"n":1}`).ended
				wait(2)
				first.goes(t)
				wait(1)
				w.is(id, "pending") // another waits for it
				w.approve("alice", id)
				(<-other).runs(t)

				second := v.waits("confirm", `{"n":2}`)
				id = w.asks("confirm")
				wait(1)
				second.goes(t)
				wait(0)
				w.becomes(id, want)
				w.ran("confirm", `{"n":1}`)
			})
		}
	}
}

// A client may go away while the PDP is asked something about its call. Then what people were asked is taken back, too, where
// the operator wants that.
func TestApproveModernAndLegacyGoneMeanwhile(t *testing.T) {
	inEras(t, func(t *testing.T, era string) {
		door := newDoorway(t)
		w := newPeople(t, land{
			before: func(pdp string) string { door.leadTo(pdp); return door.url },
			serve:  func(c *pdpserver.Config) { c.PublicURL = door.url },
			change: func(c *mcp.Config) { c.Approvals.OnDisconnect = mcp.DisconnectCancel },
		})
		asked := door.hold(false, func(r *http.Request, _ []byte) bool { return showsForm(r) })
		call := w.client(era).waits("confirm", `{}`)
		<-asked.held
		id := w.asks("confirm")
		call.goes(t)
		w.becomes(id, "cancelled")
		w.untouched(t)
	})
}

// A token that expires ends a wait. People go on being asked, and the next token goes on from there.
// It takes as long as the token lasts.
func TestApproveModernExpired(t *testing.T) {
	inEras(t, func(t *testing.T, era string) {
		// The clock stands still: the token's time counts from the beginning of the call.
		w := newPeople(t, land{slower: 1e6, change: func(c *mcp.Config) { c.Approvals.OnDisconnect = mcp.DisconnectCancel }})
		v := w.plain(era)
		v.token = w.issuer.Token(t, mcptest.Claims{"exp": w.now().Unix() + 4})
		id := required(t, v.call("confirm", `{}`)).ID
		w.is(id, "pending")
		w.untouched(t)
		w.approve("alice", id)
		w.plain(era).call("confirm", `{}`).runs(t)
		w.ran("confirm", `{}`)
	})
}
