package mcp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"policy-service/pdp"
	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/mcp"
	pdpserver "policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest/clock"
	"policy-service/pdp/pdptest/mcptest"
)

// pdpProcess is a PDP in a process of its own: the tests' program again, which serves until its input ends. It can be
// stopped and killed as no PDP in the tests' own process can. Each start is by the same address, and on the same log.
type pdpProcess struct {
	*mortal
	url, data string
}

const pdpChild = "MCP_TEST_PDP"

func init() { isChild(pdpChild, servePDP) }

func servePDP(listen string) error {
	return serveUntilInputEnds(pdpserver.Config{
		Program: pdpserver.Program{Source: pdp.Dir(os.Getenv("POLICIES")), Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))},
		Listen:  listen, Data: os.Getenv("DATA"), DecisionLog: pdpserver.DecisionLogConfig{Mode: decisionlog.Strict},
	})
}

// isChild does not return in a process that was started as such a child: it does what a child does with the variable's value.
func isChild(variable string, does func(string) error) {
	value := os.Getenv(variable)
	if value == "" {
		return
	}
	if err := does(value); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serveUntilInputEnds is a PDP that says where it listens, and ends when its input does.
func serveUntilInputEnds(c pdpserver.Config) error {
	s, err := pdpserver.New(c)
	if err != nil {
		return err
	}
	if err := s.Start(context.Background()); err != nil {
		return err
	}
	fmt.Println(s.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	return s.Stop(context.Background())
}

func newPDPProcess(t testing.TB, policies map[string]string) *pdpProcess {
	t.Helper()
	p, bundle, at := &pdpProcess{data: mcptest.QuickDir(t)}, t.TempDir(), heldAddress(t)
	for name, text := range policies {
		orFail(t, os.WriteFile(filepath.Join(bundle, name), []byte(text), 0o600))
	}
	p.url = "http://" + at
	p.mortal = newMortal(t, at, pdpChild+"="+at, "POLICIES="+bundle, "DATA="+p.data)
	return p
}

// heldAddress is an address of this machine that is given to nobody else until the test ends: the socket that holds it does
// not listen, and lets one that asks for this very port have it.
func heldAddress(t testing.TB) string {
	t.Helper()
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	orFail(t, err)
	t.Cleanup(func() { _ = unix.Close(socket) })
	orFail(t, unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
	orFail(t, unix.Bind(socket, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	at, err := unix.Getsockname(socket)
	orFail(t, err)
	return fmt.Sprintf("127.0.0.1:%d", at.(*unix.SockaddrInet4).Port)
}

// startSelf starts the tests' program as something else, and returns when that has said where it listens.
func startSelf(t testing.TB, said io.Writer, variables ...string) (c *exec.Cmd, in io.WriteCloser, out *bufio.Reader, addr string) {
	t.Helper()
	c = exec.Command(os.Args[0])
	c.Env, c.Stderr = append(os.Environ(), variables...), said
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // one that is stopped would stay when we are gone
	in, err := c.StdinPipe()
	orFail(t, err)
	output, err := c.StdoutPipe()
	orFail(t, err)
	orFail(t, c.Start())
	out = bufio.NewReader(output)
	if addr, err = out.ReadString('\n'); err != nil {
		t.Fatalf("it does not start: %v\n%s", err, said)
	}
	return c, in, out, strings.TrimSpace(addr)
}

// suspend stops it with SIGSTOP, and returns when none of its threads runs.
func (p *pdpProcess) suspend() {
	p.t.Helper()
	orFail(p.t, p.command.Process.Signal(unix.SIGSTOP))
	for {
		err := unix.Waitid(unix.P_PID, p.command.Process.Pid, nil, unix.WSTOPPED, nil)
		if !errors.Is(err, unix.EINTR) {
			orFail(p.t, err)
			return
		}
	}
}

func (p *pdpProcess) resume() {
	p.t.Helper()
	orFail(p.t, p.command.Process.Signal(unix.SIGCONT))
}

// stop has it end by itself, with all that it was asked on record.
func (p *pdpProcess) stop() {
	p.t.Helper()
	p.mortal.stop()
	if report := verify.Directory(p.data, verify.Options{}); !report.Verified() {
		p.t.Errorf("its log: %v: %v", report.Code, report.Problem)
	}
}

// besieged is a siege whose PDP is the process.
func (p *pdpProcess) besieged(c camp) *siege {
	p.t.Helper()
	c.before = func(string) string { return p.url }
	s := newSiege(p.t, c)
	s.data = p.data
	return s
}

// hasty is the way to a PDP that gives up what is asked of it half a second after the PDP has gone, and else waits.
type hasty struct {
	http.RoundTripper
	gone atomic.Pointer[context.Context] // ends when the PDP goes
}

// back has it wait until away is called.
func (h *hasty) back() (away func()) {
	gone, away := context.WithCancel(context.Background())
	h.gone.Store(&gone)
	return away
}

func (h *hasty) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, giveUp := context.WithCancelCause(r.Context())
	stay := context.AfterFunc(*h.gone.Load(), func() {
		time.AfterFunc(500*time.Millisecond, func() { giveUp(context.DeadlineExceeded) })
	})
	context.AfterFunc(r.Context(), func() { stay() })
	return h.RoundTripper.RoundTrip(r.WithContext(ctx))
}

// load are clients of both eras that call without a pause, each call with a marker of its own.
type load struct {
	s       *siege
	workers []*visitor
	calls   atomic.Int64
	ran     atomic.Int64
	away    atomic.Bool // no answer of the PDP can come to a call that begins now
	refused chan string // the markers of calls that were refused for want of the PDP

	mu       sync.Mutex
	outcomes map[string]echo
}

const loaders = 8

func newLoad(s *siege) *load {
	s.t.Helper()
	l := &load{s: s, refused: make(chan string, 1<<16), outcomes: map[string]echo{}}
	for n := range loaders {
		l.workers = append(l.workers, s.visitor(eras[n%2], nil))
	}
	return l
}

// call makes one call, and holds its answer to what may be said. Every fifth is one that policies deny.
func (l *load) call(v *visitor) (e echo) {
	n := l.calls.Add(1)
	marker, away := fmt.Sprintf("m%d", n), l.away.Load()
	e = v.call("look", fmt.Sprintf(`{"marker":"%s","n":%d}`, marker, n%5))
	switch {
	case e.ran() && !away && n%5 != 3:
		l.ran.Add(1)
	case e.code() == -32603 && e.status == 200 && e.result == nil && e.kind() == "tool_call_blocked" && strings.Contains(e.text, `"retry_after"`):
		l.refused <- marker
	case e.code() == -32001 && !away && n%5 == 3:
	default:
		l.s.t.Errorf("%s, while the PDP is away %t: %s", marker, away, e)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.outcomes[marker] = e
	return e
}

// judge holds what was forwarded to what callers were told, and to the log of the PDP, which has ended. It returns the calls
// that were permitted, and whose permit did not reach the gateway.
func (l *load) judge(t testing.TB) (lost []string) {
	t.Helper()
	var ran []string
	for marker, e := range l.outcomes {
		if e.ran() {
			ran = append(ran, marker)
		}
	}
	slices.Sort(ran)
	forwarded := l.s.markers()
	if !slices.Equal(ran, forwarded) {
		t.Errorf("%d calls ran for their callers, and %d were forwarded", len(ran), len(forwarded))
	}
	permitted := l.s.permitted()
	for _, marker := range forwarded {
		if _, has := slices.BinarySearch(permitted, marker); !has {
			t.Errorf("%s was forwarded, and no permit is on record", marker)
		}
	}
	for _, marker := range permitted {
		if _, went := slices.BinarySearch(forwarded, marker); went {
			continue
		}
		if e := l.outcomes[marker]; e.code() != -32603 {
			t.Errorf("%s has a permit on record, was not forwarded, and its caller was told %s", marker, e)
		}
		lost = append(lost, marker)
	}
	return lost
}

const exceptThree = `permit(principal, action, resource) unless { action == Action::"tool.invoke" && context.arguments.n == 3 };`

// A PDP that is stopped in the midst of questions answers none of them: calls are refused, lists are errors, and what it
// says when it goes on is too late for all that were asked before.
// It takes some seconds: the time for questions to a PDP that does not answer passes several times.
func TestPDPIsStopped(t *testing.T) {
	t.Parallel()
	p, c := newPDPProcess(t, map[string]string{"a.cedar": exceptThree}), clock.New()
	const coolDown = 10 * time.Second
	network := mcp.NewTransport()
	t.Cleanup(network.CloseIdleConnections)
	way := &hasty{RoundTripper: network}
	away := way.back()
	s := p.besieged(camp{now: c.Now, deps: mcp.Deps{Transport: way}, change: func(c *mcp.Config) {
		c.PDP.Breaker.Failures, c.PDP.Breaker.CoolDown = 3, coolDown
	}})
	l := newLoad(s)
	begun := make(chan struct{})
	var all sync.WaitGroup
	for _, v := range l.workers {
		all.Go(func() {
			for n := 0; ; n++ {
				if n == 10 {
					begun <- struct{}{}
				}
				late := l.away.Load()
				if l.call(v); late {
					return
				}
			}
		})
	}
	for range loaders {
		<-begun
	}
	p.suspend()
	away()
	underWay := <-l.refused // it was asked before it is said that the PDP is away
	l.away.Store(true)
	all.Wait()
	if !strings.Contains(s.logs.String(), "nothing was sent") {
		t.Error("the breaker did not open")
	}
	if err := s.gateway.Ready(); err == nil {
		t.Error("it is ready, and its PDP is stopped")
	}
	for n, v := range l.workers[:2] { // of either era: one question that the breaker lets through, and then none
		c.Advance(coolDown)
		for _, method := range [][]string{{"tools/list", "prompts/list", "resources/list", "resources/templates/list"}, {"prompts/list", "tools/list"}}[n] {
			if got := v.ask(method, `{}`); got.result != nil || got.code() != -32603 {
				t.Errorf("%s, %s: %s", v.era, method, got)
			}
		}
		l.call(v)
	}
	before := len(s.markers())
	p.resume()
	way.back()
	l.away.Store(false)
	for _, v := range l.workers {
		mcptest.Until(t, "calls pass again", func() bool { c.Advance(coolDown); return l.call(v).ran() })
	}
	if err := s.gateway.Ready(); err != nil {
		t.Error(err)
	}
	if got := len(s.markers()); got < before+loaders {
		t.Errorf("%d were forwarded while the PDP was stopped, and after that %d", before, got)
	}
	p.stop()
	lost := l.judge(t)
	t.Logf("%d calls, %d of them ran; %s was under way; the PDP said yes to %d too late", l.calls.Load(), l.ran.Load(), underWay, len(lost))
}

// A PDP that is killed under load, again and again, has a permit on record for whatever was forwarded.
// It takes some seconds: the PDP is a process, and is started again and again.
func TestPDPIsKilled(t *testing.T) {
	t.Parallel()
	rounds := 5
	if testing.Short() {
		rounds = 2
	}
	p := newPDPProcess(t, map[string]string{"a.cedar": exceptThree})
	s := p.besieged(camp{change: func(c *mcp.Config) { c.PDP.Breaker.Failures = 1000 }})
	l := newLoad(s)
	for round := range rounds {
		left := l.ran.Load() + 100 + 17*int64(round)
		var all sync.WaitGroup
		for _, v := range l.workers {
			all.Go(func() {
				for {
					e := l.call(v)
					if l.ran.Load() >= left {
						_ = p.command.Process.Kill()
					}
					if e.code() == -32603 {
						return // until it is started again
					}
				}
			})
		}
		all.Wait()
		p.kill()
		l.away.Store(true)
		for _, v := range l.workers[:2] {
			l.call(v)
			if got := v.ask("tools/list", `{}`); got.result != nil || got.code() != -32603 {
				t.Errorf("%s: %s", v.era, got)
			}
		}
		p.start()
		l.away.Store(false)
		for _, v := range l.workers {
			mcptest.Until(t, "calls pass again", func() bool { return l.call(v).ran() })
		}
	}
	p.stop()
	lost := l.judge(t)
	if most := loaders * rounds; len(lost) > most {
		t.Errorf("%d calls were permitted and not forwarded, of %d that can have been under way", len(lost), most)
	}
	t.Logf("%d calls, %d of them ran, %d were refused for want of the PDP, of which it had permitted %d", l.calls.Load(), l.ran.Load(), len(l.refused), len(lost))
}
