package segment

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/go-json-experiment/json"
	"golang.org/x/mod/sumdb/note"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
)

// IsRetired reports whether retention removed the content of the segment that begins with a record.
func (r *Reader) IsRetired(first uint64) (bool, error) {
	_, err := r.Get(first)
	if errors.Is(err, ErrGone) {
		return true, nil
	}
	return false, err
}

// SizeBeforeRemovals returns the number of records that the log had when the earliest unfinished removal began. It reads the
// number from the name of the file that the removal writes.
func (r *Reader) SizeBeforeRemovals() (uint64, error) {
	first := uint64(math.MaxUint64)
	entries, err := os.ReadDir(filepath.Join(r.data, format.LogDir))
	for _, entry := range entries {
		if _, size, ok := ParseNextName(entry.Name()); ok {
			first = min(first, size)
		}
	}
	return first, err
}

// Removals collects what the records of removals say.
type Removals struct {
	below    uint64            // records below it have no content
	redacted map[uint64]string // sequence to tenant
}

// mayRemoveContent reports whether a line may be the record of a removal. Other lines may contain the same text.
func mayRemoveContent(line []byte) bool {
	return bytes.Contains(line, []byte(format.EventRedacted)) || bytes.Contains(line, []byte(format.EventRetired))
}

// AddRecord adds the removal that a line records. It ignores the record of anything else.
func (r *Removals) AddRecord(line []byte) error {
	s, err := record.Parse(line)
	if err != nil || s.Kind != format.KindAdmin || s.Event != format.EventRedacted && s.Event != format.EventRetired {
		return err
	}
	var d struct {
		Sequence uint64 `json:"sequence"`
		Below    uint64 `json:"below"`
	}
	if err := json.Unmarshal(s.Details, &d); err != nil {
		return err
	}
	if s.Event == format.EventRetired {
		r.below = max(r.below, d.Below)
		return nil
	}
	if r.redacted == nil {
		r.redacted = map[uint64]string{}
	}
	r.redacted[d.Sequence] = s.Tenant
	return nil
}

// ErrChanged means that a moment can no longer be read, because content was removed since.
var ErrChanged = errors.New("content that was in the log then has been removed since")

// WatchedSnapshot returns the log up to a checkpoint. Reading it fails with [ErrChanged] once content that it had is removed.
func (r *Reader) WatchedSnapshot(c Checkpoint) (*Snapshot, error) {
	s, err := r.SnapshotTo(c)
	if err != nil {
		return nil, err
	}
	s.Head.Keys = keysUntil(c, s.Head.Keys)
	s.since = &removalsSince{next: c.Size}
	return s, nil
}

// keysUntil returns the keys up to the one that signed a checkpoint, and the key that the checkpoint introduces. An export
// lists its keys: with later keys, the second part of an export would not continue the first.
func keysUntil(c Checkpoint, keys []string) []string {
	for i, key := range keys {
		v, err := note.NewVerifier(key)
		if err == nil {
			_, err = note.Open(c.Note, note.VerifierList(v))
		}
		if err != nil {
			continue
		}
		if keys = keys[:i+1]; c.NextKey != "" {
			keys = append(keys, c.NextKey) // it is added to the file of keys a moment later
		}
		break
	}
	return keys
}

// checkWasGone returns [ErrChanged] for a record without content if the record had content at the snapshot's moment. Without
// this check, one export would mix two states of the log.
func (s *Snapshot) checkWasGone(ctx context.Context, sequence uint64) error {
	since := s.since
	if since == nil {
		return nil
	}
	// The active segment need not be read, and cannot be while writing fails: the record of a removal is sealed before the
	// content is removed.
	all := s.SegmentFiles()
	end := all[len(all)-1].First
	for record, err := range s.Reader.Records(ctx, since.next, end) {
		if err == nil && mayRemoveContent(record.Line) {
			err = since.AddRecord(record.Line)
		}
		if err != nil {
			return err
		}
	}
	since.next = max(since.next, end)
	tenant, redacted := since.redacted[sequence]
	if sequence < since.below || redacted && (s.Tenants == nil || slices.Contains(s.Tenants, tenant)) {
		return ErrChanged
	}
	return nil
}

// removalsSince collects the removals after a snapshot.
type removalsSince struct {
	Removals
	next uint64 // the next record to read
}
