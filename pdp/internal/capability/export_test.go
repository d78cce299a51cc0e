package capability

import (
	"context"

	"policy-service/pdp/internal/ledger"
	"policy-service/pdp/internal/ledger/bolt"
)

// Settled waits until the outcomes of what was spent of a capability are on record, or left to Run.
func (s *Store) Settled(id string) {
	if release, err := s.ledger.Lock(context.Background(), id); err == nil {
		release()
	}
}

// Work does once what Run does whenever something is due.
func (s *Store) Work(ctx context.Context) { s.ledger.Work(ctx) }

// Stored is a capability as the file has it.
func (s *Store) Stored(id string) (c Capability, found bool, err error) {
	err = s.ledger.View(func(tx *ledger.Tx) { c, found = s.stored(tx, id, read) })
	return c, found, err
}

// Engine is the file of a data directory.
func Engine(data string) ledger.Engine { return bolt.New(file(data)) }

// Keys are all keys of a store, but those that every ledger has.
func (s *Store) Keys() (keys []string) {
	_ = s.ledger.View(func(tx *ledger.Tx) {
		for _, prefix := range []string{"x/", "xw/", "xr/", "xa/", "xc/", "xi/", "r/"} {
			for key := range tx.Scan(prefix, "") {
				keys = append(keys, prefix+key)
			}
		}
	})
	return keys
}

// Known are the errors that readers of capabilities know.
var Known = known
