package mcp_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
	"policy-service/pdp/pdptest/clock"
)

// tardy stands before a PDP, and holds questions back while it is told to. It then asks the PDP all the same, also for those
// who have given up.
type tardy struct {
	honest string
	came   chan struct{} // a question is held back
	done   sync.WaitGroup

	mu   sync.Mutex
	held chan struct{} // nil: none are held
}

func newTardy() *tardy { return &tardy{came: make(chan struct{}, 1024)} }

func (l *tardy) before(t testing.TB) func(string) string {
	return func(honest string) string {
		l.honest = honest
		s := httptest.NewServer(http.HandlerFunc(l.serve))
		t.Cleanup(func() { l.letGo(); s.Close() })
		return s.URL
	}
}

func (l *tardy) hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = make(chan struct{})
}

// letGo has all questions that are held asked, and those that come.
func (l *tardy) letGo() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held != nil {
		close(l.held)
	}
	l.held = nil
}

func (l *tardy) serve(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	held := l.held
	l.done.Add(1)
	l.mu.Unlock()
	defer l.done.Done()
	question, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if held != nil {
		l.came <- struct{}{}
		<-held
	}
	on, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, l.honest+r.URL.RequestURI(), bytes.NewReader(question))
	if err != nil {
		return
	}
	on.Header = r.Header.Clone()
	answer, err := http.DefaultTransport.RoundTrip(on)
	if err != nil {
		return
	}
	defer func() { _ = answer.Body.Close() }()
	for name, values := range answer.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.StatusCode)
	_, _ = io.Copy(w, answer.Body)
}

// D42: a PDP that takes longer than it may has said nothing, though its yes is on record. What it is asked about is refused,
// and stays so when the yes comes.
func TestSlowPDP(t *testing.T) {
	t.Parallel()
	l := newTardy()
	s := newSiege(t, camp{before: l.before(t), change: func(c *mcp.Config) { c.PDP.Timeout, c.PDP.Breaker.Failures = 500*time.Millisecond, 1000 }})
	all := []*visitor{s.visitor("legacy", nil), s.visitor("modern", nil)}
	l.hold()
	var asking sync.WaitGroup
	for _, v := range all {
		asking.Go(func() {
			if got := v.call("look", `{"marker":"slow `+v.era+`"}`); got.code() != -32603 || got.status != http.StatusOK || !strings.Contains(got.text, `"retry_after"`) {
				t.Errorf("%s: %s", v.era, got)
			}
		})
		for _, method := range []string{"tools/list", "prompts/list", "resources/list", "resources/templates/list"} {
			asking.Go(func() {
				if got := v.ask(method, `{}`); got.result != nil || got.code() != -32603 {
					t.Errorf("%s, %s: %s", v.era, method, got)
				}
			})
		}
	}
	asking.Wait()
	s.untouched(t)
	l.letGo()
	l.done.Wait()
	for _, v := range all {
		mcptest.Until(t, "calls pass again", func() bool { return v.call("look", `{"marker":"after"}`).ran() })
	}
	isAfter := func(marker string) bool { return marker == "after" }
	if got, want := slices.DeleteFunc(s.permitted(), isAfter), []string{"slow legacy", "slow modern"}; !slices.Equal(got, want) {
		t.Errorf("permits on record are %q", got)
	}
	if got := slices.DeleteFunc(s.markers(), isAfter); len(got) > 0 {
		t.Errorf("the server got %q", got)
	}
}

// When it is time to ask again, one question is asked. As long as it has no answer, all others are refused.
func TestOneQuestionTriesAgain(t *testing.T) {
	t.Parallel()
	l, c, away := newTardy(), clock.New(), atomic.Bool{}
	var liar *mcptest.Liar
	s := newSiege(t, camp{now: c.Now,
		before: func(pdp string) string {
			liar = mcptest.NewLiar(t, l.before(t)(pdp), func(int64) string {
				if away.Load() {
					return "connection: is reset"
				}
				return ""
			})
			return liar.URL
		},
		change: func(c *mcp.Config) { c.PDP.Timeout, c.PDP.Breaker.Failures = time.Minute, 2 },
	})
	all := []*visitor{s.visitor("legacy", nil), s.visitor("modern", nil)}
	for range 2 {
		away.Store(true)
		for _, v := range all {
			v.call("look", `{}`).refused(t, -32603, "", "", v.era)
		}
		away.Store(false)
		l.hold()
		c.Advance(time.Minute)
		first := make(chan echo)
		go func() { first <- all[0].call("look", `{}`) }()
		<-l.came
		before := liar.Asked()
		var others sync.WaitGroup
		for n := range 32 {
			others.Go(func() {
				if got := all[n%2].call("look", `{}`); got.code() != -32603 || got.status != http.StatusOK {
					t.Errorf("beside the first: %s", got)
				}
			})
		}
		others.Wait()
		if n := liar.Asked() - before; n != 0 {
			t.Errorf("%d more were asked", n)
		}
		l.letGo()
		(<-first).runs(t, "the first:")
		for _, v := range all {
			if got := v.call("look", `{}`); !got.ran() {
				t.Errorf("%s, after it: %s", v.era, got)
			}
		}
	}
}

// modelBreaker is when a PDP is asked: not after so many failures in a row, until a time has passed, and then once.
type modelBreaker struct {
	most, failures int
	coolDown       time.Duration
	open           bool
	since          time.Time
}

func (m *modelBreaker) asks(now time.Time) bool { return !m.open || now.Sub(m.since) >= m.coolDown }

func (m *modelBreaker) answered(now time.Time, failed bool) {
	if !failed {
		m.open, m.failures = false, 0
		return
	}
	if m.failures++; m.open || m.failures >= m.most {
		m.open, m.failures, m.since = true, 0, now
	}
}

// D42: a PDP that is there and away in turns is asked when the breaker has it, and a call goes on if and only if it has said
// yes to it.
func TestFlappingPDP(t *testing.T) {
	t.Parallel()
	steps := 1500
	if testing.Short() {
		steps = 500
	}
	const seed = 42
	r, c := rand.New(rand.NewPCG(seed, seed)), clock.New()
	m := modelBreaker{most: 3, coolDown: 10 * time.Second}
	var lie atomic.Value // a string
	lie.Store("")
	var liar *mcptest.Liar
	s := newSiege(t, camp{now: c.Now,
		before: func(pdp string) string {
			liar = mcptest.NewLiar(t, pdp, func(int64) string { return lie.Load().(string) })
			return liar.URL
		},
		change: func(c *mcp.Config) { c.PDP.Breaker.Failures, c.PDP.Breaker.CoolDown = int64(m.most), m.coolDown },
	})
	all := []*visitor{s.visitor("legacy", nil), s.visitor("modern", nil)}
	states := []string{"", "", "", "envelope: 503", "connection: is reset", "body: twice, true last", "body: empty", "body: string verdict", "envelope: 401", "envelope: 429", "envelope: 400"}
	var ran []string
	seen := map[string]int{}
	for n := range steps {
		switch r.IntN(4) {
		case 0:
			lie.Store(states[r.IntN(len(states))])
		case 1:
			c.Advance(time.Duration(r.Int64N(int64(m.coolDown / 2))))
		}
		asks, probes, before := m.asks(c.Now()), m.open, liar.Asked()
		marker := fmt.Sprintf("f%d", n)
		got := all[r.IntN(2)].call("look", `{"marker":"`+marker+`"}`)
		if asked := liar.Asked()-before == 1; asked != asks {
			t.Fatalf("step %d: asked %d times, and it is %t that it asks", n, liar.Asked()-before, asks)
		}
		want, code := "refused without asking", -32603
		switch {
		case !asks:
		case lie.Load() == "":
			want, code = "ran", 0
			ran = append(ran, marker)
		case lie.Load() == "envelope: 400": // the PDP is there, and finds fault with the question
			want, code = "not taken", -32602
		default:
			want = "refused"
		}
		if got.code() != code || got.ran() != (code == 0) || got.status != http.StatusOK {
			t.Fatalf("step %d, %q: %s, and it is to be %s", n, lie.Load(), got, want)
		}
		if err := s.gateway.Ready(); (err != nil) != (code == -32603) {
			t.Fatalf("step %d, %q: ready is %v", n, lie.Load(), err)
		}
		if asks {
			m.answered(c.Now(), want == "refused")
		}
		seen[fmt.Sprintf("%s, while it tries again %t", want, probes && asks)]++
	}
	slices.Sort(ran)
	if forwarded := s.markers(); !slices.Equal(forwarded, ran) {
		t.Errorf("%d were forwarded, and %d ran", len(forwarded), len(ran))
	}
	if permitted := s.permitted(); !slices.Equal(permitted, ran) {
		t.Errorf("%d have a permit on record, and %d ran", len(permitted), len(ran))
	}
	if len(seen) != 7 {
		t.Errorf("not everything has happened: %v", seen)
	}
}
