package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"policy-service/pdp/pdptest/night"
)

// The tests of this file attack a server in a process of its own, with the limits it has
// by default. TestAttacks and TestAttackEndlessHeaders look at its answers. The others hold
// the cost of an attack against that of honest requests in the same run: their bounds are a
// multiple of what was measured, and far below the cost of an attack that works.

// victim is a server that is attacked.
type victim struct {
	addr   string
	pid    int
	client *http.Client
}

const honest = `{"subject":{"type":"user","id":"alice"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"tickets:create_ticket"}}`

func newVictim(t *testing.T, flags ...string) *victim {
	t.Helper()
	server, addr := serveIn(t, append([]string{"--policies", starter(t)}, flags...)...)
	v := &victim{addr, server.Process.Pid, &http.Client{Timeout: patience, Transport: &http.Transport{}}}
	t.Cleanup(func() { v.client.CloseIdleConnections(); end(t, server) })
	return v
}

// measured is a victim that has its buffers, and whose heap has its size.
func measured(t *testing.T, flags ...string) *victim {
	t.Helper()
	v := newVictim(t, flags...)
	v.ask(t, 300)
	return v
}

func end(t *testing.T, server *exec.Cmd) {
	_ = server.Process.Kill()
	_ = server.Wait()
	if log := server.Stderr.(*bytes.Buffer).String(); strings.Contains(log, "panic") || strings.Contains(log, "goroutine ") || len(log) > 64<<10 {
		t.Errorf("the server's log has %d bytes:\n%.4000s", len(log), log)
	}
}

// ask has so many honest requests answered, and returns the CPU each took.
func (v *victim) ask(t *testing.T, n int) time.Duration {
	t.Helper()
	start := v.cpu(t)
	for range n {
		answer, err := v.client.Post("http://"+v.addr+"/access/v1/evaluation", "application/json", strings.NewReader(honest))
		must(t, err)
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil || string(body) != `{"decision":true}` {
			t.Fatalf("an honest request got %d %s, %v", answer.StatusCode, body, err)
		}
	}
	return (v.cpu(t) - start) / time.Duration(n)
}

// cpu is the CPU the server has used, of all its threads.
func (v *victim) cpu(t *testing.T) time.Duration {
	t.Helper()
	all, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", v.pid))
	if err != nil || len(all) == 0 {
		t.Fatal("no threads", err)
	}
	var sum time.Duration
	for _, file := range all {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		used, _, _ := strings.Cut(string(text), " ")
		n, _ := strconv.ParseInt(used, 10, 64)
		sum += time.Duration(n)
	}
	return sum
}

// peak is the most memory the server has ever had, in MiB.
func (v *victim) peak(t *testing.T) int { return v.memory(t, "VmHWM:") }

// own is the memory it has now, without the files of the log that the kernel keeps.
func (v *victim) own(t *testing.T) int { return v.memory(t, "RssAnon:") }

func (v *victim) memory(t *testing.T, what string) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", v.pid))
	must(t, err)
	_, rest, _ := strings.Cut(string(status), what)
	kilobytes, err := strconv.Atoi(strings.Fields(rest)[0])
	must(t, err)
	return kilobytes >> 10
}

func (v *victim) dial(t *testing.T) net.Conn {
	t.Helper()
	conn, err := net.DialTimeout("tcp", v.addr, patience)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return conn
}

// unharmed holds honest requests during an attack against those before it, and what
// memory it took against what it may.
func (v *victim) unharmed(t *testing.T, before time.Duration, peakBefore, most int) {
	t.Helper()
	during := v.ask(t, 300)
	grown := v.peak(t) - peakBefore
	t.Logf("an honest request took %v of CPU, %v under attack; memory grew by %d MiB", before, during, grown)
	if during > 5*before+time.Millisecond {
		t.Errorf("an honest request takes %v under attack, and %v without", during, before)
	}
	if grown > most {
		t.Errorf("memory grew by %d MiB, and may by %d", grown, most)
	}
}

const requestHead = "POST /access/v1/evaluation HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"

// Each attack once, and those of names and connections as often as shows: it is answered as it should be, and honest
// requests beside it are.
func TestAttacks(t *testing.T) {
	t.Parallel()
	v := newVictim(t, "--config", configFile(t, "rate_limit: {per_second: 1000000}\nmax_connections: 200\n"))
	v.ask(t, 1)
	for _, attack := range attackBodies() {
		v.send(t, attack)
		v.ask(t, 1)
	}
	for n := range 2 {
		v.flood(t, n)
		v.ask(t, 1)
	}
	v.names(t, 0, 200)
	v.crowdOut(t, 400, 20)
}

// configFile is a file of configuration.
func configFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	must(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// A connection whose headers never end is gone when its time is up.
//
// It takes 5 s: that long the server waits for a header.
func TestAttackEndlessHeaders(t *testing.T) {
	t.Parallel()
	newVictim(t).dribble(t, 10, func() {})
}

// A thousand connections whose headers never end take little, and are all gone when their time is up.
func TestAttackSlowHeaders(t *testing.T) {
	night.Measures(t)
	v := measured(t)
	before, peak := v.ask(t, 300), v.peak(t)
	v.dribble(t, 1000, func() { v.unharmed(t, before, peak, 64) })
}

// dribble sends headers that never end, a byte a second, until the server has closed all connections.
func (v *victim) dribble(t *testing.T, connections int, meanwhile func()) {
	t.Helper()
	all := make([]net.Conn, connections)
	for n := range all {
		all[n] = v.dial(t)
		if _, err := io.WriteString(all[n], requestHead+"X-Slow: "); err != nil {
			t.Fatal(err)
		}
	}
	stop := make(chan struct{})
	var dribbling sync.WaitGroup
	dribbling.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			for _, conn := range all {
				_, _ = conn.Write([]byte("x"))
			}
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	})
	meanwhile()
	for _, conn := range all {
		_ = conn.SetDeadline(time.Now().Add(patience))           // the one it was made with may be over
		if _, err := io.Copy(io.Discard, conn); isTimeout(err) { // anything else is its end
			t.Fatal("a header that never ends holds its connection")
		}
	}
	close(stop)
	dribbling.Wait()
}

func isTimeout(err error) bool {
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}

// Four hundred bodies of a megabyte, of which the last byte never comes, would be 400 MiB.
func TestAttackSlowBodies(t *testing.T) {
	night.Measures(t)
	v := measured(t)
	before, peak := v.ask(t, 300), v.peak(t)
	const size = 1 << 20
	body := bytes.Repeat([]byte(" "), size-1)
	for range 400 {
		conn := v.dial(t)
		_, _ = fmt.Fprintf(conn, "%sContent-Length: %d\r\n\r\n", requestHead, size)
		go func() { _, _ = conn.Write(body) }() // the server need not read all of it
	}
	v.unharmed(t, before, peak, 160)
}

// Whoever opens more connections than there may be pushes out their own.
func TestAttackConnections(t *testing.T) {
	night.Measures(t)
	v := measured(t, "--config", configFile(t, "max_connections: 200\n"))
	before, peak := v.ask(t, 300), v.peak(t)
	v.crowdOut(t, 2000, 300)
	v.unharmed(t, before, peak, 64)
}

// crowdOut opens more connections than the 200 that there may be, and then some that ask.
func (v *victim) crowdOut(t *testing.T, connections, asking int) {
	t.Helper()
	for range connections {
		v.dial(t)
	}
	v.client.CloseIdleConnections() // it may have been pushed out, too
	v.ask(t, 1)
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", v.pid))
	if err != nil || len(files) > 250 {
		t.Errorf("the server has %d files open (%v), and may have 200 connections", len(files), err)
	}
	for range asking { // each is new, and is let in
		v.ask(t, 1)
		v.client.CloseIdleConnections()
	}
}

// Bodies that are made to be dear cost no more than honest ones of the same size.
func TestAttackBodies(t *testing.T) {
	night.Measures(t)
	v := measured(t)
	large := honestBody()
	dear := v.cost(t, large)
	t.Logf("an honest body of %d bytes: %v", len(large.body), dear)
	for name, attack := range attackBodies() {
		took := v.cost(t, attack)
		t.Logf("%-36s %8d bytes: %v", name, len(attack.body), took)
		if took > 10*dear+5*time.Millisecond {
			t.Errorf("%s: %v of CPU, an honest body of a megabyte %v", name, took, dear)
		}
	}
	if most := v.peak(t); most > 300 {
		t.Errorf("the server took %d MiB", most)
	}
}

// attackBody is a body, and the status that it is to be answered with.
type attackBody struct {
	body, encoding string
	want           int
}

// in is an honest question with a context.
func in(context string) string {
	return strings.TrimSuffix(honest, "}") + `,"context":` + context + "}"
}

func listOf(n int, item func(int) string) string {
	items := make([]string, n)
	for i := range items {
		items[i] = item(i)
	}
	return "[" + strings.Join(items, ",") + "]"
}

// honestBody has about a megabyte.
func honestBody() attackBody {
	numbers := listOf(4096, func(i int) string { return strconv.Itoa(i * 1_000_003) })
	return attackBody{in(`{"a":` + numbers + `,"b":` + numbers + `,"c":` + numbers + `,"d":"` + strings.Repeat("x", 800<<10) + `"}`), "", 200}
}

// attackBodies are made to be dear.
func attackBodies() map[string]attackBody {
	return map[string]attackBody{
		"a million elements":                 {in(`{"a":` + listOf(1_000_000, func(int) string { return "1" }) + "}"), "", 413},
		"half a million elements":            {in(`{"a":` + listOf(500_000, func(int) string { return "1" }) + "}"), "", 400},
		"colliding strings":                  {in(`{"a":` + listOf(4096, collidingText) + "}"), "", 200},
		"colliding integers":                 {in(`{"a":` + listOf(4096, colliding) + "}"), "", 200},
		"a depth bomb of arrays":             {in(`{"a":` + strings.Repeat("[", 500_000) + strings.Repeat("]", 500_000) + "}"), "", 400},
		"a depth bomb of objects":            {in(strings.Repeat(`{"a":`, 150_000) + "1" + strings.Repeat("}", 150_000)), "", 400},
		"an unclosed depth bomb":             {strings.Repeat("[", 1<<20), "", 400},
		"one name a hundred times":           {in("{" + strings.Repeat(`"a":1,`, 100) + `"a":1}`), "", 400},
		"one name, a hundred thousand times": {in("{" + strings.Repeat(`"a":1,`, 100_000) + `"a":1}`), "", 400},
		"a number of a megabyte":             {in(`{"a":` + strings.Repeat("9", 1_000_000) + "}"), "", 200},
		"huge exponents":                     {in(`{"a":` + listOf(4096, func(int) string { return "1e999999999" }) + "}"), "", 200},
		"tiny exponents":                     {in(`{"a":` + listOf(4096, func(int) string { return "1.5e-999999999" }) + "}"), "", 200},
		"escapes":                            {in(`{"a":"` + strings.Repeat(`\u0041`, 170_000) + `"}`), "", 200},
		"compressed":                         {"\x1f\x8b\x08\x00\x00\x00\x00\x00", "gzip", 400},
		"compressed, they say":               {honestBody().body, "br", 400},
	}
}

// Two texts that leave cedar-go's hash of strings as it was, so that any sequence of
// twelve of them has one hash, which the numbers begin at.
var sameHash = [2]string{`=;0-!-a3af:D`, `%>y U4<$59q4`}

// collidingText is one of 4,096 texts that have one hash.
func collidingText(i int) string {
	var text strings.Builder
	for bit := range 12 {
		text.WriteString(sameHash[i>>bit&1])
	}
	return strconv.Quote(text.String())
}

// colliding is one of 2,048 such texts, or of numbers that take the places after theirs.
func colliding(i int) string {
	if i < 2048 {
		return collidingText(i)
	}
	return strconv.Itoa(-3750763034362895579 + i)
}

// cost is the CPU that a body takes, the mean of some.
func (v *victim) cost(t *testing.T, attack attackBody) time.Duration {
	t.Helper()
	const times = 5
	start := v.cpu(t)
	for range times {
		v.send(t, attack)
	}
	return (v.cpu(t) - start) / times
}

// send sends a body, which is answered with the status that it should be.
func (v *victim) send(t *testing.T, attack attackBody) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, "http://"+v.addr+"/access/v1/evaluation", strings.NewReader(attack.body))
	must(t, err)
	r.Header.Set("Content-Type", "application/json")
	if attack.encoding != "" {
		r.Header.Set("Content-Encoding", attack.encoding)
	}
	answer, err := v.client.Do(r)
	must(t, err)
	text, _ := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	if answer.StatusCode != attack.want {
		t.Fatalf("%.80s got %d %.200s, want %d", attack.body, answer.StatusCode, text, attack.want)
	}
}

// Headers beyond 32 KiB are refused before they are all read.
func TestAttackHeaders(t *testing.T) {
	night.Measures(t)
	v := measured(t)
	before, peak := v.ask(t, 300), v.peak(t)
	start := v.cpu(t)
	const times = 200
	for n := range times {
		v.flood(t, n)
	}
	each := (v.cpu(t) - start) / times
	t.Logf("a flood of headers took %v of CPU", each)
	if each > 30*before+10*time.Millisecond {
		t.Errorf("a flood of headers takes %v of CPU, an honest request %v", each, before)
	}
	v.unharmed(t, before, peak, 64)
}

// flood sends one long header, or many, which are refused.
func (v *victim) flood(t *testing.T, n int) {
	t.Helper()
	flood := strings.Repeat("X-A: b\r\n", 20_000)
	if n%2 == 0 {
		flood = "Cookie: " + strings.Repeat("x", 160_000) + "\r\n"
	}
	conn := v.dial(t)
	go func() { _, _ = io.WriteString(conn, requestHead+flood+"\r\n") }()
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return // it hung up on who goes on talking
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Fatalf("got %d", answer.StatusCode)
	}
}

// A hundred thousand tenants, subjects and request ids leave nothing behind: the last
// ninety thousand take no more memory than the first ten thousand.
func TestAttackNames(t *testing.T) {
	night.Measures(t)
	v := measured(t, "--config", configFile(t, "rate_limit: {per_second: 1000000}\n"), "--data", t.TempDir(), "--log-mode", "best_effort")
	v.names(t, 0, 10_000)
	first := v.own(t)
	v.names(t, 10_000, 100_000)
	grown := v.own(t) - first
	t.Logf("%d MiB after 10,000 names, %d more after all", first, grown)
	if grown > 64 {
		t.Errorf("memory grew by %d MiB", grown)
	}
}

// names asks for others each time, on one connection, without waiting for answers.
func (v *victim) names(t *testing.T, from, to int) {
	t.Helper()
	conn := v.dial(t)
	_ = conn.SetDeadline(time.Now().Add(10 * patience))
	go func() {
		w := bufio.NewWriter(conn)
		for n := from; n < to; n++ {
			tenant, id := "", strconv.Itoa(n)
			if n%2 == 0 {
				tenant = "/tenants/t" + id
			}
			body := strings.Replace(honest, "alice", "subject-"+id, 1)
			_, _ = fmt.Fprintf(w, "POST %s/access/v1/evaluation HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nX-Request-ID: request-%s\r\nContent-Length: %d\r\n\r\n%s", tenant, id, len(body), body)
		}
		_ = w.Flush()
	}()
	r := bufio.NewReader(conn)
	for n := from; n < to; n++ {
		answer, err := http.ReadResponse(r, nil)
		must(t, err)
		_, err = io.Copy(io.Discard, answer.Body)
		if want := []int{404, 200}[n%2]; err != nil || answer.StatusCode != want {
			t.Fatalf("number %d got %d, %v", n, answer.StatusCode, err)
		}
	}
}
