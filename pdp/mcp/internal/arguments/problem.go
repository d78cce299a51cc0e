package arguments

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"policy-service/pdp/visible"
)

// Problem is what is wrong at one place of arguments.
type Problem struct {
	// Pointer is the place, as a JSON Pointer that begins at the arguments. What cannot be seen in it is escaped, and what
	// is long is cut.
	Pointer string
	// Detail says what the schema wants there.
	Detail string
}

// What is told of one call.
const (
	mostProblems = 16
	mostPointer  = 200
	mostName     = 64
)

func (p Problem) String() string {
	if p.Pointer == "" {
		return "the arguments: " + p.Detail
	}
	return p.Pointer + ": " + p.Detail
}

// Text says all problems to who made the call, a line each.
func Text(problems []Problem) string {
	var b strings.Builder
	b.WriteString("The arguments do not fit the inputSchema of the tool.")
	for _, p := range problems {
		b.WriteString("\n" + p.String())
	}
	if len(problems) == mostProblems {
		b.WriteString("\nNo more problems are listed.")
	}
	return b.String()
}

// problem tells of one at the place where the checker is, or below it.
func (c *checker) problem(detail string, below ...string) {
	if len(c.problems) == mostProblems {
		return
	}
	var b strings.Builder
	for _, tokens := range [][]string{c.path, below} {
		for _, t := range tokens {
			b.WriteString("/" + shown(t))
		}
	}
	c.problems = append(c.problems, Problem{cut(b.String(), mostPointer), detail})
}

var escaper = strings.NewReplacer("~", "~0", "/", "~1")

// shown is a token of a pointer.
func shown(token string) string { return visible.Text(escaper.Replace(cut(token, mostName))) }

// cut is a text of no more bytes than that and a sign that it goes on.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for text = text[:most]; !utf8.ValidString(text); {
		text = text[:len(text)-1]
	}
	return text + "…"
}

// listed is a set of types in words.
func (k kinds) listed() string {
	var all []string
	for _, each := range kindNames {
		if k&each.kind != 0 && (each.kind != isInteger || k&isNumber == 0) {
			all = append(all, each.name)
		}
	}
	return strings.Join(all, " or ")
}

// wrongKind says what a value is, and what it is to be.
func wrongKind(is, wanted kinds) string {
	return fmt.Sprintf("is of type %s, and must be of type %s", is.listed(), wanted.listed())
}
