package coaz_test

import (
	"testing"

	"policy-service/evaluation/coaz"
	"policy-service/pdp/pdptest/night"
)

// fiveExpressions is a mapping as servers declare them.
const fiveExpressions = `{"evaluation": {"subject": {"type": "user", "id": "$token.sub"}, "action": {"name": "$params.name"},
	"resource": {"type": "account", "id": "$params.arguments.id", "properties": {"sensitivity": "$params.arguments.n > 10000 ? 'high' : 'standard'"}},
	"context": {"agent": "$token.?client_id"}}}`

// What does it cost to ask about one call?
func BenchmarkQuestionsFiveExpressions(b *testing.B) { benchmarkQuestions(b, fiveExpressions) }

// What does it cost to go through a list?
func BenchmarkQuestionsMacro(b *testing.B) {
	benchmarkQuestions(b, single(map[string]string{"resource": `{"type": "$token.roles.exists(r, r == 'treasury') ? 'vault' : 'account'", "id": "i"}`}))
}

func benchmarkQuestions(b *testing.B, mapping string) {
	m := declare(b, newBinding(b, coaz.Options{}), mapping)
	op := operationOf(b, asked)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.Questions(op); err != nil {
			b.Fatal(err)
		}
	}
}

// What does it cost to take a tool's definition, once?
func BenchmarkParseFiveExpressions(b *testing.B) {
	binding, definition := newBinding(b, coaz.Options{}), tool(b, fiveExpressions)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := binding.Parse(definition); err != nil {
			b.Fatal(err)
		}
	}
}

// What does it cost to start?
func BenchmarkNew(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := coaz.New(coaz.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

// TestQuestionsAllocate bounds what asking about one call allocates, which is most of what it costs.
func TestQuestionsAllocate(t *testing.T) {
	night.Measures(t)
	m := declare(t, newBinding(t, coaz.Options{}), fiveExpressions)
	op := operationOf(t, asked)
	if n := testing.AllocsPerRun(100, func() { _, _ = m.Questions(op) }); n > 80 { // about 40
		t.Errorf("%.0f allocations for five expressions", n)
	}
}
