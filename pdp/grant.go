package pdp

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"policy-service/evaluation"
	"policy-service/obligations"
	"policy-service/pdp/internal/bundle"
	"policy-service/pdp/internal/engine"
)

// GrantAction is the name of the action of questions whether a capability may be granted, and DelegateAction of those whether
// its holder may hand it on.
const (
	GrantAction    = bundle.GrantAction
	DelegateAction = bundle.DelegateAction
)

// GrantCall asks whether a capability may be granted. There is a question for each thing that it is to cover, and all are
// put to one bundle, at one moment. People are asked once, for the whole.
type GrantCall struct {
	// Questions have the action [GrantAction] or [DelegateAction].
	Questions []evaluation.Request
	// People makes what people are shown, and what presents their approval, of the terms that bound the grant; and a message
	// in the place of that of each question. Its resource has the digest of all that is asked for. An approval is bound to
	// that, and to the context.
	People func(obligations.GrantTerms) (evaluation.Request, string)
	evaluation.Asker
	// Now overrides the clock.
	Now       time.Time
	Approvals ApprovalMode
}

// GrantDecision is the answer to a [GrantCall]. Only if Allow is set may the capability be granted.
type GrantDecision struct {
	ID     string
	Bundle string
	Now    time.Time
	Allow  bool
	// Items are the answers to the questions, in their order.
	Items []evaluation.Decision
	// Approval is what people were asked, or have answered, if that is all that is missing.
	Approval *evaluation.Approval
	// Approved is the approval that the grant uses, or "".
	Approved string
	// Terms bound what is granted, and Until is when the first of the access rules expires that grant it, zero for never.
	Terms obligations.GrantTerms
	Until time.Time
	// Needs are the properties of the action that the terms want, and that the questions lack.
	Needs []string
	// Capability is the one that it grants, or renews, and Ancestors are those that it is made from: prepare sets them.
	Capability string
	Ancestors  []string
}

// SameEntity reports whether a request that names an entity by a wire type names the one that policies know by another type.
func (p *PDP) SameEntity(of evaluation.Ref, typ, id string) bool {
	b := p.Bundle()
	if b == nil {
		return false
	}
	is, known := b.Config.EntityType(of.Type)
	return known && string(is) == typ && of.ID == id
}

// Ref is how requests name an entity that policies know by a type and an id.
func (p *PDP) Ref(typ, id string) (of evaluation.Ref, known bool) {
	b := p.Bundle()
	if b == nil {
		return of, false
	}
	return b.Config.Ref(typ, id)
}

// granting is a grant that is being decided.
type granting struct {
	pdp    *PDP
	bundle *Bundle
	call   GrantCall
	calls  []Call
	first  []engine.Verdict
	owing  []int // the questions that wait for people
	out    GrantDecision
	use    Reservation
	// approved are the questions that were asked again as approved.
	approved map[int]bool
}

// Grant decides whether a capability may be granted. If so, prepare is called before the decisions go on record: it
// reserves the capability for the first of them, which counts only once they are there. The answers are on record when Grant returns.
func (p *PDP) Grant(
	ctx context.Context, call GrantCall, prepare func(context.Context, *GrantDecision) (Reservation, error),
) (out GrantDecision, err error) {
	g := &granting{pdp: p, bundle: p.Bundle(), call: call, approved: map[int]bool{}}
	if g.bundle == nil {
		return out, ErrNoBundle
	}
	if err := g.judge(ctx); err != nil {
		return out, err
	}
	var uses []Reservation
	recording := false
	defer func() {
		if !recording { // after an error or a panic
			inDoubt(uses)
		}
	}()
	if len(g.owing) > 0 && g.allowed() {
		if err := g.consult(ctx); err != nil {
			return out, err
		}
		if g.use != nil {
			uses = append(uses, g.use)
		}
	}
	g.bound()
	if g.out.Allow = g.allowed() && (len(g.owing) == 0 || g.use != nil); g.out.Allow {
		made, err := prepare(ctx, &g.out)
		if err != nil {
			return out, notRecorded(err)
		}
		uses = append(uses, made)
	}
	recording = true
	if len(uses) > 0 {
		err = p.recordUses(ctx, g.records(), uses)
	} else {
		err = p.record(ctx, g.records()...)
	}
	if err != nil {
		return out, err
	}
	return g.out, nil
}

// Standing is what the policies in force say of a grant of before.
type Standing struct {
	Granted bool
	// Terms and Bundle as a [GrantDecision] has them.
	Terms  obligations.GrantTerms
	Bundle string
}

// Stands asks the policies in force once more what was asked for a grant of before, and puts nothing on record. That people
// agreed then is taken as given, if they did.
func (p *PDP) Stands(ctx context.Context, call GrantCall, approved bool) (s Standing, err error) {
	g := &granting{pdp: p, bundle: p.Bundle(), call: call}
	if g.bundle == nil {
		return s, ErrNoBundle
	}
	if err := g.judge(ctx); err != nil {
		return s, err
	}
	for _, n := range g.owing {
		if !approved {
			g.out.Items[n].Allow = false
			continue
		}
		a := ApprovalRequest{}
		a.Obligation, a.Terms, _ = g.first[n].ApprovalOwed()
		d, _, err := askApproved(ctx, g.bundle, &a, &g.calls[n], &g.first[n], evaluation.Met{})
		if err != nil {
			return s, err
		}
		g.out.Items[n] = d // of one that would need another approval it is the zero value
	}
	g.bound()
	return Standing{g.allowed(), g.out.Terms, g.out.Bundle}, nil
}

// judge puts the questions to the policies.
func (g *granting) judge(ctx context.Context) error {
	g.out.ID, g.out.Bundle = g.pdp.options.NewID(), g.bundle.Digest()
	g.calls = make([]Call, len(g.call.Questions))
	g.first = make([]engine.Verdict, len(g.call.Questions))
	g.out.Items = make([]evaluation.Decision, len(g.call.Questions))
	filled := 0
	for n, question := range g.call.Questions {
		call := &g.calls[n]
		*call = Call{Request: question, Asker: g.call.Asker, Now: g.call.Now}
		g.pdp.begin(ctx, call)
		g.call.Now, g.out.Now = call.Now, call.Now // one reading for all
		in := inquire(g.bundle, call)
		if err := judge(ctx, &in, &g.first[n], &g.out.Items[n]); err != nil {
			return err
		}
		if filled += filledSize(&g.out.Items[n]); filled > maxFilled {
			return overfilled()
		}
		call.Request.Tenant = in.Request.Tenant
		g.out.Items[n].ID = fmt.Sprintf("%s.%d", g.out.ID, n)
		if g.first[n].Waits() && g.out.Items[n].Allow {
			g.owing = append(g.owing, n)
		}
	}
	g.bound()
	return nil
}

// channelProperty is the property of the action that says to what kind of channel the grant is bound.
const channelProperty = "channel"

// bound finds out what bounds the grant, by all answers. A question whose terms cannot be read is denied.
func (g *granting) bound() {
	g.out.Terms, g.out.Until = obligations.GrantTerms{}, time.Time{}
	for n := range g.out.Items {
		d := &g.out.Items[n]
		for _, o := range d.Obligations {
			terms, ok := obligations.GrantTermsOf(o)
			if !ok {
				d.Deny(evaluation.ObligationUnfilled)
				break
			}
			if _, given := g.calls[n].Request.Action.Properties.Get(channelProperty); terms.Session && !given {
				g.out.Needs = []string{channelProperty}
				d.Deny(evaluation.ObligationUnfilled)
				break
			}
			g.out.Terms = g.out.Terms.Narrower(terms)
		}
		until := g.bundle.Until(g.calls[n].Request.Tenant, d.Determining)
		if g.out.Until.IsZero() || !until.IsZero() && until.Before(g.out.Until) {
			g.out.Until = until
		}
	}
}

// allowed reports whether all answers are an allow.
func (g *granting) allowed() bool {
	for n := range g.out.Items {
		if !g.out.Items[n].Allow {
			return false
		}
	}
	return len(g.out.Items) > 0
}

// consult finds and reserves the approval that the answers wait for, or files one request for all of them.
func (g *granting) consult(ctx context.Context) error {
	approvals, a, ok := g.pdp.options.Approvals, g.approvalRequest(), false
	if a == nil || approvals == nil || g.call.Approvals == NotAsked {
		return nil
	}
	if a.Actors, ok = a.Call.Request.Actors(); !ok || g.bundle.Config.UnknownActor(a.Actors) != "" ||
		g.call.Asker.Relays && a.Call.Request.Person() == "" {
		return nil
	}
	a.Binding, ok = g.bundle.Config.Binding(&a.Call.Request, g.call.Asker.Name, a.Obligation.ID, a.Terms, a.OfTenant)
	if !ok {
		return nil
	}
	if a.Presented != "" {
		if used, err := g.useApproval(ctx, approvals, a); used || err != nil {
			return err
		}
	}
	if g.call.Approvals != SpendOrFile {
		return nil
	}
	var err error
	g.out.Approval, err = approvals.File(ctx, *a)
	return notRecorded(err)
}

// approvalRequest is what people are to approve. If the questions owe different approvals it returns nil, and these
// questions are denied.
func (g *granting) approvalRequest() *ApprovalRequest {
	shown, message := g.call.People(g.out.Terms)
	whole := Call{Request: shown, Asker: g.call.Asker, Now: g.call.Now, Approvals: g.call.Approvals}
	whole.masked = g.calls[0].masked
	a := &ApprovalRequest{
		Call:      whole,
		Decision:  g.out.Items[g.owing[0]].ID,
		Bundle:    g.out.Bundle,
		Presented: whole.Request.Presented(),
		Members:   g.bundle.Config.Members(whole.Request.Context),
		OfTenant:  true,
		Now:       g.call.Now,
	}
	alike := true
	for _, n := range g.owing {
		o, terms, _ := g.first[n].ApprovalOwed()
		terms.Message = cmp.Or(message, terms.Message) // a message may name its resource
		if a.Obligation.ID == "" {
			a.Obligation, a.Terms = o, terms
		}
		alike = alike && o.ID == a.Obligation.ID && reflect.DeepEqual(terms, a.Terms)
		a.OfTenant = a.OfTenant && g.first[n].DemandOfTenant(g.bundle) // else the root's approvers are asked
	}
	if alike {
		return a
	}
	for _, n := range g.owing {
		g.out.Items[n].Deny(evaluation.ObligationConflict)
	}
	return nil
}

// useApproval asks again, as approved, what waits for an approval, and reserves a use of it if all is allowed. It reports
// false if there is no approval to use.
func (g *granting) useApproval(ctx context.Context, approvals Approvals, a *ApprovalRequest) (used bool, err error) {
	found, err := approvals.Find(ctx, *a)
	if err != nil || found.ID == "" {
		return false, notRecorded(err)
	}
	answers := make([]evaluation.Decision, len(g.owing))
	for i, n := range g.owing {
		met := evaluation.Met{Approval: found.ID}
		if i > 0 {
			met.Shares = a.Decision
		}
		var why evaluation.Reason
		own := *a
		own.Obligation, _, _ = g.first[n].ApprovalOwed()
		answers[i], why, err = askApproved(ctx, g.bundle, &own, &g.calls[n], &g.first[n], met)
		if err != nil || why != "" {
			return false, err
		}
		answers[i].ID = g.out.Items[n].ID
	}
	waiting := slices.Clone(g.out.Items)
	for i, n := range g.owing {
		g.out.Items[n] = answers[i]
	}
	g.bound()
	granted := g.allowed()
	if granted { // a deny uses no approval
		g.use, err = approvals.Reserve(ctx, *a, found.ID)
		if err != nil || g.use == nil { // another was faster
			g.out.Items = waiting
			return false, notRecorded(err)
		}
		g.out.Approved = found.ID
	}
	for _, n := range g.owing {
		if g.approved[n] = granted || !g.out.Items[n].Allow; !g.approved[n] {
			g.out.Items[n] = waiting[n] // where one is denied, the others wait as before
		}
	}
	return true, nil
}

// records are the records of the answers.
func (g *granting) records() []Record {
	records, size := make([]Record, len(g.calls)), 0
	for n := range g.calls {
		size += sizeOfRequest(&g.calls[n].Request)
	}
	for n := range g.calls {
		records[n].put(&g.calls[n], &g.out.Items[n])
		records[n].Approved = g.approved[n]
		records[n].Item = Item{Batch: g.out.ID, Size: size}
		if n == 0 && g.out.Capability != "" {
			granted := evaluation.Capability{ID: g.out.Capability}
			records[n].Capability = &ShownCapability{Capability: granted, Ancestors: g.out.Ancestors, Grants: true}
		}
	}
	return records
}
