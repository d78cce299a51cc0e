package rpc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

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
func scan(text []byte) (s scanned, fault *Fault) {
	switch jsontext.Value(text).Kind() {
	case '{':
	case '[':
		return s, &Fault{Code: InvalidRequest, Detail: "batches are not taken; send one message"}
	default:
		return s, &Fault{Code: ParseError, Detail: "this is not one JSON object"}
	}
	if fault := s.measure(text); fault != nil {
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
func (s *scanned) measure(text []byte) *Fault {
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
		if values++; values > mostValues {
			return &Fault{Code: InvalidRequest, Detail: fmt.Sprintf("the message has more than %d values", mostValues)}
		}
		if depth > mostDepth {
			return &Fault{Code: InvalidRequest, Detail: fmt.Sprintf("the message nests deeper than %d", mostDepth)}
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

// split is an object that was checked before: it only finds where members begin and end, at a fraction of the cost of reading.
func split(v jsontext.Value) Object {
	var found [few]member
	members := found[:0]
	for at := next(v, skipSpace(v, 0)+1); v[at] != '}'; {
		m, ends := member{read: true}, skipString(v, at)
		m.quoted = v[at:ends:ends]
		m.name = unquoted(m.quoted)
		at = skipSpace(v, skipSpace(v, ends)+1) // behind the colon
		ends = skipValue(v, at)
		m.value = v[at:ends:ends]
		members = append(members, m)
		at = next(v, ends)
	}
	o := newObject(slices.Clone(members))
	o.text = v
	return o
}

// next is where the next member or element begins, or the end of what they are in, if at is behind the one before.
func next(text []byte, at int) int {
	if at = skipSpace(text, at); text[at] == ',' {
		at = skipSpace(text, at+1)
	}
	return at
}

func skipSpace(text []byte, at int) int {
	for at < len(text) && (text[at] == ' ' || text[at] == '\t' || text[at] == '\n' || text[at] == '\r') {
		at++
	}
	return at
}

// skipString is where a string ends that begins here, or the end of the text if the string has none.
func skipString(text []byte, at int) int {
	for at++; ; at++ {
		n := bytes.IndexByte(text[at:], '"')
		if n < 0 {
			return len(text)
		}
		at += n
		escapes := 0
		for text[at-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 { // the backslashes before the quote escape each other
			return at + 1
		}
	}
}

// skipValue is where a value ends that begins here.
func skipValue(text []byte, at int) int {
	switch text[at] {
	case '"':
		return skipString(text, at)
	case '{', '[':
		return skipContainer(text, at)
	}
	for text[at] != ',' && text[at] != '}' && text[at] != ']' && text[at] > ' ' {
		at++
	}
	return at
}

func skipContainer(text []byte, at int) int {
	for open := 0; ; {
		switch text[at] {
		case '"':
			at = skipString(text, at)
			continue
		case '{', '[':
			open++
		case '}', ']':
			open--
		}
		if at++; open == 0 {
			return at
		}
	}
}

// known are the names of the members of an object on which the meaning of a message hangs. Many readers ignore case: a
// member that differs from a known one in nothing else would be read by them, and by no others.
type known struct {
	members map[string]*known
	names   []string // those of members
	// each is for the values of a map that has names of its own.
	each *known
}

// member are the known names below a member, and whether its own name is misspelt.
func (k *known) member(name string) (below *known, misspelt bool) {
	if below, ok := k.members[name]; ok {
		return below, false
	}
	for _, other := range k.names {
		if strings.EqualFold(name, other) {
			return nil, true
		}
	}
	return k.each, false
}

// misspelt reports whether a name in an object is misspelt, or one in an object within it of which something is known.
func (k *known) misspelt(o Object) bool {
	for _, m := range o.members {
		below, misspelt := k.member(m.name)
		if misspelt || below != nil && m.value.Kind() == '{' && below.misspelt(split(m.value)) {
			return true
		}
	}
	return false
}

// of makes the names of an object of which nothing is known but these.
func of(names ...string) *known {
	k := &known{members: make(map[string]*known, len(names))}
	for _, name := range names {
		k.with(name, nil)
	}
	return k
}

// with adds a member of which more is known.
func (k *known) with(name string, below *known) *known {
	k.members[name], usual[name] = below, name
	k.names = append(k.names, name)
	return k
}

// usual are the names that messages have, so that reading one makes no new text.
var usual = map[string]string{"type": "type", "text": "text"}

var (
	ofMeta = of("progressToken", "traceparent", "tracestate",
		"io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientInfo",
		"io.modelcontextprotocol/clientCapabilities", "io.modelcontextprotocol/logLevel",
		"io.modelcontextprotocol/serverInfo", "io.modelcontextprotocol/subscriptionId",
		"io.policy-service/onBehalfOf", "io.policy-service/requestId")

	// ofAsked is a question of a server to a client, by a request of its own or within a result.
	ofAsked = of("mode", "message", "requestedSchema", "url", "elicitationId").with("_meta", ofMeta)

	ofAnswer = of("action", "content").with("_meta", ofMeta)

	ofParams = of("name", "arguments", "uri", "cursor", "requestState", "capability", "proof", "onBehalfOf", "requestId",
		"task", "level", "protocolVersion", "capabilities", "clientInfo", "progressToken", "notifications",
		"mode", "message", "requestedSchema", "url", "elicitationId",
		"authorizationId", "decision", "reason", "validUntil").
		with("_meta", ofMeta).
		with("ref", of("type", "name", "uri")).
		with("argument", of("name", "value")).
		with("inputResponses", &known{each: ofAnswer})

	ofResults = of("resultType", "requestState", "content", "structuredContent", "isError", "task", "action",
		"tools", "resources", "resourceTemplates", "prompts", "nextCursor", "ttlMs", "cacheScope", "contents", "messages",
		"completion", "capabilities", "serverInfo", "instructions", "protocolVersion", "supportedVersions", "roots").
		with("_meta", ofMeta).
		with("inputRequests", &known{each: of("method").with("params", ofAsked)})

	ofMessages = *of("jsonrpc", "id", "method").
			with("params", ofParams).
			with("result", ofResults).
			with("error", of("code", "message", "data"))
)
