// Package record says what a record of the decision log is. An [Entry] is what goes on record: [Entry.AppendBody] writes its line,
// as package format specifies it. [Parse] reads a line, and [Resolve] a line with the parts that it inherits from the record of its
// batch. A [Filter] picks records, and a [Sieve] those that have a text.
//
// The package knows no file: where a record stands, and whether it is the one that was written, package segment says.
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

// Entry becomes a record: it has everything but sequence, time and salt.
// Its secrets are masked.
type Entry struct {
	ID                         string
	Kind                       string
	Tenant                     string
	Caller, RequestID, TraceID string
	// Declared are the obligation types of the caller's registration: nil is none, and empty a
	// registration that declares no type.
	Declared []string
	// Payer is the caller whose account it counts toward, if that is not Caller: the requester in
	// the details of a step that an approval request takes by itself.
	Payer string
	// Now is the clock reading a decision was made with; zero is none.
	Now     time.Time
	Request *Request
	// Inherits, of an item of a batch, are the members of Request that stand in the batch's
	// own record of [format.KindBatch]: subject, action, resource (their properties), context, and
	// supported_obligations, which a context of the item's own lacks.
	Inherits []string
	Search   *Search   // of kind search
	Decision *Decision // of kinds decision and possible, and of later kinds if they have one
	// Questions is set, and Decision is not, in the record of kind possible of a batch.
	Questions *Questions
	// Event and Details, a JSON object, describe the event in kind admin and later ones.
	Event   string
	Details jsontext.Value
	// Keys, of an event about the API keys, is the number that they had then: see [segment.Vouched].
	Keys uint64
}

// Request is the masked question.
type Request struct {
	// Asked is the question itself. The searched entity is left out of the record, but for its type.
	Asked *evaluation.Request `json:"-"`
	// Shared are the parts of Asked that a record of [format.KindBatch] has, even if masking left nothing of one.
	Shared evaluation.Inherited `json:"-"`

	// Where there is no Asked these are its parts. Each is a finished JSON value in the AuthZEN form; an
	// empty one is left out.
	Subject  jsontext.Value `json:"subject,omitzero"`
	Action   jsontext.Value `json:"action,omitzero"`
	Resource jsontext.Value `json:"resource,omitzero"`
	Context  jsontext.Value `json:"context,omitzero"`
	// Shape is the shape that the request came in.
	Shape evaluation.Shape `json:"-"`
	// Masked are the places where it differs from the sent request. Empty and nil differ: see format.go.
	Masked []evaluation.Hidden `json:"-"`
	// Unknown are the places whose values were not known, if it asked for possible answers. Empty and nil differ.
	Unknown []string `json:"-"`
}

// Search is the searched kind, the results, and how many candidates were examined.
type Search struct {
	Query    evaluation.SearchKind
	Found    []string
	Examined int
	Bundle   string // digest of the bundle that decided
}

// Decision is the answer. The properties of its obligations are masked.
type Decision struct {
	Allow              bool
	Possible           evaluation.Possibility // in the place of Allow, in a record of [format.KindPossible]
	Approved           bool                   // the policies said so when they were asked with an approval
	Reason, ReasonUser string
	Determining        []string
	Overruled          []string // policies whose allow the reason made a deny of
	Errors             []evaluation.PolicyError
	Obligations        []evaluation.Obligation
	Required           []string
	LeftOut            []evaluation.LeftOut
	Discharged         []evaluation.Met // obligations that an approval has met
	Capability         *Capability
	Mismatch           []string // JSON Pointers
	Bundle             string
}

// Capability is what came of the capability that a request showed. It is held, or there is a reason why it does not count.
// The proof is there if it was good.
type Capability struct {
	// ID is "" if what was shown is no capability of the tenant, or was not looked at.
	ID     string `json:"id,omitzero"`
	Held   bool   `json:"held"`
	Depth  int    `json:"depth"`
	Reason string `json:"reason,omitzero"`
	// Used says that the decision has one of a number of uses, and Grants that it grants the capability, or renews it.
	Used   bool   `json:"used,omitzero"`
	Grants bool   `json:"grants,omitzero"`
	Proof  *Proof `json:"proof,omitzero"`
	// Ancestors are the capabilities that it was made from by handing on, the parent first. What it is used for they are.
	Ancestors []string `json:"ancestors,omitzero"`
}

// Proof is a proof that was taken for a call. Its members are all that its holder signed: from them, and the key, an
// auditor can check the signature. If anything of the arguments is masked, Arguments is a keyed hash, and Evidence has the
// hash that the holder signed and the signature, sealed, in the place of Signature. An evidence.Key writes all three.
type Proof struct {
	Key       string `json:"jkt"` // the thumbprint of the holder's key
	ID        string `json:"jti"`
	IssuedAt  int64  `json:"iat"`
	Audience  string `json:"aud"`
	Tool      string `json:"tool"`
	Arguments string `json:"args,omitzero"`
	Nonce     string `json:"nonce,omitzero"`
	Algorithm string `json:"alg"`
	Signature string `json:"signature,omitzero"`
	Evidence  string `json:"evidence,omitzero"`
}

// Receipt is a PEP's report about the obligations of one decision. It
// changes no decision.
type Receipt struct {
	// Decision is the id of the decision.
	Decision    string               `json:"decision"`
	Obligations []evaluation.Receipt `json:"obligations"`
}

// Entry is the receipt as it goes on record.
func (r Receipt) Entry(tenant, caller string) Entry {
	return Entry{Kind: format.KindReceipt, Tenant: tenant, Caller: caller, Details: Details(r)}
}

// Withdrawn are the details of a record of [format.EventWithdrawn], which names an approval or a capability.
type Withdrawn struct {
	Decision   string `json:"decision"`
	Approval   string `json:"approval,omitzero"`
	Capability string `json:"capability,omitzero"`
	Reason     string `json:"reason"`
}

// appendTime appends a moment in TimeLayout.
func appendTime(b []byte, at time.Time) []byte { return at.UTC().AppendFormat(b, format.TimeLayout) }

// body appends members and keeps the first error.
type body struct {
	out []byte
	err error
}

// AppendBody appends the part of e's line that stands between its head and its salt.
func (e *Entry) AppendBody(to []byte) ([]byte, error) {
	b := body{out: to}
	b.entry(e)
	return b.out, b.err
}

func (b *body) entry(e *Entry) {
	if !e.Now.IsZero() {
		b.name("now")
		b.out = append(appendTime(append(b.out, '"'), e.Now), '"')
	}
	b.text("tenant", e.Tenant)
	b.text("kind", e.Kind)
	b.text("caller", e.Caller)
	listOrEmpty(b, "declared", e.Declared, quote)
	b.text("request_id", e.RequestID)
	b.text("trace_id", e.TraceID)
	if e.Questions != nil {
		b.questions(e)
		return
	}
	b.request(e)
	b.asRequested(e.Request)
	list(b, "inherits", e.Inherits, quote)
	b.search(e.Search)
	b.decision(e.Decision)
	b.text("event", e.Event)
	b.value("details", e.Details)
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

// value appends a finished JSON value without the whitespace between its tokens:
// a newline in it would make two lines of the record.
func (b *body) value(name string, v jsontext.Value) {
	if len(v) == 0 || b.err != nil {
		return
	}
	b.name(name)
	if b.out, b.err = jsontext.AppendFormat(b.out, v); b.err != nil {
		b.err = fmt.Errorf("%s is no JSON", name) // the cause quotes the text
	}
}

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
		b.shared(q.Asked, q.Shared, Same{})
	case e.Questions != nil:
		b.shared(q.Asked, q.Shared, e.Questions.Same)
	default:
		b.asked(q.Asked, e.searched())
	}
	if len(b.out) == start {
		b.out = append(b.out, "{}"...)
		return
	}
	b.out[start] = '{' // where the first member's comma stands
	b.out = append(b.out, '}')
}

// searched is the kind of a search, "" if e is none.
func (e *Entry) searched() evaluation.SearchKind {
	if e.Search == nil {
		return ""
	}
	return e.Search.Query
}

// asked appends the question. Package evaluation writes it as a line has it.
func (b *body) asked(q *evaluation.Request, searched evaluation.SearchKind) {
	b.entity("subject", q.Subject, searched == evaluation.SubjectSearch)
	if searched != evaluation.ActionSearch {
		b.name("action")
		b.out = q.Action.AppendJSON(b.out)
	}
	b.entity("resource", q.Resource, searched == evaluation.ResourceSearch)
	b.context(q)
}

func (b *body) context(q *evaluation.Request) {
	if q.Context.Len() > 0 {
		b.name("context")
		b.out = q.Context.AppendJSON(b.out)
	}
}

// entity appends an entity, or its type alone if entities of the type are searched for.
func (b *body) entity(name string, e evaluation.Entity, searched bool) {
	b.name(name)
	if !searched {
		b.out = e.AppendJSON(b.out)
		return
	}
	b.out = append(quote(append(b.out, `{"type":`...), e.Type), '}')
}

// shared appends the part that the items of a batch inherit, which has no type, id or name, because it is no question, but for the
// names that all questions with unknown places have.
func (b *body) shared(q *evaluation.Request, has evaluation.Inherited, same Same) {
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
	names := namesOf(q)
	part("subject", same.Subject, has.Subject, names.Subject.AppendJSON(nil), q.Subject.Properties)
	part("action", same.Action, has.Action, names.Action.AppendJSON(nil), q.Action.Properties)
	part("resource", same.Resource, has.Resource, names.Resource.AppendJSON(nil), q.Resource.Properties)
	if has.Context {
		b.name("context")
		b.out = q.Context.AppendJSON(b.out)
	}
}

// asRequested is how the request differs from the sent one: in its shape, and where it is masked.
func (b *body) asRequested(q *Request) {
	if q == nil {
		return
	}
	if q.Shape == evaluation.Native {
		b.text("shape", shapeNative)
	}
	listOrEmpty(b, "masked", q.Masked, appendHidden)
	listOrEmpty(b, "unknown", q.Unknown, quote)
}

func (b *body) search(s *Search) {
	if s == nil {
		return
	}
	b.text("query", string(s.Query))
	list(b, "found", s.Found, quote)
	b.name("examined")
	b.out = strconv.AppendInt(b.out, int64(s.Examined), 10)
	b.text("bundle", s.Bundle)
}

func (b *body) decision(d *Decision) {
	if d == nil {
		return
	}
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

// list appends a list, item by item.
func list[T any](b *body, name string, items []T, item func([]byte, T) []byte) {
	if len(items) > 0 {
		listOrEmpty(b, name, items, item)
	}
}

// listOrEmpty writes an empty list too, where it says something else than none.
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

// appendObligation appends an obligation as it is answered. Which policies ordered it is among the determining ones.
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

// AncestorsMember stands before the ids of the capabilities that one was made from.
const AncestorsMember = `"ancestors":[`

// appendCapability appends what came of a capability. The texts of a proof are the caller's.
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
			b = quote(append(b, `,"args":`...), p.Arguments)
		}
		if p.Nonce != "" {
			b = quote(append(b, `,"nonce":`...), p.Nonce)
		}
		b = quote(append(b, `,"alg":`...), p.Algorithm)
		if p.Signature != "" {
			b = quote(append(b, `,"signature":`...), p.Signature)
		}
		if p.Evidence != "" {
			b = quote(append(b, `,"evidence":`...), p.Evidence)
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

// details encodes details of the log's own events, which always can be.
func Details(v any) jsontext.Value {
	b, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		panic(err)
	}
	return b
}
