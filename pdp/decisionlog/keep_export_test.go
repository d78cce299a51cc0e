package decisionlog

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"time"

	"golang.org/x/mod/sumdb/tlog"
)

// What a stranger says of a data directory and of an export; nil is that all is well.
var (
	JudgeDirectory func(data string) error
	JudgeKept      func(data, checkpoint string) error // with a checkpoint that was kept elsewhere
	JudgeExport    func(all []byte, keys ...string) error
)

// What package export writes.
var (
	WriteExport      func(ctx context.Context, s *Snapshot, w io.Writer, o ExportOptions) (Exported, error)
	WriteProof       func(ctx context.Context, s *Snapshot, w io.Writer, id string) error
	WriteConsistency func(ctx context.Context, s *Snapshot, w io.Writer, old []byte) error
	Tail             func(ctx context.Context, data string, o TailOptions, yield func(int64, []byte) error) (int64, error)
)

// ExportOptions are export.Options.
type ExportOptions struct {
	Format string
	Filter Filter
	Proofs bool
	From   uint64
}

// Exported is export.Result.
type Exported struct {
	Records, Size              int64
	Skipped, Retired, Redacted int64
	Unread
	Digest string
}

// TailOptions are export.TailOptions.
type TailOptions struct {
	After, Last int64
	Filter      Filter
	Inherited   func(id string, batch Record) error
	Every       time.Duration
}

// The words of an export, as a stranger reads them.
const (
	ExportPrefix = `{"export":`
	ExportBegin  = "begin"
	ExportLeaves = "leaves"
	ExportProof  = "proof"
	ExportEnd    = "end"
)

// export reads back what Export writes, as a stranger would: every leaf in order,
// the tree that the checkpoint was signed for.
func (k *kept) export(o ExportOptions) (records [][]byte, done Exported) {
	k.Helper()
	var b bytes.Buffer
	done, err := exportOf(k.Context(), k.log, &b, o)
	k.ok(err)
	k.ok(JudgeExport(b.Bytes()))
	return k.read(b.Bytes(), done), done
}

func exportOf(ctx context.Context, l *Log, b *bytes.Buffer, o ExportOptions) (Exported, error) {
	if _, err := l.Checkpoint(ctx); err != nil {
		return Exported{}, err
	}
	s, err := l.snapshot()
	if err != nil {
		return Exported{}, err
	}
	return WriteExport(ctx, s, b, o)
}

func (k *kept) read(all []byte, done Exported) (records [][]byte) {
	k.Helper()
	var leaves, stored []tlog.Hash
	add := func(h tlog.Hash) {
		more, err := tlog.StoredHashesForRecordHash(int64(len(leaves)), h, hashesIn(stored))
		k.ok(err)
		leaves, stored = append(leaves, h), append(stored, more...)
	}
	var begin exportBegin
	var end exportEnd
	before := 0
	for line := range bytes.Lines(all) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		var e struct {
			Export string `json:"export"`
			exportLeaves
		}
		if !bytes.HasPrefix(line, []byte(ExportPrefix)) {
			records = append(records, line)
			add(tlog.RecordHash(line))
			before += len(line) + 1
			continue
		}
		k.ok(json.Unmarshal(line, &e))
		switch e.Export {
		case ExportBegin:
			k.ok(json.Unmarshal(line, &begin))
		case ExportLeaves:
			var l exportLeaves
			k.ok(json.Unmarshal(line, &l))
			if l.First != uint64(len(leaves)) {
				k.Errorf("leaves from %d stand at %d", l.First, len(leaves))
			}
			for i, h := range l.Hashes {
				add(h)
				if why := k.gone[int64(l.First)+int64(i)]; l.Why != WhyFiltered && l.Why != why {
					k.Errorf("record %d is %q, want %q", l.First+uint64(i), l.Why, why)
				}
			}
		case ExportProof:
			var p exportProof
			k.ok(json.Unmarshal(line, &p))
			c, err := ParseCheckpoint([]byte(begin.Checkpoint), nil)
			k.ok(err)
			k.ok(tlog.CheckRecord(tlog.RecordProof(p.Hashes), begin.Size, c.Root, p.Sequence, tlog.RecordHash(records[len(records)-1])))
		case ExportEnd:
			k.ok(json.Unmarshal(line, &end))
			if sum := sha256.Sum256(all[:before]); hex.EncodeToString(sum[:]) != end.Digest {
				k.Error("the digest is another")
			}
		}
		before += len(line) + 1
	}
	c, err := ParseCheckpoint([]byte(begin.Checkpoint), nil)
	k.ok(err)
	root, err := tlog.TreeHash(int64(len(leaves)), hashesIn(stored))
	k.ok(err)
	if root != c.Root || begin.Size != int64(len(leaves)) || end.Size != begin.Size || end.Records != int64(len(records)) || done.Size != begin.Size {
		k.Errorf("%d leaves, %d records; begin %+v, end %+v, done %+v", len(leaves), len(records), begin, end, done)
	}
	return records
}

func hashesIn(stored []tlog.Hash) tlog.HashReaderFunc {
	return func(indexes []int64) (out []tlog.Hash, err error) {
		for _, i := range indexes {
			out = append(out, stored[i])
		}
		return out, nil
	}
}

type exportProof struct {
	Export   string      `json:"export"`
	Sequence int64       `json:"sequence"`
	Hashes   []tlog.Hash `json:"hashes"`
}

type exportBegin struct {
	Size       int64  `json:"size"`
	Checkpoint string `json:"checkpoint"`
}

type exportLeaves struct {
	First  uint64      `json:"first"`
	Why    string      `json:"why"`
	Hashes []tlog.Hash `json:"hashes"`
}

type exportEnd struct {
	Records int64  `json:"records"`
	Size    int64  `json:"size"`
	Digest  string `json:"digest"`
}
