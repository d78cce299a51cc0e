package page

import (
	"slices"
	"unicode/utf8"
)

// Text is what somebody else wrote, made harmless. Make it with [Of], [Line] or [JSON]. The zero Text is empty.
type Text struct{ shown }

// Of is a text with its lines.
func Of(text string) Text {
	if text == "" {
		return Text{}
	}
	return Text{shownOf(text)}
}

// longLine is how many characters of a line are shown, until all of it is asked for.
const longLine = 300

// Line is a text on one line, such as a name: the ends of its lines are shown as what they are.
func Line(text string) Text {
	t := Of(text)
	if t.Empty() {
		return t
	}
	line := joined(whole(t.shown))
	t.Lines, t.More = [][]piece{line}, nil
	if short, left := cut(line, longLine); left {
		t.Lines, t.More = [][]piece{append(short, more)}, [][]piece{line}
	}
	return t
}

// whole are all lines of a text, none of them cut.
func whole(s shown) (lines [][]piece) {
	left := s.More
	for _, line := range s.Lines {
		if n := len(line); n > 0 && isRest(line[n-1]) && len(left) > 0 {
			line, left = left[0], left[1:]
		}
		lines = append(lines, line)
	}
	return append(lines, left...)
}

// more stands for what is left of a line.
var more = piece{Text: "…", Kind: kindEscape, Note: "there is more"}

// isRest reports if a piece stands for what is left of a line.
func isRest(p piece) bool { return p.Kind == kindEscape && p.Text == more.Text }

// lineEnd is the end of a line within what must stay on one line.
var lineEnd = piece{Text: `\n`, Kind: kindSpaces, Note: "the end of a line"}

// joined has lines on one line.
func joined(lines [][]piece) (one []piece) {
	for n, line := range lines {
		if n > 0 {
			one = append(one, lineEnd)
		}
		one = append(one, line...)
	}
	return one
}

// Empty reports if there is no text.
func (t Text) Empty() bool { return len(t.Lines) == 0 }

// Cut reports if a part of the text is shown only to who asks for it.
func (t Text) Cut() bool { return len(t.More) > 0 }

// Odd reports if something in the text is not what it looks like, or could not be seen.
func (t Text) Odd() bool {
	return t.RightToLeft || has(append(slices.Clone(t.Lines), t.More...), func(p piece) bool {
		return p.Kind == kindAlike || p.Kind == kindEscape && !isRest(p)
	})
}

func has(lines [][]piece, is func(piece) bool) bool {
	return slices.ContainsFunc(lines, func(line []piece) bool { return slices.ContainsFunc(line, is) })
}

// Plain reports if the text is one short line that is drawn as it was written, but for its backslashes.
func (t Text) Plain() bool {
	return len(t.Lines) == 1 && !t.Cut() && !t.Odd() && !has(t.Lines, piece.Marked)
}

// Brief is the beginning of the text on one line: so many characters, and a sign if there are more.
func (t Text) Brief(most int) Text {
	brief := Text{shown{RightToLeft: t.RightToLeft, Notes: t.Notes}}
	line, left := cut(joined(whole(t.shown)), most)
	if left {
		line = append(line, more)
	}
	if len(line) > 0 {
		brief.Lines = [][]piece{line}
	}
	return brief
}

// cut is the beginning of a line, and reports if something of it is left.
func cut(line []piece, most int) (beginning []piece, left bool) {
	for n, p := range line {
		length := utf8.RuneCountInString(p.Text)
		if length <= most {
			most -= length
			continue
		}
		beginning = slices.Clone(line[:n])
		if p.Kind == kindPlain && most > 0 { // a mark is shown whole or not at all
			p.Text = string([]rune(p.Text)[:most])
			beginning = append(beginning, p)
		}
		return beginning, true
	}
	return line, false
}
