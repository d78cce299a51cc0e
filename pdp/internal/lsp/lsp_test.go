package lsp

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	policies = `@id("readers")
permit (principal is user, action == Action::"read", resource is doc)
when { principal.level > 1 && resource.owner.level > 2 };
`
	schema = `entity group;
entity user in [group] { level: Long, name?: String };
entity doc { owner: user };
action read appliesTo { principal: [user], resource: [doc], context: { place: { city: String }, via?: String } };
action "write all" appliesTo { principal: [user], resource: [doc] };
`
	entities = `[
  {"uid": {"type": "group", "id": "staff"}, "attrs": {}, "parents": []},
  {"uid": {"__entity": {"type": "user", "id": "ann \"a\""}}, "attrs": {"level": 3}, "parents": [{"type": "group", "id": "staff"}]}
]
`
	obligations = "tell-ops:\n  type: notification\n  properties: {to: ops, body: x}\n"
	tests       = "- name: a\n  request: {subject: {type: user, id: x, properties: {level: 2}}, action: {name: read}, resource: {type: doc, id: d}}\n  decision: deny\n  determining: []\n"
)

func bundleFiles() map[string]string {
	return map[string]string{
		"a.cedar": policies, "schema.cedarschema": schema, "entities/all.json": entities, "obligations.yaml": obligations, "tests/a.yaml": tests,
		"tenants/acme/b.cedar":            `@id("acme") permit (principal == user::"zoe", action, resource);`,
		"tenants/acme/entities/zoe.json":  `[{"uid": {"type": "user", "id": "zoe"}, "attrs": {"level": 1}, "parents": []}]`,
		"tenants/other/entities/yan.json": `[{"uid": {"type": "user", "id": "yan"}, "attrs": {"level": 1}, "parents": []}]`,
	}
}

// What is wrong with a text that is not saved is told, at its place, and taken back when it is mended. The file stays as it is.
func TestDiagnosticsOfWhatIsNotSaved(t *testing.T) {
	t.Parallel()
	e := loaded(t)
	e.change("a.cedar", strings.Replace(policies, "};", "}", 1))
	all := e.wrong("a.cedar")
	if d := all[0]; d.Severity != isError || d.Code == "" || d.Source != "policy-service" || d.Range.Start.Line < 2 {
		t.Errorf("got %+v", d)
	}
	e.change("a.cedar", policies)
	e.clean("a.cedar")
	if text, err := os.ReadFile(filepath.Join(e.dir, "a.cedar")); err != nil || string(text) != policies {
		t.Errorf("the file has %q, %v", text, err)
	}
}

// A mistake in one file shows in the file where it is, open or not, until it is mended there or here. Closing a document
// has what is on disk count again.
func TestDiagnosticsOfOtherFiles(t *testing.T) {
	t.Parallel()
	e := begin(t, bundleFiles())
	e.open("schema.cedarschema", strings.Replace(schema, "level: Long", "height: Long", 1))
	if all := e.wrong("a.cedar"); all[0].Severity != isError {
		t.Errorf("got %+v", all)
	}
	e.notify("textDocument/didClose", map[string]any{"textDocument": map[string]any{"uri": e.uri("schema.cedarschema")}})
	e.clean("a.cedar")
	e.open("tests/a.yaml", "- name: a\n  decison: deny\n")
	if all := e.wrong("tests/a.yaml"); !slices.ContainsFunc(all, func(d diagnostic) bool { return strings.Contains(d.Message, "decison") && d.Range.Start.Line == 1 }) {
		t.Errorf("got %+v", all)
	}
	e.open("tenants/acme/b.cedar", "permit (principal, action, resource)")
	e.wrong("tenants/acme/b.cedar")
}

// A file of another project is none of a bundle, and nothing is said of what is beside it.
func TestOtherFilesAreLeftAlone(t *testing.T) {
	t.Parallel()
	e := begin(t, map[string]string{"compose.yaml": "a: b", "notes.txt": "x", "bundle/a.cedar": "permit"})
	e.open("compose.yaml", "a: [")
	e.open("bundle/a.cedar", "permit")
	m := e.next(func(m message) bool { return m.Method == "textDocument/publishDiagnostics" })
	if !strings.Contains(string(m.Params), "bundle/a.cedar") {
		t.Errorf("got %s", m.Params)
	}
}

// Places are counted in UTF-16, as the editor does, also behind characters that take two units or several bytes.
func TestPlacesAreInUTF16(t *testing.T) {
	t.Parallel()
	e := begin(t, bundleFiles())
	e.open("a.cedar", `@id("𝄞é") permit (principal is usr, action, resource);`)
	all := e.wrong("a.cedar")
	if got := all[0].Range; got != (textRange{position{0, 32}, position{0, 35}}) {
		t.Errorf("got %+v", all[0])
	}
	text := "𝄞é\nab𝄞c"
	for offset := range text {
		if p := rangeOf(text, offset, offset).Start; offsetOf(text, p) != offset {
			t.Errorf("byte %d is %+v, and that is byte %d", offset, p, offsetOf(text, p))
		}
	}
	if got := rangeOf(text, len(text), len(text)).Start; got != (position{1, 5}) {
		t.Errorf("the end is %+v", got)
	}
	for _, p := range []position{{0, 99}, {9, 9}} {
		if at := offsetOf(text, p); at > len(text) {
			t.Errorf("%+v is byte %d", p, at)
		}
	}
}

// loaded starts a server for a bundle that has loaded.
func loaded(t *testing.T) *editor {
	t.Helper()
	e := begin(t, bundleFiles())
	e.open("a.cedar", policies)
	e.clean("a.cedar")
	return e
}

// offered are the texts that can stand at the mark in a file.
func offered(t *testing.T, file, text string) (all []string) {
	t.Helper()
	var some []completion
	loaded(t).under("textDocument/completion", file, text, &some)
	for _, c := range some {
		all = append(all, c.TextEdit.NewText)
	}
	return all
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`permit (principal == user::"¦`:                         `ann \"a\"`,
		`permit (principal in group::¦`:                         `"staff"`,
		`permit (principal, action == Action::"w¦", resource);`: `write all`,
		`permit (principal, action == Action::¦`:                `"write all"`,
		`@obligation("¦")`:                                      `tell-ops`,
		`@obl¦`:                                                 `obligation`,
		`@¦`:                                                    `reason_user`,
		`permit (principal is user, action, resource) when { principal.¦`:               `level`,
		`permit (principal is user, action, resource) when { principal.l¦ > 1 };`:       `level`,
		`permit (principal, action, resource is doc) when { resource.owner.¦`:           `name`,
		`permit (principal, action == Action::"read", resource) when { context.¦`:       `place`,
		`permit (principal, action == Action::"read", resource) when { context.place.¦`: `city`,
		`permit (principal, action, resource) when { context.pdp.¦`:                     `tenant`,
		`permit (principal is ¦`: `user`,
		`¦`:                      `permit`,
	} {
		all := offered(t, "a.cedar", text)
		if !slices.Contains(all, want) {
			t.Errorf("%s: %q has no %s", text, all, want)
		}
		if strings.Contains(text, "is doc) when { resource.owner.") && slices.Contains(all, "owner") {
			t.Error("the attributes of another type are offered")
		}
	}
	// No tenant is offered the ids of another one.
	for file, want := range map[string][]string{"a.cedar": {`ann \"a\"`}, "tenants/acme/b.cedar": {`ann \"a\"`, "zoe"}} {
		if diff := cmp.Diff(want, offered(t, file, `permit (principal == user::"¦`)); diff != "" {
			t.Errorf("%s: %s", file, diff)
		}
	}
}

func TestHover(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`permit (principal == user::"ann¦ \"a\"", action, resource);`:                    "group::\"staff\"",
		`permit (principal == user::"bob¦", action, resource);`:                          "no file of the bundle has",
		`permit (principal, action == Action::"read¦", resource);`:                       "`place`: a record",
		`permit (principal is us¦er, action, resource);`:                                 "`name`: String, optional",
		`@obligation("tell-ops¦") permit (principal, action, resource);`:                 "obligations.yaml:1",
		`@obligation("log¦") permit (principal, action, resource);`:                      "built in",
		`permit (principal is user, action, resource) when { principal.le¦vel > 1 };`:    "`level`: Long",
		`permit (principal, action, resource) when { context.place.ci¦ty == "x" };`:      "`city`: String",
		`permit (principal, action, resource is doc) when { resource.ow¦ner == 1 };`:     "`owner`: user",
		`permit (principal, action, resource) when { // principal.le¦vel` + "\n true };": "",
		`permit (principal, action, resource) ¦ when { true };`:                          "",
	} {
		t.Run(text, func(t *testing.T) {
			var got *hover
			loaded(t).under("textDocument/hover", "a.cedar", text, &got)
			switch {
			case want == "" && got != nil:
				t.Errorf("got %+v", got)
			case want != "" && (got == nil || !strings.Contains(got.Contents.Value, want)):
				t.Errorf("%+v has no %q", got, want)
			}
		})
	}
}

// Names that are written with escapes, and names that no file defines. The others are among the references.
func TestDefinition(t *testing.T) {
	t.Parallel()
	for _, one := range []struct{ file, text, in, want string }{
		{"a.cedar", `permit (principal == user::"ann¦ \"a\"", action, resource);`, "entities/all.json", `{"uid": {"__entity"`},
		{"a.cedar", `permit (principal == user::"zoe¦", action, resource);`, "", ""},
		{"a.cedar", `@obligation("log¦") permit (principal, action, resource);`, "", ""},
		{"tests/a.yaml", "- determining: [¦readersx]", "", ""},
	} {
		t.Run(one.text, func(t *testing.T) {
			e := loaded(t)
			var all []location
			e.under("textDocument/definition", one.file, one.text, &all)
			if one.in == "" {
				if len(all) != 0 {
					t.Errorf("got %+v", all)
				}
				return
			}
			if len(all) != 1 || all[0].URI != e.uri(one.in) {
				t.Fatalf("got %+v, want a place in %s", all, one.in)
			}
			got := all[0]
			text := bundleFiles()[one.in]
			if at := offsetOf(text, got.Range.Start); !strings.HasPrefix(text[at:], one.want) {
				t.Errorf("it is at %q", text[at:])
			}
		})
	}
}

func TestFormatting(t *testing.T) {
	t.Parallel()
	e := begin(t, bundleFiles())
	format := func(text string) (edits []textEdit) {
		e.open("a.cedar", text)
		if bad := e.ask("textDocument/formatting", map[string]any{"textDocument": map[string]any{"uri": e.uri("a.cedar")}, "options": map[string]any{}}, &edits); bad != nil {
			t.Fatal(bad)
		}
		return edits
	}
	edits := format("permit(principal,action,resource);")
	if len(edits) != 1 || edits[0].NewText != "permit (principal, action, resource);\n" || edits[0].Range.End != (position{0, 34}) {
		t.Fatalf("got %+v", edits)
	}
	for _, text := range []string{edits[0].NewText, "permit (principal"} {
		if edits := format(text); len(edits) != 0 {
			t.Errorf("%q: got %+v", text, edits)
		}
	}
}

// What is no frame, and what is no message, ends nothing.
func TestGarbage(t *testing.T) {
	t.Parallel()
	e := begin(t, bundleFiles())
	answered := func(code int) {
		t.Helper()
		e.next(func(m message) bool { return m.Error != nil && m.Error.Code == code && string(m.ID) == "null" })
	}
	e.raw("Content-Length: 4\r\n\r\n{{{{")
	answered(parseError)
	e.raw("Content-Length: 7\r\n\r\n[1,2,3]")
	answered(parseError)
	e.raw("Content-Length: minus\r\n\r\n\r\nhello\r\n" + strings.Repeat("x", 1<<20) + "\r\n\r\nContent-Length: -5\r\n\r\n")
	e.raw("Content-Length: 99999999\r\n\r\n" + strings.Repeat(" ", 99999999))
	answered(invalidRequest)
	for method, params := range map[string]any{
		"textDocument/hover": []int{1}, "textDocument/completion": map[string]any{"position": "x"}, "textDocument/definition": nil,
	} {
		if bad := e.ask(method, params, nil); bad != nil && bad.Code != invalidParams {
			t.Errorf("%s: %+v", method, bad)
		}
	}
	for _, params := range []any{map[string]any{}, []any{}} {
		if bad := e.ask("textDocument/rename", params, nil); bad == nil || bad.Code != unknownMethod {
			t.Errorf("got %+v", bad)
		}
	}
	for _, uri := range []string{"", "http://example.org/a.cedar", "file:", "untitled:Untitled-1", "file:///", "%%%"} {
		e.notify("textDocument/didOpen", map[string]any{"textDocument": map[string]any{"uri": uri, "text": "x"}})
		e.ask("textDocument/hover", map[string]any{"textDocument": map[string]any{"uri": uri}, "position": position{5, 5}}, nil)
	}
	e.open("a.cedar", "permit")
	e.wrong("a.cedar")
}

func TestLifecycle(t *testing.T) {
	t.Parallel()
	for _, params := range []any{nil, []any{}} {
		e := begin(t, bundleFiles())
		if bad := e.ask("shutdown", params, nil); bad != nil {
			t.Error(bad)
		}
		if bad := e.ask("textDocument/hover", nil, nil); bad == nil || bad.Code != invalidRequest {
			t.Errorf("after shutdown: %+v", bad)
		}
		e.notify("exit", nil)
		if err := <-e.ended; err != nil {
			t.Error(err)
		}
	}
	for _, end := range []func(*editor){func(e *editor) { e.notify("exit", nil) }, func(e *editor) { _ = e.to.Close() }} {
		e := begin(t, bundleFiles())
		end(e)
		if err := <-e.ended; !errors.Is(err, ErrNoShutdown) {
			t.Errorf("without shutdown: %v", err)
		}
	}
}

// What stands under the cursor is found in any text, at any byte of it.
func FuzzLookAt(f *testing.F) {
	for _, text := range []string{policies, `@obligation("a`, `permit (principal == a::b::"`, "context.", `"\u{110000}"`, "permit(principal is", "::::\"", "@(((", "éÿ\x80."} {
		f.Add(text, 3)
	}
	f.Fuzz(func(t *testing.T, text string, at int) {
		if at < 0 || at > len(text) {
			return
		}
		c := lookAt(text, at)
		if c.from < 0 || c.from > c.to || c.to > len(text) {
			t.Errorf("%q at %d: from %d to %d", text, at, c.from, c.to)
		}
	})
}
