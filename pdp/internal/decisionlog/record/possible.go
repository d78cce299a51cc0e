package record

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/pdp/internal/decisionlog/format"
)

// Questions has all questions of a batch with unknown places. They share one record.
type Questions struct {
	Same   Same       // the names that all questions have; they stand in the request of the entry
	All    []Question // in the order of the batch
	Bundle string
}

// Same says which entities and actions have the same type and id, or name, in all questions.
type Same struct{ Subject, Action, Resource bool }

// Question is an item of a batch that has unknown places.
type Question struct {
	N        int      // its place in the batch
	Request  *Request // without the parts that it inherits
	Inherits []string
	Decision *Decision // never nil
}

// Rest counts the questions of a batch for which its record has no room.
type Rest struct {
	More     int `json:"more"`
	Possible int `json:"possible"` // how many of More were possible
	// SHA256 is the hash of the text that had no room.
	SHA256 string `json:"sha256"`
}

// questions appends the questions of a batch and the answers. If even the shared parts exceed [format.MaxPossible], only
// their names are appended.
func (b *body) questions(e *Entry) {
	all, start := e.Questions, len(b.out)
	b.request(e)
	rest, hash := Rest{}, sha256.New()
	full := len(b.out)-start > format.MaxPossible
	if full {
		hash.Write(b.out[start:])
		b.out = b.out[:start]
		names := Entry{Questions: all, Request: &Request{Asked: namesOf(e.Request.Asked)}}
		b.request(&names)
	}
	b.name("items")
	b.out = append(b.out, '[')
	for n := range all.All {
		before, q := len(b.out), &all.All[n]
		b.question(q, all.Same)
		if full = full || len(b.out)-start > format.MaxPossible; !full {
			b.out = append(b.out, ',')
			continue
		}
		hash.Write(b.out[before:])
		b.out = b.out[:before]
		if rest.More++; q.Decision.Possible == evaluation.Possible {
			rest.Possible++
		}
	}
	if last := len(b.out) - 1; b.out[last] == ',' {
		b.out = b.out[:last]
	}
	b.out = append(b.out, ']')
	if rest.More > 0 {
		rest.SHA256 = hex.EncodeToString(hash.Sum(nil))
		b.value("rest", Details(rest))
	}
	b.text("bundle", all.Bundle)
}

// namesOf returns a request with only the types, ids and names of q.
func namesOf(q *evaluation.Request) *evaluation.Request {
	return &evaluation.Request{
		Subject:  evaluation.Entity{Type: q.Subject.Type, ID: q.Subject.ID},
		Action:   evaluation.Action{Name: q.Action.Name},
		Resource: evaluation.Entity{Type: q.Resource.Type, ID: q.Resource.ID},
	}
}

// question appends a question, without the names that all questions have.
func (b *body) question(q *Question, same Same) {
	asked := q.Request.Asked
	b.out = strconv.AppendInt(append(b.out, `{"n":`...), int64(q.N), 10)
	var own body
	if !same.Subject || asked.Subject.Properties.Len() > 0 {
		own.entity("subject", asked.Subject, false)
	}
	if !same.Action || asked.Action.Properties.Len() > 0 {
		own.name("action")
		own.out = asked.Action.AppendJSON(own.out)
	}
	if !same.Resource || asked.Resource.Properties.Len() > 0 {
		own.entity("resource", asked.Resource, false)
	}
	own.context(asked)
	if len(own.out) > 0 {
		own.out[0] = '{'
		b.name("request")
		b.out = append(append(b.out, own.out...), '}')
	}
	b.differences(q.Request)
	list(b, "inherits", q.Inherits, quote)
	b.decision(q.Decision)
	b.out = append(b.out, '}')
}

// ofPossible ends the id of the record of a batch's questions if the batch has other items, too.
const ofPossible = ".possible"

// PossibleID returns the id of the record of a batch's questions with unknown places: the id of the batch if it has no
// other items.
func PossibleID(batch string, alone bool) string {
	if alone {
		return batch
	}
	return batch + ofPossible
}

// itemID returns the id of the item n of a batch.
func itemID(batch string, n int) string { return batch + "." + strconv.Itoa(n) }

// Questions returns the questions of a record of a batch, each as a record of its own would be, but for what it inherits.
func (r *Recorded) Questions() (all []Recorded, err error) {
	all = make([]Recorded, 0, len(r.Items))
	for q, err := range r.EachQuestion() {
		if err != nil {
			return nil, err
		}
		all = append(all, *q)
	}
	return all, nil
}

// EachQuestion yields the questions of a record of a batch, until one cannot be read. Only one is in memory at a time: a line may
// have a million.
func (r *Recorded) EachQuestion() iter.Seq2[*Recorded, error] {
	return func(yield func(*Recorded, error) bool) {
		for _, item := range r.Items {
			if q, err := r.question(item); !yield(&q, err) || err != nil {
				return
			}
		}
	}
}

// ResolvedQuestions returns the questions with what they inherit.
func (r *Recorded) ResolvedQuestions() ([]Recorded, error) {
	var shared parts
	err := readInto(&shared, r.Line)
	all := make([]Recorded, len(r.Items))
	for n, item := range r.Items {
		if err == nil {
			all[n], err = r.resolved(item, &shared)
		}
	}
	return all, err
}

// question reads a question without what it inherits.
func (r *Recorded) question(item jsontext.Value) (Recorded, error) {
	id, err := r.idOf(item)
	q := *r
	// A list or a pointer is read into the one that is there, which all questions would share.
	q.Items, q.Rest, q.Masked, q.Inherits, q.Found, q.Decision, q.Possible, q.Capability = nil, nil, nil, nil, nil, nil, nil, nil
	q.Determining, q.Overruled, q.Errors, q.Obligations, q.Required, q.LeftOut, q.Discharged, q.Mismatch = nil, nil, nil, nil, nil, nil, nil, nil
	q.Unknown, q.Declared, q.Details = nil, nil, nil
	if err == nil {
		err = readInto(&q, item)
	}
	if q.ID = id; q.Unknown == nil {
		q.Unknown = r.Unknown
	}
	if q.Declared == nil {
		q.Declared = r.Declared
	}
	if q.Details == nil {
		q.Details = r.Details
	}
	return q, err
}

// idOf returns the id of a question.
func (r *Recorded) idOf(item jsontext.Value) (string, error) {
	var at struct {
		N int `json:"n"`
	}
	err := readInto(&at, item)
	return itemID(strings.TrimSuffix(r.ID, ofPossible), at.N), err
}

// ErrNoQuestion is the error for a question that is not in the record of its batch.
var ErrNoQuestion = errors.New("the record of the batch has no such question")

// item returns the question with an id as it is in the record of a batch.
func (r *Recorded) item(id string) (jsontext.Value, error) {
	for _, item := range r.Items {
		if at, err := r.idOf(item); err != nil || at == id {
			return item, err
		}
	}
	if r.Rest != nil {
		return nil, fmt.Errorf("%w; %d more were asked than it has room for", ErrNoQuestion, r.Rest.More)
	}
	return nil, ErrNoQuestion
}

// Question returns the question with an id in the record of a batch, with what it inherits.
func (r *Recorded) Question(id string) (q Recorded, err error) {
	item, err := r.item(id)
	var shared parts
	if err == nil {
		err = readInto(&shared, r.Line)
	}
	if err == nil {
		q, err = r.resolved(item, &shared)
	}
	return q, err
}

// resolved reads a question with what it inherits from the record of its batch.
func (r *Recorded) resolved(item jsontext.Value, shared *parts) (Recorded, error) {
	q, err := r.question(item)
	var own parts
	if err = errors.Join(err, readInto(&own, item)); err != nil {
		return q, err
	}
	own.Request, shared.Request = cmp.Or(own.Request, &Request{}), cmp.Or(shared.Request, &Request{})
	for _, member := range []struct {
		into *jsontext.Value
		name any
	}{{&own.Request.Subject, q.Names.Subject}, {&own.Request.Action, q.Names.Action}, {&own.Request.Resource, q.Names.Resource}} {
		if *member.into == nil {
			if *member.into, err = json.Marshal(member.name); err != nil {
				return q, err
			}
		}
	}
	err = q.assemble(&own, shared)
	return q, err
}

// Counts returns how many questions of a record were possible and how many impossible, including those that it has no room for.
func (r *Recorded) Counts() (possible, impossible int64, err error) {
	count := func(answer string) {
		switch answer {
		case Possible:
			possible++
		case Impossible:
			impossible++
		}
	}
	if r.Items == nil {
		count(r.Answer())
	}
	for q, err := range r.EachQuestion() {
		if err != nil {
			return 0, 0, err
		}
		count(q.Answer())
	}
	if r.Rest != nil {
		possible, impossible = possible+int64(r.Rest.Possible), impossible+int64(r.Rest.More-r.Rest.Possible)
	}
	return possible, impossible, err
}

// Asks reports whether a question is one of a record's, or may be one for which it has no room.
func (r *Recorded) Asks(id string) bool {
	_, err := r.item(id)
	return err == nil || errors.Is(err, ErrNoQuestion) && r.Rest != nil
}

// PossibleIDsOf returns the ids of records that may have the question with an id.
func PossibleIDsOf(id string) []string {
	dot := strings.LastIndexByte(id, '.')
	if dot <= 0 {
		return nil
	}
	if _, err := strconv.ParseUint(id[dot+1:], 10, 31); err != nil {
		return nil
	}
	return []string{id[:dot], id[:dot] + ofPossible}
}
