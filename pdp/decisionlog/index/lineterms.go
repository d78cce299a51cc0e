package index

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// termReader reads the terms of lines. It knows how this package writes a line and
// goes over it once, several times faster than a decoder, which would be a third of
// what a record costs altogether. What is written otherwise it calls odd.
type termReader struct {
	terms    [][]byte
	all      []byte // what the terms are slices of
	unquoted []byte // the string that is being read
}

// read returns the terms of a line, which are the reader's until the next.
func (r *termReader) read(line []byte) [][]byte {
	r.terms, r.all = r.terms[:0], r.all[:0]
	r.add(TermTenant, nil) // of no tenant, unless it says so
	if !eachMember(line, r.member) {
		return [][]byte{[]byte(TermOdd)}
	}
	return r.terms
}

func (r *termReader) member(name, value []byte) bool {
	switch string(name) {
	case "tenant":
		r.terms = append(r.terms[:0], r.terms[1:]...) // what is read of lines after this one finds the same room
		return r.text(TermTenant, value)
	case "kind":
		return r.text(TermKind, value)
	case "event":
		return r.text(TermEvent, value)
	case "decision":
		return r.decision(value)
	case "unknown": // which of the two it is stands behind it
		r.add(TermDecision, []byte("possible"))
		r.add(TermDecision, []byte("impossible"))
	case "obligations":
		return eachItem(value, func(o []byte) bool { return eachMember(o, r.waiting) })
	case "request":
		return eachMember(value, r.request)
	case "determining", "overruled":
		return eachItem(value, func(id []byte) bool { return r.text(TermPolicy, id) })
	case "errors":
		return eachItem(value, func(e []byte) bool { return eachMember(e, r.named("policy", TermPolicy)) })
	case "discharged":
		return eachItem(value, func(d []byte) bool { return eachMember(d, r.by) })
	case "details":
		return eachMember(value, r.of) // whatever the kind: too many terms do no harm
	}
	return true
}

func (r *termReader) request(name, value []byte) bool {
	switch string(name) {
	case "subject":
		return eachMember(value, r.named("id", TermSubject))
	case "resource":
		return eachMember(value, r.named("id", TermResource))
	case "action":
		return eachMember(value, r.named("name", TermAction))
	}
	return true
}

// named returns what [eachMember] is to do if the string of one member is a term with this letter.
func (r *termReader) named(member string, letter byte) func(name, value []byte) bool {
	return func(name, value []byte) bool { return string(name) != member || r.text(letter, value) }
}

func (r *termReader) of(name, value []byte) bool {
	switch {
	case value[0] != '"':
		return true
	case string(name) == "decision":
		return r.text(TermOf, value)
	}
	return r.by(name, value)
}

func (r *termReader) by(name, value []byte) bool {
	return string(name) != "approval" || value[0] != '"' || r.text(TermApproval, value)
}

// answers are the values that the member decision has, and what they are as terms.
var answers = map[string]string{"true": "allow", "false": "deny"}

// decision adds the term of an answer. If there is no such answer, the line is odd, and the term goes with it.
func (r *termReader) decision(value []byte) bool {
	answer, known := answers[string(value)]
	r.add(TermDecision, []byte(answer))
	return known
}

// waiting adds the term of an allow that is waiting. The line has the term of an allow too: it stands before the
// obligations, and the filter knows better. A deny never has this obligation.
func (r *termReader) waiting(name, value []byte) bool {
	if string(name) != "type" {
		return true
	}
	var err error
	r.unquoted, err = jsontext.AppendUnquote(r.unquoted[:0], value)
	if err == nil && string(r.unquoted) == ApprovalRequired {
		r.add(TermDecision, []byte("waiting"))
	}
	return err == nil
}

// text adds the term of a string.
func (r *termReader) text(letter byte, value []byte) bool {
	var err error
	if r.unquoted, err = jsontext.AppendUnquote(r.unquoted[:0], value); err != nil {
		return false
	}
	r.add(letter, r.unquoted)
	return true
}

func (r *termReader) add(letter byte, text []byte) {
	start := len(r.all)
	r.all = appendTerm(r.all, letter, text)
	r.terms = append(r.terms, r.all[start:len(r.all):len(r.all)])
}

// Terms are the terms of a line, or of one that is written otherwise [TermOdd] alone.
func Terms(line []byte) (terms []string) {
	for _, term := range new(termReader).read(line) {
		terms = append(terms, string(term))
	}
	return terms
}

// eachMember goes over the members of an object without whitespace, and says
// whether it is one.
func eachMember(object []byte, do func(name, value []byte) bool) bool {
	return each(object, '{', '}', func(b []byte) int {
		end := valueEnd(b)
		if b[0] != '"' || end < 0 || end >= len(b) || b[end] != ':' || bytes.IndexByte(b[:end], '\\') >= 0 {
			return -1
		}
		value := b[end+1:]
		width := valueEnd(value)
		if width < 0 || !do(b[1:end-1], value[:width]) {
			return -1
		}
		return end + 1 + width
	})
}

// eachItem calls do with each item of an array. It is false if that is no array, or do returns false, which ends it.
func eachItem(array []byte, do func(value []byte) bool) bool {
	return each(array, '[', ']', func(b []byte) int {
		width := valueEnd(b)
		if width < 0 || !do(b[:width]) {
			return -1
		}
		return width
	})
}

// each goes over what stands between two brackets and commas. part says how long the
// one is that b begins with, or -1.
func each(b []byte, begin, end byte, part func(b []byte) int) bool {
	if len(b) < 2 || b[0] != begin || b[len(b)-1] != end {
		return false
	}
	for b = b[1:]; len(b) > 1; {
		width := part(b)
		if width < 0 || width >= len(b) || b[width] != ',' && b[width] != end {
			return false
		}
		b = b[width:]
		if b[0] == ',' {
			b = b[1:]
		}
	}
	return len(b) == 1
}

// valueEnd is where the value ends that b begins with, -1 where it does not.
func valueEnd(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			width := stringEnd(b[i:])
			if width < 0 {
				return -1
			}
			i += width - 1
		case '{', '[':
			depth++
			continue
		case '}', ']':
			if depth--; depth < 0 {
				return -1
			}
		case ' ', '\t', '\n', '\r':
			return -1
		default:
			if depth > 0 {
				continue
			}
			return literalEnd(b)
		}
		if depth == 0 {
			return i + 1
		}
	}
	return -1
}

// stringEnd is where the string ends that b begins with.
func stringEnd(b []byte) int {
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return -1
}

// literalEnd is where a number or a word ends.
func literalEnd(b []byte) int {
	if end := bytes.IndexAny(b, ",}]"); end > 0 {
		return end
	}
	return -1
}
