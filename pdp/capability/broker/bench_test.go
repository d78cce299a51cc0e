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

// decide answers calls, which are all allowed.
func (f *bench) decide(calls []pdp.Call) {
	for _, call := range calls {
		if d, err := f.pdp.Evaluate(context.Background(), call); err != nil || !d.Allow {
			f.Fatalf("%+v, %v", d, err)
		}
	}
}

// taking is how long the process computes for something. The rest of the machine does not count.
func (f *bench) taking(do func()) time.Duration {
	runtime.GC()
	before := bound.CPU(f)
	do()
	return bound.CPU(f) - before
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
		without := f.taking(func() { f.decide(calls) })
		passes.Against(f.taking(func() { f.must(f.Sweep(context.Background())) }), without)
	}
	bound.Check(b, each, "B-each", 1500)                   // of 100,000: 150 MB
	bound.Check(b, passes.Median(), "x-of-evaluations", 7) // the aim is 1.5, of what need not be read from a file
}
