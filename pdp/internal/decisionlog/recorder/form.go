package recorder

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/mask"
	"policy-service/pdp/internal/decisionlog/record"
)

// newEntry has what every entry of a record has. The record of the inherited parts of a batch is no question
// of a caller, so it does not say which obligations the caller's registration declares.
func newEntry(rec *pdp.Record, id, kind string) record.Entry {
	call := &rec.Call
	var declared []string
	if call.Registered && kind != format.KindBatch {
		if declared = call.Obligations; declared == nil {
			declared = []string{} // which is not the same as no registration
		}
	}
	return record.Entry{
		ID:        id,
		Kind:      kind,
		Tenant:    call.Request.Tenant,
		Caller:    call.Asker.Name,
		Payer:     payerOf(call),
		Declared:  declared,
		RequestID: call.RequestID,
		TraceID:   call.TraceID,
		Now:       rec.Time,
	}
}

// payerOf is whose account the record of a call counts toward, if that is not its caller's.
func payerOf(call *pdp.Call) string {
	if !call.Asker.Relays {
		return ""
	}
	of := &call.Request
	return decisionlog.ForPerson(call.Asker.Name, decisionlog.PersonIn(of.Person(), of.Subject.Ref()))
}

// entryOf is the entry of a record without its secrets.
func entryOf(rec *pdp.Record, masked *mask.Masking) (e record.Entry, err error) {
	if rec.Search != nil {
		e = newEntry(rec, rec.ID, format.KindSearch)
		e.Search, e.Request = searchOf(rec), requestOf(masked)
		return e, nil
	}
	kind, d := format.KindDecision, &rec.Decision
	if d.Possible != evaluation.Decided {
		kind = format.KindPossible
	}
	e = newEntry(rec, rec.ID, kind)
	if d.Malformed == nil || !isEmpty(&rec.Call.Request) { // else it never became a request
		e.Request = requestOf(masked)
	}
	e.Decision = decisionOf(d, masked)
	e.Decision.Approved = rec.Approved
	if c := rec.Capability; c != nil {
		e.Decision.Capability = &record.Capability{
			ID: c.ID, Held: c.Held, Depth: c.Depth, Reason: c.Reason, Used: c.Used, Grants: c.Grants, Proof: proofOf(rec, masked),
			Ancestors: c.Ancestors,
		}
	}
	if d.Malformed != nil {
		e.Details, err = malformedOf(d.Malformed, masked)
	}
	if kind == format.KindPossible {
		if body, _ := e.AppendBody(nil); len(body) > format.MaxPossible { // the log refuses what cannot be written
			e = withoutRoom(e)
		}
	}
	return e, err
}

// proofOf returns the proof of the capability that a request showed as it goes on record, or nil without one. Where
// anything of the arguments is masked, nothing in it can be compared with a guess.
func proofOf(rec *pdp.Record, masked *mask.Masking) *record.Proof {
	p := rec.Capability.Proof
	if p == nil {
		return nil
	}
	key := masked.Evidence(rec.Call.Request.Tenant)
	out := &record.Proof{
		Key: p.Key, ID: p.ID, IssuedAt: p.IssuedAt, Audience: p.Audience, Tool: p.Tool, Nonce: p.Nonce, Algorithm: p.Algorithm,
	}
	if masked.Hides("context", "arguments") {
		out.Arguments, out.Evidence = key.Hash(p.Arguments), key.Seal(rec.ID, p.Arguments, p.Signature)
	} else {
		out.Arguments, out.Signature = key.Plain(p.Arguments), key.Plain(p.Signature)
	}
	return out
}

func isEmpty(r *evaluation.Request) bool {
	nothing := func(e *evaluation.Entity) bool { return e.Type == "" && e.ID == "" && e.Properties.Len() == 0 }
	return nothing(&r.Subject) && nothing(&r.Resource) &&
		r.Action.Name == "" && r.Action.Properties.Len() == 0 && r.Context.Len() == 0
}

func requestOf(masked *mask.Masking) *record.Request {
	r := &masked.Request
	return &record.Request{Asked: r, Shape: r.Shape, Masked: masked.Hidden, Unknown: unknownOf(r.Unknown, masked)}
}

// unknownOf are the places that were unknown. It is nil if the request had none.
func unknownOf(unknown *evaluation.Unknown, masked *mask.Masking) []string {
	pointers := unknown.Pointers()
	for n, pointer := range pointers {
		if pointers[n] = masked.Pointer(pointer, pointer); strings.Count(pointers[n], "/") < strings.Count(pointer, "/") {
			pointers[n] += record.Cut
		}
	}
	return pointers
}

// searchOf has the results of a search: ids, or names of actions.
func searchOf(rec *pdp.Record) *record.Search {
	found := make([]string, len(rec.Search.Found))
	for n, f := range rec.Search.Found {
		if found[n] = f.ID; rec.Kind == evaluation.ActionSearch {
			found[n] = f.Name
		}
	}
	return &record.Search{
		Query:    rec.Kind,
		Found:    found,
		Examined: rec.Search.Examined,
		Bundle:   rec.Bundle,
	}
}

func decisionOf(d *evaluation.Decision, masked *mask.Masking) *record.Decision {
	out := &record.Decision{
		Allow:       d.Allow,
		Possible:    d.Possible,
		Reason:      string(d.Reason),
		ReasonUser:  masked.Text(d.ReasonUser),
		Determining: d.Determining,
		Overruled:   d.Overruled,
		Errors:      d.Errors,
		Obligations: slices.Clone(d.Obligations),
		Required:    d.Required,
		LeftOut:     d.LeftOut,
		Discharged:  d.Met,
		Mismatch:    pointersOf(d.Mismatch, masked),
		Bundle:      d.Bundle,
	}
	for n, o := range out.Obligations {
		out.Obligations[n].Properties = masked.Object(o.Properties)
	}
	return out
}

type malformed struct {
	Pointer string `json:"pointer"`
	Detail  string `json:"detail"`
}

// malformedOf is the error of an item of a batch. It quotes names of members, which the caller chose, so they
// are masked as well.
func malformedOf(bad *evaluation.Error, masked *mask.Masking) (jsontext.Value, error) {
	return marshal(map[string]malformed{"malformed": {masked.Pointer(bad.Pointer, ""), masked.Text(bad.Detail)}})
}

// maxPointers limits the bytes of the pointers of one record: a thousand items may inherit a value that does not fit.
const maxPointers = 512

// more ends the pointers of a record if there are more than it has.
const more = "/…"

// pointersOf are the places of the values that do not fit the schema, as many as there is room for.
func pointersOf(all []evaluation.Mismatch, masked *mask.Masking) (pointers []string) {
	room := maxPointers
	for _, m := range all {
		pointer := masked.Pointer(m.Pointer, m.Place)
		if room -= len(pointer); room < 0 && len(pointers) > 0 {
			pointers = append(pointers, more)
			break
		}
		pointers = append(pointers, pointer)
	}
	return slices.Compact(pointers)
}

// marshal writes v with members in a fixed order. Names of files may hold bytes that are not UTF-8; they become U+FFFD.
func marshal(v any) (jsontext.Value, error) {
	return json.Marshal(v, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
}
