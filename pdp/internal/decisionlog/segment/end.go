package segment

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"go.etcd.io/bbolt"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/journal"
	"policy-service/pdp/internal/decisionlog/record"
)

// end is the end of a log, as far as a reader can check it.
type CheckedEnd struct {
	Edge          Edge
	Time          time.Time // of the last record or checkpoint
	Note          []byte    // the last checkpoint
	Checkpointed  uint64    // its size
	UnsignedBytes int64     // bytes of the lines behind it
}

// checkTail reads the end of the active segment, as far as it is not below the
// last checkpoint, and computes again what the tree says of it.
func CheckEnd(tx *bbolt.Tx, s *File, size uint64) (t CheckedEnd, err error) {
	r, err := hashesWithin(tx, s.First)
	if err != nil {
		return t, err
	}
	from := s.First
	var c Checkpoint
	if _, v := tx.Bucket([]byte(format.BucketCheckpoints)).Cursor().Last(); v != nil {
		verifier, err := note.NewVerifier(s.Key)
		if err != nil {
			return t, fmt.Errorf("%w: %w", record.ErrDamaged, err)
		}
		if c, err = ParseCheckpoint(bytes.Clone(v), note.VerifierList(verifier)); err != nil {
			return t, fmt.Errorf("%w: %w", record.ErrDamaged, err)
		}
		if c.Size > size || c.Size < s.First {
			return t, fmt.Errorf("%w: it has %d records and a checkpoint of %d", record.ErrDamaged, size, c.Size)
		}
		if root, err := tlog.TreeHash(int64(c.Size), r); err != nil || root != c.Root {
			return t, errors.Join(fmt.Errorf("%w: the tree of %d is not the one that was signed", record.ErrDamaged, c.Size), err)
		}
		from = max(s.First, min(c.Size, size-1)) // the last record in any case
	}
	t = CheckedEnd{Note: c.Note, Checkpointed: c.Size, Time: c.Time}
	if t.Edge, err = readEdge(from, r); err != nil {
		return t, err
	}
	return t, t.replay(tx, size)
}

// replay goes over the last records again, as when they were written.
func (t *CheckedEnd) replay(tx *bbolt.Tx, size uint64) error {
	for r, err := range scanStored(tx, t.Edge.Size, size) {
		if err != nil {
			return err
		}
		if r.Line != nil && tlog.RecordHash(r.Line) != r.Leaf {
			return fmt.Errorf("%w: record %d is not the one that was hashed", record.ErrDamaged, r.Sequence)
		}
		if !t.Edge.addAndCompare(r.Leaf, r.hashes) {
			return fmt.Errorf("%w: the tree does not hold record %d", record.ErrDamaged, r.Sequence)
		}
		if t.Edge.Size > t.Checkpointed {
			t.UnsignedBytes += int64(len(r.Line))
		}
		if at, ok := ParseTime(r.Line); ok && at.After(t.Time) {
			t.Time = at
		}
	}
	return nil
}

// timeOf reads the time of a line.
func ParseTime(line []byte) (time.Time, bool) {
	var stamp struct {
		Time string `json:"time"`
	}
	if json.Unmarshal(line, &stamp) != nil {
		return time.Time{}, false
	}
	at, err := time.Parse(format.TimeLayout, stamp.Time)
	return at, err == nil
}

// The causes of an unsigned tail.
const (
	unsignedMissing = "missing" // the segment has lost its head
	unsignedWrong   = "wrong"   // its head is of something else, or of another key
)

// doubt compares the head of a segment with the one that the key makes. It returns the cause if the head is not the writer's.
func (k *Key) CompareHead(segment uint64, e Edge, meta *bbolt.Bucket) (cause string, err error) {
	want, err := k.ComputeHead(segment, e, meta)
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

// headOf is the MAC of a segment, as format.go specifies it.
func (k *Key) ComputeHead(segment uint64, e Edge, meta *bbolt.Bucket) ([]byte, error) {
	root, err := e.Root()
	version, journal := meta.Get([]byte(format.MetaFormat)), meta.Get([]byte(format.MetaJournal))
	m := hmac.New(sha256.New, k.headKey[:])
	for _, part := range [][]byte{EncodeNumber(segment), EncodeNumber(e.Size), root[:], EncodeNumber(uint64(len(version))), version, EncodeNumber(uint64(len(journal))), journal} {
		_, _ = m.Write(part)
	}
	last := byte(0)
	if ClosedCleanly(meta, e.Size) {
		last = 1
	}
	_, _ = m.Write([]byte{last})
	_, _ = m.Write(meta.Get([]byte(format.MetaKeys)))
	return m.Sum(nil), err
}

// isClean reports whether a log of so many records was closed in good order.
func ClosedCleanly(meta *bbolt.Bucket, size uint64) bool {
	clean, _ := DecodeNumber(meta.Get([]byte(format.MetaClean)))
	return clean == size && meta.Get([]byte(format.MetaJournal)) == nil
}

// readTails reads the tails that a segment names, and those before it.
func ReadUnsignedTails(tx *bbolt.Tx) (all []record.UnsignedTail) {
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

// journaled names the journal that may have records which the log's segment has not, and the last frame that the
// segment has. The zero value is none.
type JournalMark struct {
	ID     journal.ID
	Number uint64
	// aside is the time, in Unix nanoseconds, that the names of its files are to get. If it is set, the segment has
	// what could be read of the journal.
	Aside int64
}

// put says it in a segment.
func (j JournalMark) Put(meta *bbolt.Bucket) error {
	if j == (JournalMark{}) {
		return errors.Join(
			meta.Put([]byte(format.MetaFormat), strconv.AppendInt(nil, format.Version, 10)),
			meta.Delete([]byte(format.MetaJournal)))
	}
	value := append(j.ID[:], EncodeNumber(j.Number)...)
	if j.Aside != 0 {
		value = append(value, EncodeNumber(uint64(j.Aside))...)
	}
	return errors.Join(
		meta.Put([]byte(format.MetaFormat), strconv.AppendInt(nil, format.VersionJournaled, 10)),
		meta.Put([]byte(format.MetaJournal), value))
}

// readJournaled reads what put wrote: the format of a segment, and its journal.
func ParseJournalMark(version, value []byte) (j JournalMark, err error) {
	if string(version) != strconv.Itoa(format.VersionJournaled) {
		return j, nil
	}
	n := len(j.ID)
	if len(value) != n+8 && len(value) != n+16 {
		return j, fmt.Errorf("%w: it does not say which journal it has records in", record.ErrDamaged)
	}
	copy(j.ID[:], value)
	j.Number, _ = DecodeNumber(value[n : n+8])
	if len(value) > n+8 {
		at, _ := DecodeNumber(value[n+8:])
		j.Aside = int64(at)
	}
	return j, nil
}
