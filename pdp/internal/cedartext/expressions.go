package cedartext

// expression is whatever has a value.
func (r *reader) expression() *layout {
	if r.next() != "if" {
		return joined(r.chain(r.relation, "&&", "||")...)
	}
	part := func(word string) *layout {
		return joined(r.above(), indented(indent, r.exactly(word, blankBreak), r.nested(r.expression)))
	}
	return group(part("if"), blankBreak, part("then"), blankBreak, part("else"))
}

// chain is operands with operators between them. A line can end behind each of those.
func (r *reader) chain(operand func() *layout, operators ...string) []*layout {
	all := []*layout{operand()}
	for r.nextIs(operators) {
		all = append(all, blank, r.word(blankBreak), operand())
	}
	return all
}

func (r *reader) nextIs(one []string) bool {
	for _, t := range one {
		if r.next() == t {
			return true
		}
	}
	return false
}

// relation is a comparison, or one of the tests has, like and is.
func (r *reader) relation() *layout {
	left := r.sum()
	switch r.next() {
	case "has":
		if r.ahead(1) != "" && r.words[1].Kind == Text {
			return group(left, blankBreak, r.word(blankBreak), indented(indent, r.of(Text, "a name")))
		}
		return group(left, blankBreak, r.word(blankBreak), indented(indent, r.names()))
	case "like":
		return group(left, blankBreak, r.word(blankBreak), indented(indent, r.of(Text, "a text")))
	case "is":
		all := []*layout{left, blank, r.word(blank), r.path()}
		if r.next() == "in" {
			all = append(all, blankBreak, indented(indent, r.word(nothing), blank, r.sum()))
		}
		return group(all...)
	}
	if r.nextIs([]string{"==", "!=", "<", "<=", ">", ">=", "in"}) {
		return group(left, blank, r.word(nothing), blank, r.sum())
	}
	return left
}

// names are the operand of has: a name, or several with dots between them.
func (r *reader) names() *layout {
	first := r.of(Name, "a name")
	var more []*layout
	for r.next() == "." {
		if more != nil {
			more = append(more, softBreak)
		}
		more = append(more, r.word(nothing), r.of(Name, "a name"))
	}
	return group(first, indented(indent, more...))
}

func (r *reader) sum() *layout { return group(r.chain(r.product, "+", "-")...) }

func (r *reader) product() *layout { return group(r.chain(r.unary, "*")...) }

// unary is a member, with signs before it.
func (r *reader) unary() *layout {
	if r.next() != "!" && r.next() != "-" {
		return r.member()
	}
	return joined(r.word(nothing), r.nested(r.unary))
}

// member is a primary, with the attributes that are read of it. The first thing stands right behind it; where not all fits in one line, each
// of the others is on its own.
func (r *reader) member() *layout {
	all := []*layout{r.primary()}
	var more []*layout
	for r.nextIs([]string{".", "[", "("}) {
		if more != nil {
			more = append(more, softBreak)
		}
		switch r.next() {
		case ".":
			more = append(more, r.word(nothing), r.of(Name, "a name"))
		case "[":
			more = append(more, r.word(nothing), r.of(Text, "a text"), r.exactly("]", nothing))
		case "(":
			more = append(more, r.arguments())
		}
	}
	if len(more) > 0 {
		all = append(all, indented(indent, more...))
	}
	return group(all...)
}

func (r *reader) arguments() *layout {
	if r.ahead(1) == ")" {
		return joined(r.word(nothing), r.word(nothing))
	}
	return joined(indented(indent, r.word(softBreak), r.list(")", r.expression)), softBreak, r.closing(")"))
}

// list has elements between brackets, with commas between them.
func (r *reader) list(end string, element func() *layout) *layout {
	var all []*layout
	for r.next() != end && r.refused == nil {
		all = append(all, r.nested(element))
		if r.next() == end || r.next() == "," && r.ahead(1) == end {
			break
		}
		all = append(all, r.exactly(",", blankBreak))
	}
	return joined(all...)
}

// primary is an operand of the operators that bind closest.
func (r *reader) primary() *layout {
	switch w := r.words[0]; {
	case w.Text == "(":
		return group(r.word(nothing), indented(1, r.nested(r.expression)), r.exactly(")", nothing))
	case w.Text == "[":
		return r.set()
	case w.Text == "{":
		return r.record()
	case w.Kind == Number, w.Kind == Text:
		return r.word(nothing)
	case w.Kind != Name:
		return r.expected("a value")
	case r.ahead(1) == "::":
		return r.entity()
	}
	return r.word(nothing)
}

// entity is a type and an id. In front of a call there is no id.
func (r *reader) entity() *layout {
	all := []*layout{r.path()}
	if r.next() == "::" {
		all = append(all, r.word(nothing), r.of(Text, "a text"))
	}
	return joined(all...)
}

// path is the name of a type.
func (r *reader) path() *layout {
	all := []*layout{r.of(Name, "a name")}
	for r.next() == "::" && len(r.words) > 1 && r.words[1].Kind == Name {
		all = append(all, r.word(nothing), r.word(nothing))
	}
	return joined(all...)
}

func (r *reader) set() *layout {
	open := r.word(nothing)
	return joined(open, indented(1, r.list("]", r.expression)), r.closing("]"))
}

func (r *reader) record() *layout {
	if r.ahead(1) == "}" {
		return joined(r.word(nothing), r.word(nothing))
	}
	open := r.word(nothing)
	return joined(open, group(indented(indent, blankBreak, r.list("}", r.pair)), blankBreak, r.closing("}")))
}

func (r *reader) pair() *layout {
	var key *layout
	if r.words[0].Kind == Text {
		key = r.word(nothing)
	} else {
		key = r.of(Name, "a name")
	}
	return joined(key, r.exactly(":", nothing), blank, r.expression())
}
