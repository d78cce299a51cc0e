package decisionlog

import (
	"go.etcd.io/bbolt"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/journal"
	"policy-service/pdp/internal/decisionlog/record"
)

// maxTails is how many a new segment names.
const maxTails = 100

// putHead puts the head of a segment at the end of a transaction. In doubt it has none: nothing may vouch for what is
// there before it is named.
func (w *writer) putHead(meta *bbolt.Bucket, s *active, next *tail, o order) error {
	if next.doubt != "" {
		return meta.Delete([]byte(format.MetaHead))
	}
	by := &w.key
	if o.nextKey != nil {
		by = o.nextKey
	}
	head, err := by.HeadOf(s.Number, next.Edge, meta)
	if err != nil {
		return err
	}
	return meta.Put([]byte(format.MetaHead), head)
}

// settle ends the doubt. It returns the record that names what was in doubt, which must be written next; nil if there was
// nothing.
func (w *writer) settle() []*call {
	from, to, cause := w.unsignedFrom(), w.tail.Edge.Size, w.tail.doubt
	w.tail.doubt = ""
	if cause == "" || from >= to {
		return nil
	}
	found := record.UnsignedTail{From: from, To: to - 1, Cause: cause}
	w.tails = append(w.tails, found)
	return []*call{w.own("", format.EventUnsigned, found)}
}

// unsignedFrom is the first record that no checkpoint covers. What is in front of a segment is signed.
func (w *writer) unsignedFrom() uint64 { return max(w.active.First, w.tail.Checkpointed) }

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
