package pdp_test

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"policy-service/evaluation"
	"policy-service/pdp"
)

func examples(t *testing.T, files map[string]string) ([]pdp.Example, pdp.Problems) {
	t.Helper()
	fsys := fstest.MapFS{"a.cedar": {Data: []byte("permit (principal, action == Action::\"read\", resource);")}}
	for name, content := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(content)}
	}
	return pdp.Examples(pdp.FS(fsys))
}

func TestExamples(t *testing.T) {
	t.Parallel()
	got, problems := examples(t, map[string]string{
		"tests/a.yaml": `
- name: everything
  tenant: acme
  now: 2026-01-02T03:04:05+01:00
  caller: key:pep
  request:
    subject: {type: user, id: a, properties: {n: 1.50, big: 123456789012345678901, day: 2026-01-02, none: ~, yes: True}}
    action: {name: read}
    resource: {type: doc, id: "1"}
  decision: allow
  reason: ""
  determining: []
  obligations: [x, y]
`,
		"tests/b.json":              `[{"name": "as JSON", "decision": "deny", "request": {"tenant_id": "acme", "actor": {"actor_type": "user", "actor_id": "a"}, "action": "read", "resource": {"type": "doc", "id": "d"}}}]`,
		"tenants/acme/tests/c.yaml": "- {name: of a tenant, decision: deny, request: {subject: {type: user, id: a}, action: {name: read}, resource: {type: doc, id: d}}}\n",
	})
	if len(problems) > 0 {
		t.Fatalf("problems:\n%v", problems)
	}
	if len(got) != 3 {
		t.Fatalf("%d examples, want 3", len(got))
	}
	for _, e := range got {
		if e.Call.Request.Tenant != "acme" {
			t.Errorf("%s: tenant %q, want acme", e.Name, e.Call.Request.Tenant)
		}
	}
	i := slices.IndexFunc(got, func(e pdp.Example) bool { return e.Name == "everything" })
	e := got[i]
	if e.File != "tests/a.yaml" || e.Line != 2 || e.Column != 3 || e.Decision != "allow" || e.Call.Asker.Name != "key:pep" || e.Call.Now.UTC().Hour() != 2 {
		t.Errorf("got %+v", e)
	}
	if e.Reason == nil || *e.Reason != "" || e.Determining == nil || len(e.Determining) != 0 || !slices.Equal(e.Obligations, []string{"x", "y"}) {
		t.Errorf("asserts %v %v %v", e.Reason, e.Determining, e.Obligations)
	}
	want := `{"subject":{"type":"user","id":"a","properties":{"n":1.50,"big":123456789012345678901,"day":"2026-01-02","none":null,"yes":true}},"action":{"name":"read"},"resource":{"type":"doc","id":"1"}}`
	if string(e.Body) != want {
		t.Errorf("body\n%s\nwant\n%s", e.Body, want)
	}
}

// A test says which capability its request holds.
func TestExampleCapability(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]evaluation.Capability{
		"": {}, "capability: held": {Held: true, ID: "cap_test"}, "capability: {id: cap_1}": {Held: true, ID: "cap_1"},
		"capability: {depth: 2, id: cap_1}": {Held: true, ID: "cap_1", Depth: 2},
	} {
		got, problems := examples(t, map[string]string{
			"tests/a.yaml": "- name: n\n  decision: deny\n  request: {subject: {type: user, id: a}, action: {name: read}, resource: {type: doc, id: d}}\n  " + text + "\n",
		})
		if len(problems) > 0 || len(got) != 1 || got[0].Call.Capability != want {
			t.Errorf("%q: %v %+v", text, problems, got)
		}
	}
}

func TestExampleProblems(t *testing.T) {
	t.Parallel()
	const request = "request: {subject: {type: user, id: a}, action: {name: read}, resource: {type: doc, id: d}}"
	for name, test := range map[string]struct{ file, content, want string }{
		"all at once":            {"tests/t.yaml", "- {}\n- name: x\n", "tests/t.yaml:1:3 missing_key, tests/t.yaml:1:3 missing_key, tests/t.yaml:1:3 missing_key, tests/t.yaml:2:3 missing_key, tests/t.yaml:2:3 missing_key"},
		"unknown key":            {"tests/t.yaml", "- name: x\n  decision: deny\n  expected: allow\n  " + request, "tests/t.yaml:3:3 unknown_key"},
		"key twice":              {"tests/t.yaml", "- name: x\n  decision: deny\n  decision: allow\n  " + request, "tests/t.yaml:3:3 duplicate_key"},
		"another decision":       {"tests/t.yaml", "- name: x\n  decision: permit\n  " + request, "tests/t.yaml:2:13 yaml_value"},
		"a decision as bool":     {"tests/t.yaml", "- name: x\n  decision: true\n  " + request, "tests/t.yaml:2:13 yaml_value"},
		"no time":                {"tests/t.yaml", "- name: x\n  decision: deny\n  now: noon\n  " + request, "tests/t.yaml:3:8 yaml_value"},
		"other tenant":           {"tenants/acme/tests/t.yaml", "- name: x\n  tenant: default\n  decision: deny\n  " + request, "tenants/acme/tests/t.yaml:2:11 other_tenant"},
		"illegal tenant":         {"tests/t.yaml", "- name: x\n  tenant: ../acme\n  decision: deny\n  " + request, "tests/t.yaml:2:11 tenant_name"},
		"native for another":     {"tenants/acme/tests/t.yaml", "- name: x\n  decision: deny\n  request:\n    tenant_id: other\n    actor: {actor_type: user, actor_id: a}\n    action: read\n    resource: {type: doc, id: d}", "tenants/acme/tests/t.yaml:4:16 malformed_request"},
		"native for nobody":      {"tests/t.yaml", "- name: x\n  decision: deny\n  request:\n    tenant_id: ''\n    actor: {actor_type: user, actor_id: a}\n    action: read\n    resource: {type: doc, id: d}", "tests/t.yaml:4:16 tenant_name"},
		"wrong type, with place": {"tests/t.yaml", "- name: x\n  decision: deny\n  request:\n    subject: {type: user, id: 7}\n    action: {name: read}\n    resource: {type: doc, id: d}", "tests/t.yaml:4:31 malformed_request"},
		"member twice":           {"tests/t.yaml", "- name: x\n  decision: deny\n  request:\n    subject: {type: user, id: a, id: b}\n    action: {name: read}\n    resource: {type: doc, id: d}", "tests/t.yaml:4:31 malformed_request"},
		"alias":                  {"tests/t.yaml", "- name: x\n  decision: deny\n  request: {subject: &s {type: user, id: a}, action: {name: read}, resource: *s}", "tests/t.yaml:3:78 yaml_json"},
		"not a JSON number":      {"tests/t.yaml", "- name: x\n  decision: deny\n  request: {subject: {type: user, id: a}, action: {name: read}, resource: {type: doc, id: d}, context: {n: 0x10}}", "tests/t.yaml:3:108 yaml_json"},
		"infinity":               {"tests/t.yaml", "- name: x\n  decision: deny\n  request: {subject: {type: user, id: a}, action: {name: read}, resource: {type: doc, id: d}, context: {n: .inf}}", "tests/t.yaml:3:108 yaml_json"},
		"a name that is no text": {"tests/t.yaml", "- name: x\n  decision: deny\n  request: {subject: {type: user, id: a}, action: {name: read}, resource: {type: doc, id: d}, context: {7: 1}}", "tests/t.yaml:3:105 yaml_json"},
		"bytes":                  {"tests/t.yaml", "- name: x\n  decision: deny\n  request: {subject: {type: user, id: !!binary aGk=}, action: {name: read}, resource: {type: doc, id: d}}", "tests/t.yaml:3:39 yaml_json"},
		"second document":        {"tests/t.yaml", "- name: x\n  decision: deny\n  " + request + "\n---\n- name: y\n", "tests/t.yaml:4:1 yaml_documents"},
		"no list":                {"tests/t.yaml", "name: x\ndecision: deny\n" + request, "tests/t.yaml:1:1 yaml_form"},
		"empty list":             {"tests/t.yaml", "[]\n", "tests/t.yaml:1:1 no_tests"},
		"determining is text":    {"tests/t.yaml", "- name: x\n  decision: deny\n  determining: a\n  " + request, "tests/t.yaml:3:16 yaml_form"},
		"capability of a word":   {"tests/t.yaml", "- name: x\n  decision: deny\n  capability: yes\n  " + request, "tests/t.yaml:3:15 yaml_value"},
		"capability without id":  {"tests/t.yaml", "- name: x\n  decision: deny\n  capability: {depth: 1}\n  " + request, "tests/t.yaml:3:15 missing_key"},
		"depth of a capability":  {"tests/t.yaml", "- name: x\n  decision: deny\n  capability: {id: a, depth: deep}\n  " + request, "tests/t.yaml:3:30 yaml_value"},
		"held beside an id":      {"tests/t.yaml", "- name: x\n  decision: deny\n  capability: {id: a, held: true}\n  " + request, "tests/t.yaml:3:23 unknown_key"},
		"not YAML":               {"tests/t.yaml", "- name: [\n", "tests/t.yaml:1:1 yaml_syntax"},
	} {
		t.Run(name, func(t *testing.T) {
			got, problems := examples(t, map[string]string{"tenants/acme/a.cedar": "// nothing yet", test.file: test.content})
			var places []string
			for _, p := range problems {
				place, _, _ := strings.Cut(p.String(), ": ")
				places = append(places, place+" "+p.Code)
			}
			if all := strings.Join(places, ", "); all != test.want || len(got) != 0 {
				t.Errorf("got %d examples and\n%s\nwant\n%s", len(got), all, test.want)
			}
		})
	}
}
