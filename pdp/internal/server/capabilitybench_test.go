package server_test

import (
	"crypto/ed25519"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"policy-service/evaluation/capability"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/bound"
)

// Counted uses of 64 clients, each with a capability of its own, beside decisions of as many: both durably on record.
func BenchmarkCountedUses(b *testing.B) {
	const clients, each = 64, 10
	files := capabilityFiles()
	files["a.cedar"] += `@id("free") permit(principal is agent, action == Action::"tool.invoke", resource == tool::"b:free");`
	w := openWalletOn(b, pdptest.Bundle(files))
	w.Client = ownClient()
	w.Advance(time.Minute) // proofs need no nonce any more
	var own [clients]*wallet
	var has [clients]granted
	for n := range clients {
		mine := *w
		seed := make([]byte, ed25519.SeedSize)
		seed[0] = byte(n)
		var err error
		mine.holder, err = capability.NewHolder(ed25519.NewKeyFromSeed(seed))
		must(b, err)
		own[n], has[n] = &mine, mine.asksFor(http.StatusCreated, func(a *capability.Ask) {
			a.Holder.ID, a.MaxUses = fmt.Sprint("bot", n), 1_000_000
		}, "read")
	}
	// taking is how long all clients take together for their calls.
	taking := func(body func(client, n int) string) time.Duration {
		b.StopTimer()
		var bodies [clients][]string
		for client := range bodies {
			for n := range each {
				bodies[client] = append(bodies[client], body(client, n))
			}
		}
		b.StartTimer()
		var all sync.WaitGroup
		start := time.Now()
		for _, mine := range bodies {
			all.Go(func() {
				for _, body := range mine {
					if status, text := w.do("wallet", "POST", "/v1/authorize", body); status != http.StatusOK || text[:13] != `{"allow":true` {
						b.Error(status, text)
					}
				}
			})
		}
		all.Wait()
		return time.Since(start)
	}
	var passes bound.Passes
	round := 0
	for b.Loop() {
		w.Advance(10 * time.Second)
		round++
		without := taking(func(client, _ int) string { return tool("b:free", "") })
		passes.Against(taking(func(client, n int) string {
			s := own[client].call(has[client], "b:read")
			s.agent, s.claim.ID = fmt.Sprint("bot", client), fmt.Sprintf("proof-%012d-%d-%d", round, client, n)
			return s.body(b)
		}), without)
	}
	bound.Check(b, passes.Median(), "x-of-strict-decisions", 8) // the aim is 2.5
}
