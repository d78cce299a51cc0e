package authzenclient

import (
	"cmp"
	"context"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient/internal/link"
)

// approved is the approval that a question was asked with. It is zero if there was none.
type approved struct {
	until time.Time // zero is not known
	now   func() time.Time
	next  Continuation
	// rests is set if the answer rests on the approval, which met obligation. rounds may go on from it.
	rests      bool
	obligation string
	rounds     int
}

// ended reports whether the approval is over.
func (a approved) ended() bool { return !a.until.IsZero() && !a.now().Before(a.until) }

// Present asks with an approval, and declares as [Client.Decide] does. The approval is an object for context.approval, as
// the PDP gave it: package approvals has it. Only the answer can permit. The request is sent again only where no
// connection was made: an answer that is lost may have used the approval.
func (c *Client) Present(
	ctx context.Context, request evaluation.Request, types []string, approval []byte, options ...AskOption,
) Undischarged {
	u := c.present(ctx, request, types, approval, options)
	c.tellUndecided(ctx, u.decision.err)
	return u
}

func (c *Client) present(ctx context.Context, request evaluation.Request, types []string, approval []byte, options []AskOption) Undischarged {
	var said struct {
		ID        string                  `json:"id"`
		Until     time.Time               `json:"approved_until"`
		Continues evaluation.Continuation `json:"continues"`
	}
	if json.Unmarshal(approval, &said) != nil || said.ID == "" {
		return Undischarged{decision: denied("evaluate", notAsked("the approval is no object with an id"))}
	}
	by := approved{until: said.Until, now: c.clock.now, next: Continuation{continued{
		PDP: c.pdp(), Approval: said.ID, Decision: said.Continues.Decision, Round: said.Continues.Round,
	}}}
	q, err := c.declare(request, types)
	switch {
	case err != nil:
	case presents(request):
		err = notAsked("the request presents an approval already; leave context.approval and context.approval_id out")
	case by.ended():
		err = &Error{Kind: NotApproved, Detail: "the approval has ended"}
	}
	if err != nil {
		return Undischarged{decision: denied("evaluate", err)}
	}
	d, q := c.question(ctx, q, unsent, options, func(q evaluation.Request, a *asking) *Error { return c.encodeApproved(q, approval, a) })
	err = d.read(&by)
	if err == nil && by.ended() {
		err = &Error{Kind: NotApproved, Detail: "the approval has ended"}
	}
	// A deny stays as it is. An allow that rests on no usable approval fails.
	if err != nil && d.allow {
		err.Op = "evaluate"
		d.permit, d.err = false, err
	}
	// the first round goes on from this decision, a later one from the decision that began it
	by.next.kept.Decision = cmp.Or(by.next.kept.Decision, d.id)
	return Undischarged{d, q, by}
}

// An approval is presented in one of these members of the context.
const (
	approvalMember   = "approval"
	approvalIDMember = "approval_id"
)

// presents reports whether a request has a member for an approval, in whatever form.
func presents(q evaluation.Request) bool {
	_, approval := q.Context.Get(approvalMember)
	_, id := q.Context.Get(approvalIDMember)
	return approval || id
}

// encodeApproved writes the body of a request with an approval, as the text that came.
func (c *Client) encodeApproved(q evaluation.Request, given jsontext.Value, a *asking) (err *Error) {
	if err := sendable(c.tenant, q); err != nil {
		return err
	}
	context, err := encode(q.Context)
	if err != nil {
		return err
	}
	members := append([]byte(`{"`+approvalMember+`":`), given...)
	if q.Context.Len() > 0 {
		members = append(members, ',')
	}
	a.body, err = encode(struct {
		Subject  evaluation.Entity `json:"subject"`
		Action   evaluation.Action `json:"action"`
		Resource evaluation.Entity `json:"resource"`
		Context  jsontext.Value    `json:"context"`
	}{q.Subject, q.Action, q.Resource, append(members, context[1:]...)})
	return err
}

// read reads the approval that an answer rests on. It never prolongs that.
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
	if !link.Present(said.Approval.Until) {
		return nil
	}
	end, err := time.Parse(time.RFC3339, link.Text("", said.Approval.Until))
	switch {
	case err != nil:
		return odd("the approved_until of its approval is no time")
	case by.until.IsZero() || end.Before(by.until):
		by.until = end
	}
	return nil
}
