package cedartext

import "strings"

// word is a token that means something, with the comments that belong to it.
type word struct {
	Token
	before []Token // on the lines before it
	behind string  // on its own line, "" if there is none
}

// wordsOf gathers the words of a text. The last one is empty, and has the comments behind all others.
func wordsOf(text string) ([]word, *Refusal) {
	var all []word
	var next word
	fresh := true // a line begins here
	for _, t := range Lex(text) {
		switch {
		case t.Kind == Space:
			fresh = fresh || strings.Contains(t.Text, "\n")
		case t.Kind == Unknown:
			return nil, refuse(t.Position, "this is not Cedar", "write what a policy may have here, or close what is open")
		case t.Kind == Comment && strings.HasPrefix(t.Text, "/*"):
			return nil, refuse(t.Position, "a comment between /* and */ is none to Cedar's own tools", "write // before each of its lines")
		case t.Kind == Comment && fresh:
			next.before = append(next.before, t)
		case t.Kind == Comment:
			all[len(all)-1].behind = said(t)
		default:
			next.Token = t
			all, next, fresh = append(all, next), word{}, false
		}
	}
	next.Token = Token{Kind: Space, Position: Position{Line: 1, Column: 1}.After(text)}
	return append(all, next), nil
}

// said is a comment without the blanks at its end, which no layout keeps.
func said(comment Token) string { return strings.TrimRight(comment.Text, " \t\r") }
