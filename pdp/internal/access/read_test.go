package access_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/tools/txtar"

	"policy-service/pdp/internal/access"
	"policy-service/pdp/internal/document"
	"policy-service/schemas"
)

// fault is a declaration that is wrong, and what is said of it.
type fault struct {
	text string
	want string // its first problem, without the file
	// fits is set if the JSON Schema cannot know: the fault is in what the words mean together.
	fits bool
}

const (
	hybrid = "mode: hybrid\ndefault: deny\nrules:\n- "
	allow  = "mode: allowlist\nrules:\n- "
	rule   = "{agent: a, tools: [x]"
)

var faults = []fault{
	{text: "", want: "1:1: yaml_empty: the document is empty"},
	{text: "- a", want: "1:1: yaml_form: this must be a mapping"},
	{text: "mode: [", want: "1:1: yaml_syntax: this is not YAML"},
	{text: allow + "{agent: a, tools: *}", want: "3:1: yaml_syntax: this is not YAML: did not find expected alphabetic or numeric character; check indentation and quotes near this line"},
	{text: allow + "{agent: a, tools: *all}", want: "3:1: yaml_syntax: this is not YAML; write a text that begins with a star in quotes"},
	{text: "mode: \"open", want: "1:1: yaml_syntax: this is not YAML: found unexpected end of stream; check indentation and quotes near this line"},
	{text: "mode: open\n#\x01", want: "2:1: yaml_syntax: this is not YAML; remove the control characters"},
	{text: "mode: open\n# \xff", want: "2:1: yaml_syntax: this is not YAML; remove the control characters, and write the file as UTF-8"},
	{text: "mode: open\n---\nmode: open", want: "2:1: yaml_documents: a second document begins here"},
	{text: "owner: b", want: "1:1: missing_key: the declaration has no mode; add mode: allowlist, denylist, open or hybrid"},
	{text: "mode: closed", want: "1:7: yaml_value: this must be one of allowlist, denylist, open, hybrid"},
	{text: "mode: null", want: "1:7: yaml_value: this must be one of"},
	{text: "mode: [open]", want: "1:7: yaml_value: this must be one of"},
	{text: "mode: open\nmode: open", want: `2:1: duplicate_key: the key "mode" occurs twice`, fits: true},
	{text: "mode: open\nmodes: open", want: `2:1: unknown_key: unknown key "modes"; did you mean "mode"?; use one of approval, capability, default, mode, owner, rules, subjects`},
	{text: "mode: open\nowner: a b", want: "2:8: access_owner: this is no name of an owner"},
	{text: "mode: open\nowner: -a", want: "2:8: access_owner: this is no name of an owner"},
	{text: "mode: open\nowner: " + strings.Repeat("a", 129), want: "2:8: access_owner: this is no name of an owner"},
	{text: "mode: open\nowner: ''", want: "2:8: yaml_form: the text is empty"},
	{text: "mode: open\nowner: 7", want: "2:8: yaml_form: this must be a text; write it in quotes"},
	{text: "mode: open\nowner:", want: "2:7: yaml_form: this must be a text"},
	{text: "mode: allowlist\ndefault: allow", want: "2:10: access_default: allowlist has another default; leave default out, or write mode: hybrid"},
	{text: "mode: denylist\ndefault: deny", want: "2:10: access_default: denylist has another default"},
	{text: "mode: open\ndefault: deny", want: "2:10: access_default: open has another default"},
	{text: "mode: open\ndefault: maybe", want: "2:10: yaml_value: this must be one of allow, deny"},
	{text: "mode: hybrid", want: "1:7: missing_key: hybrid has no default; add default: allow or deny"},
	{text: "mode: open\ncapability:", want: "2:12: yaml_value: this must be one of none, observe, required"},
	{text: "mode: open\ncapability: true", want: "2:13: yaml_value: this must be one of none, observe, required"},
	{text: "mode: open\ncapability: [required]", want: "2:13: yaml_value: this must be one of none, observe, required"},
	{text: "mode: open\ncapability: all", want: "2:13: yaml_value: this must be one of none, observe, required"},
	{text: "mode: open\nsubjects: []", want: "2:11: access_subjects: there must be 1 to 32 types"},
	{text: "mode: open\nsubjects: agent", want: "2:11: yaml_form: this must be a list"},
	{text: "mode: open\nsubjects: [agent, user, agent]", want: "2:25: access_subjects: the type is named twice"},
	{text: "mode: open\nsubjects: [[agent]]", want: "2:12: yaml_form: this must be a text"},
	{text: "mode: open\nsubjects: [" + strings.Repeat("a, ", 33) + "]", want: "2:11: access_subjects: there must be 1 to 32 types"},
	{text: "mode: open\napproval: true", want: "2:11: yaml_form: approval must be a mapping"},
	{text: "mode: open\nrules: {}", want: "2:8: yaml_form: this must be a list"},
	{text: "mode: open\nrules:", want: "2:7: yaml_form: this must be a list"},
	{text: "mode: open\nrules: [" + strings.Repeat("{},", 1_001) + "]", want: "2:8: access_bound: there are more than 1000 rules"},
	{text: allow + "x", want: "3:3: yaml_form: this must be a mapping"},
	{text: allow + "&a {agent: a, tools: x}\n- *a", want: "4:3: yaml_form: this must be a mapping", fits: true},
	{text: allow + "{tools: x}", want: "3:3: missing_key: the rule has no agent; add agent: with a name, {type, id}, {in: …} or \"*\""},
	{text: allow + "{agent: a}", want: "3:3: missing_key: the rule has no tools; add tools: with a list of names, or \"*\""},
	{text: allow + rule + ", agents: b}", want: "3:26: unknown_key: unknown key \"agents\"; did you mean \"agent\"?; use one of agent, effect, expires, requires_approval, tools"},
	{text: allow + "{agent: [a], tools: x}", want: "3:11: yaml_form: this must be a text"},
	{text: allow + "{agent: 1, tools: x}", want: "3:11: yaml_form: this must be a text; write it in quotes"},
	{text: allow + "{agent: '', tools: x}", want: "3:11: yaml_form: the text is empty"},
	{text: allow + "{agent: " + strings.Repeat("a", 1_025) + ", tools: x}", want: "3:11: access_bound: the text has more than 1024 bytes"},
	{text: allow + "{agent: " + strings.Repeat("é", 513) + ", tools: x}", want: "3:11: access_bound: the text has more than 1024 bytes", fits: true},
	{text: allow + "{agent: {}, tools: x}", want: "3:11: access_agent: this is neither one entity nor everybody in one; write {type: agent, id: NAME} or"},
	{text: allow + "{agent: {type: agent}, tools: x}", want: "3:11: access_agent: this is neither"},
	{text: allow + "{agent: {id: a}, tools: x}", want: "3:11: access_agent: this is neither"},
	{text: allow + `{agent: {type: agent, id: a, in: 'A::"b"'}, tools: x}`, want: "3:11: access_agent: this is neither"},
	{text: allow + "{agent: {type: agent, name: a}, tools: x}", want: "3:11: access_agent: this is neither"},
	{text: allow + "{agent: {type: agent, id: 1}, tools: x}", want: "3:29: yaml_form: this must be a text"},
	{text: allow + "{agent: {in: release}, tools: x}", want: `3:16: access_agent: this is no entity; write it as policies do: 'Role::"release"'`},
	{text: allow + `{agent: {in: 'Role::"a" || true'}, tools: x}`, want: "3:16: access_agent: this is no entity"},
	{text: allow + `{agent: {in: 'Role::"a"b"'}, tools: x}`, want: "3:16: access_agent: this is no entity", fits: true},
	{text: allow + `{agent: {in: 'if::"a"'}, tools: x}`, want: "3:16: access_agent: this is no entity", fits: true},
	{text: allow + `{agent: {in: '` + strings.Repeat("a::", 17) + `"a"'}, tools: x}`, want: "3:16: access_agent: this is no entity"},
	{text: allow + `{agent: {in: 'Role::"` + strings.Repeat("a", 1_025) + `"'}, tools: x}`, want: "3:16: access_bound: the id has more than 1024 bytes", fits: true},
	{text: allow + `{agent: {in: 'Role::"` + strings.Repeat("a", 8_192) + `"'}, tools: x}`, want: "3:16: access_bound: the text has more than 8192 bytes"},
	{text: allow + "{agent: a, tools: []}", want: "3:21: access_no_tools: the list of tools is empty; name tools, write \"*\" for all, or remove the rule"},
	{text: allow + "{agent: a, tools: {}}", want: "3:21: yaml_form: this must be a text"},
	{text: allow + "{agent: a, tools: ''}", want: "3:21: yaml_form: the text is empty"},
	{text: allow + "{agent: a, tools: [x, '']}", want: "3:25: yaml_form: the text is empty"},
	{text: allow + "{agent: a, tools: [1.0]}", want: "3:22: yaml_form: this must be a text; write it in quotes"},
	{text: allow + "{agent: a, tools: [x, [y]]}", want: "3:25: yaml_form: this must be a text"},
	{text: allow + "{agent: 'bot-*', tools: x}", want: "3:11: access_agent: a star is everybody, and is no part of a name"},
	{text: allow + "{agent: a, tools: [x, 'a*b']}", want: "3:25: access_glob: a star stands for the end of a name, and nowhere else"},
	{text: allow + "{agent: a, tools: '**'}", want: "3:21: access_glob: a star stands for the end of a name, and nowhere else"},
	{text: allow + "{agent: a, tools: '" + strings.Repeat("a", 508) + "*'}", want: "3:21: access_glob: owner and beginning make a pattern of more than 512 bytes", fits: true},
	{text: allow + "{agent: a, tools: '" + strings.Repeat(`"`, 254) + "*'}", want: "3:21: access_glob: owner and beginning make a pattern of more than 512 bytes", fits: true},
	{text: allow + "{agent: a, tools: " + strings.Repeat("a", 1_025) + "}", want: "3:21: access_bound: the text has more than 1024 bytes"},
	{text: allow + "{agent: a, tools: [" + strings.Repeat("x,", 1_001) + "]}", want: "3:21: access_bound: there are more than 1000 tools in one rule"},
	{text: allow + rule + ", expires: tomorrow}", want: "3:35: access_expires: this is no time with a zone, to the millisecond at most; write it like 2030-01-31T12:00:00Z"},
	{text: allow + rule + ", expires: 2030-01-01}", want: "3:35: access_expires: this is no time with a zone"},
	{text: allow + rule + ", expires: 2030-01-01T00:00:00}", want: "3:35: access_expires: this is no time with a zone"},
	{text: allow + rule + ", expires: 2030-01-01 00:00:00Z}", want: "3:35: access_expires: this is no time with a zone"},
	{text: allow + rule + ", expires: 2030-01-01T00:00:00.0001Z}", want: "3:35: access_expires: this is no time with a zone"},
	{text: allow + rule + ", expires: 2030-01-01t00:00:00z}", want: "3:35: access_expires: this is no time with a zone"},
	{text: allow + rule + ", expires: 2030-13-01T00:00:00Z}", want: "3:35: access_expires: there is no such time in 1970 to 9999"},
	{text: allow + rule + ", expires: 2030-02-30T00:00:00Z}", want: "3:35: access_expires: there is no such time in 1970 to 9999", fits: true},
	{text: allow + rule + ", expires: 2030-01-01T24:00:00Z}", want: "3:35: access_expires: there is no such time"},
	{text: allow + rule + ", expires: 2030-01-01T00:00:60Z}", want: "3:35: access_expires: there is no such time"},
	{text: allow + rule + ", expires: 2030-01-01T00:00:00+24:00}", want: "3:35: access_expires: this is no time with a zone"},
	{text: allow + rule + ", expires: 1969-12-31T23:59:59Z}", want: "3:35: access_expires: there is no such time"},
	{text: allow + rule + ", expires: 1970-01-01T00:00:00+00:01}", want: "3:35: access_expires: there is no such time", fits: true},
	{text: allow + rule + ", expires: 9999-12-31T23:59:59-00:01}", want: "3:35: access_expires: there is no such time", fits: true},
	{text: allow + rule + ", expires: 1893456000}", want: "3:35: access_expires: this is no time with a zone"},
	{text: allow + rule + ", expires: null}", want: "3:35: access_expires: this is no time with a zone"},
	{text: allow + rule + ", requires_approval: 'true'}", want: "3:45: yaml_form: this must be true or false"},
	{text: allow + rule + ", requires_approval: }", want: "3:45: yaml_form: this must be true or false"},
	{text: allow + rule + ", effect: allow}", want: "3:34: access_effect: in allowlist the mode says what a rule does; leave effect out, or write mode: hybrid"},
	{text: "mode: denylist\nrules:\n- " + rule + ", effect: deny}", want: "3:34: access_effect: in denylist the mode says"},
	{text: "mode: denylist\nrules:\n- " + rule + ", requires_approval: true}", want: "3:45: access_approval: rules of denylist deny, and nobody can approve a denial; write mode: hybrid, with effect: allow on this rule"},
	{text: "mode: open\nrules:\n- " + rule + "}", want: "3:3: access_open_rule: the rule does nothing: open allows everything; add requires_approval: true"},
	{text: "mode: open\nrules:\n- " + rule + ", requires_approval: false}", want: "3:3: access_open_rule: the rule does nothing"},
	{text: hybrid + rule + "}", want: "4:3: missing_key: the rule has no effect; add effect: allow or deny"},
	{text: hybrid + rule + ", effect: ask}", want: "4:34: yaml_value: this must be one of allow, deny"},
	{text: hybrid + rule + ", effect: deny, requires_approval: true}", want: "4:59: access_approval: the rule denies, and nobody can approve a denial; write effect: allow"},
	{text: allow + rule + "}\n- {tools: [x, x], agent: {type: agent, id: a}, requires_approval: false}", want: "4:3: access_equal_rules: the rule is equal to that of line 3; remove one of them", fits: true},
	{text: allow + "{agent: a, tools: [x, 'y*', yz]}\n- {agent: a, tools: ['y*', x]}", want: "4:3: access_equal_rules: the rule is equal to that of line 3", fits: true},
	{text: hybrid + rule + ", effect: allow, expires: 2030-01-01T00:00:00Z}\n- {agent: '*', tools: 'x*', effect: deny, expires: 2030-01-01T01:00:00+01:00}", want: "4:3: access_shadowed: the rule can never count: that of line 5 denies all of it; remove it", fits: true},
}

// good declarations, besides those of testdata.
var good = []string{
	"mode: allowlist\ndefault: deny",
	"mode: allowlist\nrules: []",
	"mode: denylist\ndefault: allow\nrules: []",
	"mode: open\ndefault: allow\napproval: {}",
	"mode: hybrid\ndefault: allow",
	"{mode: open, owner: a.b-c_D9, capability: none, subjects: [user]}",
	"mode: open\ncapability: observe", "mode: hybrid\ndefault: allow\ncapability: required",
	"mode: \"open\"\nowner: '7'",
	"mode: denylist\nrules: [{agent: '*', tools: '*', requires_approval: false}]",
	hybrid + rule + ", effect: deny, requires_approval: false}",
	allow + "{agent: {type: agent, id: '*'}, tools: ['x']}\n- {agent: '*', tools: [x]}",
	allow + "{agent: a, tools: [" + strings.Repeat("x,", 1_000) + "]}",
	allow + "{agent: " + strings.Repeat("a", 1_024) + ", tools: " + strings.Repeat("x", 1_024) + "}",
	allow + "{agent: a, tools: '" + strings.Repeat("x", 507) + "*'}",
	allow + `{agent: {in: ' Acme :: Role::""'}, tools: x}`,
	allow + rule + "}\n- {agent: a, tools: [x], expires: 2030-01-01T00:00:00Z}\n- {agent: a, tools: [x], requires_approval: true}",
	// A rule that allows less than all of what one denies, or for longer, counts.
	hybrid + "{agent: '*', tools: x, effect: allow}\n- {agent: a, tools: x, effect: deny}",
	hybrid + "{agent: a, tools: 'x*', effect: allow}\n- {agent: a, tools: x, effect: deny}",
	hybrid + rule + ", effect: allow}\n- {agent: '*', tools: '*', effect: deny, expires: 2030-01-01T00:00:00Z}",
	hybrid + rule + ", effect: allow}\n- {agent: {in: 'Role::\"x\"'}, tools: '*', effect: deny}",
}

const file = "access/o.yaml"

// A tag makes no true of a text. Read as false, it would spare a call the approval.
func TestATagIsNoAnswer(t *testing.T) {
	for _, text := range []string{"!!bool yes", "!!bool 'true, x'", "!!bool 1"} {
		var problems document.Problems
		_, ok := access.Read("access/o.yaml", []byte(allow+rule+", requires_approval: "+text+"}"), &problems)
		if ok || len(problems) != 1 || problems[0].Code != "yaml_form" || problems[0].Line != 3 {
			t.Errorf("%s: %v, %v", text, ok, problems)
		}
	}
}

// TestFaults: what is wrong is said at its place.
func TestFaults(t *testing.T) {
	for _, f := range faults {
		var problems document.Problems
		d, ok := access.Read(file, []byte(f.text), &problems)
		if ok || d != nil || len(problems) == 0 {
			t.Errorf("it is taken: %.200s", f.text)
			continue
		}
		p := problems.Sorted()[0]
		got := fmt.Sprintf("%d:%d: %s: %s; %s", p.Line, p.Column, p.Code, p.Message, p.Try)
		if p.File != file || !strings.HasPrefix(got, f.want) {
			t.Errorf("%.200s: got\n%s, want\n%s", f.text, got, f.want)
		}
	}
	for _, name := range []string{"access/.yaml", "access/a b.yaml", "access/é.yml"} {
		var problems document.Problems
		if _, ok := access.Read(name, []byte("# a comment\nmode: open"), &problems); ok || problems[0].Code != "access_owner" || problems[0].Line != 2 {
			t.Errorf("%s: %v", name, problems)
		}
		if d := read(t, name, "owner: o\nmode: open"); d.Owner != "o" || d.At.Line != 1 || d.At.Column != 8 {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

// TestAllFaults: one reading finds the faults of all rules.
func TestAllFaults(t *testing.T) {
	var problems document.Problems
	access.Read(file, []byte("mode: hybrid\nrules:\n- {agent: a, tools: []}\n- {agent: 1, tools: 'a*b', effect: no}"), &problems)
	var got []string
	for _, p := range problems.Sorted() {
		got = append(got, fmt.Sprintf("%d:%d:%s", p.Line, p.Column, p.Code))
	}
	want := []string{
		"1:7:missing_key", "3:3:missing_key", "3:21:access_no_tools", "4:11:yaml_form", "4:21:access_glob", "4:36:yaml_value",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestSchema: the JSON Schema and the reader agree, as far as a schema can know.
func TestSchema(t *testing.T) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schemas.Access))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("access", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("access")
	if err != nil {
		t.Fatal(err)
	}
	fits := func(text string) (bool, error) {
		var problems document.Problems
		root, ok := document.Read(file, []byte(text), &problems)
		if !ok {
			return false, nil
		}
		js, bad := document.AppendJSON(nil, root)
		if bad != nil {
			return true, nil // it has no JSON form that an editor could look at
		}
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(js))
		if err != nil {
			t.Fatal(err)
		}
		err = schema.Validate(v)
		return err == nil, err
	}
	for _, f := range faults {
		if ok, _ := fits(f.text); ok != f.fits {
			t.Errorf("it fits: %v, want %v: %.200s", ok, f.fits, f.text)
		}
	}
	all := slices.Clone(good)
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(txtar.Parse(text).Files[0].Data))
	}
	for _, text := range all {
		if ok, err := fits(text); !ok {
			t.Errorf("it does not fit: %v\n%.200s", err, text)
		}
		parsesBack(t, policies(t, read(t, file, text)))
	}
}

// TestUnknownWords: a word without a meaning in the bundle is a problem where it stands.
func TestUnknownWords(t *testing.T) {
	none, few := names, names
	none.Actions = nil
	few.Type = func(wire string) (types.EntityType, bool) { return names.Type(strings.TrimPrefix(wire, "tool")) }
	for _, c := range []struct {
		text string
		in   access.Names
		want []string
	}{
		{"mode: open\nsubjects: [agent, robot]", names, []string{"2:19: access_type"}},
		{allow + "{agent: {type: robot, id: a}, tools: x}", names, []string{"3:18: access_type"}},
		{"mode: open\nowner: b", none, []string{"2:8: access_action"}},
		{"mode: open\nowner: b", few, []string{"2:8: access_type"}},
		{"# tools\n" + allow + "{agent: a, tools: x}", few, []string{"2:1: access_type"}},
		{"mode: open\nsubjects: [x]\nrules: [{agent: a, tools: x, requires_approval: true}]", names, []string{"2:12: access_type", "3:17: access_type"}},
	} {
		var problems document.Problems
		made := read(t, file, c.text).Policies("access.o", c.in, &problems)
		var got []string
		for _, p := range problems.Sorted() {
			got = append(got, fmt.Sprintf("%d:%d: %s", p.Line, p.Column, p.Code))
		}
		if made != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.text, problems, c.want)
		}
	}
}

// TestNames: policies and obligation have the name that is given to them.
func TestNames(t *testing.T) {
	d := read(t, file, "mode: allowlist\nrules:\n- {agent: a, tools: x, requires_approval: true}")
	for _, name := range []string{"access.o", "access.acme/o"} {
		made := d.Policies(name, names, &document.Problems{})
		if len(made) != 2 || made[0].ID != name+".1" || made[1].ID != name+".guard" ||
			!made[0].Obligation || made[1].Obligation || !d.RequiresApproval() {
			t.Errorf("%s: %+v", name, made)
		}
		if got := made[0].Cedar.Annotations()["obligation"]; string(got) != name {
			t.Errorf("%s: it demands %s", name, got)
		}
		if _, demands := made[1].Cedar.Annotations()["obligation"]; demands {
			t.Errorf("%s: the guard demands something", name)
		}
	}
	one := names
	one.Actions = one.Actions[:1]
	for _, p := range d.Policies("access.o", one, &document.Problems{}) {
		if text := string(p.Cedar.MarshalCedar()); !strings.Contains(text, "\n    action in Action::\"tool.invoke\",\n") {
			t.Error(text)
		}
	}
}

// TestCovers holds Covers to its meaning: all that one rule is about, the other is about, too.
func TestCovers(t *testing.T) {
	agents := []string{"'*'", "a", "b", "{type: agent, id: a}", "{type: user, id: a}", "{type: agent, id: b}", `{in: 'Role::"r"'}`, `{in: 'Role::"s"'}`}
	tools := []string{"'*'", "x", "y", "'x*'", "[x, y]", "['x*', y]", "[xy, xz, x]", "['xy*', 'x*']", "'xyz*'", "[x, 'xy*', xz]", "[y, '*']"}
	ends := []string{"", ", expires: 2030-01-01T00:00:00Z", ", expires: 2030-01-01T00:00:00.001Z"}
	who := []string{"agent a", "user a", "agent b", "user b", "agent c", "in r", "in s"}
	named := []string{"x", "y", "xy", "xyz", "xz", "xyza", "z", "xa", "xya"}
	for _, subjects := range []string{"[agent]", "[user, agent]", "[user]"} {
		var rules []*access.Rule
		for _, a := range agents {
			for _, tool := range tools {
				for _, end := range ends {
					d := read(t, file, fmt.Sprintf("mode: allowlist\nsubjects: %s\nrules:\n- {agent: %s, tools: %s%s}", subjects, a, tool, end))
					rules = append(rules, &d.Rules[0])
				}
			}
		}
		about := func(r *access.Rule) map[string]bool {
			said := map[string]bool{}
			for _, w := range who {
				kind, id, _ := strings.Cut(w, " ")
				is := r.Agent.All || r.Agent.Type == kind && r.Agent.ID == id || r.Agent.Name == id && strings.Contains(subjects, kind) ||
					kind == "in" && r.Agent.In.ID == types.String(id)
				for _, name := range named {
					has := slices.ContainsFunc(r.Tools, func(t access.Tool) bool {
						return t.Name == name || t.Prefix && strings.HasPrefix(name, t.Name)
					})
					for i := range ends { // before each end, and after all
						at := time.Date(2030, 1, 1, 0, 0, 0, (i-1)*1e6, time.UTC)
						said[fmt.Sprint(w, name, i)] = is && has && (r.Expires.IsZero() || at.Before(r.Expires))
					}
				}
			}
			return said
		}
		var said []map[string]bool
		for _, r := range rules {
			said = append(said, about(r))
		}
		covers := 0
		for i, r := range rules {
			for j, other := range rules {
				want := true
				for what, is := range said[j] {
					want = want && (!is || said[i][what])
				}
				if got := r.Covers(other); got != want {
					t.Fatalf("subjects %s: %+v covers %+v: %v, want %v", subjects, *r, *other, got, want)
				} else if got {
					covers++
				}
			}
		}
		if covers < 1_000 {
			t.Errorf("subjects %s: only %d rules cover others", subjects, covers)
		}
	}
}

// FuzzRead: no text makes the reader panic; what is wrong has a place; what is taken becomes
// policies that are printed as they are.
func FuzzRead(f *testing.F) {
	for _, fault := range faults {
		if len(fault.text) < 500 {
			f.Add(fault.text)
		}
	}
	for _, text := range good {
		if len(text) < 500 {
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		var problems document.Problems
		d, ok := access.Read(file, []byte(text), &problems)
		if !ok {
			if d != nil || !problems.Refuse() {
				t.Fatal("it is refused for no reason")
			}
			lines := 1
			for _, c := range text {
				if strings.ContainsRune("\n\r\u0085\u2028\u2029", c) { // YAML's line breaks
					lines++
				}
			}
			for _, p := range problems {
				if p.File != file || p.Code == "" || p.Message == "" || p.Line < 1 || p.Line > lines+1 {
					t.Fatalf("%+v", p)
				}
			}
			return
		}
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		made := d.Policies("access.acme/o", names, &problems)
		if made == nil && !problems.Refuse() {
			t.Fatal("no policies, for no reason")
		}
		parsesBack(t, made)
	})
}
