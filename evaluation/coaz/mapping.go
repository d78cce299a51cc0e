package coaz

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"policy-service/evaluation"
)

// Mapping is a compiled mapping. It is immutable, and safe for concurrent use.
type Mapping struct {
	binding   *Binding
	author    author
	method    string // the only one that it is for; "" is any
	dialect   Dialect
	digest    string
	envelopes []*envelope
}

// author is the party that wrote a mapping; see the package's comment.
type author uint8

const (
	declared author = iota
	operator
	standard
)

// Dialect is the form of the mapping, and of the refusals that come of it. A tool that declares a mapping in each
// dialect has that of the binding, [AuthZEN].
func (m *Mapping) Dialect() Dialect { return m.dialect }

// Digest names the mapping: "sha256:" and the SHA-256, in hexadecimal, of its canonical text and dialect. Mappings of
// one author and one [Binding] that have one digest yield the same questions.
func (m *Mapping) Digest() string { return m.digest }

func digestOf(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// and is the Mapping of a tool that declares more than one: all are asked.
func (m *Mapping) and(more *Mapping) *Mapping {
	if m == nil {
		return more
	}
	both := *m
	both.digest = digestOf(m.digest, more.digest)
	both.envelopes = slices.Concat(m.envelopes, more.envelopes)
	return &both
}

// Questions are what the PDP is asked before a request may have its effect.
type Questions struct {
	// Requests are the decisions that are wanted, in the order of the mapping: at least one. The request may go on only
	// if the PDP permits each of them. They name no tenant.
	Requests []evaluation.Request
	// Envelopes are the same requests as the profile has them sent, for a PEP that sends bodies as they are. There is
	// one, or two if a tool declares a mapping in each dialect.
	Envelopes []Envelope
	// Warnings are for the PEP's log.
	Warnings []Warning
}

// Envelope is one call of the PDP.
type Envelope struct {
	API API
	// Body is the request body: for Evaluations with what the mapping has at the top level there, and without options.
	Body []byte
	// Requests are the decisions that it asks for: an answer with fewer is no permit.
	Requests []evaluation.Request
}

// API is the API of AuthZEN that an envelope names.
type API string

// The APIs.
const (
	Evaluation  API = "evaluation"  // POST /access/v1/evaluation
	Evaluations API = "evaluations" // POST /access/v1/evaluations
)

// Warning is a doubt about a question that a PEP may ask all the same.
type Warning struct {
	Pointer string // into the mapping
	Detail  string
}

// Questions resolves the mapping for an operation. The same mapping and operation yield the same bytes. Every error is
// an [*Error].
func (m *Mapping) Questions(op Operation) (Questions, error) {
	if m.method != "" && m.method != op.Method {
		return Questions{}, &Error{Dialect: m.dialect, Detail: "the mapping is for " + m.method + ", and was asked about another method"}
	}
	r := resolution{mapping: m, op: &op}
	var q Questions
	for _, e := range m.envelopes {
		r.envelope = e
		asked, err := e.resolve(&r)
		if err != nil {
			return Questions{}, e.describe(err)
		}
		q.Envelopes = append(q.Envelopes, asked)
	}
	q.Requests = q.Envelopes[0].Requests
	for _, more := range q.Envelopes[1:] {
		q.Requests = slices.Concat(q.Requests, more.Requests)
	}
	q.Warnings = r.warnings
	return q, nil
}
