package ask

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
)

// Wanted is a call that people can approve: one that the PDP denied for no other reason, or one that is repeated while they
// are asked. It permits nothing. [Asker.Ask] with [Answered.Standing] has the PDP decide once they have said something.
type Wanted struct {
	pdp    *authzenclient.Client
	refuse refuser
	of     authorization
	denied *authzenclient.Enforcement // nothing if it was not asked about just now
}

// nothing is no denial.
var nothing = &authzenclient.Enforcement{}

// Wanted is the approval that people were asked for, for a request that is repeated. They are not asked again.
func (a *Asker) Wanted(ctx context.Context, op Operation) (*Wanted, *Refusal) {
	w := a.refuser(&op)
	plan, refusal := a.Plan(ctx, op)
	if refusal != nil {
		return nil, refusal
	}
	last, ok := plan.last()
	if !ok {
		return nil, w.denial("", "people cannot be asked about the request")
	}
	return a.wanted(w, plan.pdp, &op, last), nil
}

func (a *Asker) wanted(w refuser, pdp *authzenclient.Client, op *Operation, last question) *Wanted {
	of := authorization{Tool: op.Tool.Shown, Arguments: op.Params.Get("arguments"), Requester: last.requests[0].Subject.ID}
	if of.Arguments == nil {
		of.Arguments = jsontext.Value("{}")
	}
	return &Wanted{pdp: pdp, refuse: w, of: of, denied: nothing}
}

// PDP is the client that asked, and that follows people's answer.
func (w *Wanted) PDP() *authzenclient.Client { return w.pdp }

// Ask has people asked, and does not wait for them. An equal question joins one that is open already, also at another
// gateway. A Wanted of [Asker.Wanted] has nothing to ask about: that was done before.
func (w *Wanted) Ask(ctx context.Context) (approvals.Standing, *Refusal) {
	s, err := approvals.Ask(ctx, w.pdp, *w.denied, approvals.JoinEqual())
	if err != nil {
		return s, w.Failed(err)
	}
	w.denied = nothing // thousands may wait, and need it no more
	return s, nil
}

// Required refuses the call for now: people are asked, and have not decided. The same call again goes on from there.
func (w *Wanted) Required(s approvals.Standing) *Refusal {
	of := w.of
	of.ID, of.Expires = idOf(s), s.Ends().UTC()
	next := "Send the same call again: it runs once the approval request " + of.ID + " is approved"
	if !of.Expires.IsZero() {
		next += ", which can be until " + of.Expires.Format(time.RFC3339)
	}
	return w.refuse.approval(of, next, callAgain, s.String())
}

// Undecidable refuses the call for now: under the policies there are, no person may decide about the request that was filed.
func (w *Wanted) Undecidable(s approvals.Standing) *Refusal {
	of := w.of
	of.ID, of.Expires = idOf(s), s.Ends().UTC()
	next := "Nobody can approve it: no policy lets anybody decide about the approval request " + of.ID + "; say so to who operates this gateway"
	return w.refuse.approval(of, next, askForApproval, s.String()+", and nobody may decide")
}

// Denied refuses the call for good: people were asked, and it is over without their yes. An equal call may have taken back
// the request that this one has joined, and people have said nothing then: it can be sent again.
func (w *Wanted) Denied(s approvals.Standing) *Refusal {
	if err := s.Err(); err != nil && !over(err) {
		return w.Failed(err)
	}
	if s.Status() == "cancelled" {
		return w.refuse.spent(idOf(s), "an equal call that has ended took back what people were asked", s.String())
	}
	return w.refuse.over(idOf(s), whyNot(s), s.String())
}

// Failed refuses the call since people could not be asked, or their answer is not known. Err is of [authzenclient.Client].
func (w *Wanted) Failed(err error) *Refusal {
	return w.refuse.failed(err)
}

// idOf is the id by which people and clients know the request that is waited for.
func idOf(s approvals.Standing) string {
	for _, id := range s.Approvals() {
		return id
	}
	return s.Task().ID()
}

// whyNot is why people's word is no yes.
func whyNot(s approvals.Standing) string {
	switch s.Status() {
	case "denied":
		return cmp.Or(line(s.Reason(), mostReason), "a person said no")
	case "expired":
		return "nobody decided in time"
	}
	return "the approval cannot be used"
}

// authorization is a request for approval as its client reads it. One that is not filed has no id, and does not expire.
type authorization struct {
	ID        string         `json:"id,omitzero"`
	Tool      string         `json:"tool"`
	Arguments jsontext.Value `json:"arguments"`
	Requester string         `json:"requester"`
	Reason    string         `json:"reason"`
	Expires   time.Time      `json:"expiresAt,omitzero"`
}

// unused refuses a call whose approval, or continuation of one, gave no permit.
func (w refuser) unused(by Answered, e authzenclient.Enforcement) *Refusal {
	d, ended := e.Decision(), over(e.Err())
	if r := w.failure(e.Err()); r != nil && !ended {
		return r
	}
	next, after := approvals.Next(e)
	expired := !ended && d.Reason() == string(evaluation.ApprovalExpired)
	switch {
	case by.Standing != nil && (ended || expired && next == evaluation.NextRequest): // one that was used up has ended, too
		return w.spent(by.id(), noMore, e.String())
	case ended, expired && next != evaluation.NextRetry:
		return w.over(by.id(), "the approval has ended", e.String())
	case next == evaluation.NextRetry: // it is about to count
		return w.unavailable(after, e.String())
	case d.Reason() == string(evaluation.ApprovalRevoked):
		return w.over(by.id(), "an approver took it back", e.String())
	}
	return w.denial(d.ReasonUser(), e.String())
}

// id is that of the approved request, "" if it is not known.
func (a Answered) id() string {
	if a.Standing == nil {
		return ""
	}
	return idOf(*a.Standing)
}

// over reports whether nothing can come of people's word any more.
func over(err error) bool {
	var e *authzenclient.Error
	return errors.As(err, &e) && e.Kind == authzenclient.NotApproved
}

// over is that a call that people were asked about will not happen.
func (w refuser) over(id, reason, why string) *Refusal {
	code, _ := w.forGood()
	return w.refuse(Denied, code, "Authorization denied", data{Type: authorizationDenied, Authorization: id, Reason: reason}, why)
}

// noMore is why an approval that there was is of no use.
const noMore = "the approval does not count any more: an equal call has used it, its time is up, or an approver took it back"

// spent refuses a call whose approval counts no more, as after an equal call: they would have to be asked anew, and no
// request has them asked twice.
func (w refuser) spent(id, reason, why string) *Refusal {
	next := "Send the same call again to have people asked anew"
	if id != "" {
		next += "; the approval was " + id
	}
	return w.asks(data{Authorization: id, Reason: reason, Suggestion: callAgain}, next, why)
}
