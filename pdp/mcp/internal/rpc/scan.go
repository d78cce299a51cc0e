package rpc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// scanned is what one pass over a message finds.
type scanned struct {
	// top are the message's own members, as slices of its text.
	top Object
	// misspelt reports a member that differs from a known one in case alone.
	misspelt bool
	// negativeZero reports the number -0, which is an integer to some readers and a double to others.
	negativeZero bool
}

// frame is a container that is being read.
type frame struct {
	object bool
	// named reports that the name of the member has been read, and its value comes next.
	named bool
	// known are the names of the members that an object may have; below are those of the member that is being read.
	known, below *known
}

// mostMembers is how many members a message itself may have, known or not.
const mostMembers = 32

type scanner struct {
	scanned
	text   []byte
	limits Limits
	in     *decoder
	open   []frame
	values int
	begins int // where the value of the message's member begins
}

// scan reads a text that is one JSON object, once. Cost is bounded by the limits and the text's own length.
func scan(text []byte, limits Limits) (scanned, *Fault) {
	s := scanner{text: text, limits: limits, in: decode(text)}
	defer s.in.done(text)
	switch s.in.PeekKind() {
	case '{':
	case '[':
		return s.scanned, &Fault{Code: InvalidRequest, Detail: "batches are not taken; send one message"}
	default:
		return s.scanned, &Fault{Code: ParseError, Detail: "this is not one JSON object"}
	}
	s.open = make([]frame, 0, min(max(limits.Depth, 1), 32))
	for first := true; first || len(s.open) > 0; first = false {
		token, err := s.in.ReadToken()
		if err != nil {
			return s.scanned, broken(err)
		}
		if fault := s.take(token); fault != nil {
			return s.scanned, fault
		}
	}
	s.top.reindex()
	if _, err := s.in.ReadToken(); err != io.EOF {
		return s.scanned, &Fault{Code: ParseError, Detail: "something follows the message; send one message, and nothing else"}
	}
	return s.scanned, nil
}

// take takes the next token.
func (s *scanner) take(token jsontext.Token) *Fault {
	kind := token.Kind()
	if n := len(s.open); n > 0 && kind == '"' && s.open[n-1].object && !s.open[n-1].named {
		s.name(&s.open[n-1], token)
		if len(s.top.members) > mostMembers {
			return &Fault{Code: InvalidRequest, Detail: fmt.Sprintf("the message has more than %d members of its own", mostMembers)}
		}
		return nil
	}
	switch kind {
	case '}', ']':
		s.open = s.open[:len(s.open)-1]
		s.valueEnds()
		return nil
	}
	if s.values++; s.values > s.limits.Values {
		return &Fault{Code: InvalidRequest, Detail: fmt.Sprintf("the message has more than %d values", s.limits.Values)}
	}
	switch kind {
	case '{', '[':
		if len(s.open) >= s.limits.Depth {
			return &Fault{Code: InvalidRequest, Detail: fmt.Sprintf("the message nests deeper than %d", s.limits.Depth)}
		}
		below := &ofMessages
		if n := len(s.open); n > 0 {
			below = s.open[n-1].below
		}
		s.open = append(s.open, frame{object: kind == '{', known: below})
		return nil
	case '0':
		at := int(s.in.InputOffset())
		if !s.number(s.text[startOfNumber(s.text, at):at]) {
			return &Fault{Code: ParseError, Detail: fmt.Sprintf("before byte %d: a number is greater than a double can be", at)}
		}
	}
	s.valueEnds()
	return nil
}

// name takes the name of a member.
func (s *scanner) name(f *frame, token jsontext.Token) {
	f.named = true
	if f.known == nil {
		return
	}
	name, ends := token.String(), int(s.in.InputOffset())
	var misspelt bool
	f.below, misspelt = f.known.member(name)
	s.misspelt = s.misspelt || misspelt
	if len(s.open) > 1 {
		return
	}
	begins := s.begins + skip(s.text[s.begins:], "{, \t\r\n")
	s.top.members = append(s.top.members, member{quoted: s.text[begins:ends:ends], name: name})
	s.begins = ends + skip(s.text[ends:], ": \t\r\n")
}

// valueEnds notes that a value has been read.
func (s *scanner) valueEnds() {
	n := len(s.open)
	if n == 0 {
		return
	}
	s.open[n-1].named, s.open[n-1].below = false, nil
	if n == 1 {
		ends := int(s.in.InputOffset())
		s.top.members[len(s.top.members)-1].value = s.text[s.begins:ends:ends]
		s.begins = ends
	}
}

// number reports whether a double can hold a number, if not exactly.
func (s *scanner) number(text []byte) bool {
	s.negativeZero = s.negativeZero || string(text) == "-0"
	if len(text) <= 308 && bytes.IndexByte(text, 'e') < 0 && bytes.IndexByte(text, 'E') < 0 {
		return true
	}
	f, err := strconv.ParseFloat(string(text), 64)
	return err == nil && !math.IsInf(f, 0)
}

// startOfNumber is where the number that ends at a place begins.
func startOfNumber(text []byte, end int) int {
	begins := end
	for begins > 0 && bytes.IndexByte([]byte("+-.eE0123456789"), text[begins-1]) >= 0 {
		begins--
	}
	return begins
}

// skip is how many bytes of text, from its beginning, are all among those of set.
func skip(text []byte, set string) int {
	return len(text) - len(bytes.TrimLeft(text, set))
}

// broken is a text that is no JSON, or JSON that two readers would read differently.
func broken(err error) *Fault {
	syntax := &jsontext.SyntacticError{}
	at := ""
	if errors.As(err, &syntax) {
		at = fmt.Sprintf("at byte %d: ", syntax.ByteOffset)
	}
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		return &Fault{Code: ParseError, Detail: at + "a member stands in one object twice"}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &Fault{Code: ParseError, Detail: "the message ends too early"}
	}
	return &Fault{Code: ParseError, Detail: at + "this is not JSON in UTF-8"}
}
