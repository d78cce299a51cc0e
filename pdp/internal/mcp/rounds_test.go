package mcp_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/pdptest/mcptest"
	"policy-service/pdp/pdptest/night"
)

// roundsWorld is gateways with the same keys, which alice's agent comes to in one era.
type roundsWorld struct {
	*setting
	era  string
	file string
	gate []roundsReplica
	last atomic.Int64 // the number of the last call
	mu   sync.Mutex
	came map[string]int // how often what was answered
	// lossless is set if each permit leads to a call of the server.
	lossless bool
	// busy is held by who uses a gateway, and alone by who replaces one.
	busy sync.RWMutex
}

type roundsReplica struct {
	client roundsClient
	end    func()
	counts *sdkmetric.ManualReader
}

func newRoundsWorld(t testing.TB, era string, replicas int, serverEra string) *roundsWorld {
	t.Helper()
	w := &roundsWorld{setting: newSetting(t, "127.0.0.1:0", serverEra), era: era, came: map[string]int{}}
	t.Cleanup(w.permitsEachCall) // when the PDP has ended
	w.pdpHere()
	w.file = w.gatewayFile("gateway.yaml", "127.0.0.1:0", "wait: 25s")
	for n := range replicas {
		w.gate = append(w.gate, roundsReplica{})
		w.replace(n)
	}
	return w
}

// permitsEachCall has each call that the server got on record as a permit, and no other, if nothing is lost between them.
func (w *roundsWorld) permitsEachCall() {
	if !w.lossless {
		return
	}
	calls, permits := 0, 0
	for _, g := range w.rec.Got() {
		if g.Method == "tools/call" {
			calls++
		}
	}
	for _, line := range w.records() {
		var r loggedLine
		orFail(w.t, json.Unmarshal([]byte(line), &r))
		if r.Decision && r.Request.Action.Name == "tool.invoke" {
			permits++
		}
	}
	if calls == 0 || calls != permits {
		w.t.Errorf("the server got %d calls, and %d permits are on record", calls, permits)
	}
}

// replace ends a replica, if it runs, and starts another in its place. A session goes on there.
func (w *roundsWorld) replace(n int) {
	w.t.Helper()
	var beside *roundsClient
	for _, other := range w.gate {
		if other.end != nil {
			beside = &other.client
		}
	}
	if w.gate[n].end != nil {
		w.gate[n].end()
	}
	counts, deps := metered()
	url, end := w.gatewayHere(w.file, deps, func(c *mcp.Config) {
		if w.era == "modern" {
			c.Approvals.Wait = time.Second // nobody decides meanwhile
		}
	})
	w.gate[n] = roundsReplica{w.client(w.era, url, beside), end, counts}
}

// roundsPlan is a call, and what is done about it.
type roundsPlan struct {
	tool  roundsTool
	asks  int
	bare  bool
	steps []roundsStep
}

func (p roundsPlan) String() string {
	var lines []string
	for _, s := range p.steps {
		lines = append(lines, "  "+s.String())
	}
	return fmt.Sprintf("tool %s, whose server asks %d times (bare: %t)\n%s", p.tool.name, p.asks, p.bare, strings.Join(lines, "\n"))
}

// roundsRun is one call on its way: as it is, and as it must be.
type roundsRun struct {
	w      *roundsWorld
	plan   roundsPlan
	marker string
	model  *roundsCall
	// states are what the client holds in the modern era, and calls in the legacy one, each beside that of the model.
	states []wasAsked
	calls  []*waitingCall
	// ids are those of what people were asked, as their forms have them.
	ids []string
}

// run does what a plan says, and reports what the gateways did otherwise than the model.
func (w *roundsWorld) run(p roundsPlan) (err error) {
	r := &roundsRun{w: w, plan: p, marker: "call " + strconv.FormatInt(w.last.Add(1), 10), model: &roundsCall{era: w.era, tool: p.tool, asks: p.asks}}
	defer func() {
		for _, c := range r.calls {
			c.cancel()
		}
	}()
	for n, s := range p.steps {
		do := r.modern
		if w.era == "legacy" {
			do = r.legacy
		}
		if err := do(s); err != nil {
			return fmt.Errorf("step %d (%s): %w", n+1, s, err)
		}
		if got := w.seen(r.marker); got != r.model.forwards {
			return fmt.Errorf("step %d (%s): the server has seen %d, and it should be %d", n+1, s, got, r.model.forwards)
		}
		if err := r.model.sound(); err != nil {
			return fmt.Errorf("step %d (%s): the model: %w", n+1, s, err)
		}
		if len(r.ids) > len(r.model.approvals) {
			return fmt.Errorf("step %d (%s): people were asked %d times, and it should be %d", n+1, s, len(r.ids), len(r.model.approvals))
		}
	}
	return nil
}

func (r *roundsRun) arguments() string {
	return fmt.Sprintf(`{"marker":%q,"asks":%d,"bare":%t}`, r.marker, r.plan.asks, r.plan.bare)
}

// knows notes what came, and which request for approval a form is about.
func (r *roundsRun) knows(a wasAsked) {
	r.w.mu.Lock()
	r.w.came[a.kind]++
	r.w.mu.Unlock()
	if a.approval != "" && a.kind == roundsForm && !slices.Contains(r.ids, a.approval) {
		r.ids = append(r.ids, a.approval)
	}
}

// elsewhere has bob do something, where the model says that he can.
func (r *roundsRun) elsewhere(s roundsStep) error {
	next := r.model.clone()
	if !next.elsewhere(s.do) {
		return nil
	}
	r.model = next
	return r.w.byBob(r.marker, s.do)
}

func (r *roundsRun) modern(s roundsStep) error {
	switch s.do {
	case roundsReplace:
		r.w.busy.Lock()
		defer r.w.busy.Unlock()
		r.w.replace(s.by % len(r.w.gate))
		return nil
	case roundsApprove, roundsDeny, roundsRevoke:
		return r.elsewhere(s)
	case roundsRepeat:
		if len(r.states) == 0 {
			return nil
		}
		s.n = s.of(len(r.states))
	case roundsSend:
	default:
		return nil
	}
	// The model does them one after the other, and the gateways at once.
	var want []string
	before := r.model.clone()
	for range s.times {
		seen := r.model.forwards
		want = append(want, r.model.modern(s))
		if kind := want[len(want)-1]; (kind == roundsRan || kind == roundsInput) != (r.model.forwards == seen+1) {
			return fmt.Errorf("the model answers %q with %d forwards", kind, r.model.forwards-seen)
		}
	}
	got, err := r.atOnce(s)
	if err != nil {
		return err
	}
	states := slices.Clone(got)
	states = slices.DeleteFunc(states, func(a wasAsked) bool { return a.state == "" })
	saw := roundsKinds(got)
	slices.Sort(want)
	if s.times > 1 && s.do == roundsSend && !slices.Equal(saw, want) {
		// Of several at once that found one approval, those that came too late are told to send the call again. If all of them
		// are, nobody is asked anew.
		r.model = before
		want = r.model.tooLate(s, saw)
	}
	if !slices.Equal(saw, want) {
		return fmt.Errorf("the answers are %q, and should be %q\n%v", saw, want, got)
	}
	// Which of equal answers is whose does not matter.
	for n := len(r.states); n < len(r.model.held); n++ {
		h := r.model.held[n]
		kind := roundsForm
		switch {
		case h.round > 0:
			kind = roundsInput
		case h.told > 0:
			kind = roundsWait
		}
		at := slices.IndexFunc(states, func(a wasAsked) bool { return a.kind == kind })
		if at < 0 {
			return fmt.Errorf("no state comes with the answer: %v", got)
		}
		r.states = append(r.states, states[at])
		states = slices.Delete(states, at, at+1)
	}
	for _, a := range got {
		r.knows(a)
	}
	return nil
}

// roundsKinds are what several requests were answered, sorted. One may be told to come again while it is not known yet whether
// another has used an approval up: it was refused.
func roundsKinds(all []wasAsked) (kinds []string) {
	for _, a := range all {
		if len(all) > 1 && a.kind == roundsAway {
			a.kind = roundsRefused
		}
		kinds = append(kinds, a.kind)
	}
	slices.Sort(kinds)
	return kinds
}

// tooLate does calls of which some, as was seen, are refused for coming too late: as many as were.
func (c *roundsCall) tooLate(s roundsStep, saw []string) (want []string) {
	refused := 0
	for _, kind := range saw {
		if kind == roundsRefused {
			refused++
		}
	}
	for n := range s.times {
		if forwarded := len(want) > 0; forwarded && n >= s.times-refused && c.spentSome() {
			want = append(want, roundsRefused)
			continue
		}
		want = append(want, c.modern(s))
	}
	slices.Sort(want)
	return want
}

func (c *roundsCall) spentSome() bool {
	return slices.ContainsFunc(c.approvals, func(a roundsApproval) bool { return len(a.spent) > 0 })
}

// atOnce sends a request as often as a step says, at one replica after the other.
func (r *roundsRun) atOnce(s roundsStep) ([]wasAsked, error) {
	var with *wasAsked
	if s.do == roundsRepeat {
		with = &r.states[s.n]
		if with.kind == roundsInput {
			s.with = "accept" // the server wants to know
		}
	}
	r.w.busy.RLock()
	defer r.w.busy.RUnlock()
	got, errs := make([]wasAsked, s.times), make([]error, s.times)
	var all sync.WaitGroup
	for n := range s.times {
		all.Go(func() {
			at := r.w.gate[(s.by+n)%len(r.w.gate)].client
			got[n], errs[n] = at.call(r.w.t.Context(), r.plan.tool.name, r.arguments(), with, s.with)
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return got, nil
}

// legacy does a step of the era in which calls wait.
func (r *roundsRun) legacy(s roundsStep) error {
	switch s.do {
	case roundsSend:
		return r.begin(s)
	case roundsAnswer:
		return r.answer(s)
	case roundsLeave:
		if len(r.calls) == 0 {
			return nil
		}
		return r.leave(s.of(len(r.calls)))
	case roundsReplace:
		r.w.replace(s.by % len(r.w.gate))
		return r.ended(func(n int) bool { return r.calls[n].at == s.by%len(r.w.gate) }, roundsGone)
	}
	before := r.model.newest()
	if err := r.elsewhere(s); err != nil || before == nil {
		return err
	}
	return r.settle()
}

// begin begins calls at once.
func (r *roundsRun) begin(s roundsStep) error {
	if a := r.model.newest(); a != nil && a.status == roundsPending && len(a.yes) > 0 {
		return nil // it would wait, and nobody could see that it does
	}
	var want []string
	before := r.model.clone()
	for range s.times {
		want = append(want, r.model.modern(s))
	}
	var begun []*waitingCall
	for n := range s.times {
		c := r.w.gate[(s.by+n)%len(r.w.gate)].client.begins(r.plan.tool.name, r.arguments())
		c.at = (s.by + n) % len(r.w.gate)
		begun = append(begun, c)
	}
	r.calls = append(r.calls, begun...)
	got, saw, err := r.nextOf(begun)
	if err != nil {
		return err
	}
	slices.Sort(want)
	if !slices.Equal(saw, want) && s.times > 1 {
		r.model = before
		want = r.model.tooLate(s, saw)
	}
	if !slices.Equal(saw, want) {
		return fmt.Errorf("the answers are %q, and should be %q\n%v", saw, want, got)
	}
	return r.match()
}

// match puts the calls in the order of what the model holds, and forgets those that are over.
func (r *roundsRun) match() error {
	r.calls = slices.DeleteFunc(r.calls, func(c *waitingCall) bool { return c.asked.kind != roundsForm && c.asked.kind != roundsInput })
	if len(r.calls) != len(r.model.held) {
		return fmt.Errorf("%d calls wait, and %d should", len(r.calls), len(r.model.held))
	}
	left := r.calls
	r.calls = nil
	for _, h := range r.model.held {
		at := slices.IndexFunc(left, func(c *waitingCall) bool { return (c.asked.kind == roundsInput) == (h.round > 0) && c.round == h.round })
		if at < 0 {
			return fmt.Errorf("no call waits in round %d", h.round)
		}
		r.calls = append(r.calls, left[at])
		left = slices.Delete(left, at, at+1)
	}
	return nil
}

// answer brings what a call waits for. What is asked of people is answered at any replica.
func (r *roundsRun) answer(s roundsStep) error {
	if len(r.calls) == 0 || s.with == "" {
		return nil
	}
	n := s.of(len(r.calls))
	c, h := r.calls[n], r.model.held[n]
	a := &r.model.approvals[h.approval]
	if h.round > 0 {
		if err := r.w.gate[c.at].client.answer(r.w.t.Context(), c.asked, "accept", s.times); err != nil {
			return err
		}
		r.model.held = slices.Delete(r.model.held, n, n+1)
		want := roundsRefused
		if next, ok := r.model.goOn(h); ok {
			want = r.model.seen(next)
		}
		return r.hears([]*waitingCall{c}, []string{want})
	}
	if slices.Contains(a.yes, roundsAlice) {
		return nil
	}
	at := r.w.gate[s.by%len(r.w.gate)].client
	if s.with == "cancel" { // which the PDP is not told, so that no other replica hears of it
		at = r.w.gate[c.at].client
	}
	if err := at.answer(r.w.t.Context(), c.asked, s.with, s.times); err != nil {
		return err
	}
	switch s.with {
	case "accept":
		r.model.agree(a, roundsAlice)
	case "decline":
		a.status = roundsDenied
	case "cancel":
		r.model.held = slices.Delete(r.model.held, n, n+1)
		return r.hears([]*waitingCall{c}, []string{roundsRequired})
	}
	return r.settle()
}

// settle has all calls that wait for people go on, or end, if people are waited for no more.
func (r *roundsRun) settle() error {
	var settled []*waitingCall
	var left []roundsHeld
	var want []string
	held := r.model.held
	r.model.held = nil
	for n, h := range held {
		if h.round > 0 || r.model.approvals[h.approval].status == roundsPending {
			left = append(left, h)
			continue
		}
		settled = append(settled, r.calls[n])
		if next, ok := r.model.use(h.approval); ok {
			want = append(want, r.model.seen(next))
		} else {
			want = append(want, roundsRefused)
		}
	}
	r.model.held = append(left, r.model.held...)
	return r.hears(settled, want)
}

// nextOf is what comes next of calls, and of which kinds that is.
func (r *roundsRun) nextOf(calls []*waitingCall) (got []wasAsked, saw []string, err error) {
	for _, c := range calls {
		a, err := c.next()
		if err != nil {
			return nil, nil, err
		}
		got = append(got, a)
		r.knows(a)
	}
	return got, roundsKinds(got), nil
}

// hears waits for what comes next of calls. Which of them it comes of does not matter.
func (r *roundsRun) hears(calls []*waitingCall, want []string) error {
	got, saw, err := r.nextOf(calls)
	if err != nil {
		return err
	}
	slices.Sort(want)
	if !slices.Equal(saw, want) {
		return fmt.Errorf("what comes is %q, and should be %q\n%v", saw, want, got)
	}
	return r.match()
}

// leave has the client of a call go, and returns when the gateway has noticed.
func (r *roundsRun) leave(n int) error {
	c := r.calls[n]
	c.cancel()
	r.model.held = slices.Delete(r.model.held, n, n+1)
	if err := r.hears([]*waitingCall{c}, []string{roundsGone}); err != nil {
		return err
	}
	left := int64(0)
	for n, other := range r.calls {
		if other.at == c.at && r.model.held[n].round == 0 {
			left++
		}
	}
	mcptest.Until(r.w.t, "the gateway has noticed", func() bool { return waitingIn(r.w.gate[c.at].counts) == left })
	return nil
}

// ended waits for the end of the calls that are over.
func (r *roundsRun) ended(over func(n int) bool, kind string) error {
	var calls []*waitingCall
	var want []string
	var left []roundsHeld
	for n, h := range r.model.held {
		if over(n) {
			calls, want = append(calls, r.calls[n]), append(want, kind)
		} else {
			left = append(left, h)
		}
	}
	r.model.held = left
	return r.hears(calls, want)
}

// randomPlan is a plan that tries much.
func randomPlan(rng *rand.Rand, era string, replicas int) (p roundsPlan) {
	p.tool = roundsTools[rng.IntN(len(roundsTools))]
	p.asks, p.bare = rng.IntN(4), rng.IntN(3) == 0
	brings := map[string]string{"modern": roundsRepeat, "legacy": roundsAnswer}[era]
	do := []string{roundsSend, roundsSend, brings, brings, brings, brings, brings, roundsApprove, roundsApprove, roundsDeny, roundsRevoke, roundsReplace}
	if era == "legacy" {
		do = append(do, roundsLeave)
	}
	for range 3 + rng.IntN(14) {
		s := roundsStep{do: do[rng.IntN(len(do))], n: max(roundsNewest, rng.IntN(16)-8), by: rng.IntN(replicas), times: []int{1, 1, 1, 2, 5}[rng.IntN(5)]}
		s.with = []string{"accept", "accept", "accept", "accept", "accept", "accept", "accept", "decline", "cancel", ""}[rng.IntN(10)]
		if s.do == roundsReplace && era == "modern" && rng.IntN(12) > 0 { // all others wait for it, a second each
			s.do = brings
		}
		p.steps = append(p.steps, s)
	}
	return p
}

// shortest is the shortest plan, of those that leave steps of a plan out, that fails.
func (w *roundsWorld) shortest(p roundsPlan, err error) (roundsPlan, error) {
	for again := true; again; {
		again = false
		for n := range p.steps {
			less := p
			less.steps = slices.Delete(slices.Clone(p.steps), n, n+1)
			for range 3 { // what is done at once does not fail each time
				if failed := w.run(less); failed != nil {
					p, err, again = less, failed, true
					break
				}
			}
			if again {
				break
			}
		}
	}
	return p, err
}

// R3: whatever clients, people and gateways do about a call, in whatever order and however often, the server sees it as
// often as people agreed to, and each round once. It takes some seconds: of each plan, answers are waited for that do not come.
//
//	PROPERTY_RUNS=10 go test -run 'TestRounds$' ./pdp/internal/mcp    ten times as many plans, of which the first are the usual ones
func TestRounds(t *testing.T) {
	t.Parallel()
	plans := map[string]int{"modern": night.Cases(160), "legacy": night.Cases(100)}
	if n, err := strconv.Atoi(os.Getenv("PROPERTY_RUNS")); err == nil {
		for era := range plans {
			plans[era] *= n
		}
	}
	for replicas := 1; replicas <= 2; replicas++ {
		t.Run(fmt.Sprintf("%d replicas", replicas), func(t *testing.T) {
			t.Parallel()
			var all sync.WaitGroup
			for _, era := range eras { // side by side: each waits more than it works
				w := newRoundsWorld(t, era, replicas, "modern")
				w.lossless = true
				all.Go(func() { w.runMany(t, plans[era], replicas) })
			}
			all.Wait()
		})
	}
}

// runMany runs so many plans.
func (w *roundsWorld) runMany(t *testing.T, plans, replicas int) {
	rng := rand.New(rand.NewPCG(22, uint64(replicas)))
	todo := make(chan roundsPlan)
	var all sync.WaitGroup
	for range map[string]int{"modern": 32, "legacy": 1}[w.era] { // one that replaces a gateway would end the calls of others
		all.Go(func() {
			for p := range todo {
				if t.Failed() {
					continue
				}
				if err := w.run(p); err != nil {
					p, err = w.shortest(p, err)
					t.Errorf("%s: %v\n%s", w.era, err, p)
				}
			}
		})
	}
	for range plans {
		todo <- randomPlan(rng, w.era, replicas)
	}
	close(todo)
	all.Wait()
	t.Logf("%s: %d plans: %v", w.era, plans, w.came)
	for _, kind := range []string{roundsRan, roundsInput, roundsForm, roundsRequired, roundsRefused} {
		if w.came[kind] == 0 && !t.Failed() && !testing.Short() {
			t.Errorf("%s: the plans try too little: nothing was %s", w.era, kind)
		}
	}
}

// Each state is sent many times at once, to two gateways, and later again: the server sees it once, and its round once.
func TestRoundsAtOnce(t *testing.T) {
	t.Parallel()
	times := 64
	if testing.Short() {
		times = 16
	}
	w := newRoundsWorld(t, "modern", 2, "modern")
	w.lossless = true // of many at once, no more have a permit than go on
	for _, bare := range []bool{false, true} {
		p := roundsPlan{tool: roundsTools[0], asks: 3, bare: bare, steps: []roundsStep{{do: roundsSend, times: times}}}
		for state, round := 0, 0; round <= p.asks; round++ {
			p.steps = append(p.steps, roundsStep{do: roundsRepeat, n: state, with: "accept", times: times}, roundsStep{do: roundsRepeat, n: state, with: "accept", times: 2, by: 1})
			state = times + round // the state that the last one was given
		}
		if err := w.run(p); err != nil {
			t.Errorf("%v\n%s", err, p)
		}
	}
	legacy := newRoundsWorld(t, "legacy", 2, "modern")
	legacy.lossless = true
	p := roundsPlan{tool: roundsTools[0], asks: 2, steps: []roundsStep{
		{do: roundsSend, times: times}, {do: roundsAnswer, n: 0, with: "accept", times: times},
		{do: roundsAnswer, n: 0, with: "accept", times: times}, {do: roundsAnswer, n: 0, with: "accept", times: times},
	}}
	if err := legacy.run(p); err != nil {
		t.Errorf("%v\n%s", err, p)
	}
}

// The answer of a server of the legacy era is held while its client answers what the server asks. It goes on as rounds do:
// each once, and none after the approval was taken back.
func TestRoundsHeld(t *testing.T) {
	t.Parallel()
	w := newRoundsWorld(t, "modern", 1, "legacy")
	all := roundsPlan{tool: roundsTools[0], asks: 3, steps: []roundsStep{{do: roundsSend, times: 1}}}
	for n := range all.asks + 1 {
		all.steps = append(all.steps, roundsStep{do: roundsRepeat, n: n, with: "accept", times: 8}, roundsStep{do: roundsRepeat, n: n, with: "accept", times: 1})
	}
	revoked := roundsPlan{tool: roundsTools[1], asks: 2, steps: []roundsStep{
		{do: roundsSend, times: 1}, {do: roundsRepeat, n: 0, with: "accept", times: 1}, {do: roundsRepeat, n: 1, times: 1},
		{do: roundsRevoke}, {do: roundsRepeat, n: 2, times: 1},
	}}
	for _, p := range []roundsPlan{all, revoked} {
		if err := w.run(p); err != nil {
			t.Errorf("%v\n%s", err, p)
		}
	}
}

// A server that asks for more than people have approved ends its call: its question reaches nobody, nobody is asked for an
// approval again, and the client reads which obligation says so. In each pair of eras each answer to the server is a round of the
// PDP.
func TestNoRoundIsAskedThatNobodyApproved(t *testing.T) {
	t.Parallel()
	for tool, rounds := range map[string]int{"none": 0, "few": 2} {
		for _, serverEra := range eras {
			for _, era := range eras {
				t.Run(tool+", "+era+" client, "+serverEra+" server", func(t *testing.T) {
					t.Parallel()
					w := newRoundsWorld(t, era, 1, serverEra)
					got := w.beyond(tool, rounds)
					if got.kind != roundsAway || !strings.Contains(got.text, "server_request_refused") || !strings.Contains(got.text, `rounds of the obligation \"`+tool+`\"`) {
						t.Errorf("the call ends as %v", got)
					}
					if seen := w.seen("x"); seen != rounds+1 {
						t.Errorf("the server has seen the call %d times", seen)
					}
					if _, err := w.open("x", ""); err == nil {
						t.Error("people are asked again")
					}
					if serverEra == "legacy" {
						mcptest.Until(t, "the server is told", func() bool {
							w.mu.Lock()
							defer w.mu.Unlock()
							return w.cancelled == 1
						})
					}
				})
			}
		}
	}
}

// beyond is what comes of a call whose server asks once more than it may. Alice agrees, and answers what she is asked.
func (w *roundsWorld) beyond(tool string, rounds int) wasAsked {
	w.t.Helper()
	got := w.gate[0].client.converse(tool, fmt.Sprintf(`{"marker":"x","asks":%d}`, rounds+1), func(params jsontext.Value) string {
		kind, _ := readQuestion(params)
		return answerOf(kind, "accept")
	})
	return readResponse(lastMessage(got.text))
}
