package arguments

import (
	"strings"
	"testing"

	"policy-service/evaluation"
)

// The cost to hold the arguments of the measured call, 1 KiB, against their schema, with and without
// reading them.
func BenchmarkCheck(b *testing.B) {
	schema, err := Compile([]byte(`{"type":"object","properties":{"number":{"type":"integer"},"text":{"type":"string"}},"required":["number"]}`), Open)
	must(b, err)
	text := []byte(`{"number":1,"text":"` + strings.Repeat("x", 1000) + `"}`)
	b.Run("read and checked", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if problems, err := schema.Check(text); problems != nil || err != nil {
				b.Fatal(problems, err)
			}
		}
	})
	b.Run("checked", func(b *testing.B) {
		o, err := evaluation.ParseWithNulls(text, limits)
		must(b, err)
		b.ReportAllocs()
		for b.Loop() {
			if problems, err := schema.check(o.Value()); problems != nil || err != nil {
				b.Fatal(problems, err)
			}
		}
	})
}
