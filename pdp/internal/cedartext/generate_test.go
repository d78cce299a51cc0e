package cedartext_test

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"policy-service/pdp/internal/cedartext"
)

// making makes policies by chance.
type making struct{ *rand.Rand }

func seeded(seed int) making { return making{rand.New(rand.NewPCG(uint64(seed), 26))} }

func (m making) pick(one ...string) string { return one[m.IntN(len(one))] }

func (m making) list(most int, of func() string) string {
	all := make([]string, m.IntN(most+1))
	for n := range all {
		all[n] = of()
	}
	return strings.Join(all, ",")
}

func (m making) name() string {
	return m.pick("a", "id", "role", "department", "aMuchLongerName", "x_1")
}
func (m making) path() string { return m.pick("User", "App::Tool", "Org::Dept::AVeryLongType") }
func (m making) uid() string  { return m.path() + "::" + m.text() }
func (m making) text() string {
	return m.pick(`""`, `"a"`, `"some text"`, `"é"`, `"日本語"`, `"\"quoted\" \u{1F600}\\"`, `"a longer text, that takes some room"`, `"//"`)
}

// policies are a file.
func (m making) policies() string {
	var all strings.Builder
	for range 1 + m.IntN(2) {
		for n := range m.IntN(3) {
			fmt.Fprintf(&all, "@%s%d%s", m.name(), n, m.pick("", "("+m.text()+")")+" ")
		}
		all.WriteString(m.pick("permit", "forbid") + "(" + m.scope("principal") + "," + m.scope("resource"))
		for range m.IntN(3) {
			all.WriteString(m.pick("when", "unless") + "{" + m.expression(3) + "}")
		}
		all.WriteString(";")
	}
	return all.String()
}

func (m making) scope(variable string) string {
	end := ")"
	if variable == "principal" {
		end = "," + "action" + m.pick("", "", ` == Action::`+m.text(), ` in Action::`+m.text(), " in ["+m.list(4, func() string { return "Action::" + m.text() })+"]")
	}
	return variable + m.pick("", "", " == "+m.uid(), " in "+m.uid(), " is "+m.path(), " is "+m.path()+" in "+m.uid()) + end
}

func (m making) expression(depth int) string {
	if depth > 0 && m.IntN(5) == 0 {
		return "if " + m.expression(depth-1) + " then " + m.expression(depth-1) + " else " + m.expression(depth-1)
	}
	text := m.relation(depth)
	for depth > 0 && m.IntN(3) == 0 {
		depth--
		text += m.pick(" && ", " && ", " || ") + m.relation(depth)
	}
	return text
}

func (m making) relation(depth int) string {
	left := m.sum(depth)
	switch m.IntN(8) {
	case 0, 1:
		return left + m.pick("==", "!=", "<", "<=", ">", ">=", " in ") + m.sum(depth)
	case 2:
		return left + " has " + m.pick(m.text(), m.name(), m.name()+"."+m.name(), m.name()+"."+m.name()+"."+m.name())
	case 3:
		return left + " like " + m.text()
	case 4:
		return left + " is " + m.path() + m.pick("", " in "+m.sum(depth))
	}
	return left
}

func (m making) sum(depth int) string {
	text := m.unary(depth)
	for depth > 0 && m.IntN(7) == 0 {
		depth--
		text += m.pick("+", "-", "*") + m.unary(depth)
	}
	return text
}

func (m making) unary(depth int) string {
	if m.IntN(8) == 0 { // of which cedar-go reads no members, behind a sign
		return m.pick("", "-", "- ", "--") + "42"
	}
	text := m.pick("", "", "", "", "!", "-", "!!") + m.primary(depth)
	for range m.IntN(4) {
		switch m.IntN(5) {
		case 0:
			text += "[" + m.text() + "]"
		case 1:
			text += m.pick(".contains(", ".containsAny(") + m.expression(depth-1) + ")"
		case 2:
			text += ".isEmpty()"
		default:
			text += "." + m.name()
		}
	}
	return text
}

func (m making) primary(depth int) string {
	if depth > 0 {
		switch m.IntN(9) {
		case 0:
			return "(" + m.expression(depth-1) + ")"
		case 1:
			return "[" + m.list(4, func() string { return m.expression(depth - 1) }) + "]"
		case 2:
			n := 0
			return "{" + m.list(3, func() string { n++; return fmt.Sprintf(`%s%d:%s`, m.name(), n, m.expression(depth-1)) }) + "}"
		case 3:
			return m.pick("ip(", "decimal(") + m.text() + ")"
		}
	}
	return m.pick("principal", "resource", "context", "true", m.text(), m.uid())
}

// commented puts comments where people put them: at the ends of lines, and between clauses, operands and elements.
func (m making) commented(text string) string {
	var all strings.Builder
	for _, t := range cedartext.Lex(text) {
		word := "|" + t.Text + "|"
		if strings.Contains("|@|permit|forbid|when|unless|then|else|principal|action|resource|}|]|", word) && m.IntN(12) == 0 {
			all.WriteString("\n// before it\n")
		}
		all.WriteString(t.Text)
		if strings.Contains("|&&|'|'|,|{|[|(|}|;|", strings.ReplaceAll(word, "||||", "&&")) && m.IntN(12) == 0 {
			all.WriteString(" // behind it\n")
		}
	}
	return all.String()
}

// scattered puts white space and comments anywhere.
func (m making) scattered(text string) string {
	var all strings.Builder
	for _, t := range cedartext.Lex(text) {
		all.WriteString(m.pick("", "", "", "", " ", "\t", "\n", "\r\n", "\n\n", " // here\n", "\n// there  \n", "\n//\n// x\r\n") + t.Text)
	}
	return all.String()
}
