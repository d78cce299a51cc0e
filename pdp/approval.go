package pdp

import (
	"context"
	"fmt"
	"time"

	"policy-service/evaluation"
	"policy-service/obligations"
	"policy-service/pdp/internal/engine"
)

// ApprovalMode says what an approval can do for a call.
type ApprovalMode uint8

// The modes. [ApprovalsFor] says which one a request over HTTP has.
const (
	// NotAsked leaves approvals out: the answer only says what the policies say now.
	NotAsked ApprovalMode = iota
	// Spend uses the approval that the request presents.
	Spend
	// SpendOrFile uses it, and files an approval request if there is none to use.
	SpendOrFile
	// SpendOrOffer uses it, and else says how an approval can be requested.
	SpendOrOffer
)

// ApprovalsFor is the mode of a call that came over HTTP. The native contract files, unless
// the client wants none filed (mayFile is false). AuthZEN offers, if the caller may request an
// approval. A call that asks for an explanation is no leave to go on, and so spends nothing.
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
	// presents an id, only the approval with that id will do. If a.Binding is nil the request
	// is not waiting, and Find only explains why the presented approval does not apply.
	Find(ctx context.Context, a ApprovalRequest) (Found, error)
	// Reserve takes one use of an approval for the decision a.Decision, durably: whatever
	// happens then, no other decision has that use. Nil and no error: there is no use left.
	Reserve(ctx context.Context, a ApprovalRequest, id string) (Reservation, error)
	// File asks people for an approval, once for one request however often it comes.
	File(ctx context.Context, a ApprovalRequest) (*evaluation.Approval, error)
	// Offer says how an approval can be requested, or why the presented approval does not
	// count; nil is nothing.
	Offer(ctx context.Context, a ApprovalRequest, why evaluation.Reason) (*evaluation.Access, error)
}

// Reservation is a use of an approval that is reserved for one decision. The PDP calls exactly
// one of its methods, once, and nothing else can happen to the approval before that.
type Reservation interface {
	// Spent settles the use: the decision is on record.
	Spent(ctx context.Context)
	// InDoubt leaves the use reserved: it is not known whether the decision is on record. The
	// log is asked later.
	InDoubt()
}

// Found is an approval that can be used. If ID is empty there is none, and Why says why the
// presented approval does not apply.
type Found struct {
	ID    string
	Until time.Time
	Why   evaluation.Reason
}

// ApprovalRequest is an allow that waits for a person: what was asked by which caller, and
// what exactly an approval would be for.
type ApprovalRequest struct {
	Call Call
	// Decision is the id of the record of the answer, Bundle the policies that gave it.
	Decision, Bundle string
	Obligation       evaluation.Obligation
	Terms            obligations.Terms
	Actors           evaluation.Actors
	// Binding is what the approval is bound to, as one text: another request, caller,
	// tenant or obligation has another. It holds the request's secrets.
	Binding []byte
	// Members are the members of its context that say what the request is.
	Members []string
	// OfTenant says that the demand is the tenant's own; see [Reviewed].
	OfTenant bool
	// Presented is the id of the approval that the request brings, "" for none.
	Presented string
	// Now is when.
	Now time.Time
}

// await answers a call that waits for a person. If there is an approval of exactly this
// request, the answer is what the policies say of an approved one, and a use of the approval
// is reserved for it. If there is none the first answer stands, and an approval is filed or
// offered.
func (p *PDP) await(ctx context.Context, bundle *Bundle, call Call, first *engine.Verdict, stands evaluation.Decision) (evaluation.Decision, Reservation, error) {
	a, ok := approvalRequest(first, bundle, call)
	if !ok {
		return stands, nil, nil
	}
	a.Decision = stands.ID
	var found Found
	if call.Request.Presented() != "" || call.Request.Justified() {
		var d evaluation.Decision
		var use Reservation
		var err error
		if d, use, found, err = p.approved(ctx, bundle, a, first); err != nil || found.ID != "" {
			return d, use, err
		}
	}
	var err error
	switch {
	case call.Approvals == SpendOrFile && stands.Allow: // and not what the PEP could not do for another reason
		stands.Approval, err = p.options.Approvals.File(ctx, a)
	case call.Approvals == SpendOrOffer && requestable(&stands):
		stands.Access, err = p.options.Approvals.Offer(ctx, a, found.Why)
	}
	return stands, nil, notRecorded(err)
}

// notRecorded wraps an error of who keeps approvals: the answer cannot be kept without them.
func notRecorded(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrNotRecorded, err)
}

// requestable reports whether an approval is all that is missing.
func requestable(d *evaluation.Decision) bool {
	return d.Reason == evaluation.ApprovalRequired && len(d.Required) == 1
}

// Requestable reports whether a call is denied for want of an approval and of nothing else,
// and what that approval would be for. Nothing goes on record.
func (p *PDP) Requestable(ctx context.Context, call Call) (ApprovalRequest, bool, error) {
	p.stamp(&call)
	in := inquire(p.Bundle(), &call)
	w, d, err := judge(ctx, &in)
	if err != nil || p.options.Approvals == nil || !w.Waits() || !requestable(&d) {
		return ApprovalRequest{}, false, err
	}
	a, ok := approvalRequest(&w, in.Bundle, call)
	return a, ok, nil
}

// refused attaches, to a deny that no approval can change, the reason why the presented
// approval does not count.
func (p *PDP) refused(ctx context.Context, call Call, d *evaluation.Decision) error {
	if call.Approvals != SpendOrOffer || d.Allow || call.Request.Presented() == "" {
		return nil
	}
	a := ApprovalRequest{Call: call, Decision: d.ID, Bundle: d.Bundle, Presented: call.Request.Presented(), Now: call.Now}
	found, err := p.options.Approvals.Find(ctx, a)
	if err == nil && found.Why != "" {
		d.Access, err = p.options.Approvals.Offer(ctx, a, found.Why)
	}
	return notRecorded(err)
}

// approved answers by an approval. The first verdict is an allow, and what the policies say of
// an approved request must be one, too; the obligations of both are owed, but for the one that
// was approved. If what it found has no ID there is no answer by an approval.
func (p *PDP) approved(ctx context.Context, bundle *Bundle, a ApprovalRequest, first *engine.Verdict) (d evaluation.Decision, use Reservation, found Found, err error) {
	if found, err = p.options.Approvals.Find(ctx, a); err != nil || found.ID == "" {
		return d, nil, found, notRecorded(err)
	}
	again := inquire(bundle, &a.Call)
	again.Approved, again.Tells = true, true
	second, err := again.Judge(ctx)
	if err != nil {
		return d, nil, Found{}, err
	}
	if second.Decision.Allow {
		if a.OfTenant && second.Waits() && !second.DemandOfTenant(bundle) {
			return d, nil, Found{Why: evaluation.ApprovalOutOfScope}, nil // equal words, but the root's: its people were not asked
		}
		if second.Unite(first, a.Obligation, found.ID); second.Decision.Allow && second.Waits() {
			return d, nil, Found{Why: evaluation.ApprovalOutOfScope}, nil // for another approval, which is still owed
		}
	}
	if d, err = second.Answer(ctx, &again); err != nil {
		return d, nil, Found{}, err
	}
	d.ID = a.Decision
	offers := a.Call.Approvals == SpendOrOffer
	if !d.Allow { // and so nothing is used
		if offers {
			d.Access, err = p.options.Approvals.Offer(ctx, a, evaluation.ApprovalPolicyDenied)
		}
		return d, nil, found, notRecorded(err)
	}
	if offers {
		d.Access = &evaluation.Access{Approval: &evaluation.ApprovalReference{ID: found.ID, ApprovedUntil: found.Until}}
	}
	// The last thing before the record: nothing may come between that could keep the use reserved for ever.
	if use, err = p.options.Approvals.Reserve(ctx, a, found.ID); err != nil {
		return evaluation.Decision{}, nil, Found{}, notRecorded(err)
	}
	if use == nil {
		return d, nil, Found{Why: evaluation.ApprovalExpired}, nil // another decision was faster
	}
	return d, use, found, nil
}

// approvalRequest is what an approval would be for. It fails for a request that could not be
// shown to anybody as what it is: for the actors it names, or for a number in it.
func approvalRequest(w *engine.Verdict, b *Bundle, call Call) (a ApprovalRequest, ok bool) {
	c := &b.Config
	a = ApprovalRequest{Call: call, Bundle: w.Decision.Bundle, Presented: call.Request.Presented(), Now: call.Now}
	a.Obligation, a.Terms, _ = w.ApprovalOwed()
	if a.Actors, ok = call.Request.Actors(); !ok || !c.Knows(a.Actors) {
		return a, false
	}
	a.Members, a.OfTenant = c.Members(call.Request.Context), w.DemandOfTenant(b)
	a.Binding, ok = c.Binding(&call.Request, call.Asker.Name, a.Obligation.ID, a.Terms, a.OfTenant)
	return a, ok
}

// Reviewer is for a person, named as policies name them, in a tenant.
func (p *PDP) Reviewer(tenant string, person evaluation.Ref, caller string) (*Reviewer, error) {
	call := Call{Asker: evaluation.Asker{Name: caller}, Request: evaluation.Request{Tenant: tenant}}
	p.stamp(&call)
	return engine.NewReviewer(inquire(p.Bundle(), &call), person)
}
