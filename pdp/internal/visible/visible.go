// Package visible writes foreign text so that it looks like nothing else. It knows nothing of where the text is shown.
//
// [Text] is for one line, and [Lines] for several: invisible characters are escaped, and a backslash is doubled, so that
// an escape is never taken for a text that has one in it. [Quoted] is for a text whose quotes and escapes are there
// already. [Of] is for output that draws escapes in another way than text, such as a page: it also marks look-alikes.
// [Word] is for a name in a sentence of ours, before the sentence is written by one of these. [Known] finds the ids that look like one that is known.
package visible

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Text writes invisible characters as JSON would escape them, a byte that is no UTF-8 as \xff, and a backslash as two. An
// id may hold characters that move a cursor, reverse text or hide it, and must not rewrite the screen that it is read on.
func Text(text string) string { return but(text, "", `\\`) }

// Word is a name in a sentence. It is in the quotes of JSON unless it can only be read as one word, so that the sentence
// does not go on in it.
func Word(name string) string {
	other := func(r rune) bool {
		return r >= utf8.RuneSelf || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("._:@/-", r)
	}
	if name == "" || strings.ContainsFunc(name, other) {
		quoted, _ := jsontext.AppendQuote(nil, name) // what is no UTF-8 in it is replaced
		return string(quoted)
	}
	return name
}

// AsDrawn reports whether a text is what a person sees of it: nothing in it is escaped, looks like another character, is
// counted, is read in another order than it stands in, or is a space at an end.
func AsDrawn(text string) bool {
	return Quoted(text) == text && strings.TrimSpace(text) == text && len(Notes(text)) == 0
}

// Lines leaves a text its lines and tabs.
func Lines(text string) string { return but(text, "\n\t", `\\`) }

// Quoted is [Text] for JSON, and for words of ours in which the words of others are quoted as %q quotes them: a backslash
// in it begins an escape, or is one of two already. JSON stays JSON of the same meaning.
func Quoted(text string) string { return but(text, "", `\`) }

// QuotedLines is [Quoted] for a text that keeps its lines and tabs.
func QuotedLines(text string) string { return but(text, "\n\t", `\`) }

// Shortened is the beginning of a text of more characters than most, with a sign that it goes on. Any other stays.
func Shortened(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}

func but(text, keep, backslash string) string {
	var b strings.Builder
	var on stack
	for len(text) > 0 {
		c := first(text)
		text = text[len(c.bytes):]
		switch {
		case strings.Contains(keep, c.bytes):
			on = stack{}
			b.WriteString(c.bytes)
		case on.hides(c):
			b.WriteString(c.escape())
		case c.rune == '\\':
			b.WriteString(backslash)
		default:
			b.WriteString(c.bytes)
		}
	}
	return b.String()
}

// char is a character, or a byte that is none.
type char struct {
	rune
	bytes string
}

// first is the first character of a text that is not empty.
func first(text string) char {
	r, size := utf8.DecodeRuneInString(text)
	return char{r, text[:size]}
}

func (c char) broken() bool { return c.rune == utf8.RuneError && len(c.bytes) == 1 }

// escape writes a character as JSON would, and a byte that is none by itself.
func (c char) escape() string {
	switch {
	case c.broken():
		return fmt.Sprintf(`\x%02x`, c.bytes[0])
	case c.rune > 0xffff:
		high, low := utf16.EncodeRune(c.rune)
		return fmt.Sprintf(`\u%04x\u%04x`, high, low)
	}
	return fmt.Sprintf(`\u%04x`, c.rune)
}

// seen reports whether a character is visible. Marks are; stack.hides looks at where they stand. Of the spaces only
// that of ASCII is; controls and characters that direct text (U+202E, U+2066) or have no width (U+200B) are not
// printable at all.
func (c char) seen() bool {
	if c.rune < utf8.RuneSelf {
		return ' ' <= c.rune && c.rune <= '~'
	}
	return !c.broken() && unicode.IsPrint(c.rune) && !unicode.In(c.rune, blank...)
}

// blank are characters without ink that Unicode counts as letters, marks and symbols: Hangul fillers, variation
// selectors and the like, the empty pattern of Braille, the sign for an object that is not there, and joiners,
// fillers and blanks of single scripts.
var blank = []*unicode.RangeTable{
	unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector,
	{
		R16: []unicode.Range16{{Lo: 0x2800, Hi: 0x2800, Stride: 1}, {Lo: 0x2d7f, Hi: 0x2d7f, Stride: 1}, {Lo: 0xfffc, Hi: 0xfffc, Stride: 1}},
		R32: []unicode.Range32{
			{Lo: 0x10a3f, Hi: 0x10a3f, Stride: 1}, {Lo: 0x1107f, Hi: 0x1107f, Stride: 1}, {Lo: 0x13441, Hi: 0x13442, Stride: 1},
			{Lo: 0x16fe4, Hi: 0x16fe4, Stride: 1}, {Lo: 0x1d159, Hi: 0x1d159, Stride: 1},
		},
	},
}

// stack counts the marks on a letter. Two are enough for any language that borrows them, and four for one that has marks
// of its own: more of them cover the lines around.
type stack struct {
	base            bool // something is there that can have marks
	borrowed, marks int
}

const (
	mostBorrowed = 2
	mostMarks    = 4
)

// hides reports whether a character must be escaped where it stands.
func (s *stack) hides(c char) bool {
	switch {
	case !c.seen():
		*s = stack{}
		return true
	case c.rune < utf8.RuneSelf || !unicode.In(c.rune, unicode.Mn, unicode.Me):
		*s = stack{base: c.rune != ' '}
		return false
	}
	s.marks++
	if unicode.Is(unicode.Inherited, c.rune) {
		s.borrowed++
	}
	return !s.base || s.marks > mostMarks || s.borrowed > mostBorrowed
}
