package rates_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"policy-service/pdp/internal/mcp/internal/rates"
	"policy-service/pdp/pdptest/clock"
	"policy-service/pdp/pdptest/mcptest"
)

func limiter(t testing.TB, c *clock.Clock, o rates.Options) *rates.Limiter {
	t.Helper()
	o.Now = c.Now
	l, err := rates.New(o)
	mcptest.Must(t, err)
	return l
}

// admitted is how many of n tries come through, each over at once.
func admitted(l *rates.Limiter, n int, key, tool string) (got int) {
	for range n {
		if release, _, ok := l.Admit(key, key, tool); ok {
			release()
			got++
		}
	}
	return got
}

// A charge is owed for a minute at most, and is not forgotten with its key.
func TestCharge(t *testing.T) {
	c := clock.New()
	l := limiter(t, c, rates.Options{Rate: 10, Burst: 5, Keys: 3})
	l.Charge("alice", 23)
	if got := admitted(l, 1, "alice", ""); got != 0 {
		t.Error("she owes, and is admitted")
	}
	c.Advance(time.Second)
	for n := range 10 { // others come, and keys are few
		admitted(l, 1, fmt.Sprint("other ", n), "")
	}
	if got := admitted(l, 1, "alice", ""); got != 0 {
		t.Error("what she owes is forgotten")
	}
	c.Advance(time.Second)
	if got := admitted(l, 9, "alice", ""); got != 2 {
		t.Errorf("got %d once it is back, want 2", got)
	}
	l.Charge("alice", 1e9)
	c.Advance(time.Minute + 200*time.Millisecond)
	if got := admitted(l, 9, "alice", ""); got == 0 {
		t.Error("she owes for more than a minute")
	}
}

func TestRateAndBurst(t *testing.T) {
	c := clock.New()
	l := limiter(t, c, rates.Options{Rate: 10, Burst: 5})
	if got := admitted(l, 20, "alice", ""); got != 5 {
		t.Errorf("got %d at once, want 5", got)
	}
	if got := admitted(l, 20, "bob", ""); got != 5 {
		t.Errorf("another got %d", got)
	}
	release, retry, ok := l.Admit("alice", "alice", "")
	if ok || retry <= 0 || retry > 101*time.Millisecond {
		t.Fatalf("got %v, %v", retry, ok)
	}
	release() // does nothing
	c.Advance(retry - time.Microsecond)
	if got := admitted(l, 1, "alice", ""); got != 0 {
		t.Error("admitted too early")
	}
	c.Advance(time.Microsecond)
	if got := admitted(l, 2, "alice", ""); got != 1 {
		t.Errorf("got %d after the wait that was asked for, want 1", got)
	}
	// A flood takes no more than it is given.
	for range 100 {
		c.Advance(10 * time.Millisecond)
		admitted(l, 10, "alice", "")
	}
	c.Advance(time.Hour)
	if got := admitted(l, 20, "alice", ""); got != 5 {
		t.Errorf("got %d after an hour, want 5", got)
	}
}

func TestConcurrent(t *testing.T) {
	c := clock.New()
	l := limiter(t, c, rates.Options{Rate: rate.Inf, Burst: 1, Concurrent: 3})
	var held []func()
	for range 10 {
		if release, retry, ok := l.Admit("alice", "alice", "x"); ok {
			held = append(held, release)
		} else if retry <= 0 {
			t.Error("refused, and not told when to try again")
		}
	}
	if len(held) != 3 {
		t.Fatalf("%d run, want 3", len(held))
	}
	if got := admitted(l, 1, "bob", "x"); got != 1 {
		t.Error("another has to wait")
	}
	held[0]()
	held[0]()
	held[0]() // one end is one end
	release, _, ok := l.Admit("alice", "alice", "")
	if _, _, more := l.Admit("alice", "alice", ""); !ok || more {
		t.Errorf("got %v and %v after one of three ended", ok, more)
	}
	release()
	held[1]()
	held[2]()
	if got := admitted(l, 5, "alice", ""); got != 5 {
		t.Errorf("got %d with nothing running", got)
	}
}

func TestTools(t *testing.T) {
	c := clock.New()
	l := limiter(t, c, rates.Options{Rate: 100, Burst: 10, ToolRate: 1.5})
	if got := admitted(l, 10, "alice", "a"); got != 2 {
		t.Errorf("got %d of a, want 2", got)
	}
	_, retry, ok := l.Admit("alice", "alice", "a")
	if ok || retry < 600*time.Millisecond || retry > 670*time.Millisecond {
		t.Errorf("got %v, %v", retry, ok)
	}
	if got := admitted(l, 10, "bob", "a"); got != 2 {
		t.Errorf("another got %d of a", got)
	}
	if got := admitted(l, 10, "alice", "b"); got != 2 {
		t.Errorf("got %d of b", got)
	}
	// Calls that a tool refused have cost nothing: 6 of 10 are left.
	if got := admitted(l, 20, "alice", ""); got != 6 {
		t.Errorf("got %d without a tool, want 6", got)
	}
	// Names that are too long are still apart.
	c.Advance(time.Minute)
	long := strings.Repeat("x", 1<<16)
	if a, b := admitted(l, 3, "alice", long+"a"), admitted(l, 3, "alice", long+"b"); a != 2 || b != 2 {
		t.Errorf("got %d and %d", a, b)
	}
}

// Keys and tools do not run into each other, however they are written.
func TestNamesAreApart(t *testing.T) {
	l := limiter(t, clock.New(), rates.Options{Rate: 1, Burst: 1, ToolRate: 1})
	for _, n := range [][2]string{{"a", "b"}, {"a\x00b", ""}, {"ab", ""}, {"b", "a"}, {"", "ab"}} {
		if got := admitted(l, 1, n[0], n[1]); got != 1 {
			t.Errorf("%q has to wait for another", n)
		}
	}
}

// A limiter with little room never admits more than one that forgets no key, also of keys that run.
func TestForgettingGivesNothing(t *testing.T) {
	const seed = 7
	random := rand.New(rand.NewPCG(seed, seed))
	c := clock.New()
	o := rates.Options{Rate: 0.5, Burst: 3, Concurrent: 3, ToolRate: 0.25, ToolBurst: 2}
	all := limiter(t, c, o)
	o.Keys = 12
	few := limiter(t, c, o)
	type held struct{ of, in func() }
	var running []held
	both, refused := 0, 0
	for range 60_000 {
		key, tool := fmt.Sprint(random.IntN(9)), ""
		if random.IntN(2) == 0 {
			tool = fmt.Sprint(random.IntN(3))
		}
		// Only what the little one admits is done in both, so their buckets are the same.
		in, _, ok := few.Admit(key, key, tool)
		if ok {
			of, _, legal := all.Admit(key, key, tool)
			if !legal {
				t.Fatalf("%s with %q was admitted, and its buckets are empty", key, tool)
			}
			running = append(running, held{of, in})
			both++
		} else {
			refused++
		}
		for len(running) > 0 && (len(running) > 6 || random.IntN(2) == 0) {
			n := random.IntN(len(running))
			running[n].of()
			running[n].in()
			running = append(running[:n], running[n+1:]...)
		}
		c.Advance(time.Duration(random.IntN(400)) * time.Millisecond)
		if random.IntN(100) == 0 {
			c.Advance(20 * time.Second)
		}
	}
	if both < 1000 || refused < 1000 {
		t.Errorf("%d admitted, %d refused: nothing is known", both, refused)
	}
}

// A key that never rests does not keep others from being forgotten.
func TestRoomIsMadeBehindWhoeverNeverRests(t *testing.T) {
	c := clock.New()
	l := limiter(t, c, rates.Options{Rate: 1, Burst: 2, ToolRate: 1, ToolBurst: 2, Keys: 6})
	for n := range 100 {
		if got := admitted(l, 1, "hot", "tool"); got != 1 {
			t.Fatalf("the hot one waits in round %d", n)
		}
		if got := admitted(l, 1, fmt.Sprint("guest ", n), ""); got != 1 {
			t.Fatalf("guest %d finds no room", n)
		}
		c.Advance(time.Second)
	}
}

// Who invents names of tools finds no room for more of them, and leaves room for others.
func TestInventedTools(t *testing.T) {
	c := clock.New()
	l := limiter(t, c, rates.Options{Rate: rate.Inf, Burst: 1, ToolRate: rate.Every(time.Hour), ToolBurst: 2, Keys: 3000})
	invented := 0
	for n := range 5000 {
		invented += admitted(l, 1, "mallory", fmt.Sprint("tool ", n))
		if n%1000 == 0 {
			c.Advance(2 * time.Second) // full meters are forgotten
		}
	}
	if invented != 1000 {
		t.Errorf("mallory has meters of %d tools, want 1000", invented)
	}
	if got := admitted(l, 3, "mallory", "tool 1"); got != 1 {
		t.Errorf("a tool that mallory has a meter of was admitted %d times, want once more", got)
	}
	if got := admitted(l, 3, "mallory", ""); got != 3 {
		t.Errorf("mallory got %d without a tool", got)
	}
	for n := range 900 {
		if got := admitted(l, 3, fmt.Sprint("guest ", n), "tool"); got != 2 {
			t.Fatalf("guest %d got %d of a tool, want 2", n, got)
		}
	}
	c.Advance(2 * time.Hour)
	if got := admitted(l, 1, "mallory", "another"); got != 1 {
		t.Error("mallory finds no room once the meters are full")
	}
}

// Who invents names of tools by many keys finds no more room than by one.
func TestInventedToolsOfManyKeys(t *testing.T) {
	c := clock.New()
	l := limiter(t, c, rates.Options{Rate: rate.Inf, Burst: 1, ToolRate: rate.Every(time.Hour), ToolBurst: 2, Keys: 3000})
	try := func(account, key, tool string) (got int) {
		if release, _, ok := l.Admit(account, key, tool); ok {
			release()
			got++
		}
		return got
	}
	invented := 0
	for n := range 200 {
		for tool := range 20 {
			invented += try("mallory", fmt.Sprint("client ", n), fmt.Sprint("tool ", tool))
		}
	}
	if invented == 0 || invented > 1000 {
		t.Errorf("mallory has meters of %d tools, want 1000 at most", invented)
	}
	for n := range 900 {
		if got := admitted(l, 3, fmt.Sprint("guest ", n), "tool"); got != 2 {
			t.Fatalf("guest %d got %d of a tool, want 2", n, got)
		}
	}
	c.Advance(3 * time.Hour)
	if try("mallory", "client 199", "tool 19") != 1 {
		t.Error("mallory finds no room once the meters are full")
	}
}

// 10,000 at once, of 20 principals: each gets its share, and no more.
func TestAFlood(t *testing.T) {
	c := clock.New()
	l := limiter(t, c, rates.Options{Rate: 10, Burst: 50, Concurrent: 8, ToolRate: 2, ToolBurst: 20})
	const principals, calls = 20, 500
	var all sync.WaitGroup
	var running, most, in [principals]atomic.Int64
	for n := range principals {
		for range 10 {
			all.Go(func() {
				for k := range calls / 10 {
					release, retry, ok := l.Admit(fmt.Sprint(n), fmt.Sprint(n), fmt.Sprint("tool ", k%2))
					if !ok {
						if retry <= 0 {
							t.Error("refused, and not told when to try again")
						}
						continue
					}
					in[n].Add(1)
					now := running[n].Add(1)
					for before := most[n].Load(); now > before && !most[n].CompareAndSwap(before, now); before = most[n].Load() {
					}
					running[n].Add(-1)
					release()
				}
			})
		}
	}
	all.Wait()
	for n := range principals {
		for tool := range 2 { // the rest, if too many were refused because others ran
			in[n].Add(int64(admitted(l, 20, fmt.Sprint(n), fmt.Sprint("tool ", tool))))
		}
		if got := in[n].Load(); got != 40 || most[n].Load() > 8 {
			t.Errorf("%d: %d came through, and %d at a time; want 40 (20 of each tool), and at most 8", n, got, most[n].Load())
		}
	}
}

func TestOptionsThatAreRefused(t *testing.T) {
	nan := rate.Limit(math.NaN())
	for want, o := range map[string]rates.Options{
		"rate or burst":        {},
		"rate or burst is":     {Rate: 1},
		"rate or burst is m":   {Rate: -1, Burst: 1},
		"rate or burst is mi":  {Rate: nan, Burst: 1},
		"longer than a day":    {Rate: 1e-9, Burst: 1},
		"longer than a day to": {Rate: 1, Burst: math.MaxInt},
	} {
		if _, err := rates.New(o); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "; ") {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// BenchmarkAdmit measures an admission among 1,000 principals.
func BenchmarkAdmit(b *testing.B) {
	l := limiter(b, clock.New(), rates.Options{Rate: rate.Inf, Burst: 1, Concurrent: 8, ToolRate: rate.Inf})
	keys := make([]string, 1000)
	for n := range keys {
		keys[n] = fmt.Sprint(n)
	}
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		release, _, ok := l.Admit(keys[n%len(keys)], keys[n%len(keys)], "tool")
		if !ok {
			b.Fatal("refused")
		}
		release()
		n++
	}
}

// Things that are held count beside admissions, by kind, and are not forgotten while they are held.
func TestHold(t *testing.T) {
	c := clock.New()
	l := limiter(t, c, rates.Options{Rate: 1, Burst: 1, Concurrent: 1, Keys: 6, Holds: map[string]int{"stream": 3, "message": 1}})
	release, _, _ := l.Admit("alice", "alice", "")
	defer release()
	var all sync.WaitGroup
	ends := make(chan func(), 50)
	for range cap(ends) { // at once, for three places
		all.Go(func() {
			if end, ok := l.Hold("alice", "stream"); ok {
				ends <- end
			}
		})
	}
	all.Wait()
	close(ends)
	var held []func()
	for end := range ends {
		held = append(held, end)
	}
	_, other := l.Hold("alice", "message")
	_, another := l.Hold("bob", "stream")
	if len(held) != 3 || !other || !another {
		t.Fatalf("%d of three are held, of another kind %t, by another %t", len(held), other, another)
	}
	for range 10 { // strangers make no room by it
		c.Advance(time.Minute)
		l.Admit("stranger", "stranger", "")
	}
	if _, more := l.Hold("alice", "stream"); more {
		t.Error("a fourth is held")
	}
	held[0]()
	held[0]()
	if _, ok := l.Hold("alice", "stream"); !ok {
		t.Error("none is held where one has ended")
	}
	if _, ok := l.Hold("alice", "stream"); ok {
		t.Error("one that ended twice made room for two")
	}
}
