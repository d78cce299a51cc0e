package approval

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"policy-service/pdp/internal/ledger"
)

// Decide adds the vote of a person to a pending approval. Version is the one that the person
// has seen, or 0 for any. Counts reports whether the person of an earlier vote may still
// approve, and same whether two names are of one person. Both must be quick.
func (s *Store) Decide(
	ctx context.Context,
	id string,
	version int,
	v Vote,
	counts func(Vote) bool,
	same func(a, b string) bool,
) (Approval, error) {
	return s.moveFrom(ctx, id, Pending, version, func(m *move) error {
		v.At, v.ValidUntil = m.now, v.ValidUntil.Round(0).UTC()
		if err := s.mayVote(m.from, &v, m.now, same); err != nil {
			return err
		}
		m.lapse(s.proof.stands(&m.from, m.now))
		if err := wellMade(&m.to, &v, same); err != nil {
			return err
		}
		m.to.Votes = append(m.to.Votes, v)
		step := m.step(Step{Name: string(v.Kind), Statement: v.Statement, Caller: v.Caller})
		m.to.Votes[len(m.to.Votes)-1].Step = step
		// The vote that is new counts, because its caller has made sure that the person may vote.
		counts := func(v Vote) bool { return v.Step == step || counts(v) }
		switch people, until := m.to.agreed(m.now, counts, same); {
		case v.Kind == Deny:
			m.to.end(Denied, m.now)
			m.step(Step{Name: StepDenied})
		case v.Kind == Approve && len(people) >= m.to.Terms.Quorum:
			// What does not count now must not count later, once another vote is lost.
			m.lapse(func(v Vote) bool { return v.Kind != Approve || v.by(people) })
			m.to.Status, m.to.DecidedAt, m.to.ExpiresAt = Approved, m.now, until
			m.to.Agreed = m.step(Step{Name: StepApproved})
		}
		return nil
	})
}

// moveFrom changes an approval that is in a state, and in the version that was seen of it.
// Any version will do if seen is 0.
func (s *Store) moveFrom(ctx context.Context, id string, in Status, seen int, do func(*move) error) (Approval, error) {
	return ledger.Again(ctx, s.ledger, func() (Approval, error) { return s.moveOnce(ctx, id, in, seen, do) })
}

func (s *Store) moveOnce(ctx context.Context, id string, in Status, seen int, do func(*move) error) (Approval, error) {
	a, release, err := s.ledger.Locked(ctx, id)
	if err != nil {
		return Approval{}, err
	}
	defer release()
	m := s.move(a)
	if a = a.at(m.now); seen != 0 && seen != a.Version {
		return Approval{}, &StateError{Status: a.Status, Version: a.Version}
	}
	if err := a.mustBe(in); err != nil {
		return Approval{}, err
	}
	if err := do(m); err != nil {
		return Approval{}, err
	}
	return s.commit(ctx, m)
}

// mustBe refuses a change that is not made in the state that an approval is in.
func (a *Approval) mustBe(in Status) error {
	if a.Status != in {
		return &StateError{Status: a.Status, Version: a.Version}
	}
	return nil
}

// MayVote says why a vote of this kind is refused as an approval stands now, whatever else the vote says. [Store.Decide]
// refuses it for the same reason.
func (s *Store) MayVote(a Approval, v Vote, same func(a, b string) bool) error {
	return s.mayVote(a, &v, s.now(), same)
}

// mayVote refuses a vote that is malformed, of a person that has voted, or that delegates where the terms do not allow it. Only
// votes by credentials in force count as such, and none that was to hold until a moment that has passed: that person approves
// anew, or no longer. A person that delegates has voted. The delegate votes as anybody does.
func (s *Store) mayVote(a Approval, v *Vote, now time.Time, same func(a, b string) bool) error {
	a = a.at(now)
	if err := a.mustBe(Pending); err != nil {
		return err
	}
	if v.By == "" || v.Kind != Approve && v.Kind != Deny && v.Kind != Delegate {
		return fmt.Errorf("%w: a vote %q of %q: name a person, and %s, %s or %s",
			ErrInvalid, v.Kind, v.By, Approve, Deny, Delegate)
	}
	if v.isOfOne(s.proof.standing(&a, now), same) {
		return ErrVoted
	}
	if v.Kind == Delegate && !a.Terms.Delegable {
		return fmt.Errorf("%w: its terms do not allow that", ErrNotDelegable)
	}
	return nil
}

// wellMade says why a vote makes no sense: it approves until a time that has passed, or delegates to somebody that
// may not be.
func wellMade(a *Approval, v *Vote, same func(a, b string) bool) error {
	if v.Passed(v.At) {
		return fmt.Errorf("%w: valid until %s, which has passed", ErrInvalid, v.ValidUntil.UTC().Format(time.RFC3339))
	}
	if v.Kind != Delegate {
		return nil
	}
	switch {
	case v.To == "":
		return fmt.Errorf("%w: it does not say to whom", ErrNotDelegable)
	case same(v.By, v.To):
		return fmt.Errorf("%w: it would be to the same person", ErrNotDelegable)
	case Vote{Statement: Statement{By: v.To}}.isOfOne(a.Votes, same):
		return fmt.Errorf("%w: %s has voted", ErrNotDelegable, v.To)
	}
	return nil
}

// agreed are the votes of the people who approve, and until when they do. A vote does not
// count if it was to hold until a moment that has passed. Two votes of one person are one.
func (a *Approval) agreed(now time.Time, counts func(Vote) bool, same func(a, b string) bool) (people []Vote, end time.Time) {
	end = now.Add(a.Terms.ValidFor)
	for _, v := range slices.Backward(a.Votes) {
		if v.Kind != Approve || v.Passed(now) || v.isOfOne(people, same) || !counts(v) {
			continue
		}
		people = append(people, v)
		if !v.ValidUntil.IsZero() && v.ValidUntil.Before(end) {
			end = v.ValidUntil
		}
	}
	return people, end
}

// Approving is how many people approve: of a pending approval those whose votes count now, by counts and same as in
// [Store.Decide]; of any other all whose votes had not lapsed or passed when it ceased to be pending, whatever has become of them
// since.
func (s *Store) Approving(a Approval, counts func(Vote) bool, same func(a, b string) bool) int {
	at := s.now()
	if a.Status == Pending {
		a.Votes = s.proof.standing(&a, at)
	} else {
		at, counts, same = a.DecidedAt, func(Vote) bool { return true }, func(a, b string) bool { return a == b }
	}
	people, _ := a.agreed(at, counts, same)
	return len(people)
}

// Offer puts on record that a gateway is given the form of a pending approval to show a person that
// has not voted. It goes by the Statement and the Caller of the vote, and same is as in [Store.Decide].
// Nothing changes, so a failure leaves nothing.
func (s *Store) Offer(ctx context.Context, id string, v Vote, same func(a, b string) bool) error {
	a, release, err := s.ledger.Locked(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	m := &move{store: s, now: s.now(), to: a} // which nothing writes
	v.Kind = Approve                          // or Deny: the form takes both
	if err := s.mayVote(a, &v, m.now, same); err != nil {
		return err
	}
	m.step(Step{Name: StepOffered, Statement: v.Statement, Caller: v.Caller})
	if err := s.options.Record(context.WithoutCancel(ctx), m.steps[0]); err != nil {
		return fmt.Errorf("%w: %w", ErrUnrecorded, err)
	}
	return nil
}

// endsFrom has the states that a person brings about by one word, and from which state.
var endsFrom = map[Status]Status{Revoked: Approved, Cancelled: Pending}

// MayEnd says why an approval cannot be revoked or cancelled as it stands now. [Store.Revoke] and [Store.Cancel] refuse
// that for the same reason.
func (s *Store) MayEnd(a Approval, as Status) error {
	a = a.at(s.now())
	return a.mustBe(endsFrom[as])
}

// Revoke takes an approval back. It goes by the Statement and the Caller of the vote.
func (s *Store) Revoke(ctx context.Context, id string, version int, v Vote) (Approval, error) {
	return s.take(ctx, id, version, v, Revoked)
}

// Cancel ends a pending approval for its requester: it is not wanted any more.
func (s *Store) Cancel(ctx context.Context, id string, version int, by, caller, reason string) (Approval, error) {
	return s.take(ctx, id, version, Vote{Statement: Statement{By: by, Reason: reason}, Caller: caller}, Cancelled)
}

// take ends an approval for a person.
func (s *Store) take(ctx context.Context, id string, version int, v Vote, to Status) (Approval, error) {
	return s.moveFrom(ctx, id, endsFrom[to], version, func(m *move) error {
		m.to.end(to, m.now)
		m.step(Step{Name: string(to), Statement: v.Statement, Caller: v.Caller})
		return nil
	})
}

// RevokeAll ends all that are open, those that wait among them, and those from whose uses something may go on. Several processes
// may do so at once. After an error it can be called again.
func (s *Store) RevokeAll(ctx context.Context, by, reason string) error {
	for after := ""; ; {
		some, next, err := s.page(Filter{Picks: goesOn}, after, revokedAtOnce)
		if err != nil {
			return err
		}
		for _, a := range some {
			if err := s.revokeAny(ctx, a, by, reason); err != nil && !errors.Is(err, ErrNotFound) {
				return err
			}
		}
		if after = next; next == "" {
			return nil
		}
	}
}

// goesOn reports whether an approval is open, or something may go on from a use of it.
func goesOn(a Approval) bool { return a.open() || !a.continuesUntil().IsZero() }

// revokeAny revokes an approval, whatever state it is in by then. Of one that another process has ended nothing is left to be
// done, be that on record already or not.
func (s *Store) revokeAny(ctx context.Context, a Approval, by, reason string) error {
	for {
		_, err := s.moveFrom(ctx, a.ID, a.Status, 0, func(m *move) error {
			m.to.end(Revoked, m.now)
			m.step(Step{Name: StepRevoked, Statement: Statement{By: by, Reason: reason}})
			return nil
		})
		elsewhere := errors.Is(err, ledger.ErrElsewhere)
		if moved := (*StateError)(nil); !elsewhere && !errors.As(err, &moved) {
			return err
		}
		is, failed := s.ledger.Read(a.ID)
		switch is = is.at(s.now()); {
		case failed != nil:
			return failed
		case !goesOn(is):
			return nil
		case elsewhere:
			return err
		}
		a = is
	}
}

const revokedAtOnce = 100
