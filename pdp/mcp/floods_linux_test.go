package mcp_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"golang.org/x/sys/unix"

	"policy-service/evaluation"
	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/night"
	pdpserver "policy-service/pdp/server"
	"policy-service/pdp/server/auth"
	"policy-service/pdp/server/config"
	"policy-service/pdp/server/listener"
)

// D41: floods come to a gateway in a process of its own, behind the listener that it has as a program. What they cost is
// what that process has, and holds when they are over.

const gatewayChild = "MCP_TEST_GATEWAY"

func init() { isChild(gatewayChild, serveGateway) }

// serveGateway serves until its input ends. To each line of it, it says what it holds, and to "waiting" how many calls and
// requests for tools wait for people; by "later" its clock is an hour ahead.
func serveGateway(file string) error {
	var c mcp.Config
	if _, err := mcp.Form.Read(config.Given{File: file}, &c); err != nil {
		return err
	}
	mcp.Form.SetDefaults(&c)
	log := slog.New(slog.DiscardHandler)
	connections := listener.NewConnections(int(c.Limits.MaxConnections), func() {})
	counts := sdkmetric.NewManualReader()
	toPDP := mcp.NewTransport()
	var ahead atomic.Int64
	deps := mcp.Deps{
		Logger: log, Transport: toPDP, Known: func(ctx context.Context, who string) { connections.Knows(listener.CarrierOf(ctx), who) }, MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(counts)),
		Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
	}
	if c.PDP.Embedded != nil {
		decides, err := embeddedPDP(c, deps)
		if err != nil {
			return err
		}
		defer func() { _ = decides.Stop(context.Background()) }()
		deps.Transport = decides.Transport()
	}
	g, err := mcp.New(context.Background(), c, deps)
	if err != nil {
		return err
	}
	on, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return err
	}
	server := listener.HTTPServer(connections.Attend(g.Handler()), connections, log)
	server.WriteTimeout = 0 // as the program has it
	go func() { _ = server.Serve(on) }()
	fmt.Println(on.Addr())
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		switch lines.Text() {
		case "waiting":
			fmt.Println(waitingIn(counts) + gaugeIn(counts, "policy_service.mcp.requested"))
			continue
		case "later":
			ahead.Add(int64(time.Hour))
			continue
		}
		var m runtime.MemStats
		toPDP.CloseIdleConnections() // they are kept for a while, and are no leftovers
		runtime.GC()
		runtime.ReadMemStats(&m)
		open, _, _ := connections.Counts()
		fmt.Println(runtime.NumGoroutine(), open, m.HeapAlloc)
	}
	return errors.Join(server.Close(), g.Close())
}

// embeddedPDP is a PDP in the gateway's process, as the program has it.
func embeddedPDP(c mcp.Config, d mcp.Deps) (*pdpserver.Server, error) {
	people, err := mcp.NewPersons(c, d, func(wire string) (string, bool) { return wire, true })
	if err != nil {
		return nil, err
	}
	callers := &auth.InProcess{People: people, Program: auth.Caller{Name: "key:mcp-gateway", AllTenants: true, Relays: evaluation.ViaForm, Permissions: []auth.Permission{auth.Decide, auth.Search, auth.Request, auth.Relay}}}
	config := pdpserver.Config{Policies: c.PDP.Embedded.Policies, Data: c.PDP.Embedded.Data, PublicURL: mcp.EmbeddedURL, Program: pdpserver.Program{InProcess: true, Authenticator: callers, Logger: d.Logger}}
	s, err := pdpserver.New(config)
	if err != nil {
		return nil, err
	}
	return s, s.Start(context.Background())
}

// floodPatience is how long anything may take before the test fails instead of hanging.
const floodPatience = time.Minute

// gatewayProcess is a gateway in a process of its own.
type gatewayProcess struct {
	tb   testing.TB
	addr string
	pid  int
	in   io.Writer
	out  *bufio.Reader
}

// startGateway runs until the test ends, which fails unless it ends then, and has nothing to say.
func startGateway(t testing.TB, config []byte) *gatewayProcess {
	t.Helper()
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	orFail(t, os.WriteFile(file, config, 0o600))
	said := &kept{}
	command, in, out, addr := startSelf(t, said, gatewayChild+"="+file)
	t.Cleanup(func() {
		_ = in.Close()
		defer time.AfterFunc(floodPatience, func() { _ = command.Process.Kill() }).Stop()
		if err := command.Wait(); err != nil || said.String() != "" {
			t.Errorf("the gateway ended with %v\n%s", err, said)
		}
	})
	return &gatewayProcess{t, addr, command.Process.Pid, in, out}
}

// waiting is how many calls wait for people there.
func (p *gatewayProcess) waiting() (n int) {
	p.tb.Helper()
	_, err := fmt.Fprintln(p.in, "waiting")
	orFail(p.tb, err)
	_, err = fmt.Fscanln(p.out, &n)
	orFail(p.tb, err)
	return n
}

// flooded is such a gateway, and who stands around it.
type flooded struct {
	*siege
	*gatewayProcess
	// most is how many connections it takes, and each how many requests and how many streams of one principal.
	most, each int
	// measured is set if its heap is held to bounds.
	measured bool
}

func newFlooded(t *testing.T, most int, measured bool) *flooded {
	t.Helper()
	f := &flooded{most: most, each: 32, measured: measured, siege: &siege{t: t, rec: mcptest.NewRecorder(t, mcptest.Answers{Tools: siegeTools}), issuer: mcptest.NewIssuer(t, siegeResource, time.Now)}}
	f.pdp = pdptest.Start(t, permitAll, open)
	f.gatewayProcess = startGateway(t, fmt.Appendf(nil, `listen: 127.0.0.1:0
resource: %s
pdp: {url: %q, timeout: 10s}
identity: {issuers: [{issuer: %q, algorithms: [ES256], jwks_file: %q}]}
upstreams: {rec: {url: %q, allow_networks: [127.0.0.0/8, "::1/128"], timeout: 30s}}
limits: {rate: 1000000/s, burst: 1000000, max_connections: %d, per_principal: {concurrent: %d}}
`, siegeResource, f.pdp.URL, f.issuer.URL, f.issuer.KeysFile(t), f.rec.URL, f.most, f.each))
	f.url = "http://" + f.addr + mcp.Endpoint
	return f
}

// floodHeld is what the process of the gateway holds.
type floodHeld struct{ goroutines, connections, heap int }

func (p *gatewayProcess) holds() (h floodHeld) {
	p.tb.Helper()
	_, err := fmt.Fprintln(p.in)
	orFail(p.tb, err)
	_, err = fmt.Fscanln(p.out, &h.goroutines, &h.connections, &h.heap)
	orFail(p.tb, err)
	return h
}

// flood opens connections, each of which sends a text and then waits.
func (f *flooded) flood(n int, text string) (all []net.Conn) {
	f.t.Helper()
	for range n {
		conn, err := net.Dial("tcp", f.addr)
		orFail(f.t, err)
		f.t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(floodPatience))
		_, _ = io.WriteString(conn, text) // which it need not take
		all = append(all, conn)
	}
	return all
}

func closeAll[C io.Closer](all []C) {
	for _, c := range all {
		_ = c.Close()
	}
}

// head is that of a request with a body of a size.
func (f *flooded) head(token string, size int) string {
	return "POST " + mcp.Endpoint + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nAuthorization: Bearer " + token +
		"\r\nContent-Length: " + strconv.Itoa(size) + "\r\n\r\n"
}

func (f *flooded) token(sub string) string { return f.issuer.Token(f.t, mcptest.Claims{"sub": sub}) }

// comes is somebody who uses no connection twice.
func (f *flooded) comes(era, sub string) *visitor {
	v := f.stranger(era, f.token(sub))
	v.client = &http.Client{Timeout: floodPatience, Transport: &http.Transport{DisableKeepAlives: true}}
	return v
}

// goodCaller calls one time after the other, on new connections too, until stop is called. Each call is answered, though
// not each on the first connection.
func (f *flooded) goodCaller(era string) (stop func()) {
	v := f.visitor(era, mcptest.Claims{"sub": "good"})
	v.client.Timeout = floodPatience
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		calls, lost, slowest := 0, 0, time.Duration(0)
		for ; ; calls++ {
			select {
			case <-over:
				f.t.Logf("%s: %d calls, %d connections lost, the slowest took %v", era, calls, lost, slowest)
				return
			default:
			}
			if calls%4 == 0 {
				v.client.CloseIdleConnections()
			}
			begun := time.Now()
			const tries = 10
			for n := 1; ; n++ {
				params := `{"name":"look","arguments":{}}`
				got, err := v.try(f.t.Context(), http.MethodPost, v.text("tools/call", params), v.headers("tools/call", params)...)
				if err == nil && got.ran() {
					break
				}
				if lost++; err == nil || n == tries {
					f.t.Errorf("a good caller got %s, %v", got, err)
					break
				}
			}
			slowest = max(slowest, time.Since(begun))
		}
	}()
	return func() {
		close(over)
		<-done
		v.client.CloseIdleConnections()
	}
}

// Floods come to a gateway that takes 256 connections. It takes five seconds: for as long a connection may send its header.
func TestFloods(t *testing.T) {
	t.Parallel()
	newFlooded(t, 256, false).floods(t)
}

// Floods to a gateway that takes 2,048 connections cost it no more memory than they may.
func TestFloodsMeasured(t *testing.T) {
	night.Measures(t)
	var files unix.Rlimit
	orFail(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &files))
	if files.Cur < 4*2048 {
		t.Skipf("a process may have no more than %d files open; run ulimit -n 32768 before", files.Cur)
	}
	newFlooded(t, 2048, true).floods(t)
}

// floods is all at once: headers and bodies that never end, connections on which nothing is asked, streams on which
// nothing is said, headers and messages that are too much. Good callers are answered meanwhile, and when it is over nothing is
// left of it.
func (f *flooded) floods(t *testing.T) {
	warming := 1
	if f.measured {
		warming = 200
	}
	for _, era := range eras { // it has its buffers, and the heap its size
		v := f.visitor(era, mcptest.Claims{"sub": "good"})
		for range warming {
			if got := v.call("look", `{}`); !got.ran() {
				t.Fatal(got)
			}
		}
		v.client.CloseIdleConnections()
	}
	for n := range f.listeners() { // each has its way to the server, which lasts for a while
		answer := f.listens(t, f.comes("modern", listenerName(n)), http.MethodPost)
		_ = answer.Body.Close()
	}
	f.idleSessions(t)
	before := f.holds()
	ends := []func(){f.goodCaller("legacy"), f.goodCaller("modern")}
	heads := f.slowConnections(t)
	f.largeBodies(t, before)
	f.idleStreams(t, before)
	f.largeHeaders(t)
	f.deepAndMany(t)
	for _, conn := range heads { // their time is up
		var timeout net.Error
		if _, err := io.Copy(io.Discard, conn); errors.As(err, &timeout) && timeout.Timeout() {
			t.Fatal("a header that never ends holds its connection")
		}
	}
	for _, end := range ends {
		end()
	}
	var after floodHeld
	t.Cleanup(func() { t.Logf("before %+v, after %+v", before, after) })
	mcptest.Until(t, "all is as before", func() bool {
		after = f.holds()
		return after.connections <= before.connections+8 && after.goroutines <= 2*before.goroutines && (!f.measured || after.heap <= 2*before.heap)
	})
}

// slowConnections takes more connections than there may be: with headers that never end, with bodies that never come, all of
// one principal, and with nothing.
func (f *flooded) slowConnections(t *testing.T) (heads []net.Conn) {
	heads = f.flood(f.most/2, "POST "+mcp.Endpoint+" HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	go func() {
		for tick := time.NewTicker(time.Second); ; {
			for _, conn := range heads {
				_, _ = conn.Write([]byte("x"))
			}
			select {
			case <-tick.C:
			case <-over:
				return
			}
		}
	}()
	bodies := f.flood(f.most, f.head(f.token("mallory"), 1000)+`{"jsonrpc"`)
	idle := f.flood(f.most/2, "")
	var h floodHeld
	mcptest.Until(t, "they are there", func() bool { h = f.holds(); return h.connections > f.most*9/10 })
	if h.connections > f.most {
		t.Errorf("%d connections are open, of at most %d", h.connections, f.most)
	}
	closeAll(idle)
	closeAll(bodies)
	return heads
}

// mostFloodLarge is how many large messages of one person are read at once.
const mostFloodLarge = 64

// largeBodies has one person send large messages by four clients, whose last byte never comes.
func (f *flooded) largeBodies(t *testing.T, before floodHeld) {
	const size = 1 << 20
	n := min(300, f.most/2)
	body := bytes.Repeat([]byte(" "), size-1)
	var all []net.Conn
	for client := range 4 {
		all = append(all, f.flood(n/4, f.head(f.issuer.Token(f.t, mcptest.Claims{"sub": "large", "client_id": strconv.Itoa(client)}), size))...)
	}
	refused := make(chan string, n)
	var sending sync.WaitGroup
	for _, conn := range all {
		sending.Go(func() { _, _ = conn.Write(body) })
		sending.Go(func() {
			answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				refused <- "cut off"
				return
			}
			refused <- answer.Status + ", " + answer.Header.Get("Retry-After")
		})
	}
	seen := map[string]int{}
	for range n - mostFloodLarge {
		seen[<-refused]++
	}
	h := f.holds()
	t.Logf("large messages: %v, the heap had %d MiB, and has %d", seen, before.heap>>20, h.heap>>20)
	if seen["429 Too Many Requests, 1"] == 0 || seen["429 Too Many Requests, 1"]+seen["cut off"] != n-mostFloodLarge {
		t.Errorf("of %d large messages: %v", n, seen)
	}
	if most := before.heap + mostFloodLarge*2*size + 32<<20; f.measured && h.heap > most {
		t.Errorf("the heap has %d MiB", h.heap>>20)
	}
	closeAll(all)
	sending.Wait()
}

// listeners is how many principals listen to as much as they may, and take half of the connections by it.
func (f *flooded) listeners() int { return f.most / 2 / f.each }

func listenerName(n int) string { return "listener " + strconv.Itoa(n) }

// idleStreams has many principals listen to as much as they may, and to more.
func (f *flooded) idleStreams(t *testing.T, before floodHeld) {
	principals, more := f.listeners(), 4
	var begun, limited atomic.Int64
	var mu sync.Mutex
	var streams []io.ReadCloser
	var all sync.WaitGroup
	var visitors []*visitor
	for n := range principals {
		v := f.comes("modern", listenerName(n))
		visitors = append(visitors, v)
		for range f.each + more {
			all.Go(func() {
				answer := f.listens(t, v, http.MethodPost)
				if answer.Header.Get("Content-Type") == "text/event-stream" {
					begun.Add(1)
					mu.Lock()
					streams = append(streams, answer.Body)
					mu.Unlock()
					return
				}
				text, _ := io.ReadAll(answer.Body)
				_ = answer.Body.Close()
				if got := readAnswer(answer, text); got.status == http.StatusOK && got.code() == -32001 && got.kind() == "rate_limited" && strings.Contains(got.text, `"retry_after"`) {
					limited.Add(1)
				} else {
					t.Errorf("one stream too many: %s", got)
				}
			})
		}
	}
	all.Wait()
	if begun.Load() != int64(principals*f.each) || limited.Load() != int64(principals*more) {
		t.Errorf("%d principals listen to %d streams, and %d were refused", principals, begun.Load(), limited.Load())
	}
	for _, v := range visitors { // whoever listens is in nobody's way
		v.call("look", `{}`).runs(t, "beside its streams:")
	}
	h := f.holds()
	t.Logf("%d streams: %+v, before %+v: %d KiB each", len(streams), h, before, (h.heap-before.heap)/len(streams)>>10)
	if each := (h.heap - before.heap) / len(streams); f.measured && each > 128<<10 {
		t.Errorf("a stream on which nothing is said costs %d KiB", each>>10)
	}
	closeAll(streams)
	mcptest.Until(t, "they have gone, and others come", func() bool {
		answer := f.listens(t, visitors[0], http.MethodPost)
		defer func() { _ = answer.Body.Close() }()
		return answer.Header.Get("Content-Type") == "text/event-stream"
	})
	f.idleSessions(t)
}

// idleSessions has a principal open the streams of more sessions than it may.
func (f *flooded) idleSessions(t *testing.T) {
	var streams []io.ReadCloser
	for n := range f.each + 4 {
		v := f.comes("legacy", "old listener")
		v.begin()
		answer := f.listens(t, v, http.MethodGet)
		streams = append(streams, answer.Body)
		if n < f.each && answer.StatusCode != http.StatusOK || n >= f.each && (answer.StatusCode != http.StatusTooManyRequests || answer.Header.Get("Retry-After") == "") {
			t.Errorf("stream %d: %s", n, answer.Status)
		}
	}
	closeAll(streams)
}

// listens opens a stream on which nothing will be said.
func (f *flooded) listens(t *testing.T, v *visitor, verb string) *http.Response {
	t.Helper()
	return v.opens(t.Context(), verb, "subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`)
}

// largeHeaders sends headers that are too large, and too many.
func (f *flooded) largeHeaders(t *testing.T) {
	for name, lines := range map[string]string{
		"large": "X-Large: " + strings.Repeat("x", 128<<10) + "\r\n",
		"many":  strings.Repeat("X-Many: x\r\n", 20_000),
		"names": strings.Repeat("X-"+strings.Repeat("n", 1000)+": x\r\n", 100),
	} {
		for _, conn := range f.flood(8, "") {
			go func() {
				_, _ = io.WriteString(conn, "POST "+mcp.Endpoint+" HTTP/1.1\r\nHost: localhost\r\n"+lines+"\r\n")
			}()
			answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err == nil && answer.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
				t.Errorf("%s: %s", name, answer.Status)
			}
			_ = conn.Close()
		}
	}
}

// deepAndMany sends messages that are cheap to send and dear to read, many at once.
func (f *flooded) deepAndMany(t *testing.T) {
	members := func(n int) string {
		var b strings.Builder
		for m := range n {
			fmt.Fprintf(&b, `,"m%d":0`, m)
		}
		return `{` + b.String()[1:] + `}`
	}
	before := len(f.rec.Executed())
	for name, test := range map[string]struct {
		arguments    string
		status, code int
	}{
		"1,000 arrays":    {`{"a":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`, http.StatusBadRequest, -32600},
		"200,000 members": {members(200_000), http.StatusRequestEntityTooLarge, -32600},
		"90,000 members":  {members(90_000), http.StatusOK, -32602}, // more than arguments may have
		"40,000 members":  {members(40_000), http.StatusOK, -32602}, // more than a question may have
	} {
		v := f.comes("modern", "dear "+name)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				params := `{"name":"look","arguments":` + test.arguments + `}`
				got, err := v.try(t.Context(), http.MethodPost, v.text("tools/call", params), v.headers("tools/call", `{"name":"look"}`)...)
				if err == nil && (got.status != test.status || got.code() != test.code) || err != nil && test.status != http.StatusRequestEntityTooLarge {
					t.Errorf("%s: %.300s, %v", name, got, err)
				}
			})
		}
		all.Wait()
	}
	for _, g := range f.rec.Executed()[before:] {
		if len(g.Body) > 4096 {
			t.Errorf("the server got %d bytes", len(g.Body))
		}
	}
}

// One person who listens by many clients, and has all connections by it, makes room for others.
func TestListenersOfOnePersonLeaveRoom(t *testing.T) {
	t.Parallel()
	f := newFlooded(t, 64, false)
	for n := range f.most {
		v := f.stranger("modern", f.issuer.Token(t, mcptest.Claims{"sub": "mallory", "client_id": strconv.Itoa(n)}))
		if answer := f.listens(t, v, http.MethodPost); answer.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("stream %d: %s", n, answer.Status)
		}
	}
	v := f.comes("modern", "alice")
	for range 3 {
		if got, err := v.try(t.Context(), http.MethodPost, v.text("tools/list", `{}`), v.headers("tools/list", `{}`)...); err != nil || !got.ran() {
			t.Errorf("another person: %v, %v", got, err)
		}
	}
}

// One person who reads no results, by however many clients, has few large ones kept for them, and others have theirs.
func TestUnreadResultsOfOnePersonAreFew(t *testing.T) {
	t.Parallel()
	const most = 64
	s := newSiege(t, camp{answers: mcptest.Answers{Results: map[string]string{"tools/call": bigResult}}}) // more than sockets hold
	var open []net.Conn
	defer func() { closeAll(open) }()
	const params = `{"name":"look","arguments":{}}`
	mallory := func(n int) *visitor {
		return s.stranger("modern", s.issuer.Token(t, mcptest.Claims{"sub": "mallory", "client_id": strconv.Itoa(n % 8)}))
	}
	begins := func(n int) string {
		v := mallory(n)
		r, err := http.NewRequest(http.MethodPost, s.url, strings.NewReader(v.text("tools/call", params)))
		orFail(t, err)
		for h := v.headers("tools/call", params); len(h) > 1; h = h[2:] {
			r.Header.Set(h[0], h[1])
		}
		conn, err := net.Dial("tcp", r.URL.Host)
		orFail(t, err)
		open = append(open, conn)
		orFail(t, errors.Join(conn.(*net.TCPConn).SetReadBuffer(4096), conn.SetDeadline(time.Now().Add(floodPatience)), r.Write(conn)))
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		orFail(t, err)
		beginning := make([]byte, 150)
		_, err = io.ReadFull(answer.Body, beginning)
		orFail(t, err)
		return string(beginning)
	}
	for n := range most {
		if got := begins(n); !strings.Contains(got, "xxx") {
			t.Fatalf("result %d begins with %s", n, got)
		}
	}
	if got := mallory(most).call("look", `{}`); got.kind() != "result_not_kept" {
		t.Errorf("one more is %s", got)
	}
	s.visitor("modern", mcptest.Claims{"sub": "alice"}).call("look", `{}`).runs(t, "another person's:")
	closeAll(open)
	mcptest.Until(t, "there is room again", func() bool { return mallory(most).call("look", `{}`).ran() })
}
