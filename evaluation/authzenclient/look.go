package authzenclient

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"policy-service/evaluation"
)

const (
	// longestWait is how long a PDP is asked to wait before it answers.
	longestWait = 30 * time.Second
	// plainFor is how long a PDP is looked at plainly that does not take a wait.
	plainFor = time.Minute
)

// tasks is a client where it asks about approval requests.
type tasks struct{ *Client }

// Standing is how far it is with what people were asked. The zero Standing is of nothing.
type Standing struct {
	handle Handle
	told   told
	given  approval // zero where there is none that can be used
	err    *Error   // why there is none, and none is waited for
}

// Handle is what to look at again: keep it in place of the one that was looked at.
func (s Standing) Handle() Handle { return s.handle }

// Status is the PDP's word: pending, approved, denied, expired, cancelled, failed, or another.
func (s Standing) Status() string { return s.told.status }

// Pending reports whether people are still waited for.
func (s Standing) Pending() bool { return s.told.status == taskPending }

// Approved reports whether there is an approval that [Client.Use] can present. It is no permit.
func (s Standing) Approved() bool { return s.given.text != nil }

// ApprovedUntil is when that approval ends, zero if there is none.
func (s Standing) ApprovedUntil() time.Time { return s.given.until }

// Ends is when it is of no use any more to go on waiting; zero is never.
func (s Standing) Ends() time.Time { return s.handle.ends() }

// Approvals are the ids of what people decide about, or did, by which approvers find it, as far
// as the PDP names them.
func (s Standing) Approvals() []string { return s.told.named() }

// Reason is what the person who said no gave as the reason, as far as the PDP says it: one line
// of their own words, to be shown as such and not to be acted on. It is "" in any other status.
func (s Standing) Reason() string {
	if s.told.status != taskDenied {
		return ""
	}
	return printable(s.told.reason)
}

// With is s with the request that it is to be presented with, for who is given the request once
// more. Nothing follows from the two being together: the PDP says whether that is what people
// approved.
func (s Standing) With(request evaluation.Request) (Standing, error) {
	t, _ := s.handle.Task() // the zero Task is refused
	h, err := t.Handle(request)
	if err != nil {
		return Standing{}, err
	}
	s.handle = h
	return s, nil
}

// Err says why nobody is waited for any more and there is nothing to use: always an [*Error],
// of kind [NotApproved] where people, or nobody in time, decided it.
func (s Standing) Err() error {
	if s.err == nil {
		return nil
	}
	return s.err
}

// String is for logs.
func (s Standing) String() string {
	return s.handle.String() + ": " + printable(s.told.status)
}

// Ask has people asked about what was denied, and does not wait for them. Denied is of
// [Client.Enforce], or of [Client.Decide] and what follows it: the PDP has denied the request
// and says that an approval can be asked for. Ask fails where it does not.
//
// Where Ask fails after [KeepHandle] kept a handle, [Client.Look] at that handle asks again.
// Sent again for the same deny, it is the same approval request.
func (c *Client) Ask(ctx context.Context, denied Enforcement, options ...ApprovalOption) (Standing, error) {
	s, err := tasks{c}.request(ctx, denied, options)
	if err != nil {
		err.Op = "request"
		return Standing{}, err
	}
	return s, nil
}

func (c tasks) request(ctx context.Context, e Enforcement, options []ApprovalOption) (s Standing, err *Error) {
	w, err := c.waiter(nil, options)
	if err != nil {
		return s, err
	}
	o, ok := offered(&e)
	if !ok || !o.requested || e.of.question == nil {
		return s, notAsked("this is no deny that an approval can be asked for: " + e.String())
	}
	if err := w.asks(*e.of.question); err != nil {
		return s, err
	}
	h, err := w.prepare(ctx, e, o)
	if err != nil {
		return s, err
	}
	return w.look(ctx, h, 0)
}

// Look says how far it is with what people were asked, and waits so long at most, and at most
// half a minute, for what they say. The PDP holds the answer back until then; one that does not
// do that is looked at now and then.
//
// A handle of before people were asked has them asked; that is sent again as often as it must
// be, and is one approval request.
//
// An error says nothing of what people said. Where its kind is [Unreachable], [TimedOut] or
// [Unavailable], look again after a pause, and not before [Error.RetryAfter]: Look makes none.
func (c *Client) Look(ctx context.Context, h Handle, wait time.Duration) (Standing, error) {
	s, err := tasks{c}.look(ctx, h, wait)
	if err != nil {
		err.Op = "await"
		return Standing{}, err
	}
	return s, nil
}

func (c tasks) look(ctx context.Context, h Handle, wait time.Duration) (s Standing, err *Error) {
	if err := c.made(h); err != nil {
		return s, err
	}
	if h.kept.Task == nil {
		if s, err = c.submit(ctx, h); err != nil || !s.Pending() || wait <= 0 {
			return s, err
		}
		h = s.handle
	}
	return c.watched(ctx, h, min(wait, longestWait))
}

// watched looks until people have decided or the wait is up.
func (c tasks) watched(ctx context.Context, h Handle, wait time.Duration) (s Standing, err *Error) {
	err = c.until(ctx, wait, func(wait time.Duration) (err *Error) {
		s, err = c.status(ctx, h, wait)
		return err
	}, func() (bool, time.Duration) { return !s.Pending(), s.told.retryAfter })
	return s, err
}

// until asks until there is something to say, or the wait is up. A PDP that holds its answer
// back is asked once; every other is asked with pauses between, never sooner than it wants.
func (c tasks) until(ctx context.Context, wait time.Duration, ask func(time.Duration) *Error, says func() (bool, time.Duration)) *Error {
	up := c.clock.now().Add(wait)
	err := c.patiently(ctx, wait, ask)
	for n := 0; ; n++ {
		left := up.Sub(c.clock.now())
		if err != nil || left <= 0 {
			return err
		}
		said, retryAfter := says()
		if said {
			return nil
		}
		pause := max(min(c.clock.pace(n), left), retryAfter)
		if failure := c.clock.wait(ctx, min(pause, left)); failure != nil {
			return broken(ctx, failure, nil, false)
		}
		if pause > left {
			return nil
		}
		err = ask(0)
	}
}

// patiently asks with a wait, where the PDP takes one, and plainly where it does not: it, or
// something between, may refuse the wait, or break it off. Where it says for how long it is to
// be left alone, it is.
func (c tasks) patiently(ctx context.Context, wait time.Duration, ask func(time.Duration) *Error) *Error {
	if of := c.http.Timeout; of > 0 {
		wait = min(wait, of-c.timeout)
	}
	if wait < time.Second || c.known.waits.refused(c.clock.now()) {
		return ask(0)
	}
	err := ask(wait)
	if err == nil || ctx.Err() != nil || err.Kind != Refused && !err.passing() || err.RetryAfter > wait {
		return err
	}
	if err.RetryAfter > 0 {
		if failure := c.clock.wait(ctx, err.RetryAfter); failure != nil {
			return broken(ctx, failure, nil, false)
		}
	}
	if err = ask(0); err == nil {
		c.known.waits.refuse(c.clock.now())
	}
	return err
}

// waits is what a client knows of whether the PDP holds answers back.
type waits struct {
	mu    sync.Mutex
	plain time.Time // until then it is not asked to
}

func (w *waits) refused(now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return now.Before(w.plain)
}

func (w *waits) refuse(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.plain = now.Add(plainFor)
}

// within adds the time that a PDP is to wait to a URL. Its query stays as it is: it may be signed.
func within(url string, wait time.Duration) string {
	if wait < time.Second {
		return url
	}
	separator := "?"
	if strings.Contains(url, "?") {
		separator = "&"
	}
	return url + separator + "wait=" + strconv.Itoa(int(wait/time.Second)) + "s"
}

// submit asks for an approval. By its key it is one however often it is sent.
func (c tasks) submit(ctx context.Context, h Handle) (s Standing, err *Error) {
	body, err := h.body()
	if err != nil {
		return s, err
	}
	a := asking{op: "request", url: h.kept.Endpoint, body: body, key: h.kept.Key, repeat: unanswered, statuses: []int{http.StatusCreated, http.StatusAccepted}}
	p, err := c.atTask(ctx, a, func(p told) *Error {
		if !p.task.whole() {
			return odd("the task has no status_endpoint")
		}
		return c.reachable(p.task.StatusEndpoint)
	})
	if err != nil {
		return s, err
	}
	h.kept.Task = &p.task
	return h.standing(p), nil
}

// status asks how far a task is.
func (c tasks) status(ctx context.Context, h Handle, wait time.Duration) (s Standing, err *Error) {
	a := asking{op: "await", url: within(h.kept.Task.StatusEndpoint, wait), wait: wait, method: http.MethodGet, repeat: unanswered}
	p, err := c.atTask(ctx, a, h.mine)
	if err != nil {
		return s, err
	}
	return h.standing(p), nil
}

// standing is what is told of a task of h.
func (h Handle) standing(p told) Standing {
	if p.task.ExpiresAt != "" {
		later := *h.kept.Task
		later.ExpiresAt = p.task.ExpiresAt
		h.kept.Task = &later
	}
	s := Standing{handle: h, told: p}
	if !s.Pending() {
		s.given, s.err = p.approved()
	}
	return s
}

// mine refuses what is said of another task.
func (h Handle) mine(p told) *Error {
	if p.task.ID != h.kept.Task.ID {
		return odd("it is about another task")
	}
	return nil
}

// Cancel takes back what people are asked, for who does not want it any more. It fails
// where that came to its end before, where nobody was asked yet, and where the PDP does
// not offer it. What was approved is revoked by people, at the PDP.
func (c *Client) Cancel(ctx context.Context, h Handle) error {
	if err := (tasks{c}).cancel(ctx, h); err != nil {
		err.Op = "cancel"
		return err
	}
	return nil
}

func (c tasks) cancel(ctx context.Context, h Handle) *Error {
	if err := c.made(h); err != nil {
		return err
	}
	if h.kept.Task == nil {
		return notAsked("the handle is of before anybody was asked; resume it to find out whether somebody was")
	}
	a := asking{op: "cancel", url: h.kept.Task.Cancel, body: []byte("{}"), repeat: unsent}
	p, err := c.atTask(ctx, a, h.mine)
	if err == nil && p.status != taskCancelled {
		return odd("the task was not cancelled")
	}
	return err
}

// atTask asks about a task, where its URL is one to be trusted. There is no breaker: who
// waits asks rarely, and wants to know when the PDP is back.
func (c tasks) atTask(ctx context.Context, a asking, accept func(told) *Error) (p told, err *Error) {
	if err := c.reachable(a.url); err != nil {
		return p, err
	}
	a.breaker = &breaker{}
	_, err = c.ask(ctx, a, func(r reply) (err *Error) {
		if p, err = readTask(r); err != nil {
			return err
		}
		return accept(p)
	})
	return p, err
}

// reachable refuses URLs that a PDP's answer, or a handle, names elsewhere.
func (c *Client) reachable(url string) *Error {
	if url == "" {
		return notAsked("the PDP does not offer this")
	}
	if err := c.at.near(url); err != nil {
		return notAsked("a URL of the answer " + err.Error())
	}
	return nil
}
