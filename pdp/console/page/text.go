package page

import (
	"slices"
	"unicode/utf8"
)

// Text is what somebody else wrote, made harmless. Make it with [Of], [Line] or [JSON]. The zero Text is empty.
type Text struct {
	shown
	// again is set if More begins from the beginning, and does not go on from Lines.
	again bool
}

// Of is a text with its lines.
func Of(text string) Text {
	if text == "" {
		return Text{}
	}
	return Text{shown: shownOf(text)}
}

// Line is a text on one line, such as a name: the ends of its lines are shown as what they are.
func Line(text string) Text {
	t := Of(text)
	t.Lines, t.More = joined(t.Lines), joined(t.More)
	return t
}

// lineEnd is the end of a line within what must stay on one line.
var lineEnd = piece{Text: `\n`, Kind: kindEscape, Note: "LINE FEED"}

// joined has lines on one line.
func joined(lines [][]piece) [][]piece {
	if len(lines) < 2 {
		return lines
	}
	var one []piece
	for n, line := range lines {
		if n > 0 {
			one = append(one, lineEnd)
		}
		one = append(one, line...)
	}
	return [][]piece{one}
}

// Empty reports if there is no text.
func (t Text) Empty() bool { return len(t.Lines) == 0 }

// Cut reports if a part of the text is behind "show all".
func (t Text) Cut() bool { return len(t.More) > 0 }

// Again reports if More is all of the text, and not the rest of it.
func (t Text) Again() bool { return t.again }

// Odd reports if something in the text is not what it looks like, or could not be seen.
func (t Text) Odd() bool {
	return len(t.Notes) > 0 || t.RightToLeft || t.marked(t.Lines) || t.marked(t.More)
}

func (t Text) marked(lines [][]piece) bool {
	return slices.ContainsFunc(lines, func(line []piece) bool {
		return slices.ContainsFunc(line, func(p piece) bool { return p.Kind != kindPlain })
	})
}

// Plain is the text as it was written, if nothing in it is odd and it is short. Otherwise there is none.
func (t Text) Plain() (text string, plain bool) {
	if t.Odd() || t.Cut() || len(t.Lines) != 1 {
		return "", false
	}
	for _, p := range t.Lines[0] {
		text += p.Text
	}
	return text, true
}

// Brief is the beginning of the text on one line: so many characters, and a sign if there are more.
func (t Text) Brief(most int) Text {
	brief := Text{shown: shown{RightToLeft: t.RightToLeft, Notes: t.Notes}}
	line, left := cut(joinedFirst(t), most)
	if left || t.Cut() {
		line = append(line, piece{Text: "…"})
	}
	if len(line) > 0 {
		brief.Lines = [][]piece{line}
	}
	return brief
}

func joinedFirst(t Text) []piece {
	if t.Empty() {
		return nil
	}
	return joined(t.Lines)[0]
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
