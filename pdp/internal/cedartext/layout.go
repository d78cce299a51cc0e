package cedartext

import (
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// How wide a line may be, and how far a part is indented below its whole.
const (
	lineWidth = 80
	indent    = 2
)

// layout is a text that can be written in more than one way: see [layout.write]. A group is written in one line if it fits,
// and otherwise breaks at each break that stands in it and in no inner group.
type layout struct {
	form  form
	text  string    // of formText and formComment; of formBreak, the text in place of the break
	by    int       // of formIndent, by how many columns
	parts []*layout // in order
}

type form uint8

const (
	formText    form = iota
	formBreak        // a blank or nothing, or the end of a line
	formEnd          // the end of a line, always
	formComment      // a comment behind a word, and the end of its line
	formJoined       // its parts one after the other
	formIndent       // its parts, where each line that they begin is indented more
	formGroup        // its parts, in one line if they fit
)

var (
	blank      = text(" ")
	blankBreak = &layout{form: formBreak, text: " "} // a blank, or the end of a line
	softBreak  = &layout{form: formBreak}            // nothing, or the end of a line
	lineEnd    = &layout{form: formEnd}
	nothing    = joined()
)

func text(t string) *layout { return &layout{form: formText, text: t} }

func joined(parts ...*layout) *layout { return &layout{form: formJoined, parts: parts} }

func indented(by int, parts ...*layout) *layout {
	return &layout{form: formIndent, by: by, parts: parts}
}

func group(parts ...*layout) *layout { return &layout{form: formGroup, parts: parts} }

// piece is a part of a layout that is to be written next.
type piece struct {
	*layout
	indent int
	flat   bool // breaks do not break here
}

// write makes lines of a layout, none of them empty. It goes through the parts in order, and decides of each group when it
// comes to it; so it takes one way through the text, and looks no farther ahead than a line.
func (l *layout) write() string {
	var b page
	for todo := []piece{{layout: l}}; len(todo) > 0; {
		next := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		switch {
		case next.form == formText, next.form == formBreak && next.flat:
			b.settle(next.indent)
			b.write(next.text)
			continue
		case next.form == formComment:
			b.write(next.text)
			b.end(next.indent)
			b.behind = true
			continue
		case next.form == formBreak, next.form == formEnd:
			b.end(next.indent)
			continue
		case next.form == formIndent:
			next.indent += next.by
		case next.form == formGroup:
			b.settle(next.indent)
			next.flat = next.flat || fits(next, todo, lineWidth-b.columns)
		}
		for _, part := range slices.Backward(next.parts) {
			todo = append(todo, piece{part, next.indent, next.flat})
		}
	}
	b.end(0)
	return string(b.done)
}

// page is the output: lines that are done, and the line that is being written.
type page struct {
	done, line []byte
	columns    int  // of the line
	written    bool // there is more than an indent in the line
	behind     bool // a comment behind a word has ended the line before
}

func (p *page) write(t string) {
	p.line = append(p.line, t...)
	p.columns += columnsOf(t)
	p.written, p.behind = true, false
}

// settle lessens the indent of a line that begins only because a comment ended the one before, to that of the next word.
func (p *page) settle(indent int) {
	if p.behind && indent < p.columns {
		p.end(indent)
	}
}

// end ends the line, and indents the next one. A line with nothing in it begins anew.
func (p *page) end(indent int) {
	if p.written {
		p.done = append(append(p.done, p.line...), '\n')
	}
	p.line, p.columns, p.written = append(p.line[:0], strings.Repeat(" ", indent)...), indent, false
	p.behind = false
}

// fits reports whether a group, and what follows it up to where a line can end, has at most so many columns. A group that
// ends a line in its middle does not fit.
func fits(g piece, rest []piece, columns int) bool {
	todo, flat := slices.Clone(g.parts), true
	slices.Reverse(todo)
	for columns >= 0 {
		if len(todo) == 0 {
			if len(rest) == 0 {
				return true
			}
			todo, rest, flat = append(todo, rest[len(rest)-1].layout), rest[:len(rest)-1], false
		}
		next := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		switch next.form {
		case formText:
			columns -= columnsOf(next.text)
		case formEnd:
			return !flat
		case formComment:
			return !flat && columnsOf(next.text) <= columns
		case formBreak:
			if !flat {
				return true
			}
			columns -= len(next.text)
		default:
			for _, part := range slices.Backward(next.parts) {
				todo = append(todo, part)
			}
		}
	}
	return false
}

// columnsOf is how many columns of a terminal a text takes.
func columnsOf(text string) (n int) {
	for _, c := range text {
		switch k := width.LookupRune(c).Kind(); {
		case unicode.In(c, unicode.Mn, unicode.Me, unicode.Cf):
		case k == width.EastAsianWide, k == width.EastAsianFullwidth:
			n += 2
		default:
			n++
		}
	}
	return n
}
