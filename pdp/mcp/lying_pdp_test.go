package mcp_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
	"policy-service/pdp/pdptest/clock"
	"policy-service/pdp/pdptest/night"
)

// Of many calls under a PDP that lies in every way, exactly those were forwarded that have a permit on record.
func TestLyingPDP(t *testing.T) {
	t.Parallel()
	calls := night.Cases(10_000)
	lies := mcptest.Lies()
	waits := func(lie string) bool { return lie == "connection: hangs" || lie == "connection: drips" }
	var told, waited atomic.Int64
	s := newSiege(t, camp{
		policies: map[string]string{"a.cedar": `permit(principal, action, resource) unless { action == Action::"tool.invoke" && context.arguments.n == 3 };`},
		before: func(pdp string) string {
			return mcptest.NewLiar(t, pdp, func(n int64) string {
				if n%2 == 1 { // the first question of a session is answered honestly
					return ""
				}
				lie := lies[int(told.Add(1))%len(lies)]
				if waits(lie) && (testing.Short() || waited.Add(1) > 4) { // TestEachLie tells these, too
					return ""
				}
				return lie
			}).URL
		},
		change: func(c *mcp.Config) { c.PDP.Breaker.Failures, c.PDP.Timeout = 1000, 8*time.Second },
	})
	var ran sync.Map
	var all sync.WaitGroup
	const workers = 16
	for w := range workers {
		v := s.stranger(eras[w%2], s.issuer.Token(t, nil))
		for began := false; !began; {
			_, began = v.tryBegin()
		}
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

// Each lie by itself refuses a call, and makes each list an error: never an empty one, and never a shorter one.
func TestEachLie(t *testing.T) {
	t.Parallel()
	var lie atomic.Pointer[string]
	honest := ""
	lie.Store(&honest)
	s := newSiege(t, camp{
		before: func(pdp string) string { return mcptest.NewLiar(t, pdp, func(int64) string { return *lie.Load() }).URL },
		change: func(c *mcp.Config) { c.PDP.Breaker.Failures, c.PDP.Timeout = 1000, 500*time.Millisecond },
	})
	all := map[string]*visitor{"legacy": s.visitor("legacy", nil), "modern": s.visitor("modern", nil)}
	methods := map[string]string{"tools/call": `{"name":"look","arguments":{}}`, "tools/list": `{}`, "prompts/list": `{}`, "resources/list": `{}`, "resources/templates/list": `{}`}
	for n, l := range mcptest.Lies() {
		// The list may be asked for, and then its items are what the lie is about.
		for era, v := range all {
			if n%2 == 0 && era == "legacy" || n%2 == 1 && era == "modern" {
				continue
			}
			lie.Store(&l)
			for method, params := range methods {
				if method != "tools/call" && method != "tools/list" && n%7 != 0 {
					continue
				}
				if got := v.ask(method, params); got.result != nil || got.fault == nil {
					t.Errorf("%s, %s, %s: %s", l, era, method, got)
				}
			}
		}
	}
	s.untouched(t)
	lie.Store(&honest)
	for era, v := range all {
		mcptest.Until(t, era+": the PDP is back", func() bool {
			return v.call("look", `{}`).ran() && strings.Contains(v.ask("tools/list", `{}`).text, "change")
		})
	}
}

// A lie about the items of a list, after an honest answer about the list itself, makes an error of it, too.
func TestLiesAboutItems(t *testing.T) {
	t.Parallel()
	lies := slices.DeleteFunc(mcptest.Lies(), func(l string) bool {
		return l == "connection: hangs" || l == "connection: drips" || l == "body: deny" || l == "body: deny with obligations" ||
			l == "body: error in context" // the PDP does not take the question about an item: that hides it, and no other
	})
	var next atomic.Pointer[string]
	s := newSiege(t, camp{
		before: func(pdp string) string {
			var list atomic.Bool
			return mcptest.NewLiar(t, pdp, func(int64) string {
				l := next.Load()
				if l == nil || list.CompareAndSwap(false, true) {
					return ""
				}
				list.Store(false)
				return *l
			}).URL
		},
		change: func(c *mcp.Config) { c.PDP.Breaker.Failures = 1000 },
	})
	all := map[string]*visitor{"legacy": s.visitor("legacy", nil), "modern": s.visitor("modern", nil)}
	for n, l := range lies {
		next.Store(&l)
		era := eras[n%2]
		if got := all[era].ask("tools/list", `{}`); got.result != nil || got.fault == nil {
			t.Errorf("%s, %s: %s", l, era, got)
		}
	}
}

// The breaker refuses without asking, and asks again when it is time.
func TestBreaker(t *testing.T) {
	t.Parallel()
	var away atomic.Bool
	var liar *mcptest.Liar
	const coolDown = 10 * time.Second
	c := clock.New()
	s := newSiege(t, camp{now: c.Now,
		before: func(pdp string) string {
			liar = mcptest.NewLiar(t, pdp, func(int64) string {
				if away.Load() {
					return "envelope: 503"
				}
				return ""
			})
			return liar.URL
		},
		change: func(c *mcp.Config) { c.PDP.Breaker.Failures, c.PDP.Breaker.CoolDown = 5, coolDown },
	})
	v := s.visitor("modern", nil)
	refused := func(asked int64) {
		t.Helper()
		before := liar.Asked()
		if got := v.call("look", `{}`); got.code() != -32603 || got.status != http.StatusOK || !strings.Contains(got.text, `"retry_after"`) || liar.Asked() != before+asked {
			t.Fatalf("%s, asked %d times", got, liar.Asked()-before)
		}
	}
	away.Store(true)
	for range 5 {
		refused(1)
	}
	for range 5 {
		refused(0)
	}
	c.Advance(coolDown - time.Nanosecond)
	refused(0)
	if err := s.gateway.Ready(); err == nil {
		t.Error("it is ready, and its PDP is away")
	}
	s.untouched(t)
	c.Advance(time.Nanosecond)
	refused(1) // still away
	refused(0)
	away.Store(false)
	c.Advance(coolDown)
	if got := v.call("look", `{}`); !got.ran() {
		t.Errorf("the PDP is back: %s", got)
	}
	if err := s.gateway.Ready(); err != nil {
		t.Error(err)
	}
}
