// Package record says what a record of the decision log is. An [Entry] is what goes on record: [Entry.AppendBody] writes its line,
// as package format specifies it. [Parse] reads a line, and [Resolve] a line with the parts that it inherits from the record of its
// batch. A [Filter] picks records, and a [Sieve] those that have a text.
//
// The package reads no files. Package segment finds a record, and checks that it is the one that was written.
package record

import (
	"fmt"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/internal/decisionlog/format"
)

// Entry becomes a record, which the log gives a sequence, a time and a salt. Secrets in it must be masked.
type Entry struct {
	ID                         string
	Kind                       string
	Tenant                     string
	Caller, RequestID, TraceID string
	// Declared lists the obligation types of the caller's registration. It is nil without a registration, and empty if the
	// registration declares no type.
	Declared []string
	// Payer is the account that the record counts toward, if that is not the account of Caller: the requester in the details of a
	// step that an approval request takes by itself, or the person for whom a caller asks that relays many.
	Payer string
	// Now is the clock reading that a decision was made with, or zero.
	Now     time.Time
	Request *Request
	// Inherits lists the parts of the request of a batch's item that stand in the batch's record of
	// [format.KindBatch]: subject, action, resource (their properties), context, and
	// supported_obligations, which the item's context lacks.
	Inherits []string
	Search   *Search   // in kind search
	Decision *Decision // in kinds decision and possible, and in later kinds that have a decision
	// Questions replaces Decision in the record of kind possible of a batch.
	Questions *Questions
	// Event and Details, a JSON object, describe the event in kind admin and later kinds.
	Event   string
	Details jsontext.Value
	// Keys is the number of API keys at an event about the keys: see [segment.Vouched].
	Keys uint64
}

// Request is a masked request.
type Request struct {
	// Asked is the request itself. A record of a search leaves out the searched entity, except its type.
	Asked *evaluation.Request `json:"-"`
	// Shared says which parts of Asked a record of [format.KindBatch] has, even if masking left nothing of a part.
	Shared evaluation.Inherited `json:"-"`

	// The parts of a request without Asked. Each is a finished JSON value in the AuthZEN form; an
	// empty part is left out.
	Subject  jsontext.Value `json:"subject,omitzero"`
	Action   jsontext.Value `json:"action,omitzero"`
	Resource jsontext.Value `json:"resource,omitzero"`
	Context  jsontext.Value `json:"context,omitzero"`
	// Shape is the shape that the request came in.
	Shape evaluation.Shape `json:"-"`
	// Masked lists the places where the request differs from the sent request. Empty and nil differ: see package format.
	Masked []evaluation.Hidden `json:"-"`
	// Unknown lists the places with unknown values, in a request for possible answers. Empty and nil differ.
	Unknown []string `json:"-"`
}

// Search is the answer to a search.
type Search struct {
	Query    evaluation.SearchKind // the searched kind
	Found    []string              // ids, or names of actions
	Examined int                   // how many candidates were examined
	Bundle   string                // digest of the bundle that decided
}

// Decision is the answer to a request. The properties of its obligations must be masked.
type Decision struct {
	Allow              bool
	Possible           evaluation.Possibility // replaces Allow in a record of [format.KindPossible]
	Approved           bool                   // the policies gave this answer when asked with an approval
	Adopted            *bool                  // whether the PEP adopted October's draft of obligations; nil if July's counted
	Reason, ReasonUser string
	Determining        []string
	Overruled          []string // policies whose allow became a deny for the reason
	Errors             []evaluation.PolicyError
	Obligations        []evaluation.Obligation
	Required           []string
	LeftOut            []evaluation.LeftOut
	Discharged         []evaluation.Met // obligations that an approval has met
	Capability         *Capability
	Mismatch           []string // JSON Pointers
	Bundle             string
}

// Capability says whether the capability that a request showed counted: either it is held, or there is a reason why not.
// The proof is there if it was good.
type Capability struct {
	// ID is "" if the tenant has no such capability, or if nobody looked for it.
	ID     string `json:"id,omitzero"`
	Held   bool   `json:"held"`
	Depth  int    `json:"depth"`
	Reason string `json:"reason,omitzero"`
	// Used reports whether the decision spent a use, and Grants whether it granted or renewed the capability.
	Used   bool   `json:"used,omitzero"`
	Grants bool   `json:"grants,omitzero"`
	Proof  *Proof `json:"proof,omitzero"`
	// Ancestors are the capabilities that were handed on to make this capability, the parent first. Each use counts for them too.
	Ancestors []string `json:"ancestors,omitzero"`
}

// Proof is a proof that was accepted for a call. It has all members that its holder signed, so that an auditor who has the
// key can check the signature. If any argument is masked, Arguments is a keyed hash, and Evidence replaces Signature: it
// seals the hash that the holder signed, and the signature. An evidence.Key writes all three.
type Proof struct {
	Key       string  `json:"jkt"` // the thumbprint of the holder's key
	ID        string  `json:"jti"`
	IssuedAt  int64   `json:"iat"`
	Audience  string  `json:"aud"`
	Tool      string  `json:"tool"`
	Arguments Written `json:"args,omitzero"`
	Nonce     string  `json:"nonce,omitzero"`
	Algorithm string  `json:"alg"`
	Signature Written `json:"signature,omitzero"`
	Evidence  Written `json:"evidence,omitzero"`
}

// Written is a text that an evidence.Key wrote for a record. No other string becomes one by an assignment.
type Written string

// Receipt reports what a PEP did about the obligations of one decision. It changes no decision.
type Receipt struct {
	Decision    string               `json:"decision"` // id
	Obligations []evaluation.Receipt `json:"obligations"`
}

// Entry returns the entry of a receipt.
func (r Receipt) Entry(tenant, caller string) Entry {
	return Entry{Kind: format.KindReceipt, Tenant: tenant, Caller: caller, Details: Details(r)}
}

// Withdrawn has the details of a record of [format.EventWithdrawn], which names an approval or a capability.
type Withdrawn struct {
	Decision   string `json:"decision"`
	Approval   string `json:"approval,omitzero"`
	Capability string `json:"capability,omitzero"`
	Reason     string `json:"reason"`
}

// body appends members and keeps the first error.
type body struct {
	out []byte
	err error
}

// AppendBody appends the members of e's line between its head and its salt.
func (e *Entry) AppendBody(to []byte) ([]byte, error) {
	b := body{out: to}
	if !e.Now.IsZero() {
		b.name("now")
		b.out = append(e.Now.UTC().AppendFormat(append(b.out, '"'), format.TimeLayout), '"')
	}
	b.text("tenant", e.Tenant)
	b.text("kind", e.Kind)
	b.text("caller", e.Caller)
	listOrEmpty(&b, "declared", e.Declared, quote)
	b.text("request_id", e.RequestID)
	b.text("trace_id", e.TraceID)
	if e.Questions != nil {
		b.questions(e)
		return b.out, b.err
	}
	b.request(e)
	list(&b, "inherits", e.Inherits, quote)
	if s := e.Search; s != nil {
		b.text("query", string(s.Query))
		list(&b, "found", s.Found, quote)
		b.name("examined")
		b.out = strconv.AppendInt(b.out, int64(s.Examined), 10)
		b.text("bundle", s.Bundle)
	}
	if e.Decision != nil {
		b.decision(e.Decision)
	}
	b.text("event", e.Event)
	b.value("details", e.Details)
	return b.out, b.err
}

func (b *body) name(name string) {
	b.out = append(append(append(b.out, `,"`...), name...), `":`...)
}

func (b *body) text(name, s string) {
	if s != "" {
		b.name(name)
		b.out = quote(b.out, s)
	}
}

// value appends a finished JSON value without the whitespace between its tokens: a newline would split the record into
// two lines.
func (b *body) value(name string, v jsontext.Value) {
	if len(v) == 0 || b.err != nil {
		return
	}
	b.name(name)
	if b.out, b.err = jsontext.AppendFormat(b.out, v); b.err != nil {
		b.err = fmt.Errorf("%s is no JSON", name) // the cause quotes the text
	}
}

// request appends the request of an entry, and how it differs from the request that was sent.
func (b *body) request(e *Entry) {
	q := e.Request
	if q == nil {
		return
	}
	b.name("request")
	start := len(b.out)
	switch {
	case q.Asked == nil:
		b.value("subject", q.Subject)
		b.value("action", q.Action)
		b.value("resource", q.Resource)
		b.value("context", q.Context)
	case e.Kind == format.KindBatch:
		b.shared(q, Same{})
	case e.Questions != nil:
		b.shared(q, e.Questions.Same)
	default:
		var searched evaluation.SearchKind
		if e.Search != nil {
			searched = e.Search.Query
		}
		b.entity("subject", q.Asked.Subject, searched == evaluation.SubjectSearch)
		if searched != evaluation.ActionSearch {
			b.name("action")
			b.out = q.Asked.Action.AppendJSON(b.out)
		}
		b.entity("resource", q.Asked.Resource, searched == evaluation.ResourceSearch)
		b.context(q.Asked)
	}
	if len(b.out) == start {
		b.out = append(b.out, "{}"...)
	} else {
		b.out[start] = '{' // replaces the comma before the first member
		b.out = append(b.out, '}')
	}
	b.differences(q)
}

// entity appends an entity, or only its type if the request searches for entities of the type.
func (b *body) entity(name string, e evaluation.Entity, searched bool) {
	b.name(name)
	if !searched {
		b.out = e.AppendJSON(b.out)
		return
	}
	b.out = append(quote(append(b.out, `{"type":`...), e.Type), '}')
}

func (b *body) context(q *evaluation.Request) {
	if q.Context.Len() > 0 {
		b.name("context")
		b.out = q.Context.AppendJSON(b.out)
	}
}

// shared appends the parts that items of a batch inherit, and the types, ids and names that all questions with unknown
// places have in common.
func (b *body) shared(q *Request, same Same) {
	part := func(name string, named, has bool, names []byte, o evaluation.Object) {
		if !named && !has {
			return
		}
		b.name(name)
		if b.out = append(b.out, '{'); named {
			b.out = append(b.out, names[1:len(names)-1]...)
		}
		if named && has {
			b.out = append(b.out, ',')
		}
		if has {
			b.out = o.AppendJSON(append(b.out, `"properties":`...))
		}
		b.out = append(b.out, '}')
	}
	asked, has, names := q.Asked, q.Shared, namesOf(q.Asked)
	part("subject", same.Subject, has.Subject, names.Subject.AppendJSON(nil), asked.Subject.Properties)
	part("action", same.Action, has.Action, names.Action.AppendJSON(nil), asked.Action.Properties)
	part("resource", same.Resource, has.Resource, names.Resource.AppendJSON(nil), asked.Resource.Properties)
	if has.Context {
		b.name("context")
		b.out = asked.Context.AppendJSON(b.out)
	}
}

// differences appends the shape of the request that was sent, and the places that are masked or were unknown.
func (b *body) differences(q *Request) {
	if q.Shape == evaluation.Native {
		b.text("shape", shapeNative)
	}
	listOrEmpty(b, "masked", q.Masked, appendHidden)
	listOrEmpty(b, "unknown", q.Unknown, quote)
}

func (b *body) decision(d *Decision) {
	if d.Possible == evaluation.Decided {
		b.name("decision")
		b.out = strconv.AppendBool(b.out, d.Allow)
	} else {
		b.name("possible")
		b.out = strconv.AppendBool(b.out, d.Possible == evaluation.Possible)
	}
	if d.Approved {
		b.name("approved")
		b.out = append(b.out, "true"...)
	}
	if d.Adopted != nil {
		b.name("adopted")
		b.out = strconv.AppendBool(b.out, *d.Adopted)
	}
	b.text("reason", d.Reason)
	b.text("reason_user", d.ReasonUser)
	list(b, "determining", d.Determining, quote)
	list(b, "overruled", d.Overruled, quote)
	list(b, "errors", d.Errors, appendError)
	list(b, "obligations", d.Obligations, appendObligation)
	list(b, "required", d.Required, quote)
	list(b, "left_out", d.LeftOut, appendLeftOut)
	list(b, "discharged", d.Discharged, appendMet)
	if d.Capability != nil {
		b.name("capability")
		b.out = appendCapability(b.out, d.Capability)
	}
	list(b, "mismatch", d.Mismatch, quote)
	b.text("bundle", d.Bundle)
}

// list appends a list, unless it is empty.
func list[T any](b *body, name string, items []T, item func([]byte, T) []byte) {
	if len(items) > 0 {
		listOrEmpty(b, name, items, item)
	}
}

// listOrEmpty appends a list, unless it is nil: an empty list has a meaning of its own.
func listOrEmpty[T any](b *body, name string, items []T, item func([]byte, T) []byte) {
	if items == nil {
		return
	}
	b.name(name)
	b.out = append(b.out, '[')
	for n, one := range items {
		if n > 0 {
			b.out = append(b.out, ',')
		}
		b.out = item(b.out, one)
	}
	b.out = append(b.out, ']')
}

func appendError(b []byte, e evaluation.PolicyError) []byte {
	b = quote(append(b, `{"policy":`...), e.Policy)
	b = quote(append(b, `,"position":`...), e.Position)
	b = quote(append(b, `,"kind":`...), string(e.Kind))
	return append(b, '}')
}

// appendObligation appends an obligation as it is answered. The determining policies include those that ordered it.
func appendObligation(b []byte, o evaluation.Obligation) []byte {
	b = quote(append(b, `{"id":`...), o.ID)
	b = quote(append(b, `,"type":`...), o.Type)
	return append(o.Properties.AppendJSON(append(b, `,"properties":`...)), '}')
}

func appendLeftOut(b []byte, l evaluation.LeftOut) []byte {
	b = quote(append(b, `{"id":`...), l.ID)
	b = quote(append(b, `,"reason":`...), string(l.Reason))
	return append(b, '}')
}

func appendMet(b []byte, m evaluation.Met) []byte {
	b = quote(append(b, `{"id":`...), m.ID)
	b = quote(append(b, `,"type":`...), m.Type)
	b = quote(append(b, `,"approval":`...), m.Approval)
	if m.Continues != (evaluation.Continuation{}) {
		b = quote(append(b, `,"continues":{"decision":`...), m.Continues.Decision)
		b = append(strconv.AppendInt(append(b, `,"round":`...), int64(m.Continues.Round), 10), '}')
	}
	if m.Shares != "" {
		b = quote(append(b, `,"shares":`...), m.Shares)
	}
	return append(b, '}')
}

// AncestorsMember begins the list of a capability's ancestors in a line.
const AncestorsMember = `"ancestors":[`

// appendCapability appends a capability. The caller chose the texts of a proof.
func appendCapability(b []byte, c *Capability) []byte {
	b = append(b, '{')
	if c.ID != "" {
		b = append(quote(append(b, `"id":`...), c.ID), ',')
	}
	b = strconv.AppendBool(append(b, `"held":`...), c.Held)
	b = strconv.AppendInt(append(b, `,"depth":`...), int64(c.Depth), 10)
	for n, id := range c.Ancestors {
		if b = append(b, ','); n == 0 {
			b = append(b, AncestorsMember...)
		}
		b = quote(b, id)
	}
	if len(c.Ancestors) > 0 {
		b = append(b, ']')
	}
	if c.Reason != "" {
		b = quote(append(b, `,"reason":`...), c.Reason)
	}
	if c.Used {
		b = append(b, `,"used":true`...)
	}
	if c.Grants {
		b = append(b, `,"grants":true`...)
	}
	if p := c.Proof; p != nil {
		b = quote(append(b, `,"proof":{"jkt":`...), p.Key)
		b = quote(append(b, `,"jti":`...), p.ID)
		b = strconv.AppendInt(append(b, `,"iat":`...), p.IssuedAt, 10)
		b = quote(append(b, `,"aud":`...), p.Audience)
		b = quote(append(b, `,"tool":`...), p.Tool)
		if p.Arguments != "" {
			b = quote(append(b, `,"args":`...), string(p.Arguments))
		}
		if p.Nonce != "" {
			b = quote(append(b, `,"nonce":`...), p.Nonce)
		}
		b = quote(append(b, `,"alg":`...), p.Algorithm)
		if p.Signature != "" {
			b = quote(append(b, `,"signature":`...), string(p.Signature))
		}
		if p.Evidence != "" {
			b = quote(append(b, `,"evidence":`...), string(p.Evidence))
		}
		b = append(b, '}')
	}
	return append(b, '}')
}

func appendHidden(b []byte, h evaluation.Hidden) []byte {
	b = quote(append(b, `{"at":`...), h.At)
	b = quote(append(b, `,"type":`...), h.Type)
	if h.Part {
		b = append(b, `,"part":true`...)
	}
	if h.Removed {
		b = append(b, `,"removed":true`...)
	}
	return append(b, '}')
}

// quote appends s as a JSON string; bytes that are not UTF-8 become U+FFFD.
func quote(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s)
	return b
}

// Details encodes details of the log's own events. It panics on a value that has no JSON form.
func Details(v any) jsontext.Value {
	b, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		panic(err)
	}
	return b
}
