package pdp

import (
	"context"
	"fmt"
	"time"

	"policy-service/evaluation"
	"policy-service/obligations"
	"policy-service/pdp/internal/bundle"
	"policy-service/pdp/internal/engine"
)

// ApprovalMode says what an approval can do for a call.
type ApprovalMode uint8

// The modes. [ApprovalsFor] says which one a request over HTTP has.
const (
	// NotAsked leaves approvals out. The answer is what the policies decide now.
	NotAsked ApprovalMode = iota
	// Spend uses the approval that the request presents.
	Spend
	// SpendOrFile uses the approval. If there is none to use, it files an approval request.
	SpendOrFile
	// SpendOrOffer uses the approval. If there is none to use, the answer says how an approval
	// can be requested.
	SpendOrOffer
)

// ApprovalsFor returns the mode of a call that came over HTTP. The native contract files an
// approval request, unless the client wants none filed (mayFile is false). AuthZEN offers, if
// the caller may request an approval. An answer with an explanation does not let the client go
// on, so a call that asks for one spends nothing.
func ApprovalsFor(call *Call, mayFile, mayRequest bool) ApprovalMode {
	shape := call.Request.Shape
	switch {
	case call.Explain:
		return NotAsked
	case shape == evaluation.Native && mayFile:
		return SpendOrFile
	case shape == evaluation.AuthZEN && mayRequest:
		return SpendOrOffer
	}
	return Spend
}

// Approvals keeps approval requests, and the approvals that people gave.
type Approvals interface {
	// Find looks for an approval of exactly this request that can be used now. If the request
	// presents an id, only the approval with that id will do. If the request goes on from a use of
	// that approval, only the next round of the use will do, for the caller that used it. If
	// a.Binding is nil the request is not waiting, and Find only explains why the presented approval
	// does not apply.
	Find(ctx context.Context, a ApprovalRequest) (Found, error)
	// Reserve reserves one use of an approval for the decision a.Decision, or the round that
	// a.Continues names, durably: whatever happens next, no other decision gets that. If it is not
	// there any more, Reserve returns nil and no error.
	Reserve(ctx context.Context, a ApprovalRequest, id string) (Reservation, error)
	// File files an approval request. If the same request comes again, it files no second one.
	File(ctx context.Context, a ApprovalRequest) (*evaluation.Approval, error)
	// Offer says how an approval can be requested, or why the presented approval does not
	// count. It returns nil if it has nothing to say.
	Offer(ctx context.Context, a ApprovalRequest, why evaluation.Reason) (*evaluation.Access, error)
}

// Reservation is a use of an approval, or a round of a use, that is reserved for one decision, or
// uses that are reserved for several decisions of one batch. The PDP calls exactly one of Spent and
// InDoubt, once. Nothing else can happen to the approval before that call.
type Reservation interface {
	// Again reserves one more use, for another decision. It reports false if no use is left.
	Again(ctx context.Context, decision string) (bool, error)
	// Spent settles the uses: the decisions are on record. After an error none of the decisions may be answered: their uses are
	// in doubt, or went to others.
	Spent(ctx context.Context) error
	// InDoubt leaves the uses reserved: it is not known whether the decisions are on record. The
	// decision log will show it later.
	InDoubt()
}

// Found is an approval that can be used. If ID is empty there is none, and Why says why the
// presented approval does not apply.
type Found struct {
	ID    string
	Until time.Time
	// Rounds is how many rounds may go on after this use, or after this round.
	Rounds int
	Why    evaluation.Reason
}

// ApprovalRequest is an allow that waits for a person: the request, its caller, and what exactly an
// approval would be for.
type ApprovalRequest struct {
	Call Call
	// Decision is the id of the decision. Bundle is the digest of the policies that made it.
	Decision, Bundle string
	Obligation       evaluation.Obligation
	Terms            obligations.Terms
	Actors           evaluation.Actors
	// Binding is everything that the approval is bound to, as one text. If the request, the
	// caller, the tenant or the obligation differs, so does the text. It holds the request's
	// secrets.
	Binding []byte
	// Members are the members of the request's context that say what the request is.
	Members []string
	// OfTenant says that the tenant alone demands the approval; see [Reviewed].
	OfTenant bool
	// Presented is the id of the approval that the request presents, or "" if it presents none.
	// Continues is the round of an approved call that the request says it is. The zero value is
	// none: then it is about a use.
	Presented string
	Continues evaluation.Continuation
	// Now is the reading of the clock for the call.
	Now time.Time
}

// reply is the answer to a call that an approval can change.
type reply struct {
	decision evaluation.Decision
	claim    *claim // nil if the answer uses no approval
	approved bool   // the answer is what the policies said when they were asked as approved
}

// claim is the use of an approval that an answer hangs on. It is reserved when there is nothing
// left to do but to record the answer: no step may come in between that could keep it reserved for
// ever.
type claim struct {
	approvals Approvals
	request   ApprovalRequest
	id        string
	stands    evaluation.Decision // the answer without the approval
}

// reserve reserves the use that the answer hangs on, if it does. If another decision was faster,
// the answer is the one without the approval.
func (r *reply) reserve(ctx context.Context) (Reservation, error) {
	if r.claim == nil {
		return nil, nil
	}
	use, err := r.claim.approvals.Reserve(ctx, r.claim.request, r.claim.id)
	switch {
	case err != nil:
		return nil, notRecorded(err)
	case use == nil:
		return nil, r.forgo(ctx)
	}
	return use, nil
}

// forgo makes the answer the one without the approval, which others have used up.
func (r *reply) forgo(ctx context.Context) (err error) {
	c, why := r.claim, evaluation.Reason("")
	if c.request.Presented != "" {
		why = evaluation.ApprovalExpired
	}
	*r, err = unapproved(ctx, c.approvals, c.request, c.stands, why)
	return err
}

// consult changes the answer to a call, which its first verdict became, as far as approvals can change it.
func consult(
	ctx context.Context, approvals Approvals, bundle *Bundle, call *Call, first *engine.Verdict, answer *reply,
) (err error) {
	switch {
	case call.Approvals == NotAsked || approvals == nil:
		return nil
	case first.Waits():
		*answer, err = await(ctx, approvals, bundle, call, first, answer.decision)
		return err
	}
	return explainPresented(ctx, approvals, call, &answer.decision)
}

// await answers a call that waits for a person. If there is an approval of exactly this request,
// the policies decide again as approved, and the new answer hangs on a use of the approval. If
// there is no approval, the first answer (stands) is given, and an approval request is filed or
// offered.
func await(
	ctx context.Context, approvals Approvals, bundle *Bundle, call *Call, first *engine.Verdict, stands evaluation.Decision,
) (reply, error) {
	onRecord := call.Approved != "" // then it is known that the approval was found
	a, ok := approvalRequest(first, bundle, call)
	if !ok && !onRecord {
		return reply{decision: stands}, nil
	}
	a.Decision = stands.ID
	var found Found
	if onRecord || call.Request.Presented() != "" || call.Request.Justified() {
		var answer reply
		var err error
		if answer, found, err = answerByApproval(ctx, approvals, bundle, a, first); err != nil || found.ID != "" {
			if answer.claim != nil {
				answer.claim.stands = stands
			}
			return answer, err
		}
	}
	return unapproved(ctx, approvals, a, stands, found.Why)
}

// unapproved is the answer that stands if no approval can be used. Why says why the presented one
// cannot.
func unapproved(
	ctx context.Context, approvals Approvals, a ApprovalRequest, stands evaluation.Decision, why evaluation.Reason,
) (reply, error) {
	var err error
	switch {
	case a.Call.Approvals == SpendOrFile && stands.Allow: // a deny has another reason, which no approval changes
		stands.Approval, err = approvals.File(ctx, a)
	case a.Call.Approvals == SpendOrOffer && requestable(&stands):
		stands.Access, err = approvals.Offer(ctx, a, why)
	}
	return reply{decision: stands}, notRecorded(err)
}

// notRecorded wraps an error of [Recorder] or of [Approvals]. The latter counts as a failure to
// record too, because the answer cannot go on record without the approvals.
func notRecorded(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrNotRecorded, err)
}

// requestable reports whether the decision lacks only an approval.
func requestable(d *evaluation.Decision) bool {
	return d.Reason == evaluation.ApprovalRequired && len(d.Required) == 1
}

// Requestable reports whether a call is denied only because an approval is missing, and returns
// what that approval would be for. Nothing goes on record.
func (p *PDP) Requestable(ctx context.Context, call Call) (ApprovalRequest, bool, error) {
	p.begin(ctx, &call)
	shown, err := p.show(ctx, &call, false)
	if err != nil || shown != nil && shown.Reason != "" {
		return ApprovalRequest{}, false, err
	}
	in := inquire(p.Bundle(), &call)
	var w engine.Verdict
	var d evaluation.Decision
	err = judge(ctx, &in, &w, &d)
	if err != nil || p.options.Approvals == nil || !w.Waits() || !requestable(&d) {
		return ApprovalRequest{}, false, err
	}
	a, ok := approvalRequest(&w, in.Bundle, &call)
	return a, ok, nil
}

// explainPresented attaches, to a deny that no approval can change, the reason why the presented
// approval does not count.
func explainPresented(ctx context.Context, approvals Approvals, call *Call, d *evaluation.Decision) error {
	if call.Approvals != SpendOrOffer || d.Allow || call.Request.Presented() == "" {
		return nil
	}
	a := ApprovalRequest{
		Call:      *call,
		Decision:  d.ID,
		Bundle:    d.Bundle,
		Presented: call.Request.Presented(),
		Now:       call.Now,
	}
	found, err := approvals.Find(ctx, a)
	if err == nil && found.Why != "" {
		d.Access, err = approvals.Offer(ctx, a, found.Why)
	}
	return notRecorded(err)
}

// answerByApproval answers with the help of an approval. The first verdict is an allow, and the
// verdict about the approved request must be an allow too. The obligations of both verdicts are
// owed, except the obligation that was approved. If found.ID is empty, no approval could be
// used, and there is no answer here.
func answerByApproval(
	ctx context.Context, approvals Approvals, bundle *Bundle, a ApprovalRequest, first *engine.Verdict,
) (answer reply, found Found, err error) {
	if found, err = approvals.Find(ctx, a); err != nil || found.ID == "" {
		return answer, found, notRecorded(err)
	}
	met := evaluation.Met{Approval: found.ID, Continues: a.Continues}
	d, why, err := askApproved(ctx, bundle, &a, &a.Call, first, met)
	if err != nil || why != "" {
		return answer, Found{Why: why}, err
	}
	d.ID = a.Decision
	offers := a.Call.Approvals == SpendOrOffer
	if !d.Allow { // a deny uses no approval
		if offers {
			d.Access, err = approvals.Offer(ctx, a, evaluation.ApprovalPolicyDenied)
		}
		return reply{decision: d, approved: true}, found, notRecorded(err)
	}
	if offers {
		d.Access = &evaluation.Access{Approval: &evaluation.ApprovalReference{
			ID: found.ID, ApprovedUntil: found.Until, Obligation: a.Obligation.ID, Rounds: found.Rounds,
		}}
	}
	return reply{decision: d, claim: &claim{approvals: approvals, request: a, id: found.ID}, approved: true}, found, nil
}

// askApproved asks the policies again about a call that was approved. If the approval cannot be used for what they say, why
// says why.
func askApproved(
	ctx context.Context, bundle *Bundle, a *ApprovalRequest, call *Call, first *engine.Verdict, met evaluation.Met,
) (d evaluation.Decision, why evaluation.Reason, err error) {
	again := inquire(bundle, call)
	again.Approved = true
	var second engine.Verdict
	if err := again.Judge(ctx, &second); err != nil {
		return d, "", err
	}
	if second.Decision.Allow {
		if a.OfTenant && second.Waits() && !second.DemandOfTenant(bundle) {
			// The second demand has equal words but comes from the root, whose approvers were not asked.
			return d, evaluation.ApprovalOutOfScope, nil
		}
		if second.Unite(first, a.Obligation, met); second.Decision.Allow && second.Waits() {
			// The second verdict waits for another approval, which is still owed.
			return d, evaluation.ApprovalOutOfScope, nil
		}
	}
	return d, "", second.Answer(ctx, &again, &d)
}

// approvalRequest returns what an approval would be for. It reports false if no approver could be
// shown the request as it is, because of the actors that it names, or because of a number in it. It
// reports false as well if a gateway does not say for which person it asks: that person could approve
// the request, by a name that is not in it. What is asked about a grant is approved in words of its own, and for the whole of
// it: see [PDP.Grant].
func approvalRequest(w *engine.Verdict, b *Bundle, call *Call) (a ApprovalRequest, ok bool) {
	c := &b.Config
	a = ApprovalRequest{Call: *call, Bundle: w.Decision.Bundle, Presented: call.Request.Presented(), Now: call.Now}
	if a.Continues = call.Continued; call.Approved == "" {
		a.Continues = call.Request.Continues()
	}
	a.Obligation, a.Terms, _ = w.ApprovalOwed()
	a.Members, a.OfTenant = c.Members(call.Request.Context), w.DemandOfTenant(b)
	nobody := call.Asker.Relays && call.Request.Person() == ""
	if a.Actors, ok = call.Request.Actors(); !ok || c.UnknownActor(a.Actors) != "" || nobody || bundle.Grants(call.Request.Action.Name) {
		return a, false
	}
	a.Binding, ok = c.Binding(&call.Request, call.Asker.Name, a.Obligation.ID, a.Terms, a.OfTenant)
	return a, ok
}

// Decidable reports whether the policies of a tenant may let any person decide about an approval. False is certain.
func (p *PDP) Decidable(ctx context.Context, tenant string, a Reviewed) (bool, error) {
	call := Call{Request: evaluation.Request{Tenant: tenant}}
	p.setTime(&call)
	return engine.Decidable(ctx, inquire(p.Bundle(), &call), a)
}

// ParseEntity reads the name of an entity as policies write it, User::"mia".
func ParseEntity(text string) (evaluation.Ref, error) { return engine.ParseEntity(text) }

// Reviewer returns a [Reviewer] for a person in a tenant.
func (p *PDP) Reviewer(tenant string, who Approver) (*Reviewer, error) {
	call := Call{Request: evaluation.Request{Tenant: tenant}}
	p.setTime(&call)
	return engine.NewReviewer(inquire(p.Bundle(), &call), who)
}
