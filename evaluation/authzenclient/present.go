package authzenclient

import (
	"context"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
)

// Use asks with what people approved, and declares as [Client.Decide] does. The answer is the
// PDP's: an approval is no permit. It is sent again only where no connection was made: what may
// have been answered may have used the approval up.
//
// It is a deny of kind [NotApproved] where s is not approved, or is no more. What of a deny
// follows, [Enforcement.Next] says.
func (c *Client) Use(ctx context.Context, s Standing, types []string) Undischarged {
	if err := c.made(s.handle); err != nil {
		return Undischarged{decision: denied("evaluate", err)}
	}
	if !s.Approved() {
		return Undischarged{decision: denied("evaluate", notApproved("nobody has approved"))}
	}
	return tasks{c}.present(ctx, s.handle.request, types, presented{text: s.given.text, by: approved{
		asked: true, until: s.given.until, now: c.clock.now, next: Continuation{continued{PDP: c.pdp(), Approval: s.given.id}},
	}})
}

// presented is an approval as a question brings it.
type presented struct {
	text jsontext.Value
	by   approved
}

// present asks with an approval.
func (c tasks) present(ctx context.Context, request evaluation.Request, types []string, given presented) Undischarged {
	if given.by.ended() {
		return Undischarged{decision: denied("evaluate", notApproved("the approval has ended"))}
	}
	q, err := declare(request, types)
	var body []byte
	if err == nil {
		body, err = c.encodeApproved(q, given.text)
	}
	if err != nil {
		return Undischarged{decision: denied("evaluate", err)}
	}
	d := c.decide(ctx, asking{op: "evaluate", url: c.endpoint.Load().evaluation, body: body, repeat: unsent}, evaluation.AuthZEN)
	err = d.read(&given.by)
	if err == nil && given.by.ended() {
		err = notApproved("the approval has ended")
	}
	if err != nil && d.allow {
		err.Op = "evaluate"
		d.permit, d.err = false, err
	}
	if given.by.next.kept.Decision == "" {
		given.by.next.kept.Decision = d.id
	}
	return Undischarged{d, &q, given.by}
}

// use asks with an approval, and again where the PDP says that it is about to count. The
// offer is of a deny; it is zero where the answer is anything else.
func (w *waiter) use(ctx context.Context, given Standing) (Enforcement, offer) {
	for n := 0; ; n++ {
		e := w.client.enforce(ctx, w.client.Use(ctx, given, w.handlers.Types()), w.handlers)
		o, ok := offered(&e)
		if !ok {
			return e, offer{}
		}
		if o.next() != evaluation.NextRetry {
			return e, o
		}
		if err := w.client.clock.pause(ctx, n, o.retryAfter, given.given.until); err != nil {
			e.fail("await", err)
			return e, offer{}
		}
	}
}

// encodeApproved writes a request that presents an approval, as the text that it came as.
func (c tasks) encodeApproved(q evaluation.Request, given jsontext.Value) ([]byte, *Error) {
	if _, err := c.encodeAuthZEN(q); err != nil { // the rules of names and tenants are the same
		return nil, err
	}
	context, err := encode(q.Context)
	if err != nil {
		return nil, err
	}
	members := append([]byte(`{"`+approvalMember+`":`), given...)
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

// read reads what an answer says of the approval that it was given by. It never prolongs that.
func (d Decision) read(by *approved) *Error {
	var said struct {
		Approval struct {
			ID         string         `json:"id"`
			Until      jsontext.Value `json:"approved_until"`
			Obligation string         `json:"obligation"`
			Rounds     int            `json:"rounds"`
		} `json:"approval"`
	}
	if len(d.context) == 0 {
		return nil
	}
	if json.Unmarshal(d.context, &said) != nil {
		return odd("its approval cannot be read")
	}
	by.rests, by.obligation, by.rounds = said.Approval.ID != "", said.Approval.Obligation, said.Approval.Rounds
	if !present(said.Approval.Until) {
		return nil
	}
	end, err := time.Parse(time.RFC3339, text("", said.Approval.Until))
	switch {
	case err != nil:
		return odd("the approved_until of its approval is no time")
	case by.until.IsZero() || end.Before(by.until):
		by.until = end
	}
	return nil
}
