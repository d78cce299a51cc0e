package approval

import (
	"context"
	"fmt"
)

// record puts on record what steps of an approval are not, in their order. The lock of
// the approval is held.
func (s *Store) record(ctx context.Context, id string) error {
	entries := s.remembered().unrecorded(id)
	for _, e := range entries {
		if err := s.recordStep(ctx, e); err != nil {
			return fmt.Errorf("%w: %w", ErrUnrecorded, err)
		}
		s.remembered().recorded(e)
	}
	if len(entries) > 0 {
		s.changed()
		s.news(entries[0].tenant, id)
	}
	return nil
}

// recordStep never lets go half way: of a record that is still on its way nobody can
// say that it will not come.
func (s *Store) recordStep(ctx context.Context, e *entry) error {
	step := e.step
	e.step = nil
	if step == nil {
		if known, err := s.options.Recorded(e.id); err != nil || known {
			return err
		}
		step = &Step{}
		err := s.view(func(tx values) error {
			found, err := get(tx, bucketOutbox, numberKey(e.number), step)
			if err == nil && !found {
				err = fmt.Errorf("%w: step %d of %s is missing", ErrDamaged, e.number, e.approval)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return s.options.Record(context.WithoutCancel(ctx), *step)
}

// strike removes from the outbox what is on record. Any transaction does that; where
// there is none it is done for its own sake.
func (s *Store) strike() error {
	if len(s.remembered().toStrike()) == 0 {
		return nil
	}
	return s.update(func(*change) error { return nil })
}
