package places

import (
	"slices"

	"policy-service/pdp/cedartext"
)

// Policy is one policy of a text.
type Policy struct {
	Tokens     []Token // from its annotations to its semicolon
	Conditions []*Part
}

// Part is an expression in a condition. From and To are its bytes in the text.
type Part struct {
	From, To int
	// Op is the sign or word that makes the part of others: && or has, and a dot for an attribute, whichever way it is
	// read. It is ( for a call, and "" for a part without others in it.
	Op string
	// Names are those that the part reads, calls, or tests for with has: one, or several behind has.
	Names []Token
	Parts []*Part
}

// First is the policy that a text begins with, up to its semicolon. It does not look at the rest of the text, in which there
// may be thousands more.
func First(text []byte) string {
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

// Read reads a policy.
func Read(text string) *Policy {
	r := reader{tokens: Tokens(text)}
	p := &Policy{}
	r.head()
	for r.is("when") || r.is("unless") {
		r.next()
		r.next() // the brace
		p.Conditions = append(p.Conditions, r.expression())
		r.take("}")
	}
	p.Tokens = r.tokens[:min(r.i+1, len(r.tokens))]
	return p
}

// Walk calls do for a part and all parts in it, outer ones first.
func (p *Part) Walk(do func(*Part)) {
	do(p)
	for _, inner := range p.Parts {
		inner.Walk(do)
	}
}

// Path is the chain of attributes that a part reads of a variable. It is not ok for anything else.
func (p *Part) Path(text string) (variable string, names []string, ok bool) {
	for p.Op == "." {
		names = append(names, p.Names[0].Name())
		p = p.Parts[0]
	}
	slices.Reverse(names)
	variable = text[p.From:p.To]
	return variable, names, slices.Contains([]string{"principal", "action", "resource", "context"}, variable)
}

// Name is a name without its quotes, if it has any. What is escaped in it stays so.
func (t Token) Name() string {
	if t.IsText() && len(t.Text) > 1 {
		return t.Text[1 : len(t.Text)-1]
	}
	return t.Text
}

// reader reads a policy as Cedar's grammar has it.
type reader struct {
	tokens []Token
	i      int
}

func (r *reader) peek(ahead int) string {
	if r.i+ahead >= len(r.tokens) {
		return ""
	}
	return r.tokens[r.i+ahead].Text
}

func (r *reader) is(text string) bool { return r.peek(0) == text }

// next reads one token, the last one again and again at the end.
func (r *reader) next() Token {
	if r.i >= len(r.tokens) {
		return Token{Text: ";"}
	}
	r.i++
	return r.tokens[r.i-1]
}

// take reads a token if it is this one.
func (r *reader) take(text string) bool {
	if r.is(text) {
		r.i++
		return true
	}
	return false
}

// head goes to the first condition.
func (r *reader) head() {
	for r.take("@") {
		r.next()
		if r.take("(") {
			r.next()
			r.take(")")
		}
	}
	r.next() // permit or forbid
	for r.i < len(r.tokens) && !r.take(")") {
		r.next()
	}
}

// start is where the next part begins, and end where the last one ended.
func (r *reader) start() int {
	if r.i < len(r.tokens) {
		return r.tokens[r.i].From
	}
	return r.end()
}

func (r *reader) end() int {
	if r.i == 0 {
		return 0
	}
	return r.tokens[r.i-1].To
}

func (r *reader) expression() *Part {
	from := r.start()
	if !r.take("if") {
		return r.chain(0)
	}
	p := &Part{From: from, Op: "if", Parts: []*Part{r.expression()}}
	for r.take("then") || r.take("else") {
		p.Parts = append(p.Parts, r.expression())
	}
	p.To = r.end()
	return p
}

// signs are those that join parts, the weakest first.
var signs = [][]string{{"||"}, {"&&"}, {"<", "<=", ">", ">=", "!=", "==", "in", "has", "like", "is"}, {"+", "-"}, {"*"}}

// chain reads parts that are joined by signs of one strength.
func (r *reader) chain(strength int) *Part {
	if strength == len(signs) {
		return r.unary()
	}
	from := r.start()
	p := r.chain(strength + 1)
	for slices.Contains(signs[strength], r.peek(0)) {
		p = &Part{From: from, Op: r.next().Text, Parts: []*Part{p}}
		switch p.Op {
		case "has":
			p.Names = append(p.Names, r.next())
			for r.take(".") {
				p.Names = append(p.Names, r.next())
			}
		case "like":
			r.next()
		case "is":
			r.next()
			for r.take("::") {
				r.next()
			}
			if r.take("in") {
				p.Parts = append(p.Parts, r.chain(strength+1))
			}
		default:
			p.Parts = append(p.Parts, r.chain(strength+1))
		}
		p.To = r.end()
	}
	return p
}

func (r *reader) unary() *Part {
	from := r.start()
	if r.is("!") || r.is("-") {
		p := &Part{From: from, Op: r.next().Text}
		p.Parts = []*Part{r.unary()}
		p.To = r.end()
		return p
	}
	p := r.primary()
	for r.is(".") || r.is("[") {
		dot := r.next().Text == "."
		p = &Part{From: from, Op: ".", Names: []Token{r.next()}, Parts: []*Part{p}}
		if !dot {
			r.take("]")
		} else if r.take("(") {
			p.Op = "("
			p.Parts = append(p.Parts, r.list(")")...)
		}
		p.To = r.end()
	}
	return p
}

func (r *reader) primary() *Part {
	p := &Part{From: r.start()}
	switch t := r.next(); {
	case t.Text == "(":
		p = r.expression()
		r.take(")")
		return p
	case t.Text == "[":
		p.Op, p.Parts = "[", r.list("]")
	case t.Text == "{":
		p.Op = "{"
		for !r.is("}") && r.i < len(r.tokens) {
			r.next()
			r.take(":")
			p.Parts = append(p.Parts, r.expression())
			r.take(",")
		}
		r.take("}")
	case t.IsName():
		for r.take("::") {
			t = r.next()
		}
		if r.take("(") {
			p.Op, p.Names, p.Parts = "(", []Token{t}, r.list(")")
		}
	}
	p.To = r.end()
	return p
}

// list reads parts up to a bracket.
func (r *reader) list(end string) (parts []*Part) {
	for !r.is(end) && r.i < len(r.tokens) {
		parts = append(parts, r.expression())
		if !r.take(",") && !r.is(end) {
			break
		}
	}
	r.take(end)
	return parts
}
