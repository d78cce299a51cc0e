package approval

import (
	"context"

	"go.etcd.io/bbolt"
)

// Work does once what Run does whenever something is due.
func (s *Store) Work(ctx context.Context) {
	s.attempt(ctx, s.ready, s.catchUp, s.expireDue, s.forgetOld)
}

// PutFormat says that a file has another format.
func PutFormat(tx *bbolt.Tx, key []byte, version int) error {
	return put(values{tx, keyOf(key, keyUse)}, bucketMeta, []byte(keyFormat), version)
}

// FileAll files many in one transaction, and puts nothing on record.
func (s *Store) FileAll(questions []ApprovalRequest) error {
	now := s.now()
	return s.update(func(c *change) error {
		for _, q := range questions {
			a := Approval{ApprovalRequest: q, ID: s.options.NewID(), Version: 1, Status: Pending, FiledAt: now, ExpiresAt: now.Add(q.Terms.Timeout)}
			if err := c.save(nil, &a); err != nil {
				return err
			}
		}
		return nil
	})
}

// Stored is an approval as the file has it, StoredPage are many.
func (s *Store) Stored(id string) (Approval, bool, error) { return s.stored(id) }

func (s *Store) StoredPage(status Status, limit int) ([]Approval, string, error) {
	return s.page(nil, status, "", limit)
}
