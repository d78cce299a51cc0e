package broker

import (
	"cmp"
	"context"

	"policy-service/evaluation"
	"policy-service/pdp/approval"
	"policy-service/pdp/server/auth"
)

// The methods of this file go on if the caller goes away: a ruling counts whole or not at all. [Seen.refusal] refuses an
// act that the approval request does not allow as it stands now; the store, which nothing else can change meanwhile, has
// the last word.

// Decide has a ruling of an approver count.
func (s *Seen) Decide(ctx context.Context, said evaluation.Ruling) (a approval.Approval, err error) {
	if err := s.refusal(Act(said.Decision)); err != nil {
		return a, err
	}
	ctx = context.WithoutCancel(ctx)
	vote := s.vote(ctx, said)
	vote.From = s.from
	if vote.Kind == approval.Delegate {
		if vote.To, err = s.delegate(ctx, said.To); err != nil {
			return a, err
		}
	}
	// An earlier vote counts as long as the policies in force let that person vote.
	counts := func(earlier approval.Vote) bool {
		who, err := voterOf(earlier)
		if err != nil {
			return false
		}
		may, err := s.by.may(ctx, s.Approval, who)
		return err == nil && may.decides
	}
	return s.by.Store.Decide(ctx, s.Approval.ID, said.Version, vote, counts, s.same)
}

// same reports whether two names are names of one person.
func (s *Seen) same(one, other string) bool { return s.by.same(s.Approval.Tenant, one, other) }

// MayDecide reports whether the caller may decide, by the way by which the caller came.
func (s *Seen) MayDecide() bool { return s.decides }

// Offer puts on record that a gateway is given the form to show the person who would decide.
func (s *Seen) Offer(ctx context.Context) error {
	return s.by.Store.Offer(ctx, s.Approval.ID, s.vote(ctx, evaluation.Ruling{}), s.same)
}

// Revoke has an approver take an approval back.
func (s *Seen) Revoke(ctx context.Context, said evaluation.Ruling) (a approval.Approval, err error) {
	if err := s.refusal(ActRevoke); err != nil {
		return a, err
	}
	ctx = context.WithoutCancel(ctx)
	return s.by.Store.Revoke(ctx, s.Approval.ID, said.Version, s.vote(ctx, said))
}

// Cancel has the program that asked want the approval no longer.
func (s *Seen) Cancel(ctx context.Context, said evaluation.Ruling) (a approval.Approval, err error) {
	if err := s.refusal(ActCancel); err != nil {
		return a, err
	}
	ctx = context.WithoutCancel(ctx)
	vote := s.vote(ctx, said)
	return s.by.Store.Cancel(ctx, s.Approval.ID, said.Version, vote.By, vote.Caller, vote.Reason)
}

// vote is a ruling as the vote of a person, without the secrets of the approval request.
func (s *Seen) vote(ctx context.Context, said evaluation.Ruling) approval.Vote {
	v := approval.Vote{
		Caller:     s.by.caller.Name,
		Kind:       approval.VoteKind(said.Decision),
		Reason:     s.by.unsecret(ctx, said.Reason, s.Approval),
		ValidUntil: said.ValidUntil,
		Via:        cmp.Or(s.by.caller.Way.Via, evaluation.ViaAPI),
		Gateway:    s.by.caller.Way.Gateway,
		Client:     s.by.caller.Way.Client,
	}
	if s.by.caller.May(auth.Approve) {
		v.By = s.by.caller.Principal.String()
	}
	return v
}

// delegate is the person whom the approver names in their own place: not one of the people who ask.
func (s *Seen) delegate(ctx context.Context, to string) (string, error) {
	person, err := auth.ParsePrincipal(to)
	if err != nil {
		return "", evaluation.Malformed("no person", `name one as policies do, such as User::"mia"`, "to")
	}
	review, err := s.by.review(ctx, s.Approval, voter{person: person})
	if err != nil {
		return "", err
	}
	if review.Own || s.same(person.String(), s.by.caller.Principal.String()) {
		return "", evaluation.Malformed("this is yourself, or one of those who ask", "name another person", "to")
	}
	return person.String(), nil
}

// unsecret is a text about approval requests, without the values that are masked in their words or in rulings about them,
// or in the records of the decisions that wait.
func (b *Broker) unsecret(ctx context.Context, text string, of ...approval.Approval) string {
	var said [][]byte
	for _, one := range of {
		said = append(said, one.Shown, one.Drawn, one.Said, []byte(one.Terms.Message))
		for _, vote := range one.Votes {
			said = append(said, []byte(vote.Reason))
		}
		// If the record is gone, the request that people were shown is still there.
		if record, err := b.options.Log.ByID(one.Decision); err == nil {
			decided, _ := b.options.Log.Recorded(record.Line) // a batch that cannot be read counts as gone
			said = append(said, record.Line, decided.Batch.Line)
		}
	}
	return b.options.Mask(ctx).After(text, said...)
}
