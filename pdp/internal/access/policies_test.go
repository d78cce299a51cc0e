package access_test

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"golang.org/x/tools/txtar"

	"policy-service/evaluation"
	"policy-service/pdp/internal/access"
	"policy-service/pdp/internal/bundle"
	"policy-service/pdp/internal/document"
)

var update = flag.Bool("update", false, "write testdata")

// names are the words of a bundle with the types of the tests.
var names = access.Names{
	Type: func(wire string) (types.EntityType, bool) {
		typ, ok := map[string]types.EntityType{"agent": "Agent", "user": "User", "tool": "Tool"}[wire]
		return typ, ok
	},
	Actions: []types.EntityUID{
		types.NewEntityUID("Action", "tool.invoke"), types.NewEntityUID("Action", "capability.grant"),
	},
	Grant: types.NewEntityUID("Action", "capability.grant"),
}

func read(t testing.TB, file, text string) *access.Declaration {
	t.Helper()
	var problems document.Problems
	d, ok := access.Read(file, []byte(text), &problems)
	if !ok {
		t.Fatalf("%s\n%.2000s", problems.Error(), text)
	}
	return d
}

func policies(t testing.TB, d *access.Declaration) []access.Policy {
	t.Helper()
	var problems document.Problems
	made := d.Policies(access.ReservedPrefix+d.Owner, names, &problems)
	if problems != nil {
		t.Fatal(problems)
	}
	return made
}

// TestGolden shows the policies of each kind of declaration.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(err, files)
	}
	for _, file := range files {
		ar, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		for _, p := range policies(t, read(t, "access/"+ar.Files[0].Name, string(ar.Files[0].Data))) {
			fmt.Fprintf(&got, "// %d:%d\n%s\n\n", p.At.Line, p.At.Column, p.Cedar.MarshalCedar())
		}
		if *update {
			ar.Files = append(ar.Files[:1], txtar.File{Name: "policies.cedar", Data: got.Bytes()})
			if err := os.WriteFile(file, txtar.Format(ar), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if len(ar.Files) != 2 || got.String() != string(ar.Files[1].Data) {
			t.Errorf("%s: got\n%s", file, got.String())
		}
	}
}

// Where a schema has no capability.grant, every call is one that needs a capability, and where it has nothing
// else, none does.
func TestCapabilityOfFewActions(t *testing.T) {
	defer func(all []types.EntityUID) { names.Actions = all }(names.Actions)
	invoke, grant := names.Actions[0], names.Actions[1]
	for _, mode := range []string{"allowlist\nrules: [{agent: a, tools: x}]", "open"} {
		for _, capability := range []string{"required", "observe"} {
			d := read(t, "access/o.yaml", "capability: "+capability+"\nmode: "+mode)
			for _, c := range []struct {
				actions []types.EntityUID
				want    string
			}{
				{[]types.EntityUID{invoke}, "held"}, {[]types.EntityUID{grant}, ""}, {[]types.EntityUID{invoke, grant}, "action held"},
			} {
				names.Actions = c.actions
				made, text := policies(t, d), ""
				parsesBack(t, made)
				for _, p := range made {
					text += string(p.Cedar.MarshalCedar())
				}
				asksHeld, asksAction := strings.Contains(text, "context.pdp.capability.held"), strings.Contains(text, `= Action::"capability.grant"`)
				if asksHeld != strings.Contains(c.want, "held") || asksAction != strings.Contains(c.want, "action") {
					t.Errorf("%s, %s, of %v:\n%s", mode, capability, c.actions, text)
				}
			}
		}
	}
}

// parsesBack holds the printed policies to what was made, and to the bounds of policies written
// by hand.
func parsesBack(t testing.TB, made []access.Policy) {
	t.Helper()
	use := bundle.UsageOf(evaluation.DefaultTenant)
	for _, p := range made {
		text := p.Cedar.MarshalCedar()
		var problems document.Problems
		loaded := bundle.ParsePolicies("p.cedar", use, text, &problems)
		if len(loaded) != 1 || problems != nil || loaded[0].Id != p.ID {
			t.Fatalf("it is not loaded as it is printed: %v\n%.2000s", problems, text)
		}
		// The index finds it by its tools.
		tests := slices.Concat(loaded[0].Facts.Scope, loaded[0].Facts.Leading)
		if !slices.ContainsFunc(tests, func(t bundle.ScopeTest) bool {
			return t.Of == bundle.ResourceVar && (t.Uids != nil || t.Prefix != "")
		}) {
			t.Fatalf("it begins with no test of a tool\n%.2000s", text)
		}
		var back cedar.Policy
		if err := back.UnmarshalCedar(text); err != nil {
			t.Fatalf("%v\n%.2000s", err, text)
		}
		want, err := p.Cedar.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		got, err := back.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("parsed back it is another policy\n%.2000s\n%.2000s\n%.2000s", text, want, got)
		}
		// As a tree it is the same, too: what looks for a form of a test finds it.
		back.AST().Position = p.Cedar.AST().Position
		if !reflect.DeepEqual(back.AST(), p.Cedar.AST()) {
			t.Fatalf("parsed back it is another tree\n%.2000s", text)
		}
		if id := back.Annotations()["id"]; string(id) != p.ID {
			t.Fatalf("the policy %q is printed with the id %q", p.ID, id)
		}
	}
}

// asks answers as a PDP does: with the ids in the context as they were sent.
func asks(made []access.Policy, agent types.EntityUID, tool string, now time.Time) cedar.Decision {
	set := cedar.NewPolicySet()
	for _, p := range made {
		set.Add(cedar.PolicyID(p.ID), p.Cedar)
	}
	decision, _ := cedar.Authorize(set, types.EntityMap{}, cedar.Request{
		Principal: agent,
		Action:    names.Actions[0],
		Resource:  types.NewEntityUID("Tool", types.String(tool)),
		Context: types.NewRecord(types.RecordMap{"pdp": types.NewRecord(types.RecordMap{
			"now": types.NewDatetime(now),
			"resource": types.NewRecord(types.RecordMap{
				"type": types.String("tool"), "id": types.String(tool),
			}),
		})}),
	})
	return decision
}

var strange = []string{
	`"`, `'`, `\`, `\\`, `\"`, `*`, `\*`, "\n", "\r\n", "\t", "\x00", "\x01", "\x7f", "\u0085", "\u00a0", "\u00ad",
	"\u0301", "e\u0301", "\u200d", "\u2028", "\u202e", "\ufeff", "\ufffd", "\U0001f600", "\U000e0001", "\U0010ffff",
	`${principal.id}`, `"); permit(principal, action, resource); //`, `]`, `}`, `;`, `::`, `:`, ` `, `//`, `/*`, `é`, `a`, `b`,
	`\u{41}`, `%s`, `when`, `__cedar`, `?`, `-`, `_`,
}

func strangeID(r *rand.Rand) string {
	var b strings.Builder
	for range 1 + r.IntN(6) {
		b.WriteString(strange[r.IntN(len(strange))])
	}
	if r.IntN(20) == 0 {
		b.WriteString(strings.Repeat(strange[r.IntN(len(strange))], 1_000))
	}
	return cut(b.String(), 1_024)
}

// cut shortens a text to whole characters.
func cut(s string, most int) string {
	for i := range s {
		if i > most-4 {
			return s[:i]
		}
	}
	return s
}

// quoted writes a text as YAML reads it.
func quoted(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range s {
		fmt.Fprintf(&b, `\U%08X`, c)
	}
	b.WriteByte('"')
	return b.String()
}

// TestStrangeIDs: whatever the ids are, the policies that are printed are those that were made,
// and a rule is about its agent and its tool alone.
func TestStrangeIDs(t *testing.T) {
	r := rand.New(rand.NewPCG(24, 1))
	for range 300 {
		agent, tool, other := strangeID(r), strings.ReplaceAll(strangeID(r), "*", "+"), strangeID(r)
		begin := cut(tool, 60)
		d := read(t, "access/o.yaml", `mode: allowlist
subjects: [agent, user]
rules:
- {agent: {type: agent, id: `+quoted(agent)+`}, tools: [`+quoted(tool)+`]}
- {agent: {type: user, id: `+quoted(agent)+`}, tools: [`+quoted(tool+"x")+`, `+quoted(begin+"*")+`, y]}
- {agent: {in: `+quoted(types.NewEntityUID("Role", types.String(agent)).String())+`}, tools: [`+quoted(tool)+`, z]}
`)
		made := policies(t, d)
		parsesBack(t, made)
		now := time.Unix(1_700_000_000, 0)
		for _, id := range []string{agent, other, agent + "x", "", "*", agent[1:]} {
			for _, name := range []string{tool, other, tool + "x", begin, begin + "y", "*", "", "y", tool[1:]} {
				want := id == agent && name == tool
				if got := asks(made, types.NewEntityUID("Agent", types.String(id)), "o:"+name, now); bool(got) != want {
					t.Fatalf("agent %q: %q may use %q: %v", agent, id, name, got)
				}
				want = id == agent && (name == tool+"x" || strings.HasPrefix(name, begin) || name == "y")
				if got := asks(made, types.NewEntityUID("User", types.String(id)), "o:"+name, now); bool(got) != want {
					t.Fatalf("user %q: %q may use %q: %v", agent, id, name, got)
				}
				for _, owner := range []string{"p:", "o.", "oo:"} {
					if asks(made, types.NewEntityUID("User", types.String(id)), owner+name, now) {
						t.Fatalf("%q may use %q", id, owner+name)
					}
				}
			}
		}
	}
}

// TestLongLists: policies written by hand may hold few ids with escapes in one list. No tool is lost.
func TestLongLists(t *testing.T) {
	var tools []string
	for i := range 400 {
		tools = append(tools, quoted(fmt.Sprint("plain", i)), quoted(fmt.Sprintf(`"%d"`, i)))
	}
	made := policies(t, read(t, "access/o.yaml", "mode: allowlist\nrules:\n- {agent: a, tools: ["+strings.Join(tools, ", ")+"]}\n"))
	parsesBack(t, made)
	for i := range 400 {
		for _, name := range []string{fmt.Sprint("o:plain", i), fmt.Sprintf(`o:"%d"`, i)} {
			if !asks(made, types.NewEntityUID("Agent", "a"), name, time.Unix(1, 0)) {
				t.Errorf("%s is lost", name)
			}
		}
	}
}

// TestExpires: a rule is over at the very instant.
func TestExpires(t *testing.T) {
	for text, want := range map[string]time.Time{
		"2030-01-02T03:04:05Z":          time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC),
		"2030-01-02T03:04:05.1+01:00":   time.Date(2030, 1, 2, 2, 4, 5, 100e6, time.UTC),
		"2030-01-01T23:30:00.007-23:59": time.Date(2030, 1, 2, 23, 29, 0, 7e6, time.UTC),
		"1970-01-01T00:00:00Z":          time.Unix(0, 0),
		"9999-12-31T23:59:59.999Z":      time.Date(9999, 12, 31, 23, 59, 59, 999e6, time.UTC),
	} {
		for _, mode := range []string{"allowlist", "denylist"} {
			made := policies(t, read(t, "access/o.yaml", "mode: "+mode+"\nrules:\n- {agent: a, tools: x, expires: "+text+"}\n"))
			parsesBack(t, made)
			for by, lasts := range map[time.Duration]bool{-time.Millisecond: true, 0: false, time.Millisecond: false} {
				allowed := bool(asks(made, types.NewEntityUID("Agent", "a"), "o:x", want.Add(by)))
				if allowed != (lasts == (mode == "allowlist")) {
					t.Errorf("%s until %s: %v %v", mode, text, by, allowed)
				}
			}
		}
	}
}
