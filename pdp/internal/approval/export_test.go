package approval

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"go.etcd.io/bbolt"

	"policy-service/pdp/internal/ledger"
	"policy-service/pdp/internal/ledger/bolt"
)

// MostNames is how many names the values have at most.
const MostNames = ledger.MostNames

// Settled waits until the outcomes of what was spent of an approval are on record, or left to Run.
func (s *Store) Settled(id string) {
	if release, err := s.ledger.Lock(context.Background(), id); err == nil {
		release()
	}
}

// Work does once what Run does whenever something is due.
func (s *Store) Work(ctx context.Context) { s.ledger.Work(ctx, s.forgetToolRequests, s.settleAllLost) }

// MostToolTexts is how much one gateway may keep.
const MostToolTexts = mostToolTexts

// ToolKeys is how many keys of requests for tools there are, of all kinds.
func (s *Store) ToolKeys() (n int, err error) {
	err = s.ledger.View(func(tx *ledger.Tx) {
		for _, prefix := range []string{prefixTools, prefixToolOpen, prefixToolEnds, prefixOfTools} {
			for range tx.Scan(prefix, "") {
				n++
			}
		}
	})
	return n, err
}

// PutFormat says that a file has another format.
func PutFormat(tx *bbolt.Tx, key []byte, version int) error {
	return putSealed(tx, key, ledger.KeyFormat, fmt.Appendf(nil, `{"format":%d}`, version))
}

// sealedBytes is where the text of a stored value begins: behind its revision and its seal.
const sealedBytes = 8 + sha256.Size

// EditApproval changes the text of an approval in a file, as the service writes it.
func EditApproval(tx *bbolt.Tx, key []byte, id string, edit func(text string) string) error {
	name := prefixItems + id
	text := tx.Bucket([]byte(bolt.BucketValues)).Get([]byte(name))[sealedBytes:]
	return putSealed(tx, key, name, []byte(edit(string(text))))
}

func putSealed(tx *bbolt.Tx, key []byte, name string, text []byte) error {
	mac := hmac.New(sha256.New, keyOf(key, keyUse))
	_, _ = mac.Write(binary.BigEndian.AppendUint16(nil, uint16(len(name))))
	_, _ = mac.Write([]byte(name))
	_, _ = mac.Write(text)
	b := tx.Bucket([]byte(bolt.BucketValues))
	revision := bytes.Clone(b.Get([]byte(name))[:8])
	return b.Put([]byte(name), slices.Concat(revision, mac.Sum(nil), text))
}

// Engine is the file of a data directory.
func Engine(data string) ledger.Engine { return bolt.New(file(data)) }

// ReservationKeys is how many keys of reservations there are.
func (s *Store) ReservationKeys() (n int) {
	_ = s.ledger.View(func(tx *ledger.Tx) {
		for range tx.Scan("r/", "") {
			n++
		}
	})
	return n
}

// ForgetTask forgets a task as a process does that read it before.
func (s *Store) ForgetTask(ctx context.Context, t Task) error { return s.forgetTask(ctx, t) }

// Changed is readable after the next change.
func (s *Store) Changed() <-chan struct{} {
	return s.News(nil).C
}

// FileAll files many, and puts nothing on record.
func (s *Store) FileAll(questions []ApprovalRequest) error {
	now := s.now()
	for _, q := range questions {
		a := Approval{ApprovalRequest: q, ID: s.options.NewID(), Version: 1, Status: Pending, FiledAt: now, ExpiresAt: now.Add(q.Terms.Timeout)}
		if _, err := s.make(context.Background(), &move{store: s, now: now, to: a}); err != nil {
			return err
		}
	}
	return nil
}

// Stored is an approval as the file has it, StoredPage are many.
func (s *Store) Stored(id string) (Approval, bool, error) { return s.stored(id) }

func (s *Store) StoredPage(status Status, limit int) ([]Approval, string, error) {
	return s.page(Filter{Status: status}, "", limit)
}

// Known are the errors that readers of approvals know.
var Known = known
