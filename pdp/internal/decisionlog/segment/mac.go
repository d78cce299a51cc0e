package segment

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"

	"go.etcd.io/bbolt"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
)

// The causes of an unsigned tail.
const (
	unsignedMissing = "missing" // the segment has lost its head
	unsignedWrong   = "wrong"   // its head is of something else, or of another key
)

// readTails reads the tails that a segment names, and those before it.
func ReadTails(tx *bbolt.Tx) (all []record.UnsignedTail) {
	c := tx.Bucket([]byte(format.BucketRecords)).Cursor()
	for k, line := c.First(); k != nil; k, line = c.Next() {
		if !bytes.Contains(line, []byte(`"`+format.EventUnsigned)) {
			continue
		}
		if r, err := record.Parse(line); err == nil {
			all = append(all, r.UnsignedTails()...)
		}
	}
	return all
}

// headOf is the MAC of a segment, as format.go specifies it.
func (k *Key) HeadOf(segment uint64, e Edge, meta *bbolt.Bucket) ([]byte, error) {
	root, err := e.Root()
	version, journal := meta.Get([]byte(format.MetaFormat)), meta.Get([]byte(format.MetaJournal))
	m := hmac.New(sha256.New, k.head[:])
	for _, part := range [][]byte{Number(segment), Number(e.Size), root[:], Number(uint64(len(version))), version, Number(uint64(len(journal))), journal} {
		_, _ = m.Write(part)
	}
	last := byte(0)
	if IsClean(meta, e.Size) {
		last = 1
	}
	_, _ = m.Write([]byte{last})
	_, _ = m.Write(meta.Get([]byte(format.MetaKeys)))
	return m.Sum(nil), err
}

// isClean reports whether a log of so many records was closed in good order.
func IsClean(meta *bbolt.Bucket, size uint64) bool {
	clean, _ := ReadNumber(meta.Get([]byte(format.MetaClean)))
	return clean == size && meta.Get([]byte(format.MetaJournal)) == nil
}

// doubt compares the head of a segment with the one that the key makes. It returns the cause if the head is not the writer's.
func (k *Key) Doubt(segment uint64, e Edge, meta *bbolt.Bucket) (cause string, err error) {
	want, err := k.HeadOf(segment, e, meta)
	if err != nil {
		return "", err
	}
	switch has := meta.Get([]byte(format.MetaHead)); {
	case hmac.Equal(has, want):
		return "", nil
	case has != nil:
		return unsignedWrong, nil
	}
	return unsignedMissing, nil
}
