package mcp_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
)

// The programs of these tests are this very program, started with asHostile.
const asHostile = "as-hostile-program"

func init() {
	if len(os.Args) > 1 && os.Args[1] == asHostile {
		hostileProgram()
		os.Exit(0)
	}
}

// hostileProgram is a server of the legacy era. Each call is of a tool that is named for what it does.
func hostileProgram() {
	if os.WriteFile(filepath.Join(os.Getenv("PIDS"), fmt.Sprint(os.Getpid())), nil, 0o600) != nil {
		os.Exit(4)
	}
	if len(os.Args) > 2 && os.Args[2] == "sleeper" {
		signal.Ignore(syscall.SIGTERM, syscall.SIGHUP)
		hang()
	}
	in, stubborn := bufio.NewReaderSize(os.Stdin, 1<<20), false
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			if stubborn {
				hang()
			}
			return
		}
		var m struct {
			ID     jsontext.Value `json:"id"`
			Method string         `json:"method"`
			Params struct {
				Name string `json:"name"`
			} `json:"params"`
		}
		if json.Unmarshal([]byte(line), &m) != nil {
			os.Exit(5)
		}
		switch m.Method {
		case "server/discover":
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`+"\n", m.ID)
		case "initialize":
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"hostile","version":"1"}}}`+"\n", m.ID)
		case "tools/list":
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[%s]}}`+"\n", m.ID, hostileTools())
		case "tools/call":
			if stubborn = stubborn || m.Params.Name == "stubborn"; stubborn {
				signal.Ignore(syscall.SIGTERM)
			}
			hostileTool(m.Params.Name, string(m.ID))
		}
	}
}

// hang is for ever, as far as a test can tell.
func hang() {
	time.Sleep(2 * time.Minute)
	os.Exit(0)
}

func hostileTools() string {
	var all []string
	for name := range hostile {
		all = append(all, `{"name":"`+name+`","inputSchema":{"type":"object"}}`)
	}
	slices.Sort(all)
	return strings.Join(all, ",")
}

func sayHostile(id, text string) {
	fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%s}]}}`+"\n", id, inText(text))
}

// hostileWaits are the calls of a program that have no answer.
var hostileWaits int

func hostileTool(name, id string) {
	switch name {
	case "argv":
		sayHostile(id, strings.Join(os.Args, "\x00"))
	case "pid":
		sayHostile(id, fmt.Sprint(os.Getpid()))
	case "garbage":
		fmt.Print("Server ready!\n\n{}\n[]\n{\"level\":\"info\"}\n\x00\xff\nContent-Length: 5\r\n\r\n")
		sayHostile(id, "after all")
	case "endless":
		for chunk := strings.Repeat("x", 64<<10); ; {
			if _, err := io.WriteString(os.Stdout, chunk); err != nil {
				os.Exit(0)
			}
		}
	case "long":
		sayHostile(id, strings.Repeat("x", 100<<10))
	case "complain":
		for n := range 5000 {
			fmt.Fprintf(os.Stderr, "%d \x1b[31mred %s\n", n, strings.Repeat("y", 1000))
		}
		sayHostile(id, "done")
	case "fork":
		sleeper := exec.Command(os.Args[0], asHostile, "sleeper")
		sleeper.Stdout, sleeper.Stderr = os.Stdout, os.Stderr // it holds the pipes open
		if sleeper.Start() != nil {
			os.Exit(6)
		}
		sayHostile(id, fmt.Sprint(sleeper.Process.Pid))
	case "exit":
		os.Exit(3)
	case "exit-of-two":
		if hostileWaits++; hostileWaits == 2 {
			os.Exit(3)
		}
	case "half":
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"res`, id)
		os.Exit(0)
	case "foreign":
		fmt.Print(`{"jsonrpc":"2.0","id":4711,"result":{"content":[]}}` + "\n" + `{"jsonrpc":"2.0","id":"` + id + `","result":{"content":[]}}` + "\n")
		fmt.Print(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p1","progress":1}}` + "\n")
		fmt.Print(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{}}}}` + "\n")
		sayHostile(id, "once")
		sayHostile(id, "twice")
	default:
		sayHostile(id, name)
	}
}

// hostile are the tools, and what their callers get: a text, or -32603 for "".
var hostile = map[string]string{
	"garbage": "after all", "endless": "", "long": "", "complain": "done", "exit": "", "half": "", "foreign": "once", "exit-of-two": "",
	"fork": "*", "stubborn": "stubborn", "well": "well", "pid": "*", "argv": "*",
}

// D36: whatever a program does that is a server, its client gets one answer and can go on, others notice nothing, and nothing
// is left of it. Nobody but the program reads its arguments.
// It takes some seconds: a program is started for each tool, and some are waited for before they are killed.
func TestHostilePrograms(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			pids := t.TempDir()
			t.Cleanup(func() { noneRuns(t, pids) }) // when the gateway is closed
			odd := []string{"$(touch " + pids + "/sh)", "`touch " + pids + "/sh`", "; touch " + pids + "/sh", "| touch " + pids + "/sh", "&& touch " + pids + "/sh", "> " + pids + "/sh", "*", "~", "$HOME", "a\nb", `'"\`, ""}
			counts := sdkmetric.NewManualReader()
			s := newSiege(t, camp{deps: mcp.Deps{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(counts))}, change: func(c *mcp.Config) {
				self, err := os.Executable()
				orFail(t, err)
				c.Upstreams = map[string]mcp.UpstreamConfig{"rec": {
					Command: append([]string{self, asHostile}, odd...), Env: map[string]string{"PIDS": pids, "GORACE": "atexit_sleep_ms=0"},
					Timeout: 20 * time.Second, MaxResult: 64 << 10, ServerRequests: mcp.ServerRequests{Elicitation: mcp.RelayOn},
				}}
			}})
			bob := s.visitor(era, mcptest.Claims{"sub": "bob"})
			pid := textIn(bob.call("pid", `{}`))
			var all sync.WaitGroup
			for tool, want := range hostile {
				if tool == "stubborn" && era == "modern" {
					continue // no request ends its session, and the gateway would be closed for long
				}
				all.Go(func() { hostileCalls(t, s.visitor(era, mcptest.Claims{"sub": "of-" + tool}), tool, want) })
			}
			all.Wait()
			if got := bob.call("pid", `{}`); textIn(got) != pid || pid == "" {
				t.Errorf("the program of another was %q, and is %s", pid, got)
			}
			if got := textIn(bob.call("argv", `{}`)); !strings.HasSuffix(got, "\x00"+asHostile+"\x00"+strings.Join(odd, "\x00")) {
				t.Errorf("its arguments are %q", got)
			}
			if _, err := os.Stat(filepath.Join(pids, "sh")); err == nil {
				t.Error("a shell has read the arguments")
			}
			if lines := strings.Count(s.logs.String(), "standard error"); lines < 10 || lines > 1000 || strings.Contains(s.logs.String(), "\x1b") {
				t.Errorf("%d lines of 5000 are in the log", lines)
			}
			dropped := droppedBy(t, counts)
			for reason, least := range map[string]int64{"unreadable": 6, "foreign_id": 4, "too_large": 1} {
				if dropped[reason] < least {
					t.Errorf("dropped are %v", dropped)
				}
			}
		})
	}
}

// hostileCalls has one client call a tool, and what comes of it. Those that have two calls under way have two answers.
func hostileCalls(t *testing.T, v *visitor, tool, want string) {
	n := 1
	if tool == "exit-of-two" {
		n = 2
	}
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			got := v.call(tool, `{}`)
			if got.finals != 1 || want == "" && got.code() != -32603 || want != "" && (!got.ran() || want != "*" && textIn(got) != want) {
				t.Errorf("%s, %s: %d answers, %s", v.era, tool, got.finals, got)
			}
		})
	}
	all.Wait()
	if got := v.call("well", `{}`); textIn(got) != "well" {
		t.Errorf("%s, after %s: %s", v.era, tool, got)
	}
	if tool == "stubborn" && v.era == "legacy" { // it is waited for twice before it is killed
		if got, err := v.try(t.Context(), "DELETE", "", v.headers("", "")...); err != nil || got.status != 204 {
			t.Errorf("%s, %v", got, err)
		}
	}
}

// textIn is the text of a result, "" if it has none.
func textIn(a echo) string {
	var result struct {
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
	}
	if json.Unmarshal(a.result, &result) != nil || len(result.Content) == 0 {
		return ""
	}
	return result.Content[0].Text
}

// noneRuns fails if a process runs that has left its id.
func noneRuns(t *testing.T, pids string) {
	t.Helper()
	all, err := os.ReadDir(pids)
	orFail(t, err)
	if len(all) < len(hostile)-1 {
		t.Errorf("there were %d processes", len(all))
	}
	for _, f := range all {
		mcptest.Until(t, f.Name()+" ended", func() bool {
			stat, err := os.ReadFile("/proc/" + f.Name() + "/stat")
			_, state, _ := strings.Cut(string(stat), ") ")
			return err != nil || strings.HasPrefix(state, "Z")
		})
	}
}

// A program that fails again and again is not started as often as somebody calls. Others have theirs.
func TestProgramsThatFail(t *testing.T) {
	t.Parallel()
	pids := t.TempDir()
	s := newSiege(t, camp{change: func(c *mcp.Config) {
		self, err := os.Executable()
		orFail(t, err)
		c.Upstreams = map[string]mcp.UpstreamConfig{"rec": {Command: []string{self, asHostile}, Env: map[string]string{"PIDS": pids, "GORACE": "atexit_sleep_ms=0"}}}
	}})
	alice, begun := s.visitor("modern", nil), time.Now()
	for n := range 12 {
		if got := alice.call("exit", `{}`); got.code() != -32603 || got.finals != 1 {
			t.Errorf("call %d: %s", n, got)
		}
	}
	took := time.Since(begun)
	started, err := os.ReadDir(pids)
	orFail(t, err)
	// Each start waits twice as long as the one before, from a tenth of a second on.
	if n := len(started); n < 2 || took < 100*time.Millisecond<<(n-1)-100*time.Millisecond {
		t.Errorf("it was started %d times in %v", n, took)
	}
	if got := s.visitor("modern", mcptest.Claims{"sub": "bob"}).call("well", `{}`); textIn(got) != "well" {
		t.Errorf("another is told %s", got)
	}
	if !strings.Contains(s.logs.String(), "is not started again yet") {
		t.Error("the log does not say why")
	}
}
