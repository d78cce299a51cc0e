package bundle

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/pdp/internal/cedartext"
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
		text:   string(text),
		schema: strings.HasSuffix(file, ".cedarschema"),
		levels: []level{{from: -1}},
	}
	for s.now = range cedartext.Tokens(s.text) {
		if s.now.Trivia() {
			continue
		}
		s.word()
		if s.wrong != nil {
			*problems = append(*problems, s.wrong...)
			return false
		}
		if use.wordCount+s.words > use.bounds.Words {
			end := s.now.End()
			use.exceeds(true, "many_words", "names, texts and signs in policies", use.bounds.Words,
				entityPlace{file, end.Line, end.Column}, source.TryLess, problems)
			return false
		}
	}
	use.wordCount += s.words
	return true
}

// textScan goes through the words of a text and counts what is bounded. Its words are those of cedar-go: where the two read
// a text in different ways, cedar-go refuses the text, and does not parse beyond that place.
type textScan struct {
	file   string
	text   string
	now    cedartext.Token // the word that is read
	end    int             // where the word before it ends
	schema bool            // the text is a schema: < and > are brackets in it
	levels []level
	open   int // ifs that are open, at all levels
	signs  int // ! and - in a row
	chain  chainScan
	words  int
	wrong  Problems // the first thing that exceeds a bound
}

// chainScan is the chain of names, joined by dots or double colons, that is being read.
type chainScan struct {
	names  int
	dot    bool   // the last word was a dot or two colons
	last   string // the last word, if it was a name
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
	if end := s.now.End(); s.wrong == nil {
		s.wrong.Add(s.file, end.Line, end.Column, kind+code, fmt.Sprintf(format, args...), try)
	}
}

func (s *textScan) word() {
	s.words++
	if here := &s.levels[len(s.levels)-1]; here.from < 0 {
		here.from = s.now.Offset
	}
	switch s.now.Kind {
	case cedartext.Name, cedartext.Number:
		s.name()
	case cedartext.Text:
		s.quoted()
	default:
		s.sign()
	}
	s.nesting()
	s.end = s.now.End().Offset
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

func (s *textScan) quoted() {
	switch size := len(s.now.Text); {
	case s.chain.last == "like" && size > maxPattern:
		s.refuse("pattern", "look for less", "a pattern behind like has more than %d bytes", maxPattern)
	case size > maxText && !s.schema:
		s.refuse("text", "write a shorter one, or let an attribute of an entity hold it",
			"a text has more than %d bytes", maxText)
	}
	s.signs, s.chain.names, s.chain.dot, s.chain.last = 0, 0, false, ""
}

// name reads a name or a number.
func (s *textScan) name() {
	if !s.chain.dot {
		s.chain.names, s.chain.has = 0, s.chain.last == "has"
		if s.now.Text == "if" {
			s.levels[len(s.levels)-1].ifs++
			s.open++
		}
	}
	s.signs = 0
	s.chain.names++
	s.chain.dot, s.chain.last = false, s.now.Text
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

// sign reads a sign, or a character that is no word of Cedar.
func (s *textScan) sign() {
	here := &s.levels[len(s.levels)-1]
	switch c := s.now.Text; {
	case c == "(" || c == "[" || c == "{" || c == "<" && s.schema:
		s.levels = append(s.levels, level{list: c == "[" && !s.schema, from: -1})
	case c == ")" || c == "]" || c == "}" || c == ">" && s.schema:
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
	case c == ",":
		s.endIfs(here)
		if here.list {
			s.element(here)
		}
		here.from = -1
	case c == ";":
		s.endIfs(here)
	}
	if c := s.now.Text; c == "!" || c == "-" {
		s.signs++
	} else {
		s.signs = 0
	}
	// Each part of a type copies the parts before it, as behind a dot.
	s.chain.dot, s.chain.last = s.now.Text == "." || s.now.Text == "::", ""
}

// endIfs notes that the ifs of this level end here at the latest.
func (s *textScan) endIfs(l *level) {
	s.open -= l.ifs
	l.ifs = 0
}

// element notes an element that ends here.
func (s *textScan) element(l *level) {
	if l.from == s.now.Offset { // it has no word: the text is the bracket or comma itself
		return
	}
	if l.elements++; l.elements > MostElements {
		s.refuse("list", "make a group of them, and test with in", "a list has more than %d elements",
			MostElements)
	} else if v, ok := literalOf(s.text[l.from:s.end]); ok {
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
	case l.lists > MostArrays:
		s.refuse("list", "write fewer lists within lists", "lists nest more than %d deep", MostArrays)
	case l.elements-len(l.plain) > maxUnknown || l.elements > maxUnknown && l.lists > 1:
		s.refuse("list", "write texts, whole numbers and entities only, or several lists",
			"a list has more than %d elements, and not all of them are plain values", maxUnknown)
	case len(l.plain) > FewElements && collide(l.plain):
		s.refuse("list", "write other elements",
			"the elements of a list were chosen to make it slow: Cedar takes the square of their number for them")
	}
}

var (
	plainText = regexp.MustCompile(`^((?:[A-Za-z_][A-Za-z0-9_]*::)*)"(?:[^"\\]|\\.)*"$`)
	plainCall = regexp.MustCompile(`^(ip|decimal|datetime|duration)\(\s*("[^"\\]*")\s*\)$`)
)

// literalOf is the value of a literal in its usual form: a text, a whole number, true,
// false, an entity, or a value of an extension type.
func literalOf(t string) (types.Value, bool) {
	if t == "true" || t == "false" {
		return types.Boolean(t == "true"), true
	}
	if n, err := strconv.ParseInt(t, 10, 64); err == nil && t[0] != '+' {
		return types.Long(n), true
	}
	if m := plainCall.FindStringSubmatch(t); m != nil {
		return FromText(m[2][1:len(m[2])-1], constructors[m[1]])
	}
	var uid types.EntityUID
	m := plainText.FindStringSubmatch(t)
	switch {
	case m == nil:
		return nil, false
	case !strings.Contains(t, `\`):
		typ, id := strings.TrimSuffix(m[1], "::"), types.String(t[len(m[1])+1:len(t)-1])
		if typ == "" {
			return id, true
		}
		return types.NewEntityUID(types.EntityType(typ), id), true
	case m[1] == "": // a text is written as an id is
		err := uid.UnmarshalCedar([]byte("t::" + t))
		return uid.ID, err == nil
	}
	err := uid.UnmarshalCedar([]byte(t))
	return uid, err == nil
}
