package visible

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Shown is a text in pieces. A page draws each kind of piece in its own way, so that no text passes for another.
// Every rune of a piece can be seen.
type Shown struct {
	// Lines are at most 100 lines, of at most 300 characters each; behind those of a longer line stands an ellipsis.
	Lines [][]Piece
	// More are the lines that are not whole in Lines, or not there: each is whole here, in the order of the text.
	More [][]Piece
	// RightToLeft is set if there are letters that are written from right to left: they and the digits beside them are
	// read in another order than they stand in.
	RightToLeft bool
	// Notes name deceiving parts, and parts that are not in Lines. They are printable ASCII. The last CutNotes of them are
	// about parts that are not in Lines.
	Notes    []string
	CutNotes int
}

// Piece is a part of a line.
type Piece struct {
	Text string
	Kind Kind
	// Note names a piece that is not Plain, such as RIGHT-TO-LEFT OVERRIDE.
	Note string
}

// Kind is how a piece of a text came to be.
type Kind int

// The kinds of pieces. Only Plain is the text itself, but that a backslash is doubled.
const (
	Plain  Kind = iota
	Escape      // stands for an invisible character, or for the rest of a line
	Spaces      // counts spaces, tabs or empty lines, or draws a space that would be invisible
	Alike       // stands for a letter or sign that looks like another one
)

const (
	mostLines      = 100
	mostCharacters = 300
	mostSpaces     = 8
	mostEmpty      = 3
	indent         = "→   " // draws a tab
)

// Of is a text in pieces. It takes time and room in proportion to the text.
func Of(text string) Shown { return of(text, false) }

// InJSON is [Of] for a text within a JSON value, where a quotation mark seems to end it.
func InJSON(text string) Shown { return of(text, true) }

// Notes name the parts of a text that [Text] and [Lines] do not show: words and signs that look like others, letters that
// are written from right to left, and long spaces. They are printable ASCII.
func Notes(text string) []string { return notes(text, false) }

// NotesInJSON are the [Notes] of each text and name in a JSON value, each once, as far as it is JSON. Quotation marks of
// another kind are among them: they seem to end a text.
func NotesInJSON(v []byte) (all []string) {
	in := jsontext.NewDecoder(bytes.NewReader(v), jsontext.AllowDuplicateNames(true))
	seen := map[string]bool{}
	for {
		token, err := in.ReadToken()
		if err != nil {
			return all
		}
		if token.Kind() != '"' {
			continue
		}
		for _, note := range notes(token.String(), true) {
			if !seen[note] {
				seen[note] = true
				all = append(all, note)
			}
		}
	}
}

// mostCareful is how many notes stand in one sentence.
const mostCareful = 6

// Careful is a sentence of notes, each once, and "" of none.
func Careful(notes []string) string {
	var all []string
	more := 0
	for _, note := range notes {
		switch {
		case slices.Contains(all, note):
		case len(all) == mostCareful:
			more++
		default:
			all = append(all, note)
		}
	}
	if more > 0 {
		all = append(all, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, "; ")
}

func notes(text string, inJSON bool) []string {
	d := newDrawer(text, inJSON)
	for n := 0; n < len(d.lines); {
		_, count := d.line(d.lines[n:])
		n += count
	}
	notes := append(d.words(), d.spacesInRow()...)
	if d.rightToLeft || d.escapedRTL {
		notes = append(notes, "letters from right to left: they and the digits beside them may be read in another order than they stand in")
	}
	return notes
}

func of(text string, inJSON bool) (s Shown) {
	if text == "" {
		return s
	}
	d := newDrawer(text, inJSON)
	cutLines, left := 0, 0
	for n := 0; n < len(d.lines); {
		line, count := d.line(d.lines[n:])
		n += count
		if len(s.Lines) == mostLines {
			s.More = append(s.More, line)
			left += count
			continue
		}
		short, cut := shortened(line)
		if s.Lines = append(s.Lines, short); cut {
			s.More = append(s.More, line)
			cutLines++
		}
	}
	s.RightToLeft = d.rightToLeft
	deceiving := d.all(0, 0)
	s.Notes = d.all(cutLines, left)
	s.CutNotes = len(s.Notes) - len(deceiving)
	return s
}

// shortened is the beginning of a line.
func shortened(line []Piece) (short []Piece, cut bool) {
	room := mostCharacters
	for n, p := range line {
		length := utf8.RuneCountInString(p.Text)
		if length <= room {
			room -= length
			continue
		}
		left := length
		for _, p := range line[n+1:] {
			left += utf8.RuneCountInString(p.Text)
		}
		short = slices.Clone(line[:n])
		if p.Kind == Plain { // anything else is whole or not there
			p.Text = beginning(p.Text, room)
			left -= utf8.RuneCountInString(p.Text)
			if p.Text != "" {
				short = append(short, p)
			}
		}
		return append(short, Piece{"…", Escape, Plural(left, "more character")}), true
	}
	return line, false
}

// beginning has so many characters at most, and no half of a doubled backslash.
func beginning(text string, most int) string {
	short := string([]rune(text)[:most])
	if slashes := len(short) - len(strings.TrimRight(short, `\`)); slashes%2 == 1 {
		short = short[:len(short)-1]
	}
	return short
}
