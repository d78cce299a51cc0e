package places

import (
	"testing"

	"github.com/cedar-policy/cedar-go"
)

// What cedar-go refuses is told at its place, by its name.
func TestInPolicies(t *testing.T) {
	for text, want := range map[string]Fault{
		`permit (principal, action, resource) when { decimel("1.0") == context.x };`:         {1, 45, `"decimel" is no function; did you mean "decimal"?`, "use one of ip, decimal, datetime, duration"},
		`permit (principal, action, resource) when { lessThan(context.x) };`:                 {1, 45, `"lessThan" is a method, and no function`, "call it of a value, as in context.x.lessThan(…)"},
		`permit (principal, action, resource) when { context.x.contains() };`:                {1, 55, "contains takes one argument", syntaxTry},
		"permit (principal, action, resource)\nwhen { 99999999999999999999 > 1 };":           {2, 8, "the number is too large", "numbers are whole, and have 64 bits"},
		"// first\npermt (principal, action, resource);":                                     {2, 1, `expected "permit" or "forbid" in place of "permt"; did you mean "permit"?`, "a policy begins with permit or forbid, or with annotations before them"},
		`permit (principal, action, resource) when { user.name == "x" };`:                    {1, 45, `"user" is no variable`, "the variables are principal, action, resource and context; write texts in double quotes"},
		`permit (principal, action, resource) when { [1, 2 3] == context.x };`:               {1, 51, `expected "," before a number`, "separate with a comma"},
		`@id("a") @id("b") permit (principal, action, resource);`:                            {1, 11, `the annotation "id" occurs twice`, "keep one"},
		"permit (principal, action, resource) when { context.x == }; // é":                   {1, 58, `expected an expression before "}"`, syntaxTry},
		"permit (principal, action, resource) when { \"é\" == context.x && not context.y };": {1, 65, `expected an expression before "not"`, "write ! for not"},
		"permit (principal, action, resource) when { context.x":                              {1, 54, `expected "}" before the end of the file`, "close the bracket"},
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
		context has a.b && (if principal in role::"x;" then [context.a.b, {"k": -1}].contains(3) else !context["a"].b like "*") };forbid (principal, action, resource);`
	one := First([]byte(text))
	if len(one) != len(text)-len("forbid (principal, action, resource);") {
		t.Fatalf("%s", one)
	}
	p := Read(one)
	var paths []string
	p.Conditions[0].Walk(func(part *Part) {
		if _, _, ok := part.Path(one); ok && part.Op == "." {
			paths = append(paths, one[part.From:part.To])
		}
	})
	if len(paths) != 4 || paths[0] != "context.a.b" || paths[2] != `context["a"].b` {
		t.Errorf("%q", paths)
	}
	if last := p.Tokens[len(p.Tokens)-1]; last.Text != ";" || last.To != len(one) {
		t.Errorf("%+v", last)
	}
}
