package decisionlog

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"

	"go.etcd.io/bbolt"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/journal"
	"policy-service/pdp/internal/decisionlog/record"
)

// The causes of an unsigned tail.
const (
	unsignedMissing = "missing" // the segment has lost its head
	unsignedWrong   = "wrong"   // its head is of something else, or of another key
)

// maxTails is how many a new segment names.
const maxTails = 100

// readTails reads the tails that a segment names, and those before it.
func readTails(tx *bbolt.Tx) (all []record.UnsignedTail) {
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
func (k *key) headOf(segment uint64, e edge, meta *bbolt.Bucket) ([]byte, error) {
	root, err := e.root()
	version, journal := meta.Get([]byte(format.MetaFormat)), meta.Get([]byte(format.MetaJournal))
	m := hmac.New(sha256.New, k.head[:])
	for _, part := range [][]byte{number(segment), number(e.size), root[:], number(uint64(len(version))), version, number(uint64(len(journal))), journal} {
		_, _ = m.Write(part)
	}
	last := byte(0)
	if isClean(meta, e.size) {
		last = 1
	}
	_, _ = m.Write([]byte{last})
	_, _ = m.Write(meta.Get([]byte(format.MetaKeys)))
	return m.Sum(nil), err
}

// isClean reports whether a log of so many records was closed in good order.
func isClean(meta *bbolt.Bucket, size uint64) bool {
	clean, _ := readNumber(meta.Get([]byte(format.MetaClean)))
	return clean == size && meta.Get([]byte(format.MetaJournal)) == nil
}

// putHead puts the head of a segment at the end of a transaction. In doubt it has none: nothing may vouch for what is
// there before it is named.
func (w *writer) putHead(meta *bbolt.Bucket, s *segment, next *tail, o order) error {
	if next.doubt != "" {
		return meta.Delete([]byte(format.MetaHead))
	}
	by := &w.key
	if o.nextKey != nil {
		by = o.nextKey
	}
	head, err := by.headOf(s.number, next.edge, meta)
	if err != nil {
		return err
	}
	return meta.Put([]byte(format.MetaHead), head)
}

// doubt compares the head of a segment with the one that the key makes. It returns the cause if the head is not the writer's.
func (k *key) doubt(segment uint64, e edge, meta *bbolt.Bucket) (cause string, err error) {
	want, err := k.headOf(segment, e, meta)
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

// settle ends the doubt. It returns the record that names what was in doubt, which must be written next; nil if there was
// nothing.
func (w *writer) settle() []*call {
	from, to, cause := w.unsignedFrom(), w.tail.edge.size, w.tail.doubt
	w.tail.doubt = ""
	if cause == "" || from >= to {
		return nil
	}
	found := record.UnsignedTail{From: from, To: to - 1, Cause: cause}
	w.tails = append(w.tails, found)
	return []*call{w.own("", format.EventUnsigned, found)}
}

// unsignedFrom is the first record that no checkpoint covers. What is in front of a segment is signed.
func (w *writer) unsignedFrom() uint64 { return max(w.active.first, w.tail.checkpointed) }

// crashed is the record of a start after a crash. size is how many records there were before the journal was read.
func (w *writer) crashed(size uint64, replayed int) *call {
	c, files := w.options.Checkpoints, int64(len(journal.Paths("")))
	about := map[string]any{
		"size":        size,
		"cut_bytes":   c.Bytes + files*w.options.Journal.Limit(),
		"cut_seconds": int64(c.Every.Seconds()),
	}
	if replayed > 0 {
		about["replayed"] = replayed
	}
	if signed := min(size, w.unsignedFrom()); signed > 0 {
		about["signed"] = signed
	}
	return w.own("", format.EventCrash, about)
}
