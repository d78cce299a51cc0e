package lsp

import (
	"strings"
	"unicode/utf8"

	"policy-service/pdp/internal/cedartext"
	"policy-service/pdp/internal/places"
)

// offsetOf is the byte of a text at a position. Behind the end of a line it is that end.
func offsetOf(text string, p position) int {
	w := walker{text: text}
	ends := func(rest string) bool { return rest[0] == '\n' || strings.HasPrefix(rest, "\r\n") }
	for w.offset < len(text) && (w.line < p.Line || w.line == p.Line && w.units < p.Character && !ends(text[w.offset:])) {
		w.step()
	}
	return w.offset
}

// width is how many units of UTF-16 a character has.
func width(c rune) int {
	if c > 0xFFFF {
		return 2
	}
	return 1
}

// rangeOf is a part of a text.
func rangeOf(text string, from, to int) textRange {
	w := walker{text: text}
	return w.rangeOf(from, to)
}

// wordAt is the word at a line and a column, as problems count them: a token, or a character. It is empty at the end of a line.
func wordAt(text string, line, column int) textRange {
	at := places.Offset(text, line, column)
	rest := text[at:min(len(text), at+256)]
	if strings.HasPrefix(rest, "\n") {
		return rangeOf(text, at, at)
	}
	_, size := utf8.DecodeRuneInString(rest)
	for first := range cedartext.Tokens(rest) {
		if !first.Trivia() && first.Kind != cedartext.Unknown {
			size = first.End().Offset
		}
		break
	}
	return rangeOf(text, at, at+size)
}

// walker goes through a text from place to place, and counts each character once.
type walker struct {
	text                        string
	offset, line, column, units int // columns are characters, and units are of UTF-16; all from 0
}

func (w *walker) step() {
	c, size := utf8.DecodeRuneInString(w.text[w.offset:])
	w.offset += size
	if c == '\n' {
		w.line, w.column, w.units = w.line+1, 0, 0
		return
	}
	w.column, w.units = w.column+1, w.units+width(c)
}

// find is the byte at a line and a column, or the end of that line.
func (w *walker) find(line, column int) int {
	if line < w.line || line == w.line && column < w.column {
		*w = walker{text: w.text}
	}
	for w.offset < len(w.text) && (w.line < line || w.line == line && w.column < column && w.text[w.offset] != '\n') {
		w.step()
	}
	return w.offset
}

// rangeOf is a part of the text.
func (w *walker) rangeOf(from, to int) textRange { return textRange{w.position(from), w.position(to)} }

func (w *walker) position(offset int) position {
	if offset < w.offset {
		*w = walker{text: w.text}
	}
	for w.offset < min(offset, len(w.text)) {
		w.step()
	}
	return position{w.line, w.units}
}
