package approval

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Redact removes the words of an approval for good: the request, its message, and all reasons. Its
// owner, digest, terms, voters with their times, and state stay. The log has a step
// of it with the reason, for a caller that may be "".
//
// While the approval waits or can be used the error is [ErrInUse], unless end is set: then it is cancelled or revoked in the
// same step. Of one that was redacted before, an older copy has it all again; there is nothing to do for any other.
func (s *Store) Redact(ctx context.Context, id, caller, reason string, end bool) error {
	return s.ledger.Again(ctx, func() error { return s.redact(ctx, id, caller, reason, end) })
}

func (s *Store) redact(ctx context.Context, id, caller, reason string, end bool) error {
	a, release, err := s.ledger.Locked(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	if !a.RedactedAt.IsZero() {
		return errors.Join(s.ledger.DropProofs(ctx, id), s.ledger.Erase(ctx))
	}
	if len(a.reserved()) > 0 { // records of it that are yet to come have the request
		return fmt.Errorf("%w: whether a decision used it, the log will say", ErrUnavailable)
	}
	m := s.move(a)
	m.to = m.to.at(m.now)
	switch status := m.to.Status; {
	case status.Final():
	case !end:
		return ErrInUse
	case status == Pending:
		m.to.end(Cancelled, m.now)
	default:
		m.to.end(Revoked, m.now)
	}
	m.to.close(every)
	m.to.redact(m.now)
	said := Statement{Reason: reason}
	if m.to.Status != a.Status {
		by := caller
		if m.to.Status == Expired {
			by = ""
		}
		m.step(Step{Name: string(m.to.Status), Caller: by, Statement: said})
	}
	m.step(Step{Name: StepRedacted, Caller: caller, Statement: said})
	m.also = (*change).Erase
	if _, err = s.commit(ctx, m); err != nil {
		return err
	}
	// From here on no proof of it is written: they have the request, too.
	return errors.Join(s.ledger.DropProofs(ctx, id), s.ledger.Erase(ctx))
}

// redact keeps all but the words. The digest was made with a key, and says nothing without it.
func (a *Approval) redact(now time.Time) {
	q := a.ApprovalRequest
	q.Terms.Message = ""
	a.ApprovalRequest = ApprovalRequest{
		Digest:     q.Digest,
		Tenant:     q.Tenant,
		Caller:     q.Caller,
		Decision:   q.Decision,
		Bundle:     q.Bundle,
		Obligation: q.Obligation,
		Terms:      q.Terms,
		OfTenant:   q.OfTenant,
		Asked:      q.Asked,
	}
	for n := range a.Votes { // no other copy has them: see next
		a.Votes[n].Reason = ""
	}
	a.RedactedAt = now
}
