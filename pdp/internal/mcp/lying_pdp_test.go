package mcp_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/pdptest/mcptest"
	"policy-service/pdp/pdptest/night"
)

// Of many calls under a PDP that lies in every way, exactly those were forwarded that have a permit on record.
func TestLyingPDP(t *testing.T) {
	t.Parallel()
	calls := night.Cases(10_000)
	lies := mcptest.Lies()
	waits := func(lie string) bool { return lie == "connection: hangs" || lie == "connection: drips" }
	var told, waited atomic.Int64
	var finds atomic.Bool // the PDP is there, and finds fault with each question
	s := newSiege(t, camp{
		policies: map[string]string{"a.cedar": `permit(principal, action, resource) unless { action == Action::"tool.invoke" && context.arguments.n == 3 };`},
		before: func(pdp string) string {
			return mcptest.NewLiar(t, pdp, func(n int64) string {
				if finds.Load() {
					return "envelope: 400"
				}
				if n%2 == 1 { // the first question of a session is answered honestly
					return ""
				}
				lie := lies[int(told.Add(1))%len(lies)]
				if waits(lie) && (testing.Short() || waited.Add(1) > 4) { // TestPDPIsStopped has these, too
					return ""
				}
				return lie
			}).URL
		},
		change: func(c *mcp.Config) { c.PDP.Breaker.Failures, c.PDP.Timeout = 1000, 8*time.Second },
	})
	var ran sync.Map
	var visitors []*visitor
	var all sync.WaitGroup
	const workers = 16
	for w := range workers {
		v := s.stranger(eras[w%2], s.issuer.Token(t, nil))
		for began := false; !began; {
			_, began = v.tryBegin()
		}
		visitors = append(visitors, v)
		all.Go(func() {
			for n := w; n < calls; n += workers {
				marker := fmt.Sprintf("m%d", n)
				got := v.call("look", fmt.Sprintf(`{"marker":"%s","n":%d}`, marker, n%5))
				switch {
				case got.ran():
					ran.Store(marker, true)
				case got.result != nil || !slices.Contains([]int{-32001, -32602, -32603}, got.code()):
					t.Errorf("%s: %s", marker, got)
				}
			}
		})
	}
	all.Wait()
	finds.Store(true)
	for _, v := range visitors[:2] {
		v.call("look", `{"marker":"at fault"}`).refused(t, -32602, "", "", v.era)
		orFail(t, s.gateway.Ready())
	}
	var permitted []string
	denied := 0
	for _, line := range s.records() {
		switch marker := markerOf(line.Request.Context.Arguments); {
		case marker == "", line.Request.Action.Name == "tool.request": // which is what a refusal suggests
		case line.Decision:
			permitted = append(permitted, marker)
		default:
			denied++
		}
	}
	slices.Sort(permitted)
	forwarded := s.markers()
	if !slices.Equal(permitted, forwarded) {
		t.Errorf("%d have a permit on record, and %d were forwarded", len(permitted), len(forwarded))
		for _, m := range forwarded {
			if _, has := slices.BinarySearch(permitted, m); !has {
				t.Errorf("%s was forwarded without a permit", m)
			}
		}
	}
	for _, m := range forwarded {
		if _, was := ran.Load(m); !was {
			t.Errorf("%s was forwarded, and its caller was told otherwise", m)
		}
	}
	if len(forwarded) < calls/4 || denied < calls/20 || int(told.Load()) < calls/4 {
		t.Errorf("of %d calls %d were forwarded, %d denied, under %d lies", calls, len(forwarded), denied, told.Load())
	}
}
