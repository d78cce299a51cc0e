package decisionlog

import (
	"encoding/json"
	"fmt"
	"strconv"

	"golang.org/x/mod/sumdb/tlog"
)

// ndjson writes the lines that exportformat.go specifies.
type ndjson struct {
	exportLines
	hashes  tlog.HashReader
	filter  Filter
	proofs  bool
	form    string
	size    int64
	pending exportLeaves
	buffer  []byte
}

func (n *ndjson) begin(h Head) error {
	n.size = h.Size
	line := exportBegin{
		Export:     ExportBegin,
		Format:     ExportFormat,
		Form:       n.form,
		Origin:     h.Origin,
		Size:       h.Size,
		Checkpoint: string(h.Checkpoint),
		Keys:       h.Keys,
		Live:       h.Live,
	}
	if !n.filter.All() {
		line.Filter = &n.filter
	}
	return n.envelope(0, line)
}

func (n *ndjson) whole() bool { return true }

func (n *ndjson) record(l Record) error {
	if err := n.flush(); err != nil {
		return err
	}
	if err := n.line(l.Sequence, l.Line); err != nil || !n.proofs {
		return err
	}
	proof, err := tlog.ProveRecord(n.size, int64(l.Sequence), n.hashes)
	if err != nil {
		return fmt.Errorf("record %d: %w", l.Sequence, err)
	}
	// By hand: there are as many of these lines as records.
	n.buffer = append(n.buffer[:0], `{"export":"`+ExportProof+`","sequence":`...)
	n.buffer = append(strconv.AppendUint(n.buffer, l.Sequence, 10), `,"hashes":`...)
	n.buffer = append(hashList(proof).append(n.buffer), '}')
	return n.line(l.Sequence, n.buffer)
}

func (n *ndjson) without(l Record, why string) error {
	if p := &n.pending; len(p.Hashes) == ExportHashes || len(p.Hashes) > 0 && p.Why != why {
		if err := n.flush(); err != nil {
			return err
		}
	}
	if len(n.pending.Hashes) == 0 {
		n.pending.Export, n.pending.First, n.pending.Why = ExportLeaves, l.Sequence, why
	}
	n.pending.Hashes = append(n.pending.Hashes, l.Leaf)
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

func (n *ndjson) end(done *Exported) error {
	if err := n.flush(); err != nil {
		return err
	}
	done.Digest = n.sum()
	return n.envelope(uint64(n.size), exportEnd{Export: ExportEnd, Records: done.Records, Size: n.size, Digest: done.Digest})
}

func (n *ndjson) envelope(first uint64, line any) error {
	b, err := json.Marshal(line)
	if err != nil {
		return err
	}
	return n.line(first, b)
}

func (n *ndjson) line(first uint64, b []byte) error { return n.write(first, b, []byte{'\n'}) }
