package lsp

import (
	"slices"
	"strings"
	"testing"
)

// offers are the code actions for all of a file.
func (e *editor) offers(file string, only ...string) (all []codeAction) {
	e.t.Helper()
	e.ask("textDocument/codeAction", map[string]any{
		"textDocument": map[string]any{"uri": e.uri(file)}, "range": textRange{End: position{999, 0}},
		"context": map[string]any{"diagnostics": []any{}, "only": only},
	}, &all)
	return all
}

// applied is a text with an edit.
func applied(text string, edit textEdit) string {
	return text[:offsetOf(text, edit.Range.Start)] + edit.NewText + text[offsetOf(text, edit.Range.End):]
}

// Each problem that asks "did you mean" comes with the edit that writes it, in each kind of file, and in files with the line
// ends of Windows. The edit is for the version that the editor has; with it, the problem is gone.
func TestMends(t *testing.T) {
	t.Parallel()
	for _, one := range []struct{ name, file, was, is string }{
		{"effect", "a.cedar", "permt (", "permit ("},
		{"word", "a.cedar", "whn {", "when {"},
		{"variable", "a.cedar", "principl.level", "principal.level"},
		{"function", "a.cedar", `resource.owner.level > 2 && decimel("1.0") == decimal("1.0")`, `resource.owner.level > 2 && decimal("1.0") == decimal("1.0")`},
		{"habit", "a.cedar", "1 and resource", "1 && resource"},
		{"type", "a.cedar", "resource is dok)", "resource is doc)"},
		{"action", "a.cedar", `Action::"raed"`, `Action::"read"`},
		{"attribute", "a.cedar", "principal.levl >", "principal.level >"},
		{"has", "a.cedar", "when { principal has nam && principal.level", "when { principal has name && principal.level"},
		{"obligation", "a.cedar", `@obligation("log, tel-ops") @id`, `@obligation("log, tell-ops") @id`},
		{"annotation", "a.cedar", `@obligatoin("log") @id`, `@obligation("log") @id`},
		{"entity", "a.cedar", `principal in group::"stuff" &&`, `principal in group::"staff" &&`},
		{"declaration", "schema.cedarschema", "entty group", "entity group"},
		{"reference", "schema.cedarschema", "owner: usr", "owner: user"},
		{"stored attribute", "entities/all.json", `{"levle": 3, "level": 3}`, `{"level": 3, "level": 3}`},
		{"parent", "entities/all.json", `"id": "staf"}]`, `"id": "staff"}]`},
		{"type of an obligation", "obligations.yaml", "type: notifcation", "type: notification"},
		{"property", "obligations.yaml", "boddy: x", "body: x"},
		{"key", "obligations.yaml", "propertys:", "properties:"},
		{"key in quotes", "obligations.yaml", `"propertys":`, `"properties":`},
		{"key of a test", "tests/a.yaml", "decison: deny", "decision: deny"},
	} {
		for _, ends := range []string{"\n", "\r\n"} {
			t.Run(one.name+map[string]string{"\n": "", "\r\n": " CRLF"}[ends], func(t *testing.T) {
				t.Parallel()
				right := wordsOf[one.name]
				if right == "" {
					right = one.is
				}
				text := strings.ReplaceAll(strings.Replace(bundleFiles()[one.file], right, one.was, 1), "\n", ends)
				if !strings.Contains(text, one.was) {
					t.Fatalf("%q is not in %q", one.was, text)
				}
				e := begin(t, bundleFiles())
				e.open(one.file, text)
				said := e.diagnostics(one.file, func(all []diagnostic) bool { return len(all) > 0 })
				all := e.offers(one.file)
				if len(all) != 1 {
					t.Fatalf("got %+v of %+v", all, said)
				}
				a := all[0]
				if got := a.Edit.DocumentChanges; a.Kind != "quickfix" || !a.IsPreferred || len(a.Diagnostics) != 1 || len(got) != 1 ||
					got[0].TextDocument != (versioned{e.uri(one.file), 1}) || len(got[0].Edits) != 1 {
					t.Fatalf("got %+v", a)
				}
				mendedText := applied(text, a.Edit.DocumentChanges[0].Edits[0])
				if want := strings.Replace(text, one.was, one.is, 1); mendedText != want {
					t.Errorf("got %q, want %q", mendedText, want)
				}
				if one.name == "stored attribute" { // which is there twice then
					return
				}
				e.change(one.file, mendedText)
				gone := func(all []diagnostic) bool {
					return !slices.ContainsFunc(all, func(d diagnostic) bool { return d.Message == a.Diagnostics[0].Message })
				}
				e.diagnostics(one.file, gone)
			})
		}
	}
}

// wordsOf are the texts of the bundle in whose place a mistake stands, if those are not the ones that mend it.
var wordsOf = map[string]string{
	"function": "resource.owner.level > 2", "has": "when { principal.level", "habit": "1 && resource",
	"obligation": "@id", "annotation": "@id", "entity": "principal.level > 1 &&", "key in quotes": "properties:",
	"stored attribute": `{"level": 3}`, "parent": `"id": "staff"}]`,
}

// An edit is for the text that it was made from: behind a change nothing is offered until the bundle is checked again, nor
// for a file that was closed, nor where other kinds of actions are asked for.
func TestMendsAreOfOneText(t *testing.T) {
	t.Parallel()
	e := begin(t, bundleFiles())
	wrong := strings.Replace(policies, "permit", "permt", 1)
	e.open("a.cedar", wrong)
	e.wrong("a.cedar")
	if len(e.offers("a.cedar", "refactor")) != 0 || len(e.offers("a.cedar", "refactor", "quickfix")) != 1 {
		t.Error("what is offered is not what was asked for")
	}
	var none []codeAction
	e.ask("textDocument/codeAction", map[string]any{"textDocument": map[string]any{"uri": e.uri("a.cedar")}, "range": textRange{position{0, 0}, position{0, 1}}}, &none)
	if len(none) != 0 {
		t.Errorf("on another line: %+v", none)
	}
	w := newWorkspace(&server{})
	uri := uriOf(e.dir, "a.cedar")
	w.set(uri, 1, wrong)
	w.checked[uri] = checked{wrong, []diagnostic{{mend: &textEdit{NewText: "permit"}}}}
	asks := &params{}
	asks.TextDocument.URI = uri
	if all := w.actions(asks); len(all) != 1 {
		t.Errorf("for its text: %+v", all)
	}
	w.set(uri, 2, "\n"+wrong)
	if all := w.actions(asks); len(all) != 0 {
		t.Errorf("behind a change: %+v", all)
	}
	w.forget(uri)
	if all := w.actions(asks); len(all) != 0 {
		t.Errorf("of a file that was closed: %+v", all)
	}
}

// What is meant and would have to be escaped is not offered, and a title has nothing that cannot be seen.
func TestMendsAreHarmless(t *testing.T) {
	t.Parallel()
	files := bundleFiles()
	files["entities/all.json"] = strings.Replace(entities, `"staff"}, "attrs"`, `"sta\"ff"}, "attrs"`, 1)
	files["entities/all.json"] = strings.Replace(files["entities/all.json"], `"staff"}]`, `"sta\"ff"}]`, 1)
	e := begin(t, files)
	e.open("a.cedar", strings.Replace(policies, "principal.level > 1 &&", `principal in group::"staff" &&`, 1))
	e.wrong("a.cedar")
	if all := e.offers("a.cedar"); len(all) != 0 {
		t.Errorf("got %+v", all)
	}
	if got := title("a\u202eb\n c\x00" + strings.Repeat("x", 200)); strings.ContainsAny(got, "\u202e\n\x00") || len(got) != len("Write ")+80 {
		t.Errorf("got %q", got)
	}
}
