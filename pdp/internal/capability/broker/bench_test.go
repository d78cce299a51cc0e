package broker_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"runtime"
	"sync"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/pdptest/bound"
	"policy-service/pdp/pdptest/memorydisk"
)

// A use that is not counted, beside an evaluation and the verification of one signature.
func BenchmarkUse(b *testing.B) {
	f := newService(b, memorydisk.New(b, ""), false)
	g, public, message := f.granted(0), private.Public().(ed25519.PublicKey), bytes.Repeat([]byte("m"), 300)
	signature := ed25519.Sign(private, message)
	const each = 200
	var passes bound.Passes
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		f.Advance(10 * time.Minute) // the proofs of before are forgotten
		plain, uses := f.calls(nil, each), f.calls(g, each)
		b.StartTimer()
		without := f.taking(func() {
			f.decide(plain)
			for range each {
				if !ed25519.Verify(public, message, signature) {
					b.Fatal("the signature is not good")
				}
			}
		})
		passes.Against(f.taking(func() { f.decide(uses) }), without)
	}
	bound.Check(b, passes.Median(), "x-of-evaluation-and-signature", 2.3) // the aim is 1.6
}

// What capabilities that are live take of memory, and a sweep of them beside as many evaluations.
func BenchmarkLive(b *testing.B) {
	const live, together = 10_000, 50
	f := newService(b, memorydisk.New(b, ""), false)
	heap := func() float64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	f.granted(0)
	before := heap()
	for range live / together {
		var all sync.WaitGroup
		for range together {
			all.Go(func() { f.granted(0) })
		}
		all.Wait()
		f.Advance(time.Minute) // or there are too many proofs at once
	}
	f.Advance(10 * time.Minute)
	each := (heap() - before) / live
	question, err := evaluation.DecodeNative([]byte(
		`{"tenant_id":"default","actor":{"actor_id":"bot","actor_type":"agent"},"action":"capability.grant","resource":{"type":"tool","id":"b:read"}}`),
		evaluation.DefaultLimits())
	f.must(err)
	calls := make([]pdp.Call, live)
	for n := range calls {
		calls[n] = pdp.Call{Request: question, Asker: evaluation.Asker{Name: "key:wallet"}}
	}
	var passes bound.Passes
	for b.Loop() {
		without := f.taking(func() { f.decide(calls) })
		passes.Against(f.taking(func() { f.must(f.Sweep(context.Background())) }), without)
	}
	bound.Check(b, each, "B-each", 1500)                   // of 100,000: 150 MB
	bound.Check(b, passes.Median(), "x-of-evaluations", 7) // the aim is 1.5, of what need not be read from a file
}
