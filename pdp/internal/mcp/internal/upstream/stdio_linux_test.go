package upstream_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"policy-service/pdp/internal/mcp/internal/upstream"
	"policy-service/pdp/pdptest/mcptest"
)

// runs reports whether a process runs, and is no zombie.
func runs(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	_, after, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(after, "Z")
}

func TestCommandChildHasOnlyWhatIsConfigured(t *testing.T) {
	t.Setenv("GATEWAY_SECRET", "hunter2")
	inherited, err := syscall.Open(self()[0], syscall.O_RDONLY, 0) // without O_CLOEXEC, as if a parent had left it open
	mcptest.Must(t, err)
	defer func() { _ = syscall.Close(inherited) }()
	for _, env := range []map[string]string{nil, {"ONLY": "this = that", "EMPTY": ""}} {
		s := open(t, newChild(t, "raw", func(o *upstream.CommandOptions) { o.Env = env }))
		got, err := textOf(s, "environ")
		mcptest.Must(t, err)
		found := map[string]string{}
		for line := range strings.SplitSeq(strings.TrimSuffix(got, "\x00"), "\x00") {
			if name, value, ok := strings.Cut(line, "="); ok {
				found[name] = value
			}
		}
		if !maps.Equal(found, env) && len(found)+len(env) > 0 {
			t.Errorf("the environment is %q", got)
		}
		got, err = textOf(s, "descriptors")
		if err != nil || strings.Count(got, "pipe:") != 3 || strings.Contains(got, self()[0]) {
			t.Errorf("it has the descriptors %s, %v", got, err)
		}
	}
}

func TestCommandEndsTheWholeGroup(t *testing.T) {
	for _, kind := range []string{"raw", "stubborn"} {
		t.Run(kind, func(t *testing.T) {
			u := newChild(t, kind, func(o *upstream.CommandOptions) { o.Stop = 200 * time.Millisecond })
			s := open(t, u)
			pid, err := textOf(s, "pid")
			mcptest.Must(t, err)
			sleeper, err := textOf(s, "fork")
			mcptest.Must(t, err)
			if !runs(pid) || !runs(sleeper) {
				t.Fatal("they do not run")
			}
			s.Close()
			mcptest.Until(t, "both ended", func() bool { return !runs(pid) && !runs(sleeper) })
			var e *upstream.Error
			if _, err := s.Send(t.Context(), request("well", "")); !errors.As(err, &e) || !e.Gone {
				t.Error(err)
			}
		})
	}
}

func TestCommandChildDiesWithTheGateway(t *testing.T) {
	for _, kind := range []string{"raw", "stubborn"} {
		gateway, pid := startGateway(t, nil, kind, "pid")
		if !runs(pid) {
			t.Error("the child does not run")
		}
		_ = gateway.Kill()
		mcptest.Until(t, "the child died", func() bool { return !runs(pid) })
	}
}

// TestCommandLeavesNoZombiesToTheFirstProcess has a gateway that is alone in its container: all who lose their parent are its
// children.
func TestCommandLeavesNoZombiesToTheFirstProcess(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root makes a process the first of its own; run it as root")
	}
	gateway, _ := startGateway(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}, "raw", "fork")
	if n := children(t, gateway.Pid); n != 0 {
		t.Errorf("it has %d children", n)
	}
}

// startGateway starts a gateway as a process of its own, which has a child do something, and returns what the child said.
func startGateway(t *testing.T, attr *syscall.SysProcAttr, kind, do string) (gateway *os.Process, said string) {
	t.Helper()
	program := self("gateway", kind, do)
	c := exec.Command(program[0], program[1:]...)
	c.SysProcAttr = attr
	out, err := c.StdoutPipe()
	mcptest.Must(t, err)
	mcptest.Must(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	mcptest.Must(t, err)
	return c.Process, strings.TrimSpace(line)
}

// children is how many children a process has, zombies among them.
func children(t *testing.T, of int) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	mcptest.Must(t, err)
	for _, e := range entries {
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if _, after, ok := strings.Cut(string(stat), ") "); err == nil && ok && strings.Fields(after)[1] == strconv.Itoa(of) {
			n++
		}
	}
	return n
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	mcptest.Must(t, err)
	return len(entries)
}

// TestCommandLeaksNothing has children die in every way, and their sessions left in each. It takes some seconds: each child is
// a process.
func TestCommandLeaksNothing(t *testing.T) {
	u := newChild(t, "raw", func(o *upstream.CommandOptions) {
		o.Stop, o.Timeout, o.MaxResult = 100*time.Millisecond, 3*time.Second, 64<<10
	})
	open(t, u).Close()
	mcptest.Until(t, "the first child is gone", func() bool { return children(t, os.Getpid()) == 0 })
	goroutines, files := runtime.NumGoroutine(), descriptors(t)
	ways := []string{"exit", "abort", "answer-and-exit", "half", "close", "endless", "fork-and-exit", "fork", "stop", "deaf", "silence", "ask", "well", "ask-often"}
	var workers sync.WaitGroup
	work := make(chan int)
	for range 8 {
		workers.Go(func() {
			for n := range work {
				dieOnce(t, u, fmt.Sprint("principal", n), ways[n%len(ways)], n%3)
			}
		})
	}
	times := 5 * len(ways) * 3
	if testing.Short() { // each way with each how
		times = len(ways) * 3
	}
	for n := range times {
		work <- n
	}
	close(work)
	workers.Wait()
	mcptest.Must(t, u.Close())
	if n := children(t, os.Getpid()); n != 0 {
		t.Errorf("%d children are left", n)
	}
	mcptest.Until(t, "all goroutines ended", func() bool { return runtime.NumGoroutine() <= goroutines })
	if n := descriptors(t); n > files {
		t.Errorf("%d descriptors, and there were %d", n, files)
	}
}

// dieOnce opens a session and has its child die. How is how the session is left: closed, its stream closed, or as it is.
func dieOnce(t *testing.T, u upstream.Upstream, principal, way string, how int) {
	s, err := u.Open(t.Context(), upstream.Client{Principal: principal})
	if err != nil {
		t.Error(err)
		return
	}
	_, _ = s.Listen(t.Context())
	stream, err := s.Send(t.Context(), request(way, ""))
	if err != nil {
		return
	}
	switch how {
	case 0:
		s.Close()
	case 1:
		stream.Close()
	}
	for err == nil {
		var ended error
		if _, ended = stream.Next(); errors.Is(ended, io.EOF) {
			break
		}
		if err = ended; way == "ask" && how == 2 {
			break // nobody answers, and it waits for ever
		}
	}
}
