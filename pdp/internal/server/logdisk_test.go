//go:build linux

package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"policy-service/pdp"
	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/logging"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest/memorydisk"
	"policy-service/pdp/pdptest/written"
)

// A full disk is played by a limit on the size of files, which writing beyond fails
// with like a full disk. It is one of a process, so the server is another process:
// the tests' program again, which serves until its input ends.

const childVariable = "POLICY_SERVICE_TEST_CHILD"

func TestMain(m *testing.M) {
	mode := os.Getenv(childVariable)
	if mode == "" {
		debug.SetGCPercent(400) // hundreds of servers come and go: a quarter of the time would go into collecting them
		os.Exit(m.Run())
	}
	if err := serveAsChild(decisionlog.Mode(mode)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// triesAgainSoon has a log that failed try soon whether it can be written again.
func triesAgainSoon(c *server.Config) {
	server.TuneLog(c, func(o *decisionlog.Options, _ *decisionlog.Retention) { o.RetryEvery = 20 * time.Millisecond })
}

func serveAsChild(mode decisionlog.Mode) error {
	signal.Ignore(unix.SIGXFSZ)                     // as serve does
	log := logging.New(os.Stderr, logging.Config{}) // as serve does
	defer log.Close()
	config := server.Config{
		Program: server.Program{Source: pdp.Dir(os.Getenv("POLICIES")), Logger: log.Logger}, Listen: "127.0.0.1:0", Data: os.Getenv("DATA"),
		DecisionLog: server.DecisionLogConfig{Mode: mode},
	}
	triesAgainSoon(&config)
	s, err := server.New(config)
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

// child is a server in a process of its own.
type child struct {
	t              *testing.T
	url            string
	data, policies string
	log            written.Text
	pid, answered  int
	stop           func()
}

func startChild(t *testing.T, mode decisionlog.Mode) *child {
	t.Helper()
	return startChildOn(t, mode, t.TempDir())
}

func startChildOn(t *testing.T, mode decisionlog.Mode, data string) *child {
	t.Helper()
	return startChildUnder(t, mode, data, map[string]string{"a.cedar": `permit(principal is user, action, resource);`, "next": `forbid(principal, action, resource); permit(principal is user, action, resource);`})
}

func startChildUnder(t *testing.T, mode decisionlog.Mode, data string, policies map[string]string) *child {
	t.Helper()
	c := &child{t: t, data: data, policies: t.TempDir()}
	writeAll(t, c.policies, policies)
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), childVariable+"="+string(mode), "POLICIES="+c.policies, "DATA="+c.data)
	command.Stderr = &c.log
	input, err := command.StdinPipe()
	must(t, err)
	output, err := command.StdoutPipe()
	must(t, err)
	must(t, command.Start())
	address, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatalf("the server does not start: %v\n%s", err, c.log.String())
	}
	c.url, c.pid = "http://"+strings.TrimSpace(address), command.Process.Pid
	c.stop = func() {
		c.stop = func() {}
		_ = input.Close()
		if err := command.Wait(); err != nil {
			t.Errorf("the server ended with %v\n%s", err, c.log.String())
		}
	}
	t.Cleanup(func() { c.stop() })
	return c
}

// limit lets no file of the server grow beyond a size, or lets all.
func (c *child) limit(size uint64) {
	c.t.Helper()
	must(c.t, unix.Prlimit(c.pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: size, Max: unix.RLIM_INFINITY}, nil))
}

func (c *child) ask(path, body string) (int, string) {
	c.t.Helper()
	answer, err := http.Post(c.url+path, "application/json", strings.NewReader(body))
	must(c.t, err)
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	must(c.t, err)
	return answer.StatusCode, string(text)
}

func (c *child) ready() (int, string) {
	c.t.Helper()
	answer, err := http.Get(c.url + "/readyz")
	must(c.t, err)
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	must(c.t, err)
	return answer.StatusCode, string(text)
}

// every asks each kind of question, and wants one status of all.
func (c *child) every(want int) {
	c.t.Helper()
	for path, body := range map[string]string{
		evaluationPath: readQuestion, authorizePath: nativeQuestion, "/access/v1/search/action": readQuestion,
		"/access/v1/evaluations": strings.TrimSuffix(readQuestion, "}") + `,"evaluations":[{},{}]}`,
	} {
		got, text := c.ask(path, body)
		if got != want || got != 200 && strings.Contains(text, "true") {
			c.t.Errorf("%s: got %d %s, want %d", path, got, text, want)
		}
		if got == 200 {
			c.answered++
		}
	}
}

// refuses wants no answer of any kind, and that the service says so.
func (c *child) refuses() {
	c.t.Helper()
	c.every(503)
	c.every(503)
	if status, text := c.ready(); status != 503 || !strings.Contains(text, `"status":"unavailable"`) || !strings.Contains(text, `"ok":false`) {
		c.t.Errorf("got %d %s", status, text)
	}
}

// resumes wants answers again, without a restart.
func (c *child) resumes() {
	c.t.Helper()
	eventually(c.t, "it is ready again", func() bool { status, _ := c.ready(); return status == 200 })
	c.every(200)
}

// recorded stops the server, and wants a record of each answer, of nothing else, and of what the disk's trouble was.
func (c *child) recorded(trouble string) {
	c.t.Helper()
	c.stop()
	ids, troubles := 0, 0
	for _, l := range lines(c.t, c.data) { // verified
		if l.Kind != format.KindAdmin && !strings.HasSuffix(l.ID, ".1") {
			ids++
		}
		if l.Event == format.EventResumed && l.Details["error"] == trouble {
			troubles++
		}
	}
	if ids != c.answered || troubles == 0 {
		c.t.Errorf("%d answers, and %d records of some; %d say %s", c.answered, ids, troubles, trouble)
	}
	if text := c.log.String(); !strings.Contains(text, "cannot be written; nothing is answered") || !strings.Contains(text, "can be written again") {
		c.t.Error(text)
	}
}

func TestNothingIsAnsweredOffTheRecord(t *testing.T) {
	t.Parallel()
	c := startChild(t, decisionlog.Strict)
	c.every(200)
	for range 3 { // it fails and comes back more than once
		c.limit(0)
		c.refuses()
		c.limit(unix.RLIM_INFINITY)
		c.resumes()
	}
	c.recorded("disk_full")
}

func TestFullDiskAnswersNothing(t *testing.T) {
	t.Parallel()
	dir := memorydisk.New(t, "size=24m")
	c := startChildOn(t, decisionlog.Strict, dir)
	c.every(200)
	for range 3 {
		room := filled(t, dir)
		for range 10_000 { // what the log's file has in reserve is used up first
			status, _ := c.ask(evaluationPath, readQuestion)
			if status == 503 {
				break
			}
			c.answered++
		}
		c.refuses()
		room()
		c.resumes()
	}
	c.recorded("disk_full")
}

// A flood of refusals fills no second disk: a few lines say how many there were.
func TestFullDiskWritesFewLines(t *testing.T) {
	t.Parallel()
	c := startChild(t, decisionlog.Strict)
	c.limit(0)
	const refusals = 300
	for range refusals {
		if status, text := c.ask(evaluationPath, readQuestion); status != 503 {
			t.Fatalf("got %d %s", status, text)
		}
	}
	_, text := c.ready()
	if !strings.Contains(text, `"ok":false,"error":"`) || !strings.Contains(text, "file too large") {
		t.Errorf("/readyz says no cause: %s", text)
	}
	answer, err := http.Get(c.url + "/metrics")
	must(t, err)
	metrics, err := io.ReadAll(answer.Body)
	must(t, err)
	_ = answer.Body.Close()
	if !strings.Contains(string(metrics), fmt.Sprintf(`policy_service_undecided_total{reason="log"} %d`, refusals)) {
		t.Error("the metrics do not count them")
	}
	c.limit(unix.RLIM_INFINITY)
	c.stop()
	told, written := 0, 0
	for line := range strings.Lines(c.log.String()) {
		if !strings.Contains(line, `msg="not answered" status=503 route=/access/v1/evaluation reason=log cause="`) {
			continue
		}
		n := 1
		if _, count, ok := strings.Cut(line, " repeated="); ok {
			_, err := fmt.Sscan(count, &n)
			must(t, err)
		}
		told, written = told+n, written+1
	}
	if told != refusals || written > 10 {
		t.Errorf("%d lines tell of %d refusals, and there were %d:\n%s", written, told, refusals, c.log.String())
	}
}

// filled leaves no room where a directory is, until room is called: each page that the log gives back while it fails, as with
// a journal that it opens anew, is taken at once.
func filled(t *testing.T, dir string) (room func()) {
	t.Helper()
	ballast, err := os.Create(filepath.Join(dir, "ballast"))
	must(t, err)
	if _, err := ballast.ReadFrom(zeros{}); !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		each := time.NewTicker(time.Millisecond)
		defer each.Stop()
		for {
			select {
			case <-stop:
				return
			case <-each.C:
				_, _ = ballast.ReadFrom(zeros{}) // up to the next ENOSPC
			}
		}
	}()
	room = sync.OnceFunc(func() {
		close(stop)
		<-done
		_ = ballast.Close()
		must(t, os.Remove(ballast.Name()))
	})
	t.Cleanup(room)
	return room
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestReadOnlyRemountAnswersNothing(t *testing.T) {
	t.Parallel()
	// The log alone: what is open for writing keeps a file system from being remounted.
	data := t.TempDir()
	dir := filepath.Join(data, format.LogDir)
	must(t, os.Mkdir(dir, 0o700))
	memorydisk.Mount(t, dir, "size=64m", 0)
	c := startChildOn(t, decisionlog.Strict, data)
	c.every(200)
	for range 3 {
		// So a failure comes first: it has the log close its file.
		c.limit(0)
		c.every(503)
		eventually(t, "it is read-only", func() bool { return unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, "") == nil })
		c.limit(unix.RLIM_INFINITY)
		eventually(t, "it is found to be", func() bool { return strings.Contains(c.log.String(), "read-only file system") })
		c.refuses()
		must(t, unix.Mount("", dir, "", unix.MS_REMOUNT, ""))
		c.resumes()
	}
	c.recorded("read_only")
}

// A bundle waits outside while it cannot be recorded, and comes in by itself. It takes seconds: what was refused is tried
// again every two.
func TestABundleComesInWhenItCanBeRecorded(t *testing.T) {
	t.Parallel()
	c := startChild(t, decisionlog.Strict)
	c.limit(0)
	must(t, os.Rename(c.policies+"/next", c.policies+"/a.cedar"))
	eventually(t, "it is kept out", func() bool { _, text := c.ready(); return strings.Contains(text, `"code":"not_yet"`) })
	c.limit(unix.RLIM_INFINITY)
	eventually(t, "it comes in", func() bool { _, text := c.ready(); return strings.Contains(text, `"refused":null`) })
	if status, text := c.ask(evaluationPath, readQuestion); status != 200 || text != `{"decision":false}` {
		t.Errorf("got %d %s", status, text)
	}
	c.stop()
	if got := events(lines(t, c.data), "bundle_loaded"); len(got) != 2 {
		t.Errorf("got %+v", got)
	}
}

func TestBestEffortAnswersWithoutTheDisk(t *testing.T) {
	t.Parallel()
	c := startChild(t, decisionlog.BestEffort)
	c.limit(0)
	eventually(t, "it is degraded", func() bool {
		if status, text := c.ask(evaluationPath, readQuestion); status != 200 {
			t.Fatalf("got %d %s", status, text)
		}
		status, text := c.ready()
		return status == 200 && strings.Contains(text, `"status":"degraded"`) && strings.Contains(text, `"mode":"best_effort","ok":false`)
	})
	c.limit(unix.RLIM_INFINITY)
	eventually(t, "it is ready", func() bool { _, text := c.ready(); return strings.Contains(text, `"status":"ready"`) })
	c.stop()
	if got := events(lines(t, c.data), format.EventResumed); len(got) == 0 || got[0].Details["dropped"] == nil {
		t.Errorf("what is missing should be on record: %+v", got)
	}
}

// While nothing can be written, what was sealed before can still be read, over HTTP too.
func TestLogIsReadWhileTheDiskIsFull(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	key := addKey(t, data, "auditor", auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Decide, auth.LogRead, auth.LogAdmin}})
	c := startChildOn(t, decisionlog.Strict, data)
	do := func(method, path, body string) (*http.Response, string) {
		t.Helper()
		r, err := http.NewRequest(method, c.url+path, strings.NewReader(body))
		must(t, err)
		r.Header.Set("Authorization", key)
		r.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(r)
		must(t, err)
		defer func() { _ = answer.Body.Close() }()
		text, err := io.ReadAll(answer.Body)
		must(t, err)
		return answer, string(text)
	}
	answer, _ := do("POST", evaluationPath, readQuestion)
	id := answer.Header.Get("X-Decision-Id")
	answer, _ = do("POST", evaluationPath, readQuestion)
	if got, text := do("POST", "/v1/decisions/"+answer.Header.Get("X-Decision-Id")+"/redaction", `{"reason":"this seals the segment"}`); got.StatusCode != 204 {
		t.Fatalf("got %s %s", got.Status, text)
	}
	c.limit(1)
	if got, _ := do("POST", evaluationPath, readQuestion); got.StatusCode != 503 {
		t.Fatalf("the disk is not full: got %s", got.Status)
	}
	for _, path := range []string{"/v1/log/export", "/v1/decisions/" + id + "/proof", "/v1/log/checkpoint", "/v1/log/keys", "/v1/log/stats", "/v1/decisions?order=oldest&limit=1"} {
		got, text := do("GET", path, "")
		if got.StatusCode != 200 {
			t.Errorf("%s: got %s %s", path, got.Status, text)
		}
		if strings.HasSuffix(path, "/export") {
			if report := verify.Export(strings.NewReader(text), verify.Options{}); !report.Verified() || !strings.Contains(text, id) {
				t.Errorf("got %+v", report)
			}
		}
	}
	// What is wanted, or receipts of it, may be where nobody can read.
	for _, path := range []string{"/v1/decisions", "/v1/decisions/nosuch"} {
		// Not at every moment: now and then the log looks whether it can be written again.
		eventually(t, path+" is refused", func() bool { got, _ := do("GET", path, ""); return got.StatusCode == 503 })
	}
	// Where the index had reached the end before, it knows that there is no receipt.
	if got, text := do("GET", "/v1/decisions/"+id, ""); got.StatusCode != 503 && (got.StatusCode != 200 || !strings.HasSuffix(text, `"receipts":[]}`)) {
		t.Errorf("got %s %s", got.Status, text)
	}
	c.limit(unix.RLIM_INFINITY)
	eventually(t, "it is ready again", func() bool { got, _ := do("POST", evaluationPath, readQuestion); return got.StatusCode == 200 })
}
