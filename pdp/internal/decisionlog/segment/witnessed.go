package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/plainfile"
)

// Witnessed is the newest checkpoint that enough witnesses cosigned, with their lines. It is one of this log: one of
// its keys signed it, and its tree is a beginning of the log's. The error is [ErrNotFound] if there is none. A checkpoint comes
// with [ErrForked], too.
func (r *Reader) Witnessed() (Checkpoint, error) {
	signed, err := plainfile.Read(filepath.Join(r.data, format.WitnessedFile), format.MaxCheckpointBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return Checkpoint{}, fmt.Errorf("%w: witnesses have cosigned no checkpoint", ErrNotFound)
	}
	if err != nil {
		return Checkpoint{}, err
	}
	c, err := r.OfThisLog(signed)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("%s: %w", format.WitnessedFile, err)
	}
	if err := r.Continues(c); err != nil {
		return c, fmt.Errorf("%s: %w", format.WitnessedFile, err)
	}
	return c, nil
}

// OfThisLog reads a checkpoint that one of the log's keys signed.
func (r *Reader) OfThisLog(signed []byte) (Checkpoint, error) {
	keys, err := VerifierKeys(r.data)
	if err != nil {
		return Checkpoint{}, err
	}
	var verifiers []note.Verifier
	for _, key := range keys {
		if v, err := note.NewVerifier(key); err == nil {
			verifiers = append(verifiers, v)
		}
	}
	return ParseCheckpoint(signed, note.VerifierList(verifiers...))
}

// ErrForked is the error of a checkpoint that was signed for another history.
var ErrForked = errors.New("the checkpoint is not of this log's history")

// Continues returns an error if the log does not begin with the records of a checkpoint.
func (r *Reader) Continues(c Checkpoint) error {
	if c.Size > r.Size() {
		return fmt.Errorf("%w: it covers %d records, and here are %d", ErrForked, c.Size, r.Size())
	}
	root, err := tlog.TreeHash(int64(c.Size), r)
	if err == nil && root != c.Root {
		err = fmt.Errorf("%w: the first %d records are others", ErrForked, c.Size)
	}
	return err
}
