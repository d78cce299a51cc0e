package page

import (
	"slices"
	"strings"
	"unicode/utf8"

	"policy-service/pdp/internal/visible"
)

// Text is a text from elsewhere, made harmless. Make it with [Of], [Line] or [JSON]. The zero Text is empty.
type Text struct{ shown visible.Shown }

// Of is a text with its lines.
func Of(text string) Text {
	if text == "" {
		return Text{}
	}
	return Text{visible.Of(text)}
}

// longLine is how many characters of a line are shown, until all of it is asked for.
const longLine = 300

// Line is a text on one line, such as a name: the ends of its lines are shown as marks.
func Line(text string) Text { return onOneLine(Of(text)) }

// onOneLine is a text on one line.
func onOneLine(t Text) Text {
	if t.Empty() {
		return t
	}
	line := joined(whole(t.shown))
	t.shown.Lines, t.shown.More = [][]visible.Piece{line}, nil
	if short, left := cut(line, longLine); left {
		t.shown.Lines, t.shown.More = [][]visible.Piece{append(short, more)}, [][]visible.Piece{line}
	}
	return t
}

// whole are all lines of a text, none of them cut.
func whole(s visible.Shown) (lines [][]visible.Piece) {
	left := s.More
	for _, line := range s.Lines {
		if n := len(line); n > 0 && isRest(line[n-1]) && len(left) > 0 {
			line, left = left[0], left[1:]
		}
		lines = append(lines, line)
	}
	return append(lines, left...)
}

// more stands for the rest of a line.
var more = visible.Piece{Text: "…", Kind: visible.Escape, Note: "there is more"}

// isRest reports if a piece stands for the rest of a line.
func isRest(p visible.Piece) bool { return p.Kind == visible.Escape && p.Text == more.Text }

// lineEnd is the end of a line within a text that stays on one line.
var lineEnd = visible.Piece{Text: `\n`, Kind: visible.Spaces, Note: "the end of a line"}

// joined has lines on one line.
func joined(lines [][]visible.Piece) (one []visible.Piece) {
	for n, line := range lines {
		if n > 0 {
			one = append(one, lineEnd)
		}
		one = append(one, line...)
	}
	return one
}

// Lines, More, RightToLeft and Notes are those of [visible.Shown]. More are, whole, the lines that Lines cuts or
// leaves out.
func (t Text) Lines() [][]visible.Piece { return t.shown.Lines }
func (t Text) More() [][]visible.Piece  { return t.shown.More }
func (t Text) RightToLeft() bool        { return t.shown.RightToLeft }
func (t Text) Notes() []string          { return t.shown.Notes }

// Empty reports if there is no text.
func (t Text) Empty() bool { return len(t.shown.Lines) == 0 }

// Cut reports if a part of the text is shown on demand only.
func (t Text) Cut() bool { return len(t.shown.More) > 0 }

// Odd reports if something in the text looks like another one, or could not be seen.
func (t Text) Odd() bool {
	return t.shown.RightToLeft || has(append(slices.Clone(t.shown.Lines), t.shown.More...), func(p visible.Piece) bool {
		return p.Kind == visible.Alike || p.Kind == visible.Escape && !isRest(p)
	})
}

func has(lines [][]visible.Piece, is func(visible.Piece) bool) bool {
	return slices.ContainsFunc(lines, func(line []visible.Piece) bool { return slices.ContainsFunc(line, is) })
}

// Whole is the text with nothing of it cut.
func (t Text) Whole() Text {
	t.shown.Lines, t.shown.More = whole(t.shown), nil
	t.shown.Notes, t.shown.CutNotes = aboutAll(t.shown), 0
	return t
}

// aboutAll are the notes that are not about a cut.
func aboutAll(s visible.Shown) []string { return s.Notes[:len(s.Notes)-s.CutNotes] }

// Begun is the beginning of a text that is cut: the rest is not there, and a note says so.
func (t Text) Begun() Text {
	if t.Cut() && t.shown.CutNotes == 0 {
		t.shown.Notes = append(slices.Clone(t.shown.Notes), "there is more")
	}
	t.shown.More = nil
	return t
}

// Plain reports if the text is one short line that is drawn as it was written, but for its backslashes.
func (t Text) Plain() bool {
	return len(t.shown.Lines) == 1 && !t.Cut() && !t.Odd() &&
		!has(t.shown.Lines, func(p visible.Piece) bool { return p.Kind != visible.Plain })
}

// is reports if the text is a plain one.
func (t Text) is(plain string) bool {
	return len(t.shown.Lines) == 1 && len(t.shown.Lines[0]) == 1 && t.shown.Lines[0][0] == visible.Piece{Text: plain}
}

// Brief is the beginning of the text on one line: so many characters, and a sign if there are more.
func (t Text) Brief(most int) Text {
	brief := Text{visible.Shown{RightToLeft: t.shown.RightToLeft}}
	line, left := cut(joined(whole(t.shown)), most)
	if left {
		line = append(line, more)
	}
	if len(line) > 0 {
		brief.shown.Lines = [][]visible.Piece{line}
	}
	return brief
}

// drawnForOne is how many bytes of a text are drawn for each character of a brief one. Marks make a long run of spaces short.
const drawnForOne = 16

// Brief is the [Text.Brief] of a text. Of a long text it draws no more than the beginning: a list has many.
func Brief(draw func(string) Text, text string, most int) Text {
	n := min(len(text), most*drawnForOne)
	for n < len(text) && !utf8.RuneStart(text[n]) {
		n--
	}
	brief := draw(text[:n]).Brief(most)
	if line := slices.Concat(brief.shown.Lines...); n < len(text) && (len(line) == 0 || !isRest(line[len(line)-1])) {
		brief.shown.Lines = [][]visible.Piece{append(line, more)}
	}
	return brief
}

// cut is the beginning of a line, and reports if something of it is left.
func cut(line []visible.Piece, most int) (beginning []visible.Piece, left bool) {
	for n, p := range line {
		length := utf8.RuneCountInString(p.Text)
		if length <= most {
			most -= length
			continue
		}
		beginning = slices.Clone(line[:n])
		if p.Kind == visible.Plain && most > 0 { // a mark is shown whole or not at all
			p.Text = string([]rune(p.Text)[:most])
			beginning = append(beginning, p)
		}
		return beginning, true
	}
	return line, false
}

// Word is a name among words of ours, on one line: its spaces are drawn, so that it is one word and never goes on as
// ours do.
func Word(text string) Text {
	return marked(Line(text), " ", visible.Piece{Text: "␣", Kind: visible.Spaces, Note: "a space"})
}

// Quoted is a text within quotation marks of ours, on one line.
func Quoted(text string) Text { return marked(Line(text), `"`, quotation) }

// quotation stands for a quotation mark within quotation marks: it does not end the text.
var quotation = visible.Piece{Text: `\"`, Kind: visible.Spaces, Note: "a quotation mark of the text"}

// marked is a text with a mark in place of each character of a kind.
func marked(t Text, character string, mark visible.Piece) Text {
	for _, lines := range [][][]visible.Piece{t.shown.Lines, t.shown.More} {
		for n, line := range lines {
			lines[n] = markedLine(line, character, mark)
		}
	}
	return t
}

func markedLine(line []visible.Piece, character string, mark visible.Piece) (all []visible.Piece) {
	for _, p := range line {
		if p.Kind != visible.Plain {
			all = append(all, p)
			continue
		}
		for n, part := range strings.Split(p.Text, character) {
			if n > 0 {
				all = append(all, mark)
			}
			if part != "" {
				all = append(all, visible.Piece{Text: part})
			}
		}
	}
	return all
}

// classOf is the CSS class of a piece, "" for plain text.
func classOf(k visible.Kind) string {
	switch k {
	case visible.Plain:
		return ""
	case visible.Spaces:
		return "spaces"
	case visible.Alike:
		return "alike"
	}
	return "esc"
}
