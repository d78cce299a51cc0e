package coaz_test

import (
	"strings"
	"testing"

	"policy-service/evaluation"
	"policy-service/evaluation/coaz"
)

// Null is a value, and another than absent: it may stand in an optional field, never in a
// required one.
func TestNull(t *testing.T) {
	t.Parallel()
	binding, err := coaz.New(coaz.Options{})
	if err != nil {
		t.Fatal(err)
	}
	object := func(text string) evaluation.Object {
		o, err := evaluation.ParseWithNulls([]byte(text), evaluation.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	const arguments = `{"v":null,"deep":{"v":null,"w":1},"list":[{"v":null}],"empty":""}`
	op := coaz.Operation{Method: "tools/call", Params: object(`{"name":"x","arguments":` + arguments + `}`), Token: object(`{"sub":"alice","gone":null}`)}
	for expression, want := range map[string]string{
		"params.arguments.v":                                  `null`,
		"params.arguments.?v":                                 `null`,
		"params.arguments.deep":                               `{"v":null,"w":1}`,
		"params.arguments.deep.?v":                            `null`,
		"params.arguments.list":                               `[{"v":null}]`,
		"has(params.arguments.v)":                             `true`,
		"has(params.arguments.gone)":                          `false`,
		"params.arguments.v == null":                          `true`,
		"params.arguments.empty == null":                      `false`,
		"size(params.arguments)":                              `4`,
		"size(params.arguments.deep)":                         `2`,
		"params.arguments.deep.map(k, k)":                     `["v","w"]`,
		"params.arguments.deep == {'v': null, 'w': 1}":        `true`,
		"params.arguments.deep == {'w': 1}":                   `false`,
		"{'w': 1} == params.arguments.deep":                   `false`,
		"params.arguments.deep == params.arguments.list[0]":   `false`,
		"params.arguments.?v.orValue('none')":                 `null`,
		"params.arguments.?gone.orValue('none')":              `"none"`,
		"token.gone == null":                                  `true`,
		"'v' in params.arguments ? 'there' : 'not there'":     `"there"`,
		"params.arguments.v == null ? 'no value' : 'a value'": `"no value"`,
	} {
		tool := object(`{"name":"x","inputSchema":{"x-authzen-mapping":{"evaluation":{"action":{"name":"a"},"resource":{"type":"t","id":"i"},"context":{"v":"$` + expression + `"}}}}}`)
		m, err := binding.Parse(tool)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		q, err := m.Questions(op)
		if err != nil || !strings.Contains(string(q.Envelopes[0].Body), `"context":{"v":`+want+`}`) {
			t.Errorf("%s: %v, %v, want %s", expression, q.Requests, err, want)
		}
	}
	for _, part := range []string{`"resource":{"type":"t","id":"$params.arguments.v"}`, `"resource":{"type":"t","id":"$params.arguments.?v"}`, `"resource":"$params.arguments.v"`} {
		m, err := binding.Parse(object(`{"name":"x","inputSchema":{"x-authzen-mapping":{"evaluation":{"action":{"name":"a"},` + part + `}}}}`))
		if err != nil {
			t.Fatal(err)
		}
		if q, err := m.Questions(op); err == nil {
			t.Errorf("%s: %s", part, q.Envelopes[0].Body)
		}
	}
}
