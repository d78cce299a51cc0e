package cedartext

import (
	"fmt"
	"slices"
	"strings"
)

// Refusal says why a text is left as it is, and at which place.
type Refusal struct {
	Position
	Problem, Try string
}

func (r *Refusal) Error() string {
	return fmt.Sprintf("%d:%d: %s; %s", r.Line, r.Column, r.Problem, r.Try)
}

func refuse(at Position, problem, try string) *Refusal { return &Refusal{at, problem, try} }

// Format lays out the policies of a file. The result has the same words in the same order, but for commas in front of a
// bracket that closes, and the same comments in the same order, but for blanks at their ends. To format that again changes
// nothing. A text of which it cannot make such a one, Format refuses: one that does not parse, one with a comment between
// /* and */, which Cedar's own tools cannot read, and one with a comment at a comma that falls away.
//
// Blank lines are not kept: one stands between two policies, and none elsewhere, as Cedar's own formatter has it.
func Format(text string) (string, *Refusal) {
	laid, refused := layOut(text)
	if refused != nil {
		return "", refused
	}
	was, is := kept(text), kept(laid)
	for n, t := range was {
		if n >= len(is) || t.Text != is[n].Text {
			return "", refuse(t.Position, "the layout would lose or move this", "report it, with the policy")
		}
	}
	if again, refused := layOut(laid); refused != nil || again != laid || len(is) > len(was) {
		return "", refuse(Position{Line: 1, Column: 1}, "the layout of this file would be another one each time", "report it, with the file")
	}
	return laid, nil
}

// layOut is Format, without the look back.
func layOut(text string) (string, *Refusal) {
	words, refused := wordsOf(text)
	if refused != nil {
		return "", refused
	}
	r := reader{words: words}
	var b strings.Builder
	for len(r.words) > 1 {
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(r.policy().write())
	}
	b.WriteString(joined(comments(r.words[0].before)...).write())
	return b.String(), r.refused
}

// kept are the tokens that a layout must keep.
func kept(text string) []Token {
	all := slices.DeleteFunc(Lex(text), func(t Token) bool { return t.Kind == Space })
	for n := range all {
		if all[n].Kind == Comment {
			all[n].Text = said(all[n])
		}
	}
	n := -1
	return slices.DeleteFunc(all, func(t Token) bool {
		n++
		return t.Text == "," && n+1 < len(all) && strings.Contains(")]}", all[n+1].Text)
	})
}
