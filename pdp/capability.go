package pdp

import (
	"context"
	"crypto/sha256"
	"slices"
	"strconv"
	"time"

	"policy-service/evaluation"
	"policy-service/obligations"
	"policy-service/pdp/internal/engine"
	"policy-service/pdp/internal/evidence"
)

// Capabilities says what the capabilities are worth that requests show.
type Capabilities interface {
	// Check checks a capability and the proof of it. If both are good, the proof is spent by that: whatever the answer
	// will be, it is taken no second time. If one is not good, more says why and what to do, and h has its id for the
	// record, if it is known which one it is.
	Check(ctx context.Context, p PresentedCapability) (h HeldCapability, more *evaluation.CapabilityAnswer, err error)
	// Reserve reserves one use of a counted capability for a decision, durably: whatever happens next, no other decision
	// gets it. Left are the uses after it. If none is left any more, there is no reservation, and more says why.
	Reserve(ctx context.Context, h HeldCapability, decision string) (use Reservation, left int, more *evaluation.CapabilityAnswer, err error)
	// Keep has the very same proof taken once more, with the same question and the id of an approval that it waits for,
	// whatever the age of the proof, until a moment. If the approval is yet to be asked for, its id is "", and any will do.
	Keep(ctx context.Context, h HeldCapability, approval string, until time.Time)
}

// PresentedCapability is a capability that a request shows, and the call that it is to be good for.
type PresentedCapability struct {
	evaluation.CapabilityShown
	Tenant, Caller string
	// Audiences are those of the caller, one of which the proof must be for; without any, it must be for the token's.
	Audiences []string
	// Holder is who acts: the agent that the request names, or else its subject. Without a type it is of any type.
	Holder    evaluation.Ref
	Action    string
	Resource  evaluation.Ref
	Arguments evaluation.Object // as they were sent, with members that are null
	// Question is the hash of the request without the protocol's members, and Approval the approval that it presents.
	Question [sha256.Size]byte
	Approval string
	Now      time.Time
	// Spends is false if nothing is to be spent, not even the proof.
	Spends bool
}

// HeldCapability is a capability that is good for a call.
type HeldCapability struct {
	evaluation.Capability
	Ancestors []string // the capabilities that it was made from
	Counted   bool     // each call uses it up a little
	Left      int      // uses, if they are counted
	Expires   time.Time
	Owner     evaluation.Ref // by whom limits count
	Nonce     string         // for the next proof, if each needs one
	Proof     *SpentProof
	Presented PresentedCapability
}

// SpentProof is a proof that was taken for a call. A guess at a masked argument can be held against the hash of the
// arguments, and against the signature over it.
type SpentProof struct {
	Key       string // the thumbprint of the holder's key
	ID        string // jti; this and the rest as the proof has them
	IssuedAt  int64
	Audience  string
	Tool      string
	Arguments evidence.Text
	Nonce     string
	Algorithm string
	Signature evidence.Text
}

// ShownCapability is what came of the capability that a request showed. Held is what the policies were asked with. Reason is
// why it does not count, "" if it does: the last use of one that is held may go to another call meanwhile.
type ShownCapability struct {
	evaluation.Capability
	Ancestors []string // the capabilities that it was made from, the parent first
	Reason    string
	Proof     *SpentProof
	// Used is set if the decision has a use of it, and Grants if the decision grants or renews it.
	Used, Grants bool

	held   HeldCapability
	answer *evaluation.CapabilityAnswer
}

// noCapabilities is the reason why no capability counts at a PDP that has none: it issued none.
const noCapabilities = "bad_signature"

// show finds out what the capability is worth that a call shows. It returns nil if the call shows none.
func (p *PDP) show(ctx context.Context, call *Call, spends bool) (*ShownCapability, error) {
	shows, given := call.Request.CapabilityShown()
	switch {
	case call.Capability.Held || call.NoCapability != "": // on record
		return onRecord(call), nil
	case !given:
		return nil, nil
	case p.options.Capabilities == nil:
		return &ShownCapability{
			Reason: noCapabilities,
			answer: &evaluation.CapabilityAnswer{Reason: noCapabilities, NextAction: "none"},
		}, nil
	}
	if v, given := call.Request.Context.Get("arguments"); given && v.Kind() != evaluation.Map { // no proof is about them
		const reason = "argument_unprovable"
		return &ShownCapability{Reason: reason, answer: &evaluation.CapabilityAnswer{Reason: reason, NextAction: "retry"}}, nil
	}
	presented, ok := presentedBy(call, shows)
	if !ok {
		return nil, evaluation.Malformed("no agent: a request that shows a capability names who acts by an id, or by type and id", "", "context", "agent")
	}
	presented.Spends = spends
	held, more, err := p.options.Capabilities.Check(ctx, presented)
	if err != nil {
		return nil, notRecorded(err)
	}
	s := &ShownCapability{Capability: held.Capability, Ancestors: held.Ancestors, answer: more}
	if spends { // one that is still good could be taken from the record, and shown
		s.Proof = held.Proof
	}
	if more != nil {
		s.Reason, s.Held = more.Reason, false
	} else {
		s.held, s.held.Presented = held, presented
	}
	call.Capability, call.NoCapability = s.Capability, s.Reason
	return s, nil
}

// CheckCapability checks the capability that a call shows, as [PDP.Evaluate] does before it asks the policies. Nothing is spent,
// not even the proof, so whether the proof was taken before is not known; and nothing goes on record. If the capability does
// not count, more says why.
func (p *PDP) CheckCapability(ctx context.Context, call Call) (held HeldCapability, more *evaluation.CapabilityAnswer, err error) {
	p.begin(ctx, &call)
	shown, err := p.show(ctx, &call, false)
	switch {
	case err != nil:
		return held, nil, err
	case shown == nil:
		return held, nil, evaluation.Malformed("missing; show the capability that is to be checked, with its proof", "", "context", "capability")
	}
	return shown.held, shown.answer, nil
}

// onRecord is what the record of a call says of the capability.
func onRecord(call *Call) *ShownCapability {
	s := &ShownCapability{Capability: call.Capability, Reason: call.NoCapability}
	if s.answer = (&evaluation.CapabilityAnswer{Reason: s.Reason}); s.Held { // else no answer had the id
		s.answer.ID = s.ID
	}
	return s
}

func presentedBy(call *Call, shows evaluation.CapabilityShown) (p PresentedCapability, ok bool) {
	r := &call.Request
	actors, ok := r.Actors()
	arguments, _ := r.Context.Get("arguments")
	if r.Tenant == "" && r.Shape == evaluation.AuthZEN {
		r.Tenant = evaluation.DefaultTenant
	}
	p = PresentedCapability{
		CapabilityShown: shows,
		Tenant:          r.Tenant,
		Caller:          call.Asker.Name,
		Audiences:       call.Asker.Audiences,
		Holder:          r.Subject.Ref(),
		Action:          r.Action.Name,
		Resource:        r.Resource.Ref(),
		Arguments:       arguments.Object(),
		Approval:        r.Presented(),
		Question:        questionHash(r),
		Now:             call.Now,
	}
	if actors.Agent != nil {
		p.Holder = *actors.Agent
	}
	return p, ok
}

// questionHash is the hash of a request without the protocol's members of its context.
func questionHash(r *evaluation.Request) [sha256.Size]byte {
	q := *r
	q.Context = q.Context.Without(evaluation.Protocol)
	text, _ := q.MarshalJSON() // which cannot fail
	head := strconv.AppendQuote([]byte{byte('0' + r.Shape)}, r.Tenant)
	return sha256.Sum256(append(head, text...))
}

// refuse denies a call because its capability does not count. What keeps a call from the policies counts first.
func (s *ShownCapability) refuse(d *evaluation.Decision) {
	if slices.Contains(engine.ReasonOrder, d.Reason) {
		return
	}
	d.Deny(evaluation.CapabilityInvalid)
	d.Access, d.Approval, d.Required, d.Refused, d.LeftOut = nil, nil, nil, nil, nil
	d.Capability = s.answer
}

// reserveHeld reserves a use of the capability for an answer that lets the call happen, and adds it to the uses. If no use is
// left, the answer is a deny with an id of its own: what was reserved for the answer before is not on record, and so is
// there again.
func (p *PDP) reserveHeld(
	ctx context.Context, s *ShownCapability, answer *reply, uses []Reservation,
) ([]Reservation, error) {
	d := &answer.decision
	if s.held.ID == "" || !d.Allow || d.Approval != nil {
		return uses, nil
	}
	continues := slices.ContainsFunc(d.Met, func(m evaluation.Met) bool { return m.Continues.Round > 0 }) // of a use that was counted
	d.Capability = &evaluation.CapabilityAnswer{ID: s.ID, Nonce: s.held.Nonce}
	if !s.held.Presented.Spends {
		d.Capability.Enforceable = new(bool)
		return uses, nil
	}
	if !s.held.Counted || continues {
		return uses, nil
	}
	use, left, more, err := p.options.Capabilities.Reserve(ctx, s.held, d.ID)
	switch {
	case err != nil:
		return uses, notRecorded(err)
	case more != nil:
		inDoubt(uses)
		d.ID, answer.approved = p.options.NewID(), false
		s.answer, s.Reason, s.held = more, more.Reason, HeldCapability{} // and Held, as the policies were asked
		s.refuse(d)
		return nil, nil
	}
	d.Capability.UsesLeft, s.Used = &left, true
	return append(uses, use), nil
}

// keepProof keeps the proof of a call that waits for a person: the call comes again with that approval. Only then does the
// proof go on record: until then it could be taken from there, and shown.
func (p *PDP) keepProof(ctx context.Context, s *ShownCapability, d *evaluation.Decision) {
	if s == nil || s.held.ID == "" || !s.held.Presented.Spends {
		return
	}
	keep := func(approval string, until time.Time) {
		p.options.Capabilities.Keep(ctx, s.held, approval, until)
		s.Proof = nil
	}
	switch {
	case d.Approval != nil && d.Approval.ID != "":
		until := d.Approval.ExpiresAt // and the approval counts for a while from then on
		for _, o := range d.Obligations {
			if terms, ok := obligations.TermsOf(o); ok {
				until = until.Add(terms.ValidFor)
			}
		}
		keep(d.Approval.ID, until)
	case d.Access != nil && d.Access.Request != nil:
		keep("", time.Time{})
	case d.Access != nil && d.Access.Reason == evaluation.ApprovalPending && s.held.Presented.Approval != "":
		keep(s.held.Presented.Approval, time.Time{})
	}
}

// shownInBatch is the capability that an item of a batch shows, and that does not count: a batch takes none.
func shownInBatch(r *evaluation.Request) *ShownCapability {
	if _, given := r.CapabilityShown(); !given {
		return nil
	}
	const reason = "not_in_batch"
	return &ShownCapability{Reason: reason, answer: &evaluation.CapabilityAnswer{Reason: reason, NextAction: "retry"}}
}
