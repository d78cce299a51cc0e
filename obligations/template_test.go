package obligations_test

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"policy-service/evaluation"
	"policy-service/obligations"
)

func TestVariables(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"":                                 nil,
		"no variable, $ } { $$ }${":        {"!"},
		"$ { } $} {$":                      nil,
		"${principal.id}":                  {"principal.id"},
		"${resource.id}${action.name}":     {"resource.id", "action.name"},
		"a ${context.x} b ${context.x} c":  {"context.x", "context.x"},
		"$${context.x}}":                   {"context.x"},
		"${context.a-b}${context.ü}":       {"context.a-b", "context.ü"},
		"${context.a b}":                   {"context.a b"},
		"${context.pdp}":                   {"!"},
		"${}":                              {"!"},
		"${principal}":                     {"!"},
		"${principal.name}":                {"!"},
		"${action.id}":                     {"!"},
		"${context}":                       {"!"},
		"${context.}":                      {"!"},
		"${context.a.b}":                   {"context.a.b"},
		"${context.a.b.pdp.action}":        {"context.a.b.pdp.action"},
		"${context.a..b}":                  {"!"},
		"${context..a}":                    {"!"},
		"${context.a.}":                    {"!"},
		"${context.pdp.tenant}":            {"!"},
		"${context.action.soft}":           {"!"},
		"${context.approval.id}":           {"!"},
		"${context.a.$b}":                  {"!"},
		"${context.a.API-Key}":             {"!"}, // a secret
		"${context.secrets.a}":             {"!"},
		"${context.token}":                 {"context.token"}, // as in the first release
		`${context["a"]}`:                  {"!"},
		"${ principal.id }":                {"!"},
		"${Principal.id}":                  {"!"},
		"${principal.id":                   {"!"},
		"${principal.id}${":                {"!"},
		"${context.${context.x}}":          {"!"},
		"${context.$x}":                    {"!"},
		"${context.approved}":              {"!"},
		"${context.justification}":         {"!"},
		"${context.supported_obligations}": {"!"},
	} {
		got, err := obligations.Variables(text)
		if bad := slices.Equal(want, []string{"!"}); bad != (err != nil) || !bad && !slices.Equal(got, want) {
			t.Errorf("%q: got %q, %v, want %q", text, got, err, want)
		}
		if err != nil && strings.ContainsAny(err.Error(), "\n\x00") {
			t.Errorf("%q: the error breaks a line: %q", text, err)
		}
	}
	// The text of a file must not forge a line of a log.
	for _, text := range []string{"${a\nb}", "${\x00}", "${context.a\n..b}"} {
		if _, err := obligations.Variables(text); err == nil || strings.ContainsAny(err.Error(), "\n\x00") {
			t.Errorf("%q: %q", text, err)
		}
	}
}

func TestPath(t *testing.T) {
	t.Parallel()
	for variable, want := range map[string][]string{
		"context.a": {"a"}, "context.a.b.c": {"a", "b", "c"}, "principal.id": nil, "action.name": nil,
	} {
		if got, ok := obligations.Path(variable); ok != (want != nil) || !slices.Equal(got, want) {
			t.Errorf("%s: got %q, %t", variable, got, ok)
		}
	}
	if obligations.Secret([]string{"arguments", "amount"}) || !obligations.Secret([]string{"arguments", "apiKey", "of"}) {
		t.Error("the names do not say what is a secret")
	}
}

func object(t testing.TB, text string) evaluation.Object {
	t.Helper()
	o, err := evaluation.ParseObject([]byte(text), evaluation.DefaultLimits())
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return o
}

func text(t testing.TB, o evaluation.Object) string {
	t.Helper()
	b, err := o.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// values has a value for everything that is not named missing.
func values(name string) (string, bool) {
	switch name {
	case "principal.id":
		return "alice", true
	case "context.template":
		return "${principal.id}", true
	case "context.half":
		return "${", true
	case "context.empty":
		return "", true
	case "context.bytes":
		return "\xff", true
	}
	return "", false
}

func TestFill(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{}`:                                 `{}`,
		`{"a":"x","n":1.50,"b":true,"l":[]}`: `{"a":"x","b":true,"l":[],"n":1.50}`,
		`{"a":"by ${principal.id}!"}`:        `{"a":"by alice!"}`,
		`{"a":{"b":[{"c":"${principal.id}"}, "x"]}}`: `{"a":{"b":[{"c":"alice"},"x"]}}`,
		// A filled-in value is text: neither a template nor part of one.
		`{"a":"${context.template}"}`:                `{"a":"${principal.id}"}`,
		`{"a":"${context.half}principal.id}"}`:       `{"a":"${principal.id}"}`,
		`{"a":"$${context.empty}{principal.id}"}`:    `{"a":"${principal.id}"}`,
		`{"a":"${context.empty}"}`:                   `{"a":""}`,
		`{"${principal.id}":"x"}`:                    `{"${principal.id}":"x"}`, // names are no templates
		`{"a":"${context.missing}"}`:                 "",
		`{"a":"x","b":["${context.missing}"]}`:       "",
		`{"a":"${context.bytes}"}`:                   "",
		`{"a":"${principal.id}","b":"${principal."}`: "",
	} {
		o := object(t, in)
		before := text(t, o)
		got, ok := obligations.Fill(o, values)
		if ok != (want != "") || ok && text(t, got) != want {
			t.Errorf("%s: got %s, %t, want %s", in, text(t, got), ok, want)
		}
		if text(t, o) != before {
			t.Errorf("%s: Fill changed what it was given to %s", in, text(t, o))
		}
	}
}

// FuzzTemplate holds: Fill fills each text that Variables accepts, where every variable has
// a value, and none that it refuses for its form; a value is
// never expanded; and the result is that of a plain replacement.
func FuzzTemplate(f *testing.F) {
	for _, seed := range [][2]string{
		{"", ""}, {"${principal.id}", "${context.x}"}, {"a ${context.x} b", "}"}, {"${context.x}principal.id}", "${"}, {"$${resource.id}{action.name}", ""},
		{"${", "x"}, {"${}", "x"}, {"${context.${context.x}}", "x"}, {"${context.approved}", "x"}, {"\x00${action.name}\n", "\xff"}, {"${a\nb}", ""},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, template, value string) {
		o, err := evaluation.NewObject(map[string]any{"t": template, "deep": []any{map[string]any{"t": template}}})
		if err != nil {
			return // not UTF-8
		}
		names, bad := obligations.Variables(template)
		if bad != nil && strings.ContainsAny(bad.Error(), "\n\x00") {
			t.Errorf("%q: %q", template, bad)
		}
		var asked []string
		filled, ok := obligations.Fill(o, func(name string) (string, bool) {
			asked = append(asked, name)
			return value, true
		})
		if !ok {
			if bad == nil && (len(names) == 0 || utf8.ValidString(value)) {
				t.Errorf("%q has the variables %q and is not filled with %q", template, names, value)
			}
			return
		}
		got, _ := filled.Get("t")
		if bad != nil && bad.Error() == "a ${ has no }" {
			t.Errorf("%q is filled: %q", template, got.Text())
		}
		if bad == nil && got.Text() != plainly(template, names, value) {
			t.Errorf("%q with %q becomes %q", template, value, got.Text())
		}
		if bad == nil && !slices.Equal(asked, slices.Concat(names, names)) {
			t.Errorf("%q has the variables %q, and Fill asked for %q", template, names, asked)
		}
	})
}

// plainly replaces variable by variable, and does not look at the inserted text.
func plainly(template string, names []string, value string) string {
	filled := ""
	for _, name := range names {
		before, after, _ := strings.Cut(template, "${"+name+"}")
		filled, template = filled+before+value, after
	}
	return filled + template
}
