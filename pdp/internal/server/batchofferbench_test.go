package server_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"policy-service/pdp"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest/bound"
)

// What approvals cost in a batch: a thousand denials that say how to ask for one, beside a thousand that do not; the
// same where all inherit a large context; and as many uses as a batch may make.
func BenchmarkApprovalsOfABatch(b *testing.B) {
	c := openDesk(b, func(config *server.Config) {
		config.Approvals.NewPerMinutePerSubject, config.Approvals.MaxPendingPerSubject = 1_000_000, 1_000_000
	})
	thousand := slices.Repeat([]string{`"resource":{"type":"tool","id":"push"}`}, 1000)
	for name, context := range map[string]string{"small": push, "large": `"text":"` + strings.Repeat("x", 900<<10) + `"`} {
		for _, who := range []string{"pep", "asker"} {
			b.Run("denials/context="+name+"/by="+who, func(b *testing.B) {
				var passes bound.Passes
				for b.Loop() {
					start := time.Now()
					c.program(who).batch(wants("push", context)+",", thousand...)
					passes.Took(time.Since(start))
				}
				bound.Check(b, passes.Median(), "ms-median", 600)
			})
		}
	}
	b.Run("uses", func(b *testing.B) {
		p, n := c.program("asker"), 0
		var passes bound.Passes
		for b.Loop() {
			b.StopTimer()
			var questions []string
			for range pdp.MaxUses {
				n++
				questions = append(questions, wants("push", fmt.Sprintf(`"n":%d`, n)))
			}
			presenting, _ := p.onceGranted(questions...)
			b.StartTimer()
			start := time.Now()
			if got := p.batch("", presenting...); strings.Contains(said(got), "-") {
				b.Fatal(said(got))
			}
			passes.Took(time.Since(start))
		}
		bound.Check(b, passes.Median(), "ms-median", 1000)
	})
}
