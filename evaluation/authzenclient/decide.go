package authzenclient

import (
	"context"
	"slices"

	"policy-service/evaluation"
	"policy-service/obligations"
)

// Undischarged is the PDP's answer, before its obligations are discharged. It permits nothing
// and cannot be asked whether it does: [Undischarged.Discharge] makes an [Enforcement] of it,
// and so does [DischargeAll] of several; only those can permit. The zero Undischarged is a deny.
//
// Also a deny is to be discharged: it may oblige to something.
type Undischarged struct {
	decision Decision
	question evaluation.Request // as it was asked
	by       approved
}

// Decide asks as [Client.Evaluate] does, and declares the obligation types that the PEP can
// discharge (context.supported_obligations) in place of any that the request declares. It adopts
// the drafts of obligations of October 2026 (context.supported_mandatory_extensions), unless
// [WithJulyObligations] is given. It is the first of the three steps of [Client.Enforce], for a
// PEP that does something between them. Types without a handler in the step that follows come to
// a deny. Handlers get the address of a notification (to) as a text, or as an array if there are
// several.
func (c *Client) Decide(ctx context.Context, request evaluation.Request, types []string, options ...AskOption) Undischarged {
	q, err := c.declare(request, types)
	if err != nil {
		return Undischarged{decision: denied("evaluate", err)}
	}
	d, q := c.evaluate(ctx, q, options)
	return Undischarged{decision: d, question: q}
}

// DecideBatch asks as [Client.EvaluateBatch] does, and declares as Decide does. There is
// always one result per request, in order. Where the PEP may act only if each of them is
// permitted, give all to [DischargeAll]; [evaluation.DenyOnFirstDeny] is the semantic then.
func (c *Client) DecideBatch(ctx context.Context, semantic evaluation.Semantic, types []string, requests ...evaluation.Request) []Undischarged {
	declared, all := make([]evaluation.Request, len(requests)), make([]Undischarged, len(requests))
	for n, q := range requests {
		var err *Error
		if declared[n], err = c.declare(q, types); err != nil {
			for n, d := range c.decideAll(ctx, len(all), semantic, asking{}, err) {
				all[n].decision = d
			}
			return all
		}
	}
	for n, d := range c.EvaluateBatch(ctx, semantic, declared...) {
		all[n] = Undischarged{decision: d, question: declared[n]}
	}
	return all
}

// declare puts the obligation types into the request, in place of any others.
func (c *Client) declare(q evaluation.Request, types []string) (evaluation.Request, *Error) {
	if q.Unknown != nil {
		return q, onlyPossible()
	}
	types = slices.DeleteFunc(slices.Clone(types), func(name string) bool { return name == "" })
	var err error
	if q.Context, err = c.adopt(q.Context, types); err != nil {
		return q, notAsked("the types of obligations cannot be declared")
	}
	return q, nil
}

// onlyPossible refuses to enforce an answer that permits nothing.
func onlyPossible() *Error {
	return notAsked("the request has options, which may ask what is possible, and such an answer permits nothing; " +
		"leave them out, or use Evaluate")
}

// Deny is u as a deny, for the reason err.
func (u Undischarged) Deny(err *Error) Undischarged {
	u.decision.permit, u.decision.allow, u.decision.err = false, false, err
	return u
}

// Denied reports whether u stays a deny whatever is discharged. That it is not denied
// permits nothing.
func (u Undischarged) Denied() bool { return !u.decision.permit && !u.decision.conditional() }

// Err says why there is no answer that could permit: always an [*Error]. It is nil where the
// PDP decided.
func (u Undischarged) Err() error {
	if u.decision.conditional() {
		return nil
	}
	return u.decision.Err()
}

// Reason is the machine-readable reason the PDP gave, such as unknown_entity.
func (u Undischarged) Reason() string { return u.decision.Reason() }

// ReasonUser is the sentence for the user that the policy's author wrote.
func (u Undischarged) ReasonUser() string { return u.decision.ReasonUser() }

// Context is the context of the answer as JSON: see [Decision.Context].
func (u Undischarged) Context() []byte { return u.decision.Context() }

// Obligations are to be discharged.
func (u Undischarged) Obligations() []evaluation.Obligation { return u.decision.Obligations() }

// ID names the decision's record, where the PDP says so (X-Decision-Id).
func (u Undischarged) ID() string { return u.decision.ID() }

// RequestID is the X-Request-ID that was sent with the request.
func (u Undischarged) RequestID() string { return u.decision.RequestID() }

// String is for logs.
func (u Undischarged) String() string {
	if u.Denied() {
		return u.decision.String()
	}
	return "allow, not discharged"
}

// Discharge calls the handlers for the obligations of u, be it an allow or a deny, as
// [obligations.Discharge] does. It is the second of the three steps of [Client.Enforce]; the
// third is [Client.Report]. A decision is for one act: a second discharge has the handlers
// called twice.
func (u Undischarged) Discharge(ctx context.Context, handlers obligations.Handlers) Enforcement {
	e := Enforcement{of: u, report: obligations.Discharge(ctx, !u.Denied(), u.decision.obligations, handlers)}
	e.ended = u.decision.allow && u.by.ended()
	return e
}

// DischargeAll discharges several decisions that are one permit together: where the PEP may
// act only if each of them permits, be they of a batch or asked one after the other. If one of
// them denies, the obligations of the allows are not tried, and are reported as not discharged.
func DischargeAll(ctx context.Context, handlers obligations.Handlers, all ...Undischarged) Enforcements {
	stays := slices.ContainsFunc(all, Undischarged.Denied)
	e := Enforcements{all: make([]Enforcement, len(all))}
	for n, u := range all {
		if stays && !u.Denied() {
			e.all[n] = u.forgo()
			continue
		}
		e.all[n] = u.Discharge(ctx, handlers)
	}
	return e
}

// forgo makes a deny of an allow, of which nothing is done.
func (u Undischarged) forgo() Enforcement {
	report := obligations.Forgo(u.decision.obligations)
	u.decision.permit = false
	u.decision.err = &Error{Op: "enforce", Kind: Skipped, Detail: "another decision about the same act denies it"}
	return Enforcement{of: u, report: report}
}
