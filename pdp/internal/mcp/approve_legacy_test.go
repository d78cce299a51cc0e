package mcp_test

import (
	"fmt"
	"net/http"
	"testing"

	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/pdptest/mcptest"
)

// What a call ends with that people were asked about, as becomes has it.
const (
	itRuns    = "runs"
	isDenied  = "is denied: declined"
	mustAsk   = "waits"
	isInvalid = "is refused"
)

func endingOf(got echo) string {
	if got.finals != 1 || got.status != http.StatusOK {
		return "something else: " + got.String()
	}
	return becomes(seenIn(got))
}

// ends fails unless the call ends so, and the server has got what it ran, once.
func (d *dialogue) ends(want string) (got echo) {
	d.v.s.t.Helper()
	got = d.end()
	if is := endingOf(got); is != want {
		d.v.s.t.Errorf("%s %s: %s, want %s", d.tool, d.arguments, is, want)
	}
	return got
}

// Whoever brings a decision, by a form or by a message of their own, hears from the PDP at once what came of it, and so does the
// call that waits in the same process, also while the PDP cannot be watched.
func TestApproveUnwatched(t *testing.T) {
	inEras(t, func(t *testing.T, era string) {
		tap := newWiretap(t)
		tap.silent(func(r *http.Request, _ []byte) bool { return watches(r) })
		counts, deps := metered()
		w := newPeople(t, land{before: tap.before, serve: tap.serve, deps: deps})
		v := w.client(era)
		for n, end := range []string{itRuns, isDenied} {
			d := v.dialogue("confirm", fmt.Sprintf(`{"n":%d}`, n))
			d.answer(v, []string{saysYes, saysNo}[n])
			d.ends(end)
		}
		w.ran("confirm", `{"n":0}`)

		// The person decides elsewhere while the answer is on its way.
		d := v.dialogue("confirm", `{"n":2}`)
		id := w.asks("confirm")
		tap.answers(func(back http.ResponseWriter, r *http.Request, _ []byte) bool {
			if answersForm(r) {
				w.approve("alice", id)
			}
			if watches(r) {
				back.WriteHeader(http.StatusServiceUnavailable)
			}
			return watches(r)
		})
		d.answer(v, saysYes)
		d.ends(itRuns)
		w.ran("confirm", `{"n":0}`, `{"n":2}`)
		tap.silent(func(r *http.Request, _ []byte) bool { return watches(r) })

		over := w.plain(era).waits("delegable", `{}`).ended
		id = w.asks("delegable")
		mcptest.Until(t, "the call waits", func() bool { return waitingIn(counts) == 1 })
		responded(t, w.as(era, "mia").ask(respondMethod, rules(id, "approve", "")), id, "approved")
		(<-over).runs(t)
	})
}

// Who goes away does not wait any longer. What people were asked stays, or is taken back, as the operator wants it.
func TestApproveLegacyLeft(t *testing.T) {
	t.Parallel()
	for does, want := range map[mcp.OnDisconnect]string{mcp.DisconnectKeep: "pending", mcp.DisconnectCancel: "cancelled"} {
		t.Run(string(does), func(t *testing.T) {
			t.Parallel()
			w := newPeople(t, land{change: func(c *mcp.Config) { c.Approvals.OnDisconnect = does }})
			for name, leave := range map[string]func(v *visitor, d *dialogue){
				"closed": func(_ *visitor, d *dialogue) { d.legacy.leave() },
				"notifications/cancelled": func(v *visitor, d *dialogue) {
					note := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, v.id.Load())
					v.send(note, v.headers("", "")...).has(t, http.StatusAccepted)
					d.ends(mustAsk)
				},
				"session ended": func(v *visitor, d *dialogue) {
					got, err := v.try(t.Context(), http.MethodDelete, "", v.headers("", "")...)
					orFail(t, err)
					got.has(t, http.StatusNoContent)
					d.end()
				},
			} {
				arguments := `{"case":` + inText(name) + `}`
				v := w.client("legacy")
				d := v.dialogue("confirm", arguments)
				id := w.asks("confirm")
				leave(v, d)
				w.becomes(id, want)
				if want == "pending" { // and it is found again
					v = w.client("legacy")
					d = v.dialogue("confirm", arguments)
					d.answer(v, saysYes)
					d.ends(itRuns)
					w.is(id, "used_up")
				} else {
					w.ran("confirm")
				}
			}
		})
	}
}
