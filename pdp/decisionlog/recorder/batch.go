package recorder

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/decisionlog"
	"policy-service/pdp/decisionlog/mask"
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
func (r *Recorder) batchEntries(ctx context.Context, records []pdp.Record) ([]decisionlog.Entry, error) {
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
	entries := make([]decisionlog.Entry, 0, len(records)+1)
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
		e, err := entryOf(record, own, new(page))
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
func sharedEntry(first *pdp.Record, shared *evaluation.Request, masked *mask.Masking) decisionlog.Entry {
	e := newEntry(first, first.Item.Batch, decisionlog.KindBatch)
	e.Request = sharedRequest(shared, masked)
	return e
}

func sharedRequest(shared *evaluation.Request, masked *mask.Masking) *decisionlog.Request {
	return &decisionlog.Request{Asked: &masked.Request, Masked: masked.Hidden, Shared: evaluation.Inherited{
		Subject:  shared.Subject.Properties.Len() > 0,
		Action:   shared.Action.Properties.Len() > 0,
		Resource: shared.Resource.Properties.Len() > 0,
		Context:  shared.Context.Len() > 0,
	}}
}

// batchLimit counts the bytes that a batch puts on record, as far as the caller chose them. The parts that policies add are not counted:
// their names and texts, and their obligations. Nor are the types that the caller's registration declares,
// because the operator chose them.
type batchLimit struct {
	size, items int // of the batch
	names       int // type, id and name, which each item's record has
	values      int // properties and context, masked
	copied      int // copies of them in obligations
	rest        int
	quote       []byte
}

// lineFrame is the size of the parts that each line has: names of members, times, the salt, a reason.
const lineFrame = 370

// add counts the entry of a record, and fails if the batch has too much on record with it.
func (l *batchLimit) add(e *decisionlog.Entry) error {
	l.rest += lineFrame + len(e.Details) + l.quoted(e.Inherits...) +
		l.quoted(e.ID, e.Tenant, e.Caller, e.RequestID, e.TraceID)
	if q := e.Request; q != nil {
		if of := q.Asked; e.Kind != decisionlog.KindBatch {
			l.names += l.quoted(of.Subject.Type, of.Subject.ID, of.Action.Name, of.Resource.Type, of.Resource.ID)
			l.values += valuesOf(of)
		} else {
			l.values += valuesOfShared(of, q.Shared)
		}
		if q.Unknown != nil {
			l.rest += len(`,"unknown":[]`) + l.quoted(q.Unknown...)
		}
		l.values += l.hidden(q.Masked)
		if q.Shape == evaluation.Native {
			l.rest += len(`,"shape":"native"`)
		}
	}
	if d := e.Decision; d != nil {
		l.rest += l.quoted(d.Mismatch...) + l.quoted(d.Bundle)
		if d.Approved {
			l.rest += len(`,"approved":true`)
		}
		list, written := -len(","), 0
		for _, o := range d.Obligations {
			list += len(`{"id":"type":"properties":},`) + l.quoted(o.ID, o.Type) + o.Properties.Size()
			written += len(`{"id":"","type":"","properties":},`) + len(o.ID) + len(o.Type) + o.Written
		}
		l.copied += max(0, list-written)
	}
	most := recordedPerByte*l.size + recordedPerItem*l.items
	if l.names+l.values+l.copied+l.rest <= most {
		return nil
	}
	return &evaluation.Error{
		TooLarge: true,
		Detail: fmt.Sprintf("the records of this batch take more than %d bytes: %d for each of the %d that it has, and %d an item",
			most, recordedPerByte, l.size, recordedPerItem),
		Try: l.try(),
	}
}

// valuesOf is the size of a request in a line, besides its names with a comma for each.
func valuesOf(r *evaluation.Request) int {
	n := 2*len(`{"type":,"id":}`) + len(`{"name":}`) - 5*len(",")
	for _, o := range [...]evaluation.Object{r.Subject.Properties, r.Action.Properties, r.Resource.Properties} {
		if o.Len() > 0 {
			n += len(`,"properties":`) + o.Size()
		}
	}
	if r.Context.Len() > 0 {
		n += r.Context.Size()
	}
	return n
}

// valuesOfShared is the size of the inherited parts in the line of their batch.
func valuesOfShared(r *evaluation.Request, has evaluation.Inherited) (n int) {
	for _, part := range [...]struct {
		has bool
		o   evaluation.Object
	}{{has.Subject, r.Subject.Properties}, {has.Action, r.Action.Properties}, {has.Resource, r.Resource.Properties}} {
		if part.has {
			n += len(`{"properties":}`) + part.o.Size()
		}
	}
	if has.Context {
		n += r.Context.Size()
	}
	return n
}

// hidden is the length of the list of hidden places in a line.
func (l *batchLimit) hidden(all []evaluation.Hidden) (n int) {
	if all == nil {
		return 0
	}
	n = len(`,"masked":[]`)
	for _, h := range all {
		n += len(`{"at":,"type":""}`) + l.quoted(h.At) + len(h.Type)
		if h.Part {
			n += len(`,"part":true`)
		}
		if h.Removed {
			n += len(`,"removed":true`)
		}
	}
	return n
}

// try advises to send less of the largest part.
func (l *batchLimit) try() string {
	switch max(l.names, l.values, l.copied, l.rest) {
	case l.copied:
		return "send fewer items at once, or less in what obligations copy from what they inherit"
	case l.names:
		return "send fewer items at once, or a shorter type, id or name for them to inherit: each item's record has its own"
	case l.values:
		return "send fewer small values that are masked, or fewer items at once: each is recorded as a digest of 29 characters, with its place"
	}
	return "send fewer items at once, or a shorter X-Request-ID or options.unknown: each item's record has them"
}

// quoted is the length of texts as a line has them.
func (l *batchLimit) quoted(all ...string) (n int) {
	for _, text := range all {
		l.quote, _ = jsontext.AppendQuote(l.quote[:0], text)
		n += len(l.quote) + len(",")
	}
	return n
}
