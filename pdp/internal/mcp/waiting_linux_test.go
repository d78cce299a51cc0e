package mcp_test

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/pdptest/mcptest"
	"policy-service/pdp/pdptest/night"
)

// watchCounter counts who watches the PDP, in front of it.
type watchCounter struct {
	*wiretap

	mu              sync.Mutex
	open, most, sum int
}

func newWatchCounter(t testing.TB) *watchCounter {
	w := &watchCounter{wiretap: newWiretap(t)}
	w.answers(func(rw http.ResponseWriter, r *http.Request, _ []byte) bool {
		if !watches(r) {
			return false
		}
		w.add(1)
		defer w.add(-1)
		w.proxy.ServeHTTP(rw, r)
		return true
	})
	return w
}

func (w *watchCounter) add(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open += n
	w.most = max(w.most, w.open)
	w.sum += max(n, 0)
}

func (w *watchCounter) counts() (open, most, all int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open, w.most, w.sum
}

// rss is what a process has of the memory, in bytes.
func rss(t testing.TB, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	orFail(t, err)
	_, after, _ := strings.Cut(string(text), "VmRSS:")
	number, _, _ := strings.Cut(strings.TrimSpace(after), " ")
	n, err := strconv.Atoi(number)
	orFail(t, err)
	return n << 10
}

const (
	// mostWaitingMemory is the most memory that 2,000 calls that wait may take. They hold some 65 MB; the collector lets the
	// process have about twice its heap, and stacks come on top. It was 120 MB while the gateway called the collector itself.
	mostWaitingMemory = 256_000_000
	// mostUntilEnded is how long it may be until a call has ended whose client has gone, and mostUntilAllEnded if all go: a
	// test's machine has other things to do then.
	mostUntilEnded    = time.Second
	mostUntilAllEnded = 5 * time.Second
)

// 120 calls wait at once in a gateway: half of them show a form, on their own streams, and half wait for an operator. All of
// them have one watch of the PDP.
func TestWaiting(t *testing.T) {
	t.Parallel()
	waitAtOnce(t, 120, false)
}

// 2,000 calls that wait take no more memory than they may, and end soon after their clients have gone.
func TestWaiting2000(t *testing.T) {
	night.Measures(t)
	var files unix.Rlimit
	orFail(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &files))
	if files.Cur < 8*2000 {
		t.Skipf("a process may have no more than %d files open; run ulimit -n 32768 before", files.Cur)
	}
	waitAtOnce(t, 2000, true)
}

// waitAtOnce has so many calls come as fast as they are taken, and wait at once in a gateway that is a process of its own.
func waitAtOnce(t *testing.T, many int, measured bool) {
	const principals = 20
	seen := newWatchCounter(t)
	w := newPeople(t, land{before: seen.before, serve: seen.serve})
	p := startGateway(t, fmt.Appendf(nil, `listen: 127.0.0.1:0
resource: %s
pdp: {url: %q, timeout: 30s, key_file: %q}
identity: {issuers: [{issuer: %q, algorithms: [ES256], jwks_file: %q}]}
upstreams: {rec: {url: %q, allow_networks: [127.0.0.0/8, "::1/128"]}}
limits: {rate: 1000000/s, burst: 1000000, max_connections: 8192, per_principal: {concurrent: 1000}}
approvals: {per_principal: %d, waiting: %d}
`, siegeResource, w.config.PDP.URL, w.config.PDP.KeyFile, w.issuer.URL, w.issuer.KeysFile(t), w.rec.URL, many, many))
	s := *w.siege
	s.url = "http://" + p.addr + mcp.Endpoint
	var modern, legacy []*visitor
	for n := range principals {
		who := mcptest.Claims{"sub": fmt.Sprintf("person-%d", n)}
		modern, legacy = append(modern, s.visitor("modern", who)), append(legacy, s.listener(who))
	}
	warming := 1
	if measured {
		warming = 20
	}
	for range warming { // so that it has its buffers, and its ways to the PDP and to the server
		for _, v := range append(modern, legacy...) {
			if got := v.call("free", `{}`); !got.ran() {
				t.Fatal(got)
			}
		}
	}
	rest := p.holds()
	call := func(n int) *waiter {
		arguments := fmt.Sprintf(`{"n":%d}`, n)
		if n%2 == 0 {
			return modern[n%principals].waits("second-person", arguments)
		}
		return legacy[n%principals].waits("confirm", arguments)
	}
	var first []*waiter
	for n := range many / 20 { // they come again with all the others
		first = append(first, call(n))
	}
	p.until(len(first))
	for _, one := range first {
		one.leave()
	}
	p.until(0)
	free, before := len(w.rec.Executed()), rss(t, p.pid)

	begun := time.Now()
	var calls sync.WaitGroup
	var ran, again atomic.Int64
	var leave []func()
	entering := make(chan struct{}, 64)
	for n := range many {
		over := make(chan struct{})
		leave = append(leave, sync.OnceFunc(func() { close(over) }))
		calls.Go(func() {
			for {
				entering <- struct{}{}
				one := call(n)
				if measured { // a bit apart
					time.AfterFunc(50*time.Millisecond, func() { <-entering })
				} else {
					<-entering
				}
				select {
				case <-over:
					one.leave()
					return
				case got := <-one.ended:
					switch {
					case got.ran():
						ran.Add(1)
						return
					case got.required(): // it goes on waiting, as a client does whose machine is slow
						again.Add(1)
					default:
						t.Errorf("%d: %s", n, got)
						return
					}
				}
			}
		})
	}
	p.until(many)
	filled, peak := time.Since(begun), rss(t, p.pid)
	during := peak
	if measured {
		mcptest.Until(t, "they take no more than they may", func() bool {
			during = min(during, rss(t, p.pid))
			return during-before <= mostWaitingMemory
		})
	}
	held := p.holds()
	t.Logf("%d wait after %v, %d of them sent again; rss %d MiB more, %d MiB as they came; %+v, before %+v",
		many, filled, again.Load(), (min(during, rss(t, p.pid))-before)>>20, (peak-before)>>20, held, rest)
	open, most, all := seen.counts()
	if most > 2 || open > 1 { // one that has ended is counted until it has left
		t.Errorf("%d watches, %d at a time, %d in all", open, most, all)
	}
	if forwarded := len(w.rec.Executed()) - free; forwarded > 0 {
		t.Errorf("%d were forwarded", forwarded)
	}

	const approved = 20
	begun = time.Now()
	for _, id := range w.inbox("mia", "second-person", approved) {
		w.approve("mia", id)
	}
	mcptest.Until(t, "those go on that are approved", func() bool { return ran.Load() == approved })
	heard := time.Since(begun)
	if now := rss(t, p.pid) - before; measured && now > mostWaitingMemory {
		t.Errorf("they take %d MiB again", now>>20)
	}

	begun = time.Now()
	leave[1]()
	mcptest.Until(t, "one has left", func() bool { return p.waiting() < many-approved })
	one := time.Since(begun)
	begun = time.Now()
	for _, goes := range leave {
		goes()
	}
	calls.Wait()
	p.until(0)
	ended := time.Since(begun)
	t.Logf("%d were approved and ran within %v; one had left after %v, all after %v; %d watches one after the other", approved, heard, one, ended, all)
	if measured && (one > mostUntilEnded || ended > mostUntilAllEnded) {
		t.Error("they do not end with their clients")
	}
	if forwarded := w.forwarded("second-person"); len(forwarded) != approved || len(w.rec.Executed()) != free+approved {
		t.Errorf("%d were forwarded of %d that are approved", len(forwarded), approved)
	}
	mcptest.Until(t, "all is as before", func() bool {
		h := p.holds()
		return h.connections <= rest.connections+8 && h.goroutines <= 2*rest.goroutines
	})
	mcptest.Until(t, "nobody watches", func() bool { open, _, _ := seen.counts(); return open == 0 })
}

// until waits until so many calls wait. To be asked costs the gateway memory, so it is asked now and then.
func (p *gatewayProcess) until(n int) {
	p.tb.Helper()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for end := time.After(floodPatience); p.waiting() != n; {
		select {
		case <-again.C:
		case <-end:
			p.tb.Fatalf("in %v it is not so that %d wait: %d do", floodPatience, n, p.waiting())
		}
	}
}

// inbox is what somebody is asked.
func (w *world) inbox(who, template string, most int) (ids []string) {
	w.t.Helper()
	got := w.api(who, http.MethodGet, fmt.Sprintf("/v1/approvals?template=%s&limit=%d", template, most), "")
	var page struct {
		Items []struct{ ID string } `json:"items"`
	}
	orFail(w.t, json.Unmarshal([]byte(got.Body), &page, json.MatchCaseInsensitiveNames(true)))
	for _, one := range page.Items {
		ids = append(ids, one.ID)
	}
	if len(ids) != most {
		w.t.Fatalf("%s is asked %d times: %s", who, len(ids), got.Body)
	}
	return ids
}
