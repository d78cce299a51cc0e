package decisionlog

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
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
	WriteExport      func(ctx context.Context, s *segment.Snapshot, w io.Writer, o ExportOptions) (Exported, error)
	WriteProof       func(ctx context.Context, s *segment.Snapshot, w io.Writer, id string) error
	WriteConsistency func(ctx context.Context, s *segment.Snapshot, w io.Writer, old []byte) error
	Tail             func(ctx context.Context, data string, o TailOptions, yield func(int64, []byte) error) (int64, error)
)

// ExportOptions are export.Options.
type ExportOptions struct {
	Format  string
	Filter  record.Filter
	Proofs  bool
	Bundles bool
	BOM     bool
	From    uint64
}

// Exported is export.Result.
type Exported struct {
	Records, Size              int64
	Skipped, Retired, Redacted int64
	segment.Unread
	Digest string
}

// TailOptions are export.TailOptions.
type TailOptions struct {
	After, Last int64
	Filter      record.Filter
	Inherited   func(id string, batch record.Record) error
	Every       time.Duration
}

// The words of an export, as a stranger reads them.
const (
	ExportPrefix = `{"export":`
	ExportLeaves = "leaves"
	ExportProof  = "proof"
)

// export reads back what Export writes.
func (k *kept) export(o ExportOptions) (records [][]byte, done Exported) {
	k.Helper()
	var b bytes.Buffer
	done, err := exportOf(k.Context(), k.log, &b, o)
	k.ok(err)
	k.ok(JudgeExport(b.Bytes()))
	if records = k.read(b.Bytes()); done.Records != int64(len(records)) {
		k.Errorf("%d records, and it says %+v", len(records), done)
	}
	return records, done
}

func exportOf(ctx context.Context, l *Log, b *bytes.Buffer, o ExportOptions) (Exported, error) {
	if _, err := l.Checkpoint(ctx); err != nil {
		return Exported{}, err
	}
	last, err := l.LastCheckpoint()
	if err != nil {
		return Exported{}, err
	}
	s, err := l.SnapshotTo(last)
	if err != nil {
		return Exported{}, err
	}
	return WriteExport(ctx, s, b, o)
}

// read are the records of an export, which a stranger has verified. What is left out is left out for its reason.
func (k *kept) read(all []byte) (records [][]byte) {
	k.Helper()
	for line := range bytes.Lines(all) {
		if !bytes.HasPrefix(line, []byte(ExportPrefix)) {
			records = append(records, bytes.TrimSuffix(line, []byte("\n")))
			continue
		}
		var leaves struct {
			Export string      `json:"export"`
			First  int64       `json:"first"`
			Why    string      `json:"why"`
			Hashes []tlog.Hash `json:"hashes"`
		}
		k.ok(json.Unmarshal(line, &leaves))
		for i := range leaves.Hashes {
			if why := k.gone[leaves.First+int64(i)]; leaves.Export == ExportLeaves && leaves.Why != format.WhyFiltered && leaves.Why != why {
				k.Errorf("record %d is %q, want %q", leaves.First+int64(i), leaves.Why, why)
			}
		}
	}
	return records
}
