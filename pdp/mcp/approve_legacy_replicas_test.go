package mcp_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
)

// at is the same client, with its session, at another replica.
func (v *visitor) at(s *siege) *visitor {
	other := s.stranger(v.era, v.token)
	other.session, other.capabilities = v.session, v.capabilities
	other.id.Store(v.id.Load())
	return other
}

// An answer counts at whichever replica it arrives, and the one at which the call waits hears of it by the PDP.
func TestApproveLegacyReplicas(t *testing.T) {
	t.Parallel()
	w := newPeople(t, land{replicas: 2})
	v := w.client("legacy")
	there := v.at(w.replicas[1])
	for _, one := range []struct {
		name, answer string
		want         ending
	}{{"yes", saysYes, itRuns}, {"no", saysNo, isDenied}} {
		d := v.dialogue("confirm", `{"case":`+inText(one.name)+`}`)
		d.answer(there, one.answer)
		d.ends(one.want)
		d.answer(there, saysYes) // too late
		d.answer(v, saysNo)
	}
	w.ran("confirm", `{"case":"yes"}`)

	// Who else must decide does so whenever they want.
	d := v.dialogue("pair", `{}`)
	id := w.asks("pair")
	d.answer(there, saysYes)
	if got := w.votes(id); !slices.Equal(got, []string{`approve user::"alice" form key:gateway`}) {
		t.Errorf("they say %q", got)
	}
	w.ran("pair")
	w.approve("mia", id)
	d.ends(itRuns)
	w.ran("pair", `{}`)

	// What is not a word to the PDP nobody hears elsewhere: the call waits on, until its client has enough.
	d = v.dialogue("review", `{"n":1}`)
	id = w.asks("review")
	for _, answer := range []string{saysNothing, `{"action":"accept","content":{"approve":true,"arguments.n":2}}`} {
		d.answer(there, answer)
		if got := w.approval(id); got.Status != "pending" || len(got.Said) != 0 {
			t.Errorf("%s: it is %s", answer, got.Status)
		}
	}
	d.answer(v, `{"action":"accept","content":{"approve":true,"arguments.n":1}}`)
	d.ends(itRuns)
	w.ran("review", `{"n":1}`)

	// Neither another person there, nor another session.
	d = v.dialogue("confirm", `{"case":"others"}`)
	thief := there.at(w.replicas[1])
	thief.token = w.issuer.Token(t, mcptest.Claims{"sub": "bob"})
	if got := thief.reply(d.legacy.id, saysYes); got.status != http.StatusNotFound {
		t.Errorf("%s", got)
	}
	if got := w.replicas[1].takesForms("legacy", nil).reply(d.legacy.id, saysYes); got.status != http.StatusBadRequest {
		t.Errorf("%s", got)
	}
	if got := w.votes(w.asks("confirm")); len(got) != 0 {
		t.Errorf("they say %q", got)
	}
	d.answer(there, saysYes)
	d.ends(itRuns)
}

// The replica at which a call waits goes away: the same call at another one goes on from there. If the person has answered
// meanwhile, nobody is asked anything.
func TestApproveLegacyReplicaDies(t *testing.T) {
	t.Parallel()
	w := newPeople(t, land{replicas: 2})
	v := w.client("legacy")
	there := v.at(w.replicas[1])
	answered, open := v.dialogue("confirm", `{"n":1}`), v.dialogue("confirm", `{"n":2}`)
	orFail(t, w.gateway.Close())
	for _, d := range []*dialogue{answered, open} {
		if got := d.end(); got.ran() {
			t.Errorf("%s", got)
		}
	}
	w.ran("confirm")
	answered.answer(there, saysYes) // to what the other replica has asked
	if got := there.call("confirm", `{"n":1}`); endingOf(t, got) != itRuns || strings.Contains(got.text, "elicitation") {
		t.Errorf("%s", got)
	}
	again := there.dialogue("confirm", `{"n":2}`)
	again.answer(there, saysYes)
	again.ends(itRuns)
	w.ran("confirm", `{"n":1}`, `{"n":2}`)
	if all := w.approvals("confirm"); len(all) != 2 {
		t.Errorf("people were asked %d times", len(all))
	}
}

// A gateway that is about to stop does not keep its clients waiting for people. What they were shown they answer elsewhere.
func TestApproveLegacyDrain(t *testing.T) {
	t.Parallel()
	w := newPeople(t, land{replicas: 2, change: func(c *mcp.Config) { c.Approvals.OnDisconnect = mcp.DisconnectCancel }})
	v := w.client("legacy")
	there := v.at(w.replicas[1])
	d := v.dialogue("confirm", `{}`)
	waits := make(chan echo, 1)
	go func() { waits <- v.call("second-person", `{}`) }()
	id := w.asks("second-person")
	w.gateway.Drain()
	d.ends(mustAsk)
	if got := <-waits; endingOf(t, got) != mustAsk {
		t.Errorf("%s", got)
	}
	d.answer(there, saysYes)
	w.approve("mia", id)
	for _, tool := range []string{"confirm", "second-person"} {
		if got := there.call(tool, `{}`); endingOf(t, got) != itRuns || strings.Contains(got.text, "elicitation") {
			t.Errorf("%s: %s", tool, got)
		}
		w.ran(tool, `{}`)
	}
}

// breaksOff is a PDP that goes away when a person's answer arrives.
func breaksOff(_ http.ResponseWriter, r *http.Request, _ []byte) bool {
	if answersForm(r) {
		panic(http.ErrAbortHandler)
	}
	return false
}

// An answer that does not reach the PDP is no answer: if the call waits in the same process it is refused, and elsewhere the
// client is told to send the answer again.
func TestApproveLegacyPDPAway(t *testing.T) {
	t.Parallel()
	tap := newWiretap(t)
	w := newPeople(t, land{replicas: 2, before: tap.before, serve: tap.serve})
	v := w.client("legacy")
	there := v.at(w.replicas[1])
	tap.answers(breaksOff)
	d := v.dialogue("confirm", `{"n":1}`)
	d.answer(v, saysYes)
	if got := d.end(); got.code() != -32603 || !strings.Contains(got.text, `"authorization service unavailable"`) || !strings.Contains(got.text, `"retry_after"`) {
		t.Errorf("%s", got)
	}
	d = v.dialogue("confirm", `{"n":2}`)
	for range 2 {
		if got := there.reply(d.legacy.id, saysYes); got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" || !strings.Contains(got.text, "send it again") {
			t.Errorf("%s", got)
		}
	}
	w.ran("confirm")
	tap.answers(nil)
	d.answer(there, saysYes)
	d.ends(itRuns)
	w.ran("confirm", `{"n":2}`)
	again := v.dialogue("confirm", `{"n":1}`)
	again.answer(v, saysYes)
	again.ends(itRuns)
	if all := w.approvals("confirm"); len(all) != 2 {
		t.Errorf("people were asked %d times", len(all))
	}
}
