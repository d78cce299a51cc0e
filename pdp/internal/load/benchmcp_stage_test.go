package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/internal/mcp/lock"
	"policy-service/pdp/internal/server/floor"
	"policy-service/pdp/pdptest/mcptest"
)

// mcpStage are the servers around a gateway: an upstream, an issuer, and perhaps a PDP.
type mcpStage struct {
	t                testing.TB
	dir, binary      string
	issuer           *mcptest.Issuer
	of               *mcpUpstream
	upstream, bundle string
}

// mcpUpstream is an MCP server behind the gateway.
type mcpUpstream struct {
	name  string
	start func(ctx context.Context, s *mcpStage) (addr string, err error)
	// tool is called, each time with other arguments if its answer does not depend on them. ran is in each answer.
	tool      string
	arguments func(n int) string
	ran       string
	lists     bool // it has mcpTools tools, and the list of them is measured
}

var mcpFiller = strings.Repeat("x", mcpArguments-30)

// mcpPlain answers a call at once, with JSON of 100 bytes.
var mcpPlain = mcpUpstream{
	name: "plain",
	start: func(ctx context.Context, s *mcpStage) (string, error) {
		p, err := s.started(startChild(ctx, s.dir, upstreamCommand))
		if err != nil {
			return "", err
		}
		return p.addr, nil
	},
	tool:      "tool-0",
	arguments: func(n int) string { return fmt.Sprintf(`{"number":%d,"text":"%s"}`, n, mcpFiller) },
	ran:       mcpRan,
	lists:     true,
}

// mcpEverything is the server of the SDK. It answers a call by a stream of events, which has the arguments in it: 1.3 KB.
var mcpEverything = mcpUpstream{
	name: "event streams",
	start: func(_ context.Context, s *mcpStage) (string, error) {
		return strings.TrimPrefix(mcptest.BuildEverything(s.t).Start(s.t, false), "http://"), nil
	},
	tool:      "json_schema_2020_12_tool",
	arguments: func(int) string { return `{"contactMethod":"phone","phone":"1","name":"` + mcpFiller + `"}` },
	ran:       "JSON Schema 2020-12 tool called with",
}

const mcpResource = "https://mcp.example.com/mcp"

func newMCPStage(ctx context.Context, t testing.TB, binary string, of *mcpUpstream) *mcpStage {
	t.Helper()
	s := (&mcpStage{t: t, of: of, issuer: mcptest.NewIssuer(t, mcpResource, time.Now)}).withProgram(binary)
	var err error
	if s.upstream, err = of.start(ctx, s); err != nil {
		t.Fatal(err)
	}
	return s
}

// withProgram returns a stage before the same upstream, with files of its own for processes of a program.
func (s *mcpStage) withProgram(binary string) *mcpStage {
	s.t.Helper()
	other := *s
	other.binary, other.dir = binary, s.t.TempDir()
	other.bundle = filepath.Join(other.dir, "policies")
	if err := os.Mkdir(other.bundle, 0o700); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(other.bundle, "agents.cedar"), []byte(`@id("agents") permit (principal is agent, action, resource);`), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return &other
}

// started has a process stop when the test ends.
func (s *mcpStage) started(p *process, err error) (*process, error) {
	if err == nil {
		ends(s.t, p.stop)
	}
	return p, err
}

func (s *mcpStage) startProxy(ctx context.Context) (*process, error) {
	return s.started(s.startProxyTo(ctx, "floor"))
}

func (s *mcpStage) startProxyTo(ctx context.Context, name string) (*process, error) {
	dir, err := os.MkdirTemp(s.dir, name)
	if err != nil {
		return nil, err
	}
	return startChild(ctx, dir, proxyCommand, "http://"+s.upstream)
}

// startPDP starts a PDP with a log, and returns the gateway's configuration for it.
func (s *mcpStage) startPDP(ctx context.Context) (string, error) {
	pdp, err := s.started(startService(ctx, s.binary, &setup{policies: s.bundle, data: filepath.Join(s.dir, "data"), testCase: testCase{log: "best_effort"}}))
	if err != nil {
		return "", err
	}
	return `{url: "http://` + pdp.addr + `"}`, nil
}

// embedPDP is the configuration of a gateway that is a PDP as well.
func (s *mcpStage) embedPDP(context.Context) (string, error) {
	return fmt.Sprintf("{embedded: {policies: %q, data: %q, log_mode: best_effort}}", s.bundle, filepath.Join(s.dir, "data")), nil
}

// lock writes the file in which all tools of the upstream are locked.
func (s *mcpStage) lock(ctx context.Context) (file string, err error) {
	text, err := s.ask(ctx, s.upstream, s.exchange("tools/list", "", `{`+mcpMeta+`}`, ""))
	if err != nil {
		return "", err
	}
	if _, data, is := bytes.Cut(text, []byte("data: ")); is {
		text, _, _ = bytes.Cut(data, []byte("\n"))
	}
	var answer struct {
		Result struct {
			Tools []json.RawMessage `json:"tools"`
		} `json:"result"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return "", fmt.Errorf("the list of tools is %s: %w", text, err)
	}
	tools := map[string]lock.Tool{}
	for _, d := range answer.Result.Tools {
		t, err := lock.ParseTool(d)
		if err != nil {
			return "", err
		}
		tools[t.Name()] = t
	}
	file = filepath.Join(s.dir, "tools.lock.json")
	return file, os.WriteFile(file, lock.File{Servers: map[string]lock.Server{"bench": {Tools: tools}}}.Text(), 0o600)
}

// startGateway starts the gateway before the upstream. All tools are locked, and so all arguments are held against their
// schemas.
func (s *mcpStage) startGateway(ctx context.Context, pdp string) (*process, error) {
	locked, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	config := fmt.Sprintf(`listen: 127.0.0.1:0
resource: %s
pdp: %s
identity: {issuers: [{issuer: %q, algorithms: [ES256], jwks_file: %q}]}
upstreams: {bench: {url: "http://%s/mcp", allow_networks: [127.0.0.0/8]}}
lock: {file: %q, mode: enforce}
limits: {rate: 1000000/s, burst: 1000000}
`, mcpResource, pdp, s.issuer.URL, s.issuer.KeysFile(s.t), s.upstream, locked)
	file, addr := filepath.Join(s.dir, "gateway.yaml"), filepath.Join(s.dir, "gateway.addr")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	return start(ctx, exec.Command(s.binary, "mcp-gateway", "--config", file, "--addr-file", addr), addr)
}

const mcpMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"load","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`

func (s *mcpStage) exchange(method, name, params, token string) exchange {
	headers := []string{"Accept", "application/json, text/event-stream", "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", method}
	if name != "" {
		headers = append(headers, "Mcp-Name", name)
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params)
	return newExchange("127.0.0.1", "/mcp", "Bearer "+token, body, nil, headers...)
}

// calls are n calls by so many tokens in turn.
func (s *mcpStage) calls(tokens, n int) []exchange {
	all := make([]exchange, n)
	var token string
	for i := range all {
		if i < tokens {
			token = s.token("alice", i)
		}
		all[i] = s.exchange("tools/call", s.of.tool, `{"name":"`+s.of.tool+`","arguments":`+s.of.arguments(i)+`,`+mcpMeta+`}`, token)
	}
	return all
}

func (s *mcpStage) token(person string, n int) string {
	return s.issuer.Token(s.t, mcptest.Claims{"sub": person, "client_id": "agent-1", "jti": fmt.Sprint(n)})
}

// ask sends one request and returns the body of the answer.
func (s *mcpStage) ask(ctx context.Context, addr string, e exchange) ([]byte, error) {
	head, body, _ := bytes.Cut(e.request, []byte("\r\n\r\n"))
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/mcp", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for _, line := range strings.Split(string(head), "\r\n")[1:] {
		if name, value, _ := strings.Cut(line, ": "); name != "Host" && name != "Content-Length" {
			r.Header.Set(name, value)
		}
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, text)
	}
	return text, err
}

const (
	upstreamCommand = "mcp-upstream"
	proxyCommand    = "mcp-proxy"
)

// serveProxy is the bare reverse proxy.
func serveProxy(ctx context.Context, addrFile string, args []string) error {
	to, err := url.Parse(args[0])
	if err != nil {
		return err
	}
	return floor.Serve(ctx, addrFile, mcptest.Proxy(to))
}

const mcpRan = `"text":"ran"`

// serveUpstream is an MCP server of the modern era that runs each tool at once.
func serveUpstream(ctx context.Context, addrFile string, _ []string) error {
	list := mcpList()
	return floor.Serve(ctx, addrFile, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var message struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if err := json.NewDecoder(r.Body).Decode(&message); err != nil || r.Method != http.MethodPost {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		if message.ID == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		result := ""
		switch message.Method {
		case "server/discover":
			result = `"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":60000,"cacheScope":"private"`
		case "tools/list":
			result = `"tools":` + list + `,"ttlMs":60000,"cacheScope":"private"`
		case "tools/call":
			result = `"content":[{"type":"text",` + mcpRan + `}]`
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"there is no such method"}}`, message.ID)
			return
		}
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete",%s}}`, message.ID, result)
	}))
}

func mcpList() string {
	tools := make([]string, mcpTools)
	for n := range tools {
		tools[n] = fmt.Sprintf(`{"name":"tool-%d","description":"Does the thing number %d.","inputSchema":{"type":"object","properties":{"number":{"type":"integer"},"text":{"type":"string"}},"required":["number"]}}`, n, n)
	}
	return "[" + strings.Join(tools, ",") + "]"
}
