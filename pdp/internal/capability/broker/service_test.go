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
	"sync/atomic"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
	"policy-service/pdp"
	store "policy-service/pdp/internal/capability"
	"policy-service/pdp/internal/capability/broker"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/mask"
	"policy-service/pdp/internal/decisionlog/recorder"
	"policy-service/pdp/internal/signing"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/bound"
	"policy-service/pdp/pdptest/clock"
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

// service is a PDP with capabilities, and a holder of some.
type service struct {
	testing.TB
	*broker.Broker
	*clock.Clock
	log    *decisionlog.Log
	logged bytes.Buffer
	pdp    *pdp.PDP
	holder *capability.Holder
	proofs atomic.Int64
	looks  func() // is called when the policies are looked for
}

func newService(b testing.TB, data string, recorded bool, change ...func(*pdp.Options)) *service {
	b.Helper()
	f := &service{TB: b, Clock: clock.At(pdptest.Now), looks: func() {}}
	log, err := decisionlog.Open(data, decisionlog.Options{Now: f.Now, Index: true, Kinds: []string{format.KindCapability}})
	f.must(err)
	keys, err := signing.Open(data, slog.New(slog.DiscardHandler))
	f.must(err)
	f.holder, err = capability.NewHolder(private)
	f.must(err)
	masks, err := mask.New(bytes.Repeat([]byte{1}, mask.KeySize), nil)
	f.must(err)
	mask := func(context.Context) *mask.Masker { return masks }
	f.Broker, err = broker.Open(broker.Options{
		Data: data,
		Store: store.Options{
			Key: []byte(strings.Repeat("s", 32)), Now: f.Now, Retain: time.Hour,
			Limits: store.Limits{MaxLivePerHolder: 1 << 30, MaxLivePerTenant: 1 << 30, NewPerMinutePerHolder: 1 << 30},
		},
		Log: log, Keys: keys, PDP: func() *pdp.PDP { f.looks(); return f.pdp }, Mask: mask,
		IssuerURL: func(string) string { return issuer },
		ListURL:   func(name string) string { return issuer + "/v1/capabilities/status/" + name },
		Terms:     broker.Terms{MaxLifetime: life, DefaultLifetime: time.Hour, ProofAge: 5 * time.Minute, Skew: time.Second, StatusTTL: 15 * time.Second},
		Logger:    slog.New(slog.NewTextHandler(&f.logged, nil)),
	})
	f.must(err)
	options := pdp.Options{Now: f.Now, Capabilities: f.Broker}
	if recorded {
		nothing := func(context.Context) {}
		options.Recorder = &recorder.Recorder{
			Log: log, Mask: mask, Waits: nothing,
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

func (f *service) must(err error) {
	if err != nil {
		f.Helper()
		f.Fatal(err)
	}
}

// granted asks for a capability.
func (f *service) granted(uses int) *broker.Answer {
	g, err := f.asks(uses)
	if err != nil || g == nil {
		f.Fatal(err)
	}
	return g
}

func (f *service) asks(uses int, change ...func(*capability.Ask)) (*broker.Answer, error) {
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
func (f *service) call(g *broker.Answer) pdp.Call {
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

func (f *service) calls(g *broker.Answer, n int) []pdp.Call {
	all := make([]pdp.Call, n)
	for i := range all {
		all[i] = f.call(g)
	}
	return all
}

// decide answers calls, which are all allowed.
func (f *service) decide(calls []pdp.Call) {
	for _, call := range calls {
		if d, err := f.pdp.Evaluate(context.Background(), call); err != nil || !d.Allow {
			f.Fatalf("%+v, %v", d, err)
		}
	}
}

// taking is how long the process computes for something. The rest of the machine does not count.
func (f *service) taking(do func()) time.Duration {
	runtime.GC()
	before := bound.CPU(f)
	do()
	return bound.CPU(f) - before
}
