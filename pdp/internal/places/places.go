// Package places says where the parts of a text in Cedar's syntax stand. cedar-go keeps the place of a policy, and of
// nothing in it. Begin at [Tokens] for any text, and at [Read] for a policy.
//
// It is for messages about texts that cedar-go has read or refused already. So it refuses nothing itself, and of a text
// that is no Cedar it makes as much as it can.
package places

import (
	"strings"
	"unicode/utf8"

	"policy-service/pdp/internal/cedartext"
)

// Token is a name, a text in quotes, a number or a sign. From and To are its bytes in the text.
type Token struct {
	Text     string
	From, To int
}

// Tokens are the tokens of a text.
func Tokens(text string) (all []Token) {
	for t := range cedartext.Tokens(text) {
		if !t.Trivia() {
			all = append(all, Token{t.Text, t.Offset, t.End().Offset})
		}
	}
	return all
}

// IsName reports if the token is a name, or a word of the language.
func (t Token) IsName() bool {
	c := t.Text[0]
	return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// IsText reports if the token is a text in quotes.
func (t Token) IsText() bool { return t.Text[0] == '"' }

// IsNumber reports if the token is a whole number.
func (t Token) IsNumber() bool { return '0' <= t.Text[0] && t.Text[0] <= '9' }

// Position is the line and column of an offset. Columns count characters, as cedar-go counts them in a policy.
func Position(text string, offset int) (line, column int) {
	before := text[:min(offset, len(text))]
	start := strings.LastIndexByte(before, '\n') + 1
	return strings.Count(before, "\n") + 1, utf8.RuneCountInString(before[start:]) + 1
}

// Offset is the offset of a line and column. It is the end of the text if there is no such line, and the end of the line
// if there is no such column.
func Offset(text string, line, column int) int {
	at := 0
	for ; line > 1; line-- {
		end := strings.IndexByte(text[at:], '\n')
		if end < 0 {
			return len(text)
		}
		at += end + 1
	}
	for ; column > 1 && at < len(text) && text[at] != '\n'; column-- {
		_, size := utf8.DecodeRuneInString(text[at:])
		at += size
	}
	return at
}

// Find is the place where a name of several tokens is written, such as tool::"crm" or shop::user. It is -1 if the name is not.
// A name behind a dot is a member, and no such name.
func Find(tokens []Token, name string) (offset int) {
	for i, t := range tokens {
		if i > 0 && (tokens[i-1].Text == "." || tokens[i-1].Text == "::") || !strings.HasPrefix(name, t.Text) {
			continue
		}
		rest := name
		j := i
		for ; j < len(tokens) && rest != "" && strings.HasPrefix(rest, tokens[j].Text); j++ {
			rest = rest[len(tokens[j].Text):]
		}
		if rest == "" {
			return t.From
		}
	}
	return -1
}
