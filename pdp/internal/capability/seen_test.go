package capability_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/evaluation"
	token "policy-service/evaluation/capability"
	"policy-service/pdp/internal/capability"
	"policy-service/pdp/pdptest/clock"
)

var agent = evaluation.Ref{Type: "agent", ID: "a"}

// passedOn has as much time pass as the clock of the records shows.
func passedOn(r *record) func() time.Duration {
	return func() time.Duration { return r.Time().Sub(start) }
}

// first asks for a proof, and wants no error.
func first(t *testing.T, s *capability.Seen, jkt, jti string, until time.Time) bool {
	t.Helper()
	is, err := s.First(t.Context(), "acme", agent, jkt, jti, until)
	must(t, err)
	return is
}

// TestSeenOnce: of 64 equal proofs at once one is the first, whoever says so.
func TestSeenOnce(t *testing.T) {
	t.Parallel()
	r := newRecord()
	s := capability.NewSeen(token.MemoryOptions{Now: r.Time, Elapsed: passedOn(r)})
	for round := range 100 {
		var firsts atomic.Int32
		var all sync.WaitGroup
		for n := range 64 {
			all.Go(func() {
				of := evaluation.Ref{Type: "agent", ID: fmt.Sprint(n % 3)}
				if is, err := s.First(t.Context(), fmt.Sprint("tenant ", n%2), of, "key", fmt.Sprint(round), start.Add(time.Minute)); is {
					firsts.Add(1)
				} else if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if firsts.Load() != 1 {
			t.Fatalf("round %d: %d were the first", round, firsts.Load())
		}
	}
	if s.Count() != 100 {
		t.Errorf("%d are remembered", s.Count())
	}
	if first(t, s, "key", "1", start) || !first(t, s, "ke", "y1", start) || !first(t, s, "other", "1", start) {
		t.Error("another key's proof is not the first, or the same one is")
	}
}

// TestSeenUntil: nothing is forgotten before its time is up, and all is two seconds after.
func TestSeenUntil(t *testing.T) {
	t.Parallel()
	r, random := newRecord(), rand.New(rand.NewPCG(1, 2))
	s := capability.NewSeen(token.MemoryOptions{Now: r.Time, Elapsed: passedOn(r)})
	until := map[string]time.Time{}
	for n := range 5000 {
		r.Pass(time.Duration(random.IntN(300)) * time.Millisecond)
		id := fmt.Sprint(random.IntN(500))
		end, known := until[id]
		next := r.Now.Add(time.Duration(random.IntN(70_000)) * time.Millisecond)
		is := first(t, s, "key", id, next)
		if known && !r.Now.After(end) && is {
			t.Fatalf("%d: %s was to be remembered until %s, and is not at %s", n, id, end, r.Now)
		}
		if known && r.Now.After(end.Add(2*time.Second)) && !is {
			t.Fatalf("%d: %s is remembered for too long", n, id)
		}
		if is {
			until[id] = next
		}
	}
	exact := capability.NewSeen(token.MemoryOptions{Now: r.Time, Elapsed: passedOn(r)})
	r.Now = start
	for n := range 5 { // at the very instant it is still remembered
		if is := first(t, exact, "key", "exact", start.Add(4*time.Second)); is != (n == 0) {
			t.Errorf("after %d seconds: %v", n, is)
		}
		r.Pass(time.Second)
	}
	if !first(t, exact, "key", "exact", r.Now) {
		t.Error("it is remembered for too long")
	}
	full := capability.NewSeen(token.MemoryOptions{Now: r.Time, Elapsed: passedOn(r), Most: 3})
	for n := range 3 {
		if is, err := full.First(t.Context(), fmt.Sprint(n), agent, "key", fmt.Sprint(n), r.Now.Add(time.Second)); !is || err != nil {
			t.Fatal(is, err)
		}
	}
	at := r.Now.Add(time.Second)
	for !r.Now.After(at) {
		if is, err := full.First(t.Context(), "new", agent, "key", "new", r.Now); is || !errors.Is(err, token.ErrFull) {
			t.Fatalf("at %s one is forgotten: %v, %v", r.Now, is, err)
		}
		if is, err := full.First(t.Context(), "0", agent, "key", "0", r.Now); is || err != nil {
			t.Fatalf("at %s a proof is taken twice: %v", r.Now, err)
		}
		r.Pass(100 * time.Millisecond)
	}
	r.Pass(2 * time.Second)
	if is, err := full.First(t.Context(), "new", agent, "key", "new", r.Now); !is || err != nil {
		t.Errorf("what is over is not forgotten: %v, %v", is, err)
	}
}

// TestSeenShares: who has its share is refused, and takes nothing from others.
func TestSeenShares(t *testing.T) {
	t.Parallel()
	r := newRecord()
	s := capability.NewSeen(token.MemoryOptions{Now: r.Time, Elapsed: passedOn(r), Most: 100, PerTenant: 50, PerHolder: 20})
	take := func(tenant, id string, n int) (took int) {
		for i := range n {
			is, err := s.First(t.Context(), tenant, evaluation.Ref{Type: "agent", ID: id}, tenant+id, fmt.Sprint(i), r.Time().Add(time.Minute))
			if is {
				took++
			} else if !errors.Is(err, token.ErrFull) {
				t.Error(err)
			}
		}
		return took
	}
	for round := range 3 {
		for _, c := range []struct {
			tenant, id string
			want       int
		}{{"a", "1", 20}, {"a", "2", 20}, {"a", "3", 10}, {"a", "4", 0}, {"b", "1", 20}, {"c", "1", 20}, {"d", "1", 10}, {"e", "1", 0}} {
			if got := take(c.tenant, c.id, 30); got != c.want {
				t.Errorf("%d: of %s and %s %d are taken, want %d", round, c.tenant, c.id, got, c.want)
			}
		}
		r.Pass(2 * time.Minute) // all is forgotten, and may come again
	}
}

// TestSeenMemory: a proof takes 100 bytes at most.
func TestSeenMemory(t *testing.T) {
	r := newRecord()
	s := capability.NewSeen(token.MemoryOptions{Now: r.Time, Elapsed: passedOn(r), PerHolder: 1_000_000, PerTenant: 1_000_000})
	used := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	const most = 300_000
	before := used()
	for n := range most {
		if !first(t, s, "key", fmt.Sprint(n), start.Add(time.Minute)) {
			t.Fatal(n)
		}
		if n%25_000 == 24_999 {
			if each := (used() - before) / uint64(n+1); each > 100 {
				t.Errorf("of %d each takes %d bytes", n+1, each)
			}
		}
	}
	runtime.KeepAlive(s)
}

// TestKept: what was kept is taken once more, with the same question and approval, until its time is up.
func TestKept(t *testing.T) {
	t.Parallel()
	r := newRecord()
	s := capability.NewSeen(token.MemoryOptions{Now: r.Time, Elapsed: passedOn(r)})
	of := func(text string) [32]byte { return sha256.Sum256([]byte(text)) }
	until := start.Add(time.Hour)
	s.Keep(of("proof"), of("question"), "approval", until)
	s.Keep(of("proof"), of("question"), "approval", until) // once more is the same
	for name, take := range map[string]bool{
		"another proof":    s.Take(of("other"), of("question"), "approval"),
		"another question": s.Take(of("proof"), of("other"), "approval"),
		"another approval": s.Take(of("proof"), of("question"), "other"),
		"both the same":    s.Take(of("question"), of("proof"), "approval"),
	} {
		if take {
			t.Errorf("%s is taken", name)
		}
	}
	var taken atomic.Int32
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			if s.Take(of("proof"), of("question"), "approval") {
				taken.Add(1)
			}
		})
	}
	all.Wait()
	if taken.Load() != 1 {
		t.Errorf("it is taken %d times", taken.Load())
	}
	s.Keep(of("proof"), of("question"), "approval", until)
	r.Pass(time.Hour)
	if s.Take(of("proof"), of("question"), "approval") {
		t.Error("it is taken when its time is up")
	}
	for n := range 20 { // of one approval the last eight are kept, and none of another goes
		s.Keep(of(fmt.Sprint(n)), of("question"), "busy", r.Now.Add(time.Hour))
		s.Keep(of(fmt.Sprint(n)), of("question"), fmt.Sprint("approval ", n), r.Now.Add(time.Hour))
	}
	kept := 0
	for n := range 20 {
		if s.Take(of(fmt.Sprint(n)), of("question"), "busy") {
			kept++
		}
		if !s.Take(of(fmt.Sprint(n)), of("question"), fmt.Sprint("approval ", n)) {
			t.Errorf("%d is not kept", n)
		}
	}
	if kept != 8 {
		t.Errorf("of one approval %d are kept", kept)
	}
}

// TestKeptForAnApprovalToCome: what is kept for an approval that a holder is yet to ask for is taken once, for that holder alone.
// One that keeps many pushes out none of another.
func TestKeptForAnApprovalToCome(t *testing.T) {
	t.Parallel()
	r := newRecord()
	s := capability.NewSeen(token.MemoryOptions{Now: r.Time, Elapsed: passedOn(r)})
	of := func(text string) [32]byte { return sha256.Sum256([]byte(text)) }
	a, b := evaluation.Ref{Type: "agent", ID: "a"}, evaluation.Ref{Type: "agent", ID: "b"}
	s.KeepOffered(of("proof"), of("question"), "t", a, start.Add(time.Hour))
	for n := range 300 {
		s.KeepOffered(of(fmt.Sprint(n)), of("question"), "t", b, start.Add(time.Hour))
	}
	for name, take := range map[string]bool{
		"of another holder":       s.TakeOffered(of("proof"), of("question"), "t", b),
		"in another tenant":       s.TakeOffered(of("proof"), of("question"), "u", a),
		"with another question":   s.TakeOffered(of("proof"), of("other"), "t", a),
		"with another's approval": s.Take(of("proof"), of("question"), "approval"),
		"the first of many":       s.TakeOffered(of("0"), of("question"), "t", b),
	} {
		if take {
			t.Errorf("%s it is taken", name)
		}
	}
	for n, want := range []bool{true, false} {
		if s.TakeOffered(of("proof"), of("question"), "t", a) != want {
			t.Errorf("time %d: want %v", n, want)
		}
	}
	if !s.TakeOffered(of("299"), of("question"), "t", b) {
		t.Error("the last of many is not kept")
	}
}

// TestKeptIsBounded: many holders with many proofs do not make a process keep more than so many of all; when the time of these is
// up there is room again.
func TestKeptIsBounded(t *testing.T) {
	t.Parallel()
	r := newRecord()
	s := capability.NewSeen(token.MemoryOptions{Now: r.Time, Elapsed: passedOn(r)})
	of := func(n int) [32]byte { return [32]byte{byte(n), byte(n >> 8), byte(n >> 16)} }
	holder := func(n int) evaluation.Ref { return evaluation.Ref{Type: "agent", ID: fmt.Sprint(n / 200)} }
	const most = 100_000
	for n := range most + 1000 {
		s.KeepOffered(of(n), of(0), "t", holder(n), r.Now.Add(time.Hour))
	}
	s.KeepOffered(of(7), of(0), "t", holder(7), r.Now.Add(time.Hour)) // once more is the same
	for n, want := range map[int]bool{0: true, 7: true, most - 1: true, most: false, most + 999: false} {
		if s.TakeOffered(of(n), of(0), "t", holder(n)) != want {
			t.Errorf("proof %d: want %v", n, want)
		}
	}
	r.Pass(2 * time.Hour)
	for n := range most + 1000 {
		s.KeepOffered(of(n), of(1), "u", holder(n), r.Now.Add(time.Hour))
	}
	if !s.TakeOffered(of(0), of(1), "u", holder(0)) || s.TakeOffered(of(most), of(1), "u", holder(most)) {
		t.Error("there is no room, or too much")
	}
}

// TestNonces: a nonce is taken by the process that gave it, for the same tenant and key, until its time is up.
func TestNonces(t *testing.T) {
	t.Parallel()
	now := start
	process := func(always bool) *token.Nonces {
		return token.NewNonces(token.NonceOptions{
			Now: func() time.Time { return now }, Age: time.Minute, Skew: 10 * time.Second, Always: always,
		})
	}
	here, there := process(false), process(true)
	nonce := here.New("acme", "key", start)
	end := start.Add(token.NonceLife)
	for name, c := range map[string]struct {
		of                 *token.Nonces
		nonce, tenant, key string
		at                 time.Time
		want               bool
	}{
		"good":            {here, nonce, "acme", "key", start, true},
		"the last second": {here, nonce, "acme", "key", end.Add(-1), true},
		"over":            {here, nonce, "acme", "key", end, false},
		"another process": {there, nonce, "acme", "key", start, false},
		"another tenant":  {here, nonce, "other", "key", start, false},
		"another key":     {here, nonce, "acme", "other", start, false},
		"moved":           {here, nonce, "acmek", "ey", start, false},
		"empty":           {here, "", "acme", "key", start, false},
		"no version":      {here, nonce[3:], "acme", "key", start, false},
		"other version":   {here, "v2" + nonce[2:], "acme", "key", start, false},
		"longer":          {here, nonce + "A", "acme", "key", start, false},
		"another end":     {here, nonce[:12] + "9" + nonce[13:], "acme", "key", start, false},
		"a plus":          {here, "v1.+" + nonce[3:], "acme", "key", start, false},
	} {
		if got := c.of.Refuse(token.Proof{IssuedAt: start, Nonce: c.nonce}, c.tenant, c.key, c.at); (got == nil) != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	now = start.Add(2 * time.Hour)
	for after, want := range map[time.Duration]bool{-time.Hour: true, 0: true, 10 * time.Second: true, 10*time.Second + 1: false, time.Hour: false} {
		made := token.Proof{IssuedAt: start.Add(after)}
		if got := here.Refuse(made, "acme", "key", now) != nil; got != want || there.Refuse(made, "acme", "key", now) == nil {
			t.Errorf("of a proof that was made %s after the beginning it is required: %v", after, got)
		}
	}
}

// TestNoncesAfterTheClock: once a proof was forgotten, a proof that ends no later needs a nonce made since the clock was put back,
// and any other goes on without one. Where others remember proofs by no clock, all do that may be of before the clock was put back
// by more than a proof's life.
func TestNoncesAfterTheClock(t *testing.T) {
	t.Parallel()
	const life = 70 * time.Second
	for name, c := range map[string]struct {
		key         []byte
		back, made  time.Duration // by how much the clock is put back, and how long before the moment of before a proof was made
		forgets     bool
		free, again bool // it needs no nonce; it takes one of before
	}{
		"nothing was forgotten":      {nil, time.Hour, 0, false, true, true},
		"it may have been forgotten": {nil, time.Hour, 0, true, false, false},
		"it ends later":              {nil, time.Minute, -time.Second, true, true, true},
		"shared, by a proof's life":  {[]byte("key"), life, 0, false, true, true},
		"shared, by more":            {[]byte("key"), life + time.Second, 0, false, false, false},
		"shared, and later than any": {[]byte("key"), time.Hour, -51 * time.Second, false, true, true},
	} {
		now := start
		shown := start.Add(2 * time.Hour)
		elapsed := func() time.Duration { return 0 }
		o := token.NonceOptions{Key: c.key, Now: func() time.Time { return now }, Elapsed: elapsed, Age: time.Minute, Skew: 10 * time.Second}
		if c.key != nil {
			o.Shown = func() time.Time { return shown }
		}
		n := token.NewNonces(o)
		now = shown
		before := n.New("acme", "key", now)
		made := now.Add(-c.made)
		if c.forgets {
			n.Forgot(now.Add(life))
		}
		proof := token.Proof{IssuedAt: made}
		now = now.Add(-c.back)
		refusal := n.Refuse(proof, "acme", "key", now)
		if (refusal == nil) != c.free {
			t.Errorf("%s: without a nonce: %v", name, refusal)
		}
		proof.Nonce = before
		if again := n.Refuse(proof, "acme", "key", now) == nil; again != c.again {
			t.Errorf("%s: the nonce of before is taken: %v", name, again)
		}
		if refusal == nil {
			continue
		}
		proof.Nonce = refusal.Nonce
		if n.Refuse(proof, "acme", "key", now) != nil {
			t.Errorf("%s: the newest nonce is not taken", name)
		}
		now = now.Add(-time.Nanosecond)
		if n.Refuse(proof, "acme", "key", now) == nil {
			t.Errorf("%s: a nonce is taken after the clock was put back again", name)
		}
	}
}

// TestNoncesAfterAStepThatIsOver: all clocks are put back together, and show the same time again before a process reads a proof.
// Another process may have taken the proof before the step, so this one requires a nonce that it made since.
func TestNoncesAfterAStepThatIsOver(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		steps []time.Duration
		free  bool
	}{
		"by more than a proof's life": {[]time.Duration{-200 * time.Second}, false},
		"in two steps":                {[]time.Duration{-40 * time.Second, -40 * time.Second}, false},
		"by a proof's life":           {[]time.Duration{-70 * time.Second}, true},
		"forward":                     {[]time.Duration{200 * time.Second}, true},
	} {
		hand := clock.At(start)
		n := token.NewNonces(token.NonceOptions{
			Key: []byte("key"), Now: hand.Now, Elapsed: hand.Elapsed, Shown: hand.Now, Age: time.Minute, Skew: 10 * time.Second,
		})
		hand.Advance(time.Hour)
		taken := hand.Now()
		before := n.New("acme", "key", taken)
		for _, step := range c.steps {
			hand.Set(step)
			hand.Advance(time.Minute)
		}
		hand.Advance(max(0, taken.Add(45*time.Second).Sub(hand.Now())))
		proof := token.Proof{IssuedAt: taken.Add(10 * time.Second), Nonce: before}
		if c.free {
			proof.Nonce = ""
		}
		refusal := n.Refuse(proof, "acme", "key", hand.Now())
		if (refusal == nil) != c.free {
			t.Errorf("%s: got %v", name, refusal)
		}
		if refusal == nil {
			continue
		}
		if proof.Nonce = refusal.Nonce; n.Refuse(proof, "acme", "key", hand.Now()) != nil {
			t.Errorf("%s: the newest nonce is not taken", name)
		}
	}
}
