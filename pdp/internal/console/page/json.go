package page

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/visible"
)

// Value is a JSON value. Texts have quotes around them, so that "1" is not taken for 1.
type Value struct {
	Text   Text
	Quoted bool
	// Change is New or Gone if the value of the other time differs. Parts are the text, with those that differ; without
	// them all of it does.
	Change Change
	Parts  []Part
}

// JSON is a JSON value for people: a text with its lines, and all else as indented JSON in which each text is on one
// line.
func JSON(v jsontext.Value) Value {
	if v.Kind() == '"' {
		text, err := jsontext.AppendUnquote(nil, bytes.TrimSpace(v))
		if err != nil {
			return Value{Text: unreadable()}
		}
		return Value{Text: marked(Of(string(text)), `"`, quotation), Quoted: true}
	}
	w := jsonLines{in: jsontext.NewDecoder(bytes.NewReader(v), jsontext.AllowDuplicateNames(true))}
	if w.value(0) != nil {
		return Value{Text: unreadable()}
	}
	w.end()
	return Value{Text: w.text()}
}

// Differing is so many characters of a value by its text, which begins with a part that others have, too. If that is long,
// only its end is shown: otherwise the difference would be cut.
func Differing(v jsontext.Value, text, alike string, most int) Value {
	if len(v) == 0 {
		return Value{}
	}
	shown, draw, lead := Value{Quoted: v.Kind() == '"'}, Line, []rune(alike)
	if shown.Quoted {
		draw = Quoted
	}
	leads := len(lead) > most/2
	if leads {
		text = string(lead[len(lead)-most/4:]) + text[len(alike):]
	}
	if leads || shown.Quoted || len(text) > most*drawnForOne {
		shown.Text = Brief(draw, text, most)
	} else {
		shown.Text = JSON(v).Text.Brief(most)
	}
	if leads {
		shown.Text.shown.Lines = [][]visible.Piece{slices.Concat(append([][]visible.Piece{{more}}, shown.Text.shown.Lines...)...)}
	}
	return shown
}

// unreadable stands for a part of an answer that is no JSON. It never passes for a value.
func unreadable() Text {
	return Text{visible.Shown{
		Lines: [][]visible.Piece{{{Text: "(this cannot be shown)", Kind: visible.Escape, Note: "no JSON"}}},
		Notes: []string{"no JSON"},
	}}
}

const (
	jsonCount = 100 // lines, until all is asked for
	jsonShort = 60  // characters of an object or array that stands on one line
	mostNotes = 6   // about one value
	jsonDepth = 8   // levels that are indented: below them lines would be spaces
)

// jsonLines writes a JSON value as lines of pieces.
type jsonLines struct {
	in    *jsontext.Decoder
	lines [][]visible.Piece
	line  []visible.Piece
	rtl   bool
	notes []string
}

func (w *jsonLines) put(text string) { w.line = append(w.line, visible.Piece{Text: text}) }

func (w *jsonLines) end() { w.lines, w.line = append(w.lines, w.line), nil }

// text is the text, the beginning of it if it is long.
func (w *jsonLines) text() Text {
	t := Text{visible.Shown{RightToLeft: w.rtl, Notes: w.notes}}
	for n, line := range w.lines {
		w.lines[n] = merged(line)
	}
	for _, line := range w.lines[:min(len(w.lines), jsonCount)] {
		beginning, left := cut(line, longLine)
		if left {
			beginning = append(beginning, more)
			t.shown.More = append(t.shown.More, line)
		}
		t.shown.Lines = append(t.shown.Lines, beginning)
	}
	t.shown.More = append(t.shown.More, w.lines[min(len(w.lines), jsonCount):]...)
	return t
}

// value writes the next value.
func (w *jsonLines) value(depth int) error {
	switch kind := w.in.PeekKind(); kind {
	case '{', '[':
		return w.group(kind, depth)
	case '"':
		token, err := w.in.ReadToken()
		if err == nil {
			w.quoted(token.String())
		}
		return err
	default:
		raw, err := w.in.ReadValue()
		if err == nil {
			w.put(string(raw))
		}
		return err
	}
}

// group writes an object or an array, a line for each member.
func (w *jsonLines) group(kind jsontext.Kind, depth int) error {
	if _, err := w.in.ReadToken(); err != nil {
		return err
	}
	w.put(string(kind))
	first, closes := len(w.lines), map[jsontext.Kind]jsontext.Kind{'{': '}', '[': ']'}[kind]
	members, nested := 0, false
	for ; w.in.PeekKind() != closes; members++ {
		if members > 0 {
			w.put(",")
		}
		w.newLine(depth + 1)
		if kind == '{' {
			name, err := w.in.ReadToken()
			if err != nil {
				return err
			}
			w.quoted(name.String())
			w.put(": ")
		}
		begins := w.in.PeekKind()
		nested = nested || begins == '{' || begins == '['
		if err := w.value(depth + 1); err != nil {
			return err
		}
	}
	if members > 0 {
		w.newLine(depth)
	}
	if _, err := w.in.ReadToken(); err != nil {
		return err
	}
	w.put(string(closes))
	if !nested && members > 0 {
		w.oneLine(first)
	}
	return nil
}

// oneLine puts the lines of a group on one line, if that is short.
func (w *jsonLines) oneLine(first int) {
	lines := append(slices.Clone(w.lines[first:]), w.line)
	one, length := slices.Clone(lines[0]), 0
	for n, line := range lines[1:] {
		if n > 0 && n < len(lines)-2 {
			one = append(one, visible.Piece{Text: " "})
		}
		one = append(one, line[1:]...) // without the spaces that begin it
	}
	for _, p := range one {
		length += utf8.RuneCountInString(p.Text)
	}
	if length <= jsonShort {
		w.lines, w.line = w.lines[:first], one
	}
}

func (w *jsonLines) newLine(depth int) {
	w.end()
	w.put(strings.Repeat("  ", min(depth, jsonDepth)))
}

// quoted writes a text on one line. A quote within it is marked: it does not end the text.
func (w *jsonLines) quoted(text string) {
	s := onOneLine(Text{visible.InJSON(text)})
	w.rtl = w.rtl || s.shown.RightToLeft
	for _, note := range aboutAll(s.shown) {
		if len(w.notes) < mostNotes && !slices.Contains(w.notes, note) {
			w.notes = append(w.notes, note)
		}
	}
	w.put(`"`)
	for _, line := range whole(s.shown) {
		w.line = append(w.line, markedLine(line, `"`, quotation)...)
	}
	w.put(`"`)
}

// merged is a line in which plain pieces beside each other are one.
func merged(line []visible.Piece) (all []visible.Piece) {
	var plain strings.Builder
	for n, p := range line {
		if p.Kind != visible.Plain {
			all = append(all, p)
			continue
		}
		plain.WriteString(p.Text)
		if n+1 == len(line) || line[n+1].Kind != visible.Plain {
			all = append(all, visible.Piece{Text: plain.String()})
			plain.Reset()
		}
	}
	return all
}
