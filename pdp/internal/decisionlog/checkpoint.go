package decisionlog

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// Checkpoint is a signed checkpoint with what it says.
type Checkpoint struct {
	Note    []byte
	Origin  string
	Size    uint64
	Root    tlog.Hash
	Time    time.Time
	NextKey string // "" unless it signs a new key in
}

// sign makes the note of c.
func (c *Checkpoint) sign(signers ...note.Signer) (err error) {
	text := fmt.Sprintf("%s\n%d\n%s\n%s %s\n", c.Origin, c.Size, c.Root, format.ExtensionTime, c.Time.UTC().Format(format.TimeLayout))
	if c.NextKey != "" {
		text += format.ExtensionNextKey + " " + c.NextKey + "\n"
	}
	c.Note, err = note.Sign(&note.Note{Text: text}, signers...)
	return err
}

// key is the key in the bucket of checkpoints.
func (c Checkpoint) key() []byte { return append(number(c.Size), number(uint64(c.Time.UnixNano()))...) }

// ParseCheckpoint reads a checkpoint. Its signatures are verified where known is
// not nil: at least one must be of a known key.
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

// parseCheckpointText reads what C2SP tlog-checkpoint calls the body: the three
// lines there always are, written in the one way there is to write them, and
// those extensions that are ours.
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

// Checkpoint makes a signed checkpoint now and returns it.
func (l *Log) Checkpoint(ctx context.Context) (signed []byte, err error) {
	return l.writer.signed(ctx, func(*tail) bool { return false })
}

// signed is the newest checkpoint if willDo accepts it, or one that is made now. The writer has
// the newest checkpoint in memory: it was checked when the log was opened, or made since.
func (w *writer) signed(ctx context.Context, willDo func(*tail) bool) (signed []byte, err error) {
	err = w.order(ctx, func() error {
		if !willDo(&w.tail) {
			if err := w.transact(order{checkpoint: true}); err != nil {
				return w.fail(err)
			}
		}
		signed = w.tail.note
		return nil
	})
	if err != nil {
		return nil, err // signed is the writer's still
	}
	return signed, nil
}

// edge is the right edge of the tree: the hashes of the greatest whole subtrees
// that cover it, largest first. A tree grows, and its root is known, from its
// edge alone: the writer reads nothing.
type edge struct {
	size   uint64
	hashes []tlog.Hash
}

// hash is the hash of an index that stands on the edge.
func (e edge) hash(index int64) (tlog.Hash, error) {
	level, n := tlog.SplitStoredHashIndex(index)
	if e.size>>level&1 == 0 || uint64(n) != e.size>>level-1 {
		return tlog.Hash{}, fmt.Errorf("hash %d is not on the edge of a tree of %d", index, e.size)
	}
	return e.hashes[bits.OnesCount64(e.size>>(level+1))], nil
}

// hashOf is a [tlog.HashReader] that reads the hashes one by one.
type hashOf func(index int64) (tlog.Hash, error)

// ReadHashes implements [tlog.HashReader].
func (f hashOf) ReadHashes(indexes []int64) (out []tlog.Hash, err error) {
	out = make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		if out[i], err = f(index); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// add adds a leaf, and appends the hashes to store with it.
func (e *edge) add(stored []byte, leaf tlog.Hash) []byte {
	hash := leaf
	stored = append(stored, hash[:]...)
	for n := e.size; n&1 == 1; n >>= 1 {
		last := len(e.hashes) - 1
		hash = tlog.NodeHash(e.hashes[last], hash)
		e.hashes = e.hashes[:last]
		stored = append(stored, hash[:]...)
	}
	e.hashes = append(e.hashes, hash)
	e.size++
	return stored
}

// extend adds a leaf, and reports whether the hashes stored with it are those of the tree.
func (e *edge) extend(leaf tlog.Hash, stored []byte) (same bool) {
	var some [8 * tlog.HashSize]byte // mostly enough
	return bytes.Equal(e.add(some[:0], leaf), stored)
}

func (e edge) clone() edge {
	return edge{e.size, append(make([]tlog.Hash, 0, len(e.hashes)+1), e.hashes...)}
}

func (e edge) root() (tlog.Hash, error) { return tlog.TreeHash(int64(e.size), hashOf(e.hash)) }

// then reads from the edge what was complete with it, and all else from r: the segments
// before it need not be here.
func (e edge) then(r tlog.HashReader) tlog.HashReader {
	return splitAt(e.size, hashOf(e.hash), r)
}

// splitAt reads from one reader what is complete before the tree has a size, and all else from another.
func splitAt(size uint64, first, then tlog.HashReader) tlog.HashReader {
	return hashOf(func(index int64) (tlog.Hash, error) {
		from := then
		if sequence, _ := completes(index); sequence < size {
			from = first
		}
		one, err := from.ReadHashes([]int64{index})
		if err != nil {
			return tlog.Hash{}, err
		}
		return one[0], nil
	})
}

// begins holds an edge against one that the tree has later: it must be the beginning of
// that tree.
func (e edge) begins(later edge, r tlog.HashReader) error {
	root, err := e.root()
	grown, err2 := later.root()
	proof, err3 := tlog.ProveTree(int64(later.size), int64(e.size), r)
	if err := errors.Join(err, err2, err3); err != nil {
		return err
	}
	if err := tlog.CheckTree(proof, int64(later.size), grown, int64(e.size), root); err != nil {
		return fmt.Errorf("%w: %w", record.ErrDamaged, err)
	}
	return nil
}

// edgeAt reads the edge of the tree of a size.
func edgeAt(size uint64, r tlog.HashReader) (edge, error) {
	var indexes []int64
	for level := 63; level >= 0; level-- {
		if size>>level&1 == 1 {
			indexes = append(indexes, tlog.StoredHashIndex(level, int64(size>>level-1)))
		}
	}
	hashes, err := r.ReadHashes(indexes)
	return edge{size, hashes}, err
}

// completes says which record a stored hash stands with, and where in its value.
func completes(index int64) (sequence uint64, level int) {
	level, n := tlog.SplitStoredHashIndex(index)
	return uint64(n+1)<<level - 1, level
}

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// readNumber reads what number wrote; anything else is 0 and false.
func readNumber(b []byte) (uint64, bool) {
	if len(b) != 8 {
		return 0, false
	}
	return binary.BigEndian.Uint64(b), true
}

func joinHashes(hashes []tlog.Hash) []byte {
	b := make([]byte, 0, tlog.HashSize*len(hashes))
	for i := range hashes {
		b = append(b, hashes[i][:]...)
	}
	return b
}

func splitHashes(b []byte) ([]tlog.Hash, error) {
	if len(b)%tlog.HashSize != 0 {
		return nil, fmt.Errorf("%w: a list of hashes has %d bytes", record.ErrDamaged, len(b))
	}
	hashes := make([]tlog.Hash, len(b)/tlog.HashSize)
	for i := range hashes {
		copy(hashes[i][:], b[i*tlog.HashSize:])
	}
	return hashes, nil
}
