package decisionlog

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// prepared is an entry made ready by the caller's goroutine, so that the writer,
// of which there is one, has only to add what depends on the order.
type prepared struct {
	id   string
	body []byte // the members from now to details, each with the comma before it
	// line is what the writer made of it.
	line []byte
}

// prepare encodes an entry. Text that is not UTF-8, as a header can hold, is
// mended rather than refused: an answer must not depend on it.
func prepare(e Entry, kinds map[string]bool) (prepared, error) {
	if !kinds[e.Kind] {
		return prepared{}, fmt.Errorf("there is no kind of record %q", e.Kind)
	}
	if e.Kind == KindDecision && e.Decision == nil || e.Kind == KindSearch && e.Search == nil {
		return prepared{}, fmt.Errorf("a record of kind %s without one", e.Kind)
	}
	b := body{out: make([]byte, 0, 768)}
	if !e.Now.IsZero() {
		b.text("now", e.Now.UTC().Format(TimeLayout))
	}
	b.text("tenant", e.Tenant)
	b.text("kind", e.Kind)
	b.text("caller", e.Caller)
	b.text("request_id", e.RequestID)
	b.text("trace_id", e.TraceID)
	b.request(e.Request)
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
	b.out = append(b.out, ',', '"')
	b.out = append(append(b.out, name...), '"', ':')
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
	b.text("reason", d.Reason)
	b.text("reason_user", d.ReasonUser)
	list(b, "determining", d.Determining)
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
	if len(items) == 0 {
		return
	}
	v, err := json.Marshal(items, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		b.err = errors.Join(b.err, fmt.Errorf("%s is no JSON", name))
		return
	}
	b.value(name, v)
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
