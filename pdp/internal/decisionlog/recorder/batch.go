package recorder

import (
	"context"
	"fmt"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/mask"
	"policy-service/pdp/internal/decisionlog/record"
)

// A batch may put on record only so many bytes for each byte of its body, and for each item. Items inherit, and a
// megabyte of defaults and a thousand items must not make a gigabyte of records.
const (
	recordedPerByte = 4
	recordedPerItem = 1 << 10
)

// batchEntries are the entries of a batch's items. If they inherit anything, the entry of the inherited parts comes
// first. Questions with unknown places are one entry, which comes last. Every part is read for secrets once, and then masked once by
// the secrets of all parts.
func (r *Recorder) batchEntries(ctx context.Context, records []pdp.Record) ([]record.Entry, error) {
	var shared evaluation.Request
	inherited, possible, secrets := false, 0, r.Mask(ctx).Gather()
	for n := range records {
		record := &records[n]
		if err := r.GoOn(ctx); err != nil {
			return nil, err
		}
		inherits, request := record.Item.Inherits, record.Call.Request
		secrets.Add(inherits.Own(request), obligationProperties(&record.Decision)...)
		shared = inherits.Shared(request, shared)
		if asksPossible(record) {
			possible++
		} else {
			inherited = inherited || inherits.Any()
		}
	}
	secrets.Add(shared)
	masked := secrets.Apply(shared)
	questions := possibleEntry(records, possible, &shared, masked)
	limit := batchLimit{size: records[0].Item.Size, items: len(records)}
	entries := make([]record.Entry, 0, len(records)+1)
	if inherited {
		entries = append(entries, sharedEntry(&records[0], &shared, masked))
		if err := limit.add(&entries[0]); err != nil {
			return nil, err
		}
	}
	for n := range records {
		record := &records[n]
		if err := r.GoOn(ctx); err != nil {
			return nil, err
		}
		own := masked.With(record.Item.Inherits.Own(record.Call.Request))
		if asksPossible(record) {
			questions.Questions.All = append(questions.Questions.All, questionOf(n, record, own))
			continue
		}
		e, err := entryOf(record, own)
		if err != nil {
			return nil, err
		}
		e.Inherits = record.Item.Inherits.Members()
		if err := limit.add(&e); err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	if possible > 0 {
		foldUnknown(&questions)
		entries = append(entries, questions)
	}
	return entries, nil
}

// sharedEntry is the entry of the parts that the items of a batch inherit. A part that is inherited has its place in the record
// even if masking left nothing of it.
func sharedEntry(first *pdp.Record, shared *evaluation.Request, masked *mask.Masking) record.Entry {
	e := newEntry(first, first.Item.Batch, format.KindBatch)
	e.Request = sharedRequest(shared, masked)
	return e
}

func sharedRequest(shared *evaluation.Request, masked *mask.Masking) *record.Request {
	return &record.Request{Asked: &masked.Request, Masked: masked.Hidden, Shared: evaluation.Inherited{
		Subject:  shared.Subject.Properties.Len() > 0,
		Action:   shared.Action.Properties.Len() > 0,
		Resource: shared.Resource.Properties.Len() > 0,
		Context:  shared.Context.Len() > 0,
	}}
}

// batchLimit counts the bytes that a batch puts on record, as far as the caller chose them. Answers are the policies', but
// for the parts of obligations that copy a request. The operator chose the types that the caller's registration declares.
type batchLimit struct {
	size, items int // of the batch
	used        int
	line        []byte
}

// lineFrame is the size of the parts that each line has besides: sequence, id, time, salt, the answer and its bundle.
const lineFrame = 300

// add counts the entry of a record, and fails if the batch has too much on record with it.
func (l *batchLimit) add(e *record.Entry) error {
	asked := *e
	asked.Declared, asked.Decision = nil, nil
	if e.Decision != nil {
		asked.Decision = &record.Decision{Mismatch: e.Decision.Mismatch}
	}
	l.line, _ = asked.AppendBody(l.line[:0]) // the log refuses what cannot be written
	l.used += lineFrame + len(l.line)
	if d := e.Decision; d != nil {
		for _, o := range d.Obligations {
			l.used += max(0, o.Properties.Size()-o.Written)
		}
	}
	most := recordedPerByte*l.size + recordedPerItem*l.items
	if l.used <= most {
		return nil
	}
	return &evaluation.Error{
		TooLarge: true,
		Detail: fmt.Sprintf("the records of this batch take more than %d bytes: %d for each of the %d that it has, and %d an item",
			most, recordedPerByte, l.size, recordedPerItem),
		Try: "send fewer items at once, or less that each of them has on record: what obligations copy, masked values, ids that it inherits",
	}
}
