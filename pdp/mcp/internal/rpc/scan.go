package rpc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// scanned is a message that was scanned.
type scanned struct {
	// top are the message's own members, as slices of its text, and inner are those of its params or its result.
	top, inner Object
	// misspelt reports a member that differs from a known one in case alone.
	misspelt bool
	// negativeZero reports the number -0, which is an integer to some readers and a double to others.
	negativeZero bool
}

// mostMembers is how many members a message itself may have, known or not.
const mostMembers = 32

// scan reads a text that is one JSON object. Cost is bounded by the limits and the text's own length.
func scan(text []byte, limits Limits) (s scanned, fault *Fault) {
	switch jsontext.Value(text).Kind() {
	case '{':
	case '[':
		return s, &Fault{Code: InvalidRequest, Detail: "batches are not taken; send one message"}
	default:
		return s, &Fault{Code: ParseError, Detail: "this is not one JSON object"}
	}
	if fault := s.measure(text, limits); fault != nil {
		return s, fault
	}
	if err := check(text, '{', errNoObject); err != nil {
		return s, broken(err)
	}
	if s.top = split(text); s.top.Len() > mostMembers {
		return s, &Fault{Code: InvalidRequest, Detail: fmt.Sprintf("the message has more than %d members of its own", mostMembers)}
	}
	s.spelling()
	return s, nil
}

// measure holds a text against the limits before anything is kept of it, and looks at its numbers. The text
// has not been read yet: if it is no JSON, the findings count for nothing, because it is read next.
func (s *scanned) measure(text []byte, limits Limits) *Fault {
	depth, values := 0, 0
	for at := 0; at < len(text); {
		begins := at
		switch c := text[at]; {
		case c == '"':
			at = skipString(text, at)
			if next := skipSpace(text, at); next < len(text) && text[next] == ':' {
				continue // a name
			}
		case c == '{' || c == '[':
			at++
			depth++
		case c == '}' || c == ']':
			at++
			depth--
			continue
		case c == '-' || '0' <= c && c <= '9':
			if at += skip(text[at:], "+-.eE0123456789"); !s.number(text[begins:at]) {
				return &Fault{Code: ParseError, Detail: fmt.Sprintf("before byte %d: a number is greater than a double can be", at)}
			}
		case c == 't' || c == 'f' || c == 'n':
			at += skip(text[at:], "truefalsn")
		default:
			at++
			continue
		}
		if values++; values > limits.Values {
			return &Fault{Code: InvalidRequest, Detail: fmt.Sprintf("the message has more than %d values", limits.Values)}
		}
		if depth > limits.Depth {
			return &Fault{Code: InvalidRequest, Detail: fmt.Sprintf("the message nests deeper than %d", limits.Depth)}
		}
	}
	return nil
}

// isNegativeZero reports whether a number is -0, however it is written.
func isNegativeZero(text []byte) bool {
	if text[0] != '-' {
		return false
	}
	if i := bytes.IndexAny(text, "eE"); i >= 0 {
		text = text[:i]
	}
	return len(bytes.Trim(text, "-0.")) == 0
}

// number reports whether a double can hold a number, if not exactly.
func (s *scanned) number(text []byte) bool {
	s.negativeZero = s.negativeZero || isNegativeZero(text)
	if len(text) <= 308 && bytes.IndexByte(text, 'e') < 0 && bytes.IndexByte(text, 'E') < 0 {
		return true
	}
	_, err := strconv.ParseFloat(string(text), 64)
	return !errors.Is(err, strconv.ErrRange)
}

// skip is how many bytes of text, from its beginning, are all among those of set.
func skip(text []byte, set string) int {
	return len(text) - len(bytes.TrimLeft(text, set))
}

// spelling looks at the names of members that are known.
func (s *scanned) spelling() {
	for _, m := range s.top.members {
		below, misspelt := ofMessages.member(m.name)
		s.misspelt = s.misspelt || misspelt
		if below == nil || m.value.Kind() != '{' {
			continue
		}
		inner := split(m.value)
		s.misspelt = s.misspelt || below.misspelt(inner)
		if m.name == "params" || m.name == "result" {
			s.inner = inner
		}
	}
}

// broken is a text that is no JSON, or JSON that two readers would read differently.
func broken(err error) *Fault {
	syntax := &jsontext.SyntacticError{}
	at := ""
	if errors.As(err, &syntax) {
		at = fmt.Sprintf("at byte %d: ", syntax.ByteOffset)
	}
	switch {
	case err == errFollows:
		return &Fault{Code: ParseError, Detail: "something follows the message; send one message, and nothing else"}
	case errors.Is(err, jsontext.ErrDuplicateName):
		return &Fault{Code: ParseError, Detail: at + "a member stands in one object twice"}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &Fault{Code: ParseError, Detail: "the message ends too early"}
	}
	return &Fault{Code: ParseError, Detail: at + "this is not JSON in UTF-8"}
}
