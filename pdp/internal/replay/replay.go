// Package replay asks recorded questions again: of the bundle that answered them, to see whether each answer is the one that its
// policies give ([Recheck]).
//
// Read walk.go for how a log is gone through, and outcome.go for what an answer is. Every answer comes from [pdp.PDP.Evaluate].
// Values that masks hide are never guessed: an answer that may depend on one is named.
package replay

import (
	"bytes"
	"context"
	"iter"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"policy-service/evaluation"
	"policy-service/pdp/internal/decisionlog/export"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
)

// Source is a decision log, or an export of one.
type Source interface {
	// Records yields the records in their order. One whose content is gone has no Line, and says why. With it comes the name of
	// the log, if there may be several in one file. A Line stays as it is.
	Records(context.Context) iter.Seq2[Record, error]
	// Bundle returns the files of a bundle, nil if they are not there.
	Bundle(digest string) (map[string][]byte, error)
}

// Record is a record of one of several logs.
type Record struct {
	record.Record
	Log string
}

// OfLog is the log of a directory.
func OfLog(s *segment.Snapshot) Source { return ofLog{s} }

type ofLog struct{ *segment.Snapshot }

// Records implements [Source].
func (l ofLog) Records(ctx context.Context) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for r, err := range l.Snapshot.Records(ctx, 0, uint64(l.Head.Size)) {
			if !yield(Record{Record: r}, err) {
				return
			}
		}
	}
}

// OfExport is an export, or a merge of several. It is read once. In an export a bundle stands before the records that name it; in a
// merge it may stand in another part, behind them, so open opens the file once more.
func OfExport(r *export.Reader, open func() (*export.Reader, error)) (Source, error) {
	r.KeepBundles()
	if len(r.Parts) == 1 {
		return ofExport{r, r}, nil
	}
	for _, err := range r.Leaves() {
		if err != nil {
			return nil, err
		}
	}
	again, err := open()
	return ofExport{again, r}, err
}

type ofExport struct {
	*export.Reader
	bundles *export.Reader
}

// Bundle implements [Source].
func (e ofExport) Bundle(digest string) (map[string][]byte, error) {
	return e.bundles.Bundle(digest), nil
}

// Records implements [Source].
func (e ofExport) Records(context.Context) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for leaf, err := range e.Leaves() {
			if err == nil && leaf.Again {
				continue
			}
			if leaf.Line = bytes.Clone(leaf.Line); leaf.Line != nil {
				leaf.Leaf = tlog.RecordHash(leaf.Line)
			}
			if !yield(Record{leaf.Record, e.Parts[leaf.Part].Origin}, err) {
				return
			}
		}
	}
}

// Options choose records. The zero value chooses all.
type Options struct {
	// From and To are the bounds of their times, and Tenant is theirs.
	From, To time.Time
	Tenant   string
	// Limits are those that requests are read by; the zero value is the default.
	Limits evaluation.Limits
	// Workers is how many records are asked at once, and one for each processor unless it is given. The outcome is the same.
	Workers int
	// Progress is called now and then with the number of records that are done.
	Progress func(records int64)

	votes bool // the votes on approval requests, too
}

func (o *Options) limits() evaluation.Limits {
	if o.Limits == (evaluation.Limits{}) {
		return evaluation.DefaultLimits()
	}
	return o.Limits
}

// has reports whether a record is one of those that are chosen.
func (o *Options) has(r *record.Recorded) bool {
	return (o.Tenant == "" || r.Tenant == o.Tenant) && (o.From.IsZero() || !r.Time.Before(o.From)) && (o.To.IsZero() || r.Time.Before(o.To))
}
