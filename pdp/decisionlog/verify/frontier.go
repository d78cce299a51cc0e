package verify

import (
	"bytes"
	"math/bits"
	"slices"

	"golang.org/x/mod/sumdb/tlog"
)

// A frontier is the right edge of a Merkle tree: the roots of its complete subtrees,
// largest first, one for each bit of its size. It is all that is kept of the leaves,
// which is why a log of any length verifies in constant memory.
type frontier struct {
	size  int64
	roots []tlog.Hash
	made  []tlog.Hash // by the last add: the leaf's, and those of the subtrees it completed
}

// add appends a leaf. Two subtrees of equal size become one, as in a binary counter.
func (f *frontier) add(leaf tlog.Hash) {
	f.made = append(f.made[:0], leaf)
	for merges := bits.TrailingZeros64(^uint64(f.size)); merges > 0; merges-- {
		last := len(f.roots) - 1
		leaf = tlog.NodeHash(f.roots[last], leaf)
		f.roots = f.roots[:last]
		f.made = append(f.made, leaf)
	}
	f.roots = append(f.roots, leaf)
	f.size++
}

// root is the tree's hash as RFC 6962 defines it, with that of the empty tree as tlog has it.
func (f *frontier) root() tlog.Hash {
	if f.size == 0 {
		empty, _ := tlog.TreeHash(0, nil)
		return empty
	}
	root := f.roots[len(f.roots)-1]
	for _, left := range slices.Backward(f.roots[:len(f.roots)-1]) {
		root = tlog.NodeHash(left, root)
	}
	return root
}

// sameHashes says whether stored is these hashes, one after the other.
func sameHashes(stored []byte, hashes []tlog.Hash) bool {
	if len(stored) != len(hashes)*tlog.HashSize {
		return false
	}
	for i, h := range hashes {
		if !bytes.Equal(stored[i*tlog.HashSize:(i+1)*tlog.HashSize], h[:]) {
			return false
		}
	}
	return true
}
