package upstream_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
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

	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/upstream"
)

// patience is how long something may take that takes no time.
const patience = 20 * time.Second

// eventually waits until something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it never came that " + what)
		}
	}
}

// runs reports whether a process runs, and is no zombie.
func runs(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	_, after, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(after, "Z")
}

func linuxOnly(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("it reads /proc")
	}
}

func TestCommandChildHasOnlyWhatIsConfigured(t *testing.T) {
	linuxOnly(t)
	t.Setenv("GATEWAY_SECRET", "hunter2")
	inherited, err := syscall.Open(self()[0], syscall.O_RDONLY, 0) // without O_CLOEXEC, as if a parent had left it open
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(inherited) }()
	for _, env := range []map[string]string{nil, {"ONLY": "this = that", "EMPTY": ""}} {
		s := open(t, newChild(t, "raw", func(o *upstream.CommandOptions) { o.Env = env }))
		got, err := textOf(s, "environ")
		if err != nil {
			t.Fatal(err)
		}
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
	linuxOnly(t)
	for _, kind := range []string{"raw", "stubborn"} {
		t.Run(kind, func(t *testing.T) {
			u := newChild(t, kind, func(o *upstream.CommandOptions) { o.Stop = 200 * time.Millisecond })
			s := open(t, u)
			pid, err := textOf(s, "pid")
			if err != nil {
				t.Fatal(err)
			}
			sleeper, err := textOf(s, "fork")
			if err != nil {
				t.Fatal(err)
			}
			if !runs(pid) || !runs(sleeper) {
				t.Fatal("they do not run")
			}
			s.Close()
			eventually(t, "both ended", func() bool { return !runs(pid) && !runs(sleeper) })
			var e *upstream.Error
			if _, err := s.Send(t.Context(), request("well", "")); !errors.As(err, &e) || !e.Gone {
				t.Error(err)
			}
		})
	}
}

func TestCommandEndsAStoppedChild(t *testing.T) {
	u := newChild(t, "raw", func(o *upstream.CommandOptions) { o.Stop = 100 * time.Millisecond; o.Timeout = 300 * time.Millisecond })
	if _, err := textOf(open(t, u), "stop"); err == nil {
		t.Error("it was answered")
	}
	if err := u.Close(); err != nil {
		t.Error(err)
	}
	if n := children(t); n != 0 {
		t.Errorf("%d children", n)
	}
}

func TestCommandChildDiesWithTheGateway(t *testing.T) {
	linuxOnly(t)
	for _, kind := range []string{"raw", "stubborn"} {
		program := self("gateway", kind)
		gateway := exec.Command(program[0], program[1:]...)
		out, err := gateway.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := gateway.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		pid := strings.TrimSpace(line)
		if !runs(pid) {
			t.Error("the child does not run")
		}
		_ = gateway.Process.Kill()
		_ = gateway.Wait()
		eventually(t, "the child died", func() bool { return !runs(pid) })
	}
}

func TestCommandGreeting(t *testing.T) {
	refused := "-"
	for _, c := range []struct {
		kind string
		eras []era.Era
		want string
	}{
		{"raw", nil, "legacy"},
		{"silent", nil, "legacy"},
		{"exits", nil, "legacy"},
		{"no-id", nil, "legacy"},
		{"html", nil, "legacy"},
		{"any-result", nil, "legacy"},
		{"talks", nil, "legacy"},
		{"discovers-legacy", nil, "legacy"},
		{"other-modern-and-legacy", nil, "legacy"},
		{"modern", nil, "modern"},
		{"silent-refuses", nil, "modern"},
		{"other-modern", nil, refused},
		{"refuses", nil, refused},
		{"old", nil, refused},
		{"dies", nil, refused},
		{"raw", []era.Era{era.Modern}, refused},
		{"exits", []era.Era{era.Modern}, refused},
		{"exits", []era.Era{era.Legacy}, "legacy"}, // it is not asked
		{"modern", []era.Era{era.Modern}, "modern"},
	} {
		t.Run(fmt.Sprint(c.kind, c.eras), func(t *testing.T) {
			t.Parallel()
			u := newChild(t, c.kind, func(o *upstream.CommandOptions) { o.Eras = c.eras; o.Probe = time.Second })
			for range 2 { // the second time it is known
				s, err := u.Open(t.Context(), upstream.Client{Principal: "alice"})
				if c.want == refused {
					var e *upstream.Error
					if !errors.As(err, &e) {
						t.Fatalf("%v %v", s, err)
					}
					continue
				}
				if err != nil || s.Era().String() != c.want || !strings.Contains(string(s.Server()), `"capabilities"`) {
					t.Fatalf("%v %v", s, err)
				}
				if got, err := textOf(s, "well"); got != "well" {
					t.Errorf("%q %v", got, err)
				}
				s.Close()
			}
		})
	}
}

// TestCommandKeepsWhatComesAtOnce has a server ask before anybody can listen.
func TestCommandKeepsWhatComesAtOnce(t *testing.T) {
	var log syncBuffer
	u := newChild(t, "asks-at-once", func(o *upstream.CommandOptions) { o.Logger = slog.New(slog.NewJSONHandler(&log, nil)) })
	s := open(t, u)
	eventually(t, "it has asked", func() bool { return strings.Contains(log.String(), "I have asked") })
	listening, err := s.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if m, err := listening.Next(); err != nil || m.Method != "roots/list" {
		t.Errorf("%v %v", m, err)
	}
	if got := u.dropped.String(); got != "map[]" {
		t.Errorf("dropped %s", got)
	}
}

// TestCommandTellsServersWhoAsks has a server say what it was told.
func TestCommandTellsServersWhoAsks(t *testing.T) {
	u := newChild(t, "line-of-initialize")
	s, err := u.Open(t.Context(), upstream.Client{
		Principal:    "alice",
		Token:        "SECRET-TOKEN",
		Info:         []byte(`{"name":"inspector","version":"9"}`),
		Capabilities: []byte(`{"elicitation":{}}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	got := string(s.Server())
	want := `{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{\"elicitation\":{}},\"clientInfo\":{\"name\":\"inspector\",\"version\":\"9\"}}`
	if !strings.Contains(got, want) || strings.Contains(got, "SECRET") {
		t.Errorf("it was told %s", got)
	}
}

func TestCommandBacksOff(t *testing.T) {
	u := newChild(t, "dies")
	begun := time.Now()
	for range 4 { // after failures it waits 100, 200 and 400 ms
		if _, err := u.Open(t.Context(), upstream.Client{Principal: "alice"}); err == nil {
			t.Fatal("it was opened")
		}
	}
	if took := time.Since(begun); took < 700*time.Millisecond {
		t.Errorf("four failures within %v", took)
	}
	begun = time.Now()
	_, _ = u.Open(t.Context(), upstream.Client{Principal: "bob"})
	if took := time.Since(begun); took > 700*time.Millisecond {
		t.Errorf("another principal waited %v", took)
	}
}

func TestCommandBoundsProcesses(t *testing.T) {
	u := newChild(t, "raw", func(o *upstream.CommandOptions) { o.Processes = 2 })
	first := open(t, u)
	open(t, u)
	var e *upstream.Error
	if _, err := u.Open(t.Context(), upstream.Client{Principal: "bob"}); !errors.As(err, &e) || !e.NotSent {
		t.Fatalf("%+v", err)
	}
	first.Close()
	eventually(t, "there is room again", func() bool {
		_, err := u.Open(t.Context(), upstream.Client{Principal: "bob"})
		return err == nil
	})
	if err := u.Close(); err != nil {
		t.Error(err)
	}
	if _, err := u.Open(t.Context(), upstream.Client{Principal: "carol"}); !errors.As(err, &e) || !e.Gone {
		t.Errorf("%+v", err)
	}
}

func TestNewCommandRefuses(t *testing.T) {
	for _, o := range []upstream.CommandOptions{
		{},
		{Command: []string{""}},
		{Command: []string{"./server"}},
		{Command: []string{"server", "a\x00b"}},
		{Command: []string{"server"}, Env: map[string]string{"A=B": ""}},
		{Command: []string{"server"}, Env: map[string]string{"": "x"}},
		{Command: []string{"server"}, Env: map[string]string{"A": "\x00"}},
	} {
		if _, err := upstream.NewCommand(o); err == nil {
			t.Errorf("%q %q is taken", o.Command, o.Env)
		}
	}
}

func TestCommandLooksForThePrograminThePathOfItsEnvironment(t *testing.T) {
	dir := t.TempDir()
	program := self()[0]
	if err := os.Symlink(program, dir+"/the-server"); err != nil {
		t.Fatal(err)
	}
	named := func(path string) func(*upstream.CommandOptions) {
		return func(o *upstream.CommandOptions) {
			o.Command = []string{"the-server", asChild, "raw", "$(exit 1)", "; exit 1", "*"}
			o.Env = map[string]string{"PATH": path}
		}
	}
	open(t, newChild(t, "", named("relative:"+dir)))
	t.Chdir(dir)
	for _, path := range []string{"", ".", "/nowhere"} {
		var e *upstream.Error
		if _, err := newChild(t, "", named(path)).Open(t.Context(), upstream.Client{}); !errors.As(err, &e) || !strings.Contains(err.Error(), "PATH") {
			t.Errorf("PATH %q: %v", path, err)
		}
	}
}

// children is how many children this process has, zombies among them.
func children(t *testing.T) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if _, after, ok := strings.Cut(string(stat), ") "); err == nil && ok && strings.Fields(after)[1] == strconv.Itoa(os.Getpid()) {
			n++
		}
	}
	return n
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestCommandLeaksNothing has 200 children die in every way.
func TestCommandLeaksNothing(t *testing.T) {
	linuxOnly(t)
	u := newChild(t, "raw", func(o *upstream.CommandOptions) {
		o.Stop, o.Timeout, o.MaxResult = 100*time.Millisecond, 2*time.Second, 64<<10
	})
	open(t, u).Close()
	eventually(t, "the first child is gone", func() bool { return children(t) == 0 })
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
	for n := range 200 {
		work <- n
	}
	close(work)
	workers.Wait()
	if err := u.Close(); err != nil {
		t.Fatal(err)
	}
	if n := children(t); n != 0 {
		t.Errorf("%d children are left", n)
	}
	eventually(t, "all goroutines ended", func() bool { return runtime.NumGoroutine() <= goroutines })
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
