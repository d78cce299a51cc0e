package decisionlog

import (
	"testing"
	"time"

	"policy-service/evaluation"
)

// What does it cost to make the line of a usual decision?
func BenchmarkLine(b *testing.B) {
	object := func(members map[string]any) evaluation.Object {
		o, err := evaluation.NewObject(members)
		if err != nil {
			b.Fatal(err)
		}
		return o
	}
	e := entry("0197f0c0-0000-7000-8000-000000000000")
	e.Request = &Request{Asked: &evaluation.Request{
		Subject:  evaluation.Entity{Type: "user", ID: "alice", Properties: object(map[string]any{"department": "sales"})},
		Action:   evaluation.Action{Name: "tool.invoke"},
		Resource: evaluation.Entity{Type: "tool", ID: "tickets:create_ticket", Properties: object(map[string]any{"impact": "write"})},
		Context:  object(map[string]any{"purpose": "two\nlines", "n": 1.0}),
	}}
	kinds, now := Options{}.withDefaults().Kinds, time.Now().UTC()
	b.Run("now", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			p, err := prepare(&e, e.ID, kinds)
			if err != nil {
				b.Fatal(err)
			}
			p.finish(1, now, false)
			p.done()
		}
	})
	b.Run("former", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := formerLine(e, 1, now, false); err != nil {
				b.Fatal(err)
			}
		}
	})
}
