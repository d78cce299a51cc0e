package coaz_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"policy-service/evaluation/coaz"
)

const schema = `{"type": "object", "required": ["id", "who"], "additionalProperties": false, "properties": {
	"id": {"type": "string"}, "n": {"type": "integer"}, "case": {"type": "string"}, "any": {}, "either": {"type": ["string", "null"]},
	"who": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "age": {"type": "number"}}},
	"free": {"type": "object", "additionalProperties": true, "properties": {}}, "list": {"type": "array", "items": {"type": "string"}},
	"ref": {"$ref": "#/$defs/x"}}}`

func TestProblems(t *testing.T) {
	t.Parallel()
	resource := func(id string) string {
		return single(map[string]string{"resource": `{"type": "t", "id": ` + string(jsonOf(t, id)) + `}`})
	}
	context := func(x string) string {
		return single(map[string]string{"context": `{"agent": "$token.?client_id", "id": "$params.arguments.id", "x": ` + string(jsonOf(t, x)) + `}`})
	}
	for _, row := range []struct{ mapping, problem string }{
		{resource("$params.arguments.id"), ""},
		{resource("$params.arguments.who.name"), ""},
		{resource("$params.arguments['id']"), ""},
		{resource("$params.arguments.nope"), "/evaluation/resource/id 17 the inputSchema declares no nope"},
		{resource("$params.arguments.who.nope"), "/evaluation/resource/id 21 the inputSchema declares no nope"},
		{resource("$params.arguments.n + ''"), "/evaluation/resource/id 17 by the inputSchema n may be missing, and then the mapping fails: read it with .? or after has()"},
		{resource("$params.arguments.who.age"), "/evaluation/resource/id 21 by the inputSchema age may be missing, and then the mapping fails: read it with .? or after has()"},
		{resource("$params.arguments.?case"), "/evaluation/resource/id 17 it may be missing, and a type, an id or a name must not be"},
		{resource("$params.arguments.who"), "/evaluation/resource/id 17 by the inputSchema it is never a string, which a type, an id or a name must be"},
		{resource("$params.arguments.id.size() > 3 ? 'long' : 'short'"), ""},
		{context("$params.arguments.?case"), ""},
		{context("$params.arguments.case"), "/evaluation/context/x 17 by the inputSchema case may be missing, and then the mapping fails: read it with .? or after has()"},
		{context("$has(params.arguments.case) ? params.arguments.case : 'none'"), ""},
		{context("$has(params.arguments.case) ? params.arguments.n : 0"), "/evaluation/context/x 46 by the inputSchema n may be missing, and then the mapping fails: read it with .? or after has()"},
		{context("$params.arguments.?who.age"), ""},
		{context("$params.arguments.?free.whatever"), ""},
		{context("$params.arguments.?list[0]"), ""},
		{context("$params.arguments.?ref.anything"), ""},
		{context("$params.argument.id"), "/evaluation/context/x 16 a call of a tool has no argument"},
		{context("$params._meta.?trace"), ""},
		{context("$[1].map(params, params)"), ""},
		{single(nil), "/evaluation 0 nothing of a call is in the question: the PDP is asked the same whatever the arguments are"},
		{single(map[string]string{"resource": `{"type": "t", "id": "$params.name"}`}), "/evaluation 0 nothing of a call is in the question: the PDP is asked the same whatever the arguments are"},
		{single(map[string]string{"context": `{"id": "$params.arguments.id"}`}), "/evaluation/context 0 the context does not say which agent acts, which it must where agents act by themselves"},
		{single(map[string]string{"context": "", "action": `{"name": "$params.arguments.id"}`}), "/evaluation/context 0 the context does not say which agent acts, which it must where agents act by themselves"},
		{single(map[string]string{"subject": `{"id": "$params.arguments.id"}`}), "/evaluation/subject/id 0 the subject is not set to the claim that the token names it by: a call where it is another is refused, or warned of"},
		{single(map[string]string{"subject": `{"id": "root"}`, "action": `{"name": "$params.arguments.id"}`}), "/evaluation/subject/id 0 the subject is not set to the claim that the token names it by: a call where it is another is refused, or warned of"},
		{`{"evaluations": {"resource": {"type": "t", "id": "$params.arguments.id"}, "context": {"agent": "a"}, "evaluations": [{"action": {"name": "a"}}, {"action": {"name": "b"}, "context": {"x": 1}}]}}`,
			"/evaluations/evaluations/1/context 0 the context does not say which agent acts, which it must where agents act by themselves"},
		{`{"evaluations": {"resource": {"type": "t", "id": "$params.arguments.id"}, "evaluations": [{"action": {"name": "a"}}, {"action": {"name": "b"}}]}}`,
			"/evaluations/context 0 the context does not say which agent acts, which it must where agents act by themselves"},
	} {
		problems := declare(t, newBinding(t, coaz.Options{}), row.mapping).Problems(object(t, schema))
		var got []string
		for _, p := range problems {
			got = append(got, fmt.Sprint(p.Pointer, " ", p.Offset, " ", p.Detail))
		}
		want := []string{row.problem}
		if row.problem == "" {
			want = nil
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n%s\nnot\n%s", row.mapping, strings.Join(got, "\n"), row.problem)
		}
	}
}

// The tools that the profiles print have few problems, and those that they have are true.
func TestProblemsOfFigures(t *testing.T) {
	t.Parallel()
	b := newBinding(t, coaz.Options{})
	for definition, want := range map[string][]string{
		`{"name": "get_customer", "inputSchema": {"properties": {"id": {"type": "string"}, "case": {"type": "string"}}, "required": ["id"], "x-authzen-mapping": {
			"evaluation": {"subject": {"type": "identity", "id": "$token.sub"}, "action": {"name": "get_customer"}, "resource": {"type": "customer", "id": "$params.arguments.id"},
			"context": {"agent": "$token.?client_id", "case": "$params.arguments.case"}}}}}`: {
			"/inputSchema/x-authzen-mapping/evaluation/context/case: by the inputSchema case may be missing, and then the mapping fails: read it with .? or after has()"},
		`{"name": "get_customer", "coaz": true, "inputSchema": {"properties": {"id": {"type": "string"}, "case": {"type": "string"}}, "x-coaz-mapping": {
			"resource": {"id": "$.properties['id']", "type": "customer"}, "subject": {"type": "user", "id": "$.token['sub']"}, "context": {"agent": "$.token['aud']", "case": "$.properties['case']"}}}}`: {
			"/inputSchema/x-coaz-mapping/resource/id: it may be missing, and a type, an id or a name must not be"},
		`{"name": "t", "inputSchema": {"x-coaz-mapping": {}}}`: {"/inputSchema/x-coaz-mapping: the tool does not say coaz: true, and so this mapping counts for nothing"},
		`{"name": "t", "coaz": "true", "inputSchema": {"x-coaz-mapping": {}}}`: {"/coaz: it has another value than true, and so counts for nothing",
			"/inputSchema/x-coaz-mapping: the tool does not say coaz: true, and so this mapping counts for nothing"},
		`{"name": "t", "coaz": true}`: {"/inputSchema/x-coaz-mapping: the tool says coaz: true, and its inputSchema has no x-coaz-mapping"},
		`{"name": "t"}`:               nil,
		`{"name": "t", "x-authzen-mapping": {}, "COAZ": true, "inputSchema": {"coaz": true, "X-Coaz-Mapping": null, "x-other": 1}}`: {
			"/COAZ: it counts for nothing here, or so written: x-authzen-mapping and x-coaz-mapping stand in the inputSchema, and coaz beside it",
			"/x-authzen-mapping: it counts for nothing here, or so written: x-authzen-mapping and x-coaz-mapping stand in the inputSchema, and coaz beside it",
			"/inputSchema/X-Coaz-Mapping: it counts for nothing here, or so written: x-authzen-mapping and x-coaz-mapping stand in the inputSchema, and coaz beside it",
			"/inputSchema/coaz: it counts for nothing here, or so written: x-authzen-mapping and x-coaz-mapping stand in the inputSchema, and coaz beside it"},
		`{"name": "t", "inputSchema": {"x-authzen-mapping": {"evaluation": {"action": {"name": "$nope"}}}}}`: {
			"/inputSchema/x-authzen-mapping/evaluation/action/name: the expression names nope, which mappings do not have"},
	} {
		var got []string
		for _, p := range b.Lint(object(t, definition)) {
			got = append(got, p.Pointer+": "+p.Detail)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n%s\nnot\n%s", definition, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	for method := range defaultTexts(t) {
		m, _ := b.Default(method)
		if problems := m.Problems(object(t, schema)); len(problems) > 0 {
			t.Errorf("%s: %v", method, problems)
		}
	}
}

func TestUndeclared(t *testing.T) {
	t.Parallel()
	schema := object(t, `{"properties":{"a":{"type":"string"},"to":{"type":"object","properties":{"team":{}}},"open":{"properties":{},"additionalProperties":true},
		"any":{"type":"object"},"one":{"oneOf":[{}],"properties":{}},"list":{"type":"array","items":{"properties":{"x":{}}}}}}`)
	for path, want := range map[string]string{
		"a": "", "b": "b", "to/team": "", "to/taem": "taem", "b/c": "b", "open/x": "", "any/x": "", "one/x": "", "list/x": "", "": "",
	} {
		steps := strings.Split(path, "/")
		if path == "" {
			steps = nil
		}
		if got := coaz.Undeclared(schema, steps); got != want {
			t.Errorf("%s: %q", path, got)
		}
	}
}
