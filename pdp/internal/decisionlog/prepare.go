package decisionlog

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/index"
	"policy-service/pdp/internal/decisionlog/record"
)

// waits reports whether Append must return only when an entry is durable, even in best effort mode:
// otherwise one approval, or one use of a capability, could be spent twice.
func waits(e *record.Entry) bool {
	d := e.Decision
	return !slices.Contains([]string{format.KindDecision, format.KindPossible, format.KindSearch, format.KindBatch}, e.Kind) ||
		d != nil && (len(d.Discharged) > 0 || d.Capability != nil && (d.Capability.Used || d.Capability.Grants))
}

// refusable reports whether an entry may be refused, and its request not answered, if there is no room.
// Decisions of people about approvals, and work on the log, always have room.
func refusable(e *record.Entry) bool {
	switch e.Kind {
	case format.KindDecision, format.KindPossible, format.KindSearch, format.KindBatch, format.KindReceipt:
		return true
	}
	return e.Event == format.EventToolDrift
}

// prepared is an entry that the caller's goroutine has encoded, so that the
// writer adds only the members that depend on the order.
type prepared struct {
	id    string
	text  []byte
	room  int    // bytes in text before the body, for the head
	body  []byte // the members from now to details, each with the comma before it; in text
	line  []byte // the finished line, in text
	terms index.Terms
	keys  uint64 // see [record.Entry]
}

// headRoom is the maximal length of the head without the id: sequence, time and clock_behind.
const headRoom = 128

// prepare encodes an entry under an id. It mends text that is not UTF-8, as a header can hold,
// rather than refuse it: an answer must not depend on it.
func prepare(e *record.Entry, id string, kinds []string) (p prepared, err error) {
	if !slices.Contains(kinds, e.Kind) {
		return p, fmt.Errorf("there is no kind of record %q", e.Kind)
	}
	if e.Kind == format.KindDecision && e.Decision == nil ||
		e.Kind == format.KindPossible && e.Decision == nil && e.Questions == nil ||
		e.Kind == format.KindSearch && e.Search == nil {
		return p, fmt.Errorf("a record of kind %s without one", e.Kind)
	}
	p = prepared{id: id, room: headRoom + len(`\u0000`)*len(id)}
	text, err := e.AppendBody(make([]byte, p.room, p.room+usualBody))
	end := len(text)
	if end-p.room+len(id) > format.MaxLine-256 { // the writer adds less
		err = errors.Join(err, ErrTooLarge)
	}
	if err != nil {
		return prepared{}, fmt.Errorf("record %s of kind %s: %w", id, e.Kind, err)
	}
	var salt [16]byte
	_, _ = rand.Read(salt[:]) // never fails: it ends the program instead
	p.text = append(base64.RawURLEncoding.AppendEncode(append(text, `,"salt":"`...), salt[:]), `"}`...)
	p.keys = e.Keys
	p.terms = addTermsOfEntry(make(index.Terms, 0, usualTerms), e)
	p.body = p.text[p.room:end:end]
	return p, nil
}

// fromJournal returns a record that the journal holds.
func fromJournal(id string, rest []byte) prepared {
	p := prepared{id: id, room: headRoom + len(`\u0000`)*len(id)}
	p.text = append(make([]byte, p.room, p.room+len(rest)), rest...)
	p.body = p.text[p.room:]
	return p
}

// rest returns the line without its head.
func (p *prepared) rest() []byte { return p.text[p.room:] }

// Sizes in bytes that most bodies and their terms do not exceed.
const (
	usualBody  = 1 << 10
	usualTerms = 256
)

// finish writes the head of the line before the body.
func (p *prepared) finish(sequence uint64, at time.Time, behind bool) {
	text := p.text
	head := strconv.AppendUint(append(text[:0:p.room], `{"sequence":`...), sequence, 10)
	head, _ = jsontext.AppendQuote(append(head, `,"id":`...), p.id)
	head = append(at.UTC().AppendFormat(append(head, `,"time":"`...), format.TimeLayout), '"')
	if behind {
		head = append(head, `,"clock_behind":true`...)
	}
	start := p.room - len(head)
	copy(text[start:], head) // up to the body
	p.line = text[start:]
}
