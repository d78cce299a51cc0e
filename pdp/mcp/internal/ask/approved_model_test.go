package ask_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/evaluation/authzenclient/approvals"
	"policy-service/pdp/mcp/internal/ask"
	"policy-service/pdp/mcp/mcptest"
	"policy-service/pdp/pdptest/night"
)

// walk is what people say, and what calls bring of it, step by step. What may be permitted follows from the steps alone.
type walk struct {
	*office
	calls []ask.Operation
	uses  []int // how often an approval of each counts
	asked []*filed
	went  []*round
	// permits is how often something was forwarded.
	permits int
}

// filed is an approval request as it must be.
type filed struct {
	call     int
	wanted   *ask.Wanted
	standing approvals.Standing
	looked   bool // the standing says that it is approved
	status   string
	left     int
	until    time.Time // when it ends by itself
}

// round is a permit by an approval.
type round struct {
	of     *filed
	brings ask.Answered
	last   *int // which round of the use was last
	n      int
	until  time.Time
}

func newWalk(o *office, name string) *walk {
	w := &walk{office: o}
	b := o.tool(strings.Replace(plainTool, `"a"`, `"b"`, 1), nil)
	for n, tool := range []*ask.Tool{o.a, b, o.a, b} {
		w.calls = append(w.calls, o.call(alice(o.t), tool, fmt.Sprintf(`{"walk":%q,"n":%d}`, name, n/2)))
		w.uses = append(w.uses, n%2+1)
	}
	return w
}

// live is the approval request that an equal call joins, nil if there is none.
func (w *walk) live(call int) *filed {
	for _, f := range w.asked {
		if f.call == call && f.counts() && w.Now().Before(f.until) {
			return f
		}
	}
	return nil
}

func (f *filed) counts() bool { return f.status == "pending" || f.status == "approved" && f.left > 0 }

// step does one thing of many. A, b and c choose which, and with what.
func (w *walk) step(a, b, c byte) {
	call := int(b) % len(w.calls)
	switch a % 8 {
	case 0:
		w.file(call)
	case 1, 2:
		if len(w.asked) > 0 {
			w.decide(w.asked[int(b)%len(w.asked)], c)
		}
	case 3, 4:
		if len(w.asked) > 0 {
			w.use(w.asked[int(c)%len(w.asked)], call, b%16 > 3)
		}
	case 5, 6:
		if len(w.went) > 0 {
			w.goOn(w.went[int(c)%len(w.went)], call, b%16 > 3)
		}
	case 7:
		if b%4 == 0 {
			w.Advance(time.Duration(c%5) * time.Minute)
		} else if w.forwards(w.calls[call]) {
			w.t.Error("permitted without an approval")
		}
	}
}

func (w *walk) file(call int) {
	live := w.live(call)
	wanted, s := w.files(w.calls[call])
	if live != nil {
		if live.standing.Task().ID() != s.Task().ID() {
			w.t.Errorf("a call does not join the one that is %s", live.status)
		}
		return
	}
	for _, f := range w.asked {
		if f.standing.Task().ID() == s.Task().ID() {
			w.t.Errorf("a call joins one that is %s, with %d uses left", f.status, f.left)
		}
	}
	w.asked = append(w.asked, &filed{call: call, wanted: wanted, standing: s, status: "pending", until: w.Now().Add(10 * time.Minute)})
}

// decide is mia, who says yes most often.
func (w *walk) decide(f *filed, c byte) {
	over := !w.Now().Before(f.until)
	switch {
	case f.status == "pending" && !over && c%8 == 0:
		w.says("deny", f.standing)
		f.status = "denied"
	case f.status == "pending" && !over:
		w.says("approve", f.standing)
		f.status, f.left, f.until = "approved", w.uses[f.call], w.Now().Add(5*time.Minute)
	case f.status == "approved" && f.left > 0 && !over && c%4 == 0:
		w.does("revoke", `{"reason":"x"}`, f.standing)
		f.status = "revoked"
	}
	if c%16 < 12 && f.status != "pending" {
		s, err := approvals.Look(w.t.Context(), f.wanted.PDP(), f.standing.Task())
		w.must(err)
		f.standing, f.looked = s, s.Approved()
	}
}

// use brings what mia said, with its own call or with another.
func (w *walk) use(f *filed, call int, own bool) {
	if own {
		call = f.call
	}
	op := w.calls[call]
	op.Answered.Standing = &f.standing
	may := f.looked && f.status == "approved" && f.left > 0 && call == f.call && w.Now().Before(f.until)
	if p := w.expect(op, may); p != nil {
		f.left--
		w.remember(p, &round{of: f, last: new(int), until: w.Now().Add(15 * time.Minute)})
	}
}

// goOn brings a round that was permitted, be it the last or not.
func (w *walk) goOn(r *round, call int, own bool) {
	if own {
		call = r.of.call
	}
	op := w.calls[call]
	op.Answered = r.brings
	may := *r.last == r.n && r.n < 10 && call == r.of.call && w.Now().Before(r.until) && r.of.status != "revoked"
	if p := w.expect(op, may); p != nil {
		*r.last++
		w.remember(p, &round{of: r.of, last: r.last, n: r.n + 1, until: r.until})
	}
}

func (w *walk) remember(p *ask.Permit, r *round) {
	k, ok := p.Continuation()
	if !ok {
		w.t.Error("a permit by an approval does not go on")
	}
	r.brings.Continues = &k
	w.went = append(w.went, r)
}

// expect asks, and holds the answer to what may be.
func (w *walk) expect(op ask.Operation, may bool) *ask.Permit {
	p, refusal := w.Ask(w.t.Context(), op)
	switch {
	case (p != nil) != may:
		w.t.Errorf("permitted: %v, want %v; %+v", p != nil, may, refusal)
	case refusal != nil && refusal.Wanted != nil:
		w.t.Error("people would be asked once more")
	}
	if p != nil {
		w.permits++
	}
	return p
}

// Whatever order things come in, exactly what people approved goes on, as often as they did.
func TestApprovedWalks(t *testing.T) {
	t.Parallel()
	walks, steps := night.Cases(25), 120
	o := people(t)
	permits, rounds := 0, 0
	for n := range walks {
		r := rand.New(rand.NewPCG(22, uint64(n)))
		w := newWalk(o, fmt.Sprint(n))
		for range steps {
			w.step(byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32()))
			if t.Failed() {
				t.Fatalf("walk %d", n)
			}
		}
		permits += w.permits
		for _, went := range w.went {
			rounds += went.n
		}
	}
	if permits < walks*3 || rounds < walks*2 {
		t.Errorf("%d walks have %d permits, and go on %d times: that shows nothing", walks, permits, rounds)
	}
	recorded := 0
	for _, line := range o.records("decision") {
		if line["decision"] == true {
			recorded++
		}
	}
	if recorded != permits {
		t.Errorf("%d permits, and %d on record", permits, recorded)
	}
}

func FuzzApproved(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 0, 1, 3, 15, 0, 5, 15, 0, 5, 15, 0, 5, 15, 1})
	f.Add([]byte{0, 1, 0, 1, 0, 1, 3, 15, 0, 3, 15, 0, 3, 15, 0, 1, 0, 4, 5, 15, 0})
	o, n := people(f), 0
	f.Fuzz(func(t *testing.T, steps []byte) {
		n++
		o.taken()
		w := newWalk(o.in(t), fmt.Sprint(n))
		for ; len(steps) >= 3 && len(steps) < 3*200; steps = steps[3:] {
			w.step(steps[0], steps[1], steps[2])
		}
	})
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
			continue // their five seconds each are TestEachLie's
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
	forged := func(r *http.Request, body string) func() {
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
		over := forged(nil, task(test.status, fmt.Sprintf(`{"id":%q,"approved_until":%q,"state":"x"}`, test.approval, test.until)))
		op := o.brings(w, s, call)
		over()
		if o.forwards(op) {
			t.Errorf("%s is permitted", name)
		}
		over = forged(nil, task(test.status, fmt.Sprintf(`{"id":%q,"approved_until":%q}`, test.approval, test.until)))
		op = o.brings(w, s, call)
		over()
		got, refusal := o.outcome(op)
		if refusal == nil || (refusal.Kind == ask.Unavailable) != (name == "not yet") {
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
