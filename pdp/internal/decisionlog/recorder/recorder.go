// Package recorder makes the records of decisions. Start with [Recorder.Record], which a PDP calls
// before it answers. Events that are no decision, such as a start or a new configuration, go on record with [Events].
//
// A record holds no secret: every text in it was masked by package mask first, together with everything else that the
// request and its obligations hold. A batch may be much smaller than its records, because its items inherit; batch.go
// limits the records of one body.
//
// The package refuses to decide and to store. It changes no decision, and the log it appends to is any [Log].
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

// Log has the one method of a [decisionlog.Log] that is needed.
type Log interface {
	Append(context.Context, []record.Entry) error
}

// Recorder puts decisions on a log. All of its fields but Log must be set. Without a Log every record fails, and so no
// decision is answered.
type Recorder struct {
	Log Log
	// Mask is the masker of the request that a context belongs to.
	Mask func(context.Context) *mask.Masker
	// GoOn is called before each item of a batch. It may let other work go first; its error ends the recording.
	GoOn func(context.Context) error
	// Waits is called once everything is computed and only the log is waited for.
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
	entries, err := r.entries(ctx, records)
	if err != nil {
		return err
	}
	r.Waits(ctx)
	err = r.Log.Append(ctx, entries)
	switch {
	case !errors.Is(err, decisionlog.ErrTooLarge):
		return err
	case len(entries) > 1:
		return tooLarge("the records of this batch", format.MaxAppend)
	}
	return tooLarge("this request and what it is answered, with its secrets masked,", format.MaxLine)
}

func (r *Recorder) entries(ctx context.Context, records []pdp.Record) ([]record.Entry, error) {
	if records[0].Item.Batch != "" {
		return r.batchEntries(ctx, records)
	}
	masker, entries := r.Mask(ctx), make([]record.Entry, len(records))
	for n := range records {
		record := &records[n]
		masked := masker.Apply(record.Call.Request, obligationProperties(&record.Decision)...)
		var err error
		if entries[n], err = entryOf(record, masked); err != nil {
			return nil, err
		}
	}
	return entries, nil
}

// tooLarge is an error that the caller can avoid, like that of a body that is too large.
func tooLarge(what string, most int) error {
	return &evaluation.Error{
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
