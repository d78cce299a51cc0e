package approvals

import (
	"context"
	"errors"
	"time"
	"unicode/utf8"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/internal/link"
	"policy-service/evaluation/capability"
	"policy-service/obligations"
)

// Enforce is [authzenclient.Client.Enforce] for a request that people may have to approve. If the PDP denies and offers an
// approval request, Enforce files one, waits for people, and asks the PDP again with their approval. Only that answer can
// permit. This takes as long as people take, as the approval request lasts, or as ctx lasts.
//
// Anything but an approval is a deny, and so is an answer that is not understood in full. [authzenclient.Enforcement.Err]
// is of kind NotApproved if people denied, or did not decide in time. While Enforce waits, it asks a PDP that does not
// answer again: after some seconds at first, then more and more rarely, once a minute at least, and never before the PDP
// wants to be asked.
//
// If the approval ended between the last look and its use, people are asked once more, and then no more.
//
// The handlers have none for approval_required: a PEP that asks people itself uses [authzenclient.Client.Enforce].
func Enforce(
	ctx context.Context, c *authzenclient.Client, request evaluation.Request, handlers obligations.Handlers, options ...Option,
) authzenclient.Enforcement {
	w, err := newWaiter(c, handlers, options)
	if err == nil {
		err = w.asks(request)
	}
	if err != nil {
		return deny(authzenclient.Enforcement{}, "evaluate", err)
	}
	return w.follow(ctx, c.Enforce(ctx, request, handlers, w.shows...))
}

// Resume goes on with a wait that another call of [Enforce] or of [Ask] began, here or in another process. The PDP
// compares the request with the one that people approved. Resume asks nobody anew: if the approval has ended, it is a deny.
// A Task can be resumed more than once: the PDP counts how often an approval is used.
func Resume(
	ctx context.Context, c *authzenclient.Client, t Task, request evaluation.Request, handlers obligations.Handlers, options ...Option,
) authzenclient.Enforcement {
	w, err := newWaiter(c, handlers, options)
	if err == nil {
		err = w.asks(request)
	}
	if err == nil {
		err = t.of(w.link)
	}
	if err != nil {
		return deny(authzenclient.Enforcement{}, "resume", err)
	}
	s, err := w.await(ctx, t.Ends(), func() (Standing, error) { return Look(ctx, c, t) })
	if err != nil {
		return deny(authzenclient.Enforcement{}, "await", err)
	}
	return w.use(ctx, s, request)
}

// Option sets something of one wait.
type Option func(*waiter)

// WithJustification says why, to the people who decide. It is part of the approval request
// (context.business_justification), and not of what they approve.
func WithJustification(why string) Option {
	return func(w *waiter) { w.justification = why }
}

// KeepTask calls keep with the task once an approval request is filed, before the wait goes on. A later task replaces an
// earlier one. If keep fails, the wait ends with its error and a deny: so a program can leave the wait to another one.
func KeepTask(keep func(context.Context, Task) error) Option {
	return func(w *waiter) { w.keeps = keep }
}

// JoinEqual leaves it to the PDP to find equal approval requests: no Idempotency-Key is sent. This service finds the task
// of an equal request of the same credential, also of another PEP. Another PDP may ask people twice if an answer is lost.
func JoinEqual() Option {
	return func(w *waiter) { w.joins = true }
}

// WithCapability shows a capability with each question: see [authzenclient.WithCapability].
func WithCapability(token string, holder *capability.Holder) Option {
	show := authzenclient.WithCapability(token, holder)
	return func(w *waiter) { w.shows = []authzenclient.AskOption{show} }
}

// waiter waits for people.
type waiter struct {
	client        *authzenclient.Client
	link          link.Link
	handlers      obligations.Handlers
	justification string
	joins         bool
	shows         []authzenclient.AskOption
	keeps         func(context.Context, Task) error
}

func newWaiter(c *authzenclient.Client, handlers obligations.Handlers, options []Option) (*waiter, error) {
	w := &waiter{client: c, link: c.Link(), handlers: handlers, keeps: func(context.Context, Task) error { return nil }}
	for _, option := range options {
		option(w)
	}
	if w.keeps == nil {
		return nil, notAsked("KeepTask got no function")
	}
	if _, both := handlers[obligations.ApprovalRequired]; both {
		return nil, notAsked("the handlers have one for approval_required, which the PDP sees to here; leave it out, or use Client.Enforce")
	}
	if !utf8.ValidString(w.justification) {
		return nil, notAsked("the justification is not valid UTF-8")
	}
	return w, nil
}

// asks refuses requests that no approval can be asked for.
func (w *waiter) asks(q evaluation.Request) error {
	for _, member := range [...]string{"approval", "approval_id"} {
		if _, there := q.Context.Get(member); there {
			return notAsked("the request presents an approval already; leave context.approval and context.approval_id out, or use Client.Enforce")
		}
	}
	if _, there := q.Context.Get(justified); there && w.justification != "" {
		return notAsked("the request has a business_justification already; leave one of the two out")
	}
	return nil
}

func (w *waiter) keep(ctx context.Context, t Task) error {
	if err := w.keeps(ctx, t); err != nil {
		return &authzenclient.Error{Kind: authzenclient.Cancelled, Detail: "the task was not kept: " + link.Printable(err.Error()), Cause: err}
	}
	return nil
}

// follow asks people about a deny that offers an approval request, and once more if their approval ends before its use.
func (w *waiter) follow(ctx context.Context, e authzenclient.Enforcement) authzenclient.Enforcement {
	for times := 2; ; times-- {
		o, _, err := offerOf(e)
		if err != nil {
			return deny(e, "evaluate", err)
		}
		if o.next != evaluation.NextRequest || times == 0 {
			return e
		}
		f, err := w.filing(e, o)
		if err != nil {
			return deny(e, "request", err)
		}
		s, err := w.await(ctx, f.expires, func() (Standing, error) {
			s, err := w.submit(ctx, f)
			if err == nil {
				err = w.keep(ctx, s.task)
			}
			return s, err
		})
		if err != nil {
			return deny(e, "await", err)
		}
		e = w.use(ctx, s, e.Question()) // as it was filed
	}
}

// await tries until people have decided. try is for the beginning; then it looks. After a failure that says nothing of
// their decision it tries again, until the end, which the first answer can put off.
func (w *waiter) await(ctx context.Context, end time.Time, try func() (Standing, error)) (s Standing, err error) {
	for n := 0; ; n++ {
		now, err := try()
		pause := now.state.retryAfter
		switch {
		case err != nil && (!passing(err) || ctx.Err() != nil):
			return s, err
		case err != nil:
			pause = failureOf(err).RetryAfter
		case !now.Pending():
			return now, now.err
		default:
			s, end = now, now.Ends()
			try = func() (Standing, error) { return Look(ctx, w.client, s.task) }
		}
		if err := w.pause(ctx, n, pause, end); err != nil {
			return s, err
		}
	}
}

// use asks with an approval, and again if the PDP says that the approval is about to count.
func (w *waiter) use(ctx context.Context, s Standing, q evaluation.Request) authzenclient.Enforcement {
	for n := 0; ; n++ {
		e := Use(ctx, w.client, s, q, w.handlers.Types(), w.shows...).Discharge(ctx, w.handlers)
		w.client.Report(ctx, &e)
		next, after := Next(e)
		if next != evaluation.NextRetry {
			return e
		}
		if err := w.pause(ctx, n, after, s.given.until); err != nil {
			return deny(e, "await", err)
		}
	}
}

const (
	// firstPause is the pause before the second look, mostPause the longest: people take minutes, and many PEPs may wait
	// at one PDP.
	firstPause = 6 * time.Second
	mostPause  = time.Minute
)

// pause waits before attempt n, and at least as long as the PDP wants. It fails at once if the attempt would come after
// the end; zero is no end.
func (w *waiter) pause(ctx context.Context, n int, atLeast time.Duration, end time.Time) error {
	pause := time.Duration((0.5 + w.link.Jitter()/2) * float64(min(firstPause<<min(n, 10), mostPause)))
	pause = max(pause, atLeast)
	if !end.IsZero() && !w.link.Now().Add(pause).Before(end) {
		return notApproved("nobody decided in time")
	}
	if err := w.link.Wait(ctx, pause); err != nil {
		e := &authzenclient.Error{Kind: authzenclient.Cancelled, Detail: "the wait for people was given up", Cause: err}
		if ctx.Err() == context.DeadlineExceeded {
			e.Kind = authzenclient.TimedOut
		}
		return e
	}
	return nil
}

// passing reports whether a failure says nothing of people's decision.
func passing(err error) bool {
	switch failureOf(err).Kind {
	case authzenclient.Unreachable, authzenclient.TimedOut, authzenclient.Unavailable:
		return true
	}
	return false
}

// failureOf is an error of this package as what it always is.
func failureOf(err error) *authzenclient.Error {
	var e *authzenclient.Error
	if !errors.As(err, &e) {
		return &authzenclient.Error{Kind: authzenclient.Odd, Detail: link.Printable(err.Error()), Cause: err}
	}
	return e
}

func deny(e authzenclient.Enforcement, op string, err error) authzenclient.Enforcement {
	return e.Deny(failureOf(of(op, err)))
}
