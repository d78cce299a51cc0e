package authzenclient

import (
	"context"
	"net/http"
	"time"
)

const (
	// firstLook is how long it is before somebody is asked again at first, mostBetween
	// how long in the end: people take minutes, and a PDP has many PEPs that wait.
	firstLook   = 6 * time.Second
	mostBetween = time.Minute
)

// await has people asked, where they were not, and waits for what they say.
func (w *waiter) await(ctx context.Context, h Handle) (approval, *Error) {
	for n := 0; ; n++ {
		p, err := w.step(ctx, &h)
		switch {
		case err != nil && (!err.passing() || ctx.Err() != nil):
			return approval{}, err
		case err != nil:
			p.retryAfter = err.RetryAfter
		case p.status != taskPending:
			return p.approved()
		}
		if err := w.pause(ctx, n, p.retryAfter, h.ends()); err != nil {
			return approval{}, err
		}
	}
}

// step asks people, once; then it looks.
func (w *waiter) step(ctx context.Context, h *Handle) (standing, *Error) {
	if h.kept.Task != nil {
		p, err := w.client.look(ctx, *h)
		if err == nil && p.task.ExpiresAt != "" {
			later := *h.kept.Task
			later.ExpiresAt = p.task.ExpiresAt
			h.kept.Task = &later
		}
		return p, err
	}
	p, err := w.client.submit(ctx, *h)
	if err != nil {
		return p, err
	}
	h.kept.Task = &p.task
	return p, w.kept(ctx, *h)
}

// submit asks for an approval. By its key it is one however often it is sent.
func (c *Client) submit(ctx context.Context, h Handle) (p standing, err *Error) {
	body, err := h.body()
	if err != nil {
		return p, err
	}
	a := asking{op: "request", url: h.kept.Endpoint, body: body, key: h.kept.Key, repeat: unanswered, statuses: []int{http.StatusCreated, http.StatusAccepted}}
	return c.atTask(ctx, a, func(p standing) *Error {
		if !p.task.whole() {
			return odd("the task has no status_endpoint")
		}
		return c.reachable(p.task.StatusEndpoint)
	})
}

// look asks how far a task is.
func (c *Client) look(ctx context.Context, h Handle) (standing, *Error) {
	a := asking{op: "await", url: h.kept.Task.StatusEndpoint, method: http.MethodGet, repeat: unanswered}
	return c.atTask(ctx, a, h.mine)
}

// mine refuses what is said of another task.
func (h Handle) mine(p standing) *Error {
	if p.task.ID != h.kept.Task.ID {
		return odd("it is about another task")
	}
	return nil
}

// Cancel takes back what people are asked, for who does not want it any more. It fails
// where that came to its end before, where nobody was asked yet, and where the PDP does
// not offer it. What was approved is revoked by people, at the PDP.
func (c *Client) Cancel(ctx context.Context, h Handle) error {
	if err := c.cancel(ctx, h); err != nil {
		err.Op = "cancel"
		return err
	}
	return nil
}

func (c *Client) cancel(ctx context.Context, h Handle) *Error {
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
func (c *Client) atTask(ctx context.Context, a asking, accept func(standing) *Error) (p standing, err *Error) {
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
	if err := c.near(url); err != nil {
		return notAsked("a URL of the answer " + err.Error())
	}
	return nil
}

// passing reports whether a failure says nothing about what people said.
func (e *Error) passing() bool {
	return e.Kind == Unreachable || e.Kind == TimedOut || e.Kind == Unavailable
}

// pause waits before somebody is asked for the n-th time again, at least as long as they
// want. It fails at once where they would be asked too late.
func (w *waiter) pause(ctx context.Context, n int, atLeast time.Duration, ends time.Time) *Error {
	c := w.client
	longest := min(firstLook<<min(n, 10), mostBetween)
	pause := max(time.Duration((0.5+c.clock.jitter()/2)*float64(longest)), atLeast)
	if !ends.IsZero() && !c.clock.now().Add(pause).Before(ends) {
		return notApproved("nobody decided in time")
	}
	if err := c.clock.wait(ctx, pause); err != nil {
		e := &Error{Kind: Cancelled, Detail: "the wait for people was given up", cause: err}
		if ctx.Err() == context.DeadlineExceeded {
			e.Kind = TimedOut
		}
		return e
	}
	return nil
}
