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

// ErrDamaged is the error of a record, and of a log, that is not as it was written.
var ErrDamaged = errors.New("the decision log is damaged")

// Record is a record as it stands in the log.
type Record struct {
	Sequence uint64
	// Line is the record without its newline, nil if its content is gone.
	Line []byte
	Leaf tlog.Hash
	// Gone says why a [segment.Snapshot] has no Line: [format.WhyRetired], [format.WhyRedacted], or [format.WhyFiltered]
	// if the reader may not see it.
	Gone string
}

// Recorded is what a record says: the members that format.go lists, by their names there.
// [Parse] reads the line of a record alone. [Resolve] and [segment.Reader.Recorded] add what an
// item of a batch left out, because it stands once in the record of the batch. A line may
// have members that are not here: a later program wrote them, and this one passes over them.
type Recorded struct {
	Sequence    uint64                   `json:"sequence"`
	ID          string                   `json:"id"`
	Time        time.Time                `json:"time"`
	ClockBehind bool                     `json:"clock_behind"`
	Now         time.Time                `json:"now"`
	Tenant      string                   `json:"tenant"`
	Kind        string                   `json:"kind"`
	Caller      string                   `json:"caller"`
	Declared    []string                 `json:"declared"` // nil: the caller has no registration
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
	// if the content of that record is gone, and if the record was not resolved.
	Batch Record `json:"-"`
	// Asked is the request as JSON with what it inherits, nil if the record has none or was
	// not resolved. Gone are the members that Asked lacks, because they stood in a record
	// whose content is gone.
	Asked jsontext.Value `json:"-"`
	Gone  []string       `json:"-"`
}

// RecordedNames are the names in a request: what people and filters look for.
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

// NamedBundle is the digest of the bundle that decided, or that was loaded; "" if the record names none.
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

// Parse reads the line of a record. What the line inherits is not in it: see [Resolve].
func Parse(line []byte) (*Recorded, error) {
	r := &Recorded{Line: line}
	return r, readInto(r, line)
}

// The answers there are. An allow is waiting if the caller may go ahead only with an approval that it did not have. In
// the native contract such an answer is "decision": true, so who counts these as allows counts calls that were not made.
//
// If the request asked what is possible (see [evaluation.Unknown]), the answer is that it is possible or impossible: it
// permits nothing, and nothing was attempted.
const (
	Allow      = "allow"
	Deny       = "deny"
	Waiting    = "waiting"
	Possible   = "possible"
	Impossible = "impossible"
)

// Answer is one of these, or "" for a record that holds no decision. An approval that was used is among Discharged, and
// its obligation is no longer owed: that is an allow.
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

// Receipt is the receipt that a record is, or an empty one.
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

// BatchID is the id of the record that an item inherits from, "" if it inherits nothing.
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

// itemOf returns an error if the other line is not that of the item's batch: no properties
// of one caller are shown as those of another.
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

// Resolve reads a record together with that of its batch, which has no Line if the record
// inherits nothing and if the content of the other is gone.
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

// take makes the request of its own parts and those that it inherits.
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
		r.Masked = []evaluation.Hidden{} // the records of a batch are of one program
	}
	sortHidden(r.Masked)
	if own.Request != nil {
		r.Asked, err = json.Marshal(own.Request)
	}
	return err
}

// inherit takes a member over, whole, and reports whether it is there.
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
	return false, nil // of a later program: what it is nobody here knows
}

// inherit adds a member of one object to another, behind all others.
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

// Inheritance goes over records in their order, and says which needs the record of its
// batch put before it, because that was not among those before. Its zero value is ready.
type Inheritance struct{ last string }

// Lacks is the id of the record that a record inherits from if that did not come before,
// and "" otherwise. From now on it counts as come.
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

// UnsignedTail are records that had neither a checkpoint nor a MAC when a start found them.
type UnsignedTail struct {
	From  uint64 `json:"from"`
	To    uint64 `json:"to"`    // the last of them
	Cause string `json:"cause"` // missing or wrong
}

// UnsignedTails are those that a record names: an [format.EventUnsigned] one, an [format.EventSegment] all of before, so that they
// outlive their records.
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
