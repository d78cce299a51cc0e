package approval

import (
	"slices"
)

// Event is what people are told of.
type Event string

// What people are told of: that one waits for them, and that it does no more.
const (
	Filed     Event = "filed"
	Completed Event = "completed"
)

// Told is what somebody is told of.
type Told struct {
	Approval string // its id
	Event    Event
}

// Untold is what nobody was told of yet, by [Store.Told]; of each approval in the order
// in which it happened. What is not on record yet is not told. Of what one caller asked
// for in a tenant it is no more than share, so that what others asked for comes, too.
func (s *Store) Untold(limit, share int) (out []Told) {
	of := map[asker]int{}
	err := s.view(func(tx values) error {
		c := tx.Bucket([]byte(bucketUntold)).Cursor()
		for key, value := c.First(); key != nil && len(out) < limit; key, value = c.Next() {
			who := s.memory.toTell(string(key))
			if of[who] >= share {
				continue
			}
			var events []Event
			if err := tx.decode(bucketUntold, key, value, &events); err != nil {
				return err
			}
			if s.memory.waits(string(key)) {
				continue
			}
			of[who] += len(events)
			for _, e := range events {
				out = append(out, Told{string(key), e})
			}
		}
		return nil
	})
	if err != nil {
		s.options.OnError(err)
		return nil
	}
	return out[:min(len(out), max(limit, 0))]
}

// Told says that somebody was told. Until then it is told again, also after a restart.
func (s *Store) Told(t Told) error {
	return s.update(func(c *change) error {
		var events []Event
		found, err := get(c.tx, bucketUntold, []byte(t.Approval), &events)
		if err != nil || !found {
			return err
		}
		events = slices.DeleteFunc(events, func(e Event) bool { return e == t.Event })
		if len(events) == 0 {
			c.heard = t.Approval
			return remove(c.tx, bucketUntold, []byte(t.Approval))
		}
		return put(c.tx, bucketUntold, []byte(t.Approval), events)
	})
}
