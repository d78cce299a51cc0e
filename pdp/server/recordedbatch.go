package server

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/decisionlog"
	"policy-service/pdp/decisionlog/mask"
	"policy-service/pdp/server/door"
)

// What callers put on record with a batch is so many bytes at most for each byte of its
// body, and for each item on record: items inherit, and a megabyte of defaults and a
// thousand items must not make a gigabyte of records.
const (
	recordedPerByte = 4
	recordedPerItem = 1 << 10
)

// batchEntries are the records of a batch's items, after the one of what they inherit
// where they inherit anything. All is read for secrets first and masked by them then,
// each part once.
func batchEntries(ctx context.Context, masker *mask.Masker, records []pdp.Record) ([]decisionlog.Entry, error) {
	var shared evaluation.Request
	inherited, secrets := false, masker.Gather()
	for _, record := range records {
		if err := door.GoOn(ctx); err != nil {
			return nil, err
		}
		of, r := record.Item.Inherits, record.Call.Request
		secrets.Add(of.Own(r), owedBy(record.Decision)...)
		shared, inherited = of.Shared(r, shared), inherited || of.Any()
	}
	secrets.Add(shared)
	masked, room := secrets.Of(shared), roomFor(records)
	entries := make([]decisionlog.Entry, 0, len(records)+1)
	if inherited {
		e, err := sharedEntry(records[0], shared, masked.Request())
		if err != nil {
			return nil, err
		}
		if err := room.take(e, records[0]); err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	for _, record := range records {
		if err := door.GoOn(ctx); err != nil {
			return nil, err
		}
		e, err := entryOf(record, masked.With(record.Item.Inherits.Own(record.Call.Request)))
		if err != nil {
			return nil, err
		}
		e.Inherits = record.Item.Inherits.Members()
		if err := room.take(e, record); err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// sharedEntry is the record of what the items of a batch inherit: without type, id or
// name, as it is no question. What is inherited has its place there also where masking
// left nothing of it.
func sharedEntry(first pdp.Record, shared, masked evaluation.Request) (e decisionlog.Entry, err error) {
	e = decisionlog.Entry{
		ID: first.Item.Batch, Kind: decisionlog.KindBatch, Tenant: first.Call.Request.Tenant,
		Caller: first.Call.Asker.Name, RequestID: first.Call.RequestID, TraceID: first.Call.TraceID, Now: first.Time,
		Request: new(decisionlog.Request),
	}
	for _, part := range []struct {
		to     *jsontext.Value
		is, as evaluation.Object
	}{
		{&e.Request.Subject, shared.Subject.Properties, masked.Subject.Properties},
		{&e.Request.Action, shared.Action.Properties, masked.Action.Properties},
		{&e.Request.Resource, shared.Resource.Properties, masked.Resource.Properties},
	} {
		if part.is.Len() > 0 && err == nil {
			*part.to, err = evaluation.Object{}.With("properties", part.as.Value()).MarshalJSON()
		}
	}
	if shared.Context.Len() > 0 && err == nil {
		e.Request.Context, err = masked.Context.MarshalJSON()
	}
	return e, err
}

// room is what a batch may put on record, and what takes how much of it. What policies
// add, their names and texts and what they write in obligations, is not the caller's.
type room struct {
	most, size int
	names      int // type, id and name, which each item's record has
	values     int // properties and context, masked
	copied     int // what obligations have of them
	rest       int
	quote      []byte
}

func roomFor(records []pdp.Record) *room {
	return &room{most: recordedPerByte*records[0].Item.Size + recordedPerItem*len(records), size: records[0].Item.Size}
}

// lineFrame is what every line has whoever asks: names of members, times, the salt, a reason.
const lineFrame = 370

// take counts an entry of a record.
func (r *room) take(e decisionlog.Entry, record pdp.Record) error {
	r.rest += lineFrame + len(e.Details) + r.quoted(e.Inherits...) + r.quoted(e.ID, e.Tenant, e.Caller, e.RequestID, e.TraceID)
	if q, of := e.Request, record.Call.Request; q != nil {
		names := 0
		if e.Kind == decisionlog.KindDecision {
			names = r.quoted(of.Subject.Type, of.Subject.ID, of.Action.Name, of.Resource.Type, of.Resource.ID)
		}
		r.names += names
		r.values += len(q.Subject) + len(q.Action) + len(q.Resource) + len(q.Context) - names
	}
	if d := e.Decision; d != nil {
		r.rest += r.quoted(d.Mismatch...) + r.quoted(d.Bundle)
		written := 0
		for _, o := range record.Decision.Obligations {
			written += o.Written + len(`{"id":"","type":"","properties":},`) + len(o.ID) + len(o.Type)
		}
		r.copied += max(0, len(d.Obligations)-len(`[]`)-written)
	}
	if r.names+r.values+r.copied+r.rest <= r.most {
		return nil
	}
	return &evaluation.Error{
		TooLarge: true, Try: r.try(),
		Detail: fmt.Sprintf("the records of this batch take more than %d bytes: %d for each of the %d that it has, and %d an item", r.most, recordedPerByte, r.size, recordedPerItem),
	}
}

// try says what to send less of: of what takes most.
func (r *room) try() string {
	switch max(r.names, r.values, r.copied, r.rest) {
	case r.copied:
		return "send fewer items at once, or less in what obligations copy from what they inherit"
	case r.names:
		return "send fewer items at once, or a shorter type, id or name for them to inherit: each item's record has its own"
	case r.values:
		return "send fewer small values that are masked, or fewer items at once: each is recorded as a digest of 29 characters"
	}
	return "send fewer items at once, or a shorter X-Request-ID: each item's record has it"
}

// quoted is the length of texts as a line has them.
func (r *room) quoted(all ...string) (n int) {
	for _, text := range all {
		r.quote, _ = jsontext.AppendQuote(r.quote[:0], text)
		n += len(r.quote) + len(",")
	}
	return n
}
