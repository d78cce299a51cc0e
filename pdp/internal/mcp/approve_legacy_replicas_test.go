package mcp_test

import (
	"net/http"
	"strings"
	"testing"

	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/pdptest/mcptest"
)

// at is the same client, with its session, at another replica.
func (v *visitor) at(s *siege) *visitor {
	other := s.stranger(v.era, v.token)
	other.session, other.capabilities = v.session, v.capabilities
	other.id.Store(v.id.Load())
	return other
}

// goesOn fails unless a call runs by what was agreed to before: its client is asked nothing.
func (v *visitor) goesOn(tool, arguments string) {
	v.s.t.Helper()
	if got := v.call(tool, arguments); endingOf(got) != itRuns || strings.Contains(got.text, "elicitation") {
		v.s.t.Errorf("%s: %s", tool, got)
	}
}

// An answer counts at whichever replica it arrives, and the one at which the call waits hears of it by the PDP.
func TestApproveLegacyReplicas(t *testing.T) {
	t.Parallel()
	w := newPeople(t, land{replicas: 2})
	v := w.client("legacy")
	there := v.at(w.replicas[1])
	for _, one := range []struct {
		name, answer, want string
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
	w.voted(id, "approve"+byForm)
	w.ran("pair")
	w.approve("mia", id)
	d.ends(itRuns)
	w.ran("pair", `{}`)

	// What is not a word to the PDP nobody hears elsewhere: the call waits on, until its client has enough.
	d = v.dialogue("review", `{"n":1}`)
	id = w.asks("review")
	for _, answer := range []string{saysNothing, `{"action":"accept","content":{"approve":true,"arguments.n":2}}`} {
		d.answer(there, answer)
		w.unmoved(t, answer, "review", id, 0)
	}
	d.answer(v, `{"action":"accept","content":{"approve":true,"arguments.n":1}}`)
	d.ends(itRuns)
	w.ran("review", `{"n":1}`)

	// Neither another person there, nor another session.
	d = v.dialogue("confirm", `{"case":"others"}`)
	thief := there.at(w.replicas[1])
	thief.token = w.issuer.Token(t, mcptest.Claims{"sub": "bob"})
	thief.reply(d.legacy.id, saysYes).has(t, http.StatusNotFound)
	w.replicas[1].takesForms("legacy", nil).reply(d.legacy.id, saysYes).has(t, http.StatusBadRequest)
	w.voted(w.asks("confirm"))
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
	there.goesOn("confirm", `{"n":1}`)
	again := there.dialogue("confirm", `{"n":2}`)
	again.answer(there, saysYes)
	again.ends(itRuns)
	w.ran("confirm", `{"n":1}`, `{"n":2}`)
	w.askedFor("confirm", 2)
}

// A gateway that is about to stop does not keep its clients waiting for people. What they were shown they answer elsewhere.
func TestApproveLegacyDrain(t *testing.T) {
	t.Parallel()
	w := newPeople(t, land{replicas: 2, change: func(c *mcp.Config) { c.Approvals.OnDisconnect = mcp.DisconnectCancel }})
	v := w.client("legacy")
	there := v.at(w.replicas[1])
	d := v.dialogue("confirm", `{}`)
	waits := v.waits("second-person", `{}`).ended
	id := w.asks("second-person")
	w.gateway.Drain()
	d.ends(mustAsk)
	if got := <-waits; endingOf(got) != mustAsk {
		t.Errorf("%s", got)
	}
	d.answer(there, saysYes)
	w.approve("mia", id)
	for _, tool := range []string{"confirm", "second-person"} {
		there.goesOn(tool, `{}`)
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
		got := there.reply(d.legacy.id, saysYes)
		if got.has(t, http.StatusServiceUnavailable, "Retry-After"); !strings.Contains(got.text, "send it again") {
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
	w.askedFor("confirm", 2)
}
