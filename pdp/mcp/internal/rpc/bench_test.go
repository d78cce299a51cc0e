package rpc_test

import (
	"strings"
	"testing"

	"policy-service/pdp/mcp/internal/rpc"
)

// What does it cost to read a call with 1 KiB of arguments, and to write it again with another name?
func BenchmarkParse(b *testing.B) {
	text := []byte(call(`{"_meta":{"progressToken":1},"name":"create_ticket","arguments":{"project":"OPS","labels":["a","b","c"],` +
		`"amount":12.50,"urgent":true,"due":{"year":2026,"month":11},"text":"` + strings.Repeat("lorem ipsum ", 75) + `"}}`))
	b.SetBytes(int64(len(text)))
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, fault := rpc.Parse(text, rpc.DefaultLimits()); fault != nil {
				b.Fatal(fault)
			}
		}
	})
	b.Run("read, rename and write", func(b *testing.B) {
		b.ReportAllocs()
		var out []byte
		for b.Loop() {
			m, _ := rpc.Parse(text, rpc.DefaultLimits())
			params, err := rpc.ParseObject(m.Params)
			if err != nil {
				b.Fatal(err)
			}
			m.Params = params.With("name", rpc.String("create")).Value()
			out = m.Append(out[:0])
		}
	})
}
