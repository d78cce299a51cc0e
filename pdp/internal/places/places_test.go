package places

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cedar-policy/cedar-go"
)

// What cedar-go refuses is told at its place, by its name.
func TestInPolicies(t *testing.T) {
	for text, want := range map[string]Fault{
		`permit (principal, action, resource) when { decimel("1.0") == context.x };`:         {1, 45, `"decimel" is not a function; did you mean "decimal"?`, syntaxTry, "decimel", "decimal"},
		`permit (principal, action, resource) when { lessThan(context.x) };`:                 {1, 45, `"lessThan" is a method, not a function`, syntaxTry, "", ""},
		`permit (principal, action, resource) when { context.x.contains() };`:                {1, 55, `"contains" expects one argument`, syntaxTry, "", ""},
		"permit (principal, action, resource)\nwhen { 99999999999999999999 > 1 };":           {2, 8, "the number is too large", "numbers are whole, and have 64 bits", "", ""},
		"// first\npermt (principal, action, resource);":                                     {2, 1, `expected "permit" or "forbid" in place of "permt"; did you mean "permit"?`, "a policy begins with permit or forbid, or with annotations before them", "permt", "permit"},
		`permit (principal, action, resource) when { user.name == "x" };`:                    {1, 45, `"user" is no variable`, "the variables are principal, action, resource and context; write texts in double quotes", "", ""},
		`permit (principal, action, resource) when { [1, 2 3] == context.x };`:               {1, 51, `expected "," before a number`, "separate with a comma", "", ""},
		`@id("a") @id("b") permit (principal, action, resource);`:                            {1, 11, `duplicate annotation: @"id"`, syntaxTry, "", ""},
		"permit (principal, action, resource) when { context.x == }; // é":                   {1, 58, `expected an expression before "}"`, syntaxTry, "", ""},
		"permit (principal, action, resource) when { \"é\" == context.x && not context.y };": {1, 65, `expected an expression before "not"`, "write ! for not", "not", "!"},
		"permit (principal, action, resource) when { context.x":                              {1, 54, `expected "}" before the end of the file`, "close the bracket", "", ""},
	} {
		_, err := cedar.NewPolicyListFromBytes("", []byte(text))
		if err == nil {
			t.Fatal(text)
		}
		if got := InPolicies(text, err.Error()); got != want {
			t.Errorf("%s: %v\n got %+v\nwant %+v", text, err, got, want)
		}
	}
}

// A policy ends at its semicolon, and its parts are where they are written.
func TestRead(t *testing.T) {
	const text = `@id(";") permit (principal, action, resource) when { // ;
		context has a.b && (if principal in role::"x;" then [context.a.b, {"k": -1}].contains(3) else !context["a"].b like "*") } unless{(context.c)};forbid (principal, action, resource);`
	p := Read([]byte(text), 7, 5)
	if len(p.Text) != len(text)-len("forbid (principal, action, resource);") || p.Tokens[len(p.Tokens)-1].To != len(p.Text) {
		t.Fatalf("%s", p.Text)
	}
	for offset, want := range map[int][2]int{-1: {7, 5}, 3: {7, 8}, len(`@id(";") permit (principal, action, resource) when { // ;`) + 3: {8, 3}} {
		if line, column := p.Position(offset); line != want[0] || column != want[1] {
			t.Errorf("%d is at %d:%d, want %v", offset, line, column, want)
		}
	}
	var reads, clauses []string
	for _, part := range p.Reads() {
		reads = append(reads, fmt.Sprint(p.Text[part.From:part.To], " ", part.Names, part.Has))
	}
	for _, part := range p.Clauses() {
		clauses = append(clauses, p.Text[part.From:part.To])
	}
	want := []string{"context has a [a] true", "context has a.b [a b] true", "context.a [a] false", "context.a.b [a b] false", `context["a"] [a] false`, `context["a"].b [a b] false`, "context.c [c] false"}
	if !slices.Equal(reads, want) {
		t.Errorf("got %q\nwant %q", reads, want)
	}
	want = []string{"context has a.b", `principal in role::"x;"`, `[context.a.b, {"k": -1}].contains(3)`, `!context["a"].b like "*"`, "(context.c)"}
	if !slices.Equal(clauses, want) {
		t.Errorf("got %q\nwant %q", clauses, want)
	}
	if p := Read(nil, 2, 3); len(p.Reads()) != 0 || len(p.Clauses()) != 0 {
		t.Error("no text has parts")
	}
}
