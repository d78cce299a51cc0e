package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"

	"policy-service/pdp/approval"
	"policy-service/pdp/keyedmutex"
	"policy-service/pdp/server/auth"
	"policy-service/pdp/server/door"
)

// waiting are those who wait for something to become of an approval. They hold up
// nobody: not those who ask for decisions, not each other, and not a stop.
type waiting struct {
	ctx context.Context
	end context.CancelFunc
	// most is how long a look may take, with the wait for its turn.
	most time.Duration

	// callers make one page each at a time, pages bounds those of all of them.
	callers keyedmutex.Mutex
	pages   door.Gate

	mu      sync.Mutex // guards what follows, and what is in watches
	all     int
	of      map[string]int // by caller
	queued  map[string]int // for a turn, by caller
	watches map[string]*watch

	looks, made atomic.Int64 // how often a watch looked, and how many pages were begun
}

const (
	// mostPatient is how many wait at once, mostOfOne how many of one caller; others are
	// told to come back.
	mostPatient = 1000
	mostOfOne   = mostPatient / 4
	// longestWait ends before the time that an answer may take.
	longestWait = 30 * time.Second
	// lookAgain is how long nobody looks again who has just looked.
	lookAgain = 100 * time.Millisecond
	// lastLook is how long a stop waits for a look.
	lastLook = time.Second
	// mostPages is how many pages are made at once: each asks the policies about hundreds
	// of requests, of which each may be large.
	mostPages = 2
)

func newWaiting(most time.Duration) *waiting {
	w := &waiting{
		most:    most,
		pages:   door.Gate{Limit: mostPages, Patience: most},
		of:      map[string]int{},
		queued:  map[string]int{},
		watches: map[string]*watch{},
	}
	w.ctx, w.end = context.WithCancel(context.Background())
	return w
}

// place takes a place to wait, or says which limit there is in the way.
func (w *waiting) place(caller string) (limit string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.of[caller] >= mostOfOne:
		return "waiting_share"
	case w.all >= mostPatient:
		return "waiting"
	}
	w.all++
	w.of[caller]++
	return ""
}

func (w *waiting) leave(caller string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all--
	if w.of[caller]--; w.of[caller] == 0 {
		delete(w.of, caller)
	}
}

// turn is a caller's time to make a page. Who has one calls done, once.
type turn struct {
	door.Shift
	release func()
}

// turn waits until a caller can make a page.
func (w *waiting) turn(ctx context.Context, caller string) (*turn, error) {
	if !w.queue(caller) {
		return nil, door.ErrBusy
	}
	defer w.unqueue(caller)
	release, err := w.callers.Lock(ctx, caller)
	if err != nil {
		return nil, err
	}
	t := &turn{door.Shift{Gate: &w.pages, Caller: caller}, release}
	if err := t.Begin(ctx); err != nil {
		release()
		return nil, err
	}
	w.made.Add(1)
	return t, nil
}

// queue bounds who waits for a turn of one caller: each keeps a connection.
func (w *waiting) queue(caller string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queued[caller] >= mostOfOne {
		return false
	}
	w.queued[caller]++
	return true
}

func (w *waiting) unqueue(caller string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queued[caller]--; w.queued[caller] == 0 {
		delete(w.queued, caller)
	}
}

func (t *turn) done() {
	t.End()
	t.release()
}

// seen is what a look saw, as all are answered who asked the same.
type seen struct {
	body  []byte
	retry string // Retry-After, where there is one
	done  bool   // there is something to answer
	err   error
}

// awaited is what somebody wants to be told of: what a look says, and what has it say
// something else.
type awaited struct {
	wait time.Duration
	look func(context.Context) seen
	of   func(tenant, id string) bool
}

// watch looks for all who ask the same, as long as anybody does.
type watch struct {
	of      *waiting
	key     string
	look    func(context.Context) seen
	news    *approval.News
	asked   chan struct{} // has room for one: somebody wants a look
	end     context.CancelFunc
	waiters map[*waiter]bool
}

// waiter is one of them.
type waiter struct {
	last bool      // is told what the next look sees, be it nothing
	told chan seen // has room for what it is told, which comes once
}

// join has a watch look for one more, and at once. Equal keys are equal questions.
func (w *waiting) join(key string, store *approval.Store, a awaited, last bool) (*watch, *waiter) {
	me := &waiter{last: last, told: make(chan seen, 1)}
	w.mu.Lock()
	defer w.mu.Unlock()
	one := w.watches[key]
	if one == nil {
		ctx, end := context.WithCancel(context.Background())
		one = &watch{of: w, key: key, look: a.look, news: store.News(a.of), asked: make(chan struct{}, 1), end: end, waiters: map[*waiter]bool{}}
		w.watches[key] = one
		go one.run(ctx)
	}
	one.waiters[me] = true
	one.ask()
	return one, me
}

// ask wants a look that begins from now on.
func (w *watch) ask() {
	select {
	case w.asked <- struct{}{}:
	default: // the next one does not begin before now
	}
}

// hurry has a waiter answered with whatever the next look sees.
func (w *watch) hurry(me *waiter) {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	me.last = true
	w.ask()
}

// leave is for everybody who joined. With the last one the watch ends.
func (w *watch) leave(me *waiter) {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	delete(w.waiters, me)
	if len(w.waiters) == 0 && w.of.watches[w.key] == w {
		delete(w.of.watches, w.key)
		w.end()
	}
}

// run looks whenever somebody comes or wants to go, and after a change; but after one
// not before lookAgain is over, so that who changes much has nobody look more often.
func (w *watch) run(ctx context.Context) {
	defer w.news.Close()
	var looked time.Time
	var again <-chan time.Time
	for {
		select {
		case <-w.news.C:
			if again == nil {
				again = time.After(lookAgain - time.Since(looked))
			}
			continue
		case <-w.asked:
		case <-again:
		case <-ctx.Done():
			return
		}
		looked, again = time.Now(), nil
		if saw := w.lookFor(ctx, w.present()); errors.Is(saw.err, errNoTurn) {
			again = time.After(lookAgain)
		}
	}
}

// present are those for whom a look counts that begins now.
func (w *watch) present() []*waiter {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	return slices.Collect(maps.Keys(w.waiters))
}

// lookFor looks once, and answers all whom that tells something.
func (w *watch) lookFor(ctx context.Context, present []*waiter) (saw seen) {
	ctx, cancel := context.WithTimeout(ctx, w.of.most)
	defer cancel()
	w.of.looks.Add(1)
	saw = w.look(ctx)
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	for _, one := range present {
		if w.waiters[one] && (saw.answers() || one.last) {
			delete(w.waiters, one) // leave does the rest
			one.told <- saw
		}
	}
	return saw
}

// answers reports whether there is something to say. What is not on record yet is no
// answer, and neither is that others had their turn.
func (s seen) answers() bool {
	return s.done || s.err != nil && !errors.Is(s.err, approval.ErrUnrecorded) && !errors.Is(s.err, errNoTurn)
}

// patience is how long a request wants to wait.
func patience(given map[string]string) (time.Duration, error) {
	text := given["wait"]
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, door.BadParameter("wait", "is no time; write it like 30s, which is the longest")
	}
	return min(d, longestWait), nil
}

// longPoll looks, and looks again with each change, until there is something to answer or the time is up. A caller whose
// credential has ended meanwhile gets the refusal of that.
func (s *Server) longPoll(c echo.Context, caller auth.Caller, a awaited) (seen, error) {
	if a.wait == 0 {
		ctx, cancel := s.door.Within(c)
		defer cancel()
		saw := a.look(ctx)
		return saw, notSeen(saw.err)
	}
	key, err := sameQuestion(c, caller)
	if err != nil {
		return seen{}, err
	}
	a.look = s.safely(a.look)
	valid, done := s.door.WhileInForce(c, caller)
	defer done()
	limit := s.waiting.place(caller.Name)
	if limit == "" {
		defer s.waiting.leave(caller.Name)
	}
	saw := s.waiting.wait(valid, key, s.approvals.Store, a, limit != "")
	switch lapsed := valid.Lapsed(); {
	case lapsed != nil:
		return seen{}, lapsed
	case limit != "" && !saw.answers():
		return seen{}, door.TooMany(limit, time.Second, http.StatusServiceUnavailable, "too many are waiting at once; ask again after Retry-After seconds, or without wait")
	}
	return saw, notSeen(saw.err)
}

// safely makes an error of a panic, as a request that panics gets: who looks for all who
// wait is not in a request.
func (s *Server) safely(look func(context.Context) seen) func(context.Context) seen {
	return func(ctx context.Context) (saw seen) {
		defer func() {
			if v := recover(); v != nil {
				s.log.Error("panic", "cause", describe(v), "stack", string(debug.Stack()))
				saw = seen{err: fmt.Errorf("panic: %T", v)}
			}
		}()
		return look(ctx)
	}
}

// notSeen is the problem of a look that failed.
func notSeen(err error) error {
	if errors.Is(err, errNoTurn) {
		return door.TooMany("pages", time.Second, http.StatusServiceUnavailable, "more pages of approval requests are asked for at once than can be made in time; ask again after Retry-After seconds")
	}
	return approvalProblem(err)
}

// sameQuestion is equal of two requests that are answered alike: by the same caller, who
// may the same, and with the same words, but for how long they wait.
func sameQuestion(c echo.Context, caller auth.Caller) (string, error) {
	who, err := door.Marshal(caller)
	if err != nil {
		return "", err
	}
	r := c.Request()
	query := r.URL.Query()
	query.Del("wait")
	return string(who) + "\n" + r.URL.Path + "?" + query.Encode(), nil
}

// wait waits with all who ask the same, until there is something to answer, the time is
// up, the server stops or ctx ends. Of a wait without a place the first look is the last.
func (w *waiting) wait(ctx context.Context, key string, store *approval.Store, a awaited, last bool) seen {
	watch, me := w.join(key, store, a, last)
	defer watch.leave(me)
	up := time.NewTimer(a.wait)
	defer up.Stop()
	patience := w.most
	select {
	case saw := <-me.told:
		return saw
	case <-ctx.Done():
		return seen{err: ctx.Err()}
	case <-up.C:
	case <-w.ctx.Done():
		patience = lastLook
	}
	watch.hurry(me)
	up.Reset(patience)
	select {
	case saw := <-me.told:
		return saw
	case <-ctx.Done():
	case <-up.C:
	}
	return seen{err: context.DeadlineExceeded}
}
