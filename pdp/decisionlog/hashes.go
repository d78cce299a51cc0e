package decisionlog

import (
	"encoding/base64"

	"golang.org/x/mod/sumdb/tlog"
)

// hashList is written in one piece: by themselves the hashes of a proof cost more
// than all else of an export.
type hashList []tlog.Hash

func (h hashList) MarshalJSON() ([]byte, error) {
	return h.append(make([]byte, 0, 2+len(h)*47)), nil
}

func (h hashList) append(b []byte) []byte {
	b = append(b, '[')
	for i := range h {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = base64.StdEncoding.AppendEncode(b, h[i][:])
		b = append(b, '"')
	}
	return append(b, ']')
}

// cachedHashes remembers hashes of the tree. Proofs of records that stand side by
// side share nearly all of theirs.
type cachedHashes struct {
	from  tlog.HashReader
	known map[int64]tlog.Hash
}

// cachedMost bounds the memory: 64 K hashes are a few megabytes.
const cachedMost = 1 << 16

func (c *cachedHashes) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(indexes))
	var missing []int64
	for _, index := range indexes {
		if _, ok := c.known[index]; !ok {
			missing = append(missing, index)
		}
	}
	if len(missing) > 0 {
		if c.known == nil || len(c.known)+len(missing) > cachedMost {
			c.known, missing = map[int64]tlog.Hash{}, indexes
		}
		read, err := c.from.ReadHashes(missing)
		if err != nil {
			return nil, err
		}
		for i, index := range missing {
			c.known[index] = read[i]
		}
	}
	for i, index := range indexes {
		out[i] = c.known[index]
	}
	return out, nil
}
