package export

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"

	"golang.org/x/mod/sumdb/tlog"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
)

// ndjson writes the lines that package format specifies.
type ndjson struct {
	lines
	hashes tlog.HashReader
	filter record.Filter
	proofs bool
	// bundles writes those that records name; nil writes none.
	bundles *bundles
	form    string
	size    int64
	// witnessed is the newest checkpoint that witnesses cosigned.
	witnessed  func() (segment.Checkpoint, error)
	checkpoint []byte
	pending    leavesLine
	buffer     []byte
}

func (n *ndjson) begin(h segment.Head) error {
	n.size, n.checkpoint = h.Size, h.Checkpoint
	line := beginLine{
		Export:     format.LineBegin,
		Format:     format.ExportVersion,
		Form:       n.form,
		Origin:     h.Origin,
		Size:       h.Size,
		Checkpoint: string(h.Checkpoint),
		Keys:       h.Keys,
		Live:       h.Live,
	}
	if !n.filter.MatchesAll() {
		line.Filter = &n.filter
	}
	return n.envelope(0, line)
}

func (n *ndjson) whole() bool { return true }

// record writes the line of a record, and its proof if proofs are asked for. The records before it that are not in the
// export stand in one line, which goes first.
func (n *ndjson) record(r record.Record) error {
	if err := n.flush(); err != nil {
		return err
	}
	if err := n.bundle(r); err != nil {
		return err
	}
	if err := n.line(r.Sequence, r.Line); err != nil || !n.proofs {
		return err
	}
	proof, err := pathOf(n.size, r.Sequence, n.hashes)
	if err != nil {
		return err
	}
	// Without an encoder: there are as many of these lines as records.
	n.buffer = append(n.buffer[:0], `{"export":"`+format.LineProof+`","sequence":`...)
	n.buffer = append(strconv.AppendUint(n.buffer, r.Sequence, 10), `,"hashes":`...)
	n.buffer = append(hashList(proof).append(n.buffer), '}')
	return n.line(r.Sequence, n.buffer)
}

func (n *ndjson) without(r record.Record) error {
	if p := &n.pending; len(p.Hashes) == format.MaxHashes || len(p.Hashes) > 0 && p.Why != r.Gone {
		if err := n.flush(); err != nil {
			return err
		}
	}
	if len(n.pending.Hashes) == 0 {
		n.pending.Export, n.pending.First, n.pending.Why = format.LineLeaves, r.Sequence, r.Gone
	}
	n.pending.Hashes = append(n.pending.Hashes, r.Leaf)
	return nil
}

func (n *ndjson) flush() error {
	if len(n.pending.Hashes) == 0 {
		return nil
	}
	err := n.envelope(n.pending.First, n.pending)
	n.pending.Hashes = n.pending.Hashes[:0]
	return err
}

func (n *ndjson) end(done *Result) error {
	if err := n.flush(); err != nil {
		return err
	}
	done.Digest = n.sum()
	line := endLine{
		Export:  format.LineEnd,
		Records: done.Records,
		Size:    n.size,
		Digest:  done.Digest,
	}
	if c, err := n.witnessed(); err == nil && !bytes.Equal(c.Note, n.checkpoint) {
		hashes, err := treeProof(int64(c.Size), n.size, n.hashes)
		if err == nil {
			line.Witnessed, line.Hashes = string(c.Note), hashList(hashes)
		}
	}
	return n.envelope(uint64(n.size), line)
}

// treeProof is the proof that the longer of two trees continues the other. tlog has none where that needs none.
func treeProof(a, b int64, hashes tlog.HashReader) (tlog.TreeProof, error) {
	if older := min(a, b); older > 0 && a != b {
		return tlog.ProveTree(max(a, b), older, hashes)
	}
	return nil, nil
}

func (n *ndjson) envelope(first uint64, line any) error {
	b, err := json.Marshal(line)
	if err != nil {
		return err
	}
	return n.line(first, b)
}

func (n *ndjson) line(first uint64, b []byte) error { return n.write(first, b, []byte{'\n'}) }

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

// cachedHashes remembers hashes of the tree. Proofs of neighbouring records share nearly
// all of their hashes.
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

// beginLine is the line "begin".
type beginLine struct {
	Export     string         `json:"export"`
	Format     int            `json:"format"`
	Form       string         `json:"form"`
	Origin     string         `json:"origin"`
	Size       int64          `json:"size"`
	Checkpoint string         `json:"checkpoint"`
	Keys       []string       `json:"keys,omitempty"`
	Filter     *record.Filter `json:"filter,omitempty"`
	Live       bool           `json:"live,omitempty"`
}

// leavesLine is the line "leaves".
type leavesLine struct {
	Export string   `json:"export"`
	First  uint64   `json:"first"`
	Why    string   `json:"why"`
	Hashes hashList `json:"hashes"`
}

// endLine is the line "end".
type endLine struct {
	Export  string `json:"export"`
	Records int64  `json:"records"`
	Size    int64  `json:"size"`
	Digest  string `json:"digest"`

	Witnessed string   `json:"witnessed,omitempty"`
	Hashes    hashList `json:"hashes,omitempty"`
}

// consistencyLine is the line "consistency".
type consistencyLine struct {
	Export string   `json:"export"`
	Format int      `json:"format"`
	Origin string   `json:"origin"`
	Old    string   `json:"old"`
	New    string   `json:"new"`
	Hashes hashList `json:"hashes"`
}
