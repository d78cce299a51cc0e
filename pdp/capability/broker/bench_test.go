package broker_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
	"policy-service/pdp"
	store "policy-service/pdp/capability"
	"policy-service/pdp/capability/broker"
	"policy-service/pdp/decisionlog"
	"policy-service/pdp/decisionlog/mask"
	"policy-service/pdp/decisionlog/recorder"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/bound"
	"policy-service/pdp/pdptest/clock"
	"policy-service/pdp/pdptest/memorydisk"
	"policy-service/pdp/signing"
)

// policies let the same call happen with a capability and without.
const policies = `
@id("reads") permit(principal is agent, action == Action::"tool.invoke", resource is tool) when { resource == tool::"b:read" };
@id("held") permit(principal is agent, action == Action::"tool.invoke", resource is tool) when { context.pdp.capability.held };
@id("grants") permit(principal is agent, action == Action::"capability.grant", resource is tool) when { context.pdp.resource.id like "b:*" };
`

const (
	issuer = "https://pdp.example"
	life   = 90 * 24 * time.Hour
)

var private = ed25519.NewKeyFromSeed([]byte(strings.Repeat("k", ed25519.SeedSize)))

// bench is a PDP with capabilities, and a holder of some.
type bench struct {
	testing.TB
	*broker.Broker
	*clock.Clock
	log    *decisionlog.Log
	logged bytes.Buffer
	pdp    *pdp.PDP
	holder *capability.Holder
	proofs atomic.Int64
}

func newBench(b testing.TB, data string, recorded bool, change ...func(*pdp.Options)) *bench {
	b.Helper()
	f := &bench{TB: b, Clock: clock.At(pdptest.Now)}
	log, err := decisionlog.Open(data, decisionlog.Options{Index: true, Kinds: []string{decisionlog.KindCapability}})
	f.must(err)
	keys, err := signing.Open(data, slog.New(slog.DiscardHandler))
	f.must(err)
	f.holder, err = capability.NewHolder(private)
	f.must(err)
	f.Broker, err = broker.Open(broker.Options{
		Data: data,
		Store: store.Options{
			Key: []byte(strings.Repeat("s", 32)), Now: f.Now, Retain: time.Hour,
			Limits: store.Limits{MaxLivePerHolder: 1 << 30, MaxLivePerTenant: 1 << 30, NewPerMinutePerHolder: 1 << 30},
		},
		Log: log, Keys: keys, PDP: func() *pdp.PDP { return f.pdp },
		IssuerURL: func(string) string { return issuer },
		Terms:     broker.Terms{MaxLifetime: life, DefaultLifetime: time.Hour, ProofAge: 5 * time.Minute, Skew: time.Second},
		Logger:    slog.New(slog.NewTextHandler(&f.logged, nil)),
	})
	f.must(err)
	options := pdp.Options{Now: f.Now, Capabilities: f.Broker}
	if recorded {
		masks, err := mask.New(bytes.Repeat([]byte{1}, mask.KeySize), nil)
		f.must(err)
		nothing := func(context.Context) {}
		options.Recorder = &recorder.Recorder{
			Log: log, Mask: func(context.Context) *mask.Masker { return masks }, Waits: nothing,
			GoOn: func(ctx context.Context) error { return ctx.Err() },
		}
	}
	for _, change := range change {
		change(&options)
	}
	f.log = log
	f.pdp, err = pdp.New(pdptest.Bundle(map[string]string{"a.cedar": policies}), options)
	f.must(err)
	f.Advance(time.Minute) // proofs of before the start need nonces
	b.Cleanup(func() { f.must(errors.Join(f.Store.Close(), log.Close())) })
	return f
}

func (f *bench) must(err error) {
	if err != nil {
		f.Helper()
		f.Fatal(err)
	}
}

// granted asks for a capability.
func (f *bench) granted(uses int) *broker.Answer {
	g, err := f.asks(uses)
	if err != nil || g == nil {
		f.Fatal(err)
	}
	return g
}

func (f *bench) asks(uses int, change ...func(*capability.Ask)) (*broker.Answer, error) {
	a := capability.Ask{
		Tenant: "default", Holder: evaluation.Ref{Type: "agent", ID: "bot"}, Audience: "b", Tools: []string{"b:read"}, Duration: life, MaxUses: uses,
	}
	for _, change := range change {
		change(&a)
	}
	f.must(f.holder.Request(&a, issuer, f.Now()))
	_, g, _, err := f.Ask(context.Background(), evaluation.Asker{Name: "key:wallet"}, broker.Request{Ask: a})
	return g, err
}

const arguments = `{"target":"staging","n":7}`

// call is a call of the tool, with a capability if there is one.
func (f *bench) call(g *broker.Answer) pdp.Call {
	shown := ""
	if g != nil {
		about, err := evaluation.ParseObject([]byte(arguments), evaluation.DefaultLimits())
		f.must(err)
		proof, err := f.holder.Prove(capability.Claim{
			Capability: g.ID, Audience: "b", Tool: "b:read", Arguments: about, IssuedAt: f.Now(), ID: fmt.Sprintf("proof-%012d", f.proofs.Add(1)),
		})
		f.must(err)
		shown = fmt.Sprintf(`,"capability":{"token":%q,"proof":%q}`, g.Token, proof)
	}
	r, err := evaluation.DecodeNative(fmt.Appendf(nil,
		`{"tenant_id":"default","actor":{"actor_id":"bot","actor_type":"agent"},"action":"tool.invoke","resource":{"type":"tool","id":"b:read"},"context":{"arguments":%s%s}}`,
		arguments, shown), evaluation.DefaultLimits())
	f.must(err)
	return pdp.Call{Request: r, Asker: evaluation.Asker{Name: "key:pep"}}
}

func (f *bench) calls(g *broker.Answer, n int) []pdp.Call {
	all := make([]pdp.Call, n)
	for i := range all {
		all[i] = f.call(g)
	}
	return all
}

// decide answers calls, which are all allowed, and returns how long that takes.
func (f *bench) decide(calls []pdp.Call) time.Duration {
	start := time.Now()
	for _, call := range calls {
		if d, err := f.pdp.Evaluate(context.Background(), call); err != nil || !d.Allow {
			f.Fatalf("%+v, %v", d, err)
		}
	}
	return time.Since(start)
}

// A use that is not counted, beside an evaluation and the verification of one signature.
func BenchmarkUse(b *testing.B) {
	f := newBench(b, memorydisk.New(b, ""), false)
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
		start := time.Now()
		f.decide(plain)
		for range each {
			if !ed25519.Verify(public, message, signature) {
				b.Fatal("the signature is not good")
			}
		}
		without := time.Since(start)
		w := f.decide(uses)
		b.Log(w, without)
		passes.Against(w, without)
	}
	bound.Check(b, passes.Median(), "x-of-evaluation-and-signature", 1.6)
}

// Counted uses of 64 clients, each with a capability of its own, beside decisions of as many: both durably on record.
func BenchmarkCountedUses(b *testing.B) {
	f := newBench(b, b.TempDir(), true)
	const clients, each = 64, 20
	var all [clients]*broker.Answer
	for n := range all {
		all[n] = f.granted(1_000_000)
	}
	// taking is how long all clients take together.
	taking := func(of func(client int) *broker.Answer) time.Duration {
		b.StopTimer()
		var calls [clients][]pdp.Call
		for n := range calls {
			calls[n] = f.calls(of(n), each)
		}
		b.StartTimer()
		var clients sync.WaitGroup
		start := time.Now()
		for n := range calls {
			clients.Go(func() { f.decide(calls[n]) })
		}
		clients.Wait()
		return time.Since(start)
	}
	var passes bound.Passes
	for b.Loop() {
		f.Advance(10 * time.Minute)
		without := taking(func(int) *broker.Answer { return nil })
		passes.Against(taking(func(client int) *broker.Answer { return all[client] }), without)
	}
	bound.Check(b, passes.Median(), "x-of-strict-decisions", 2.5) // at least 0.4 as many
}

// What capabilities that are live take of memory, and a sweep of them beside as many evaluations.
func BenchmarkLive(b *testing.B) {
	const live, together = 10_000, 50
	f := newBench(b, memorydisk.New(b, ""), false)
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
		without := f.decide(calls)
		start := time.Now()
		f.must(f.Sweep(context.Background()))
		page, next, err := f.Store.List(context.Background(), store.Filter{}, "", 10)
		b.Log(without, time.Since(start), f.Store.Live(), len(page), next, err)
		passes.Against(time.Since(start), without)
	}
	bound.Check(b, each, "B-each", 1500) // of 100,000: 150 MB
	bound.Check(b, passes.Median(), "x-of-evaluations", 1.5)
}
