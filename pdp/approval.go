package pdp

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"policy-service/evaluation"
	"policy-service/obligations"
)

// Approvals keeps what people said about requests that wait for them.
type Approvals interface {
	// Find looks for an approval of exactly this that can be spent; where the request
	// presents an id it is that one or none. Of a question without a binding, which waits
	// for nobody, it says what there is to say about the approval that it presents.
	Find(context.Context, Awaited) (Found, error)
	// Spend takes one use of an approval for a decision, and has the decision recorded.
	// It is spent where the record is durable, and only there. Not spent and no error is
	// that there was no use left, and then nothing was recorded.
	Spend(ctx context.Context, a Awaited, id string, record func(context.Context) error) (spent bool, err error)
	// File asks for an approval, once for one question however often it is put.
	File(context.Context, Awaited) (*evaluation.Approval, error)
	// Offer says how an approval can be asked for, or why the one that was presented does
	// not count; nil is nothing.
	Offer(ctx context.Context, a Awaited, why evaluation.Reason) (*evaluation.Access, error)
}

// Found is an approval that can be spent; with an empty ID there is none, and Why says
// why the one that was presented is none.
type Found struct {
	ID    string
	Until time.Time
	Why   evaluation.Reason
}

// Awaited is an allow that waits for a person: who asked what, and what exactly an
// approval would be for.
type Awaited struct {
	Call Call
	// Decision is the id of the record of the answer, Bundle the policies that gave it.
	Decision, Bundle string
	Obligation       evaluation.Obligation
	Terms            obligations.Terms
	Actors           evaluation.Actors
	// Binding is what the approval is bound to, as one text: another request, caller,
	// tenant or obligation has another. It holds the request's secrets.
	Binding []byte
	// Members are the members of its context that say what the question is.
	Members []string
	// OfTenant says that the demand is the tenant's own; see [Reviewed].
	OfTenant bool
	// Presented is the id of the approval that the request brings, "" for none.
	Presented string
	// Now is when.
	Now time.Time
}

// waits reports whether an allow stands that only a person's approval is missing to.
func (w *weighed) waits() bool {
	_, _, ok := w.approvalOwed()
	return ok
}

// approvalOwed is the obligation that asks for an approval. There is one at most: two
// are in conflict.
func (w *weighed) approvalOwed() (o evaluation.Obligation, t obligations.Terms, ok bool) {
	if !w.Allow {
		return o, t, false
	}
	for _, o := range w.Obligations {
		if t, ok := obligations.TermsOf(o); ok {
			return o, t, true
		}
	}
	return o, t, false
}

// demandOfTenant reports whether the tenant alone demands the approval: neither a policy
// of the root asks for it, nor an obligation of the root. Two different obligations of the
// type are in conflict, so whatever a determining policy names of it is this one.
func (w *weighed) demandOfTenant() bool {
	o, _, _ := w.approvalOwed()
	return w.view.tenant != evaluation.DefaultTenant && !slices.ContainsFunc(o.Policies, func(id string) bool {
		return w.bundle.demandsAsRoot(w.view.byID[id])
	})
}

// demandsAsRoot reports whether an approval that a policy asks for is the root's.
func (b *Bundle) demandsAsRoot(p *policy) bool {
	ofRoot := func(d *obligations.Definition) bool {
		known := b.views[evaluation.DefaultTenant].obligations[d.Name]
		return d.Type.Name == obligations.ApprovalRequired && known.Definition == d && known.file != ""
	}
	return !p.ofTenant() || slices.ContainsFunc(p.obliges, ofRoot)
}

// await answers a call that waits for a person. With an approval of exactly this
// request the answer is what the policies say of one that is approved; without, it
// stands as it is, and a person is asked, or can be.
func (p *PDP) await(ctx context.Context, call Call, stands evaluation.Decision, w *weighed) (evaluation.Decision, error) {
	a, ok := w.awaited(&call)
	a.Decision = stands.ID
	var why evaluation.Reason
	if ok && call.Spend && (call.Request.Presented() != "" || call.Request.Justified()) {
		d, found, err := p.approved(ctx, call, a, w)
		if err != nil || found.ID != "" {
			return d, err
		}
		why = found.Why
	}
	var err error
	switch {
	case ok && call.File && stands.Allow: // and not what the PEP could not do for another reason
		stands.Approval, err = p.options.Approvals.File(ctx, a)
	case ok && call.Offer && requestable(&stands):
		stands.Access, err = p.options.Approvals.Offer(ctx, a, why)
	}
	if err != nil {
		return evaluation.Decision{}, fmt.Errorf("%w: %w", ErrNotRecorded, err)
	}
	if err := p.record(ctx, record(call, stands)); err != nil {
		return evaluation.Decision{}, err
	}
	return stands, nil
}

// requestable reports whether an approval is all that is missing.
func requestable(d *evaluation.Decision) bool {
	return d.Reason == evaluation.ApprovalRequired && len(d.Required) == 1
}

// Requestable asks whether a call is denied for want of an approval and of nothing else,
// and what that would be for. It answers nobody, and is on no record.
func (p *PDP) Requestable(ctx context.Context, call Call) (Awaited, bool, error) {
	p.stamp(&call)
	call.Offer = true
	s, err := p.say(ctx, p.Bundle(), call)
	if err != nil || s.waiting == nil || !requestable(&s.decision) {
		return Awaited{}, false, err
	}
	a, ok := s.waiting.awaited(&call)
	return a, ok, nil
}

// refused says of a deny that no approval could change what there is to say of the one
// that was presented all the same.
func (p *PDP) refused(ctx context.Context, call Call, d *evaluation.Decision) error {
	if !call.Offer || d.Allow || p.options.Approvals == nil || call.Request.Presented() == "" {
		return nil
	}
	a := Awaited{Call: call, Decision: d.ID, Bundle: d.Bundle, Presented: call.Request.Presented(), Now: call.Now}
	found, err := p.options.Approvals.Find(ctx, a)
	if err == nil && found.Why != "" {
		d.Access, err = p.options.Approvals.Offer(ctx, a, found.Why)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotRecorded, err)
	}
	return nil
}

// approved answers by an approval, where there is one. What was asked first must be
// an allow, and so must what is asked with the approval; what either of them obliges
// to is owed, but for what was approved. Without an ID in what it found there is no
// answer by it.
func (p *PDP) approved(ctx context.Context, call Call, a Awaited, first *weighed) (d evaluation.Decision, found Found, err error) {
	if found, err = p.options.Approvals.Find(ctx, a); err != nil {
		return d, Found{}, fmt.Errorf("%w: %w", ErrNotRecorded, err)
	}
	if found.ID == "" {
		return d, found, nil
	}
	again := call
	again.approved = true
	second, err := first.bundle.weigh(ctx, &again, nil)
	if err != nil {
		return d, Found{}, err
	}
	if second.Allow {
		if a.OfTenant && second.waits() && !second.demandOfTenant() {
			return d, Found{Why: evaluation.ApprovalOutOfScope}, nil // equal words, but the root's: its people were not asked
		}
		if second.unite(first, a.Obligation, found.ID); second.Allow && second.waits() {
			return d, Found{Why: evaluation.ApprovalOutOfScope}, nil // for somebody else's approval, and that stands
		}
	}
	if d, err = second.finish(ctx, &again); err != nil {
		return d, Found{}, err
	}
	d.ID = a.Decision
	put := func(ctx context.Context) error { return p.record(ctx, record(call, d)) }
	if !d.Allow {
		if call.Offer {
			if d.Access, err = p.options.Approvals.Offer(ctx, a, evaluation.ApprovalPolicyDenied); err != nil {
				return evaluation.Decision{}, Found{}, fmt.Errorf("%w: %w", ErrNotRecorded, err)
			}
		}
		return d, found, put(ctx)
	}
	if call.Offer {
		d.Access = &evaluation.Access{Approval: &evaluation.ApprovalReference{ID: found.ID, ApprovedUntil: found.Until}}
	}
	spent, err := p.options.Approvals.Spend(ctx, a, found.ID, put)
	if err != nil {
		return evaluation.Decision{}, Found{}, fmt.Errorf("%w: %w", ErrNotRecorded, err)
	}
	if !spent {
		return d, Found{Why: evaluation.ApprovalExpired}, nil // somebody was faster
	}
	return d, found, nil
}

// unite makes one answer of two that both hold, without what is approved.
func (w *weighed) unite(first *weighed, met evaluation.Obligation, approval string) {
	w.Determining = union(first.Determining, w.Determining)
	for _, e := range first.Errors {
		if !slices.Contains(w.Errors, e) {
			w.Errors = append(w.Errors, e)
		}
	}
	slices.SortStableFunc(w.Errors, func(a, b evaluation.PolicyError) int { return strings.Compare(a.Policy, b.Policy) })
	out := obligations.Unite(first.Obligations, w.Obligations)
	out.Obligations = slices.DeleteFunc(out.Obligations, func(o evaluation.Obligation) bool {
		return o.Type == met.Type && o.Properties.Value().Equal(met.Properties.Value())
	})
	w.Met = []evaluation.Met{{ID: met.ID, Type: met.Type, Approval: approval}}
	take(&w.Decision, out)
}

func union(a, b []string) []string {
	both := slices.Concat(a, b)
	slices.Sort(both)
	return slices.Compact(both)
}
