// Package recorder makes the records of decisions. Start with [Recorder.Record], which a PDP calls
// before it answers. [Events] records what is no decision, such as a start or a new configuration.
//
// [Recorder.Record] has package mask take the secrets out of the request and its obligations, and out of every text that may
// quote them, before anything is written (see [mask.Masker.Apply]). Names, such as tenants, ids and policies, are not masked. A batch
// may be much smaller than its records, because items inherit; batch.go limits the records of one body.
//
// [CallOf] makes the question of a record again, and explain.go explains its answer by the policies of that time. The package
// changes no decision and stores nothing: it appends to any [Log].
package recorder

import (
	"context"
	"errors"
	"fmt"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/mask"
	"policy-service/pdp/internal/decisionlog/record"
)

// Log is the method of [decisionlog.Log] that records are written by.
type Log interface {
	Append(context.Context, []record.Entry) error
}

// Recorder puts decisions on a log. All fields but Log must be set. Without a Log every record fails, and so no
// decision is answered.
type Recorder struct {
	Log Log
	// Mask returns the masker for the request that a context belongs to.
	Mask func(context.Context) *mask.Masker
	// GoOn is called before each item of a batch. It may let other work go first; its error ends the recording.
	GoOn func(context.Context) error
	// Waits is called when only the log is left to wait for.
	Waits func(context.Context)
}

var errNoLog = errors.New("the decision log is not open")

// Record implements [pdp.Recorder].
func (r *Recorder) Record(ctx context.Context, records []pdp.Record) error {
	if r.Log == nil {
		return errNoLog
	}
	if len(records) == 0 {
		return nil
	}
	var entries []record.Entry
	var err error
	if records[0].Item.Batch != "" {
		if entries, err = r.batchEntries(ctx, records); err != nil {
			return err
		}
	} else {
		masker := r.Mask(ctx)
		entries = make([]record.Entry, len(records))
		for n := range records {
			rec := &records[n]
			masked := masker.Apply(rec.Call.Request, obligationProperties(&rec.Decision)...)
			if entries[n], err = entryOf(rec, masked); err != nil {
				return err
			}
		}
	}
	r.Waits(ctx)
	if err = r.Log.Append(ctx, entries); !errors.Is(err, decisionlog.ErrTooLarge) {
		return err
	}
	what, most := "this request and what it is answered, with its secrets masked,", format.MaxLine
	if len(entries) > 1 {
		what, most = "the records of this batch", format.MaxAppend
	}
	return &evaluation.Error{ // the caller can avoid it, as it can a body that is too large
		TooLarge: true,
		Detail:   fmt.Sprintf("%s are more than %d bytes on record", what, most),
		Try:      "send fewer items at once, or less in what obligations repeat",
	}
}

func obligationProperties(d *evaluation.Decision) []evaluation.Object {
	all := make([]evaluation.Object, len(d.Obligations))
	for n, o := range d.Obligations {
		all[n] = o.Properties
	}
	return all
}
