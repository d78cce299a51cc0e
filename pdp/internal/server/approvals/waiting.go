package approvals

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"

	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/approval/broker"
	"policy-service/pdp/internal/keyedmutex"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/door"
)

// waiting are the requests that wait for something to become of an approval. They hold up no request for a decision,
// not each other, and not a stop.
type waiting struct {
	ctx context.Context
	end context.CancelFunc
	// most is how long a look may take, with the wait for its turn.
	most time.Duration

	// callers make one page each at a time, and pages bounds the pages of all callers. Each request that waits for its
	// turn keeps a connection, so those of one caller are bounded.
	callers keyedmutex.Mutex
	pages   door.Gate
	// told are the places of gateways that read for people, so that they take none of a console.
	told door.Gate

	mu      sync.Mutex // guards what follows, and what is in watches
	all     int
	of      map[string]int // by caller
	watches map[string]*watch

	looks, made atomic.Int64 // how often a watch looked, and how many pages were begun; for tests
}

const (
	// MostWaiting is how many requests wait at once, and WaitingOfOne how many of one caller. Others have to come
	// back.
	MostWaiting  = 1000
	WaitingOfOne = MostWaiting / 4
	// longestWait ends before the time that an answer may take.
	longestWait = 30 * time.Second
	// LookAgain is the least time between two looks at the same question because of changes.
	LookAgain = 100 * time.Millisecond
	// lastLook is how long a stop waits for a look.
	lastLook = time.Second
	// MostPages is how many pages are made at once: each asks the policies about hundreds of approval requests, each of
	// which may be large.
	MostPages = 2
)

func newWaiting(most time.Duration) *waiting {
	w := &waiting{
		most:    most,
		callers: keyedmutex.Mutex{Most: 1 + WaitingOfOne}, // one makes a page, and the others wait
		pages:   door.Gate{Limit: MostPages, Patience: most},
		told:    door.Gate{Limit: 1, Queue: door.LongQueue, Patience: most},
		of:      map[string]int{},
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
	case w.of[caller] >= WaitingOfOne:
		return "waiting_share"
	case w.all >= MostWaiting:
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

// turn is a caller's time to make a page. Its done is called once.
type turn struct {
	door.Shift
	release func()
}

// turn waits until a caller can make a page.
func (w *waiting) turn(ctx context.Context, caller string) (*turn, error) {
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

func (t *turn) done() {
	t.End()
	t.release()
}

// ifNoneMatch is the header with the tags of the answers that a client has.
const ifNoneMatch = "If-None-Match"

// answer is the result of a look, the same for every request with the same question.
type answer struct {
	body  []byte
	tag   string // the ETag, "" if it has none
	same  bool   // the client has it
	final bool   // there is something to say; else a request that waits goes on waiting
	fresh bool   // it belongs in no cache
	retry bool   // it says when to ask again
	err   error
}

func answerOf(v any, final bool) (a answer) {
	a.body, a.err = door.Marshal(v)
	a.final = final
	return a
}

// write answers a request.
func (a answer) write(c echo.Context, status int) error {
	if a.err != nil {
		return a.err
	}
	header := c.Response().Header()
	if a.fresh {
		header.Set(echo.HeaderCacheControl, "no-store")
	}
	if a.retry {
		header.Set(echo.HeaderRetryAfter, strconv.Itoa(broker.RetryLater))
	}
	if a.tag != "" {
		header.Set("ETag", a.tag)
	}
	if a.same {
		return c.NoContent(http.StatusNotModified)
	}
	return c.Blob(status, echo.MIMEApplicationJSON, a.body)
}

// says reports whether there is an answer: not as long as a step is not on record, or other callers have their turn.
func (a answer) says() bool {
	return a.final || a.err != nil && !errors.Is(a.err, approval.ErrUnrecorded) && !errors.Is(a.err, broker.ErrNoTurn)
}

// question is the question of a request, and for how long the request waits. Look finds the answer now, and of picks the
// changes after which the answer may be another.
type question struct {
	wait time.Duration
	// has are the values of If-None-Match. With them the answer is one that has another tag.
	has  []string
	look func(context.Context) answer
	of   func(approval.Notice) bool
}

// differs makes a question out of one with tags: there is something to say if the client does not have it.
func (q question) differs() question {
	look := q.look
	q.look = func(ctx context.Context) answer {
		got := look(ctx)
		if got.err == nil && got.tag != "" && len(q.has) > 0 {
			got.same = door.Matches(q.has, got.tag)
			got.final = !got.same
		}
		return got
	}
	return q
}

// watch looks for all requests with the same question, as long as there is one.
type watch struct {
	of      *waiting
	key     string
	look    func(context.Context) answer
	news    *approval.News
	asked   chan struct{} // has room for one: a waiter wants a look
	end     context.CancelFunc
	waiters map[*waiter]bool
}

// waiter is one of these requests.
type waiter struct {
	last     bool        // the next look answers it, also if that look finds no answer
	answered chan answer // has room for the one answer
}

// join has a watch look for one more waiter, and at once. Equal keys are equal questions.
func (w *waiting) join(key string, store *approval.Store, q question, last bool) (*watch, *waiter) {
	me := &waiter{last: last, answered: make(chan answer, 1)}
	w.mu.Lock()
	defer w.mu.Unlock()
	one := w.watches[key]
	if one == nil {
		ctx, end := context.WithCancel(context.Background())
		one = &watch{
			of:      w,
			key:     key,
			look:    q.look,
			news:    store.News(q.of),
			asked:   make(chan struct{}, 1),
			end:     end,
			waiters: map[*waiter]bool{},
		}
		w.watches[key] = one
		go one.run(ctx)
	}
	one.waiters[me] = true
	one.ask()
	return one, me
}

// ask requests another look, one that begins after this call. It never waits.
func (w *watch) ask() {
	select {
	case w.asked <- struct{}{}:
	default: // a look is requested already and has not begun, so it will see what there is now
	}
}

// hurry has a waiter answered with the result of the next look.
func (w *watch) hurry(me *waiter) {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	me.last = true
	w.ask()
}

// leave is called for every waiter that joined. With the last one the watch ends.
func (w *watch) leave(me *waiter) {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	delete(w.waiters, me)
	if len(w.waiters) == 0 && w.of.watches[w.key] == w {
		delete(w.of.watches, w.key)
		w.end()
	}
}

// run looks whenever a waiter comes or wants to go, and after a change; but after a change not before LookAgain is
// over, so that many changes do not make many looks.
func (w *watch) run(ctx context.Context) {
	defer w.news.Close()
	var looked time.Time
	var again <-chan time.Time
	for {
		select {
		case <-w.news.C:
			if again == nil {
				again = time.After(LookAgain - time.Since(looked))
			}
			continue
		case <-w.asked:
		case <-again:
		case <-ctx.Done():
			return
		}
		looked, again = time.Now(), nil
		if got := w.lookFor(ctx); errors.Is(got.err, broker.ErrNoTurn) {
			again = time.After(LookAgain)
		}
	}
}

// lookFor looks once, and answers every waiter if there is an answer. The look counts for those that are there when it
// begins.
func (w *watch) lookFor(ctx context.Context) answer {
	w.of.mu.Lock()
	present := slices.Collect(maps.Keys(w.waiters))
	w.of.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, w.of.most)
	defer cancel()
	w.of.looks.Add(1)
	got := w.look(ctx)
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	for _, one := range present {
		if w.waiters[one] && (got.says() || one.last) {
			delete(w.waiters, one) // leave does the rest
			one.answered <- got
		}
	}
	return got
}

// longest reads how long a request wants to wait.
func longest(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, door.BadParameter("wait", "is no time; write it like 30s, which is the longest")
	}
	return min(d, longestWait), nil
}

// longPoll looks, and looks again with each change, until there is an answer or the time is up. Requests with equal
// questions share their looks. If too many wait, it looks once, and answers 503 if there is no answer. A caller whose
// credential has ended meanwhile gets the refusal of that.
func (a *Approvals) longPoll(c echo.Context, caller auth.Caller, q question) error {
	q = q.differs()
	if q.wait == 0 {
		ctx, cancel := a.Door.Within(c)
		defer cancel()
		return q.look(ctx).write(c, http.StatusOK)
	}
	key, err := sameQuestion(c, caller, q.has)
	if err != nil {
		return err
	}
	q.look = a.safely(q.look)
	valid, done := a.Door.WhileInForce(c, caller)
	defer done()
	limit := a.waiting.place(caller.Name)
	if limit == "" {
		defer a.waiting.leave(caller.Name)
	}
	got := a.waiting.wait(valid, key, a.Broker.Store, q, limit != "")
	switch lapsed := valid.Lapsed(); {
	case lapsed != nil:
		return lapsed
	case limit != "" && !got.says():
		return door.TooMany(limit, time.Second, http.StatusServiceUnavailable,
			"too many are waiting at once; ask again after Retry-After seconds, or without wait")
	}
	return got.write(c, http.StatusOK)
}

// safely makes an error of a panic, as a request that panics gets: a shared look is in no request.
func (a *Approvals) safely(look func(context.Context) answer) func(context.Context) answer {
	return func(ctx context.Context) (got answer) {
		defer func() {
			if v := recover(); v != nil {
				a.Door.Options.Log.Error("panic", "cause", door.PanicCause(v), "stack", string(debug.Stack()))
				got = answer{err: fmt.Errorf("panic: %T", v)}
			}
		}()
		return look(ctx)
	}
}

// sameQuestion is equal for two requests that are answered alike: their callers are the same and may do the same, they
// have the same answers already, and their words are the same but for the time to wait.
func sameQuestion(c echo.Context, caller auth.Caller, has []string) (string, error) {
	who, err := door.Marshal([]any{caller, has})
	if err != nil {
		return "", err
	}
	r := c.Request()
	query := r.URL.Query()
	query.Del("wait")
	return string(who) + "\n" + r.URL.Path + "?" + query.Encode(), nil
}

// wait waits with all requests of the same question, until there is an answer, the time is up, the server stops or
// ctx ends. For a wait without a place (last) the first look is the last.
func (w *waiting) wait(ctx context.Context, key string, store *approval.Store, q question, last bool) answer {
	watch, me := w.join(key, store, q, last)
	defer watch.leave(me)
	up := time.NewTimer(q.wait)
	defer up.Stop()
	patience := w.most
	select {
	case got := <-me.answered:
		return got
	case <-ctx.Done():
		return answer{err: ctx.Err()}
	case <-up.C:
	case <-w.ctx.Done():
		patience = lastLook
	}
	watch.hurry(me)
	up.Reset(patience)
	select {
	case got := <-me.answered:
		return got
	case <-ctx.Done():
	case <-up.C:
	}
	return answer{err: context.DeadlineExceeded}
}
