package mcp_test

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
	"policy-service/pdp/pdptest"
)

// bare is a client that sends and shows every byte.
type bare struct {
	url, token, session string
	legacy              bool
	capabilities        string
}

// reply is what it is answered.
type reply struct {
	status int
	header http.Header
	body   string
	Result jsontext.Value `json:"result"`
	Error  struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// open sends a request, and leaves the answer unread.
func (b *bare) open(t *testing.T, verb, method, id, params string) *http.Response {
	t.Helper()
	capabilities := b.capabilities
	if capabilities == "" {
		capabilities = "{}"
	}
	if !b.legacy {
		params = strings.TrimSuffix(params, "}")
		if params != "{" {
			params += ","
		}
		params += `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":` + capabilities + `}}`
	}
	body := `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":` + params + `}`
	if verb != http.MethodPost {
		body = ""
	}
	r, err := http.NewRequestWithContext(t.Context(), verb, b.url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if b.token != "" {
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	if b.session != "" {
		r.Header.Set("Mcp-Session-Id", b.session)
	}
	r.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	if !b.legacy {
		r.Header.Set("Mcp-Protocol-Version", "2026-07-28")
		r.Header.Set("Mcp-Method", method)
		var named struct{ Name, URI string }
		_ = json.Unmarshal([]byte(params), &named, json.MatchCaseInsensitiveNames(true))
		if name := named.Name + named.URI; name != "" {
			r.Header.Set("Mcp-Name", name)
		}
	}
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (b *bare) send(t *testing.T, method, params string) (got reply) {
	t.Helper()
	return replyOf(t, b.open(t, http.MethodPost, method, "7", params))
}

func replyOf(t *testing.T, w *http.Response) (got reply) {
	t.Helper()
	defer func() { _ = w.Body.Close() }()
	body, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	got.status, got.header, got.body = w.StatusCode, w.Header, string(body)
	if strings.HasPrefix(w.Header.Get("Content-Type"), "application/json") {
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
	}
	return got
}

// begin begins the session of a client of the legacy era.
func (b *bare) begin(t *testing.T) *bare {
	t.Helper()
	if b.legacy {
		capabilities := b.capabilities
		if capabilities == "" {
			capabilities = "{}"
		}
		got := b.send(t, "initialize", `{"protocolVersion":"2025-11-25","clientInfo":{"name":"bare","version":"1"},"capabilities":`+capabilities+`}`)
		if b.session = got.header.Get("Mcp-Session-Id"); b.session == "" {
			t.Fatalf("no session: %d %s", got.status, got.body)
		}
	}
	return b
}

const odd = `{"name":"odd","inputSchema":{"type":"object"},"coaz":false,"authorization":{"required":true},"x":[1.0,1e2,"\u00e9"]}`

// What nobody knows survives both ways, between all eras.
func TestErasKeepWhatTheyDoNotKnow(t *testing.T) {
	t.Parallel()
	pdp := pdptest.Start(t, permitAll, open).URL
	const result = `{"content":[{"type":"hologram","x":1.0}],"_meta":{"x.example/a":1e0},"unknown":{"b":1.50},"tasks":"x"`
	for _, up := range []string{"legacy", "modern"} {
		r := mcptest.NewRecorder(t, mcptest.Answers{Eras: []string{up}, Tools: "[" + odd + "]", Results: map[string]string{"tools/call": result + `,"resultType":"complete"}`}})
		url := serve(t, gateway(t, pdp, mcp.UpstreamConfig{URL: r.URL}))
		for _, legacy := range []bool{true, false} {
			b := (&bare{url: url, legacy: legacy}).begin(t)
			if got := b.send(t, "tools/list", `{}`); !strings.Contains(string(got.Result), odd) {
				t.Errorf("%s, legacy %t: the list is %s", up, legacy, got.body)
			}
			const params = `"name":"odd","arguments":{"a":1.0,"b":"\u00e9"},"unknown":[1e2]`
			got := b.send(t, "tools/call", `{`+params+`,"capability":"x","proof":"y"}`)
			for _, part := range []string{`"content":[{"type":"hologram","x":1.0}]`, `"x.example/a":1e0`, `"unknown":{"b":1.50}`} {
				if !strings.Contains(string(got.Result), part) {
					t.Errorf("%s, legacy %t: no %s in %s", up, legacy, part, got.body)
				}
			}
			if strings.Contains(string(got.Result), "resultType") == legacy {
				t.Errorf("%s, legacy %t: %s", up, legacy, got.Result)
			}
			sent := r.Executed()
			if last := sent[len(sent)-1]; !strings.Contains(string(last.Params), params) || strings.Contains(string(last.Params), "proof") {
				t.Errorf("%s, legacy %t: the server got %s", up, legacy, last.Params)
			}
		}
	}
}

// Methods that an era does not have are not known, and do not reach the server.
func TestErasRefuseMethodsOfTheOther(t *testing.T) {
	t.Parallel()
	pdp := pdptest.Start(t, permitAll, open).URL
	r := mcptest.NewRecorder(t, mcptest.Answers{})
	url := serve(t, gateway(t, pdp, mcp.UpstreamConfig{URL: r.URL}))
	for legacy, methods := range map[bool][]string{
		false: {"ping", "initialize", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "tasks/list", "tasks/result"},
		true:  {"server/discover", "subscriptions/listen"},
	} {
		b := (&bare{url: url, legacy: legacy}).begin(t)
		want := map[bool]int{true: 200, false: 404}[legacy]
		for _, method := range methods {
			if got := b.send(t, method, `{}`); got.status != want || got.Error.Code != -32601 {
				t.Errorf("legacy %t, %s: %d %s", legacy, method, got.status, got.body)
			}
		}
		if got := b.send(t, "no/such", `{}`); got.Error.Code == 0 {
			t.Errorf("legacy %t, a method that nobody knows: %d %s", legacy, got.status, got.body)
		}
	}
	if sent := r.Executed(); len(sent) > 0 {
		t.Errorf("%d requests reached the server, the first is %s", len(sent), sent[0].Body)
	}
}

// people are two who come with tokens.
func people(t *testing.T) (alice, bob string, i *mcptest.Issuer, change func(*mcp.Config)) {
	i = mcptest.NewIssuer(t, "http://127.0.0.1:8181/mcp", time.Now)
	return i.Token(t, nil), i.Token(t, mcptest.Claims{"sub": "bob"}), i, func(c *mcp.Config) {
		c.Identity = mcp.IdentityConfig{Issuers: []mcp.IssuerConfig{{Issuer: i.URL, Algorithms: []string{"ES256"}, JWKSFile: i.KeysFile(t)}}}
	}
}

// A state is good for the request that it was given for, of who asked it; a held one once.
func TestErasSealStates(t *testing.T) {
	t.Parallel()
	pdp := pdptest.Start(t, permitAll, open).URL
	const form = `{"message":"Who?","requestedSchema":{"type":"object","properties":{"a":{"type":"string"}}}}`
	tools := `[` + odd + `,{"name":"even","inputSchema":{"type":"object"}}]`
	for _, up := range []string{"modern", "legacy"} {
		t.Run(up, func(t *testing.T) {
			alice, bob, _, change := people(t)
			r := mcptest.NewRecorder(t, mcptest.Answers{Eras: []string{up}, Tools: tools, Handle: func(c *mcptest.Call) bool {
				switch {
				case c.Method != "tools/call":
					return false
				case !c.Modern:
					c.Message(`{"jsonrpc":"2.0","id":"q1","method":"elicitation/create","params":` + form + `}`)
					<-c.Context.Done() // what answers it, is another request
				case !strings.Contains(string(c.Params), `"requestState":"theirs"`):
					c.Result(`{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":` + form + `}},"requestState":"theirs"}`)
				default:
					return false
				}
				return true
			}})
			url := serve(t, gateway(t, pdp, mcp.UpstreamConfig{URL: r.URL, ServerRequests: relayed}, change))
			b := &bare{url: url, token: alice, capabilities: `{"elicitation":{"form":{}}}`}
			var asked struct {
				State    string                    `json:"requestState"`
				Requests map[string]jsontext.Value `json:"inputRequests"`
			}
			got := b.send(t, "tools/call", `{"name":"odd","arguments":{"a":1}}`)
			if err := json.Unmarshal(got.Result, &asked); err != nil || asked.State == "" || strings.Contains(got.body, "theirs") || len(asked.Requests) != 1 {
				t.Fatalf("%d %s: %v", got.status, got.body, err)
			}
			calls := func() (n int) {
				for _, g := range r.Executed() {
					if g.Method == "tools/call" {
						n++
					}
				}
				return n
			}
			for key := range asked.Requests {
				retry := func(who, name, arguments, state string) reply {
					b.token = who
					return b.send(t, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s,"requestState":%q,"inputResponses":{%q:{"action":"accept","content":{"a":"x"}}}}`, name, arguments, state, key))
				}
				before := calls()
				tampered := asked.State[:len(asked.State)-6] + "AAAA" + asked.State[len(asked.State)-2:]
				for what, got := range map[string]reply{
					"another principal": retry(bob, "odd", `{"a":1}`, asked.State),
					"another tool":      retry(alice, "even", `{"a":1}`, asked.State),
					"other arguments":   retry(alice, "odd", `{"a":2}`, asked.State),
					"a tampered state":  retry(alice, "odd", `{"a":1}`, tampered),
					"the server's own":  retry(alice, "odd", `{"a":1}`, "theirs"),
				} {
					if got.Error.Code != -32602 {
						t.Errorf("%s: %d %s", what, got.status, got.body)
					}
				}
				if n := calls(); n != before {
					t.Errorf("%d calls more reached the server", n-before)
				}
				if up == "modern" {
					if got := retry(alice, "odd", `{ "a" : 1 }`, asked.State); !strings.Contains(string(got.Result), "ran") {
						t.Errorf("the right one: %d %s", got.status, got.body)
					}
				}
			}
		})
	}
}

// An answer that is held is taken once.
func TestErasHoldOnce(t *testing.T) {
	t.Parallel()
	up := mcp.UpstreamConfig{ServerRequests: relayed}
	up.URL, _ = newPartner(true).start(t, false)
	b := &bare{url: serve(t, gateway(t, pdptest.Start(t, permitAll, open).URL, up)), capabilities: `{"elicitation":{"form":{}}}`}
	type asked struct {
		State    string                    `json:"requestState"`
		Requests map[string]jsontext.Value `json:"inputRequests"`
	}
	next := func(of reply) (got asked) {
		if err := json.Unmarshal(of.Result, &got); err != nil {
			t.Fatalf("%s: %v", of.body, err)
		}
		return got
	}
	again := func(a asked) reply {
		for key := range a.Requests {
			return b.send(t, "tools/call", fmt.Sprintf(`{"name":"twice","requestState":%q,"inputResponses":{%q:{"action":"accept","content":{"answer":"x"}}}}`, a.State, key))
		}
		t.Fatal("nothing is asked")
		return reply{}
	}
	first := next(b.send(t, "tools/call", `{"name":"twice"}`))
	second := next(again(first))
	if got := again(first); got.Error.Code != -32602 {
		t.Errorf("the first answer, a second time: %s", got.body)
	}
	if got := again(second); !strings.Contains(got.body, `"xx"`) {
		t.Errorf("the second answer: %s", got.body)
	}
	if got := again(second); got.Error.Code != -32602 {
		t.Errorf("the second answer, a second time: %s", got.body)
	}
}

// What a server asks that may not ask is refused, and the client hears nothing of it.
func TestErasDeny(t *testing.T) {
	t.Parallel()
	pdp := pdptest.Start(t, permitAll, open).URL
	for _, c := range cells() {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			b := c.between(t, pdp, mcp.ServerRequests{})
			for _, tool := range []string{"ask", "twice"} {
				result, err := b.CallTool(t.Context(), &sdk.CallToolParams{Name: tool})
				if err == nil && !result.IsError {
					t.Errorf("%s: %+v", tool, result.Content[0])
				}
			}
			if len(b.asked) > 0 {
				t.Errorf("the person was asked %q", <-b.asked)
			}
		})
	}
}

// A session is its principal's, ends when it is deleted, and outlives the gateway if the keys do.
func TestErasSessions(t *testing.T) {
	t.Parallel()
	pdp := pdptest.Start(t, permitAll, open).URL
	alice, bob, issuer, change := people(t)
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	file := filepath.Join(t.TempDir(), "seal.key")
	if err := os.WriteFile(file, []byte(base64.RawURLEncoding.EncodeToString(key)), 0o600); err != nil {
		t.Fatal(err)
	}
	sealed := func(c *mcp.Config) { c.Seal.KeyFiles = []string{file} }
	begun, gone := make(chan string, 8), make(chan string, 8)
	r := mcptest.NewRecorder(t, mcptest.Answers{Eras: []string{"legacy"}, Tools: `[` + odd + `]`, Handle: func(c *mcptest.Call) bool {
		if c.Method != "tools/call" || !strings.Contains(string(c.Params), `"wait"`) {
			return false
		}
		begun <- ""
		<-c.Context.Done()
		gone <- ""
		return true
	}})
	up := mcp.UpstreamConfig{URL: r.URL}
	before := serve(t, gateway(t, pdp, up, change, sealed))
	b := (&bare{url: before, legacy: true, token: alice}).begin(t)
	const call = `{"name":"odd"}`
	if got := b.send(t, "tools/call", call); got.Result == nil {
		t.Fatalf("%d %s", got.status, got.body)
	}
	foreign := *b
	foreign.token = bob
	if got := foreign.send(t, "tools/call", call); got.status != http.StatusNotFound {
		t.Errorf("another principal's session: %d %s", got.status, got.body)
	}

	// One id at a time.
	const wait = `{"name":"odd","arguments":{"wait":true}}`
	done := make(chan error, 1)
	go func() {
		r, err := http.NewRequest(http.MethodPost, before, strings.NewReader(`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":`+wait+`}`))
		if err == nil {
			r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Authorization": {"Bearer " + alice}, "Mcp-Session-Id": {b.session}}
			var w *http.Response
			if w, err = http.DefaultClient.Do(r); err == nil {
				_ = w.Body.Close()
			}
		}
		done <- err
	}()
	next(t, begun)
	if got := replyOf(t, b.open(t, http.MethodPost, "tools/call", "9", call)); got.status != http.StatusBadRequest {
		t.Errorf("two with one id: %d %s", got.status, got.body)
	}

	// The server forgets the session while a call is under way, and before another.
	r.Forget()
	calls := len(r.Executed())
	if got := b.send(t, "tools/call", call); got.Result == nil || len(r.Executed()) != calls+2 { // once refused, once executed
		t.Errorf("after the server has forgotten the session: %d %s", got.status, got.body)
	}

	// Another gateway with the same keys goes on, and one that was told so ends it.
	after := *b
	after.url = serve(t, gateway(t, pdp, up, change, sealed))
	if got := after.send(t, "tools/call", call); got.Result == nil {
		t.Errorf("after a restart: %d %s", got.status, got.body)
	}
	if got := replyOf(t, b.open(t, http.MethodDelete, "", "", "{}")); got.status != http.StatusNoContent {
		t.Errorf("delete: %d %s", got.status, got.body)
	}
	next(t, gone) // with its session the call that waits is over
	if err := next(t, done); err != nil {
		t.Error(err)
	}
	if got := b.send(t, "tools/call", call); got.status != http.StatusNotFound {
		t.Errorf("after delete: %d %s", got.status, got.body)
	}

	// A stream ends with its token.
	short := (&bare{url: after.url, legacy: true, token: issuer.Token(t, mcptest.Claims{"exp": time.Now().Add(2 * time.Second).Unix()})}).begin(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, short.open(t, http.MethodGet, "", "", "{}").Body)
	}()
	next(t, ended)
}

// A gateway that is closed leaves nothing behind.
func TestErasLeaveNothing(t *testing.T) { // beside no other, whose goroutines it would see
	pdp := pdptest.Start(t, permitAll, open).URL
	for _, c := range []cell{{legacy: true, upLegacy: true}, {upStdio: true}, {upLegacy: true, stdio: true}, {legacy: true, upStdio: true}} {
		t.Run(c.String(), func(t *testing.T) {
			t.Run("use", func(t *testing.T) {
				b := c.between(t, pdp, relayed)
				changes(t, b)
				asks(t, b)
			})
			http.DefaultTransport.(*http.Transport).CloseIdleConnections()
			var left string
			for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); runtime.Gosched() {
				all := make([]byte, 1<<20)
				all = all[:runtime.Stack(all, true)]
				left = ""
				for one := range strings.SplitSeq(string(all), "\n\n") {
					if strings.Contains(one, "pdp/mcp/internal/") {
						left = one
					}
				}
				if left == "" {
					return
				}
			}
			t.Errorf("something goes on:\n%s", left)
		})
	}
}
