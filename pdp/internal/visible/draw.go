package visible

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/bidi"
)

// drawer makes the pieces of one line after the other, and remembers odd ones.
type drawer struct {
	lines       []string
	rightToLeft bool
	escapedRTL  bool // a letter from right to left was escaped as one that is alike
	plainText   bool // all of it is ASCII
	read        bool // it is a text that is read, and no id, name or URL
	json        bool // quotation marks end its texts
	foreign     bool // it has words of another alphabet that look like none of ours
	odd
	pieces []Piece
	run    strings.Builder // of plain characters, which become a piece
}

func newDrawer(text string, inJSON bool) *drawer {
	d := &drawer{lines: strings.Split(text, "\n"), odd: odd{hidden: map[string]int{}}}
	if d.plainText = !strings.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf }); d.plainText {
		return d
	}
	d.read, d.json = isRead(text), inJSON || isJSON(text)
	for _, line := range d.lines {
		d.foreign = d.foreign || slices.ContainsFunc(wordsIn(line), func(w word) bool { return w.kind == isForeign })
	}
	return d
}

// line draws one line, or several that are empty, and returns how many.
func (d *drawer) line(lines []string) (line []Piece, count int) {
	for count < len(lines) && strings.Trim(lines[count], " \t") == "" {
		count++
	}
	if count > mostEmpty {
		d.empty = max(d.empty, count)
		note := Plural(count, "empty line")
		if slices.ContainsFunc(lines[:count], func(line string) bool { return line != "" }) {
			note = Plural(count, "line") + " of spaces"
		}
		return []Piece{{fmt.Sprintf("⏎×%d", count), Spaces, note}}, count
	}
	d.pieces = nil
	d.draw(lines[0])
	d.flush()
	return d.pieces, 1
}

func (d *drawer) draw(line string) {
	alike := d.alike(line)
	var on stack
	for at := 0; at < len(line); {
		c := first(line[at:])
		switch {
		case len(alike) > 0 && alike[0].at == at:
			d.add(Piece{c.escape(), Alike, alike[0].note})
			d.escapedRTL = d.escapedRTL || rightToLeft(c)
			alike = alike[1:]
			on = stack{}
		case c.rune == ' ' || c.rune == '\t':
			at += d.space(line[at:], at == 0)
			on = stack{}
			continue
		case on.hides(c):
			count := 1
			for strings.HasPrefix(line[at+count*len(c.bytes):], c.bytes) {
				count++
			}
			d.escape(c, count)
			at += count * len(c.bytes)
			continue
		default:
			d.plain(c)
		}
		at += len(c.bytes)
	}
}

func (d *drawer) add(p Piece) {
	d.flush()
	d.pieces = append(d.pieces, p)
}

func (d *drawer) flush() {
	if d.run.Len() > 0 {
		d.pieces = append(d.pieces, Piece{Text: d.run.String()})
		d.run.Reset()
	}
}

// plain adds a character that needs no mark.
func (d *drawer) plain(c char) {
	if c.rune == '\\' {
		d.run.WriteString(`\\`)
		return
	}
	d.rightToLeft = d.rightToLeft || rightToLeft(c)
	d.run.WriteString(c.bytes)
}

// rightToLeft reports whether a letter is written from right to left, whatever is around it.
func rightToLeft(c char) bool {
	if c.rune < 0x590 || !unicode.IsLetter(c.rune) { // no such letter comes before
		return false
	}
	p, _ := bidi.LookupString(c.bytes)
	return p.Class() == bidi.R || p.Class() == bidi.AL
}

// escape adds a character that must be escaped, as often as it is there.
func (d *drawer) escape(c char, count int) {
	name := nameOf(c)
	d.escaped(c, name, count)
	if count > mostSpaces {
		d.add(Piece{fmt.Sprintf("%s×%d", c.escape(), count), Escape, name + ", " + Plural(count, "time")})
		return
	}
	for range count {
		d.add(Piece{c.escape(), Escape, name})
	}
}

// space draws the spaces and tabs that a text begins with, and returns how many bytes it drew.
func (d *drawer) space(text string, begins bool) int {
	all := text[:len(text)-len(strings.TrimLeft(text, " \t"))]
	spaces, tabs := strings.Count(all, " "), strings.Count(all, "\t")
	switch {
	case len(all) > mostSpaces:
		d.spaces = max(d.spaces, len(all))
		d.add(Piece{counted(spaces, tabs), Spaces, spacesInWords(spaces, tabs)})
	case len(all) == len(text) || begins && len(d.lines) == 1: // they would be invisible
		d.add(Piece{strings.NewReplacer(" ", "␣", "\t", indent).Replace(all), Spaces, spacesInWords(spaces, tabs)})
	default:
		for _, r := range all {
			if r == ' ' {
				d.run.WriteByte(' ')
			} else {
				d.add(Piece{indent, Spaces, tab})
			}
		}
	}
	return len(all)
}

// counted draws a long run.
func counted(spaces, tabs int) string {
	var all []string
	if spaces > 0 {
		all = append(all, fmt.Sprintf("␣×%d", spaces))
	}
	if tabs > 0 {
		all = append(all, fmt.Sprintf("→×%d", tabs))
	}
	return strings.Join(all, " ")
}

func spacesInWords(spaces, tabs int) string {
	switch {
	case tabs == 0:
		return Plural(spaces, "space")
	case spaces == 0:
		return Plural(tabs, "tab")
	}
	return Plural(spaces, "space") + " and " + Plural(tabs, "tab")
}
