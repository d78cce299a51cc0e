package mcp_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/pdptest/mcptest"
)

// D30: who answers for a call of the legacy era is who was asked, in the session in which they were, by the id that they were
// asked by. Nothing else is an answer, and the right one is one still. TestNothingElseOpens of seal has ids that are changed, and
// TestApproveLegacyIDs of people those that are sealed for something else.
func TestAskAttackD30Answers(t *testing.T) {
	t.Parallel()
	w := newPeople(t, land{replicas: 2, change: func(c *mcp.Config) { c.Approvals.Wait = 25 * time.Second }})
	alice, beside := w.client("legacy"), w.client("legacy")
	bob, agent2, mia := w.takesForms("legacy", mcptest.Claims{"sub": "bob"}), w.takesForms("legacy", mcptest.Claims{"client_id": "agent-2"}), w.takesForms("legacy", mcptest.Claims{"sub": "mia"})
	// A form for a call that is not there yet is answered by nobody.
	for _, id := range []string{`"01a2027b-51d6-7c2e-9a34-0d6f1b7e5c88"`, `1`, `"confirm"`} {
		if got := alice.reply(id, saysYes); got.status == http.StatusAccepted {
			t.Errorf("before the question: %s", got)
		}
	}
	first := alice.asked("confirm", `{"n":1}`)
	id := w.asks("confirm")
	second := beside.asked("confirm", `{"n":2}`)
	review := beside.asked("review", `{"n":1}`)
	filed := len(w.approvals(""))
	refused := func(what string, got echo) {
		t.Helper()
		if got.status != http.StatusBadRequest && got.status != http.StatusNotFound {
			t.Errorf("%s: %s", what, got)
		}
		w.unmoved(t, what, "confirm", id, 0)
	}
	bare := strings.Trim(first.id, `"`)
	for _, other := range []string{
		`1`, `null`, `true`, `""`, `[` + first.id + `]`, `{"id":` + first.id + `}`, inText(bare[:len(bare)/2]), inText(bare + "="), inText(bare + bare), inText(flipped(bare, 9)),
	} {
		refused("by the id "+other, alice.reply(other, saysYes))
	}
	refused("the id of the approval", alice.reply(inText(id), saysYes))
	refused("the id of the call", alice.reply(`2`, saysYes))
	for name, v := range map[string]*visitor{"another session of hers": beside, "bob": bob, "her other agent": agent2, "an operator": mia} {
		refused("by "+name, v.reply(first.id, saysYes))
		thief := v.s.stranger("legacy", v.token)
		if thief.session = alice.session; name != "another session of hers" {
			refused("by "+name+", in her session", thief.reply(first.id, saysYes))
		}
	}
	refused("what another session was asked", alice.reply(second.id, saysYes))
	refused("what another session was asked of a review", alice.reply(review.id, saysYes))
	strangers := *w.siege
	strangers.config.Seal.KeyFiles = nil
	_, strangers.url = strangers.beside()
	away := alice.at(&strangers)
	refused("at a gateway with other keys", away.reply(first.id, saysYes))
	away.session = ""
	refused("without a session", away.reply(first.id, saysYes))
	modern := w.client("modern")
	refused("in the modern era", modern.reply(first.id, saysYes))
	for name, body := range map[string]string{
		"a result and an error": `"result":` + saysYes + `,"error":{"code":1,"message":"m"}`, "nothing": `"x":1`, "two results": `"result":` + saysNo + `,"result":` + saysYes,
		"a request": `"method":"elicitation/create","result":` + saysYes,
	} {
		refused("with "+name, alice.send(`{"jsonrpc":"2.0","id":`+first.id+`,`+body+`}`, alice.headers("", "")...))
	}
	w.askedFor("", filed)
	alice.reply(first.id, saysYes).has(t, http.StatusAccepted)
	if got := first.rest(t); !strings.Contains(got, `"ran"`) {
		t.Errorf("the call ends with %s", got)
	}
	w.voted(id, `approve user::"alice" form key:gateway`)
	// After the decision an answer changes nothing, whoever gives it, wherever.
	for _, answer := range []string{saysNo, saysYes, saysNothing} {
		_ = alice.reply(first.id, answer)
		_ = alice.at(w.replicas[1]).reply(first.id, answer)
	}
	if got := w.forwarded("confirm"); !slices.Equal(got, []string{`{"n":1}`}) || len(w.votes(id)) != 1 {
		t.Errorf("the server got %q, and they say %q", got, w.votes(id))
	}
	for _, a := range w.approvals("") {
		if a.ID != id && len(a.Said) > 0 {
			t.Errorf("somebody has said something of another: %+v", a)
		}
	}
	// Two forms are open in the other session: a no to the one is none to the other, and a yes no yes.
	for _, one := range [][2]string{{second.id, saysNo}, {review.id, `{"action":"accept","content":{"approve":true,"arguments.n":1}}`}} {
		beside.reply(one[0], one[1]).has(t, http.StatusAccepted)
	}
	if denied, ran := second.rest(t), review.rest(t); strings.Contains(denied, `"ran"`) || !strings.Contains(ran, `"ran"`) {
		t.Errorf("the denied call ends with %s, and the other with %s", denied, ran)
	}
	if confirmed, reviewed := w.forwarded("confirm"), w.forwarded("review"); len(confirmed) != 1 || !slices.Equal(reviewed, []string{`{"n":1}`}) {
		t.Errorf("the server got %q and %q", confirmed, reviewed)
	}
}

// D30: of answers that contradict each other, all at once and at two gateways, one counts, and what it says is what happens.
func TestAskAttackD30Contradiction(t *testing.T) {
	t.Parallel()
	for round := range 4 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			w := newPeople(t, land{replicas: 2, change: func(c *mcp.Config) { c.Approvals.Wait = 20 * time.Second }})
			alice := w.client("legacy")
			asked := alice.asked("confirm", `{"n":1}`)
			id := w.asks("confirm")
			there := alice.at(w.replicas[1])
			var all sync.WaitGroup
			start := make(chan struct{})
			for n := range 64 {
				v, answer := []*visitor{alice, there}[n%2], []string{saysYes, saysNo}[n/2%2]
				all.Go(func() {
					<-start
					_ = v.reply(asked.id, answer)
				})
			}
			close(start)
			all.Wait()
			end, ran := asked.rest(t), w.forwarded("confirm")
			votes := w.votes(id)
			if len(votes) != 1 {
				t.Fatalf("they say %q", votes)
			}
			switch agreed := strings.HasPrefix(votes[0], "approve"); {
			case agreed && len(ran) == 0 && strings.Contains(end, "Authorization required"): // this client has declined, too
				if got := w.insists(alice, "confirm", `{"n":1}`); !got.ran() || len(w.forwarded("confirm")) != 1 || len(w.votes(id)) != 1 {
					t.Errorf("they say %q, and the call does not go on: %s", w.votes(id), got)
				}
			case agreed && (len(ran) != 1 || !strings.Contains(end, `"ran"`)):
				t.Errorf("they say %q, the server got %q, and the call ends with %s", votes, ran, end)
			case !agreed && (len(ran) != 0 || !strings.Contains(end, `"error"`)):
				t.Errorf("they say %q, the server got %q, and the call ends with %s", votes, ran, end)
			}
		})
	}
}

// Of one form that is answered many times at once, and of many calls that are equal and wait for the same people, each call
// happens at most once for what was agreed to.
func TestAskAttackD30EqualCalls(t *testing.T) {
	t.Parallel()
	w := newPeople(t, land{replicas: 2, change: func(c *mcp.Config) { c.Approvals.Wait = 20 * time.Second }})
	var all sync.WaitGroup
	var ran atomic.Int64
	var forms []called
	var clients []*visitor
	for n := range 8 {
		v := w.replicas[n%2].takesForms("legacy", nil)
		clients, forms = append(clients, v), append(forms, v.asked("confirm", `{"n":1}`))
	}
	id := w.asks("confirm") // it is one request for approval
	for n, v := range clients {
		all.Go(func() {
			_ = v.reply(forms[n].id, saysYes)
			if strings.Contains(forms[n].rest(t), `"ran"`) {
				ran.Add(1)
			}
		})
	}
	all.Wait()
	if got := w.forwarded("confirm"); ran.Load() != 1 || len(got) != 1 || len(w.votes(id)) != 1 {
		t.Errorf("%d ran, the server got %q, and they say %q", ran.Load(), got, w.votes(id))
	}
}
