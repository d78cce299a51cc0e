package segment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"go.etcd.io/bbolt"
	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
)

// Events is [decisionlog.Log.Events] for a Reader. It does not check that the log is the one that was signed: package verify does.
func (r *Reader) Events(ctx context.Context, visit func(*record.Recorded) error, first string, others ...string) error {
	_, err := r.VisitEventsFrom(ctx, visit, first, others)
	return err
}

// VisitEventsFrom calls visit for the administrative records of some events, starting at the newest segment that has the
// event first, or at the oldest segment. It returns the first sequence of that segment.
func (r *Reader) VisitEventsFrom(ctx context.Context, visit func(*record.Recorded) error, first string, others []string) (from uint64, err error) {
	names, size, begun := append(slices.Clone(others), first), r.Size(), false
	var found []*record.Recorded
	for _, s := range slices.Backward(r.SegmentFiles()) {
		here, err := r.readEvents(ctx, s.First, size, names)
		if err != nil {
			return 0, err
		}
		begun = slices.ContainsFunc(here, func(r *record.Recorded) bool { return r.Event == first })
		if found, size = append(here, found...), s.First; begun {
			break
		}
	}
	for _, one := range found {
		if err := visit(one); err != nil {
			return 0, err
		}
	}
	return size, nil
}

// readEvents returns the administrative records of some events in [from, to). If it fails, it also returns those read so far.
// Sequence is the position of a record in the log, whatever its line says.
func (r *Reader) readEvents(ctx context.Context, from, to uint64, names []string) (here []*record.Recorded, err error) {
	for rec, err := range r.Records(ctx, from, to) {
		if err != nil {
			return here, err
		}
		if !bytes.Contains(rec.Line, []byte(`"kind":"`+format.KindAdmin+`"`)) {
			continue
		}
		line, err := record.Parse(rec.Line)
		if err == nil && line.Kind == format.KindAdmin && slices.Contains(names, line.Event) {
			line.Sequence = rec.Sequence
			here = append(here, line)
		}
	}
	return here, nil
}

// Vouched is what the tree of a log proves about some records.
type Vouched struct {
	// Altered says what is not as it was written. Hidden is set if that may hide records after the newest proved one.
	Altered error
	Hidden  bool
	// Keys is the number of API keys that was stored with the newest record about keys: see [record.Entry]. It is
	// [math.MaxUint64] if it is unknown.
	Keys uint64
}

// TrustedEnd is the end of a log: the edge of its tree, the tails that nothing proves the writer wrote, and the number of
// API keys for [Vouched].
type TrustedEnd struct {
	Edge  Edge
	Tails []record.UnsignedTail
	Keys  uint64
}

// Vouched is [decisionlog.Log.Vouched] for a Reader. Beside a running server it reports nothing as hidden, because the server
// may have the records that the reader lacks.
func (r *Reader) Vouched(ctx context.Context, visit func(r *record.Recorded, vouched bool) error, first string, others ...string) (v Vouched, err error) {
	all := r.SegmentFiles()
	if len(all) == 0 {
		return v, nil
	}
	var t TrustedEnd
	newest := all[len(all)-1]
	err = r.View(newest, func(tx *bbolt.Tx) error {
		tail, err := CheckEnd(tx, newest, r.Size())
		if err != nil {
			return err
		}
		t = TrustedEnd{Edge: tail.Edge, Tails: ReadUnsignedTails(tx)}
		meta := tx.Bucket([]byte(format.BucketMeta))
		t.Keys, _ = DecodeNumber(meta.Get([]byte(format.MetaKeys)))
		k, _, err := readKeyInForce(r.data, newest.Key)
		if doubt := ""; err == nil {
			if doubt, err = k.CompareHead(newest.Number, tail.Edge, meta); doubt == "" {
				return err
			}
		}
		t.Keys = math.MaxUint64
		if from := max(newest.First, tail.Checkpointed); from < r.Size() {
			t.Tails = append(t.Tails, record.UnsignedTail{From: from, To: r.Size() - 1})
		}
		return nil
	})
	if errors.Is(err, record.ErrDamaged) {
		return Vouched{Altered: err, Hidden: !r.Partial(), Keys: math.MaxUint64}, nil
	} else if err != nil {
		return v, err
	}
	v, err = r.VisitVouched(ctx, t, visit, first, others)
	v.Hidden = v.Hidden && !r.Partial()
	return v, err
}

// VisitVouched is [Reader.Vouched] with a known end of the log.
func (r *Reader) VisitVouched(ctx context.Context, t TrustedEnd, visit func(*record.Recorded, bool) error, first string, others []string) (v Vouched, err error) {
	v.Keys = t.Keys
	names, size := append(slices.Clone(others), first), t.Edge.Size
	var found []*record.Recorded
	newest := -1 // index in found
	for _, s := range slices.Backward(r.SegmentFiles()) {
		here, err := r.readEvents(ctx, s.First, size, names)
		if err != nil && !errors.Is(err, record.ErrDamaged) {
			return v, err
		}
		v.Altered = errors.Join(v.Altered, err)
		found, size = append(here, found...), s.First
		for newest = len(here) - 1; newest >= 0 && (here[newest].Event != first || !r.isProved(s, here[newest], t)); newest-- {
		}
		if oldest := s.Number == r.SegmentFiles()[0].Number; newest < 0 && !oldest {
			continue
		}
		if err := r.CheckWalk(ctx, s.First, t.Edge, &hashesFromFile{r, s}, newSilentWalker()); err != nil {
			v.Altered, v.Hidden = errors.Join(v.Altered, err), true
		}
		break
	}
	behind := uint64(0)
	if newest >= 0 {
		behind = found[newest].Sequence
		if v.Hidden {
			s, err := r.FindFile(behind)
			if err == nil {
				err = r.CheckWalk(ctx, behind+1, t.Edge, &hashesFromFile{r, s}, newSilentWalker())
			}
			v.Hidden = err != nil
		}
	}
	if v.Altered != nil && !errors.Is(v.Altered, record.ErrDamaged) {
		return v, v.Altered
	}
	for _, tail := range t.Tails {
		if tail.To > behind {
			v.Hidden, v.Keys = true, math.MaxUint64
			v.Altered = errors.Join(v.Altered, fmt.Errorf("%w: nothing says that the service wrote records %d to %d", record.ErrDamaged, tail.From, tail.To))
		}
	}
	for n, one := range found[max(newest, 0):] {
		vouched := !v.Hidden || n == 0 && newest >= 0
		if err := visit(one, vouched); err != nil && vouched {
			return v, err
		}
	}
	return v, nil
}

// isProved reports whether the tree has the line of a record at the sequence of that record.
func (r *Reader) isProved(s *File, one *record.Recorded, t TrustedEnd) bool {
	if slices.ContainsFunc(t.Tails, func(u record.UnsignedTail) bool { return u.From <= one.Sequence && one.Sequence <= u.To }) {
		return false
	}
	size, sequence := int64(t.Edge.Size), int64(one.Sequence)
	root, err := t.Edge.Root()
	if err != nil {
		return false
	}
	proof, err := tlog.ProveRecord(size, sequence, &hashesFromFile{r, s})
	return err == nil && tlog.CheckRecord(proof, size, root, sequence, tlog.RecordHash(one.Line)) == nil
}

// newSilentWalker returns a walker that only checks records.
func newSilentWalker() *Walker { return &Walker{Visit: func(record.Record) error { return nil }} }

// hashesFromFile reads hashes of a tree without the segments before s: it takes earlier hashes from the edge of s.
type hashesFromFile struct {
	r *Reader
	s *File
}

// ReadHashes implements [tlog.HashReader].
func (h *hashesFromFile) ReadHashes(indexes []int64) (all []tlog.Hash, err error) {
	var before Edge
	err = h.r.View(h.s, func(tx *bbolt.Tx) (err error) { before, err = ReadEdgeBefore(tx, h.s.First); return err })
	if err != nil {
		return nil, err
	}
	return before.HashesWith(h.r).ReadHashes(indexes)
}
