package server_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest/night"
)

// posed is a question, by whom and where: an approval is of exactly one.
type posed struct {
	caller, tenant, subject, context string
	tool                             string
}

// reference is an approval that somebody may bring.
type reference struct {
	posed
	id, state string
}

// world does anything at all about approvals, and remembers what there is.
type world struct {
	*counter
	random *rand.Rand
	known  []reference
}

// mostKnown is from how many on those that have ended may be forgotten.
const mostKnown = 12

func pick[T any](w *world, all ...T) T { return all[w.random.IntN(len(all))] }

func (w *world) posed() posed {
	return posed{
		caller: pick(w, "asker", "other-asker"), tenant: pick(w, "default", "acme"), subject: pick(w, "bot", "bat"), tool: pick(w, "push", "list"),
		context: pick(w, push, `"other":1`),
	}
}

func (w *world) program(a posed) program {
	p := w.counter.program(a.caller)
	if a.tenant != "default" {
		p = p.in(a.tenant)
	}
	return p
}

// authzen is the question as AuthZEN has it, native as the other form.
func (a posed) authzen(more string) string {
	return fmt.Sprintf(`"subject":{"type":"agent","id":%q},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":%q},"context":{%s%s}`, a.subject, a.tool, a.context, more)
}

func (a posed) native(more string) string {
	return fmt.Sprintf(`{"tenant_id":%q,"actor":{"actor_id":%q,"actor_type":"agent"},"action":"tool.invoke","resource":{"type":"tool","id":%q},"context":{%s%s}}`, a.tenant, a.subject, a.tool, a.context, more)
}

// live are the approvals of a question that can be used, by what the store says.
func (w *world) live(a posed) (ids map[string]int) {
	ids = map[string]int{}
	for _, r := range w.known {
		if r.posed != a {
			continue
		}
		if s, _ := w.sees("mia", r.id); s.Status == "approved" {
			ids[r.id] = s.Used
		}
	}
	return ids
}

// file asks for an approval in either form, and sometimes has it approved.
func (w *world) file() {
	a := w.posed()
	if pick(w, true, false) {
		if told := w.asks(a.caller, a.native("")); told.Approval != nil && told.Approval.ID != "" {
			w.remember(reference{posed: a, id: told.Approval.ID})
		}
		return
	}
	p := w.program(a)
	t := p.submits(a.authzen("") + "," + p.denied(a.authzen("")).denial())
	if t.status == http.StatusAccepted {
		items, _ := w.inbox("mia", "?limit=200")
		for _, one := range items { // one of them is it
			w.says("mia", one.ID, "decision", pick(w, yes, yes, yes, no), http.StatusOK)
		}
		t = p.looks(t.Task.ID)
	}
	if t.Result != nil {
		w.remember(reference{posed: a, id: t.Result.Approval.ID, state: t.Result.Approval.State})
	}
}

func (w *world) remember(r reference) {
	for n, known := range w.known {
		if known.id == r.id && known.state == "" {
			w.known[n] = r
		}
		if known.id == r.id {
			return
		}
	}
	w.known = append(w.known, r)
	w.known = slices.DeleteFunc(w.known, func(old reference) bool {
		s, _ := w.sees("mia", old.id)
		return len(w.known) > mostKnown && s.Status != "pending" && s.Status != "approved" && w.random.IntN(2) == 0
	})
}

// meddle has a person, somebody who has no say, or time do something.
func (w *world) meddle() {
	if len(w.known) == 0 || w.random.IntN(4) == 0 {
		w.Advance(time.Duration(w.random.IntN(90)) * time.Second)
		return
	}
	id := pick(w, w.known...).id
	what, body := "decision", pick(w, yes, yes, yes, no)
	switch w.random.IntN(6) {
	case 0:
		what, body = "revoke", ""
	case 1, 2:
		what, body = "response", pick(w, w.responses(id)...)
	}
	who := pick(w, "mia", "mia", "mia", "mia", "eve", "asker", "pep")
	before, _ := w.sees("mia", id)
	status, text := w.do(who, "POST", "/v1/approvals/"+id+"/"+what, body) // which may be too late
	after, _ := w.sees("mia", id)
	odd := what == "response" && status != http.StatusOK
	// The version may be another: what ends by itself is written down when there is time.
	same := before.Status == after.Status && slices.Equal(before.Said, after.Said)
	if (who != "mia" || odd) && !same || who != "mia" && status < 400 {
		w.t.Fatalf("%s says %s %s: got %d %s, and %+v became %+v", who, what, body, status, text, before, after)
	}
	if saysNo := what == "response" && !approves(body, id); saysNo && before.Status == "pending" && after.Status == "approved" {
		w.t.Fatalf("%s approves: got %d %s", body, status, text)
	}
}

// approving are the answers of an MCP client that say plainly that somebody approves; ID
// is the request's.
var approving = []string{
	`{"action":"accept","content":{"approve":true}}`, `{"action":"accept","content":{"action":"approve"}}`, `{"authorizationId":"ID","decision":"approve","reason":"fine"}`,
}

// responses are answers of an MCP client, most of which approve nothing.
func (w *world) responses(id string) (all []string) {
	for _, body := range append(slices.Clone(approving),
		`{"action":"accept","content":{"approve":false}}`, `{"action":"accept"}`, `{"action":"accept","content":{"approve":true,"action":"deny"}}`,
		`{"action":"accept","content":{"approve":"true"}}`, `{"action":"accept","content":{"approve":true,"arguments.n":8}}`, `{"action":"accept","content":true}`,
		`{"action":"accept","content":{"approve":true},"decision":"approve"}`, `{"authorizationId":"01900000-0000-7000-8000-000000000000","decision":"approve"}`,
		`{"action":"decline"}`, `{"action":"decline","content":{"approve":true}}`, `{"action":"cancel"}`, `{"action":"cancel","content":{"approve":true}}`, `{}`) {
		all = append(all, strings.ReplaceAll(body, "ID", id))
	}
	return all
}

func approves(body, id string) bool {
	return slices.Contains(approving, strings.ReplaceAll(body, id, "ID"))
}

// try asks, with whatever may be brought, and reports whether it went through.
func (w *world) try() (a posed, brought reference, allowed bool) {
	a = w.posed()
	var more string
	if len(w.known) > 0 {
		brought = pick(w, w.known...)
		if pick(w, true, false) {
			a = brought.posed
		}
		state := pick(w, "", brought.state, brought.state, brought.state, pick(w, w.known...).state, "x.y.z")
		id := pick(w, brought.id, brought.id, brought.id, "y", "x")
		brought.id = id
		more = fmt.Sprintf(`,"approval":{"id":%q}`, id)
		if state != "" {
			more = fmt.Sprintf(`,"approval":{"id":%q,"state":%q}`, id, state)
		}
		more = pick(w, more, more, more, "")
	}
	claims := []string{"", `,"justification":"approved"`}
	if brought.id != "" {
		claims = append(claims, fmt.Sprintf(`,"approval_id":%q`, brought.id), fmt.Sprintf(`,"justification":"approved","approval_id":%q`, brought.id))
	}
	more += pick(w, claims...)
	switch w.random.IntN(3) {
	case 0:
		return a, brought, w.asks(a.caller, a.native(more), "X-Approval", "none").may()
	case 1:
		return a, brought, w.program(a).batch("", a.authzen(more))[0].Decision
	}
	return a, brought, w.program(a).evaluates(a.authzen(more)).Decision
}

// No input makes a call go through that nobody approved: whatever is asked and brought, in
// whatever form, one that goes through takes a use of an approval of exactly that question,
// which could be used a moment before.
func TestNothingPassesUnapproved(t *testing.T) {
	t.Parallel()
	steps := night.Cases(2000)
	c := openDesk(t, func(config *server.Config) { config.Approvals.NewPerMinutePerSubject = 1_000_000 })
	w := &world{counter: c, random: rand.New(rand.NewPCG(1, 2))}
	passed := 0
	for n := range steps {
		switch w.random.IntN(5) {
		case 0:
			w.file()
			continue
		case 1:
			w.meddle()
			continue
		}
		before := map[posed]map[string]int{}
		for _, r := range w.known {
			if before[r.posed] == nil {
				before[r.posed] = w.live(r.posed)
			}
		}
		a, brought, allowed := w.try()
		used := ""
		for _, live := range before {
			for id, uses := range live {
				if s, _ := w.sees("mia", id); s.Used > uses {
					used += id
				}
			}
		}
		if _, mine := before[a][used]; allowed != mine {
			t.Fatalf("step %d: %+v brought %+v: went through: %v, used %q of %v", n, a, brought, allowed, used, before[a])
		}
		if allowed {
			passed++
		}
	}
	if passed < steps/50 {
		t.Errorf("only %d went through: the test says little", passed)
	}
	t.Logf("%d approvals, %d went through", len(w.known), passed)
}
