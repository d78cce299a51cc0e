package cedartext

import "fmt"

// maxNesting is how deep brackets, ifs and signs may nest: a parser goes as deep into its stack. It is more than a bundle may
// have.
const maxNesting = 500

// reader makes a layout of words. At the first word that is not as it should be it refuses the text, and from there on
// reads as if the text ended.
type reader struct {
	words   []word
	depth   int
	refused *Refusal
}

// next is the text of the next word, "" at the end.
func (r *reader) next() string { return r.words[0].Text }

// ahead is the text of the word n words after the next one, "" if there is none.
func (r *reader) ahead(n int) string {
	if n >= len(r.words) {
		return ""
	}
	return r.words[n].Text
}

// refuse refuses the text at the next word.
func (r *reader) refuse(problem, try string) *layout {
	if r.refused == nil {
		r.refused = refuse(r.words[0].Position, problem, try)
	}
	r.words = r.words[len(r.words)-1:]
	return nothing
}

// expected refuses the next word, because something else should be there.
func (r *reader) expected(what string) *layout {
	return r.refuse("this is not Cedar: expected "+what, "check the syntax at this place; a policy ends with a semicolon")
}

// word is the next word with its comments: those before it on lines of their own, and the one behind it at the end of its
// line. Without the latter, then follows.
func (r *reader) word(then *layout) *layout {
	w := r.words[0]
	if len(r.words) > 1 {
		r.words = r.words[1:]
	}
	all := comments(w.before)
	all = append(all, text(w.Text))
	if w.behind != "" {
		return joined(append(all, &layout{form: formComment, text: " " + w.behind})...)
	}
	return joined(append(all, then)...)
}

// comments are comments on lines of their own.
func comments(all []Token) (lines []*layout) {
	for _, c := range all {
		lines = append(lines, lineEnd, text(said(c)))
	}
	if lines != nil {
		lines = append(lines, lineEnd)
	}
	return lines
}

// exactly is a word that must come next.
func (r *reader) exactly(t string, then *layout) *layout {
	if r.next() != t {
		return r.expected(t)
	}
	return r.word(then)
}

// of is a word of a kind that must come next.
func (r *reader) of(kind Kind, what string) *layout {
	if r.words[0].Kind != kind {
		return r.expected(what)
	}
	return r.word(nothing)
}

// closing is the end of a list. A comma before it falls away, which has no comment that would fall away with it.
func (r *reader) closing(t string) *layout {
	if r.next() == "," && r.ahead(1) == t {
		if w := r.words[0]; w.before != nil || w.behind != "" {
			return r.refuse("the layout leaves this comma out, and a comment stands beside it", "remove the comma")
		}
		r.words = r.words[1:]
	}
	return r.exactly(t, nothing)
}

// nested reads the inside of brackets, or the operand of a sign, unless that is too deep.
func (r *reader) nested(read func() *layout) *layout {
	if r.depth++; r.depth > maxNesting {
		return r.refuse(fmt.Sprintf("brackets, ifs and signs nest more than %d deep", maxNesting), "write the condition flatter")
	}
	defer func() { r.depth-- }()
	return read()
}

// policy is one permit or forbid, with its annotations.
func (r *reader) policy() *layout {
	var all []*layout
	for r.next() == "@" {
		all = append(all, r.annotation(), lineEnd)
	}
	if next := r.next(); next != "permit" && next != "forbid" {
		return r.expected("permit or forbid")
	}
	all = append(all, r.above(), r.head())
	for r.next() == "when" || r.next() == "unless" {
		all = append(all, lineEnd, r.clause())
	}
	return joined(append(all, r.exactly(";", nothing))...)
}

func (r *reader) annotation() *layout {
	at := r.word(nothing)
	if r.ahead(1) != "(" {
		return joined(at, r.of(Name, "a name"))
	}
	return joined(at, r.of(Name, "a name"), r.word(nothing), r.of(Text, "a text"), r.exactly(")", nothing))
}

// head is the effect and scope of a policy. Each variable has a line, unless none is constrained.
func (r *reader) head() *layout {
	ends, first := lineEnd, lineEnd
	if r.ahead(3) == "," && r.ahead(5) == "," && (r.ahead(7) == ")" || r.ahead(7) == ",") {
		ends, first = blank, nothing
	}
	effect := group(r.word(blankBreak), r.exactly("(", nothing))
	inside := []*layout{
		first,
		r.variable("principal"), r.exactly(",", ends),
		r.variable("action"), r.exactly(",", ends),
		r.variable("resource"),
	}
	return joined(effect, indented(indent, inside...), first, r.closing(")"))
}

// variable is a variable of the head, and its constraint.
func (r *reader) variable(name string) *layout {
	before, all := r.above(), r.exactly(name, nothing)
	place := r.entity
	switch r.next() {
	case "==":
	case "is":
		all = group(all, blankBreak, r.word(nothing))
		all = group(all, indented(indent, blankBreak, r.path()))
		if r.next() != "in" {
			return joined(before, all)
		}
	case "in":
		if r.ahead(1) == "[" {
			place = r.set
		}
	default:
		return joined(before, all)
	}
	all = group(all, blankBreak, r.word(nothing))
	return joined(before, group(all, indented(indent, blankBreak, group(place()))))
}

// clause is a when or an unless. Comments in front of it, and in front of its expression, keep neither from fitting in a line.
func (r *reader) clause() *layout {
	before := r.above()
	word := r.word(blankBreak)
	open := r.exactly("{", blankBreak)
	said := joined(r.above(), group(r.nested(r.expression)))
	return joined(before, group(word, group(indented(indent, open, said), blankBreak, r.exactly("}", nothing))))
}

// above takes the comments that stand before the next word away from it, so that they can be written outside of its group.
func (r *reader) above() *layout {
	w := &r.words[0]
	lines := joined(comments(w.before)...)
	w.before = nil
	return lines
}
