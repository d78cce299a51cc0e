package capability

import (
	"cmp"
	"context"
	"errors"

	"policy-service/pdp/internal/ledger"
)

// Revoke takes a capability back, also one whose grant is not on record yet. A use that is reserved is had, and the result
// says which: it was under way.
func (s *Store) Revoke(ctx context.Context, id, by, reason string) (Capability, error) {
	return s.end(ctx, id, Revoked, Step{Name: StepRevoked, By: by, Reason: reason})
}

// Return gives a capability back.
func (s *Store) Return(ctx context.Context, id, by, reason string) (Capability, error) {
	return s.end(ctx, id, Returned, Step{Name: StepReturned, By: by, Reason: reason})
}

func (s *Store) end(ctx context.Context, id string, as State, step Step) (Capability, error) {
	return s.moveFrom(ctx, id, Asked, func(m *move) {
		m.to.end(as, m.now)
		m.step(step)
	})
}

// Suspend stops an active capability: the policies with this digest would not grant it.
func (s *Store) Suspend(ctx context.Context, id, bundle string) (Capability, error) {
	return s.moveFrom(ctx, id, Active, func(m *move) {
		m.to.State, m.to.Bundle = Suspended, bundle
		m.step(Step{Name: StepSuspended})
	})
}

// Resume has a suspended capability be active again: the policies with this digest would grant it.
func (s *Store) Resume(ctx context.Context, id, bundle string) (Capability, error) {
	return s.moveFrom(ctx, id, Suspended, func(m *move) {
		m.to.State, m.to.Bundle = Active, bundle
		m.step(Step{Name: StepResumed})
	})
}

// moveFrom changes a capability that is in a state; Asked stands for all that are not final.
func (s *Store) moveFrom(ctx context.Context, id string, in State, do func(*move)) (Capability, error) {
	return ledger.Again(ctx, s.ledger, func() (Capability, error) {
		c, release, err := s.ledger.Locked(ctx, id)
		if err != nil {
			return Capability{}, err
		}
		defer release()
		m := s.move(c)
		if c = c.at(m.now); c.State != in && (in != Asked || c.State.Final()) {
			return Capability{}, &StateError{c.State}
		}
		do(m)
		return s.commit(ctx, m)
	})
}

// RevokeMany revokes all live capabilities that a filter finds, whatever its State, each by a change of its own. It returns
// how many. After an error it can be called again, and revokes those that are left. One that waits for the log of another
// process keeps none of the others from being revoked.
//
// It goes by an index, which is quick, and then through all capabilities: who can write to etcd, and has no key, can delete what
// an index has.
func (s *Store) RevokeMany(ctx context.Context, f Filter, by, reason string) (n int, err error) {
	if f.prefix() != prefixItems {
		n, err = s.revokeFound(ctx, f, by, reason)
	}
	rest, failed := s.revokeFound(ctx, Filter{Sees: f.finds}, by, reason)
	return n + rest, cmp.Or(err, failed)
}

func (s *Store) revokeFound(ctx context.Context, f Filter, by, reason string) (n int, err error) {
	for after := ""; ; {
		ids, next, unread := s.page(f, after, revokedAtOnce, func(c Capability) bool { return c.open() }, readState)
		err = cmp.Or(err, unread) // and the others are revoked all the same
		for _, c := range ids {
			_, failed := s.Revoke(ctx, c.ID, by, reason)
			ended := (*StateError)(nil)
			switch {
			case failed == nil:
				n++
			case errors.As(failed, &ended), errors.Is(failed, ErrNotFound):
			case errors.Is(failed, ledger.ErrElsewhere):
				err = cmp.Or(err, failed) // also of one that another process has ended: that may be on no log yet
			default:
				return n, failed
			}
		}
		if after = next; next == "" {
			return n, err
		}
	}
}

const revokedAtOnce = 100
