package approvals

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"

	"policy-service/pdp/approval"
	"policy-service/pdp/approval/broker"
	"policy-service/pdp/keyedmutex"
	"policy-service/pdp/server/auth"
	"policy-service/pdp/server/door"
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

	mu  sync.Mutex // guards the next two
	all int
	of  map[string]int // by caller

	looks, made atomic.Int64 // how often a request looked, and how many pages were begun; for tests
}

const (
	// MostWaiting is how many requests wait at once, and WaitingOfOne how many of one caller. Others have to come
	// back.
	MostWaiting  = 1000
	WaitingOfOne = MostWaiting / 4
	// longestWait ends before the time that an answer may take.
	longestWait = 30 * time.Second
	// LookAgain is the least time between two looks of one request because of changes.
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
		of:      map[string]int{},
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

// answer is the result of a look.
type answer struct {
	body  []byte
	final bool // there is something to say; else a request that waits goes on waiting
	fresh bool // it belongs in no cache
	retry bool // it says when to ask again
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
	look func(context.Context) answer
	of   func(approval.Notice) bool
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

// longPoll looks, and looks again with each change, until there is an answer or the time is up. If too many wait, it
// looks once, and answers 503 if there is no answer. A caller whose credential has ended meanwhile gets the refusal of
// that.
func (a *Approvals) longPoll(c echo.Context, caller auth.Caller, q question) error {
	if q.wait == 0 {
		ctx, cancel := a.Door.Within(c)
		defer cancel()
		return q.look(ctx).write(c, http.StatusOK)
	}
	valid, done := a.Door.WhileInForce(c, caller)
	defer done()
	limit := a.waiting.place(caller.Name)
	if limit == "" {
		defer a.waiting.leave(caller.Name)
	}
	news := a.Broker.Store.News(q.of)
	defer news.Close()
	got := a.waiting.wait(valid, news, q, limit != "")
	switch lapsed := valid.Lapsed(); {
	case lapsed != nil:
		return lapsed
	case limit != "" && !got.says():
		return door.TooMany(limit, time.Second, http.StatusServiceUnavailable,
			"too many are waiting at once; ask again after Retry-After seconds, or without wait")
	}
	return got.write(c, http.StatusOK)
}

// wait looks at a question until there is an answer, the time is up, the server stops or ctx ends. The answer at the end
// of the time is that of one more look. If last is set, the first look is that one.
func (w *waiting) wait(ctx context.Context, news *approval.News, q question, last bool) answer {
	ctx, cancel := context.WithTimeout(ctx, q.wait+w.most)
	defer cancel()
	stop := context.AfterFunc(w.ctx, func() { time.AfterFunc(lastLook, cancel) })
	defer stop()
	up := time.After(q.wait)
	for {
		looked := time.Now()
		got := w.look(ctx, q)
		if last || got.says() {
			return got
		}
		var again <-chan time.Time
		if errors.Is(got.err, broker.ErrNoTurn) {
			again = time.After(LookAgain)
		}
		for waits := true; waits; {
			select {
			case <-news.C: // many changes do not make many looks
				again = time.After(LookAgain - time.Since(looked))
			case <-again:
				waits = false
			case <-up:
				last, waits = true, false
			case <-w.ctx.Done():
				last, waits = true, false
			case <-ctx.Done():
				return answer{err: ctx.Err()}
			}
		}
	}
}

// look looks once.
func (w *waiting) look(ctx context.Context, q question) answer {
	ctx, cancel := context.WithTimeout(ctx, w.most)
	defer cancel()
	w.looks.Add(1)
	return q.look(ctx)
}
