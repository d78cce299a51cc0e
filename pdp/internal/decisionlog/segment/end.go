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

// CheckedEnd is the end of a log after a reader checked it.
type CheckedEnd struct {
	Edge          Edge
	Time          time.Time // of the last record or checkpoint
	Note          []byte    // the last checkpoint
	Checkpointed  uint64    // its size
	UnsignedBytes int64     // size of the lines after it
}

// CheckEnd reads the active segment from its last checkpoint on and recomputes the tree. size is the number of records in the
// log.
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
		from = max(s.First, min(c.Size, size-1)) // always read the last record
	}
	t = CheckedEnd{Note: c.Note, Checkpointed: c.Size, Time: c.Time}
	if t.Edge, err = readEdge(from, r); err != nil {
		return t, err
	}
	return t, t.replay(tx, size)
}

// replay adds the last records to the edge again, as they were added when they were written.
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

// ParseTime parses the time of a line.
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
	unsignedWrong   = "wrong"   // its head is of other content or by another key
)

// CompareHead compares the stored head of a segment with the one that the key computes. It returns the cause if the stored
// head is not by the writer, and "" if it is.
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

// ComputeHead computes the head of a segment, which is a MAC: package format specifies it.
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

// ClosedCleanly reports whether a log with size records was closed in good order.
func ClosedCleanly(meta *bbolt.Bucket, size uint64) bool {
	clean, _ := DecodeNumber(meta.Get([]byte(format.MetaClean)))
	return clean == size && meta.Get([]byte(format.MetaJournal)) == nil
}

// ReadUnsignedTails returns all unsigned tails that the records of a segment name. They include the tails of earlier segments.
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

// JournalMark names the journal that may have records which the segment lacks, and the last frame of it that is in the
// segment. The zero value means that there is no journal.
type JournalMark struct {
	ID     journal.ID
	Number uint64
	// Aside is the time, in Unix nanoseconds, to be added to the names of the journal's files when they are moved aside. If
	// it is set, the segment has all that could be read of the journal.
	Aside int64
}

// Put stores the mark in the metadata of a segment, with the format that it requires.
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

// ParseJournalMark decodes a mark that [JournalMark.Put] stored: version is the format of the segment, value the mark.
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
