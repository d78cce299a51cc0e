package decisionlog

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.etcd.io/bbolt"
)

// Recorded is a record with the request as it was put on record, whole: an item of a
// batch leaves out what it inherits, which stands once in the record of the batch.
// Whoever reads a request back reads it here.
type Recorded struct {
	// Line is the record as it is stored. Batch is the record of its batch, without a
	// Line where it inherits nothing and where that record is gone.
	Line  []byte
	Batch Record
	// Inherits are the members that it inherits, as the line says.
	Inherits []string
	// Request is the request, nil where the record has none. Gone are those members that
	// it lacks, because they stood in a record that is not there any more.
	Request jsontext.Value
	Gone    []string
}

// The members that an item can inherit, as its record names them.
const (
	inheritsSubject   = "subject"
	inheritsAction    = "action"
	inheritsResource  = "resource"
	inheritsContext   = "context"
	inheritsSupported = "supported_obligations" // of the context, where the item has one of its own
)

// Item is what of a line says whether it inherits, and from which record.
type Item struct {
	Sequence uint64   `json:"sequence"`
	ID       string   `json:"id"`
	Tenant   string   `json:"tenant"`
	Kind     string   `json:"kind"`
	Inherits []string `json:"inherits"`
}

// ItemOf reads it of a line.
func ItemOf(line []byte) (i Item, err error) {
	err = readInto(&i, line)
	return i, err
}

// Batch is the id of the record that it inherits from, "" where it inherits nothing.
func (i Item) Batch() string {
	if dot := strings.LastIndexByte(i.ID, '.'); dot > 0 && len(i.Inherits) > 0 {
		return i.ID[:dot]
	}
	return ""
}

// asked is an item with the request that stands in its own line.
type asked struct {
	Item
	Request *recordedRequest `json:"request"`
}

type recordedRequest struct {
	Subject  jsontext.Value `json:"subject,omitzero"`
	Action   jsontext.Value `json:"action,omitzero"`
	Resource jsontext.Value `json:"resource,omitzero"`
	Context  jsontext.Value `json:"context,omitzero"`
}

// of returns an error where the other record is not that of its batch: nobody's
// properties are shown as somebody else's.
func (i Item) of(batch Item) error {
	if batch.Kind != KindBatch || batch.ID != i.Batch() || batch.Tenant != i.Tenant {
		return fmt.Errorf("%w: record %d is not that of the batch which record %d is an item of", ErrDamaged, batch.Sequence, i.Sequence)
	}
	return nil
}

func readInto(of any, line []byte) error {
	if err := json.Unmarshal(line, of); err != nil {
		return fmt.Errorf("not a record: %w", err)
	}
	return nil
}

// Resolve puts a record and that of its batch together, which has no Line where the one
// inherits nothing, and where the other is gone.
func Resolve(line []byte, batch Record) (Recorded, error) {
	var item asked
	if err := readInto(&item, line); err != nil {
		return Recorded{}, err
	}
	r := Recorded{Line: line, Inherits: item.Inherits}
	if len(item.Inherits) == 0 {
		return r, item.request(&r)
	}
	var from recordedRequest
	if batch.Line != nil {
		var of asked
		if err := readInto(&of, batch.Line); err != nil {
			return Recorded{}, err
		}
		if err := item.of(of.Item); err != nil {
			return Recorded{}, err
		}
		if r.Batch = batch; of.Request != nil {
			from = *of.Request
		}
	}
	if item.Request == nil {
		item.Request = &recordedRequest{}
	}
	for _, member := range item.Inherits {
		has, err := item.Request.inherit(member, &from)
		if err != nil {
			return Recorded{}, fmt.Errorf("record %d: %w", item.Sequence, err)
		}
		if !has {
			r.Gone = append(r.Gone, member)
		}
	}
	return r, item.request(&r)
}

func (i *asked) request(into *Recorded) (err error) {
	if i.Request != nil {
		into.Request, err = json.Marshal(i.Request)
	}
	return err
}

// inherit takes a member over, whole, and reports whether it is there.
func (q *recordedRequest) inherit(member string, from *recordedRequest) (bool, error) {
	switch member {
	case inheritsSubject:
		return inherit(&q.Subject, from.Subject, "properties")
	case inheritsAction:
		return inherit(&q.Action, from.Action, "properties")
	case inheritsResource:
		return inherit(&q.Resource, from.Resource, "properties")
	case inheritsSupported:
		return inherit(&q.Context, from.Context, inheritsSupported)
	case inheritsContext:
		if q.Context != nil {
			return false, fmt.Errorf("%w: it has a context of its own, and inherits one", ErrDamaged)
		}
		q.Context = from.Context
		return from.Context != nil, nil
	}
	return false, nil // of a later program: what it is nobody here knows
}

// inherit adds a member of one object to another, behind all others.
func inherit(into *jsontext.Value, from jsontext.Value, member string) (bool, error) {
	own, err := membersOf(*into)
	if err != nil {
		return false, err
	}
	if _, has := own[member]; has {
		return false, fmt.Errorf("%w: it has %s of its own, and inherits them", ErrDamaged, member)
	}
	theirs, err := membersOf(from)
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

func membersOf(object jsontext.Value) (members map[string]jsontext.Value, err error) {
	if object == nil {
		return nil, nil
	}
	return members, json.Unmarshal(object, &members)
}

// Batch is the record that a record inherits from, without a Line where it inherits
// nothing, and where that record is gone. It stands in the same segment.
func (r *Reader) Batch(line []byte) (batch Record, err error) {
	i, err := ItemOf(line)
	if err != nil || i.Batch() == "" {
		return Record{}, err
	}
	s, err := r.find(i.Sequence)
	if errors.Is(err, ErrGone) { // dropped since the line was read
		return Record{}, nil
	}
	if err != nil {
		return Record{}, err
	}
	err = r.view(s, func(tx *bbolt.Tx) error {
		batch = Record{}
		sequence, found := readNumber(tx.Bucket([]byte(BucketIDs)).Get([]byte(i.Batch())))
		if !found || sequence >= i.Sequence {
			return nil
		}
		some, err := someOf(tx, sequence, sequence+1)
		if err == nil && len(some) > 0 {
			batch = some[0]
		}
		return err
	})
	if err != nil || batch.Line == nil {
		return Record{}, err
	}
	of, err := ItemOf(batch.Line)
	if err == nil {
		err = i.of(of)
	}
	return batch, err
}

// Recorded is a record of this log with what it inherits.
func (r *Reader) Recorded(line []byte) (Recorded, error) {
	batch, err := r.Batch(line)
	if err != nil {
		return Recorded{}, err
	}
	return Resolve(line, batch)
}

// Inheritance goes over records in their order, and says which needs the record of its
// batch put before it, because that was not among those before. Its zero value is ready.
type Inheritance struct{ last string }

// Lacks is the id of the record that a record inherits from, where that did not come
// before, and "" otherwise; from now on it counts as come.
func (h *Inheritance) Lacks(line []byte) (id string, err error) {
	item, err := ItemOf(line)
	switch of := item.Batch(); {
	case err != nil:
		return "", err
	case item.Kind == KindBatch:
		h.last = item.ID
	case of != "" && of != h.last:
		h.last = of
		return of, nil
	}
	return "", nil
}
