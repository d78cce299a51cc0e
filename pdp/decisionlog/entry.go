package decisionlog

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
)

// Entry is what becomes a record: everything but its sequence, time and salt.
// What is secret in it is masked by then.
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
	// own record of [KindBatch]: subject, action, resource (their properties), context, and
	// supported_obligations, which a context of the item's own lacks.
	Inherits []string
	Search   *Search   // of kind search
	Decision *Decision // of kind decision, and of later kinds if they have one
	// Event and Details, a JSON object, say what happened in kind admin and later ones.
	Event   string
	Details jsontext.Value
}

// waits reports whether Append returns only when it is durable, in best effort too:
// otherwise one approval could be spent twice.
func (e *Entry) waits() bool {
	return e.Kind != KindDecision && e.Kind != KindSearch && e.Kind != KindBatch || e.Decision != nil && len(e.Decision.Discharged) > 0
}

// refusable reports whether it may be refused if there is no room. Then nothing is answered.
// There is always room for what people decide about approvals, and for what is done to the log.
func (e *Entry) refusable() bool {
	switch e.Kind {
	case KindDecision, KindSearch, KindBatch, KindReceipt:
		return true
	}
	return e.Event == EventToolDrift
}

// Request is the masked question. Each member is a finished JSON value in the
// AuthZEN form; an empty one is left out.
type Request struct {
	Subject  jsontext.Value `json:"subject,omitzero"`
	Action   jsontext.Value `json:"action,omitzero"`
	Resource jsontext.Value `json:"resource,omitzero"`
	Context  jsontext.Value `json:"context,omitzero"`
	// Shape is the shape that the request came in.
	Shape evaluation.Shape `json:"-"`
	// Masked are the places where it is not what was sent. Empty and nil differ: see format.go.
	Masked []evaluation.Hidden `json:"-"`
	// Unknown are the places whose values were not known, if it asked what is possible. Empty and nil differ.
	Unknown []string `json:"-"`
}

// Search is what was looked for, what was found, and how many were looked at.
type Search struct {
	Query    evaluation.SearchKind
	Found    []string
	Examined int
	Bundle   string // digest of the bundle that decided
}

// Decision is the answer. Obligations is a finished JSON array, masked, or empty.
type Decision struct {
	Allow              bool
	Approved           bool // the policies said so when they were asked with an approval
	Reason, ReasonUser string
	Determining        []string
	Overruled          []string // policies whose allow the reason made a deny of
	Errors             []evaluation.PolicyError
	Obligations        jsontext.Value
	Required           []string
	LeftOut            []evaluation.LeftOut
	Discharged         []evaluation.Met // obligations that an approval has met
	Mismatch           []string         // JSON Pointers
	Bundle             string
}

// KindReceipt is the kind of record that says what a PEP did about the obligations
// of a decision. Its details are a [Receipt].
const KindReceipt = "receipt"

// Receipt is what a PEP reports of the obligations of one decision. It says what
// the PEP says, and changes no decision.
type Receipt struct {
	// Decision is the id of the decision.
	Decision    string               `json:"decision"`
	Obligations []evaluation.Receipt `json:"obligations"`
}

// Entry is the receipt as it goes on record.
func (r Receipt) Entry(tenant, caller string) Entry {
	return Entry{Kind: KindReceipt, Tenant: tenant, Caller: caller, Details: details(r)}
}

// The kind and the events of the records that the service puts into the log, besides the
// log's own in format.go and removal.go. The log gives them no meaning. They stand
// here so that the service, which writes them, and the packages that count or stream them use
// the same words.
const (
	// KindApproval is the kind of record that says what became of an approval request. Its
	// events are the steps of package approval.
	KindApproval = "approval"

	EventStart                = "start"
	EventStop                 = "stop"
	EventBundleLoaded         = "bundle_loaded"
	EventBundleRefused        = "bundle_refused"
	EventConfiguration        = "configuration"
	EventConfigurationRefused = "configuration_refused"
	EventAPIKeys              = "api_keys"
	EventAPIKeyAdded          = "api_key_added"
	EventAPIKeyRevoked        = "api_key_revoked"
	EventSigningKey           = "signing_key"
	EventSigningKeyChanged    = "signing_key_changed"
	// EventApprovalsUpgraded says that a file of approvals of format 1 counts no more.
	EventApprovalsUpgraded = "approvals_upgraded"
	// EventToolDrift says that a gateway found a tool that is not what an operator locked. Its details are an
	// [evaluation.Drift]. Whoever may ask for decisions can have it recorded, so unlike other events it is refused if
	// there is no room.
	EventToolDrift = "tool_drift"
)

// prepared is an entry made ready by the caller's goroutine, so that the one
// writer has only to add what depends on the order.
type prepared struct {
	id   string
	body []byte // the members from now to details, each with the comma before it
	// line is what the writer made of it.
	line []byte
}

// prepare encodes an entry. Text that is not UTF-8, as a header can hold, is
// mended rather than refused: an answer must not depend on it.
func prepare(e Entry, kinds []string) (prepared, error) {
	if !slices.Contains(kinds, e.Kind) {
		return prepared{}, fmt.Errorf("there is no kind of record %q", e.Kind)
	}
	if e.Kind == KindDecision && e.Decision == nil || e.Kind == KindSearch && e.Search == nil {
		return prepared{}, fmt.Errorf("a record of kind %s without one", e.Kind)
	}
	room := 768
	if e.Request != nil {
		room += len(e.Request.Context)
	}
	b := body{out: make([]byte, 0, room)}
	if !e.Now.IsZero() {
		b.name("now")
		b.out = append(e.Now.UTC().AppendFormat(append(b.out, '"'), TimeLayout), '"')
	}
	b.text("tenant", e.Tenant)
	b.text("kind", e.Kind)
	b.text("caller", e.Caller)
	listOrEmpty(&b, "declared", e.Declared)
	b.text("request_id", e.RequestID)
	b.text("trace_id", e.TraceID)
	b.request(e.Request)
	b.asRequested(e.Request)
	list(&b, "inherits", e.Inherits)
	b.search(e.Search)
	b.decision(e.Decision)
	b.text("event", e.Event)
	b.value("details", e.Details)
	if len(b.out)+len(e.ID) > MaxLine-256 { // what the writer adds is shorter
		b.err = errors.Join(b.err, ErrTooLarge)
	}
	if b.err != nil {
		return prepared{}, fmt.Errorf("record %s of kind %s: %w", e.ID, e.Kind, b.err)
	}
	return prepared{id: e.ID, body: b.out}, nil
}

// finish makes the line of p.
func (p *prepared) finish(sequence uint64, at time.Time, behind bool) {
	b := make([]byte, 0, len(p.body)+len(p.id)+160)
	b = strconv.AppendUint(append(b, `{"sequence":`...), sequence, 10)
	b = quote(append(b, `,"id":`...), p.id)
	b = at.AppendFormat(append(b, `,"time":"`...), TimeLayout)
	b = append(b, '"')
	if behind {
		b = append(b, `,"clock_behind":true`...)
	}
	b = append(b, p.body...)
	var salt [16]byte
	_, _ = rand.Read(salt[:]) // never fails: it ends the program instead
	b = base64.RawURLEncoding.AppendEncode(append(b, `,"salt":"`...), salt[:])
	p.line = append(b, `"}`...)
}

// body appends members and keeps the first error.
type body struct {
	out []byte
	err error
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
		b.err = fmt.Errorf("%s is no JSON", name) // the cause quotes what stands there
	}
}

func (b *body) request(q *Request) {
	if q == nil {
		return
	}
	b.name("request")
	start := len(b.out)
	b.value("subject", q.Subject)
	b.value("action", q.Action)
	b.value("resource", q.Resource)
	b.value("context", q.Context)
	if len(b.out) == start {
		b.out = append(b.out, "{}"...)
		return
	}
	b.out[start] = '{' // where the first member's comma stands
	b.out = append(b.out, '}')
}

// asRequested is how the request differs from what was sent: in its shape, and where it is masked.
func (b *body) asRequested(q *Request) {
	if q == nil {
		return
	}
	if q.Shape == evaluation.Native {
		b.text("shape", shapeNative)
	}
	listOrEmpty(b, "masked", q.Masked)
	listOrEmpty(b, "unknown", q.Unknown)
}

func (b *body) search(s *Search) {
	if s == nil {
		return
	}
	b.text("query", string(s.Query))
	list(b, "found", s.Found)
	b.name("examined")
	b.out = strconv.AppendInt(b.out, int64(s.Examined), 10)
	b.text("bundle", s.Bundle)
}

func (b *body) decision(d *Decision) {
	if d == nil {
		return
	}
	b.name("decision")
	b.out = strconv.AppendBool(b.out, d.Allow)
	if d.Approved {
		b.name("approved")
		b.out = append(b.out, "true"...)
	}
	b.text("reason", d.Reason)
	b.text("reason_user", d.ReasonUser)
	list(b, "determining", d.Determining)
	list(b, "overruled", d.Overruled)
	list(b, "errors", d.Errors)
	if string(d.Obligations) != "[]" {
		b.value("obligations", d.Obligations)
	}
	list(b, "required", d.Required)
	list(b, "left_out", d.LeftOut)
	list(b, "discharged", d.Discharged)
	list(b, "mismatch", d.Mismatch)
	b.text("bundle", d.Bundle)
}

// list appends anything as JSON: lists of names, and structs with tags.
func list[T any](b *body, name string, items []T) {
	if len(items) > 0 {
		listOrEmpty(b, name, items)
	}
}

// listOrEmpty writes an empty list too, where it says something else than none.
func listOrEmpty[T any](b *body, name string, items []T) {
	if items == nil || b.err != nil {
		return
	}
	v, err := json.Marshal(items, jsontext.AllowInvalidUTF8(true)) // which writes no whitespace
	if err != nil {
		b.err = fmt.Errorf("%s is no JSON", name)
		return
	}
	b.name(name)
	b.out = append(b.out, v...)
}

// quote appends s as a JSON string; what is not UTF-8 becomes U+FFFD.
func quote(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s)
	return b
}

// details encodes what the log itself has to say, which always can be.
func details(v any) jsontext.Value {
	b, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		panic(err)
	}
	return b
}
