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

// newEntry returns an entry with the members that every kind of record has. No caller asks for the shared parts of a
// batch, so their record leaves out which obligations the caller's registration declares.
func newEntry(rec *pdp.Record, id, kind string) record.Entry {
	call := &rec.Call
	e := record.Entry{
		ID:        id,
		Kind:      kind,
		Tenant:    call.Request.Tenant,
		Caller:    call.Asker.Name,
		RequestID: call.RequestID,
		TraceID:   call.TraceID,
		Now:       rec.Time,
	}
	if call.Asker.Relays { // the record counts toward the account of the person, not of the relay
		person := decisionlog.PersonIn(call.Request.Person(), call.Request.Subject.Ref())
		e.Payer = decisionlog.ForPerson(call.Asker.Name, person)
	}
	if call.Registered && kind != format.KindBatch {
		if e.Declared = call.Obligations; e.Declared == nil {
			e.Declared = []string{} // nil means no registration
		}
	}
	return e
}

// entryOf returns the entry of a search or a decision, with its secrets masked.
func entryOf(rec *pdp.Record, masked *mask.Masking) (e record.Entry, err error) {
	if rec.Search != nil {
		e = newEntry(rec, rec.ID, format.KindSearch)
		e.Request = requestOf(masked)
		found := make([]string, len(rec.Search.Found))
		for n, f := range rec.Search.Found {
			if found[n] = f.ID; rec.Kind == evaluation.ActionSearch {
				found[n] = f.Name
			}
		}
		e.Search = &record.Search{Query: rec.Kind, Found: found, Examined: rec.Search.Examined, Bundle: rec.Bundle}
		return e, nil
	}
	e = newEntry(rec, rec.ID, format.KindDecision)
	e.Request = requestOf(masked)
	e.Decision = decisionOf(&rec.Decision, masked)
	e.Decision.Approved = rec.Approved
	if rec.Capability != nil {
		e.Decision.Capability = capabilityOf(rec, masked)
	}
	if bad := rec.Decision.Malformed; bad != nil {
		if isEmpty(&rec.Call.Request) { // the item never became a request
			e.Request = nil
		}
		type malformed struct {
			Pointer string `json:"pointer"`
			Detail  string `json:"detail"`
		}
		// The error quotes names of members, which the caller chose.
		e.Details, err = marshal(map[string]malformed{"malformed": {masked.Pointer(bad.Pointer, ""), masked.Text(bad.Detail)}})
	}
	if asksPossible(rec) {
		e.Kind = format.KindPossible
		body, err := e.AppendBody(nil)
		if err != nil {
			return e, err
		}
		if len(body) > format.MaxPossible {
			e = withoutRoom(e)
		}
	}
	return e, err
}

func isEmpty(r *evaluation.Request) bool {
	nothing := func(e *evaluation.Entity) bool { return e.Type == "" && e.ID == "" && e.Properties.Len() == 0 }
	return nothing(&r.Subject) && nothing(&r.Resource) &&
		r.Action.Name == "" && r.Action.Properties.Len() == 0 && r.Context.Len() == 0
}

func requestOf(masked *mask.Masking) *record.Request {
	asked := &masked.Request
	q := &record.Request{Asked: asked, Shape: asked.Shape, Masked: masked.Hidden}
	if asked.Unknown == nil {
		return q
	}
	q.Unknown = asked.Unknown.Pointers()
	for n, pointer := range q.Unknown {
		shown := masked.Pointer(pointer, pointer)
		if strings.Count(shown, "/") < strings.Count(pointer, "/") {
			shown += record.MaskedPointerEnd
		}
		q.Unknown[n] = shown
	}
	return q
}

// The pointers to values that do not fit the schema are bounded: a thousand items may inherit such a value.
const (
	maxPointers = 512  // bytes in one record
	more        = "/…" // in the place of the pointers that have no room
)

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
		Bundle:      d.Bundle,
	}
	if d.Draft == evaluation.October && d.Possible == evaluation.Decided {
		out.Adopted = new(d.Adopted)
	}
	for n, o := range out.Obligations {
		out.Obligations[n].Properties = masked.Object(o.Properties)
	}
	room := maxPointers
	for _, m := range d.Mismatch {
		pointer := masked.Pointer(m.Pointer, m.Place)
		if room -= len(pointer); room < 0 && len(out.Mismatch) > 0 {
			out.Mismatch = append(out.Mismatch, more)
			break
		}
		out.Mismatch = append(out.Mismatch, pointer)
	}
	out.Mismatch = slices.Compact(out.Mismatch)
	return out
}

// capabilityOf returns the capability that a request showed, and its proof. If any argument is masked, the proof
// holds nothing that a guess of the argument can be compared with.
func capabilityOf(rec *pdp.Record, masked *mask.Masking) *record.Capability {
	c := rec.Capability
	out := &record.Capability{
		ID: c.ID, Held: c.Held, Depth: c.Depth, Reason: c.Reason, Used: c.Used, Grants: c.Grants, Ancestors: c.Ancestors,
	}
	p := c.Proof
	if p == nil {
		return out
	}
	out.Proof = &record.Proof{
		Key: p.Key, ID: p.ID, IssuedAt: p.IssuedAt, Audience: p.Audience, Tool: p.Tool, Nonce: p.Nonce, Algorithm: p.Algorithm,
	}
	key := masked.Evidence(rec.Call.Request.Tenant)
	if masked.Hides("context", "arguments") {
		out.Proof.Arguments, out.Proof.Evidence = record.Written(key.Hash(p.Arguments)), record.Written(key.Seal(rec.ID, p.Arguments, p.Signature))
	} else {
		out.Proof.Arguments, out.Proof.Signature = record.Written(key.Plain(p.Arguments)), record.Written(key.Plain(p.Signature))
	}
	return out
}

// marshal writes v with members in a fixed order. Names of files may hold bytes that are not UTF-8; they become U+FFFD.
func marshal(v any) (jsontext.Value, error) {
	return json.Marshal(v, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
}
