package coaz_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/evaluation/coaz"
)

// rows are the requirements of the framework (F) and of the binding (M), by the names that the conformance plan has for
// them. Those that only a PEP can fulfil say so; what this package gives it for them is tested all the same.
var rows = map[string]func(*testing.T){
	"F1 exactly one envelope":                           envelopes,
	"F2 custom attributes below properties":             properties,
	"F3 literals and expressions":                       discriminator,
	"F4 only the variables that there are":              onlyVariables,
	"F5 a JSON value or absent":                         results,
	"F6 a list never fans out":                          fansOut,
	"F7 evaluations have AuthZEN's defaults":            defaultsOfEvaluations,
	"F8 validated before it is relied on":               validated,
	"F9 fails closed":                                   failsClosed,
	"F10 TLS: the PEP's; a question is only a value":    onlyAValue,
	"M1 params and token as they came":                  asTheyCame,
	"M2 the subject-identity claim":                     subjectClaim,
	"M3 CEL is always there":                            alwaysCEL,
	"M4 defaults unless declared":                       defaultUnlessDeclared,
	"M5 the audience is one string":                     audience,
	"M6 what passes through":                            passesThrough,
	"M7 unknown methods":                                unknownMethods,
	"M8 requests of servers are out of scope":           unknownRequestsOfServers,
	"M9 declared for one tool only":                     forToolsOnly,
	"M10 the subject is verified as resolved":           verified,
	"M11 a subject from elsewhere":                      overridden,
	"M12 what the subject leaves out is supplied":       supplied,
	"M13 no subject in an entry":                        subjectInEntry,
	"M14 the agent is in the context":                   agentInContext,
	"M15 codes by dialect":                              codes,
	"M16 a denial as a tool result: the PEP's choice":   codes,
	"M17 the token is validated: by the PEP":            onlyAValue,
	"M18 attributes of declared mappings: their digest": digests,
}

func TestRows(t *testing.T) {
	t.Parallel()
	var names []string
	for name, test := range rows {
		row, _, _ := strings.Cut(name, " ")
		names = append(names, row)
		t.Run(name, test)
	}
	var want []string
	for n := range 10 {
		want = append(want, fmt.Sprint("F", n+1))
	}
	for n := range 18 {
		want = append(want, fmt.Sprint("M", n+1))
	}
	slices.Sort(names)
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("the rows are %v, not %v", names, want)
	}
}

const asked = `{"method": "tools/call", "params": {"name": "t", "arguments": {"id": "i-1", "n": 7, "list": ["a", "b"], "map": {"k": "v"}, "empty": "", "none": [], "nothing": {}}},
	"token": {"sub": "alice", "client_id": "agent-1", "act": {"sub": "carol"}, "roles": ["r"], "aud": "https://mcp.example.com"}}`

// single is a mapping with these parts, each of which may be replaced by another or, by "", left out.
func single(parts map[string]string) string {
	all := []string{}
	for _, d := range [][2]string{
		{"subject", `{"type": "identity", "id": "$token.sub"}`}, {"action", `{"name": "a"}`},
		{"resource", `{"type": "t", "id": "i"}`}, {"context", `{"agent": "$token.?client_id"}`},
	} {
		text, ok := parts[d[0]]
		if !ok {
			text = d[1]
		}
		if text != "" {
			all = append(all, fmt.Sprintf("%q: %s", d[0], text))
		}
	}
	return `{"evaluation": {` + strings.Join(all, ", ") + `}}`
}

// refusedAt expects a mapping to be refused, when it is compiled or when it is asked about, at a place.
func refusedAt(t *testing.T, o coaz.Options, mapping, pointer, detail string) {
	t.Helper()
	m, err := newBinding(t, o).Parse(tool(t, mapping))
	if err == nil {
		_, err = m.Questions(operationOf(t, asked))
	}
	if err == nil {
		t.Errorf("not refused: %s", mapping)
		return
	}
	if wrong := mappingError(t, err); wrong.Pointer != pointer || !strings.Contains(wrong.Detail, detail) {
		t.Errorf("refused at %q: %s, want %q: …%s…; %s", wrong.Pointer, wrong.Detail, pointer, detail, mapping)
	}
}

func questionsOf(t *testing.T, o coaz.Options, mapping string) coaz.Questions {
	t.Helper()
	q, err := declare(t, newBinding(t, o), mapping).Questions(operationOf(t, asked))
	if err != nil {
		t.Fatalf("%v in %s", err, mapping)
	}
	return q
}

func envelopes(t *testing.T) {
	for mapping, pointer := range map[string]string{
		`{}`:                                    "",
		`{"evaluation": {}, "evaluations": {}}`: "",
		`{"search": {}}`:                        "/search",
		`{"Evaluation": {}}`:                    "/Evaluation",
		`{"evaluation": []}`:                    "/evaluation",
		`{"evaluation": null}`:                  "/evaluation",
		`{"evaluations": null}`:                 "/evaluations",
		`{"evaluation": "$params.arguments"}`:   "/evaluation",
		`{"evaluations": {"evaluations": []}}`:  "/evaluations/evaluations",
		`{"evaluations": {}}`:                   "/evaluations/evaluations",
		`{"evaluations": {"evaluations": "$params.arguments.list"}}`:                                            "/evaluations/evaluations",
		`{"evaluations": {"evaluations": ["$params.arguments.map"]}}`:                                           "/evaluations/evaluations/0",
		`{"evaluation": {"action": {"name": "a"}, "resource": {"type": "t", "id": "i"}, "options": {}}}`:        "/evaluation/options",
		`{"evaluation": {"action": {"name": "a"}, "resource": {"type": "t", "id": "i"}, "evaluations": [{}]}}`:  "/evaluation/evaluations",
		`{"evaluations": {"options": {"evaluations_semantic": "permit_on_first_permit"}, "evaluations": [{}]}}`: "/evaluations/options",
		`{"evaluations": {"action": {"name": "a"}, "evaluations": [{}]}}`:                                       "/evaluations/evaluations/0/resource",
		`{"evaluation": {"resource": {"type": "t", "id": "i"}}}`:                                                "/evaluation/action",
		`{"evaluation": {"action": {}, "resource": {"type": "t", "id": "i"}}}`:                                  "/evaluation/action/name",
		`{"evaluation": {"action": {"name": "a"}, "resource": {"type": "t"}}}`:                                  "/evaluation/resource/id",
	} {
		refusedAt(t, coaz.Options{}, mapping, pointer, "")
	}
	if _, err := newBinding(t, coaz.Options{}).Parse(object(t, `{"inputSchema": {"x-authzen-mapping": "evaluation"}}`)); err == nil {
		t.Error("a mapping that is a string was taken")
	}
}

func properties(t *testing.T) {
	refusedAt(t, coaz.Options{}, single(map[string]string{"resource": `{"type": "t", "id": "i", "owner": "alice"}`}), "/evaluation/resource/owner", "properties")
	refusedAt(t, coaz.Options{}, single(map[string]string{"action": `{"name": "a", "type": "t"}`}), "/evaluation/action/type", "properties")
	refusedAt(t, coaz.Options{}, single(map[string]string{"subject": `{"role": "admin"}`}), "/evaluation/subject/role", "properties")
	refusedAt(t, coaz.Options{}, single(map[string]string{"resource": `"${'type': 't', 'id': 'i', 'owner': 'x'}"`}), "/evaluation/resource/owner", "properties")
	refusedAt(t, coaz.Options{}, single(map[string]string{"resource": `{"type": "t", "id": "i", "properties": ["x"]}`}), "/evaluation/resource/properties", "object")
	refusedAt(t, coaz.Options{}, single(map[string]string{"resource": `{"type": "t", "id": "i", "properties": "$params.arguments.id"}`}), "/evaluation/resource/properties", "object")
	q := questionsOf(t, coaz.Options{}, single(map[string]string{
		"resource": `"${'type': 't', 'id': params.arguments.id, 'properties': params.arguments.map}"`, "context": `{"free": {"form": [1]}, "other": true}`,
	}))
	if r := q.Requests[0]; r.Resource.ID != "i-1" || r.Resource.Properties.Len() != 1 || r.Context.Len() != 2 {
		t.Errorf("%+v", r)
	}
}

func discriminator(t *testing.T) {
	q := questionsOf(t, coaz.Options{}, single(map[string]string{"context": `{"literal": "token.sub", "escaped": "$$token.sub", "twice": "$$$token",
		"dollar": "a$b", "deep": [{"leaf": "$token.sub", "number": 10, "not": true, "$name": 1}]}`}))
	if got := string(jsonOf(t, q.Requests[0].Context)); got != `{"deep":[{"$name":1,"leaf":"alice","not":true,"number":10}],"dollar":"a$b","escaped":"$token.sub","literal":"token.sub","twice":"$$token"}` {
		t.Errorf("%s", got)
	}
	refusedAt(t, coaz.Options{}, contextOf(t, "$"), "/evaluation/context/x", "CEL")
}

// TestRefusedExpressions: what is CEL, and no expression of a mapping.
func TestRefusedExpressions(t *testing.T) {
	t.Parallel()
	for leaf, detail := range map[string]string{
		"${params.name: 1}":                     "the key of a map is not a literal string, integer or bool",
		"${1.5: 1}":                             "the key of a map is not a literal string, integer or bool",
		"${'a': 1, 'a': 2}":                     "a map has a key twice",
		"$'x'.matches(params.name)":             "the pattern of matches is not a literal",
		"$.matches('x', params.name)":           "the pattern of matches is not a literal",
		"$'x'.matches('x' + 'y')":               "the pattern of matches is not a literal",
		"$'x'.matches('(')":                     "the pattern of matches is no regular expression that RE2 has",
		"$'x'.matches('(?=x)')":                 "the pattern of matches is no regular expression that RE2 has",
		"$[?dyn(1)]":                            "what is marked as optional in a list or map is no optional value",
		"${?'a': dyn(1)}":                       "what is marked as optional in a list or map is no optional value",
		"$google.protobuf.Int32Value{value: 1}": "messages have no form in JSON",
		"$timestamp('2026-01-01T00:00:00Z').getHours('Europe/Berlin')": "the types in the expression do not fit",
		"$params.name.?x":                "a member that is read is missing",
		"$token.sub.?x.orValue('admin')": "a member that is read is missing",
	} {
		refusedAt(t, coaz.Options{}, contextOf(t, leaf), "/evaluation/context/x", detail)
	}
	if q := questionsOf(t, coaz.Options{}, contextOf(t, "$timestamp('2026-01-01T23:30:00Z').getHours()")); !strings.HasSuffix(string(q.Envelopes[0].Body), `{"x":23}}`) {
		t.Errorf("%s", q.Envelopes[0].Body)
	}
}

func onlyVariables(t *testing.T) {
	for _, leaf := range []string{"$request.id", "$tool.name", "$env", "$now()", "$sub", "$params.x + other"} {
		refusedAt(t, coaz.Options{Inputs: []string{"tool"}}, contextOf(t, leaf), "/evaluation/context/x", "do not have")
	}
	b := newBinding(t, coaz.Options{Inputs: []string{"tool"}})
	mapping := object(t, single(map[string]string{"resource": `{"type": "tool", "id": "$tool.name + '@' + params.name"}`}))
	m, err := b.Compile(mapping, coaz.AuthZEN)
	if err != nil {
		t.Fatal(err)
	}
	op := operationOf(t, asked)
	op.Inputs = object(t, `{"tool": {"name": "jira"}}`)
	if q, err := m.Questions(op); err != nil || q.Requests[0].Resource.ID != "jira@t" {
		t.Errorf("%+v, %v", q, err)
	}
	op.Inputs = evaluation.Object{}
	if _, err := m.Questions(op); err == nil || !strings.Contains(err.Error(), "has no value") {
		t.Errorf("without the input: %v", err)
	}
}

func results(t *testing.T) {
	for leaf, want := range map[string]string{
		"$'s'": `"s"`, "$7": `7`, "$-7": `-7`, "$7u": `7`, "$1.5": `1.5`, "$true": `true`, "$[1, 'a', [true]]": `[1,"a",[true]]`,
		"${'b': 1, 'a': {'c': [2.5]}}": `{"a":{"c":[2.5]},"b":1}`, "$params.arguments.list": `["a","b"]`, "$9007199254740993": `9007199254740993`,
		"$9223372036854775807": `9223372036854775807`, "$18446744073709551615u": `18446744073709551615`, "$optional.of(params.name)": `"t"`,
		"$optional.ofNonZeroValue(params.arguments.list)": `["a","b"]`, "$optional.ofNonZeroValue(params.arguments.map)": `{"k":"v"}`,
		"$optional.ofNonZeroValue(params.arguments.none).orValue(1)": `1`, "$optional.ofNonZeroValue(params.arguments.nothing).orValue(1)": `1`, "$optional.ofNonZeroValue(dyn({})).orValue(1)": `1`,
		"$params.arguments.?no.orValue('d')": `"d"`, "$[?params.arguments.?no, 1]": `[1]`, "${?'a': params.?no}": `{}`,
	} {
		q := questionsOf(t, coaz.Options{}, contextOf(t, leaf))
		if got := string(q.Envelopes[0].Body); !strings.HasSuffix(got, `"context":{"x":`+want+`}}`) {
			t.Errorf("%s: %s, not %s", leaf, got, want)
		}
	}
	// What a caller leaves out is absent under each operator, or the mapping fails: it never becomes a value by itself.
	for leaf, want := range map[string]string{
		"$params.arguments.?no == optional.none()": "true", "$params.arguments.?no.hasValue()": "false", "$params.arguments.?no.or(optional.of(1))": "1",
		"$params.arguments.?no.orValue('d') + 'x'": `"dx"`, "$[?params.arguments.?no].size()": "0", "$params.arguments.?no == params.arguments.?n": "false",
		"$has(params.arguments.no)": "false", "$'no' in params.arguments": "false", "$params.arguments.?no.optMap(x, x + 1).orValue(0)": "0",
		"$params.arguments.?no": "", "$params.arguments.?no.deeper": "", "$params.arguments.?no[0]": "", "$params.arguments.?no.optMap(x, x + 1)": "",
		"$true ? params.arguments.?no : optional.of(1)": "", "$params.arguments.?no.or(params.arguments.?no)": "",
		"$dyn(params.arguments.?no) + 'x'": "fails", "$dyn(params.arguments.?no) > 1": "fails", "$dyn(params.arguments.?no) in [1]": "false", "$'x' in dyn(params.arguments.?no)": "fails",
		"$dyn(params.arguments.?no) ? 1 : 2": "fails", "$size(dyn(params.arguments.?no))": "fails", "$[1].map(x, params.arguments.?no)": "fails", "$params.arguments.?no.value()": "fails",
		"$string(dyn(params.arguments.?no))": "fails", "$!dyn(params.arguments.?no)": "fails", "$params.arguments.no == null": "fails", "$dyn(params.arguments.?no) && true": "fails",
	} {
		m := declare(t, newBinding(t, coaz.Options{}), contextOf(t, leaf))
		q, err := m.Questions(operationOf(t, asked))
		got := "fails"
		if err == nil {
			_, got, _ = strings.Cut(strings.TrimSuffix(string(q.Envelopes[0].Body), "}}"), `"context":{`)
			got = strings.TrimPrefix(got, `"x":`)
		}
		if got != want {
			t.Errorf("%s: %s, not %s", leaf, got, want)
		}
	}
	for _, leaf := range []string{"$params.arguments.?no", "$optional.none()", "$params.?no.?deeper", "$null"} {
		if q := questionsOf(t, coaz.Options{}, contextOf(t, leaf)); q.Requests[0].Context.Len() != 0 {
			t.Errorf("%s: %s", leaf, q.Envelopes[0].Body)
		}
	}
	for _, leaf := range []string{
		"$timestamp('2026-01-01T00:00:00Z')", "$duration('1s')", "$b'a'", "$type(1)", "$[timestamp('2026-01-01T00:00:00Z')]", "$dyn(b'a')", "$1.0 / 0.0",
		"${1: 2}", "$[optional.of(1)]", "$optional.of(optional.of(1))", "$google.protobuf.Int32Value{value: 1}", "$dyn(duration('1s'))", "$[type('a')]", "$string(b'\\xff')",
	} {
		refusedAt(t, coaz.Options{}, contextOf(t, leaf), "/evaluation/context/x", "")
	}
	for _, place := range []string{"$params.arguments.?no", "$null", "$params.arguments.empty", "$params.arguments.n", "$params.arguments.list", "$params.arguments.map", "$1", "$['a']", "$params.arguments.no"} {
		refusedAt(t, coaz.Options{}, single(map[string]string{"resource": fmt.Sprintf(`{"type": "t", "id": %q}`, place)}), "/evaluation/resource/id", "")
		refusedAt(t, coaz.Options{}, single(map[string]string{"resource": fmt.Sprintf(`{"type": %q, "id": "i"}`, place)}), "/evaluation/resource/type", "")
		refusedAt(t, coaz.Options{}, single(map[string]string{"action": fmt.Sprintf(`{"name": %q}`, place)}), "/evaluation/action/name", "")
		refusedAt(t, coaz.Options{Override: coaz.WarnOverride}, single(map[string]string{"subject": fmt.Sprintf(`{"id": %q}`, place)}), "/evaluation/subject/id", "")
		refusedAt(t, coaz.Options{}, single(map[string]string{"subject": fmt.Sprintf(`{"type": %q}`, place)}), "/evaluation/subject/type", "")
	}
	for _, whole := range []string{`"$params.?no"`, `"$null"`, `"$params.name"`, `7`, `"text"`, `["a"]`} {
		refusedAt(t, coaz.Options{}, single(map[string]string{"resource": whole}), "/evaluation/resource", "")
		refusedAt(t, coaz.Options{}, single(map[string]string{"action": whole}), "/evaluation/action", "")
	}
}

func fansOut(t *testing.T) {
	q := questionsOf(t, coaz.Options{}, single(map[string]string{"resource": `{"type": "t", "id": "i", "properties": {"all": "$params.arguments.list"}}`}))
	if len(q.Requests) != 1 {
		t.Errorf("%d requests", len(q.Requests))
	}
	refusedAt(t, coaz.Options{}, single(map[string]string{"resource": `{"type": "t", "id": "$params.arguments.list"}`}), "/evaluation/resource/id", "string")
	refusedAt(t, coaz.Options{}, single(map[string]string{"resource": `"$[{'type': 't', 'id': 'i'}]"`}), "/evaluation/resource", "cannot stand here")
}

func defaultsOfEvaluations(t *testing.T) {
	refusedAt(t, coaz.Options{}, `{"evaluations": {"action": {"name": "a"}, "resource": {"type": "t", "id": "i"}, "evaluations": [{}, {"context": "${'pdp': 1}"}]}}`,
		"/evaluations/evaluations/1/context/pdp", "only the PDP")
	q := questionsOf(t, coaz.Options{}, `{"evaluations": {
		"resource": {"type": "t", "id": "i", "properties": {"p": 1}}, "context": {"agent": "a", "deep": 1},
		"evaluations": [{"action": {"name": "read"}}, {"action": {"name": "write"}, "resource": {"type": "u", "id": "j"}, "context": {"own": "$params.name"}},
			{"action": {"name": "list"}, "resource": {"id": "k"}}]}}`)
	if len(q.Envelopes) != 1 || q.Envelopes[0].API != coaz.Evaluations || len(q.Envelopes[0].Requests) != 3 {
		t.Fatalf("%+v", q)
	}
	want := []string{
		`{"subject":{"type":"identity","id":"alice"},"action":{"name":"read"},"resource":{"type":"t","id":"i","properties":{"p":1}},"context":{"agent":"a","deep":1}}`,
		`{"subject":{"type":"identity","id":"alice"},"action":{"name":"write"},"resource":{"type":"u","id":"j"},"context":{"own":"t"}}`,
		`{"subject":{"type":"identity","id":"alice"},"action":{"name":"list"},"resource":{"type":"t","id":"k"},"context":{"agent":"a","deep":1}}`,
	}
	for n, r := range q.Requests {
		if got, _ := r.MarshalJSON(); string(got) != want[n] {
			t.Errorf("request %d: %s\nnot %s", n, got, want[n])
		}
	}
}

func validated(t *testing.T) {
	for _, leaf := range []string{"$1 +", "$params.name.nope(", "$a", "$params.name + b", "$'ä' + b"} {
		_, err := newBinding(t, coaz.Options{}).Parse(tool(t, contextOf(t, leaf)))
		if wrong := mappingError(t, err); wrong.Expression != leaf {
			t.Errorf("%s: of %s: %s", leaf, wrong.Expression, wrong.Detail)
		}
	}
}

func failsClosed(t *testing.T) {
	m := declare(t, newBinding(t, coaz.Options{}), single(map[string]string{"context": `{"x": "$params.arguments.no"}`}))
	if q, err := m.Questions(operationOf(t, asked)); err == nil || len(q.Requests)+len(q.Envelopes) != 0 {
		t.Errorf("a failed mapping has questions: %+v", q)
	}
	if q, err := m.Questions(coaz.Operation{}); err == nil || len(q.Requests) != 0 {
		t.Errorf("nothing was asked about, and there are questions: %+v", q)
	}
	var none coaz.Verdict
	var override coaz.Override
	if none != coaz.Unknown || override != coaz.RefuseOverride {
		t.Error("a zero value permits something")
	}
}

func onlyAValue(t *testing.T) {
	op := operationOf(t, asked)
	m := declare(t, newBinding(t, coaz.Options{}), single(nil))
	first, err1 := m.Questions(op)
	second, err2 := m.Questions(op)
	if err1 != nil || err2 != nil || string(jsonOf(t, first.Requests)) != string(jsonOf(t, second.Requests)) {
		t.Errorf("%v %v %v %v", first, err1, second, err2)
	}
	if first.Requests[0].Tenant != "" {
		t.Errorf("the question names the tenant %q", first.Requests[0].Tenant)
	}
}
