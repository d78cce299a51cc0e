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

	"policy-service/evaluation"
	"policy-service/pdp/internal/mcp"
	pdpserver "policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/config"
	"policy-service/pdp/internal/server/listener"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/mcptest"
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
	most int // how many connections it takes
}

func newFlooded(t *testing.T, most int) *flooded {
	t.Helper()
	f := &flooded{most: most, siege: &siege{t: t, rec: mcptest.NewRecorder(t, mcptest.Answers{Tools: siegeTools}), issuer: mcptest.NewIssuer(t, siegeResource, time.Now)}}
	f.pdp = pdptest.Start(t, permitAll, open)
	f.gatewayProcess = startGateway(t, fmt.Appendf(nil, `listen: 127.0.0.1:0
resource: %s
pdp: {url: %q, timeout: 10s}
identity: {issuers: [{issuer: %q, algorithms: [ES256], jwks_file: %q}]}
upstreams: {rec: {url: %q, allow_networks: [127.0.0.0/8, "::1/128"], timeout: 30s}}
limits: {rate: 1000000/s, burst: 1000000, max_connections: %d, per_principal: {concurrent: 64}}
`, siegeResource, f.pdp.URL, f.issuer.URL, f.issuer.KeysFile(t), f.rec.URL, f.most))
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

// comes is somebody who uses no connection twice.
func (f *flooded) comes(era, sub string) *visitor {
	v := f.stranger(era, f.issuer.Token(f.t, mcptest.Claims{"sub": sub}))
	v.client = &http.Client{Timeout: floodPatience, Transport: &http.Transport{DisableKeepAlives: true}}
	return v
}

// mostFloodLarge is how many large messages of one person are read at once.
const mostFloodLarge = 64

// D41: one person who sends large messages by four clients, whose last byte never comes, has few of them read, and hears when to
// come back. TestConnectionsMakeRoom and TestSlowBodiesKeepNoNewcomerOut of the listener have connections that send nothing or too
// little, the story streams-of-one-person has streams, arguments-beyond-the-limits has what is dear to read.
func TestLargeMessagesOfOnePersonAreFew(t *testing.T) {
	t.Parallel()
	f := newFlooded(t, 256)
	const size, n = 1 << 20, 128
	body := bytes.Repeat([]byte(" "), size-1)
	var all []net.Conn
	for client := range 4 {
		all = append(all, f.flood(n/4, f.head(f.issuer.Token(t, mcptest.Claims{"sub": "large", "client_id": strconv.Itoa(client)}), size))...)
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
	if seen["429 Too Many Requests, 1"] == 0 || seen["429 Too Many Requests, 1"]+seen["cut off"] != n-mostFloodLarge {
		t.Errorf("of %d large messages: %v", n, seen)
	}
	good := f.visitor("modern", mcptest.Claims{"sub": "good"})
	good.call("look", `{"text":"`+strings.Repeat("x", size/4)+`"}`).runs(t, "another person's:")
	closeAll(all)
	sending.Wait()
}

// Headers that are too large, and too many, are refused.
func TestHeadersThatAreTooLarge(t *testing.T) {
	t.Parallel()
	f := newFlooded(t, 64)
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

// One person who listens by many clients, and has all connections by it, makes room for others.
func TestListenersOfOnePersonLeaveRoom(t *testing.T) {
	t.Parallel()
	f := newFlooded(t, 64)
	for n := range f.most {
		v := f.stranger("modern", f.issuer.Token(t, mcptest.Claims{"sub": "mallory", "client_id": strconv.Itoa(n)}))
		if answer := v.opens(t.Context(), http.MethodPost, "subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`); answer.Header.Get("Content-Type") != "text/event-stream" {
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

// Slow headers, slow bodies and silent connections fill the gateway: no more are open than may be, and others are answered meanwhile.
func TestFullGatewayAnswersOthers(t *testing.T) {
	t.Parallel()
	f := newFlooded(t, 128)
	good := map[string]*visitor{}
	for _, era := range eras {
		v := f.visitor(era, mcptest.Claims{"sub": "good"})
		v.call("look", `{}`).runs(t, era)
		v.client = &http.Client{Timeout: floodPatience, Transport: &http.Transport{DisableKeepAlives: true}}
		good[era] = v
	}
	before := f.holds()
	all := f.flood(f.most/2, "POST "+mcp.Endpoint+" HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
	all = append(all, f.flood(f.most, f.head(f.issuer.Token(t, mcptest.Claims{"sub": "mallory"}), 1000)+`{"jsonrpc"`)...)
	all = append(all, f.flood(f.most/2, "")...)
	mcptest.Until(t, "the gateway is full", func() bool { return f.holds().connections > f.most*9/10 })
	for range 8 {
		for era, v := range good {
			var got echo
			err := errors.New("not yet")
			for n := 0; n < 10 && (err != nil || !got.ran()); n++ { // a new connection may be the one that makes way
				const params = `{"name":"look","arguments":{}}`
				got, err = v.try(t.Context(), http.MethodPost, v.text("tools/call", params), v.headers("tools/call", params)...)
			}
			if err != nil || !got.ran() {
				t.Errorf("%s: %s, %v", era, got, err)
			}
			if h := f.holds(); h.connections > f.most {
				t.Errorf("%d connections are open, of at most %d", h.connections, f.most)
			}
		}
	}
	closeAll(all)
	mcptest.Until(t, "all is as before", func() bool {
		h := f.holds()
		return h.connections <= before.connections+8 && h.goroutines <= 2*before.goroutines
	})
}
