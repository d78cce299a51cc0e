package authzenclient

import (
	"cmp"
	"context"
	"unicode/utf8"

	"policy-service/evaluation"
	"policy-service/obligations"
)

// EnforceWithApproval is [Client.Enforce] for what people may have to approve: where the
// PDP denies and says that an approval can be asked for, it asks for one, waits for what
// people say, and asks the PDP again with what they approved. It permits by the last
// answer alone, which is the PDP's: an approval is no permit. This takes as long as people
// take, the request's own time for them, or ctx:
//
//	e := client.EnforceWithApproval(ctx, request, handlers, authzenclient.WithJustification("release 1.4"))
//	if !e.Permitted() {
//		log.Print(e)
//		return errForbidden
//	}
//
// What anybody says but yes is a deny, and so is each answer that is not understood in
// full; [Enforcement.Err] is of kind [NotApproved] where people, or nobody in time,
// decided it. While people are waited for, a PDP that does not answer is asked again. It
// is asked after some seconds, then more and more rarely, once a minute at least, and
// never before it wants to be.
//
// The handlers have none for approval_required: a PEP that asks people itself uses Enforce.
//
// The PDP says where approvals are asked for. That must be at its own origin, or at one of
// [WithEndpointOrigin], which gets no credentials.
//
// It is [Client.Enforce], [Client.Ask], [Client.Look] and [Client.Use] in a loop. A PEP whose
// people sit at the screen, or that must not wait where it asks, uses these by itself.
func (c *Client) EnforceWithApproval(ctx context.Context, request evaluation.Request, handlers obligations.Handlers, options ...ApprovalOption) Enforcement {
	w, err := c.waiter(handlers, options)
	if err == nil {
		err = w.asks(request)
	}
	if err != nil {
		return Enforcement{of: Undischarged{decision: denied("evaluate", err)}}
	}
	e := c.Enforce(ctx, request, handlers)
	if o, ok := offered(&e); ok && o.requested {
		return w.request(ctx, e, o)
	}
	return e
}

// Resume goes on with a wait that another process, or another call, was in. What its
// permit is about is [Handle.Request]. A handle can be used more than once, and that
// gives nothing twice: the PDP says how often an approval counts.
func (c *Client) Resume(ctx context.Context, h Handle, handlers obligations.Handlers, options ...ApprovalOption) Enforcement {
	w, err := c.waiter(handlers, options)
	if err == nil {
		err = cmp.Or(w.asks(h.request), c.made(h), w.same(h))
	}
	if err != nil {
		return Enforcement{of: Undischarged{decision: denied("resume", err)}}
	}
	return w.follow(ctx, Enforcement{}, h)
}

// ApprovalOption sets something of one wait.
type ApprovalOption func(*waiter)

// WithJustification tells the people who decide why. It is part of what they are asked
// (context.business_justification), and not of what they approve.
func WithJustification(why string) ApprovalOption {
	return func(w *waiter) { w.justification = why }
}

// KeepHandle has keep called with what [Client.Resume] needs, each time before the wait
// goes on: when an approval is about to be asked for, so that a crash right after it does
// not have people asked twice, and when that was done. A later Handle takes the place of
// the one before. Where keep fails the wait ends, with its error and a deny: so it can
// also end a wait that is to be resumed elsewhere.
func KeepHandle(keep func(context.Context, Handle) error) ApprovalOption {
	return func(w *waiter) { w.keep = keep }
}

// JoinEqual leaves it to the PDP which approval requests are one: no Idempotency-Key is sent.
// The PDP of this service finds the task of an equal request of the same credential, also for
// another PEP that knows nothing of the first, so that somebody who repeats a call is not one
// more who waits. Other PDPs may ask people twice where an answer is lost.
func JoinEqual() ApprovalOption {
	return func(w *waiter) { w.joins = true }
}

// waiter waits for people.
type waiter struct {
	client        *Client
	handlers      obligations.Handlers
	justification string
	joins         bool
	keep          func(context.Context, Handle) error
}

// An approval is presented in one of these members of the context.
const (
	approvalMember   = "approval"
	approvalIDMember = "approval_id"
)

// presents reports whether a request says something of an approval, in whatever form.
func presents(q evaluation.Request) bool {
	_, approval := q.Context.Get(approvalMember)
	_, id := q.Context.Get(approvalIDMember)
	return approval || id
}

func (c *Client) waiter(handlers obligations.Handlers, options []ApprovalOption) (*waiter, *Error) {
	w := &waiter{client: c, handlers: handlers, keep: func(context.Context, Handle) error { return nil }}
	for _, option := range options {
		option(w)
	}
	if w.keep == nil {
		return nil, notAsked("KeepHandle got no function")
	}
	if _, both := handlers[obligations.ApprovalRequired]; both {
		return nil, notAsked("the handlers have one for approval_required, which the PDP sees to here; leave it out, or use Enforce")
	}
	if !utf8.ValidString(w.justification) {
		return nil, notAsked("the justification is not valid UTF-8")
	}
	return w, nil
}

// asks refuses what no approval can be asked for.
func (w *waiter) asks(q evaluation.Request) *Error {
	if presents(q) {
		return notAsked("the request presents an approval already; leave context.approval and context.approval_id out, or use Enforce")
	}
	if _, said := q.Context.Get(justified); said && w.justification != "" {
		return notAsked("the request has a business_justification already; leave one of the two out")
	}
	return nil
}

// made reports whether a handle is one of this client's PDP, and tenant.
func (c *Client) made(h Handle) *Error {
	if h.kept.PDP != c.pdp() {
		return notAsked("the handle is of another PDP or tenant, or of none; resume it with a client of the one that made it")
	}
	return nil
}

// same takes what a handle says already, and refuses to have it said otherwise.
func (w *waiter) same(h Handle) *Error {
	if w.justification != "" {
		return notAsked("the handle has its justification; leave WithJustification out")
	}
	w.justification = h.kept.Justification
	return nil
}

// offered is what a deny says about approvals. It is not ok where there is none, or is
// more wrong with an answer than that it denies.
func offered(e *Enforcement) (o offer, ok bool) {
	if e.Permitted() || e.of.decision.allow || e.Err() != nil {
		return o, false
	}
	o, err := readOffer(e.of.decision.context)
	if err != nil {
		e.fail("evaluate", err)
	}
	return o, err == nil
}

// prepare makes the handle of an approval request that a deny offers.
func (w *waiter) prepare(ctx context.Context, e Enforcement, o offer) (Handle, *Error) {
	c := w.client
	h := Handle{*e.of.question, kept{
		Version:       handleVersion,
		PDP:           c.pdp(),
		Denial:        o.denial,
		Endpoint:      cmp.Or(o.endpoint, c.endpoint.Load().requests),
		Joins:         w.joins,
		Justification: w.justification,
		Again:         e.of.by.asked,
	}}
	err := c.reachable(h.kept.Endpoint)
	if err == nil && o.schema != "" {
		err = tasks{c}.fills(ctx, h, o.schema)
	}
	if err == nil {
		err = h.name()
	}
	if err == nil {
		err = w.kept(ctx, h)
	}
	return h, err
}

// request has people asked after a deny, and waits for them.
func (w *waiter) request(ctx context.Context, e Enforcement, o offer) Enforcement {
	h, err := w.prepare(ctx, e, o)
	if err != nil {
		e.fail("request", err)
		return e
	}
	return w.follow(ctx, e, h)
}

func (w *waiter) kept(ctx context.Context, h Handle) *Error {
	if err := w.keep(ctx, h); err != nil {
		return &Error{Kind: Cancelled, Detail: "the handle was not kept: " + printable(err.Error()), cause: err}
	}
	return nil
}

// follow goes from an approval request to its end. The Enforcement is of the deny
// before it.
func (w *waiter) follow(ctx context.Context, e Enforcement, h Handle) Enforcement {
	given, err := w.await(ctx, h)
	if err != nil {
		e.fail("await", err)
		return e
	}
	e, o := w.use(ctx, given)
	if o.next() == evaluation.NextRequest && !h.kept.Again {
		return w.request(ctx, e, o)
	}
	return e
}
