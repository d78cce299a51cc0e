package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/pdptest/inside/auth"
	"policy-service/pdp/pdptest/inside/segment"
	"policy-service/pdp/pdptest/night"
)

// TestSoakNeighbours has one neighbour do the worst they can with one credential, or with
// their own directory of policies, while a resident of another tenant asks 50 times a second.
// The resident is answered, rightly, and each answer is on record; the server holds no more
// memory than it may, and stops in time with a log that verifies. There are no limits but
// those that a server has by default.
//
// Over SOAKNEIGHBOURS (60s) for each kind of neighbour the resident's p99 is at most three
// times what it is alone, or 250 ms.
func TestSoakNeighbours(t *testing.T) {
	night.Soaks(t)
	span, err := time.ParseDuration(cmp.Or(os.Getenv("SOAKNEIGHBOURS"), "60s"))
	if err != nil || span < time.Second {
		t.Fatalf("SOAKNEIGHBOURS is %q; write a time of a second or more, like 60s", os.Getenv("SOAKNEIGHBOURS"))
	}
	for _, n := range nuisances {
		t.Run(n.name, func(t *testing.T) {
			newNeighbourhood(t, n).run(t, span)
		})
	}
}

// TestNeighbour has a neighbour send each of its dear requests once, while the resident asks each of its questions. Then the
// neighbour writes its files without pause, and the root forbids something meanwhile.
//
// It takes seconds: a bundle that changes all the time is read again after a rest.
func TestNeighbour(t *testing.T) {
	t.Parallel()
	h := newNeighbourhood(t, nuisance{files: func() map[string]string {
		return map[string]string{"tenants/loud/entities/all.json": manyEntities(500), "tenants/loud/many.cedar": manyPolicies(50)}
	}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a := &attack{neighbourhood: h, t: t, ctx: ctx, counts: map[string]int{}}
	a.asks(3)
	var all sync.WaitGroup
	all.Go(func() {
		for _, w := range wants {
			if err := h.calm.once(ctx, w, h.calm.number.Add(1)); err != nil {
				t.Error(err)
			}
		}
	})
	conn, err := a.dial()
	must(t, err)
	r := bufio.NewReader(conn)
	requests := a.dear()
	for _, request := range requests {
		_, sent := conn.Write(request)
		if !a.answer(r, sent) {
			t.Errorf("after %.100s the connection ends: %s", request, tallied(a.counts))
			break
		}
	}
	must(t, conn.Close())
	all.Wait()
	if a.counts["200"] != len(requests) {
		t.Errorf("%d requests, and the answers are %s", len(requests), tallied(a.counts))
	}
	all.Go(func() { a.edits(20*time.Millisecond, "tenants/loud/more.cedar", pointlessPolicy) })
	a.forbid(0)
	cancel()
	all.Wait()
	for _, text := range append(a.notes, a.wrongs...) {
		t.Log(text)
	}
	if len(a.wrongs) > 0 {
		t.Fail()
	}
	h.finish(t)
}

const (
	// tolerable is what the resident's p99 may come to whatever it is alone.
	tolerable = 250 * time.Millisecond
	// neighbourMemory is what the server may hold under any attack, its files aside.
	neighbourMemory = 2 << 30
	// neighbourConnections are what one credential asks with.
	neighbourConnections = 64
)

// A nuisance is a kind of neighbour.
type nuisance struct {
	name   string
	config string                   // of the server, where what is attacked is there only by configuration
	files  func() map[string]string // of the bundle, beside those that every neighbourhood has; nil is none
	before func(*attack)            // makes what is attacked
	// attack goes on until its context ends.
	attack func(*attack)
	// may are statuses that it can be answered, besides 200 and those of limits.
	may []int
	// denied says that whatever it asks is to be denied.
	denied bool
	// chores are what else must go on, once a second.
	chores []chore
	// emergency has the root forbid something meanwhile.
	emergency bool
}

// A neighbourhood is a server with two tenants: calm is the resident's, loud the nuisance's.
type neighbourhood struct {
	nuisance
	dir    string
	addr   string
	server *exec.Cmd
	logKey string
	calm   *resident
	loud   string // the nuisance's credential
	second string // that of another PEP of the same tenant
}

// Whoever is called frozen is forbidden everything; people decide about approvals.
var neighbourFiles = map[string]string{
	"root.cedar": `@id("root-frozen") forbid (principal, action == Action::"frozen", resource);
@id("root-people") permit (principal is user, action == Action::"approval.decide", resource);
`,
	"obligations.yaml": "ask: {type: approval_required, properties: {template: owner, valid_for: 1h}}\n",
	"tenants/calm/own.cedar": `@id("calm-own") permit (principal, action in [Action::"read", Action::"stop", Action::"frozen"], resource);
@id("calm-ask") @obligation("ask") permit (principal, action == Action::"ask", resource);
`,
	"tenants/loud/own.cedar": `@id("loud-none") permit (principal, action == Action::"read", resource) when { context has never && context.never };
@id("loud-ask") @obligation("ask") permit (principal, action == Action::"ask", resource);
`,
}

func newNeighbourhood(t *testing.T, n nuisance) *neighbourhood {
	t.Helper()
	h := &neighbourhood{nuisance: n, dir: t.TempDir()}
	for name, text := range neighbourFiles {
		h.write(t, "policies/"+name, text)
	}
	if n.files != nil {
		for name, text := range n.files() {
			h.write(t, "policies/"+name, text)
		}
	}
	h.write(t, "config.yaml", h.config)
	all := []auth.Permission{auth.Decide, auth.Search, auth.Explain, auth.LogRead, auth.Approve}
	h.calm = newResident(h.key(t, "calm", "calm", all))
	h.loud = h.key(t, "loud", "loud", all)
	h.second = h.key(t, "second", "loud", all)
	h.server, h.addr = serveIn(t, "--policies", h.path("policies"), "--data", h.path("data"), "--config", h.path("config.yaml"))
	h.calm.url = "http://" + h.addr
	t.Cleanup(func() { end(t, h.server); h.calm.client.CloseIdleConnections() })
	keys, err := segment.VerifierKeys(h.path("data"))
	must(t, err)
	h.logKey = keys[0]
	return h
}

func (h *neighbourhood) path(name string) string { return filepath.Join(h.dir, name) }

func (h *neighbourhood) write(t *testing.T, name, text string) {
	t.Helper()
	writeFile(t, h.path(name), text)
}

func (h *neighbourhood) key(t *testing.T, name, tenant string, may []auth.Permission) string {
	t.Helper()
	keys, err := auth.OpenKeys(h.path("data"))
	must(t, err)
	key, err := keys.Add(auth.KeySpec{Name: name, Principal: auth.Principal{Type: "user", ID: name}, Grant: auth.Grant{Tenants: []string{tenant}, Permissions: may}})
	must(t, err)
	return key
}

// run has the resident ask alone, and then beside the nuisance.
func (h *neighbourhood) run(t *testing.T, span time.Duration) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a := &attack{neighbourhood: h, t: t, ctx: ctx, counts: map[string]int{}}
	if h.before != nil {
		h.before(a)
		clear(a.counts)
	}
	alone := h.calm.ask(t, span)
	var attacking, beside sync.WaitGroup
	start, begun := time.Now(), (&victim{pid: h.server.Process.Pid}).cpu(t)
	attacking.Go(func() { h.attack(a) })
	attacking.Go(func() { a.watchMemory() })
	if h.emergency {
		beside.Go(func() { a.forbid(span / 3) })
	}
	during := make(chan *asked, 1)
	beside.Go(func() { during <- h.calm.ask(t, span) })
	for _, c := range h.chores {
		beside.Go(func() { a.every(span, c) })
	}
	beside.Wait()
	used := (&victim{pid: h.server.Process.Pid}).cpu(t) - begun
	took := time.Since(start)
	if err := untilDone(ctx, "the nuisance did something", a.acted); err != nil { // a busy machine may need longer than the span
		a.wrong("%v", err)
	}
	cancel()
	attacking.Wait()
	h.judge(t, alone, <-during, a, used.Seconds()/took.Seconds())
	h.finish(t)
}

// judge holds the time that answers took against that alone, and against what is tolerable.
func (h *neighbourhood) judge(t *testing.T, alone, during *asked, a *attack, cores float64) {
	t.Helper()
	p99, was := during.took.Quantile(0.99), alone.took.Quantile(0.99)
	t.Logf("alone:  %v", alone)
	t.Logf("beside: %v", during)
	t.Logf("the nuisance was answered %s; the server took %.2f of a core, and %d MiB at most", tallied(a.counts), cores, a.most>>20)
	for _, text := range a.notes {
		t.Log(text)
	}
	for _, text := range a.wrongs {
		t.Errorf("%.2000s", text)
	}
	if bound := max(3*was, tolerable); p99 > bound {
		t.Errorf("p99 is %v and may be %v", p99, bound)
	}
}

// finish stops the server, and reads what is on record of the resident: each answer, and
// no more than it asked.
func (h *neighbourhood) finish(t *testing.T) {
	t.Helper()
	if took, err := terminate(h.server); err != nil {
		t.Errorf("told to stop after the attack, the server ends with %v after %v\n%.4000s", err, took, h.server.Stderr)
	}
	report := verify.Directory(h.path("data"), verify.Options{Key: h.logKey})
	if !report.Verified() {
		t.Errorf("%v: %v", report.Code, report.Problem)
	}
	h.calm.compare(t, h.path("data"))
	if said := h.server.Stderr.(*bytes.Buffer).String(); t.Failed() {
		t.Logf("the server says at last: %s", said[max(0, len(said)-2000):])
	}
}

// An attack is a nuisance at work.
type attack struct {
	*neighbourhood
	t   *testing.T
	ctx context.Context

	mu     sync.Mutex
	counts map[string]int // what it was answered
	wrongs []string
	notes  []string
	most   int64 // memory of the server
}

func (a *attack) acted() (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.counts) > 0, nil
}

func (a *attack) count(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.counts[what]++
}

// wrong keeps what is wrong, of each kind once.
func (a *attack) wrong(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.wrongs) < 5 {
		a.wrongs = append(a.wrongs, fmt.Sprintf(format, args...))
	}
}

func (a *attack) note(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.notes = append(a.notes, fmt.Sprintf(format, args...))
}

var ownMemory = regexp.MustCompile(`(?m)^RssAnon:\s+(\d+)`)

// watchMemory ends a server that takes more than it may: the machine is not its alone.
func (a *attack) watchMemory() {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-a.ctx.Done():
			return
		}
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.server.Process.Pid))
		if found := ownMemory.FindSubmatch(status); found != nil {
			kilobytes, _ := strconv.ParseInt(string(found[1]), 10, 64)
			a.most = max(a.most, kilobytes<<10)
		}
		if a.most > neighbourMemory {
			a.wrong("the server takes %d MiB", a.most>>20)
			_ = a.server.Process.Kill()
			return
		}
	}
}

// A chore is something that must go on beside a nuisance, and how often it may be refused.
type chore struct {
	name string
	do   func(*attack, int) (status int, took time.Duration, err error)
}

// every does a chore once a second. It may be told to come again, but not each time.
func (a *attack) every(span time.Duration, c chore) {
	statuses, done, longest := map[string]int{}, 0, time.Duration(0)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for start := time.Now(); time.Since(start) < span; <-tick.C {
		status, took, err := c.do(a, done)
		if err != nil {
			a.wrong("%s: %v", c.name, err)
			return
		}
		done++
		longest = max(longest, took)
		statuses[strconv.Itoa(status)]++
		if status != http.StatusOK && status != http.StatusServiceUnavailable {
			a.wrong("%s is answered %d", c.name, status)
		}
	}
	a.note("%s, once a second: %s, the longest took %v", c.name, tallied(statuses), longest.Round(time.Millisecond))
	if 2*statuses["200"] < done {
		a.wrong("%s is refused most of the time: %s", c.name, tallied(statuses))
	}
}

// reads is a chore of the resident's: it reads something.
func reads(name, path string) chore {
	return chore{name, func(a *attack, _ int) (int, time.Duration, error) {
		start := time.Now()
		status, body, err := a.calm.send(a.t.Context(), http.MethodGet, path, "")
		if err == nil && status == http.StatusOK && len(body) == 0 {
			err = fmt.Errorf("%s has nothing", path)
		}
		return status, time.Since(start), err
	}}
}

// forbid writes what the root has to forbid at once, and waits until it is in force.
func (a *attack) forbid(after time.Duration) {
	wait := time.NewTimer(after)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-a.ctx.Done():
		return
	}
	a.calm.forbidding()
	written := time.Now()
	a.rename("emergency.cedar", `@id("root-emergency") forbid (principal, action == Action::"stop", resource);`)
	err := untilDone(a.t.Context(), "the emergency forbid is in force", func() (bool, error) { return a.calm.isForbidden(), nil })
	if err != nil {
		a.wrong("%v", err)
		return
	}
	a.note("the emergency forbid is in force after %v", time.Since(written).Round(time.Millisecond))
}

// rename puts a file into the bundle as careful people do.
func (h *neighbourhood) rename(name, text string) {
	file := h.path("policies/" + name)
	_ = os.MkdirAll(filepath.Dir(file), 0o700)
	next := filepath.Join(h.dir, "next-"+filepath.Base(name))
	if err := os.WriteFile(next, []byte(text), 0o600); err == nil {
		_ = os.Rename(next, file)
	}
}

// raw is a request as it goes over the wire.
func (h *neighbourhood) raw(method, path, credential, body string, headers ...string) []byte {
	var text bytes.Buffer
	fmt.Fprintf(&text, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, path, h.addr)
	if credential != "" {
		fmt.Fprintf(&text, "Authorization: Bearer %s\r\n", credential)
	}
	if method == http.MethodPost {
		fmt.Fprintf(&text, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	fmt.Fprintf(&text, "%s\r\n%s", strings.Join(append(headers, ""), "\r\n"), body)
	return text.Bytes()
}
