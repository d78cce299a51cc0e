package cedartext

import (
	"iter"
	"slices"
	"strings"
	"unicode/utf8"
)

// Lex cuts a text into tokens, as cedar-go reads it. Their texts joined are the text.
func Lex(text string) []Token { return slices.Collect(Tokens(text)) }

// Tokens yields the tokens of [Lex], one after the other, so that a caller that needs the first of them reads no further.
func Tokens(text string) iter.Seq[Token] {
	return func(yield func(Token) bool) {
		for at := (Position{Line: 1, Column: 1}); at.Offset < len(text); {
			kind, size := first(text[at.Offset:])
			token := Token{kind, text[at.Offset : at.Offset+size], at}
			if !yield(token) {
				return
			}
			at = token.End()
		}
	}
}

// first is the token that a text begins with, and its length.
func first(text string) (Kind, int) {
	switch c := text[0]; {
	case isSpace(c):
		return Space, span(text, isSpace)
	case isNameByte(c) && !isDigit(c):
		return Name, span(text, isNameByte)
	case isDigit(c):
		return Number, span(text, isDigit)
	case c == '"':
		return quoted(text)
	case strings.HasPrefix(text, "//"):
		return Comment, len(line(text))
	case strings.HasPrefix(text, "/*"):
		if end := strings.Index(text[2:], "*/"); end >= 0 {
			return Comment, end + 4
		}
		return Unknown, len(text)
	}
	for _, sign := range signs {
		if strings.HasPrefix(text, sign) {
			return Sign, len(sign)
		}
	}
	_, size := utf8.DecodeRuneInString(text)
	return Unknown, size
}

// signs are all signs, a longer one before those that it begins with.
var signs = slices.Concat([]string{"::", "<=", ">=", "==", "!=", "||", "&&"}, strings.Split("@.,;:(){}[]+-*!<>", ""))

// quoted is a text in quotes at the beginning of another. Cedar has no line ends in one: where the quote that ends it is
// missing, the unknown token ends with the line, and the next line is read as one.
func quoted(text string) (Kind, int) {
	n := 1
	for ; n < len(text) && text[n] != '\n'; n++ {
		switch {
		case text[n] == '"':
			return Text, n + 1
		case text[n] == '\\' && n+1 < len(text) && text[n+1] != '\n':
			n++
		}
	}
	return Unknown, n
}

// line is the first line of a text, without its end.
func line(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	return text
}

// span is how many bytes of a kind a text begins with.
func span(text string, is func(byte) bool) int {
	n := 0
	for n < len(text) && is(text[n]) {
		n++
	}
	return n
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isNameByte(c byte) bool {
	return c == '_' || isDigit(c) || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
