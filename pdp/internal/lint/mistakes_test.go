package lint_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"
	"unicode/utf8"

	"policy-service/pdp"
)

// back is the bundle of a back office, in which authors make the mistakes of the tests below.
var back = map[string]string{
	"schema.cedarschema": `entity role;
entity user in [role] { name?: String };
entity tool;

action "tool.invoke" appliesTo {
  principal: [user],
  resource: [tool],
  context: { arguments?: { amount?: decimal, to?: String }, purpose?: String },
};
`,
	"shop.cedar": `@id("orders")
permit (
  principal in role::"support",
  action == Action::"tool.invoke",
  resource == tool::"orders:read"
);

@id("refund-small")
permit (
  principal in role::"support",
  action == Action::"tool.invoke",
  resource == tool::"refunds:create"
) when {
  context has arguments && context.arguments has amount &&
  context.arguments.amount.lessThanOrEqual(decimal("500.0"))
} unless {
  context has purpose && context.purpose == "gift"
};

@id("refund-big")
@obligation("manager-agrees")
permit (
  principal in role::"support",
  action == Action::"tool.invoke",
  resource == tool::"refunds:create"
) when {
  context has arguments && context.arguments has amount &&
  context.arguments.amount.greaterThan(decimal("500.0"))
};
`,
	"obligations.yaml": `manager-agrees:
  type: approval_required
  properties:
    template: refund
    timeout: 8h
`,
	"entities/all.json": `[
 {"uid": {"type": "role", "id": "support"}, "attrs": {}, "parents": []},
 {"uid": {"type": "user", "id": "sue"}, "attrs": {"name": "Sue"}, "parents": [{"type": "role", "id": "support"}]}
]
`,
	"bundle.yaml": "known: [user]\n",
	"tests/shop.yaml": `- name: sue reads
  request: {subject: {type: user, id: sue}, action: {name: tool.invoke}, resource: {type: tool, id: "orders:read"}}
  decision: allow
`,
}

// here marks the place that the message names. It is no part of the file.
const here = "‸"

// The mistakes of the first hour, by their numbers there. Each is told once: at its place, with the wrong name and the right
// one, and without cutting either.
func TestMistakesOfTheFirstHour(t *testing.T) {
	t.Parallel()
	for _, m := range []struct {
		row, file string
		right     string   // what the file has
		wrong     string   // what the author writes there
		says      []string // what is told
	}{
		{row: "1", file: "shop.cedar", right: `context.arguments.amount.lessThan`, wrong: `context.arguments.‸amuont.lessThan`,
			says: []string{`policy "refund-small"`, "`amuont`", `did you mean "amount"?`}},
		{row: "1", file: "shop.cedar", right: `context.arguments has amount &&`, wrong: `context.arguments has ‸amuont &&`,
			says: []string{"context.arguments.amuont", `did you mean "amount"?`}},
		{row: "1", file: "shop.cedar", right: `role::"support"`, wrong: `‸roel::"support"`,
			says: []string{`policy "orders"`, "`roel`", `did you mean "role"?`}},
		{row: "2", file: "shop.cedar", right: ");\n\n@id(\"refund-small", wrong: ")‸\n\n@id(\"refund-small",
			says: []string{`expected ";" before "@"`, "ends with a semicolon"}},
		{row: "2c", file: "shop.cedar", right: "\"support\",\n", wrong: "\"support\"‸\n", says: []string{`expected "," before "action"`}},
		{row: "2c", file: "shop.cedar", right: "\"support\",\n  action", wrong: "\"support\" ‸action",
			says: []string{`expected "," before "action"`}},
		{row: "2d", file: "shop.cedar", right: ");\n\n@id(\"refund-small", wrong: "‸;\n\n@id(\"refund-small", says: []string{`expected ")" before ";"`}},
		{row: "3", file: "shop.cedar", right: `@id("refund-big")`, wrong: `‸@id("refund-small")`, says: []string{`"refund-small"`, "shop.cedar:8:1"}},
		{row: "4", file: "entities/all.json", right: `"parents": []}`, wrong: `"parents": []‸,}`, says: []string{"nothing follows this comma", "take the comma out"}},
		{row: "4", file: "entities/all.json", right: `"parents": []}`, wrong: `"parents": [], ‸"attrs": {}}`, says: []string{`occurs twice`, `"attrs"`}},
		{row: "4b", file: "entities/all.json", right: `"uid": {"type": "user", "id": "sue"}`, wrong: `‸"uid": "user::sue"`,
			says: []string{"uid names no entity", `write {"type": …, "id": …}`}},
		{row: "4c", file: "entities/all.json", right: `[{"type": "role"`, wrong: `[‸{"type": "roel"`,
			says: []string{`user::"sue"`, "roel", `did you mean "role"?`}},
		{row: "4f", file: "entities/all.json", right: `"name": "Sue"`, wrong: `‸"nmae": "Sue"`, says: []string{"attrs.nmae", `did you mean "name"?`}},
		{row: "4f", file: "entities/all.json", right: `"name": "Sue"`, wrong: `‸"name": ["Sue"]`, says: []string{"attrs.name is declared as String"}},
		{row: "4e", file: "entities/all.json", right: `{"uid": {"type": "user", "id": "sue"}`, wrong: `‸{"uid": {"type": "role", "id": "support"}`,
			says: []string{`role::"support"`, "entities/all.json:2:2"}},
		{row: "4g", file: "entities/all.json", right: `{"uid": {"type": "user"`, wrong: `‸{"id": {"type": "user"`, says: []string{"uid is missing"}},
		{row: "5", file: "shop.cedar", right: "@id(\"refund-big\")\n@obligation(\"manager-agrees\")", wrong: "@id(\"refund-big\")\n@obligation(‸\"manager-agree\")",
			says: []string{`"manager-agree"`, `did you mean "manager-agrees"?`}},
		{row: "5b", file: "obligations.yaml", right: "approval_required", wrong: "‸aproval_required",
			says: []string{`"aproval_required"`, `did you mean "approval_required"?`}},
		{row: "5c", file: "obligations.yaml", right: "timeout:", wrong: "‸time_out:", says: []string{`"time_out"`, `did you mean "timeout"?`}},
		{row: "5c", file: "obligations.yaml", right: "type: approval_required\n  properties:\n    template: refund\n    timeout: 8h\n",
			wrong: "type: notification\n  properties:\n    ‸to: sue\n", says: []string{"the property body is missing", "notification"}},
		{row: "5d", file: "obligations.yaml", right: "8h", wrong: "‸8 hours", says: []string{"timeout", "8h"}},
		{row: "5d", file: "obligations.yaml", right: "8h", wrong: "‸9000h", says: []string{"timeout is longer than it can be", "366 days"}},
		{row: "5d", file: "obligations.yaml", right: "timeout: 8h", wrong: "quorum: ‸many", says: []string{"quorum must be of the type integer"}},
		{row: "6b", file: "shop.cedar", right: ") when {", wrong: ") ‸whn {", says: []string{`"whn"`, `did you mean "when"?`, "a condition begins with when or unless"}},
		{row: "6c", file: "shop.cedar", right: ") when {", wrong: ") ‸if {", says: []string{`"if"`, "a condition begins with when or unless"}},
		{row: "6d", file: "shop.cedar", right: `context.purpose == "gift"`, wrong: `context.purpose ‸= "gift"`, says: []string{`before "="`, "compare with =="}},
		{row: "6e", file: "shop.cedar", right: `has purpose &&`, wrong: `has purpose ‸and`, says: []string{`before "and"`, "write && for and"}},
		{row: "6f", file: "shop.cedar", right: `role::"support"`, wrong: `role::‸'support'`, says: []string{"double quotes"}},
		{row: "6f", file: "shop.cedar", right: `== "gift"`, wrong: `== ‸'gift'`, says: []string{"double quotes"}},
		{row: "7", file: "obligations.yaml", right: "  type", wrong: "‸\ttype", says: []string{"a tab cannot indent", "spaces"}},
		{row: "7", file: "obligations.yaml", right: "  type: approval_required", wrong: "‸  type: approval: required",
			says: []string{"mapping values are not allowed in this context"}},
		{row: "7d", file: "bundle.yaml", right: "known:", wrong: "‸knwon:", says: []string{`"knwon"`, `did you mean "known"?`}},
		{row: "7e", file: "tests/shop.yaml", right: "decision: allow", wrong: "decision: allow\n  ‸reasn: none", says: []string{`"reasn"`, `did you mean "reason"?`}},
		{row: "9", file: "shop.cedar", right: `Action::"tool.invoke"`, wrong: `‸Action::"tool.invok"`,
			says: []string{"`Action::\"tool.invok\"`", `did you mean "tool.invoke"?`}},
		{row: "10", file: "shop.cedar", right: "context.arguments has amount &&\n  context.arguments.amount.less", wrong: "true &&\n  context.arguments.‸amount.less",
			says: []string{"context.arguments.amount without has", "`context.arguments has amount && …`"}},
		{row: "10", file: "shop.cedar", right: "context has arguments && context.arguments has amount &&\n  context.arguments.amount.less", wrong: "context.arguments.‸amount.less",
			says: []string{"context.arguments.amount without has", "`context has arguments && context.arguments has amount && …`"}},
		{row: "10", file: "shop.cedar", right: `context.purpose == "gift"`, wrong: `context.purpose == "gift" || context.‸purpose == "bribe"`,
			says: []string{"context.purpose without has"}},
		{row: "13", file: "schema.cedarschema", right: "entity role;", wrong: "entity role‸", says: []string{`expected ";" before "entity"`}},
		{row: "13", file: "schema.cedarschema", right: "entity role;", wrong: "‸entty role;", says: []string{`"entty"`, `did you mean "entity"?`}},
		{row: "15", file: "shop.cedar", right: `principal in role::"support"`, wrong: `principal == ‸?principal`, says: []string{"templates are not supported"}},
		{row: "decimal", file: "shop.cedar", right: `decimal("500.0")`, wrong: `decimal(‸"500")`, says: []string{"decimal", `"500.0"`}},
		{row: "decimal", file: "shop.cedar", right: `context.arguments.amount.lessThanOrEqual(decimal("500.0"))`, wrong: `‸context.arguments.amount <= 500`,
			says: []string{"compared with <=", `.lessThanOrEqual(decimal("500.0"))`}},
		{row: "decimal", file: "shop.cedar", right: `context.arguments.amount.greaterThan(decimal("500.0"))`, wrong: `500 < ‸context.arguments.amount`,
			says: []string{"compared with <", `.greaterThan(decimal("500.0"))`}},
		{row: "F4", file: "schema.cedarschema", right: "in [role]", wrong: "in [‸rolle]", says: []string{`entity "user"`, `"rolle"`, `did you mean "role"?`}},
		{row: "F4", file: "schema.cedarschema", right: "amount?: decimal", wrong: "amount?: ‸decimel", says: []string{`action "tool.invoke"`, `"decimel"`, `did you mean "decimal"?`}},
		{row: "F4", file: "schema.cedarschema", right: "resource: [tool]", wrong: "resource: [‸tol]", says: []string{`"tol"`, `did you mean "tool"?`}},
		{row: "F4", file: "schema.cedarschema", right: "{ name?: String }", wrong: "{ name?: ‸Strng }", says: []string{`entity "user"`, `"Strng"`, `did you mean "String"?`}},
	} {
		t.Run(m.row, func(t *testing.T) {
			files := backWith(t, m.file, m.right, strings.ReplaceAll(m.wrong, here, ""))
			text := strings.Replace(back[m.file], m.right, m.wrong, 1)
			line, column := markedIn(text)
			errors := errorsOf(files)
			if len(errors) != 1 {
				t.Fatalf("%s: %d errors, want one:\n%v", m.wrong, len(errors), errors)
			}
			p := errors[0]
			if p.File != m.file || p.Line != line || p.Column != column {
				t.Errorf("%s: want it at %s:%d:%d: %v", m.wrong, m.file, line, column, p)
			}
			for _, says := range m.says {
				if !strings.Contains(p.String(), says) {
					t.Errorf("%s: does not say %s: %v", m.wrong, says, p)
				}
			}
			if strings.Contains(strings.ReplaceAll(p.Message, "(…", ""), "…") {
				t.Errorf("%s: something is cut: %v", m.wrong, p)
			}
		})
	}
}

// What loads and is probably a mistake is a warning, with what to do.
func TestMistakesThatLoad(t *testing.T) {
	t.Parallel()
	for _, m := range []struct {
		row, place, says string
		files            map[string]string
	}{
		{"ids", "shop.cedar:3:16", `policy "orders" names role::"suport"`, map[string]string{"shop.cedar": strings.Replace(back["shop.cedar"], `role::"support"`, `role::"suport"`, 1)}},
		{"ids", "shop.cedar:3:16", `did you mean role::"support"?`, map[string]string{"shop.cedar": strings.Replace(back["shop.cedar"], `role::"support"`, `role::"suport"`, 1)}},
		{"ids", "entities/all.json:3:79", `user::"sue" stands below role::"suport"`, map[string]string{"entities/all.json": strings.Replace(back["entities/all.json"], `"id": "support"}]`, `"id": "suport"}]`, 1)}},
		{"11", "shop.cedar:1:1", `write @id("…") above it`, map[string]string{"shop.cedar": strings.Replace(back["shop.cedar"], "@id(\"orders\")\n", "", 1)}},
		{"12", "shop.ceder:0:0", "no rule of the layout names this file", map[string]string{"shop.ceder": back["shop.cedar"]}},
		{"12", "old:0:0", "no rule of the layout names this directory", map[string]string{"old/shop.cedar": back["shop.cedar"]}},
		{"12", "policy.json:0:0", "no rule of the layout names this file", map[string]string{"policy.json": "{}"}},
		{"12", "entities.json:0:0", "no rule of the layout names this file", map[string]string{"entities.json": "[]"}},
		{"13b", "schema.json:0:0", "schema.cedarschema.json", map[string]string{"schema.json": "{}"}},
	} {
		files := backWith(t, "shop.cedar", "", "")
		for name, text := range m.files {
			files[name] = &fstest.MapFile{Data: []byte(text)}
		}
		_, problems := pdp.Check(pdp.FS(files), time.Now())
		if problems.Refuse() || !slices.ContainsFunc(problems, func(p pdp.Problem) bool {
			return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column) == m.place && strings.Contains(p.String(), m.says)
		}) {
			t.Errorf("row %s: want at %s %q:\n%v", m.row, m.place, m.says, problems)
		}
	}
	if _, problems := pdp.Check(pdp.FS(fstest.MapFS{}), time.Now()); !problems.Refuse() || !strings.Contains(problems.Error(), "no policy is a permit") { // row 17
		t.Errorf("an empty directory: %v", problems)
	}
}

// What editors for Windows put before a text means nothing. The digest is that of the bytes.
func TestByteOrderMark(t *testing.T) {
	t.Parallel()
	without, _ := pdp.Load(pdp.FS(backWith(t, "shop.cedar", "", "")))
	for _, file := range []string{"shop.cedar", "schema.cedarschema", "entities/all.json"} {
		with, problems := pdp.Load(pdp.FS(backWith(t, file, back[file], "\ufeff"+back[file])))
		if with == nil || without == nil {
			t.Fatalf("%s: %v", file, problems)
		}
		if with.Digest() == without.Digest() {
			t.Errorf("%s: the mark is not in the digest", file)
		}
		wrong := backWith(t, "shop.cedar", `"support",`, `"support"`)
		wrong["shop.cedar"].Data = append([]byte("\ufeff"), wrong["shop.cedar"].Data...)
		if errors := errorsOf(wrong); len(errors) != 1 || errors[0].Line != 3 || errors[0].Column != 31 {
			t.Errorf("the mark moves what follows it: %v", errors)
		}
	}
}

// Mistakes at two places are told at both.
func TestMistakesAtTwoPlaces(t *testing.T) {
	t.Parallel()
	errors := errorsOf(backWith(t, "shop.cedar", `context.purpose == "gift"`, `(context.purpse == "gift" || context.purpse == "bribe")`))
	if len(errors) != 2 || errors[0].Column == errors[1].Column || errors[0].Line != 17 || errors[1].Line != 17 {
		t.Errorf("%v", errors)
	}
	errors = errorsOf(backWith(t, "schema.cedarschema", "[user],\n  resource: [tool]", "[usr],\n  resource: [tol]"))
	if len(errors) != 2 || errors[0].Line != 6 || errors[1].Line != 7 {
		t.Errorf("%v", errors)
	}
}

func backWith(t *testing.T, file, right, wrong string) fstest.MapFS {
	t.Helper()
	if !strings.Contains(back[file], right) {
		t.Fatalf("%s has no %s", file, right)
	}
	files := fstest.MapFS{}
	for name, text := range back {
		if name == file {
			text = strings.Replace(text, right, wrong, 1)
		}
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return files
}

func markedIn(text string) (line, column int) {
	before, _, _ := strings.Cut(text, here)
	return strings.Count(before, "\n") + 1, utf8.RuneCountInString(before[strings.LastIndex(before, "\n")+1:]) + 1
}

func errorsOf(files fstest.MapFS) (errors pdp.Problems) {
	_, problems := pdp.Check(pdp.FS(files), time.Now())
	_, tests := pdp.Examples(pdp.FS(files))
	for _, p := range append(problems, tests...) {
		if p.Severity == pdp.SeverityError {
			errors = append(errors, p)
		}
	}
	return errors
}
