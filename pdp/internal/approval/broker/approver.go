package broker

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/server/auth"
)

// The errors of a caller that sees an approval request, and may not do the act that it asks for.
var (
	// ErrOwn: it is the request of the person who would decide, or of an agent of that person.
	ErrOwn = errors.New("the approval request is the approver's own")
	// ErrNoVote: the person sees the approval request, and neither the policies nor a delegation let them decide.
	ErrNoVote = errors.New("the person has no vote on the approval request")
	// ErrNotAsker: another caller filed the approval request.
	ErrNotAsker = errors.New("another caller filed the approval request")
)

// Seen is an approval request as one caller sees it: a person by their own credential, or the program that asked.
// Nothing but the credential says whose request it is.
type Seen struct {
	Approval approval.Approval
	by       *approver
	standing
}

// See finds an approval request that a caller may see. To any other caller it does not exist, whatever has become of it. That
// a step is not on record yet, only a caller learns that may see the approval request. By a form people see what they may
// decide about by this form, and nothing else.
func (b *Broker) See(ctx context.Context, caller auth.Caller, id string) (Seen, error) {
	a, found, unrecorded := b.Store.Get(ctx, id)
	if unrecorded != nil && !errors.Is(unrecorded, approval.ErrUnrecorded) {
		return Seen{}, unrecorded
	}
	if !found {
		return Seen{}, approval.ErrNotFound
	}
	v := b.approver(caller.In(a.Tenant))
	s, err := v.standing(ctx, a)
	if err == nil && (!s.sees() || caller.Way.Via == evaluation.ViaForm && !s.decides) {
		err = approval.ErrNotFound
	}
	return Seen{Approval: a, by: v, standing: s}, cmp.Or(err, unrecorded)
}

// approver is a caller at approval requests. It asks the policies once about each person, so it lives no longer than
// one request, and no longer than one look of a request that waits.
type approver struct {
	*Broker
	caller auth.Caller
	// mu guards reviewers: the offers of a list are made at once.
	mu        sync.Mutex
	reviewers map[reviewerOf]*pdp.Reviewer
}

type reviewerOf struct {
	tenant string
	voter
}

// voter is a person who votes, or would: as policies name them, by which credential, and how. No person has voted yet as a
// person without a credential.
type voter struct {
	person auth.Principal
	caller string
	way    evaluation.Way
}

// voterOf is the person of a vote.
func voterOf(v approval.Vote) (voter, error) {
	person, err := auth.ParsePrincipal(v.By)
	return voter{person, v.Caller, v.Way()}, err
}

func (b *Broker) approver(caller auth.Caller) *approver {
	return &approver{Broker: b, caller: caller, reviewers: map[reviewerOf]*pdp.Reviewer{}}
}

// samePerson reports whether two names are names of one person. If that cannot be said, they are.
func (b *Broker) samePerson(tenant, one, other string) bool {
	return b.approver(auth.Caller{}).same(tenant, one, other)
}

// standing is the part that a person or a program has in an approval request.
type standing struct {
	// decides is set if the person may decide, and own if they may not because they would decide about themselves.
	decides, own bool
	// from is the person who delegated, if that is the only reason why this one decides.
	from string
	// asked is set for the program that asked, and voted for a person with a vote.
	asked, voted bool
}

// sees reports whether the approval request exists for them.
func (s standing) sees() bool { return s.decides || s.asked || s.voted }

// standing is the part of the caller in an approval request.
func (v *approver) standing(ctx context.Context, a approval.Approval) (s standing, err error) {
	caller := v.caller.In(a.Tenant)
	if !caller.Serves(a.Tenant) {
		return s, nil
	}
	if err := v.available(a.Tenant); err != nil {
		return s, err
	}
	asked := caller.Name == a.Caller
	if caller.May(auth.Approve) {
		if a.RedactedAt.IsZero() { // or there is nothing left to ask the policies about
			s, err = v.may(ctx, a, voter{v.caller.Principal, v.caller.Name, v.caller.Way})
		}
		s.voted = v.voted(a)
	}
	s.asked = asked
	return s, err
}

// available says if a tenant's files do not load. Then nothing comes of its approval requests until they do.
func (b *Broker) available(tenant string) error {
	if b.options.PDP().Bundle().IsUnavailable(tenant) {
		return pdp.ErrTenantUnavailable
	}
	return nil
}

// voted reports whether the caller, if it is a person, has voted on an approval request.
func (v *approver) voted(a approval.Approval) bool {
	return slices.ContainsFunc(a.Votes, func(vote approval.Vote) bool {
		return vote.By == v.caller.Principal.String() || vote.Caller == v.caller.Name
	})
}

// may says whether a person may decide: because the policies let them, and they named no other person in their place;
// or because a person whom the policies let named them, by a credential that is in force, and could vote as they do. Nobody
// can name a person whom a policy forbids to decide, and no person decides about their own request.
func (v *approver) may(ctx context.Context, a approval.Approval, who voter) (s standing, err error) {
	review, err := v.review(ctx, a, who)
	if err != nil || review.Own {
		return standing{own: review.Own}, err
	}
	s.decides = review.May
	for _, vote := range a.Votes {
		if vote.Kind != approval.Delegate || !v.options.Store.InForce(a.Tenant, vote.Caller, vote.Gateway) {
			continue
		}
		by, err := voterOf(vote)
		if err != nil {
			return standing{}, err
		}
		if vote.Caller == who.caller || v.same(a.Tenant, vote.By, who.person.String()) {
			return standing{}, nil
		}
		if vote.To == who.person.String() && review.Unsaid {
			lets, err := v.letsInPlace(ctx, a, by, who.way)
			if err != nil {
				return standing{}, err
			}
			if lets {
				s.decides, s.from = true, vote.By
			}
		}
	}
	return s, nil
}

// letsInPlace says whether the policies let a person decide, by the way by which that person named another, and by the
// way by which the other one votes: a stand-in has no other way than the person whom it stands in for.
func (v *approver) letsInPlace(ctx context.Context, a approval.Approval, by voter, way evaluation.Way) (bool, error) {
	review, err := v.review(ctx, a, by)
	if err != nil || !review.May || by.way == way {
		return review.May, err
	}
	by.way = way
	review, err = v.review(ctx, a, by)
	return review.May, err
}

// review asks the policies in force. If a tenant does not exist any more, its approval requests have no approvers;
// those of other tenants go on.
func (v *approver) review(ctx context.Context, a approval.Approval, who voter) (pdp.Review, error) {
	reviewer, err := v.reviewer(a.Tenant, who)
	if errors.Is(err, pdp.ErrUnknownTenant) {
		return pdp.Review{}, nil
	}
	if err != nil {
		return pdp.Review{}, err
	}
	return reviewer.Review(ctx, reviewed(a))
}

// reviewed is an approval request as the policies are asked about it.
func reviewed(a approval.Approval) pdp.Reviewed {
	return pdp.Reviewed{
		ID:       a.ID,
		Template: a.Terms.Template,
		Subject:  a.Subject,
		Resource: a.Resource,
		Action:   a.Action,
		Actors:   a.Actors,
		OfTenant: a.OfTenant,
		Asker:    a.Caller,
		Person:   a.Person,

		AskerPrincipal: a.Principal,
		SameClient:     a.Terms.SameClient,
	}
}

func (v *approver) reviewer(tenant string, who voter) (*pdp.Reviewer, error) {
	key := reviewerOf{tenant, who}
	v.mu.Lock()
	defer v.mu.Unlock()
	if known := v.reviewers[key]; known != nil {
		return known, nil
	}
	r, err := v.options.PDP().Reviewer(tenant, pdp.Approver{
		Entity:  evaluation.Ref(who.person),
		Caller:  who.caller,
		Persons: v.options.Persons(who.caller, who.person),
		Way:     who.way,
	})
	if err == nil {
		v.reviewers[key] = r
	}
	return r, err
}

// same reports whether two names are names of one person. If that cannot be said, they are.
func (v *approver) same(tenant, one, other string) bool {
	a, err1 := auth.ParsePrincipal(one)
	b, err2 := auth.ParsePrincipal(other)
	reviewer, err3 := v.reviewer(tenant, voter{person: a})
	return err1 != nil || err2 != nil || err3 != nil || reviewer.SamePerson(evaluation.Ref(a), evaluation.Ref(b))
}
