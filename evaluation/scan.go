package evaluation

import (
	"math"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// scan reads a body as [parseStrictly] does, at a fraction of its cost: in one pass, into one text and one array of
// members. It reports false for all that it does not know to be right, be it wrong or merely unusual: the parser then
// says what the body is, and what is wrong with it. So a scanner may refuse what it likes. It must never read what the
// parser refuses, and never make another object of it.
func scan(body []byte, limits Limits, batch string, at place) (Object, bool) {
	if len(body) > math.MaxInt32 || !utf8.Valid(body) {
		return Object{}, false
	}
	s := scanners.Get().(*scanner)
	defer s.release()
	s.body, s.text = body, string(body)
	s.limits, s.batch = limits, batch
	if s.next() != '{' {
		return Object{}, false
	}
	root := s.value(0, at)
	if s.next(); s.failed || s.at < len(s.text) {
		return Object{}, false
	}
	return Object{s.members(root)}, true
}

const (
	// scanDepth is how deep a body nests at the most that is scanned.
	scanDepth = 64
	// sharedText is the size of a body up to which all texts of its request are parts of one. Who keeps one text keeps
	// them all, so the texts of a larger body are each on their own.
	sharedText = 64 << 10
)

// scanner reads one body. What it has read holds no pointers, so that to move it, to sort it and to keep the room
// for the next body cost the collector nothing.
type scanner struct {
	body     []byte
	text     string // the same
	at       int    // how much of it was read
	unquoted []byte // the texts that had escapes
	limits   Limits
	batch    string
	values   int
	failed   bool
	open     []node // members of the containers being read
	done     []node // members of those that were read, in the order in which they ended
}

// node is a member, or an element, which has no name.
type node struct {
	name  span
	value span // of an Array or a Map, where its members are among those done
	kind  Kind
}

// span is a part of the text. What lies beyond its end lies in the unquoted texts.
type span struct{ from, to uint32 }

var scanners = sync.Pool{New: func() any { return new(scanner) }}

func (s *scanner) release() {
	if cap(s.open)+cap(s.done) > 4096 || cap(s.unquoted) > sharedText { // do not keep what one large body needed
		return
	}
	*s = scanner{open: s.open[:0], done: s.done[:0], unquoted: s.unquoted[:0]}
	scanners.Put(s)
}

// fail gives the body up. Nothing is left to be read then, which ends all that reads.
func (s *scanner) fail() node {
	s.failed, s.at = true, len(s.text)
	return node{}
}

// next goes over white space to the next byte, and returns it; 0 is also the end.
func (s *scanner) next() byte {
	for ; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// ends reads the end of a container, if it is what comes next.
func (s *scanner) ends(end byte) bool {
	if s.next() != end {
		return false
	}
	s.at++
	return true
}

// more reads what stands after a member, and reports whether that is a comma and not the end of the container.
func (s *scanner) more(end byte) bool {
	if s.ends(',') {
		return true
	}
	if !s.ends(end) {
		s.fail()
	}
	return false
}

func (s *scanner) value(depth int, at place) node {
	if s.values++; s.values > s.limits.Values {
		return s.fail()
	}
	switch s.next() {
	case '"':
		return node{kind: String, value: s.string()}
	case 'n':
		return s.literal(Null, "null")
	case 't':
		return s.literal(Bool, "true")
	case 'f':
		return s.literal(Bool, "false")
	case '{':
		if depth++; depth <= min(s.limits.Depth, scanDepth) {
			return s.object(depth, at)
		}
	case '[':
		if depth++; depth <= min(s.limits.Depth, scanDepth) {
			return s.array(depth, at.element(), s.limits.Values)
		}
	default:
		return s.number()
	}
	return s.fail()
}

func (s *scanner) literal(kind Kind, word string) node {
	if !strings.HasPrefix(s.text[s.at:], word) {
		return s.fail()
	}
	from := s.at
	s.at += len(word)
	return node{kind: kind, value: s.since(from)}
}

// number reads a number without an exponent. One that has an exponent ends before it, where no number may end.
func (s *scanner) number() node {
	from := s.at
	if s.byte() == '-' {
		s.at++
	}
	if s.byte() == '0' {
		s.at++
	} else if !s.digits() {
		return s.fail()
	}
	if s.byte() == '.' {
		if s.at++; !s.digits() {
			return s.fail()
		}
	}
	return node{kind: Number, value: s.since(from)}
}

func (s *scanner) digits() bool {
	from := s.at
	for c := s.byte(); '0' <= c && c <= '9'; c = s.byte() {
		s.at++
	}
	return s.at > from
}

// byte is the next byte, or 0 at the end.
func (s *scanner) byte() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

func (s *scanner) since(from int) span { return span{uint32(from), uint32(s.at)} }

// quoted reads a string as it stands there, and reports whether it has escapes. Its text lies between the quotes.
func (s *scanner) quoted() (inside span, escaped bool) {
	from := s.at + 1
	for i := from; i < len(s.text); i++ {
		switch c := s.text[i]; {
		case c == '"':
			s.at = i + 1
			return span{uint32(from), uint32(i)}, escaped
		case c == '\\':
			escaped = true
			i++ // whatever it is that is escaped ends nothing
		case c < ' ':
			s.fail()
			return span{}, false
		}
	}
	s.fail()
	return span{}, false
}

// string reads a string, with the parser's own reading of escapes.
func (s *scanner) string() span {
	inside, escaped := s.quoted()
	if !escaped {
		return inside
	}
	from := len(s.unquoted)
	var err error
	if s.unquoted, err = jsontext.AppendUnquote(s.unquoted, s.body[inside.from-1:inside.to+1]); err != nil {
		s.fail()
		return span{}
	}
	return span{uint32(len(s.text) + from), uint32(len(s.text) + len(s.unquoted))}
}

// array reads an array of at most so many elements, each as if it were so deep.
func (s *scanner) array(depth int, at place, most int) node {
	s.at++
	base := len(s.open)
	for more := !s.ends(']'); more; more = s.more(']') {
		s.open = append(s.open, s.value(depth, at))
		if len(s.open)-base > most {
			return s.fail()
		}
	}
	return s.end(Array, base, true)
}

func (s *scanner) object(depth int, at place) node {
	s.at++
	base, sorted := len(s.open), true
	for more := !s.ends('}'); more; more = s.more('}') {
		if s.next() != '"' {
			return s.fail()
		}
		inside, escaped := s.quoted()
		name := s.text[inside.from:inside.to]
		if escaped || isReserved(name) || !s.ends(':') {
			return s.fail()
		}
		var n node
		if s.batch != "" && depth == 1 && name == s.batch && s.next() == '[' {
			n = s.items(depth)
		} else {
			n = s.value(depth, at.member(name))
		}
		n.name = inside
		if len(s.open) > base && s.name(s.open[len(s.open)-1]) >= name {
			sorted = false
		}
		s.open = append(s.open, n)
	}
	if members := s.open[base:]; !sorted && !s.sort(members) {
		return s.fail()
	}
	return s.end(Map, base, at == inArguments)
}

// items reads the items of a batch; see [parser.items].
func (s *scanner) items(depth int) node {
	if s.values++; s.values > s.limits.Values {
		return s.fail()
	}
	return s.array(depth+1, inBody, s.limits.Batch)
}

func (s *scanner) name(n node) string { return s.text[n.name.from:n.name.to] }

// sort sorts the members of an object by name, and reports whether each occurs once.
func (s *scanner) sort(members []node) bool {
	slices.SortFunc(members, func(a, b node) int { return strings.Compare(s.name(a), s.name(b)) })
	for n := 1; n < len(members); n++ {
		if s.name(members[n-1]) == s.name(members[n]) {
			return false
		}
	}
	return true
}

// end makes a container of the members from base on.
func (s *scanner) end(kind Kind, base int, nulls bool) node {
	from := len(s.done)
	for _, n := range s.open[base:] {
		if nulls || n.kind != Null {
			s.done = append(s.done, n)
		}
	}
	s.open = s.open[:base]
	return node{kind: kind, value: span{uint32(from), uint32(len(s.done))}}
}

// members makes values of all that was read, and returns those of the root.
func (s *scanner) members(root node) []Member {
	shared, unquoted := len(s.text) <= sharedText, string(s.unquoted)
	of := func(at span) string {
		text := s.text
		if n := uint32(len(text)); at.from >= n {
			text, at.from, at.to = unquoted, at.from-n, at.to-n
		}
		if text = text[at.from:at.to]; !shared {
			text = strings.Clone(text)
		}
		return text
	}
	all := make([]Member, len(s.done))
	within := func(at span) []Member {
		if at.from == at.to {
			return nil
		}
		return all[at.from:at.to:at.to]
	}
	for n, from := range s.done {
		m := &all[n]
		m.Name, m.Value.kind = of(from.name), from.kind
		switch from.kind {
		case Null:
		case Array, Map:
			m.Value.elems = within(from.value)
		default:
			m.Value.text = of(from.value)
		}
	}
	return within(root.value)
}
