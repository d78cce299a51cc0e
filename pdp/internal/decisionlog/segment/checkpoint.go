package segment

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/plainfile"
)

// Checkpoint is a signed checkpoint, parsed.
type Checkpoint struct {
	Note    []byte
	Origin  string
	Size    uint64
	Root    tlog.Hash
	Time    time.Time
	NextKey string // the key that this checkpoint introduces, or ""
}

// Sign sets the note of c.
func (c *Checkpoint) Sign(signers ...note.Signer) (err error) {
	text := fmt.Sprintf("%s\n%d\n%s\n%s %s\n", c.Origin, c.Size, c.Root, format.ExtensionTime, c.Time.UTC().Format(format.TimeLayout))
	if c.NextKey != "" {
		text += format.ExtensionNextKey + " " + c.NextKey + "\n"
	}
	c.Note, err = note.Sign(&note.Note{Text: text}, signers...)
	return err
}

// Key returns the key under which c is stored in a segment.
func (c Checkpoint) Key() []byte {
	return append(EncodeNumber(c.Size), EncodeNumber(uint64(c.Time.UnixNano()))...)
}

// ParseCheckpoint parses a checkpoint. If known is not nil, at least one signature must be by a known key; if it is nil,
// no signature is verified.
func ParseCheckpoint(signed []byte, known note.Verifiers) (Checkpoint, error) {
	if len(signed) > format.MaxCheckpointBytes {
		return Checkpoint{}, fmt.Errorf("a checkpoint of %d bytes", len(signed))
	}
	text, _, ok := strings.Cut(string(signed), "\n\n")
	text += "\n"
	if known != nil {
		n, err := note.Open(signed, known)
		if err != nil {
			return Checkpoint{}, fmt.Errorf("checkpoint: %w", err)
		}
		text = n.Text
	} else if !ok {
		return Checkpoint{}, fmt.Errorf("a checkpoint without signatures")
	}
	c, err := parseCheckpointText(text)
	c.Note = signed
	return c, err
}

// parseCheckpointText parses the body of a C2SP tlog-checkpoint: three lines, each in its only valid form, and our own
// extensions. It ignores other extensions.
func parseCheckpointText(text string) (c Checkpoint, err error) {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) < 3 || lines[0] == "" {
		return c, fmt.Errorf("a checkpoint has an origin, a size and a root, a line each")
	}
	c.Origin = lines[0]
	c.Size, err = strconv.ParseUint(lines[1], 10, 63)
	if err != nil || strconv.FormatUint(c.Size, 10) != lines[1] {
		return c, fmt.Errorf("the size of a checkpoint is %q", lines[1])
	}
	root, err := base64.StdEncoding.Strict().DecodeString(lines[2])
	if err != nil || len(root) != tlog.HashSize {
		return c, fmt.Errorf("the root of a checkpoint is %q", lines[2])
	}
	copy(c.Root[:], root)
	for _, line := range lines[3:] {
		switch name, value, _ := strings.Cut(line, " "); name {
		case format.ExtensionTime:
			if c.Time, err = time.Parse(format.TimeLayout, value); err != nil {
				return c, fmt.Errorf("the time of a checkpoint is %q", value)
			}
		case format.ExtensionNextKey:
			c.NextKey = value
		}
	}
	return c, nil
}

// Checkpoints yields the stored checkpoints with a size in [from, to], in order.
func (r *Reader) Checkpoints(ctx context.Context, from, to uint64) iter.Seq2[Checkpoint, error] {
	return func(yield func(Checkpoint, error) bool) {
		for _, s := range r.SegmentFiles() {
			after := append(EncodeNumber(from), make([]byte, 8)...)
			for more := true; more; {
				var some []Checkpoint
				err := r.View(s, func(tx *bbolt.Tx) (err error) {
					some, after, err = readSomeCheckpoints(tx, after, to)
					return err
				})
				more = len(some) == MaxRecords
				if err = errors.Join(err, AwaitTurn(ctx)); err != nil {
					yield(Checkpoint{}, err)
					return
				}
				for _, c := range some {
					if !yield(c, nil) {
						return
					}
				}
			}
		}
	}
}

// readSomeCheckpoints reads a few checkpoints, starting at the key after. It returns the key to continue with.
func readSomeCheckpoints(tx *bbolt.Tx, after []byte, to uint64) (out []Checkpoint, next []byte, err error) {
	c := tx.Bucket([]byte(format.BucketCheckpoints)).Cursor()
	for k, v := c.Seek(after); k != nil && len(out) < MaxRecords; k, v = c.Next() {
		checkpoint, err := ParseCheckpoint(bytes.Clone(v), nil)
		if err != nil {
			return out, after, fmt.Errorf("%w: %w", record.ErrDamaged, err)
		}
		if checkpoint.Size > to {
			break
		}
		out, after = append(out, checkpoint), append(bytes.Clone(k), 0)
	}
	return out, after, nil
}

// LastCheckpoint returns the newest stored checkpoint, even if it covers more records than there are: then it is the evidence
// that the end of the log was cut off. It fails if a segment that may hold it cannot be read.
func (r *Reader) LastCheckpoint() (Checkpoint, error) { return r.LastCheckpointWithin(math.MaxUint64) }

// LastCheckpointWithin returns the newest stored checkpoint of at most size records. While writing fails, the active segment
// is closed; then the result is the newest checkpoint of the sealed segments, unless size is [math.MaxUint64].
func (r *Reader) LastCheckpointWithin(size uint64) (last Checkpoint, err error) {
	none := fmt.Errorf("%w: there is no checkpoint yet", ErrNotFound)
	err = r.searchNewestFirst(none, size == math.MaxUint64, func(tx *bbolt.Tx) (found bool, err error) {
		c := tx.Bucket([]byte(format.BucketCheckpoints)).Cursor()
		for k, v := c.Last(); k != nil; k, v = c.Prev() {
			if n, ok := DecodeNumber(k[:min(8, len(k))]); !ok || n <= size {
				last, err = ParseCheckpoint(bytes.Clone(v), nil)
				return true, err
			}
		}
		return false, nil
	})
	return last, err
}

// CheckpointAt returns the checkpoint of a moment.
func (r *Reader) CheckpointAt(m Moment) (c Checkpoint, err error) {
	s, err := r.FindFile(m.Size - 1)
	if err != nil {
		return c, err
	}
	err = r.View(s, func(tx *bbolt.Tx) (err error) {
		stored := tx.Bucket([]byte(format.BucketCheckpoints)).Get(Checkpoint{Size: m.Size, Time: m.Time}.Key())
		if stored == nil {
			return fmt.Errorf("%w: no checkpoint of that size and time", ErrNotFound)
		}
		c, err = ParseCheckpoint(bytes.Clone(stored), nil)
		return err
	})
	return c, err
}

// Witnessed returns the newest checkpoint that enough witnesses cosigned, with their signatures. One of the log's keys signed
// it, and its tree is a beginning of the log's tree. The error is [ErrNotFound] if there is no such checkpoint. With
// [ErrForked], Witnessed also returns the checkpoint.
func (r *Reader) Witnessed() (Checkpoint, error) {
	signed, err := plainfile.Read(filepath.Join(r.data, format.WitnessedFile), format.MaxCheckpointBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return Checkpoint{}, fmt.Errorf("%w: witnesses have cosigned no checkpoint", ErrNotFound)
	}
	if err != nil {
		return Checkpoint{}, err
	}
	c, err := r.ParseOwnCheckpoint(signed)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("%s: %w", format.WitnessedFile, err)
	}
	if err := r.CheckContinues(c); err != nil {
		return c, fmt.Errorf("%s: %w", format.WitnessedFile, err)
	}
	return c, nil
}

// ParseOwnCheckpoint parses a checkpoint and verifies that one of the log's keys signed it.
func (r *Reader) ParseOwnCheckpoint(signed []byte) (Checkpoint, error) {
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

// ErrForked means that a checkpoint was signed for another history.
var ErrForked = errors.New("the checkpoint is not of this log's history")

// CheckContinues returns [ErrForked] unless the log begins with the records of a checkpoint.
func (r *Reader) CheckContinues(c Checkpoint) error {
	if c.Size > r.Size() {
		return fmt.Errorf("%w: it covers %d records, and here are %d", ErrForked, c.Size, r.Size())
	}
	root, err := tlog.TreeHash(int64(c.Size), r)
	if err == nil && root != c.Root {
		err = fmt.Errorf("%w: the first %d records are others", ErrForked, c.Size)
	}
	return err
}
