package lsp

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// placesOf are places as file:line:column, without the directory of the bundle.
func (e *editor) placesOf(all []location) (places []string) {
	for _, one := range all {
		file := strings.TrimPrefix(one.URI, e.uri("")+"/")
		places = append(places, fmt.Sprintf("%s:%d:%d-%d", file, one.Range.Start.Line, one.Range.Start.Character, one.Range.End.Character))
	}
	return places
}

// usedFiles are those of a bundle in which everything is used: by the root, by a tenant, and in tests.
func usedFiles() map[string]string {
	files := bundleFiles()
	files["a.cedar"] = "// 𝄞\r\n@id(\"readers\") @obligation(\"log, tell-ops\")\r\npermit (principal is user, action == Action::\"read\", resource is doc)\r\n" +
		"when { /* 𝄞 */ principal.level > 1 && resource[\"owner\"].level > 2 && context.place.city == \"x\" && principal in group::\"staff\" };\r\n" +
		"forbid (principal, action, resource) when { principal has level && principal.level < 0 };\r\n"
	files["tests/a.yaml"] = strings.Replace(tests, "[]", `[readers, "a.cedar#1"]`, 1)
	files["tenants/acme/b.cedar"] = `@id("acme") @obligation("tell-ops") permit (principal == user::"zoe", action, resource);`
	files["tenants/acme/tests/b.yaml"] = strings.Replace(tests, "[]", "[readers, acme]", 1)
	return files
}

// References are the inverse of definitions: of each thing, from any place that names it, all places that do.
func TestReferences(t *testing.T) {
	t.Parallel()
	type cursor struct{ file, word string }
	from := func(file, word string) cursor { return cursor{file, word} }
	for _, one := range []struct {
		name string
		from []cursor // the word has a mark
		want []string // the definition has a star
	}{
		{name: "policy", from: []cursor{from("a.cedar", `@id("read¦ers")`), from("tests/a.yaml", `[read¦ers`)},
			want: []string{"*a.cedar:1:5-12", "tenants/acme/tests/b.yaml:3:16-23", "tests/a.yaml:3:16-23"}},
		{name: "policy without a name", from: []cursor{from("a.cedar", `for¦bid`), from("tests/a.yaml", `"a.cedar¦#1"`)},
			want: []string{"*a.cedar:4:0-6", "tests/a.yaml:3:26-35"}},
		{name: "obligation", from: []cursor{from("obligations.yaml", "tell¦-ops:"), from("a.cedar", "log, tell-¦ops")},
			want: []string{"a.cedar:1:33-41", "*obligations.yaml:0:0-8", "tenants/acme/b.cedar:0:25-33"}},
		{name: "type", from: []cursor{from("schema.cedarschema", "entity us¦er"), from("a.cedar", "is us¦er"), from("schema.cedarschema", "owner: use¦r")},
			want: []string{"a.cedar:2:21-25", "*schema.cedarschema:1:7-11", "schema.cedarschema:2:20-24", "schema.cedarschema:3:36-40", "schema.cedarschema:4:43-47", "tenants/acme/b.cedar:0:57-61"}},
		{name: "action", from: []cursor{from("schema.cedarschema", "action re¦ad"), from("a.cedar", `"rea¦d"`)},
			want: []string{"a.cedar:2:46-50", "*schema.cedarschema:3:7-11"}},
		{name: "attribute", from: []cursor{from("schema.cedarschema", "lev¦el: Long"), from("a.cedar", "principal.lev¦el"), from("a.cedar", `["owner"].leve¦l`), from("a.cedar", "has le¦vel")},
			want: []string{"a.cedar:3:26-31", "a.cedar:3:57-62", "a.cedar:4:58-63", "a.cedar:4:77-82", "*schema.cedarschema:1:25-30"}},
		{name: "attribute in quotes", from: []cursor{from("schema.cedarschema", "own¦er: user"), from("a.cedar", `["own¦er"]`)},
			want: []string{"a.cedar:3:49-54", "*schema.cedarschema:2:13-18"}},
		{name: "member of the context", from: []cursor{from("schema.cedarschema", "ci¦ty"), from("a.cedar", "place.ci¦ty")},
			want: []string{"a.cedar:3:84-88", "*schema.cedarschema:3:80-84"}},
		{name: "entity", from: []cursor{from("a.cedar", `"sta¦ff"`)}, want: []string{"a.cedar:3:120-125", "*entities/all.json:1:2-3"}},
		{name: "entity of a tenant", from: []cursor{from("tenants/acme/b.cedar", `"zo¦e"`)}, want: []string{"tenants/acme/b.cedar:0:64-67", "*tenants/acme/entities/zoe.json:0:1-2"}},
	} {
		t.Run(one.name, func(t *testing.T) {
			t.Parallel()
			e := begin(t, usedFiles())
			e.open("a.cedar", usedFiles()["a.cedar"])
			e.diagnostics("a.cedar", func(all []diagnostic) bool {
				return !slices.ContainsFunc(all, func(d diagnostic) bool { return d.Severity == isError })
			})
			var all, uses, defined []string
			for _, place := range one.want {
				bare := strings.TrimPrefix(place, "*")
				if all = append(all, bare); bare == place {
					uses = append(uses, place)
				} else {
					defined = append(defined, bare)
				}
			}
			for _, c := range one.from {
				text := usedFiles()[c.file]
				word, _ := marked(c.word)
				text = strings.Replace(text, word, c.word, 1)
				if !strings.Contains(text, "¦") {
					t.Fatalf("%s is not in %q", word, text)
				}
				plain, at := marked(text)
				e.open(c.file, plain)
				asks := func(definition bool) (found []location) {
					e.ask("textDocument/references", map[string]any{
						"textDocument": map[string]any{"uri": e.uri(c.file)}, "position": at, "context": map[string]any{"includeDeclaration": definition},
					}, &found)
					return found
				}
				if diff := cmp.Diff(all, e.placesOf(asks(true))); diff != "" {
					t.Errorf("%s: %s", c.word, diff)
				}
				if diff := cmp.Diff(uses, e.placesOf(asks(false))); diff != "" {
					t.Errorf("%s, without the definition: %s", c.word, diff)
				}
				var definitions []location
				e.ask("textDocument/definition", map[string]any{"textDocument": map[string]any{"uri": e.uri(c.file)}, "position": at}, &definitions)
				if diff := cmp.Diff(defined, e.placesOf(definitions)); diff != "" {
					t.Errorf("%s, defined: %s", c.word, diff)
				}
			}
		})
	}
}

// What is not saved counts, no tenant sees another one, and a file that is in no bundle, or not open, has no names.
func TestReferencesOfWhatIsThere(t *testing.T) {
	t.Parallel()
	files := usedFiles()
	files["tenants/other/c.cedar"] = `@id("other") @obligation("tell-ops") permit (principal == user::"zoe", action, resource);`
	e := begin(t, files)
	asks := func(uri string, at position) (found []location) {
		e.ask("textDocument/references", map[string]any{"textDocument": map[string]any{"uri": uri}, "position": at, "context": map[string]any{"includeDeclaration": true}}, &found)
		return found
	}
	text, at := marked(`@id("acme") permit (principal == user::"z¦oe", action, resource);`)
	if all := asks(e.uri("tenants/acme/b.cedar"), at); len(all) != 0 {
		t.Errorf("it is not open: %+v", all)
	}
	e.open("tenants/acme/b.cedar", "\n\n"+text)
	at.Line = 2
	if got := e.placesOf(asks(e.uri("tenants/acme/b.cedar"), at)); slices.ContainsFunc(got, func(one string) bool { return strings.Contains(one, "other") }) || !slices.Contains(got, "tenants/acme/b.cedar:2:40-43") {
		t.Errorf("got %q", got)
	}
	outside := begin(t, map[string]string{"tests/a.yaml": tests, "obligations.yaml": obligations})
	for file, text := range map[string]string{"tests/a.yaml": tests, "obligations.yaml": obligations} {
		outside.open(file, text)
		var found []symbol
		outside.ask("textDocument/documentSymbol", map[string]any{"textDocument": map[string]any{"uri": outside.uri(file)}}, &found)
		if len(found) != 0 {
			t.Errorf("%s is in no bundle: %+v", file, found)
		}
	}
}

func TestSymbols(t *testing.T) {
	t.Parallel()
	for file, want := range map[string][]string{
		"a.cedar":              {"readers permit 1:0-3:129", "a.cedar#1 forbid 4:0-4:89"},
		"schema.cedarschema":   {"group entity 0:0-0:13", "user entity 1:0-1:54", "doc entity 2:0-2:27", "read action 3:0-3:113", "write all action 4:0-4:68"},
		"obligations.yaml":     {"tell-ops  0:0-0:8"},
		"tests/a.yaml":         {"a  0:8-0:9"},
		"entities/all.json":    nil,
		"tenants/acme/b.cedar": {"acme permit 0:0-0:88"},
	} {
		e := begin(t, usedFiles())
		e.open(file, usedFiles()[file])
		var found []symbol
		e.ask("textDocument/documentSymbol", map[string]any{"textDocument": map[string]any{"uri": e.uri(file)}}, &found)
		var got []string
		for _, s := range found {
			got = append(got, fmt.Sprintf("%s %s %d:%d-%d:%d", s.Name, s.Detail, s.Range.Start.Line, s.Range.Start.Character, s.Range.End.Line, s.Range.End.Character))
			if before(s.SelectionRange.Start, s.Range.Start) || before(s.Range.End, s.SelectionRange.End) || s.Kind == 0 {
				t.Errorf("%s: %+v", file, s)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", file, diff)
		}
	}
}

// A file that is made to be slow is read once, and the answer has a bound.
func TestUsesAreBounded(t *testing.T) {
	t.Parallel()
	many := func(text string) string { return strings.Repeat(text, 300_000/len(text)) }
	for name, one := range map[string]struct{ file, text string }{
		"policies":   {"a.cedar", many("permit(principal,action,resource);")},
		"a chain":    {"a.cedar", "permit(principal,action,resource) when { principal" + many(".a") + " };"},
		"a type":     {"a.cedar", "permit(principal == " + many("a::") + `"x",action,resource);`},
		"names":      {"a.cedar", "permit(" + many("principal is a,")},
		"signs":      {"a.cedar", many("::")},
		"texts":      {"a.cedar", many(`::"x"`)},
		"owners":     {"a.cedarschema", "entity a" + many(",a") + "{" + many("a:b,") + "};"},
		"braces":     {"a.cedarschema", "entity a {" + many("a:{")},
		"namespaces": {"a.cedarschema", many("namespace a::b {")},
		"obligation": {"obligations.yaml", many("a: {}\n")},
		"one line":   {"tests/a.yaml", "[" + strings.Repeat(`{"name":"x"},`, 20_000) + "]"},
		"aliases":    {"tests/a.yaml", "- &a [x]\n" + many("- *a\n")},
		"deep":       {"tests/a.yaml", many("- ")},
		"too long":   {"a.cedar", strings.Repeat("permit(principal,action,resource);", mostText/30)},
	} {
		found := 0
		usesIn(one.file, one.text, nil, func(u use) {
			if found++; u.from < 0 || u.from > u.to || u.to > len(one.text) {
				t.Fatalf("%s: %+v", name, u)
			}
		})
		if (found == 0) != (name == "too long" || name == "signs" || name == "namespaces" || name == "aliases" || name == "deep") {
			t.Errorf("%s: %d", name, found)
		}
	}
	e := begin(t, bundleFiles())
	e.open("a.cedar", many("permit(principal,action,resource);"))
	var all []symbol
	e.ask("textDocument/documentSymbol", map[string]any{"textDocument": map[string]any{"uri": e.uri("a.cedar")}}, &all)
	if len(all) != mostFound {
		t.Errorf("got %d symbols", len(all))
	}
}

// Any text has names, each inside it.
func FuzzUses(f *testing.F) {
	for _, text := range []string{policies, schema, obligations, tests, `@obligation("`, `@id("a")(permit(`, "action \"a\" in [\"b\", C::Action::\"x\"] appliesTo {context: {a?: {b: c}}};", "entity E enum [\"a\"];"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, file := range []string{"a.cedar", "a.cedarschema", "obligations.yaml", "tests/a.yaml"} {
			usesIn(file, text, nil, func(u use) {
				if u.from < 0 || u.from > u.to || u.to > len(text) {
					t.Errorf("%s, %q: %+v", file, text, u)
				}
			})
		}
	})
}

// A policy and an obligation of an access declaration are defined by their rule, and by its approval.
func TestDefinitionInADeclaration(t *testing.T) {
	t.Parallel()
	e := begin(t, map[string]string{
		"p.cedar": "@id(\"p\") permit(principal is user, action, resource);\n",
		"tenants/t/access/desk.yaml": "mode: allowlist\nrules:\n  - {agent: alice, tools: [read]}\n" +
			"  - {agent: bob, tools: \"*\", requires_approval: true}\napproval: {template: x, timeout: 10m}\n",
	})
	e.open("p.cedar", "@id(\"p\") permit(principal is user, action, resource);\n")
	e.diagnostics("p.cedar", func([]diagnostic) bool { return true })
	for _, one := range []struct{ file, text, want string }{
		{"tenants/t/tests/a.yaml", "- determining: [access.t/desk¦.2]", "tenants/t/access/desk.yaml:3:4-5"},
		{"tenants/t/q.cedar", `@obligation("access.t/desk¦") permit (principal, action, resource);`, "tenants/t/access/desk.yaml:4:10-11"},
	} {
		var all []location
		e.under("textDocument/definition", one.file, one.text, &all)
		if diff := cmp.Diff([]string{one.want}, e.placesOf(all)); diff != "" {
			t.Errorf("%s: %s", one.text, diff)
		}
	}
}
