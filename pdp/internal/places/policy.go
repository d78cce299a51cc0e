package places

import (
	"slices"

	"policy-service/pdp/internal/cedartext"
)

// Policy is the text of one policy. Its zero value is the policy of no text.
type Policy struct {
	Text         string  // from its annotations to its semicolon
	Tokens       []Token // of the text
	line, column int     // where it begins in its file
}

// Part is a part of a policy. From and To are its bytes in the text.
type Part struct {
	From, To int
	// Of a part that reads an attribute of a variable, or tests for one with has, Names leads from the variable to the
	// attribute, and At is where the last of the names stands.
	Variable string
	Names    []string
	At       int
	Has      bool
}

// Read reads the policy that a text begins with, up to its semicolon. It does not look at the rest of the text, in which
// there may be thousands more. Line and column are where the text begins in its file.
func Read(text []byte, line, column int) *Policy {
	one := first(text)
	return &Policy{one, Tokens(one), line, column}
}

func first(text []byte) string {
	for most := 4 << 10; ; most *= 2 {
		some := string(text[:min(most, len(text))])
		for t := range cedartext.Tokens(some) {
			if t.Text == ";" { // a text or a comment that is cut here is one token, up to the cut
				return some[:t.End().Offset]
			}
		}
		if len(some) == len(text) {
			return some
		}
	}
}

// Position is the place in the file of an offset in the policy. A negative offset is the beginning of the policy.
func (p *Policy) Position(offset int) (line, column int) {
	line, column = Position(p.Text, max(offset, 0))
	if line == 1 {
		column += p.column - 1
	}
	return line + p.line - 1, column
}

// splitting are the words and signs between the clauses of a condition.
var splitting = []string{"&&", "||", "if", "then", "else", ";"}

// Clauses are the parts of the conditions between &&, || and the words of an if, as far as tokens tell. Brackets around
// several clauses belong to none of them.
func (p *Policy) Clauses() (all []Part) {
	splits := make([]bool, len(p.Tokens)+1)
	var open []int // the tokens of the brackets that are open
	begins := len(p.Tokens)
	for i, t := range p.Tokens {
		switch {
		case (t.Text == "when" || t.Text == "unless") && p.text(i+1) == "{":
			begins = min(begins, i)
			splits[i], splits[i+1] = true, true
		case slices.Contains(splitting, t.Text):
			splits[i] = true
			for _, bracket := range open {
				splits[bracket] = true
			}
		}
		switch t.Text {
		case "(", "[", "{":
			open = append(open, i)
		case ")", "]", "}":
			if last := len(open) - 1; last >= 0 {
				splits[i] = splits[open[last]]
				open = open[:last]
			}
		}
	}
	for from := begins; from < len(p.Tokens); from++ {
		to := from
		for to < len(p.Tokens) && !splits[to] {
			to++
		}
		if to > from {
			all = append(all, Part{From: p.Tokens[from].From, To: p.Tokens[to-1].To})
		}
		from = to
	}
	return all
}

var variables = []string{"principal", "action", "resource", "context"}

// Reads are the places where the policy reads an attribute of a variable, or tests for it with has. Of a chain of
// attributes each is one. Their names share memory, because a chain can have tens of thousands.
func (p *Policy) Reads() (all []Part) {
	for i, t := range p.Tokens {
		if !slices.Contains(variables, t.Text) || p.text(i-1) == "." || p.text(i-1) == "::" {
			continue
		}
		read := Part{From: t.From, Variable: t.Text}
		for name, next, ok := p.step(i + 1); ok; name, next, ok = p.step(next) {
			read.Has = read.Has || p.Tokens[i+1].Text == "has"
			i = next - 1
			read.At, read.To = name.From, p.Tokens[i].To
			read.Names = append(read.Names, name.Name())
			all = append(all, read)
		}
	}
	return all
}

// step is the name with which a chain of attributes goes on at a token, and the token behind that.
func (p *Policy) step(at int) (name Token, next int, ok bool) {
	if p.text(at+1) == "" {
		return name, 0, false
	}
	name = p.Tokens[at+1]
	switch p.Tokens[at].Text {
	case "[":
		return name, at + 3, name.IsText() && p.text(at+2) == "]"
	case ".":
		return name, at + 2, name.IsName() && p.text(at+2) != "("
	}
	return name, at + 2, p.Tokens[at].Text == "has"
}

// Call returns the place of the first call of a function or method with another number of arguments than it takes; -1 if there
// is none.
func (p *Policy) Call(name string, takes int) (offset int) {
	for i, t := range p.Tokens {
		if t.Text != name || p.text(i+1) != "(" {
			continue
		}
		has, depth := 0, 0
		for j, within := range p.Tokens[i+1:] {
			if depth == 1 && within.Text != ")" && (j == 1 || p.text(i+j) == ",") {
				has++ // an argument begins
			}
			switch within.Text {
			case "(", "[", "{":
				depth++
			case ")", "]", "}":
				depth--
			}
			if depth == 0 {
				break
			}
		}
		if has != takes {
			return t.From
		}
	}
	return -1
}

// text is that of a token, "" if there is none.
func (p *Policy) text(i int) string {
	if i < 0 || i >= len(p.Tokens) {
		return ""
	}
	return p.Tokens[i].Text
}

// Name is a name without its quotes, if it has any. What is escaped in it stays so.
func (t Token) Name() string {
	if t.IsText() && len(t.Text) > 1 {
		return t.Text[1 : len(t.Text)-1]
	}
	return t.Text
}
