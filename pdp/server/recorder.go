package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/decisionlog"
	"policy-service/pdp/decisionlog/mask"
	"policy-service/pdp/server/door"
)

// recorder puts decisions on the log, masked. It is there before the log is: a
// decision made meanwhile finds none, and is not answered.
type recorder struct {
	log  appender
	mask func(context.Context) *mask.Masker // that of the request the record is of
}

// appender is what the recorder needs of a [decisionlog.Log].
type appender interface {
	Append(context.Context, []decisionlog.Entry) (first uint64, err error)
}

var errNoLog = errors.New("the decision log is not open")

// Record implements [pdp.Recorder].
func (r *recorder) Record(ctx context.Context, records []pdp.Record) error {
	if r.log == nil {
		return errNoLog
	}
	if len(records) == 0 {
		return nil
	}
	entries, err := r.entries(ctx, records)
	if err != nil {
		return err
	}
	door.EndShift(ctx)
	_, err = r.log.Append(ctx, entries)
	switch {
	case !errors.Is(err, decisionlog.ErrTooLarge):
		return err
	case len(entries) > 1:
		return tooMuch("the records of this batch", decisionlog.MaxAppend)
	}
	return tooMuch("this request and what it is answered, with its secrets masked,", decisionlog.MaxLine)
}

func (r *recorder) entries(ctx context.Context, records []pdp.Record) ([]decisionlog.Entry, error) {
	masker := r.mask(ctx)
	if records[0].Item.Batch != "" {
		return batchEntries(ctx, masker, records)
	}
	entries := make([]decisionlog.Entry, len(records))
	for n, record := range records {
		e, err := entryOf(record, masker.Of(record.Call.Request, owedBy(record.Decision)...))
		if err != nil {
			return nil, err
		}
		entries[n] = e
	}
	return entries, nil
}

// tooMuch is the caller's to mend, like a body that is too large.
func tooMuch(what string, most int) error {
	return &evaluation.Error{
		TooLarge: true, Detail: fmt.Sprintf("%s are more than %d bytes on record", what, most),
		Try: "send fewer items at once, or less in what obligations repeat",
	}
}

// owedBy are the properties of what is owed.
func owedBy(d evaluation.Decision) []evaluation.Object {
	owed := make([]evaluation.Object, len(d.Obligations))
	for n, o := range d.Obligations {
		owed[n] = o.Properties
	}
	return owed
}

// entryOf is a record without its secrets.
func entryOf(record pdp.Record, masked *mask.Masking) (decisionlog.Entry, error) {
	call, d := record.Call, record.Decision
	e := decisionlog.Entry{
		ID: record.ID, Kind: decisionlog.KindDecision, Tenant: call.Request.Tenant,
		Caller: call.Asker.Name, RequestID: call.RequestID, TraceID: call.TraceID, Now: record.Time,
	}
	var err error
	switch {
	case record.Search != nil:
		e.Kind, e.Search = decisionlog.KindSearch, searchOf(record)
		e.Request, err = requestOf(masked.Request(), record.Kind)
	case d.Malformed != nil && empty(call.Request):
		// It never became a request.
	default:
		e.Request, err = requestOf(masked.Request(), "")
	}
	if err != nil {
		return e, err
	}
	if record.Search == nil {
		e.Decision, err = decisionOf(d, masked)
	}
	if err == nil && d.Malformed != nil {
		e.Details, err = malformedOf(d.Malformed, masked)
	}
	return e, err
}

func empty(r evaluation.Request) bool {
	nothing := func(e evaluation.Entity) bool { return e.Type == "" && e.ID == "" && e.Properties.Len() == 0 }
	return nothing(r.Subject) && nothing(r.Resource) && r.Action.Name == "" && r.Action.Properties.Len() == 0 && r.Context.Len() == 0
}

// requestOf is a request in the AuthZEN form. What a search looks for is left out of
// it, as it is of a search's body.
func requestOf(r evaluation.Request, searched evaluation.SearchKind) (*decisionlog.Request, error) {
	subject, err := entityOf(r.Subject, searched == evaluation.SubjectSearch)
	if err != nil {
		return nil, err
	}
	resource, err := entityOf(r.Resource, searched == evaluation.ResourceSearch)
	if err != nil {
		return nil, err
	}
	out := decisionlog.Request{Subject: subject, Resource: resource}
	if searched != evaluation.ActionSearch {
		if out.Action, err = r.Action.MarshalJSON(); err != nil {
			return nil, err
		}
	}
	if r.Context.Len() > 0 {
		out.Context, err = r.Context.MarshalJSON()
	}
	return &out, err
}

// entityOf writes an entity, or its type alone.
func entityOf(e evaluation.Entity, searched bool) (jsontext.Value, error) {
	if searched {
		return door.Marshal(typed{e.Type})
	}
	return e.MarshalJSON()
}

type typed struct {
	Type string `json:"type"`
}
