package mcp_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/night"
)

// TestSoakGateway has a gateway serve clients of both eras while its upstream and its PDP go away and come back, and while
// clients give up in the midst of what they ask, and leave sessions behind. Whoever gets an answer gets the right one. When
// all is quiet again nothing has grown, and when the gateway has closed nothing is left of it.
//
// SOAKTIME says for how long; without it some seconds do.
func TestSoakGateway(t *testing.T) {
	night.Soaks(t)
	duration, err := time.ParseDuration(cmp.Or(os.Getenv("SOAKTIME"), "4s"))
	orFail(t, err)
	decides := pdptest.Start(t, permitAll, open)
	to, err := url.Parse(decides.URL)
	orFail(t, err)
	s := &soak{t: t, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: soakClients}}}
	s.upstream, s.pdp = fickleAt(t, http.HandlerFunc(serveSoak)), fickleAt(t, mcptest.Proxy(to))
	before := s.rest()
	g, err := mcp.New(t.Context(), mcp.Config{
		Listen: "127.0.0.1:0", Resource: "http://127.0.0.1:8181/mcp",
		PDP:       mcp.PDPConfig{URL: s.pdp.URL, Breaker: mcp.BreakerConfig{CoolDown: 100 * time.Millisecond}},
		Identity:  mcp.IdentityConfig{Static: &mcp.StaticConfig{Sub: "alice", ClientID: "agent-1"}},
		Upstreams: map[string]mcp.UpstreamConfig{"up": {URL: s.upstream.URL + "/mcp", AllowNetworks: []string{"127.0.0.0/8"}}},
	}, mcp.Deps{Now: s.now})
	orFail(t, err)
	front := httptest.NewServer(g.Handler())
	s.url = front.URL + mcp.Endpoint

	s.load(duration / 3)
	first := s.rest()
	s.load(duration - duration/3)
	last := s.rest()
	t.Logf("before %v, after a third %v, at the end %v; %d answered, %d refused, %d given up", before, first, last, s.answered.Load(), s.refused.Load(), s.gaveUp.Load())
	if !first.holds(last, soakClients) {
		t.Errorf("the gateway has grown from %v to %v", first, last)
	}
	if s.answered.Load() == 0 || s.refused.Load() == 0 || s.gaveUp.Load() == 0 {
		t.Error("not everything has happened")
	}
	front.Close()
	orFail(t, g.Close())
	if after := s.settled(before); !before.holds(after, 2) {
		stacks := make([]byte, 1<<20)
		t.Errorf("of the gateway something is left: %v, there was %v\n%s", after, before, stacks[:runtime.Stack(stacks, true)])
	}
}

const soakClients = 16

type soak struct {
	t             testing.TB
	url           string
	client        *http.Client
	upstream, pdp *fickle

	answered, refused, gaveUp atomic.Int64
	jumped                    atomic.Int64 // by how much the clock is ahead
}

func (s *soak) now() time.Time { return time.Now().Add(time.Duration(s.jumped.Load())) }

// load has clients ask for d while what the gateway needs comes and goes. At the end all is there.
func (s *soak) load(d time.Duration) {
	ctx, cancel := context.WithTimeout(s.t.Context(), d)
	defer cancel()
	var clients sync.WaitGroup
	for n := range soakClients {
		clients.Go(func() {
			r := rand.New(rand.NewPCG(uint64(n), uint64(d)))
			for ctx.Err() == nil {
				s.one(ctx, r)
			}
		})
	}
	next := time.NewTicker(max(d/8, 50*time.Millisecond))
	defer next.Stop()
	for n := 0; ctx.Err() == nil; n++ {
		select {
		case <-next.C:
			[]*fickle{s.upstream, s.pdp}[n/2%2].turn(n%2 == 1)
		case <-ctx.Done():
		}
	}
	s.upstream.turn(true)
	s.pdp.turn(true)
	clients.Wait()
}

// one is what one client does: it asks in one of the eras, and may give up, or leave its session behind.
func (s *soak) one(ctx context.Context, r *rand.Rand) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if r.IntN(4) == 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(r.IntN(5000))*time.Microsecond)
		defer cancel()
	}
	tool := []string{"quick", "quick", "streams", "slow"}[r.IntN(4)]
	if tool == "slow" { // which answers nobody
		ctx, cancel = context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
	}
	if r.IntN(2) == 0 {
		s.send(ctx, http.MethodPost, "", "tools/call", `{"name":"`+tool+`","_meta":{"progressToken":1,"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}`, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", tool)
		return
	}
	session := s.send(ctx, http.MethodPost, "", "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"soak","version":"1"}}`)
	if session == "" {
		return
	}
	s.send(ctx, http.MethodPost, session, "tools/call", `{"name":"`+tool+`","_meta":{"progressToken":1}}`)
	switch r.IntN(8) {
	case 0: // it leaves the session behind
	case 1:
		listens, stop := context.WithTimeout(ctx, 5*time.Millisecond)
		defer stop()
		s.send(listens, http.MethodGet, session, "", "")
		fallthrough
	default:
		s.send(context.WithoutCancel(ctx), http.MethodDelete, session, "", "")
	}
}

// send sends one request and reads all of its answer.
func (s *soak) send(ctx context.Context, verb, session, method, params string, headers ...string) (id string) {
	body := ""
	if method != "" {
		body = fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params)
	}
	r, err := http.NewRequestWithContext(ctx, verb, s.url, strings.NewReader(body))
	orFail(s.t, err)
	headers = append(headers, "Content-Type", "application/json", "Accept", "application/json, text/event-stream", "Mcp-Session-Id", session)
	for n := 0; n < len(headers); n += 2 {
		if headers[n+1] != "" {
			r.Header.Set(headers[n], headers[n+1])
		}
	}
	answer, err := s.client.Do(r)
	var text []byte
	if err == nil {
		text, err = io.ReadAll(answer.Body)
		_ = answer.Body.Close()
	}
	switch {
	case ctx.Err() != nil:
		s.gaveUp.Add(1)
		return ""
	case err != nil:
		s.t.Errorf("%s %s: %v", verb, method, err)
		return ""
	case method == "":
		return ""
	}
	if bytes.Contains(text, []byte("data:")) { // a stream, of which the last event counts
		_, text, _ = bytes.Cut(text[bytes.LastIndex(text, []byte("data:")):], []byte("data:"))
	}
	var got struct {
		Result json.RawMessage
		Error  *struct{ Code int }
	}
	switch err := json.Unmarshal(text, &got); {
	case err != nil:
		s.t.Errorf("%s: %s: %v", method, text, err)
	case got.Error != nil && got.Error.Code == -32603: // somebody was away
		s.refused.Add(1)
	case got.Error != nil || method == "tools/call" && !bytes.Contains(got.Result, []byte(`"ran"`)):
		s.t.Errorf("%s: %s", method, text)
	default:
		s.answered.Add(1)
	}
	return answer.Header.Get("Mcp-Session-Id")
}

// held is what the process holds.
type held struct {
	goroutines, descriptors int
	heap                    uint64
}

func (h held) String() string {
	return fmt.Sprintf("%d goroutines, %d descriptors, %d KiB", h.goroutines, h.descriptors, h.heap>>10)
}

// holds reports whether later is not more than h, but for some connections that may be there, and what a run of the
// collector leaves.
func (h held) holds(later held, connections int) bool {
	return later.goroutines <= h.goroutines+4*connections && later.descriptors <= h.descriptors+2*connections && later.heap <= h.heap+h.heap/2+8<<20
}

func holding(t testing.TB) held {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	orFail(t, err)
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return held{runtime.NumGoroutine(), len(files), m.HeapAlloc}
}

// rest is what is held when a call has gone through again, and nobody asks. What was left behind until then is old now: the
// gateway lets go of it in the next minute.
func (s *soak) rest() held {
	if s.url != "" {
		for ends := time.Now().Add(time.Minute); ; {
			before := s.answered.Load()
			s.send(s.t.Context(), http.MethodPost, "", "tools/call", `{"name":"quick","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}`, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "quick")
			if s.answered.Load() > before {
				break
			}
			if time.Now().After(ends) {
				s.t.Fatal("nothing goes through any more")
			}
		}
	}
	s.jumped.Add(int64(time.Hour))
	return s.settled(held{})
}

// settled is what is held once it is no more than wanted, or no longer becomes less.
func (s *soak) settled(wanted held) held {
	s.client.CloseIdleConnections()
	least, same := holding(s.t), 0
	for tick := time.Tick(50 * time.Millisecond); same < 20 && !wanted.holds(least, 0); {
		<-tick
		now := holding(s.t)
		if same++; now.goroutines < least.goroutines || now.descriptors < least.descriptors {
			same = 0
		}
		least = now
	}
	return least
}

// fickle is a server that goes away and comes back by the same address.
type fickle struct {
	*httptest.Server
	away atomic.Bool
}

func fickleAt(t testing.TB, h http.Handler) *fickle {
	t.Helper()
	f := &fickle{}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.away.Load() {
			panic(http.ErrAbortHandler)
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { f.turn(false); f.Close() })
	return f
}

// turn has it be there, or not. When it goes, all of its connections break.
func (f *fickle) turn(there bool) {
	if f.away.Store(!there); !there {
		f.CloseClientConnections()
	}
}

// serveSoak is an MCP server of the legacy era that keeps nothing: a session is whatever a client says.
func serveSoak(w http.ResponseWriter, r *http.Request) {
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct{ Name string }
	}
	switch {
	case r.Method == http.MethodGet:
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	case r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
		return
	case json.NewDecoder(r.Body).Decode(&m) != nil:
		w.WriteHeader(http.StatusBadRequest)
		return
	case m.ID == nil:
		w.WriteHeader(http.StatusAccepted)
		return
	}
	answer := ""
	switch m.Method {
	case "initialize":
		w.Header().Set("Mcp-Session-Id", "one")
		answer = `"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"soak","version":"1"}}`
	case "tools/list":
		answer = `"result":{"tools":[{"name":"quick","inputSchema":{"type":"object"}},{"name":"streams","inputSchema":{"type":"object"}},{"name":"slow","inputSchema":{"type":"object"}}]}`
	case "tools/call":
		answer = `"result":{"content":[{"type":"text","text":"ran"}]}`
	default:
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	answer = fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%s}`, m.ID, answer)
	switch m.Params.Name {
	case "slow":
		<-r.Context().Done()
	case "streams":
		w.Header().Set("Content-Type", "text/event-stream")
		for range 3 {
			_, _ = io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":0,\"progress\":1}}\n\n")
			_ = http.NewResponseController(w).Flush()
		}
		_, _ = io.WriteString(w, "data: "+answer+"\n\n")
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer)
	}
}
