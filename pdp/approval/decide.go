package approval

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Decide is what a person says of one that is pending: its version is the one that the
// person has seen, or 0 for any. Counts says of an earlier vote whether that person may
// still approve, same whether two names are of one person; both must be quick.
func (s *Store) Decide(ctx context.Context, id string, version int, v Vote, counts func(Vote) bool, same func(a, b string) bool) (Approval, error) {
	a, release, err := s.locked(ctx, id)
	if err != nil {
		return Approval{}, err
	}
	defer release()
	now := s.now()
	if err := in(a, Pending, version, now); err != nil {
		return Approval{}, err
	}
	v.At, v.ValidUntil = now, v.ValidUntil.Round(0).UTC()
	m := s.move(a)
	m.lapse(now, s.inForce(&a))
	if err := mayVote(&m.to, &v, same); err != nil {
		return Approval{}, err
	}
	m.to.Votes = append(m.to.Votes, v)
	voted := Step{Name: v.Kind.step(), At: now, By: v.By, Caller: v.Caller, Reason: v.Reason, To: v.To, ValidUntil: v.ValidUntil, From: v.From}
	m.to.Votes[len(m.to.Votes)-1].Step = m.step(voted)
	switch until, enough := m.to.agreed(now, counts, same); {
	case v.Kind == Deny:
		m.to.DecidedAt = now
		m.to.end(Denied, now)
		m.step(Step{Name: StepDenied, At: now})
	case v.Kind == Approve && enough:
		m.to.Status, m.to.DecidedAt, m.to.ExpiresAt = Approved, now, until
		m.to.Agreed = m.step(Step{Name: StepApproved, At: now})
	}
	return s.commit(ctx, m)
}

// in wants an approval in a state, and in the version that was seen of it.
func in(a Approval, status Status, version int, now time.Time) error {
	if a = a.at(now); a.Status != status || version != 0 && version != a.Version {
		return &StateError{Status: a.Status, Version: a.Version}
	}
	return nil
}

// mayVote holds a vote against those before it. Who named another in their place has
// voted; who was named votes as anybody does.
func mayVote(a *Approval, v *Vote, same func(a, b string) bool) error {
	voted := func(name string) bool {
		return slices.ContainsFunc(a.Votes, func(before Vote) bool { return same(before.By, name) })
	}
	if v.By == "" || v.Kind != Approve && v.Kind != Deny && v.Kind != Delegate {
		return fmt.Errorf("%w: a vote %q of %q: name a person, and %s, %s or %s", ErrInvalid, v.Kind, v.By, Approve, Deny, Delegate)
	}
	if voted(v.By) {
		return ErrVoted
	}
	if v.Kind == Approve && !v.ValidUntil.IsZero() && !v.At.Before(v.ValidUntil) {
		return fmt.Errorf("%w: valid until %s, which has passed", ErrInvalid, v.ValidUntil.UTC().Format(time.RFC3339))
	}
	if v.Kind != Delegate {
		return nil
	}
	switch {
	case !a.Terms.Delegable:
		return fmt.Errorf("%w: its terms do not allow that", ErrNotDelegable)
	case v.To == "":
		return fmt.Errorf("%w: it does not say to whom", ErrNotDelegable)
	case same(v.By, v.To):
		return fmt.Errorf("%w: it would be to the same person", ErrNotDelegable)
	case voted(v.To):
		return fmt.Errorf("%w: %s has voted", ErrNotDelegable, v.To)
	}
	return nil
}

// agreed reports whether enough people approve, and until when it holds. The last vote
// counts: who may vote now was asked before. Of the earlier ones, one that was to hold
// until a moment that has passed does not, and two that turned out to be of one person
// are one.
func (a *Approval) agreed(now time.Time, counts func(Vote) bool, same func(a, b string) bool) (until time.Time, enough bool) {
	until = now.Add(a.Terms.ValidFor)
	var people []string
	for i, v := range slices.Backward(a.Votes) {
		passed := !v.ValidUntil.IsZero() && !now.Before(v.ValidUntil)
		again := slices.ContainsFunc(people, func(name string) bool { return same(name, v.By) })
		if v.Kind != Approve || passed || again || i < len(a.Votes)-1 && !counts(v) {
			continue
		}
		people = append(people, v.By)
		if !v.ValidUntil.IsZero() && v.ValidUntil.Before(until) {
			until = v.ValidUntil
		}
	}
	return until, len(people) >= a.Terms.Quorum
}

// Revoke takes back what was approved. Of v count By, Caller and Reason.
func (s *Store) Revoke(ctx context.Context, id string, version int, v Vote) (Approval, error) {
	return s.take(ctx, id, version, v, Approved, Revoked, StepRevoked)
}

// Cancel is the requester's: nobody need decide any more.
func (s *Store) Cancel(ctx context.Context, id string, version int, by, caller, reason string) (Approval, error) {
	return s.take(ctx, id, version, Vote{By: by, Caller: caller, Reason: reason}, Pending, Cancelled, StepCancelled)
}

// take ends an approval for a person.
func (s *Store) take(ctx context.Context, id string, version int, v Vote, from, to Status, name string) (Approval, error) {
	a, release, err := s.locked(ctx, id)
	if err != nil {
		return Approval{}, err
	}
	defer release()
	now := s.now()
	if err := in(a, from, version, now); err != nil {
		return Approval{}, err
	}
	m := s.move(a)
	if from == Pending {
		m.to.DecidedAt = now
	}
	m.to.end(to, now)
	m.step(Step{Name: name, At: now, By: v.By, Caller: v.Caller, Reason: v.Reason})
	return s.commit(ctx, m)
}
