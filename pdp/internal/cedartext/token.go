package cedartext

// Kind is the kind of a token.
type Kind uint8

// The kinds of tokens.
const (
	Space   Kind = iota // blanks, tabs and line ends
	Comment             // from // to the end of the line, without it; or between /* and */, which only cedar-go reads
	Name                // a name or a word of the language, such as principal, when or in
	Number              // digits
	Text                // in double quotes, with both of them
	Sign                // one of @ . , ; : :: ( ) { } [ ] + - * ! < <= > >= == != || &&
	Unknown             // no token: a character, or the rest of the line or file behind an open text or comment
)

// Position is a place in a text.
type Position struct {
	Offset       int // in bytes, from 0
	Line, Column int // from 1; a column is a character
}

// Token is a part of a text.
type Token struct {
	Kind Kind
	Text string // as it stands there
	Position
}

// Trivia reports whether the token is for people alone: white space, or a comment.
func (t Token) Trivia() bool { return t.Kind == Space || t.Kind == Comment }

// End is the place right behind the token.
func (t Token) End() Position { return t.Position.After(t.Text) }

// After is the place behind a text that begins at p.
func (p Position) After(text string) Position {
	p.Offset += len(text)
	for _, c := range []byte(text) {
		switch {
		case c == '\n':
			p.Line, p.Column = p.Line+1, 1
		case c < 0x80 || c >= 0xC0: // a character, not a byte
			p.Column++
		}
	}
	return p
}
