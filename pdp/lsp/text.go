package lsp

import (
	"strings"
	"unicode/utf8"

	"policy-service/pdp/cedartext"
	"policy-service/pdp/internal/places"
)

// offsetOf is the byte of a text at a position. Behind the end of a line it is that end.
func offsetOf(text string, p position) int {
	offset := 0
	for range p.Line {
		next := strings.IndexByte(text[offset:], '\n')
		if next < 0 {
			return len(text)
		}
		offset += next + 1
	}
	line, _, _ := strings.Cut(text[offset:], "\n")
	units := 0
	for i, c := range line {
		if units >= p.Character {
			return offset + i
		}
		units += width(c)
	}
	return offset + len(line)
}

// positionOf is the position of a byte of a text.
func positionOf(text string, offset int) (p position) {
	before := text[:min(offset, len(text))]
	p.Line = strings.Count(before, "\n")
	for _, c := range before[strings.LastIndexByte(before, '\n')+1:] {
		p.Character += width(c)
	}
	return p
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
	return textRange{positionOf(text, from), positionOf(text, to)}
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
