package approval

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"go.etcd.io/bbolt"

	"policy-service/pdp/ledger"
)

// MostNames is how many names a file has at most.
const MostNames = mostNames

// Work does once what Run does whenever something is due.
func (s *Store) Work(ctx context.Context) { s.ledger.Work(ctx) }

// PutFormat says that a file has another format.
func PutFormat(tx *bbolt.Tx, key []byte, version int) error {
	return putSealed(tx, key, ledger.BucketMeta, []byte(ledger.KeyFormat), fmt.Append(nil, version))
}

// EditApproval changes the text of an approval in a file, as the service writes it.
func EditApproval(tx *bbolt.Tx, key []byte, id string, edit func(text string) string) error {
	text := tx.Bucket([]byte(bucketApprovals)).Get([]byte(id))[sha256.Size:]
	return putSealed(tx, key, bucketApprovals, []byte(id), []byte(edit(string(text))))
}

func putSealed(tx *bbolt.Tx, key []byte, bucket string, name, text []byte) error {
	mac := hmac.New(sha256.New, keyOf(key, keyUse))
	for _, part := range [][]byte{[]byte(bucket), name} {
		_, _ = mac.Write(binary.BigEndian.AppendUint16(nil, uint16(len(part))))
		_, _ = mac.Write(part)
	}
	_, _ = mac.Write(text)
	return tx.Bucket([]byte(bucket)).Put(name, append(mac.Sum(nil), text...))
}

// Changed is readable after the next change.
func (s *Store) Changed() <-chan struct{} {
	return s.News(nil).C
}

// FileAll files many in one transaction, and puts nothing on record.
func (s *Store) FileAll(questions []ApprovalRequest) error {
	now := s.now()
	return s.ledger.Update(func(c *change) {
		for _, q := range questions {
			a := Approval{ApprovalRequest: q, ID: s.options.NewID(), Version: 1, Status: Pending, FiledAt: now, ExpiresAt: now.Add(q.Terms.Timeout)}
			s.save(c, Approval{}, &a)
		}
	})
}

// Stored is an approval as the file has it, StoredPage are many.
func (s *Store) Stored(id string) (Approval, bool, error) { return s.stored(id) }

func (s *Store) StoredPage(status Status, limit int) ([]Approval, string, error) {
	return s.page(nil, status, "", limit)
}
