package coaz_test

import (
	"bytes"
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/evaluation/coaz"
)

// mostFuzzed is what a fuzzed mapping may allocate. The bounds of the package keep it below, whatever is found.
const mostFuzzed = 96 << 20

// FuzzCompile compiles anything as a mapping of either dialect: it is refused with a mapping error, or compiles twice to
// the same.
func FuzzCompile(f *testing.F) {
	for _, mapping := range bombs(f) {
		if len(mapping) < 4096 {
			f.Add(mapping, false)
		}
	}
	f.Add(single(nil), false)
	f.Add(olderMapping, true)
	f.Add(`{"evaluations": {"subject": {"id": "$token.sub"}, "resource": "$params.arguments.r", "evaluations": [{"action": {"name": "a"}}, {"action": "$params.a"}]}}`, false)
	b := newBinding(f, coaz.Options{})
	f.Fuzz(func(t *testing.T, mapping string, older bool) {
		if len(mapping) > 40<<10 {
			return
		}
		definition, err := evaluation.ParseWithNulls([]byte(fuzzedTool(mapping, older)), wide())
		if err != nil {
			return
		}
		var m *coaz.Mapping
		if used := allocated(func() { m, err = b.Parse(definition) }); used > mostFuzzed {
			t.Errorf("compiling takes %d bytes", used)
		}
		again, err2 := b.Parse(definition)
		if err != nil {
			wrong := mappingError(t, err)
			if err2 == nil || *wrong != *mappingError(t, err2) {
				t.Errorf("%v the first time, %v the second", err, err2)
			}
			return
		}
		if err2 != nil || m.Digest() != again.Digest() {
			t.Errorf("compiled to %v, then to %v, %v", m.Digest(), again, err2)
		}
		if reads := m.Reads(); len(reads) > 10_000 {
			t.Errorf("%d reads", len(reads))
		}
	})
}

func fuzzedTool(mapping string, older bool) string {
	if older {
		return sepTool(mapping)
	}
	return `{"name": "t", "inputSchema": {"x-authzen-mapping": ` + mapping + `}}`
}

// FuzzQuestions evaluates any expression on any arguments and claims: it fails with a mapping error that quotes no text
// of them, or yields a question twice to the byte, whose subject is the token's.
func FuzzQuestions(f *testing.F) {
	const arguments, claims = `{"id": "ZQ-1", "n": 7, "l": ["ZQ-2"], "m": {"k": 1.0}, "big": 12345678901234567890123}`, `{"sub": "ZQ-3", "aud": ["x"], "roles": ["r"]}`
	for _, e := range []string{"params.arguments.id", "token.sub", "params.arguments.l.map(x, x + x)", "params.arguments", "{'a': params.arguments.m, 'b': [1, 2u, 3.5]}", "token.?client_id.orValue('none')",
		"params.arguments.n > 5 ? 'high' : 'low'", "params.arguments.id.matches('^a+$')", "params.arguments.big", "has(params.arguments.x) && params.arguments.x == 1", "int(params.arguments.id)",
		"[[1]].map(a, a + a)", "params == params", "params.arguments.l[0] + string(params.arguments.n)", "size(params.arguments.l)", "params.arguments.m.exists(k, k == 'k')"} {
		f.Add("$"+e, arguments, claims)
	}
	b := newBinding(f, coaz.Options{Override: coaz.WarnOverride})
	f.Fuzz(func(t *testing.T, leaf, arguments, claims string) {
		if len(leaf) > 4096 || !strings.HasPrefix(leaf, "$") || strings.ToValidUTF8(leaf, "") != leaf {
			return
		}
		params, err1 := evaluation.ParseWithNulls([]byte(`{"name": "t", "arguments": `+arguments+`}`), wide())
		token, err2 := evaluation.ParseWithNulls([]byte(claims), wide())
		if err1 != nil || err2 != nil {
			return
		}
		m, err := b.Parse(tool(t, contextOf(t, leaf)))
		if err != nil {
			mappingError(t, err)
			return
		}
		op := coaz.Operation{Method: "tools/call", Params: params, Token: token}
		var q coaz.Questions
		if used := allocated(func() { q, err = m.Questions(op) }); used > mostFuzzed {
			t.Errorf("asking takes %d bytes", used)
		}
		again, err2 := m.Questions(op)
		if err != nil {
			wrong := mappingError(t, err)
			if err2 == nil || *wrong != *mappingError(t, err2) {
				t.Errorf("%v the first time, %v the second", err, err2)
			}
			if strings.Contains(wrong.Detail, "ZQ-") {
				t.Errorf("the error quotes a value: %v", wrong)
			}
			return
		}
		if err2 != nil || !bytes.Equal(q.Envelopes[0].Body, again.Envelopes[0].Body) {
			t.Errorf("%s the first time, %v the second", q.Envelopes[0].Body, err2)
		}
		if who, _ := token.Get("sub"); q.Requests[0].Subject.ID != who.Text() || who.Text() == "" {
			t.Errorf("the subject %q is not the token's", q.Requests[0].Subject.ID)
		}
	})
}
