package mcp_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/pdptest/mcptest"
	"policy-service/pdp/pdptest/night"
)

// 200 streams are open, two of each person, and 20 approvals a second begin to wait, each for one person. Both streams of the person
// hear of it within 5 s, and another caller's calls take at most three times as long as they do alone. Each stream has a token of
// its own, so the PDP decides for each stream about each approval: 4,000 decisions a second here, in the process of the gateway.
func TestListenMany(t *testing.T) {
	night.Measures(t)
	const people, each, seconds, perSecond = 100, 2, 10, 20
	const asked = seconds * perSecond
	w := newPeople(t, land{change: func(c *mcp.Config) {
		c.Limits.Rate, c.Limits.Burst = 1_000_000, 1_000_000
		c.Approvals.Waiting, c.Approvals.PerPrincipal = asked, asked
	}})
	other := w.plain("modern")
	alone := tailOf(other, 3*time.Second)

	var callers []*visitor
	var welcome, heard atomic.Int64
	var begun [asked]time.Time
	took := make(chan time.Duration, asked*each)
	number := regexp.MustCompile(`"arguments":\{"n":(\d+)\}`)
	for n := range people * each {
		v := w.visitor("modern", mcptest.Claims{"sub": "person-" + strconv.Itoa(n%people), "client_id": "agent-" + strconv.Itoa(n/people)})
		if n < people {
			callers = append(callers, v)
		}
		stream := v.stream(listensToUs)
		stream.lines.Buffer(nil, 1<<20)
		go func() {
			for stream.lines.Scan() {
				if strings.Contains(stream.lines.Text(), "notifications/welcome") {
					welcome.Add(1)
				} else if m := number.FindStringSubmatch(stream.lines.Text()); m != nil {
					n, _ := strconv.Atoi(m[1])
					took <- time.Since(begun[n])
					heard.Add(1)
				}
			}
		}()
	}
	mcptest.Until(t, "all are welcome", func() bool { return welcome.Load() == people*each })

	var beside []time.Duration
	var measured sync.WaitGroup
	measured.Go(func() { beside = tailOf(other, seconds*time.Second) })
	for n, ticks := 0, time.NewTicker(time.Second/perSecond); n < asked; n++ {
		<-ticks.C
		begun[n] = time.Now()
		t.Cleanup(callers[n%people].waits("confirm", fmt.Sprintf(`{"n":%d}`, n)).leave)
	}
	measured.Wait()
	mcptest.Until(t, "all have heard", func() bool { return heard.Load() == asked*each })
	close(took)
	all, late := []time.Duration{}, 0
	for d := range took {
		if all = append(all, d); d > 5*time.Second {
			late++
		}
	}
	slices.Sort(all)
	t.Logf("half have heard after %v, the last after %v, and %d of %d later than 5 s", all[len(all)/2], all[len(all)-1], late, len(all))
	t.Logf("of 100 calls of another the slowest takes %v alone, and %v beside them", slowest(alone), slowest(beside))
	if late > 0 || slowest(beside) > 3*slowest(alone) {
		t.Error("a bound is broken")
	}
}

// tailOf is how long the calls of a client take that comes again 20 times a second, for so long.
func tailOf(v *visitor, during time.Duration) (all []time.Duration) {
	ticks := time.NewTicker(time.Second / 20)
	defer ticks.Stop()
	for end := time.Now().Add(during); time.Now().Before(end); <-ticks.C {
		begun := time.Now()
		if got := v.call("free", `{}`); !got.ran() {
			v.s.t.Error(got)
		}
		all = append(all, time.Since(begun))
	}
	return all
}

// slowest is the slowest of 100.
func slowest(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)*99/100]
}
