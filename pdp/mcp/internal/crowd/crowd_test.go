package crowd_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/pdp/mcp/internal/crowd"
	"policy-service/pdp/mcp/internal/identity"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/mcptest"
	"policy-service/pdp/pdptest/night"
)

// square is a crowd, with what is asked and what is dropped counted.
type square struct {
	t *testing.T
	*crowd.Crowd
	asked, open, most atomic.Int64

	mu      sync.Mutex
	dropped map[string]int
	now     time.Time
}

func newSquare(t *testing.T) *square {
	s := &square{t: t, dropped: map[string]int{}, now: time.Now()}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	s.Crowd = crowd.New(crowd.Options{Dropped: s.drop, Now: s.clock, Context: ctx, Background: func(what func()) bool {
		running.Go(what)
		return true
	}})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return s
}

func (s *square) drop(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropped[reason]++
}

func (s *square) clock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// passes has time pass.
func (s *square) passes(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(d)
}

func (s *square) drops(reason string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropped[reason]
}

// news are for some principals.
func (s *square) news(id string, who ...string) crowd.News {
	return crowd.News{ID: id, Say: func(_ context.Context, p *identity.Principal) (rpc.Message, bool, error) {
		s.asked.Add(1)
		now := s.open.Add(1)
		defer s.open.Add(-1)
		for most := s.most.Load(); now > most && !s.most.CompareAndSwap(most, now); most = s.most.Load() {
		}
		return rpc.Message{Method: id}, slices.Contains(who, p.Key), nil
	}}
}

// listener is one who hears.
type listener struct {
	*crowd.Seat
	heard chan string
	end   func()
	over  chan struct{}
}

func principal(key string) *identity.Principal { return &identity.Principal{Key: key} }

func (s *square) joins(who *identity.Principal) *listener {
	ctx, cancel := context.WithCancel(s.t.Context())
	l := &listener{Seat: s.Join(who), heard: make(chan string, 1<<14), over: make(chan struct{})}
	go func() {
		defer close(l.over)
		_ = l.Hear(ctx, func(m rpc.Message) error {
			l.heard <- m.Method
			return nil
		})
	}()
	l.end = func() {
		cancel()
		<-l.over
		l.Leave()
	}
	s.t.Cleanup(l.end)
	return l
}

// hears fails unless these are heard next, in this order.
func (s *square) hears(l *listener, all ...string) {
	s.t.Helper()
	for _, want := range all {
		select {
		case got := <-l.heard:
			if got != want {
				s.t.Fatalf("heard %s, want %s", got, want)
			}
		case <-time.After(time.Minute):
			s.t.Fatalf("nobody hears %s", want)
		}
	}
}

// Whom news concern hears them once, whether they stood already or not, until they are withdrawn; and only they hear what is
// told to them alone.
func TestCrowd(t *testing.T) {
	s := newSquare(t)
	s.Post(s.news("a", "ann", "ben"))
	s.Post(s.news("gone", "ann"))
	s.Withdraw("gone")
	s.Withdraw("none")
	ann, too, ben, eve := s.joins(principal("ann")), s.joins(principal("ann")), s.joins(principal("ben")), s.joins(principal("eve"))
	abroad := s.joins(&identity.Principal{Key: "ann", Tenant: "acme"})
	s.hears(ann, "a")
	s.hears(too, "a")
	s.hears(ben, "a")
	s.Post(s.news("b", "ben"))
	s.Post(s.news("a", "ann", "ben", "eve")) // it is told again: whom it did not concern it may now
	s.hears(eve, "a")
	s.hears(ben, "b")
	s.Tell("ann", rpc.Message{Method: "to ann"})
	for _, l := range []*listener{ann, too, abroad} {
		s.hears(l, "to ann")
	}
	s.Post(s.news("", "eve"))
	s.hears(eve, "")
	late := s.joins(principal("ben"))
	s.hears(late, "b", "a")
	s.Withdraw("a")
	s.Post(s.news("c", "ann", "ben", "eve")) // in the place of a, which they were told
	s.Post(crowd.News{ID: "d", Tenant: "acme", Say: s.news("d", "ann").Say})
	for _, l := range []*listener{ann, too, ben, eve, late} {
		s.hears(l, "c")
	}
	s.hears(abroad, "d")
	for _, l := range []*listener{ann, too, ben, eve, late, abroad} {
		if l.end(); len(l.heard) > 0 {
			t.Errorf("heard %s", <-l.heard)
		}
	}
	if s.Listens("") || s.Listens("acme") {
		t.Error("somebody listens")
	}
}

// Somebody is asked about once, however many streams they have and however often they come again, but each token by itself.
func TestCrowdAsksOnce(t *testing.T) {
	s := newSquare(t)
	for n := range 10 {
		s.Post(s.news(fmt.Sprint(n), "ann"))
	}
	s.Post(s.news("last", "ann", "eve"))
	var all []*listener
	for range 20 {
		all = append(all, s.joins(principal("ann")), s.joins(principal("eve")))
	}
	for n, l := range all {
		if n%2 == 1 {
			s.hears(l, "last")
			l.end()
			again := s.joins(principal("eve"))
			s.hears(again, "last")
			continue
		}
		s.hears(l, "0", "1")
	}
	mcptest.Until(t, "ann is asked about", func() bool { return s.asked.Load() == 22 })
	s.hears(s.joins(&identity.Principal{Key: "eve", Token: "another"}), "last")
	if got := s.asked.Load(); got != 33 {
		t.Errorf("asked %d times", got)
	}
	if most := s.most.Load(); most > 4 {
		t.Errorf("asked %d times at once", most)
	}
}

// Who takes long to be asked about, or to hear, is in nobody's way.
func TestCrowdSlow(t *testing.T) {
	s := newSquare(t)
	asked := make(chan context.Context)
	hangs := crowd.News{ID: "hangs", Say: func(ctx context.Context, who *identity.Principal) (rpc.Message, bool, error) {
		if strings.HasPrefix(who.Key, "slow") {
			asked <- ctx
			<-ctx.Done()
			return rpc.Message{}, false, ctx.Err()
		}
		return rpc.Message{Method: "hangs"}, true, nil
	}}
	s.Post(hangs)
	var slow []*listener
	for n := range 3 { // one place is left
		slow = append(slow, s.joins(principal(fmt.Sprint("slow", n))))
	}
	for range slow {
		<-asked
	}
	same := s.joins(principal("slow0")) // waits for its turn
	ann := s.joins(principal("ann"))
	s.hears(ann, "hangs")
	s.Tell("ann", rpc.Message{Method: "x"})
	s.hears(ann, "x")
	slow[0].end()
	same.end()
	for _, l := range slow {
		l.end()
	}
	blocked := make(chan struct{})
	seat := s.Join(principal("deaf"))
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() {
		over <- seat.Hear(ctx, func(rpc.Message) error {
			<-blocked
			return errors.New("the client has gone")
		})
	}()
	for n := range 1000 {
		s.Tell("deaf", rpc.Message{Method: fmt.Sprint(n)})
	}
	s.Post(s.news("next", "ann"))
	s.hears(ann, "next")
	if got := s.drops(crowd.TooSlow); got < 900 {
		t.Errorf("%d were dropped", got)
	}
	close(blocked)
	if err := <-over; err == nil || !strings.Contains(err.Error(), "gone") {
		t.Error(err)
	}
	cancel()
	seat.Leave()
}

// Many streams hear of many news that stand. Each principal is asked about once, and no more than four at a time; what is too much
// is dropped.
func TestCrowdMany(t *testing.T) { crowdMany(t, 80, nil) }

// Hundreds of streams take little.
func TestCrowdIsSmall(t *testing.T) {
	night.Measures(t)
	crowdMany(t, 400, memory)
}

// crowdMany measures memory, if it can.
func crowdMany(t *testing.T, streams int, memory func() int) {
	const most, stays, principals, each = 8192, 2048, 8, 16
	s := newSquare(t)
	for n := range most + 8 {
		who := "nobody"
		if n%each == 0 {
			who = "p0"
		}
		s.Post(s.news(fmt.Sprint(n), who))
	}
	if got := s.drops(crowd.TooMuch); got != 8 {
		t.Errorf("%d were too much", got)
	}
	for n := stays; n < most; n++ {
		s.Withdraw(fmt.Sprint(n))
	}
	before := 0
	if memory != nil {
		before = memory()
	}
	var seats []*crowd.Seat
	var all sync.WaitGroup
	var heard atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	for n := range streams {
		seat := s.Join(principal(fmt.Sprint("p", n%principals)))
		seats = append(seats, seat)
		all.Go(func() {
			_ = seat.Hear(ctx, func(rpc.Message) error { heard.Add(1); return nil })
		})
	}
	mcptest.Until(t, "all have heard", func() bool {
		return int(heard.Load()) == stays*streams/principals/each && s.asked.Load() >= stays*principals
	})
	if got := s.asked.Load(); got > stays*principals {
		t.Errorf("asked %d times", got)
	}
	if got := s.most.Load(); got > 4 {
		t.Errorf("asked %d times at once", got)
	}
	if memory != nil {
		took := memory() - before
		t.Logf("%d streams take %d KiB", streams, took>>10)
		if took > streams*16<<10 {
			t.Errorf("they take %d MiB", took>>20)
		}
	}
	cancel()
	all.Wait()
	for _, seat := range seats {
		seat.Leave()
	}
	runtime.KeepAlive(s)
}

// memory is what is in use, stacks among it.
func memory() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapInuse + m.StackInuse)
}
