package decisionlog

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"sync/atomic"

	"go.etcd.io/bbolt"

	"policy-service/pdp/plainfile"
)

// hashAhead hashes the blocks of a segment that is about to be sealed, while it
// is still written to, in two rounds. The first takes as long as the file is
// large, the second, after a commit, has what was written during the first. A
// third would find no less than the second leaves, which is a commit.
//
// Each round holds a read transaction until the segment is sealed: as long as it
// does, bbolt writes to no page that this transaction can reach, and blocks of
// nothing but such pages lie still. The others have one of the two meta pages, or
// pages that were free when it began, or lie beyond the end. What is hashed of
// these is kept: most of them are the same when the segment is sealed, and to see
// that takes a fraction of the time that hashing them again would.
type hashAhead struct {
	segment *segment
	rounds  []*bbolt.Tx
	blocks  []block
	kept    int // how many blocks were kept
	quit    atomic.Bool
	done    chan struct{} // closed when the newest round is over
	err     error
}

// block is one of the blocks of a file, and its hash.
type block struct {
	still, done bool // nothing in it changes, and it was hashed since
	sum         [sha256.Size]byte
	was         []byte // what was hashed, where it is kept
}

const (
	hashRounds = 2
	// keptBlocks is how many blocks are kept at most: 32 MiB. Under full load it is
	// some 10 MiB that are written during the first round.
	keptBlocks = 512
)

// A file grows by more than is written, so its end is empty.
var emptyBlock = func() block {
	was := make([]byte, DigestBlock)
	return block{sum: sha256.Sum256(was), was: was}
}()

func startHashing(s *segment) *hashAhead {
	h := &hashAhead{segment: s}
	h.begin()
	return h
}

// again begins another round after one that is over, unless that was the last.
func (h *hashAhead) again() bool {
	if h.err != nil || len(h.rounds) == hashRounds {
		return false
	}
	h.begin()
	return true
}

// begin must be called by the writer, between two transactions: the list of free
// pages has no lock.
func (h *hashAhead) begin() {
	h.done = make(chan struct{})
	h.err = guard(func() error {
		tx, err := h.segment.db.Begin(false)
		if err != nil {
			return err
		}
		h.rounds = append(h.rounds, tx)
		return h.mark(tx, h.segment.db.Info().PageSize)
	})
	if h.err != nil { // then all of it is hashed in the end
		close(h.done)
		return
	}
	go func() {
		defer close(h.done)
		_, h.err = h.hash()
	}()
}

// mark finds the blocks that lie still from now on.
func (h *hashAhead) mark(tx *bbolt.Tx, pageSize int) error {
	for len(h.blocks) < int(tx.Size()/DigestBlock) { // whole blocks below the end
		h.blocks = append(h.blocks, emptyBlock)
	}
	for i := range int(tx.Size() / DigestBlock) {
		b := &h.blocks[i]
		for id := i * DigestBlock / pageSize; id*pageSize < (i+1)*DigestBlock && !b.still; id++ {
			page, err := tx.Page(id)
			if err != nil || page == nil {
				return errors.Join(errors.New("a page is missing"), err)
			}
			if id <= 1 || page.Type == "free" {
				break
			}
			b.still = (id+1)*pageSize >= (i+1)*DigestBlock
		}
	}
	return nil
}

// hash hashes each block of the file that may not be what it was when it was
// hashed before, and returns the size of the file.
func (h *hashAhead) hash() (size int64, err error) {
	f, err := plainfile.Open(h.segment.path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	now := make([]byte, DigestBlock)
	for i := 0; !h.quit.Load(); i++ {
		if i == len(h.blocks) {
			h.blocks = append(h.blocks, emptyBlock)
		}
		b := &h.blocks[i]
		if b.done {
			size += DigestBlock
			continue
		}
		n, err := f.ReadAt(now, size)
		if n == 0 && err == io.EOF {
			h.blocks = h.blocks[:i]
			return size, nil
		} else if err != nil && err != io.EOF {
			return 0, err
		}
		h.put(b, now[:n])
		size += int64(n)
	}
	return 0, errors.New("given up")
}

// put takes note of what a block is now.
func (h *hashAhead) put(b *block, now []byte) {
	if !bytes.Equal(b.was, now) {
		b.sum, b.was = sha256.Sum256(now), nil
		if !b.still && h.kept < keptBlocks {
			b.was = bytes.Clone(now)
			h.kept++
		}
	}
	if b.still {
		b.done, b.was = true, nil
	}
}

// sealing says whether the segment is to be sealed after one of the next
// commits, each of which then brings a checkpoint along.
func (h *hashAhead) sealing() bool { return h != nil && (len(h.rounds) == hashRounds || h.ready()) }

// ready says whether a round is over.
func (h *hashAhead) ready() bool {
	if h == nil {
		return false
	}
	select {
	case <-h.done:
		return true
	default:
		return false
	}
}

// finish is [FileDigest] of the file, now that nothing is written to it. Without
// anything hashed ahead all of it is hashed.
func (h *hashAhead) finish(path string) (digest string, size int64, err error) {
	if !h.ready() || h.err != nil {
		return digestFile(path)
	}
	if size, err = h.hash(); err != nil {
		return "", 0, err
	}
	all := sha256.New()
	for i := range h.blocks {
		all.Write(h.blocks[i].sum[:])
	}
	return DigestPrefix + hex.EncodeToString(all.Sum(nil)), size, nil
}

// dropAhead ends the read transactions, and gives up what was hashed.
func (l *Log) dropAhead() {
	h := l.w.ahead
	l.w.ahead = nil
	if h == nil {
		return
	}
	h.quit.Store(true)
	for _, tx := range h.rounds {
		_ = guard(tx.Rollback)
	}
}
