package coaz

import (
	"strconv"
	"strings"
	"unicode"
)

// Kind is why a request is refused. Each refuses it: there is no kind after which it may go on.
type Kind uint8

// The kinds of refusal, as the COAZ framework has them.
const (
	// MappingError: no valid question can be made of the mapping and the request.
	MappingError Kind = iota
	// Denied: the PDP denied, or no question could be asked because the method is unknown.
	Denied
	// Unreachable: the PDP gave no answer, or none that can be read.
	Unreachable
)

// Code is the JSON-RPC code of a refusal, which depends on the dialect of the mapping that applies.
func (k Kind) Code(d Dialect) int {
	switch {
	case k == MappingError:
		return -32602
	case k == Denied && d == SEP:
		return -32401
	case k == Denied:
		return -32001
	}
	return -32603
}

// Dialect is the form of a mapping, and of the refusals that come of it.
type Dialect uint8

// The dialects.
const (
	// AuthZEN is the binding's: x-authzen-mapping, an envelope, expressions in CEL.
	AuthZEN Dialect = iota
	// SEP is the older one: coaz: true and x-coaz-mapping, JSONPath.
	SEP
)

// String is the dialect's name in configurations.
func (d Dialect) String() string {
	if d == SEP {
		return "sep"
	}
	return "authzen"
}

// Error says why no question could be made, as facts. It quotes neither an argument nor a claim, but may name members
// of what was sent.
type Error struct {
	Kind    Kind // always MappingError: the package meets no other
	Dialect Dialect
	// Pointer is the JSON Pointer of the place in the mapping. Below an expression it goes on into what that yields.
	Pointer string
	// Expression is the expression that stands there, as the mapping has it; "" if none does. A mapping that an operator
	// wrote may not be for everybody's eyes.
	Expression string
	// Detail says why.
	Detail string
}

// Error makes the one-line text of the facts, without the expression. Names of members stand in it: whoever wrote them
// must not write a line of a log.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("COAZ mapping error: ")
	if e.Pointer != "" {
		b.WriteString(e.Pointer + ": ")
	}
	b.WriteString(e.Detail)
	text := b.String()
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		quoted := strconv.Quote(text)
		return quoted[1 : len(quoted)-1]
	}
	return text
}

// Code is the JSON-RPC code of the error.
func (e *Error) Code() int { return e.Kind.Code(e.Dialect) }
