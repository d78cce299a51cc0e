package bundle

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/pdp/internal/source"
)

// The bounds of a text in Cedar's syntax. They are checked before cedar-go parses the text,
// because cedar-go evaluates constants while it parses.
const (
	// maxNesting is needed because 500 KB of parentheses overflow cedar-go's stack, and no
	// program can catch that.
	maxNesting = 200
	// maxChain bounds the names of a chain. Each name copies the names before it: 16 KB of
	// `context has a.a.a…` cost cedar-go 2 GB.
	maxChain = 16
	// maxHasCopies bounds the names that are copied in one file for chains behind has. 256 KiB
	// of such chains cost seconds.
	maxHasCopies = 50_000
	// maxPattern and maxText bound what `like` works on: it goes over the text again for
	// every character of the pattern.
	maxPattern = 512
	maxText    = 16 << 10
	// maxUnknown bounds a list with elements that are no plain values. They cannot be checked
	// for collisions: see [textScan.list].
	maxUnknown = 32
)

// checkText bounds a text in Cedar's syntax, and counts its words.
func checkText(file string, text []byte, use *Usage, problems *Problems) bool {
	s := textScan{
		file:   file,
		text:   text,
		line:   1,
		column: 1,
		schema: strings.HasSuffix(file, ".cedarschema"),
		levels: []level{{from: -1}},
	}
	for s.i < len(text) {
		s.step()
		if s.wrong != nil {
			*problems = append(*problems, s.wrong...)
			return false
		}
		if use.wordCount+s.words > use.bounds.Words {
			use.exceeds(true, "many_words", "names, texts and signs in policies", use.bounds.Words,
				entityPlace{file, s.line, s.column}, source.TryLess, problems)
			return false
		}
	}
	use.wordCount += s.words
	return true
}

// textScan walks a text and counts what is bounded. It skips exactly what cedar-go takes for
// white space, comments and strings. If one of the two skipped what the other reads, the
// bounds would be no bounds.
type textScan struct {
	file         string
	text         []byte
	i, end       int // end is the end of the last word
	line, column int
	schema       bool // the text is a schema: < and > are brackets in it
	levels       []level
	open         int // ifs that are open, at all levels
	signs        int // ! and - in a row
	chain        chainScan
	words        int
	wrong        Problems // the first thing that exceeds a bound
}

// chainScan is the chain of names, joined by dots or double colons, that is being read.
type chainScan struct {
	names  int
	dot    bool   // the last thing read was a dot or two colons
	last   string // the last name read, "" if something else came after it
	has    bool   // the chain stands behind has
	copies int    // names that cedar-go copies for all chains behind has, in the whole text
}

// level is the text between two brackets, as far as it was read.
type level struct {
	ifs   int // ifs that are open
	list  bool
	lists int // how deep lists with more than one element nest in it
	from  int // where the element being read begins, -1 before its first word
	// elements counts the elements before the one being read. The slice plain holds those
	// that are plain values.
	elements int
	plain    []types.Value
}

func (s *textScan) refuse(code, try, format string, args ...any) {
	kind := "policy_"
	if s.schema {
		kind = "schema_"
	}
	if s.wrong == nil {
		s.wrong.Add(s.file, s.line, s.column, kind+code, fmt.Sprintf(format, args...), try)
	}
}

// step reads white space, a comment or a word.
func (s *textScan) step() {
	c := s.text[s.i]
	switch {
	case c == ' ', c == '\t', c == '\r', c == '\n':
		s.next()
		return
	case s.at("//"):
		for s.i < len(s.text) && s.text[s.i] != '\n' {
			s.next()
		}
		return
	case s.at("/*"):
		s.next()
		s.next()
		for s.i < len(s.text) && !s.at("*/") {
			s.next()
		}
		s.next()
		s.next()
		return
	}
	s.words++
	if here := &s.levels[len(s.levels)-1]; here.from < 0 {
		here.from = s.i
	}
	defer func() { s.end = s.i }()
	switch {
	case isNameByte(c):
		s.name()
	case c == '"':
		s.quoted()
	default:
		s.sign(c)
		s.nesting()
		return
	}
	s.signs = 0
}

// nesting bounds how deep the recursion of a parser goes.
func (s *textScan) nesting() {
	if len(s.levels)-1+s.open+s.signs <= maxNesting {
		return
	}
	try := "write the condition flatter"
	if s.schema {
		try = "name inner types, and refer to them"
	}
	s.refuse("nesting", try, "brackets, ifs and signs nest more than %d deep", maxNesting)
}

func (s *textScan) at(mark string) bool { return bytes.HasPrefix(s.text[s.i:], []byte(mark)) }

// quoted reads a string.
func (s *textScan) quoted() {
	from, pattern := s.i, s.chain.last == "like"
	s.next()
	for s.i < len(s.text) && s.text[s.i] != '"' {
		if s.text[s.i] == '\\' {
			s.next()
		}
		s.next()
	}
	s.next()
	s.chain.names, s.chain.dot, s.chain.last = 0, false, ""
	switch size := s.i - from; {
	case pattern && size > maxPattern:
		s.refuse("pattern", "look for less", "a pattern behind like has more than %d bytes", maxPattern)
	case size > maxText && !s.schema:
		s.refuse("text", "write a shorter one, or let an attribute of an entity hold it",
			"a text has more than %d bytes", maxText)
	}
}

// name reads a name or a number.
func (s *textScan) name() {
	from := s.i
	for s.i < len(s.text) && isNameByte(s.text[s.i]) {
		s.next()
	}
	here := &s.levels[len(s.levels)-1]
	name := string(s.text[from:min(s.i, from+8)])
	if !s.chain.dot {
		s.chain.names, s.chain.has = 0, s.chain.last == "has"
		if name == "if" {
			here.ifs++
			s.open++
			s.nesting()
		}
	}
	s.chain.names++
	s.chain.dot, s.chain.last = false, name
	if s.chain.has && s.chain.names > 1 {
		s.chain.copies += s.chain.names
	}
	switch {
	case s.chain.names > maxChain:
		s.refuse("chain", "shorten the path", "more than %d names in a chain of dots or colons", maxChain)
	case s.chain.copies > maxHasCopies:
		s.refuse("has", "test for shorter paths, or move policies to another file",
			"the paths behind has are too long together")
	}
}

// sign reads a sign that is part of no name and no string.
func (s *textScan) sign(c byte) {
	here := &s.levels[len(s.levels)-1]
	switch {
	case c == '(' || c == '[' || c == '{' || c == '<' && s.schema:
		s.levels = append(s.levels, level{list: c == '[' && !s.schema, from: -1})
	case c == ')' || c == ']' || c == '}' || c == '>' && s.schema:
		s.endIfs(here)
		if here.list {
			s.element(here)
			s.list(here)
		}
		if last := len(s.levels) - 1; last > 0 {
			outer := &s.levels[last-1]
			outer.lists = max(outer.lists, here.lists)
			s.levels = s.levels[:last]
		}
	case c == ',':
		s.endIfs(here)
		if here.list {
			s.element(here)
		}
		here.from = -1
	case c == ';':
		s.endIfs(here)
	}
	if c == '!' || c == '-' {
		s.signs++
	} else {
		s.signs = 0
	}
	if s.at("::") { // each part copies the parts before it, as behind a dot
		s.next()
		c = '.'
	}
	s.chain.dot, s.chain.last = c == '.', ""
	s.next()
}

// endIfs notes that the ifs of this level end here at the latest.
func (s *textScan) endIfs(l *level) {
	s.open -= l.ifs
	l.ifs = 0
}

// element notes an element that ends here.
func (s *textScan) element(l *level) {
	if l.from == s.i { // it has no word: the text is the bracket or comma itself
		return
	}
	text := s.text[l.from:s.end]
	if l.elements++; l.elements > storedLimits.Elements {
		s.refuse("list", "make a group of them, and test with in", "a list has more than %d elements",
			storedLimits.Elements)
	} else if v, ok := literalOf(text); ok {
		l.plain = append(l.plain, v)
	}
}

// list checks a list that ends here. cedar-go makes a Set from the list while it parses, which
// takes the square of the number of colliding elements.
func (s *textScan) list(l *level) {
	if l.elements < 2 {
		return // this may be a member in brackets, and no list
	}
	l.lists++
	switch {
	case l.lists > storedLimits.ArrayDepth:
		s.refuse("list", "write fewer lists within lists", "lists nest more than %d deep", storedLimits.ArrayDepth)
	case l.elements-len(l.plain) > maxUnknown || l.elements > maxUnknown && l.lists > 1:
		s.refuse("list", "write texts, whole numbers and entities only, or several lists",
			"a list has more than %d elements, and not all of them are plain values", maxUnknown)
	case len(l.plain) > FewElements && collide(l.plain):
		s.refuse("list", "write other elements",
			"the elements of a list were chosen to make it slow: Cedar takes the square of their number for them")
	}
}

// next goes on by one byte.
func (s *textScan) next() {
	if s.i >= len(s.text) {
		return
	}
	if c := s.text[s.i]; c == '\n' {
		s.line, s.column = s.line+1, 1
	} else if c < 0x80 || c >= 0xC0 { // a character, not a byte
		s.column++
	}
	s.i++
}

func isNameByte(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= 0x80
}

var (
	plainUID  = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*(?:::[A-Za-z_][A-Za-z0-9_]*)*)::("[^"\\]*")$`)
	plainCall = regexp.MustCompile(`^(ip|decimal|datetime|duration)\(\s*("[^"\\]*")\s*\)$`)
	plainText = regexp.MustCompile(`^"(?:[^"\\]|\\["'\\nrt0])*"$`)
	unescape  = strings.NewReplacer(`\"`, `"`, `\'`, `'`, `\\`, `\`, `\n`, "\n", `\r`, "\r", `\t`, "\t", `\0`, "\x00")
)

// literalOf is the value of a literal in its usual form: a text, a whole number, true,
// false, an entity, or a value of an extension type.
func literalOf(text []byte) (types.Value, bool) {
	t := string(text)
	switch {
	case t == "true", t == "false":
		return types.Boolean(t == "true"), true
	case plainText.MatchString(t):
		return types.String(unescape.Replace(t[1 : len(t)-1])), true
	}
	if n, err := strconv.ParseInt(t, 10, 64); err == nil && t[0] != '+' {
		return types.Long(n), true
	}
	if m := plainUID.FindStringSubmatch(t); m != nil {
		return types.NewEntityUID(types.EntityType(m[1]), types.String(m[2][1:len(m[2])-1])), true
	}
	if m := plainCall.FindStringSubmatch(t); m != nil {
		return FromText(m[2][1:len(m[2])-1], constructors[m[1]])
	}
	return nil, false
}
