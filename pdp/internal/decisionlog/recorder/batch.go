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

// The records of a batch may have only so many bytes for each byte of its body, and for each item. Items inherit, and a
// megabyte of defaults and a thousand items must not make a gigabyte of records.
const (
	recordedPerByte = 4
	recordedPerItem = 1 << 10
)

// batchEntries returns the entries of the items of a batch. The entry of the inherited parts comes first if an item
// inherits any. All questions with unknown places share one entry, which comes last. All secrets are gathered before
// anything is masked, because a secret of one item may stand in another.
func (r *Recorder) batchEntries(ctx context.Context, records []pdp.Record) ([]record.Entry, error) {
	var shared evaluation.Request
	inherited, possible, secrets := false, 0, r.Mask(ctx).Gather()
	for n := range records {
		rec := &records[n]
		if err := r.GoOn(ctx); err != nil {
			return nil, err
		}
		inherits, request := rec.Item.Inherits, rec.Call.Request
		secrets.Add(inherits.Own(request), obligationProperties(&rec.Decision)...)
		shared = inherits.Shared(request, shared)
		if asksPossible(rec) {
			possible++
		} else if inherits.Any() {
			inherited = true
		}
	}
	secrets.Add(shared)
	masked := secrets.Apply(shared)
	limit := batchLimit{size: records[0].Item.Size, items: len(records)}
	entries := make([]record.Entry, 0, len(records)+1)
	if inherited {
		e := newEntry(&records[0], records[0].Item.Batch, format.KindBatch)
		e.Request = sharedRequest(&shared, masked)
		if err := limit.add(&e); err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	var questions record.Entry
	if possible > 0 {
		questions = possibleEntry(records, possible, &shared, masked)
	}
	for n := range records {
		rec := &records[n]
		if err := r.GoOn(ctx); err != nil {
			return nil, err
		}
		inherits := rec.Item.Inherits
		own := masked.With(inherits.Own(rec.Call.Request))
		if asksPossible(rec) {
			q := record.Question{N: n, Request: requestOf(own), Inherits: inherits.Members(), Decision: decisionOf(&rec.Decision, own)}
			q.Decision.Bundle = "" // stands in Questions
			questions.Questions.All = append(questions.Questions.All, q)
			continue
		}
		e, err := entryOf(rec, own)
		if err != nil {
			return nil, err
		}
		e.Inherits = inherits.Members()
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

// sharedRequest returns the parts that items of a batch inherit. An inherited part keeps its place in the record even
// if masking leaves nothing of it.
func sharedRequest(shared *evaluation.Request, masked *mask.Masking) *record.Request {
	return &record.Request{Asked: &masked.Request, Masked: masked.Hidden, Shared: evaluation.Inherited{
		Subject:  shared.Subject.Properties.Len() > 0,
		Action:   shared.Action.Properties.Len() > 0,
		Resource: shared.Resource.Properties.Len() > 0,
		Context:  shared.Context.Len() > 0,
	}}
}

// batchLimit counts the bytes of a batch's records that the caller chose. It leaves out what policies answer, except the
// parts of obligations that copy a request, and the obligation types that a registration declares, which the operator chose.
type batchLimit struct {
	size, items int // of the batch
	used        int
	line        []byte
}

// lineFrame is the size of the members that no caller chooses: sequence, id, time, salt, the answer and its bundle.
const lineFrame = 300

// add counts an entry, and returns an error if the records of the batch exceed the limit with it.
func (l *batchLimit) add(e *record.Entry) error {
	asked := *e
	asked.Declared, asked.Decision = nil, nil
	if e.Decision != nil {
		asked.Decision = &record.Decision{Mismatch: e.Decision.Mismatch}
	}
	var err error
	if l.line, err = asked.AppendBody(l.line[:0]); err != nil {
		return err
	}
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
