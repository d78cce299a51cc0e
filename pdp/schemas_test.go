package pdp_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"policy-service/obligations"
	"policy-service/pdp"
	"policy-service/pdp/internal/document"
	"policy-service/pdp/pdptest/night"
	"policy-service/policies"
	"policy-service/schemas"
)

// The files of a bundle that have a JSON Schema, for editors. The schemas and the readers take the same documents; this
// is held by documents by hand and by chance. Where no schema could express the reader's rule, the difference stands here.
var described = map[string][]byte{
	"bundle.yaml":      schemas.Bundle,
	"obligations.yaml": schemas.Obligations,
	"tests/t.yaml":     schemas.Tests,
}

// readerKnows are the faults that no schema can know and that chance may make, by the code and the beginning of the
// reader's message.
var readerKnows = []string{
	"types_not_injective: ",                     // a schema cannot compare the values of two keys
	"type_name: this is no wire name of a type", // whether a name is one hangs on the member types:
	"tenant_approver: ",                         // as above: tenants: parents, and approvers
	"malformed_request: the request is malformed: another approval than",             // a schema cannot compare the values of two keys
	"malformed_request: the request is malformed: the request is for another tenant", // as above: tenant, and tenant_id of the request
}

// Documents that one takes and the other does not, each with a reason. Besides, aliases and merges are not read in a bundle,
// where an editor sees what they stand for; and what a tenant's file may define or name hangs on where it stands.
var differences = []struct {
	file, text string
	reader     bool
	why        string
}{
	{"bundle.yaml", "types: {a: A, b: A}", false, "a schema cannot compare the values of two keys"},
	{"bundle.yaml", "known: [a b]", false, "no wire name, as it is not listed"},
	{"bundle.yaml", "types: {a: A}\nknown: [A]", false, "no wire name, as it is mapped"},
	{"bundle.yaml", "types: {a b: A, '7': B}\nknown: [a b, 7]", true, "a plain 7 is a number to a schema, and the reader has its text"},
	{"bundle.yaml", "namespace: False", true, "a plain False is a truth to a schema, and the reader has its text"},
	{"bundle.yaml", "allow_trivial: True", false, "the reader has its text, which is not true"},
	{"bundle.yaml", "volatile: [a]\nvolatile: [b]", false, "a schema sees one of the two; an editor's reader of YAML says so itself"},
	{"obligations.yaml", "a: {type: log, properties: {to: '${principal.name}'}}", false, "what a ${…} may name is a language of its own, and grows"},
	{"obligations.yaml", "a: {type: approval_required, properties: {template: t, timeout: 8785h}}", false, "a number in a text: how much is 8785h?"},
	{"tests/t.yaml", aTest("now: 2026-02-30T00:00:00Z"), false, "which days a month has"},
	{"tests/t.yaml", aTest("reason: 2026-02-03"), false, "a plain date is a text to a schema, and a time to the reader"},
	{"tests/t.yaml", aTest("tenant: 1e+5"), false, "a number to a schema; its text is no name of a tenant"},
	{"tests/t.yaml", "- {name: n, decision: deny, tenant: a, request: {tenant_id: b, actor: {actor_type: t, actor_id: i}, action: a, resource: {type: t, id: i}}}", false, "a schema cannot compare the values of two keys"},
	{"tests/t.yaml", inContext("approval: {id: a}, approval_id: b"), false, "a schema cannot compare the values of two keys"},
}

// aTest is a file with a test that has something more.
func aTest(more string) string {
	return "- {name: n, decision: deny, " + more + ", request: {subject: {type: t, id: i}, action: {name: a}, resource: {type: t, id: i}}}"
}

func inContext(members string) string {
	return "- {name: n, decision: deny, request: {subject: {type: t, id: i}, action: {name: a}, resource: {type: t, id: i}, context: {" + members + "}}}"
}

func natively(more string) string {
	return "- {name: n, decision: deny, request: {tenant_id: t, actor: {actor_type: t, actor_id: i}, action: a, resource: {type: t, id: i}" + more + "}}"
}

// Documents that both take.
var rightDocuments = map[string][]string{
	"bundle.yaml": {
		"{}", "namespace: Acme::Shop\ntypes: {a: A, 'b c': B::C}\nattributes: {a: fill, d: store, e: request}\nparents: {a: {roles: Role, '': A}}\nknown: [a, x::y]",
		"unknown_entities: evaluate\nunknown_properties: reject\nforbid_errors: ignore\nundeclared_obligations: allow\nallow_trivial: true\nvolatile: [a, 7, true]\nallow_self_approval: [t]",
		"unknown_entities: deny\nunknown_properties: drop\nforbid_errors: deny\nundeclared_obligations: deny\nallow_trivial: 'false'\nknown: []",
		"types: {}\nattributes: {}\nparents: {a: {}}\nvolatile: []", "tenants: {}", "access: {}", "access: {capability: required}", "access: {capability: observe}\nallow_trivial: true", "tenants: {parents: [role, 'role::\"admin\"', a::b], approvers: ['role::\"x\"']}", "namespace: Actions::ActionIs", "types: {Action: Act}",
	},
	"obligations.yaml": {
		"{}", "log: {type: log}\napproval_required: {type: approval_required, properties: {template: t, quorum: 2, material: [subject, context.a.b]}}",
		"a.b-c_1: {type: step-up, on: allow, properties: {acr_value: x, amr_values: [hwk]}}\naccess.wiki/wiki: {type: custom, on: deny, properties: {a: {b: [1, null, {c: d}]}}}",
		"n: {type: notification, on: both, properties: {to: '${principal.id}', body: x}}\ns: {type: session_termination, properties: {subject: x}}\nr: {type: redact, properties: {fields: [/a]}}",
		"'1': {type: log, properties: {}}",
	},
	"tests/t.yaml": {
		aTest("now: 2026-01-02T03:04:05+01:00, caller: '', reason: '', determining: [], obligations: [a, 7], tenant: acme"),
		aTest("now: '2026-01-02T3:04:05.5Z', tenant: 7"), aTest("tenant: true"),
		aTest("capability: held"), aTest("capability: {id: cap_1}"), aTest("capability: {id: cap_1, depth: 2}"),
		natively(""), natively(", purpose: p, context: {a: 1}"), natively(", purpose: null, context: {purpose: p}"), natively(", context: null, subject: s"),
		inContext("action: null, supported_obligations: [a], approval: {id: a, continues: {decision: d, round: 10, x: null}}, person: null"),
		inContext("approval_id: x, person: 47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU, arguments: {a: null, b: [[1], {c: 2}]}"),
		inContext("person: [47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU, 57DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU]"),
		"- {name: 7, decision: allow, request: {more: 1, actor: null, subject: {type: '', id: '', properties: null}, action: {name: '', properties: {}}, resource: {type: t, id: i}, options: {unknown: [/context, /context/pdp/approved, /subject/properties/a~0b, /context/arguments/0]}}}",
		"- {name: n, decision: deny, request: {actor: {}, tenant_id: t, subject: {type: t, id: i}, action: {name: a}, resource: {type: t, id: i}}}",
	},
}

// Documents that neither takes.
var wrongDocuments = map[string][]string{
	"bundle.yaml": {
		"[]", "null", "namespace: ''", "namespace:", "namespace: 'Acme::'", "namespace: Acme::Action", "namespace: if", "namespace: __cedar::A", "namespace: [A]",
		"types: [a]", "types: {a: 7}", "types: {a: Action}", "types: {a: null}", "attributes: {a: some}", "attributes: {a: null}", "attributes: {'': fill}",
		"parents: {a: Role}", "parents: {a: {roles: in}}", "parents: {a: {roles: [Role]}}", "parents: {'': {}}", "known: agent", "known: ['']", "known: [[a]]",
		"unknown_entities: allow", "unknown_properties:", "forbid_errors: Deny", "undeclared_obligations: true", "allow_trivial: yes", "allow_trivial: 1",
		"volatile: ['']", "access: required", "access: {capability: maybe}", "access: {capability: null}", "access: {mode: open}", "tenants: [role]", "tenants: {parents: role}", "tenants: {approver: []}", "tenants: {approvers: [null]}", "volatile: [null]", "volatile: {a: b}", "allow_self_approval: t", "alow_trivial: true",
	},
	"obligations.yaml": {
		"[]", "a: log", "a: {}", "a: {type: logs}", "a: {type: log, on: always}", "a: {type: log, on: null}", "a: {type: log, properties: []}", "a: {type: log, more: 1}", "'a b': {type: log}",
		"log: {type: custom}", "approval_required: {type: log}", "a: {type: step-up}", "a: {type: step-up, properties: {}}", "a: {type: step-up, properties: {acr_value: ''}}",
		"a: {type: notification, properties: {to: x}}", "a: {type: notification, properties: {to: x, body: b, cc: y}}", "a: {type: session_termination}",
		"a: {type: approval_required, properties: {quorum: 0}}", "a: {type: approval_required, properties: {material: [contexts]}}", "a: {type: approval_required, properties: {material: [context.pdp]}}",
		"a: {type: approval_required, properties: {timeout: 5}}", "a: {type: approval_required, properties: {form: table}}", "a: {type: custom, properties: {a: [{__entity: 1}]}}", "a: {type: [log]}",
	},
	"tests/t.yaml": {
		"[]", "{}", "- 7", "- {name: n}", "- {name: n, decision: deny}", strings.Replace(aTest("caller: c"), "name: n", "name: ''", 1), aTest("more: 1"), aTest("now: noon"), aTest("now: 2026-01-02"), aTest("now: 2026-13-02T00:00:00Z"),
		aTest("now: 2026-01-02T00:00:00"), aTest("caller: 7"), aTest("caller: null"), aTest("reason: [a]"), aTest("determining: a"), aTest("determining: [null]"), aTest("obligations: ['']"),
		aTest("capability: none"), aTest("capability: true"), aTest("capability: null"), aTest("capability: [held]"), aTest("capability: {}"), aTest("capability: {id: ''}"), aTest("capability: {id: 7}"),
		aTest("capability: {id: a, depth: -1}"), aTest("capability: {id: a, depth: '1'}"), aTest("capability: {id: a, depth: 1.5}"), aTest("capability: {id: a, held: true}"), aTest("capability: {depth: 1}"),
		aTest("tenant: ../a"), aTest("tenant: ''"), aTest("tenant: -1"), aTest("tenant: null"), strings.Replace(aTest("reason: r"), "deny", "no", 1),
		strings.Replace(natively(""), "actor_type: t, ", "", 1), strings.Replace(natively(""), "tenant_id: t", "tenant_id: ''", 1), strings.Replace(natively(""), "tenant_id: t", "tenant_id: 7", 1),
		natively(", purpose: 7"), natively(", purpose: p, context: {purpose: q}"), natively(", context: []"), strings.Replace(natively(""), "id: i}}", "id: i, labels: x}}", 1),
		inContext("action: {}"), inContext("pdp: {}"), inContext("supported_obligations: a"), inContext("supported_obligations: [null]"), inContext("approval: a"), inContext("approval: {}"),
		inContext("approval: {id: ''}"), inContext("approval: {id: a, continues: {decision: d}}"), inContext("approval: {id: a, continues: {decision: d, round: 11}}"), inContext("approval: {id: a, continues: {decision: d, round: 1, x: 1}}"),
		inContext("approval_id: ''"), inContext("approval_id: 7"), inContext("person: mia"), inContext("person: [47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU]"), inContext("person: 47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFV"),
		inContext("person: [47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU, 47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU]"), inContext("a: {b: [{__extn: 1}]}"),
		"- {name: n, decision: deny, request: {subject: {type: t}, action: {name: a}, resource: {type: t, id: i}}}", "- {name: n, decision: deny, request: {subject: {type: t, id: 7}, action: {name: a}, resource: {type: t, id: i}}}",
		"- {name: n, decision: deny, request: {subject: {type: t, id: i, properties: []}, action: a, resource: {type: t, id: i}}}", "- {name: n, decision: deny, request: []}",
		unknownAt("/subject"), unknownAt("context"), unknownAt("/context/pdp"), unknownAt("/context/action"), unknownAt("/context/person/a"), unknownAt("/context/a~2"), unknownAt("/context/approved"),
	},
}

func unknownAt(pointer string) string {
	return "- {name: n, decision: deny, request: {subject: {type: t, id: i}, action: {name: a}, resource: {type: t, id: i}, options: {unknown: ['" + pointer + "']}}}"
}

// bothReaders is a file's schema, and the reader of a bundle.
type bothReaders struct {
	file   string
	schema *jsonschema.Schema
}

// reader returns the faults that the reader of a bundle finds in a document.
func (b bothReaders) reader(text string) (problems []string) {
	files := pdp.FS(fstest.MapFS{
		"a.cedar": {Data: []byte(`permit (principal, action == Action::"read", resource) when { context has a };`)},
		b.file:    {Data: []byte(text)},
	})
	_, found := pdp.Load(files)
	if b.file == "tests/t.yaml" {
		_, found = pdp.Examples(files)
	}
	for _, p := range found {
		if p.Severity == pdp.SeverityError && p.File == b.file {
			problems = append(problems, p.Code+": "+p.Message)
		}
	}
	return problems
}

// editor reports the faults that an editor with the schema finds in a document, which it reads as YAML.
func (b bothReaders) editor(t *testing.T, text string) error {
	t.Helper()
	var root yaml.Node
	if err := yaml.Unmarshal([]byte(text), &root); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	encoded, bad := document.AppendJSON(nil, root.Content[0])
	if bad != nil {
		t.Fatalf("%s: %s", text, bad.What)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(encoded))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return b.schema.Validate(v)
}

func described2020(t *testing.T, file string) bothReaders {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(described[file]))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource(file, doc); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile(file)
	if err != nil {
		t.Fatal(err)
	}
	return bothReaders{file, schema}
}

// shipped are the files of that kind in the bundles of package policies.
func shipped(t *testing.T, file string) (all []string) {
	t.Helper()
	for _, bundle := range []string{"always-allow", "always-prompt", "delegated", "mcp", "minimal", "saas", "selective", "starter"} {
		files, err := policies.Named(bundle)
		if err != nil {
			t.Fatal(err)
		}
		err = fs.WalkDir(files, ".", func(name string, e fs.DirEntry, err error) error {
			isTest := path.Base(path.Dir(name)) == "tests"
			if err != nil || e.IsDir() || isTest != (file == "tests/t.yaml") || !isTest && path.Base(name) != file {
				return err
			}
			text, err := fs.ReadFile(files, name)
			all = append(all, string(text))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(all) == 0 {
		t.Fatalf("no bundle has a %s", file)
	}
	return all
}

func TestSchemasOfABundle(t *testing.T) {
	t.Parallel()
	for file := range described {
		t.Run(path.Base(file), func(t *testing.T) {
			b := described2020(t, file)
			for _, text := range slices.Concat(rightDocuments[file], shipped(t, file)) {
				if problems, err := b.reader(text), b.editor(t, text); len(problems) > 0 || err != nil {
					t.Errorf("%.300s\nreader: %q\nschema: %v", text, problems, err)
				}
			}
			for _, text := range wrongDocuments[file] {
				if problems, err := b.reader(text), b.editor(t, text); len(problems) == 0 || err == nil {
					t.Errorf("one of both takes it: %s\nreader: %q\nschema: %v", text, problems, err)
				}
			}
			for _, d := range differences {
				if d.file != file {
					continue
				}
				if problems, err := b.reader(d.text), b.editor(t, d.text); (len(problems) == 0) != d.reader || (err == nil) == d.reader {
					t.Errorf("%.200s\nthey differ no more, or otherwise (%s)\nreader: %q\nschema: %v", d.text, d.why, problems, err)
				}
			}
		})
	}
}

// TestSchemasOfABundleByChance: whatever somebody makes of a document, reader and schema agree about it.
func TestSchemasOfABundleByChance(t *testing.T) {
	t.Parallel()
	most := night.Cases(1500)
	for file := range described {
		t.Run(path.Base(file), func(t *testing.T) {
			b := described2020(t, file)
			var from []any
			for _, text := range slices.Concat(rightDocuments[file], shipped(t, file)) {
				var v any
				if err := yaml.Unmarshal([]byte(text), &v); err != nil {
					t.Fatal(err)
				}
				if list, ok := v.([]any); ok && len(list) > 1 {
					v = list[:1] // of tests the first alone: a fault of one hides those of another
				}
				from = append(from, v)
			}
			taken := 0
			for seed := range most {
				m := spoiling{rand.New(rand.NewPCG(uint64(seed), 26))}
				v := from[m.IntN(len(from))]
				for range 1 + m.IntN(2) {
					v = m.spoil(v)
				}
				text, err := json.Marshal(v)
				if err != nil {
					t.Fatal(err)
				}
				problems, err := b.reader(string(text)), b.editor(t, string(text))
				if (len(problems) == 0) != (err == nil) && !(err == nil && knows(problems)) {
					t.Errorf("seed %d: %s\nreader: %q\nschema: %v", seed, text, problems, err)
				}
				if err == nil {
					taken++
				}
			}
			if taken < most/20 || taken > most*19/20 {
				t.Errorf("%d of %d are right: too little is tried", taken, most)
			}
		})
	}
}

// knows reports if no schema could know of any of the problems.
func knows(problems []string) bool {
	return !slices.ContainsFunc(problems, func(problem string) bool {
		return !slices.ContainsFunc(readerKnows, func(known string) bool { return strings.HasPrefix(problem, known) })
	})
}

// spoiling changes documents by chance.
type spoiling struct{ *rand.Rand }

// words are keys and values with a meaning somewhere, and some without.
var words = []string{
	"", "x", "A::B", "Action", "in", "a b", "7", "false", "deny", "allow", "both", "evaluate", "reject", "store", "log", "custom", "notification", "step-up", "approval_required", "__entity",
	"type", "id", "on", "to", "body", "properties", "name", "decision", "reason", "now", "tenant", "tenant_id", "subject", "actor", "action", "resource", "context", "purpose", "pdp", "approval", "approval_id",
	"supported_obligations", "continues", "person", "options", "unknown", "template", "quorum", "material", "known", "types", "namespace", "volatile", "parents", "context.x", "context.pdp", "/context/a", "2026-01-02T03:04:05Z",
}

// leaf makes a small value.
func (m spoiling) leaf() any {
	switch m.IntN(9) {
	case 0:
		return nil
	case 1:
		return m.IntN(2) == 0
	case 2:
		return m.IntN(2000) - 100
	case 3:
		return 1.5
	case 4:
		return []any{}
	case 5:
		return map[string]any{}
	case 6:
		return []any{m.word()}
	}
	return m.word()
}

func (m spoiling) word() string { return words[m.IntN(len(words))] }

// spoil returns a value with one change somewhere in it.
func (m spoiling) spoil(v any) any {
	if m.IntN(6) == 0 {
		return m.leaf()
	}
	switch v := v.(type) {
	case map[string]any:
		changed := maps.Clone(v)
		names := slices.Sorted(maps.Keys(v))
		if m.IntN(4) == 0 || len(names) == 0 {
			changed[m.word()] = m.leaf()
			return changed
		}
		name := names[m.IntN(len(names))]
		switch m.IntN(6) {
		case 0:
			delete(changed, name)
		case 1:
			delete(changed, name)
			changed[m.word()] = v[name]
		default:
			changed[name] = m.spoil(v[name])
		}
		return changed
	case []any:
		changed := slices.Clone(v)
		if m.IntN(4) == 0 || len(v) == 0 {
			return append(changed, m.leaf())
		}
		n := m.IntN(len(v))
		changed[n] = m.spoil(v[n])
		return changed
	}
	return m.leaf()
}

// The schema of obligations.yaml has those of the types in it, and names no other types.
func TestSchemaOfObligationsHasThoseOfTypes(t *testing.T) {
	t.Parallel()
	var whole struct {
		Defs map[string]map[string]any `json:"$defs"`
	}
	if err := json.Unmarshal(schemas.Obligations, &whole); err != nil {
		t.Fatal(err)
	}
	var has []string
	for name := range whole.Defs {
		if name != "obligation" && name != "value" {
			has = append(has, name)
		}
	}
	slices.Sort(has)
	if diff := cmp.Diff(obligations.Types(), has); diff != "" {
		t.Error(diff)
	}
	for _, name := range obligations.Types() {
		var alone map[string]any
		if err := json.Unmarshal(schemas.Obligation(name), &alone); err != nil {
			t.Fatal(err)
		}
		delete(alone, "$schema")
		if diff := cmp.Diff(alone, whole.Defs[name]); diff != "" {
			t.Errorf("%s in schemas/obligations, and here:\n%s", name, diff)
		}
	}
	types := fmt.Sprint(whole.Defs["obligation"]["properties"].(map[string]any)["type"].(map[string]any)["enum"])
	if types != fmt.Sprint(obligations.Types()) {
		t.Errorf("it has the types %s", types)
	}
}
