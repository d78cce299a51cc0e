package broker

import (
	"cmp"
	"context"
	"iter"

	"policy-service/evaluation"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/server/auth"
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
	return s.by.Store.Decide(ctx, s.Approval.ID, said.Version, vote, s.counts(ctx), s.same)
}

// counts reports whether an earlier vote counts: it does as long as the policies in force let that person vote.
func (s *Seen) counts(ctx context.Context) func(approval.Vote) bool {
	return func(earlier approval.Vote) bool {
		who, err := voterOf(earlier)
		if err != nil {
			return false
		}
		may, err := s.by.may(ctx, s.Approval, who)
		return err == nil && may.decides
	}
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
	way := s.by.caller.Way
	v := approval.Vote{
		Statement: approval.Statement{
			Reason:     s.by.unsecret(ctx, said.Reason, s.Approval),
			Via:        cmp.Or(way.Via, evaluation.ViaAPI),
			Gateway:    way.Gateway,
			Client:     way.Client,
			ValidUntil: said.ValidUntil,
		},
		Caller: s.by.caller.Name,
		Kind:   approval.VoteKind(said.Decision),
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
	if !review.May && !review.Unsaid {
		return "", evaluation.Malformed("the policies forbid this person to decide", "name another person", "to")
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

// Act is something that a caller may do with an approval request.
type Act string

// The acts: the votes, and the two that end an approval request.
const (
	ActApprove  = Act(approval.Approve)
	ActDeny     = Act(approval.Deny)
	ActDelegate = Act(approval.Delegate)
	ActRevoke   = Act("revoke")
	ActCancel   = Act("cancel")
)

// acts are all of them, in the order of the answer.
var acts = []Act{ActApprove, ActDeny, ActDelegate, ActRevoke, ActCancel}

// LacksError says that a caller lacks the permission that an act needs.
type LacksError struct{ Permission auth.Permission }

func (e *LacksError) Error() string { return "the caller lacks the permission " + string(e.Permission) }

// Acts yields each act, with the reason why the caller may not do it now; nil if the caller may. The methods that do the
// acts refuse them by the same reasons.
func (s *Seen) Acts() iter.Seq2[Act, error] {
	return func(yield func(Act, error) bool) {
		for _, act := range acts {
			if !yield(act, s.refusal(act)) {
				return
			}
		}
	}
}

// refusal is why the caller may not do something with the approval request as it stands now, whatever else would be said
// with it; nil if the caller may.
func (s *Seen) refusal(act Act) error {
	if act == ActCancel {
		if !s.asked || s.by.caller.Way.Gateway != "" { // no gateway cancels for a program
			return ErrNotAsker
		}
		return s.by.Store.MayEnd(s.Approval, approval.Cancelled)
	}
	if err := s.mayDecide(); err != nil {
		return err
	}
	if act == ActRevoke {
		return s.by.Store.MayEnd(s.Approval, approval.Revoked)
	}
	return s.by.Store.MayVote(s.Approval, approval.Vote{
		Statement: approval.Statement{By: s.by.caller.Principal.String()},
		Caller:    s.by.caller.Name,
		Kind:      approval.VoteKind(act),
	}, s.same)
}

// mayDecide refuses a caller who sees the approval request and has no vote.
func (s *Seen) mayDecide() error {
	switch {
	case !s.by.caller.May(auth.Approve):
		return &LacksError{auth.Approve}
	case s.own:
		return ErrOwn
	case !s.decides:
		return ErrNoVote
	}
	return nil
}
