package events_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"policy-service/pdp/internal/mcp/internal/events"
	"policy-service/pdp/internal/mcp/internal/identity"
	"policy-service/pdp/internal/rpc"
)

// board is a topic to which a test adds events, each for some principals. A change of an event is added as the event again.
type board struct {
	mu      sync.Mutex
	all     []posted
	fail    error
	reads   map[string]int // by principal and token
	open    int
	most    int
	limit   int
	blocked chan struct{} // reads wait for it, if there is one
}

type posted struct {
	id  string
	who []string
}

func (b *board) add(id string, who ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = append(b.all, posted{id, who})
}

func (b *board) fails(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fail = err
}

func (b *board) times(who string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reads[who]
}

// atOnce is how many reads there were at most at one time.
func (b *board) atOnce() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.most
}

func (b *board) read(ctx context.Context, who *identity.Principal, cursor string) (page events.Page, err error) {
	b.mu.Lock()
	b.reads[who.Key+who.Token]++
	b.open++
	b.most = max(b.most, b.open)
	blocked := b.blocked
	b.mu.Unlock()
	if blocked != nil {
		select {
		case <-blocked:
		case <-ctx.Done():
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open--
	if b.fail != nil {
		return page, b.fail
	}
	// Two cursors of one place are different texts, as those of a PDP.
	after, _, _ := strings.Cut(cursor, " ")
	n, _ := strconv.Atoi(after)
	for ; n < len(b.all) && len(page.Events) < b.limit; n++ {
		for _, one := range b.all[n].who {
			if one == who.Key {
				page.Events = append(page.Events, events.Event{ID: b.all[n].id, Message: rpc.Message{Method: b.all[n].id}})
			}
		}
	}
	page.Cursor, page.More = fmt.Sprintf("%d of %s %d", n, who.Key, b.reads[who.Key+who.Token]), n < len(b.all)
	return page, ctx.Err()
}

// planned is the panic of a test.
const planned = "a planned panic"

// square is a broadcaster with one topic.
type square struct {
	*events.Broadcaster
	*board
	topic   *events.Topic
	dropped int
}

// inSquare runs a test by a clock of its own.
func inSquare(t *testing.T, test func(t *testing.T, s *square)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var running sync.WaitGroup
		ctx, end := context.WithCancel(context.Background())
		s := &square{board: &board{reads: map[string]int{}, limit: 3}}
		s.Broadcaster = events.New(events.Options{Dropped: func(string) { s.dropped++ }, Context: ctx, Background: func(what func()) bool {
			running.Go(func() {
				defer func() {
					if why := recover(); why != nil && why != planned {
						panic(why)
					}
				}()
				what()
			})
			return true
		}})
		s.topic = s.Topic(s.read)
		test(t, s)
		end()
		running.Wait()
	})
}

// stream is a listener with what it heard.
type stream struct {
	*events.Listener
	mu    sync.Mutex
	heard []string
	end   func()
}

func (s *square) listens(who *identity.Principal) *stream {
	l := &stream{Listener: s.Listen(who, s.topic)}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = l.Hear(ctx, func(m rpc.Message) error {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.heard = append(l.heard, m.Method)
			return nil
		})
	}()
	l.end = func() {
		cancel()
		<-over
		l.Leave()
	}
	return l
}

// is fails unless just this was heard since the last time, within the time in which listeners hear of a change.
func (l *stream) is(t *testing.T, want string) {
	t.Helper()
	time.Sleep(events.Spread)
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if got := strings.Join(l.heard, " "); got != want {
		t.Errorf("heard %q, want %q", got, want)
	}
	l.heard = nil
}

func principal(key string) *identity.Principal { return &identity.Principal{Key: key} }

// Each listener hears once what is for its principal, whether it was there before or not, in the topic's order; and messages to the
// principal alone.
func TestEvents(t *testing.T) {
	inSquare(t, func(t *testing.T, s *square) {
		s.add("a", "ann", "ben")
		ann, ben, eve := s.listens(principal("ann")), s.listens(principal("ben")), s.listens(principal("eve"))
		ann.is(t, "a")
		ben.is(t, "a")
		s.add("b", "ben")
		s.add("a", "ann", "ben", "eve") // others may hear it now
		s.topic.Changed()
		eve.is(t, "a")
		ben.is(t, "b")
		ann.is(t, "")
		s.Tell("ann", rpc.Message{Method: "to ann"})
		late := s.listens(principal("ann"))
		s.Tell("ann", rpc.Message{Method: "to both"})
		ann.is(t, "to ann to both")
		late.is(t, "to both a")
		if !s.topic.Listened() {
			t.Error("there is no listener")
		}
		for _, l := range []*stream{ann, ben, eve, late} {
			l.end()
		}
		if s.topic.Listened() {
			t.Error("there is a listener")
		}
		before := s.times("ann")
		s.topic.Changed()
		time.Sleep(time.Hour)
		if s.times("ann") != before {
			t.Error("it is read for nobody")
		}
	})
}

// All streams of a token share their reads, also those that came at different times. Another token reads for itself.
func TestEventsAreReadOnce(t *testing.T) {
	inSquare(t, func(t *testing.T, s *square) {
		s.add("a", "ann")
		var all []*stream
		for range 10 {
			all = append(all, s.listens(principal("ann")))
			time.Sleep(events.Spread)
		}
		other := s.listens(&identity.Principal{Key: "ann", Token: "other"})
		other.is(t, "a")
		for n := range 3 {
			before := s.times("ann")
			s.add(fmt.Sprint(n), "ann")
			for range 100 {
				s.topic.Changed()
			}
			for _, l := range append(all, other) {
				l.mu.Lock()
				if n == 0 {
					l.heard = nil
				}
				l.mu.Unlock()
			}
			all[0].is(t, fmt.Sprint(n))
			for _, l := range append(all[1:], other) {
				l.is(t, fmt.Sprint(n))
			}
			if got := s.times("ann") - before; got != 1 && n > 0 {
				t.Errorf("it is read %d times for 100 changes", got)
			}
		}
		for _, l := range append(all, other) {
			l.end()
		}
	})
}

// Of many principals few read at a time, and each within the time that there is for it.
func TestEventsManyReaders(t *testing.T) {
	inSquare(t, func(t *testing.T, s *square) {
		var all []*stream
		var names []string
		for n := range 200 {
			names = append(names, fmt.Sprint("p", n))
			all = append(all, s.listens(principal(names[n])))
		}
		s.add("a", names...)
		s.topic.Changed()
		for _, l := range all {
			l.is(t, "a")
		}
		s.blocked = make(chan struct{})
		s.add("b", names...)
		s.topic.Changed()
		time.Sleep(events.Spread)
		synctest.Wait()
		if got := s.atOnce(); got != 4 {
			t.Errorf("%d read at once", got)
		}
		close(s.blocked)
		for _, l := range all {
			l.is(t, "b")
			l.end()
		}
	})
}

// After an error the same is read again, after longer and longer, and not before the time that was said. Nothing is lost, and
// messages to the principal are sent meanwhile.
func TestEventsAfterErrors(t *testing.T) {
	inSquare(t, func(t *testing.T, s *square) {
		s.add("a", "ann")
		ann := s.listens(principal("ann"))
		ann.is(t, "a")
		s.fails(errors.New("away"))
		s.add("b", "ann")
		s.topic.Changed()
		time.Sleep(10 * time.Minute)
		if got := s.times("ann"); got < 20 || got > 60 {
			t.Errorf("it is read %d times in ten minutes", got)
		}
		s.Tell("ann", rpc.Message{Method: "x"})
		ann.is(t, "x")
		s.fails(fmt.Errorf("busy: %w", &events.Later{Err: errors.New("busy"), After: time.Hour}))
		time.Sleep(time.Minute)
		before := s.times("ann")
		s.fails(nil)
		time.Sleep(58 * time.Minute)
		s.topic.Changed()
		ann.is(t, "")
		if got := s.times("ann"); got != before {
			t.Errorf("it is read %d times before its time", got-before)
		}
		time.Sleep(5 * time.Minute)
		ann.is(t, "b")
		ann.end()
	})
}

// A client that reads slowly is sent one page after the other, and delays no other stream. Its messages of Tell are dropped beyond
// a bound.
func TestEventsSlowClient(t *testing.T) {
	inSquare(t, func(t *testing.T, s *square) {
		reads := make(chan struct{})
		slow, over := s.Listen(principal("ann"), s.topic), make(chan error, 1)
		var heard []string
		go func() {
			over <- slow.Hear(context.Background(), func(m rpc.Message) error {
				<-reads
				if heard = append(heard, m.Method); m.Method == "last" {
					return errors.New("the client has gone")
				}
				return nil
			})
		}()
		ann := s.listens(principal("ann"))
		var want []string
		for n := range 20 {
			s.add(fmt.Sprint(n), "ann")
			s.topic.Changed()
			ann.is(t, fmt.Sprint(n))
			want = append(want, fmt.Sprint(n))
		}
		close(reads)
		ann.is(t, "")
		if got := strings.Join(heard, " "); got != strings.Join(want, " ") {
			t.Errorf("the slow client heard %s", got)
		}
		deaf := s.Listen(principal("deaf"))
		for range 100 {
			s.Tell("deaf", rpc.Message{Method: "x"})
		}
		if s.dropped != 36 {
			t.Errorf("%d were dropped", s.dropped)
		}
		deaf.Leave()
		s.Tell("ann", rpc.Message{Method: "last"})
		if err := <-over; err == nil || !strings.Contains(err.Error(), "gone") {
			t.Error(err)
		}
		slow.Leave()
		ann.end()
	})
}

// Who begins with much gets all of it, page by page, without the pause of a change between pages.
func TestEventsManyPages(t *testing.T) {
	inSquare(t, func(t *testing.T, s *square) {
		var want []string
		for n := range 100 {
			who := "ann"
			if n%10 == 9 {
				who = "ben"
			} else {
				want = append(want, fmt.Sprint(n))
			}
			s.add(fmt.Sprint(n), who)
		}
		ann := s.listens(principal("ann"))
		ann.is(t, strings.Join(want, " "))
		ann.end()
	})
}

// A topic that refuses each cursor is read from its beginning each time, after longer and longer.
func TestEventsOfRefusedCursors(t *testing.T) {
	inSquare(t, func(t *testing.T, s *square) {
		var reads atomic.Int32
		var accepts atomic.Bool
		s.topic = s.Topic(func(_ context.Context, _ *identity.Principal, cursor string) (events.Page, error) {
			switch reads.Add(1); {
			case cursor == "":
				return events.Page{Cursor: "1", More: true, Events: []events.Event{{ID: "a", Message: rpc.Message{Method: "a"}}}}, nil
			case !accepts.Load():
				return events.Page{Failed: errors.New("gone")}, nil
			}
			return events.Page{Cursor: "2", Events: []events.Event{{ID: "b", Message: rpc.Message{Method: "b"}}}}, nil
		})
		ann := s.listens(principal("ann"))
		ann.is(t, "a")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got := reads.Load(); got < 40 || got > 120 {
			t.Errorf("it is read %d times in ten minutes", got)
		}
		accepts.Store(true)
		time.Sleep(time.Minute)
		ann.is(t, "b")
		ann.end()
	})
}

// A topic whose reads take long delays no other topic, and a person with many tokens or clients no other person.
func TestEventsTenants(t *testing.T) {
	inSquare(t, func(t *testing.T, s *square) {
		other := &board{reads: map[string]int{}, limit: 3, blocked: make(chan struct{})}
		slow := s.Topic(other.read)
		s.blocked = make(chan struct{})
		var leave []func()
		for n := range 20 {
			leave = append(leave, s.Listen(principal(fmt.Sprint("slow ", n)), slow).Leave)
			leave = append(leave, s.Listen(&identity.Principal{Person: "many", Key: "many", Token: fmt.Sprint(n)}, s.topic).Leave)
			leave = append(leave, s.Listen(&identity.Principal{Person: "many", Key: fmt.Sprint("client ", n)}, s.topic).Leave)
		}
		time.Sleep(events.Spread)
		synctest.Wait()
		s.mu.Lock()
		s.blocked = nil
		s.mu.Unlock()
		ann := s.listens(principal("ann"))
		s.add("a", "ann")
		s.topic.Changed()
		ann.is(t, "a")
		if own, others := s.atOnce(), other.atOnce(); own > 2 || others != 4 {
			t.Errorf("%d of one person and another, and %d of one topic read at once", own, others)
		}
		for _, end := range leave {
			end()
		}
		ann.end()
	})
}

// After a panic in a read it is read again, after longer and longer. Nothing is lost.
func TestEventsAfterPanics(t *testing.T) {
	inSquare(t, func(t *testing.T, s *square) {
		var reads atomic.Int32
		var answers atomic.Bool
		s.topic = s.Topic(func(ctx context.Context, who *identity.Principal, cursor string) (events.Page, error) {
			if reads.Add(1); !answers.Load() {
				panic(planned)
			}
			return s.read(ctx, who, cursor)
		})
		s.add("a", "ann")
		ann := s.listens(principal("ann"))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got := reads.Load(); got < 20 || got > 60 {
			t.Errorf("it is read %d times in ten minutes", got)
		}
		answers.Store(true)
		time.Sleep(time.Minute)
		ann.is(t, "a")
		ann.end()
	})
}

// What is over before a slow client takes it is not sent.
func TestEventsThatAreOver(t *testing.T) {
	inSquare(t, func(t *testing.T, s *square) {
		over := false
		s.topic = s.Topic(func(context.Context, *identity.Principal, string) (page events.Page, err error) {
			for _, id := range []string{"a", "b", "c"} {
				e := events.Event{ID: id, Message: rpc.Message{Method: id}}
				if id != "c" {
					e.Over = func() bool { return over }
				}
				page.Events = append(page.Events, e)
			}
			return page, nil
		})
		slow, heard := s.Listen(principal("ann"), s.topic), []string{}
		ctx, end := context.WithCancel(context.Background())
		defer end()
		err := slow.Hear(ctx, func(m rpc.Message) error {
			over = true
			if heard = append(heard, m.Method); m.Method == "c" {
				end()
			}
			return nil
		})
		if got := strings.Join(heard, " "); got != "a c" || err == nil {
			t.Errorf("heard %q, %v", got, err)
		}
		slow.Leave()
	})
}
