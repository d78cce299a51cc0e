package lint

import (
	"slices"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/pdp/cedartext"
	"policy-service/pdp/internal/bundle"
)

// cedar-go says where a policy begins, and not where its expressions are. So the words of its text are read once more.

// word is a word or a sign of a policy file.
type word struct {
	text         string
	line, column int
}

// wordsOf lists the words of a policy, from its annotations to its semicolon.
func (l *linter) wordsOf(p *bundle.Policy) []word {
	all, ok := l.words[p.File]
	if !ok {
		all = readWords(l.files.Content[p.File])
		l.words[p.File] = all
	}
	begin, _ := slices.BinarySearchFunc(all, p, func(w word, p *bundle.Policy) int {
		if w.line != p.Line {
			return w.line - p.Line
		}
		return w.column - p.Column
	})
	all = all[begin:]
	if end := slices.IndexFunc(all, func(w word) bool { return w.text == ";" }); end >= 0 {
		all = all[:end]
	}
	return all
}

func readWords(text []byte) (all []word) {
	for t := range cedartext.Tokens(string(text)) {
		if !t.Trivia() {
			all = append(all, word{t.Text, t.Line, t.Column})
		}
	}
	return all
}

// warnAt warns at an expression of a policy, or where the policy begins if the expression is not found.
func (l *linter) warnAt(find func(words []word) int, p *bundle.Policy, code, message, try string) {
	line, column := p.Line, p.Column
	if p.Access == "" {
		words := l.wordsOf(p)
		if n := find(words); n >= 0 {
			line, column = words[n].line, words[n].column
		}
	}
	l.problems.Warn(p.File, line, column, code, "policy "+bundle.Quote(p.Id)+" "+message, try)
}

// placeOfUID finds an entity that a policy writes out.
func placeOfUID(uid types.EntityUID) func([]word) int {
	spelt := strings.Split(strings.ReplaceAll(string(uid.Type), "::", "\x00::\x00"), "\x00")
	spelt = append(spelt, "::")
	return func(words []word) int {
		for n := range words {
			if after := n + len(spelt); after < len(words) && spells(words[n:after], spelt) && isText(words[after].text, string(uid.ID)) &&
				(n == 0 || words[n-1].text != "::") {
				return n
			}
		}
		return -1
	}
}

func spells(words []word, spelt []string) bool {
	return slices.EqualFunc(words, spelt, func(w word, text string) bool { return w.text == text })
}

// isText reports if a word is a text in quotes. A text with escapes that Go does not have is none.
func isText(word, text string) bool {
	unquoted, err := strconv.Unquote(word)
	return err == nil && strings.HasPrefix(word, `"`) && unquoted == text
}

// placeOfPath finds the first place where a policy reads an attribute, or what is below it.
func placeOfPath(path bundle.AttributePath) func([]word) int {
	return func(words []word) int {
		for n := range words {
			if words[n].text == path.Root && (n == 0 || words[n-1].text != ".") && leads(words[n+1:], path.Names) {
				return n
			}
		}
		return -1
	}
}

// leads reports if words go on with these attributes, as in .name or ["name"].
func leads(words []word, names []string) bool {
	for _, name := range names {
		switch {
		case len(words) >= 2 && words[0].text == "." && words[1].text == name:
			words = words[2:]
		case len(words) >= 3 && words[0].text == "[" && isText(words[1].text, name):
			words = words[3:]
		default:
			return false
		}
	}
	return true
}
