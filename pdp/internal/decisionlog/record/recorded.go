package record

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/mod/sumdb/tlog"

	"policy-service/evaluation"
	"policy-service/pdp/internal/decisionlog/format"
)

// ErrDamaged is the error of a record or log that is not as it was written.
var ErrDamaged = errors.New("the decision log is damaged")

// Record is a record as it is stored in the log.
type Record struct {
	Sequence uint64
	// Line is the record without its newline, or nil if its content is gone.
	Line []byte
	Leaf tlog.Hash
	// Gone is the reason why a record of a [segment.Snapshot] has no Line: [format.WhyRetired], [format.WhyRedacted], or [format.WhyFiltered]
	// if the reader may not see it.
	Gone string
}

// Recorded is a parsed record: the members that package format lists, under the same names.
// [Parse] reads only the line of a record. [Resolve] and [segment.Reader.Recorded] add what an
// item of a batch inherits from the record of the batch. A line may have members that are not
// here: a later release wrote them, and this one ignores them.
type Recorded struct {
	Sequence    uint64                   `json:"sequence"`
	ID          string                   `json:"id"`
	Time        time.Time                `json:"time"`
	ClockBehind bool                     `json:"clock_behind"`
	Now         time.Time                `json:"now"`
	Tenant      string                   `json:"tenant"`
	Kind        string                   `json:"kind"`
	Caller      string                   `json:"caller"`
	Declared    []string                 `json:"declared"`         // nil: the caller has no registration
	Adopted     *bool                    `json:"adopted,omitzero"` // nil: obligations were July's
	RequestID   string                   `json:"request_id"`
	TraceID     string                   `json:"trace_id"`
	Names       RequestNames             `json:"request"`
	Shape       string                   `json:"shape"`
	Masked      []evaluation.Hidden      `json:"masked"`  // of the whole request, if the record was resolved
	Unknown     []string                 `json:"unknown"` // nil: it did not ask what is possible
	Inherits    []string                 `json:"inherits"`
	Query       evaluation.SearchKind    `json:"query"`
	Found       []string                 `json:"found"`
	Examined    int                      `json:"examined"`
	Decision    *bool                    `json:"decision"`
	Possible    *bool                    `json:"possible"`
	Items       []jsontext.Value         `json:"items"` // of the record of a batch; see Questions
	Rest        *Rest                    `json:"rest"`
	Approved    bool                     `json:"approved"`
	Reason      string                   `json:"reason"`
	ReasonUser  string                   `json:"reason_user"`
	Determining []string                 `json:"determining"`
	Overruled   []string                 `json:"overruled"`
	Errors      []evaluation.PolicyError `json:"errors"`
	Obligations []RecordedObligation     `json:"obligations"`
	Required    []string                 `json:"required"`
	LeftOut     []evaluation.LeftOut     `json:"left_out"`
	Discharged  []evaluation.Met         `json:"discharged"`
	Capability  *Capability              `json:"capability"`
	Mismatch    []string                 `json:"mismatch"`
	Bundle      string                   `json:"bundle"`
	Event       string                   `json:"event"`
	Details     jsontext.Value           `json:"details"`

	// Line is the record as it is stored.
	Line []byte `json:"-"`
	// Batch is the record of the item's batch. It has no Line if the item inherits nothing,
	// the content of that record is gone, or the item was not resolved.
	Batch Record `json:"-"`
	// Asked is the request as JSON with what it inherits, or nil if the record has no request
	// or was not resolved. Gone are the members that Asked lacks, because the content of the
	// record that had them is gone.
	Asked jsontext.Value `json:"-"`
	Gone  []string       `json:"-"`
}

// RequestNames are the names in a request, which people search and filter by.
type RequestNames struct {
	Subject evaluation.Ref `json:"subject"`
	Action  struct {
		Name string `json:"name"`
	} `json:"action"`
	Resource evaluation.Ref `json:"resource"`
}

// RecordedObligation is an obligation that a decision came with.
type RecordedObligation struct {
	ID         string         `json:"id"`
	Type       string         `json:"type"`
	Properties jsontext.Value `json:"properties"` // as they are in the line, with masks
}

// NamedBundle returns the digest of the bundle that decided or was loaded, or "" if the record names none.
func (r *Recorded) NamedBundle() (digest string, err error) {
	if r.Kind != format.KindAdmin || r.Event != format.EventBundleLoaded {
		return r.Bundle, nil
	}
	var loaded struct {
		Bundle string `json:"bundle"`
	}
	err = json.Unmarshal(r.Details, &loaded)
	return loaded.Bundle, err
}

// Parse parses the line of a record, without what the record inherits: see [Resolve].
func Parse(line []byte) (*Recorded, error) {
	r := &Recorded{Line: line}
	return r, readInto(r, line)
}

// The answers. An allow is waiting if the caller may proceed only with an approval that it did not have. In the native contract
// such an answer is "decision": true, so counting these as allows counts calls that were not made.
//
// If the request asked what is possible (see [evaluation.Unknown]), the answer is possible or impossible: it permits nothing,
// and nothing was attempted.
const (
	Allow      = "allow"
	Deny       = "deny"
	Waiting    = "waiting"
	Possible   = "possible"
	Impossible = "impossible"
)

// Answer returns one of the answers, or "" if the record holds no decision. A decision whose approval was used is an allow: the
// approval is in Discharged, and its obligation is no longer owed.
func (r *Recorded) Answer() string {
	approval := func(o RecordedObligation) bool { return o.Type == format.ApprovalRequired }
	switch {
	case r.Possible != nil && *r.Possible:
		return Possible
	case r.Possible != nil:
		return Impossible
	case r.Decision == nil:
		return ""
	case !*r.Decision:
		return Deny
	case slices.ContainsFunc(r.Obligations, approval):
		return Waiting
	}
	return Allow
}

// Receipt returns the receipt in a record, or an empty one.
func (r *Recorded) Receipt() (receipt Receipt) {
	if r.Kind != format.KindReceipt || json.Unmarshal(r.Details, &receipt) != nil {
		return Receipt{}
	}
	return receipt
}

// The members that an item can inherit, as its record names them.
const (
	InheritsSubject   = "subject"
	InheritsAction    = "action"
	InheritsResource  = "resource"
	InheritsContext   = "context"
	InheritsSupported = "supported_obligations" // of the context, where the item has one of its own
)

// BatchID returns the ID of the record that an item inherits from, or "" if the item inherits nothing.
func (r *Recorded) BatchID() string {
	if dot := strings.LastIndexByte(r.ID, '.'); dot > 0 && len(r.Inherits) > 0 {
		return r.ID[:dot]
	}
	return ""
}

// parts are the members of the request in a record's own line.
type parts struct {
	Request *Request            `json:"request"`
	Masked  []evaluation.Hidden `json:"masked"`
}

// CheckBatch returns an error if a line is not the record of the item's batch. Otherwise properties of one caller could be shown
// as those of another.
func (r *Recorded) CheckBatch(line []byte) error {
	batch, err := Parse(line)
	if err == nil && (batch.Kind != format.KindBatch || batch.ID != r.BatchID() || batch.Tenant != r.Tenant) {
		err = fmt.Errorf("%w: record %d is not that of the batch which record %d is an item of",
			ErrDamaged, batch.Sequence, r.Sequence)
	}
	return err
}

func readInto(into any, line []byte) error {
	if err := json.Unmarshal(line, into); err != nil {
		return fmt.Errorf("not a record: %w", err)
	}
	return nil
}

// Resolve parses a record and adds what it inherits from the record of its batch. batch has no Line if the record inherits
// nothing or the content of the batch is gone.
func Resolve(line []byte, batch Record) (Recorded, error) {
	parsed, err := Parse(line)
	if err != nil {
		return Recorded{}, err
	}
	r := *parsed
	var own, shared parts
	if err := readInto(&own, line); err != nil {
		return Recorded{}, err
	}
	if len(r.Inherits) > 0 {
		if batch.Line != nil {
			if err := r.CheckBatch(batch.Line); err != nil {
				return Recorded{}, err
			}
			if err := readInto(&shared, batch.Line); err != nil {
				return Recorded{}, err
			}
			r.Batch = batch
		}
		own.Request = cmp.Or(own.Request, &Request{})
		shared.Request = cmp.Or(shared.Request, &Request{})
	}
	err = r.assemble(&own, &shared)
	return r, err
}

// assemble sets the request from its own and its inherited parts.
func (r *Recorded) assemble(own, shared *parts) (err error) {
	for _, member := range r.Inherits {
		has, err := own.Request.inherit(member, shared.Request)
		if err != nil {
			return fmt.Errorf("record %d: %w", r.Sequence, err)
		}
		hidden := shared.inheritedHidden(member, has)
		if r.Masked = append(r.Masked, hidden...); !has && len(hidden) == 0 {
			r.Gone = append(r.Gone, member)
		}
	}
	if r.Masked == nil && shared.Masked != nil {
		r.Masked = []evaluation.Hidden{} // the same release wrote the item and the batch
	}
	sortHidden(r.Masked)
	if own.Request != nil {
		r.Asked, err = json.Marshal(own.Request)
	}
	return err
}

// inherit copies a whole member from another request and reports whether that request has it.
func (q *Request) inherit(member string, from *Request) (bool, error) {
	switch member {
	case InheritsSubject:
		return inheritMember(&q.Subject, from.Subject, "properties")
	case InheritsAction:
		return inheritMember(&q.Action, from.Action, "properties")
	case InheritsResource:
		return inheritMember(&q.Resource, from.Resource, "properties")
	case InheritsSupported:
		return inheritMember(&q.Context, from.Context, InheritsSupported)
	case InheritsContext:
		if q.Context != nil {
			return false, fmt.Errorf("%w: it has a context of its own, and inherits one", ErrDamaged)
		}
		q.Context = from.Context
		return from.Context != nil, nil
	}
	return false, nil // a later release wrote it
}

// inheritMember appends a member of one object to another.
func inheritMember(into *jsontext.Value, from jsontext.Value, member string) (bool, error) {
	own, err := decodeMembers(*into)
	if err != nil {
		return false, err
	}
	if _, has := own[member]; has {
		return false, fmt.Errorf("%w: it has %s of its own, and inherits them", ErrDamaged, member)
	}
	theirs, err := decodeMembers(from)
	value, has := theirs[member]
	if err != nil || !has {
		return false, err
	}
	out := []byte{'{'}
	if len(own) > 0 {
		out = append(append(out[:0], (*into)[:len(*into)-1]...), ',') // compact, as every line is
	}
	out = append(quote(out, member), ':')
	*into = append(append(out, value...), '}')
	return true, nil
}

func decodeMembers(object jsontext.Value) (members map[string]jsontext.Value, err error) {
	if object == nil {
		return nil, nil
	}
	return members, json.Unmarshal(object, &members)
}

// Inheritance finds the records, read in order, that need the record of their batch put before them. Its zero value is ready.
type Inheritance struct{ last string }

// MissingBatch returns the ID of the record that a line inherits from if that record was not read before, and "" otherwise. It
// then counts as read.
func (h *Inheritance) MissingBatch(line []byte) (id string, err error) {
	r, err := Parse(line)
	switch of := r.BatchID(); {
	case err != nil:
		return "", err
	case r.Kind == format.KindBatch:
		h.last = r.ID
	case of != "" && of != h.last:
		h.last = of
		return of, nil
	}
	return "", nil
}

// UnsignedTail is a range of records that had neither a checkpoint nor a MAC when the log was opened.
type UnsignedTail struct {
	From  uint64 `json:"from"`
	To    uint64 `json:"to"`    // the last of them
	Cause string `json:"cause"` // missing or wrong
}

// UnsignedTails returns the tails that a record names: an [format.EventUnsigned] record names one, an [format.EventSegment] record
// repeats all earlier ones, so that they outlive their own records.
func (r *Recorded) UnsignedTails() []UnsignedTail {
	var details struct {
		UnsignedTail
		All []UnsignedTail `json:"unsigned_tails"`
	}
	if r.Kind != format.KindAdmin || json.Unmarshal(r.Details, &details) != nil {
		return nil
	}
	switch r.Event {
	case format.EventUnsigned:
		return []UnsignedTail{details.UnsignedTail}
	case format.EventSegment:
		return details.All
	}
	return nil
}
