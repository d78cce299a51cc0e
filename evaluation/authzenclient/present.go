package authzenclient

import (
	"context"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
)

// use asks with an approval, and again where the PDP says that it is about to count. The
// offer is of a deny; it is zero where the answer is anything else.
func (w *waiter) use(ctx context.Context, given approval) (Enforcement, offer) {
	for n := 0; ; n++ {
		e := w.present(ctx, given)
		o, ok := offered(&e)
		if !ok {
			return e, offer{}
		}
		if o.next() != evaluation.NextRetry {
			return e, o
		}
		if err := w.pause(ctx, n, o.retryAfter, given.until); err != nil {
			e.fail("await", err)
			return e, offer{}
		}
	}
}

// present asks with an approval. It is asked again only where no connection was made:
// what may have been answered may have used the approval up.
func (w *waiter) present(ctx context.Context, given approval) Enforcement {
	c := w.client
	if !c.clock.now().Before(given.until) {
		return Enforcement{decision: denied("evaluate", notApproved("the approval has ended"))}
	}
	body, err := c.encodeApproved(w.question, given)
	if err != nil {
		return Enforcement{decision: denied("evaluate", err)}
	}
	d := c.decide(ctx, asking{op: "evaluate", url: c.endpoint.Load().evaluation, body: body, repeat: unsent}, evaluation.AuthZEN)
	until, err := d.end(given.until)
	if err == nil && !c.clock.now().Before(until) {
		err = notApproved("the approval has ended")
	}
	if err != nil && d.allow {
		err.Op = "evaluate"
		d.permit, d.err = false, err
	}
	e := enforce(ctx, d, w.handlers)
	e.until, e.ended = until, d.allow && !c.clock.now().Before(until)
	c.report(ctx, &e)
	return e
}

// encodeApproved writes a request that presents an approval, as the text that it came as.
func (c *Client) encodeApproved(q evaluation.Request, given approval) ([]byte, *Error) {
	if _, err := c.encodeAuthZEN(q); err != nil { // the rules of names and tenants are the same
		return nil, err
	}
	context, err := encode(q.Context)
	if err != nil {
		return nil, err
	}
	members := append([]byte(`{"`+approvalMember+`":`), given.text...)
	if q.Context.Len() > 0 {
		members = append(members, ',')
	}
	return encode(struct {
		Subject  evaluation.Entity `json:"subject"`
		Action   evaluation.Action `json:"action"`
		Resource evaluation.Entity `json:"resource"`
		Context  jsontext.Value    `json:"context"`
	}{q.Subject, q.Action, q.Resource, append(members, context[1:]...)})
}

// end is until when an answer says that its approval holds; it never prolongs it.
func (d Decision) end(until time.Time) (time.Time, *Error) {
	var said struct {
		Approval struct {
			Until jsontext.Value `json:"approved_until"`
		} `json:"approval"`
	}
	if len(d.context) == 0 {
		return until, nil
	}
	if json.Unmarshal(d.context, &said) != nil {
		return until, odd("its approval cannot be read")
	}
	if !present(said.Approval.Until) {
		return until, nil
	}
	end, err := time.Parse(time.RFC3339, text("", said.Approval.Until))
	switch {
	case err != nil:
		return until, odd("the approved_until of its approval is no time")
	case end.Before(until):
		return end, nil
	}
	return until, nil
}

// fail makes an error of a deny.
func (e *Enforcement) fail(op string, err *Error) {
	err.Op = op
	e.decision.permit, e.decision.err = false, err
}
