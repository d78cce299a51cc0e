package mcp_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/mcp"
	pdpserver "policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/mcptest"
	"policy-service/pdp/pdptest/written"
)

// siege is a gateway with a PDP that keeps a log, in front of a server that keeps all it gets. Hostile clients come to it,
// and what stands behind it may be hostile too.
type siege struct {
	t       testing.TB
	url     string
	rec     *mcptest.Recorder
	issuer  *mcptest.Issuer
	pdp     *pdptest.Server
	bundle  fstest.MapFS // of the PDP
	gateway *mcp.Gateway
	data    string
	logs    *kept
	config  mcp.Config
	deps    mcp.Deps
}

// camp is what differs from the ordinary. The zero camp permits everything.
type camp struct {
	// policies are the files of the bundle.
	policies map[string]string
	answers  mcptest.Answers
	// before stands before the PDP at a URL, and has one of its own.
	before func(pdp string) string
	change func(*mcp.Config)
	serve  func(*siege, *pdpserver.Config) // changes the PDP
	// program has the server be a program.
	program bool
	now     func() time.Time // the clock of the gateway and the issuer; nil is time.Now
	deps    mcp.Deps
}

// ofServer changes what the configuration says of the server.
func ofServer(change func(u *mcp.UpstreamConfig)) func(*mcp.Config) {
	return func(c *mcp.Config) {
		u := c.Upstreams["rec"]
		change(&u)
		c.Upstreams["rec"] = u
	}
}

// definitions are those of tools, by their names.
func definitions(names ...string) string {
	var all []string
	for _, name := range names {
		all = append(all, `{"name":`+inText(name)+`,"inputSchema":{"type":"object"}}`)
	}
	return "[" + strings.Join(all, ",") + "]"
}

// lists answers with the members of a list, as the era has it.
func lists(c *mcptest.Call, members string) bool {
	if c.Modern {
		members += `,"resultType":"complete","ttlMs":0,"cacheScope":"private"`
	}
	c.Result("{" + members + "}")
	return true
}

const (
	siegeResource = "http://127.0.0.1:8181/mcp"
	siegeTools    = `[{"name":"look","inputSchema":{"type":"object"}},{"name":"change","inputSchema":{"type":"object"}}]`
)

var eras = []string{"legacy", "modern"}

func newSiege(t testing.TB, of camp) *siege {
	t.Helper()
	if of.policies == nil {
		of.policies = map[string]string{"all.cedar": `@id("all") permit (principal, action, resource);`}
	}
	if of.policies["bundle.yaml"] == "" {
		of.policies["bundle.yaml"] = "allow_trivial: true\n"
	}
	if of.answers.Tools == "" {
		of.answers.Tools = siegeTools
	}
	now := time.Now
	if of.now != nil {
		now = of.now
	}
	s := &siege{t: t, data: mcptest.QuickDir(t), bundle: fstest.MapFS{}, logs: &kept{}, rec: mcptest.NewRecorder(t, of.answers), issuer: mcptest.NewIssuer(t, siegeResource, now)}
	t.Cleanup(func() {
		logged := s.logs.String()
		for _, token := range s.issuer.Signed() {
			_, secret, _ := strings.Cut(token, ".") // all tokens begin with the same header
			for part := range strings.SplitSeq(secret, ".") {
				if strings.Contains(logged, part) {
					t.Error("a part of a token is in the gateway's log")
				}
			}
		}
		if t.Failed() { // what refused, and why, is only in the log
			t.Log(s.logs.warnings())
		}
	})
	for name, text := range of.policies {
		s.bundle[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	s.pdp = pdptest.Start(t, pdp.FS(s.bundle), open, func(c *pdpserver.Config) {
		c.Data = s.data
		if of.serve != nil {
			of.serve(s, c)
		}
	})
	asked := s.pdp.URL
	if of.before != nil {
		asked = of.before(asked)
	}
	server := mcp.UpstreamConfig{URL: s.rec.URL, AllowNetworks: []string{"127.0.0.0/8", "::1/128"}, Timeout: time.Minute}
	if of.program {
		server = mcp.UpstreamConfig{Command: s.rec.Command(), Timeout: time.Minute}
	}
	c := mcp.Config{
		Listen: "127.0.0.1:0", Resource: siegeResource,
		PDP:       mcp.PDPConfig{URL: asked, Timeout: time.Minute},
		Identity:  mcp.IdentityConfig{Issuers: []mcp.IssuerConfig{{Issuer: s.issuer.URL, Algorithms: []string{"ES256"}, JWKSFile: s.issuer.KeysFile(t)}}},
		Upstreams: map[string]mcp.UpstreamConfig{"rec": server},
		Limits:    mcp.LimitsConfig{Rate: 1e6, Burst: 1e6}, // a test is one person
	}
	if of.change != nil {
		of.change(&c)
	}
	s.config, s.deps = c, of.deps
	if of.now != nil {
		s.deps.Now = of.now
	}
	s.deps.Logger = slog.New(slog.NewJSONHandler(s.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s.gateway, s.url = s.beside()
	return s
}

// beside is a gateway with the same configuration. If that has no keys to seal by, each has its own.
func (s *siege) beside() (g *mcp.Gateway, url string) {
	s.t.Helper()
	g, err := mcp.New(s.t.Context(), s.config, s.deps)
	orFail(s.t, err)
	served := httptest.NewServer(g.Handler())
	s.t.Cleanup(func() {
		served.CloseClientConnections()
		served.Close()
		orFail(s.t, g.Close())
	})
	return g, served.URL + mcp.Endpoint
}

// rule puts a file of the bundle in force, in the place of one or beside the others.
func (s *siege) rule(name, text string) {
	s.t.Helper()
	s.bundle[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	orFail(s.t, s.pdp.Reload(s.t.Context()))
}

var orFail = mcptest.Must

// kept is all that was written.
type kept struct{ written.Text }

// warnings are the last lines that say why something was refused or failed.
func (k *kept) warnings() string {
	lines := slices.DeleteFunc(strings.SplitAfter(k.String(), "\n"), func(line string) bool {
		return strings.Contains(line, `"level":"DEBUG`)
	})
	return strings.Join(lines[max(0, len(lines)-20):], "")
}

// visitor is a client of one era, with one token.
type visitor struct {
	s       *siege
	era     string
	token   string
	session string
	// meta are members of _meta, each with a comma before it; said is what its modern requests say of it besides.
	meta string
	// capabilities are those that it says.
	capabilities string
	name         string // of the client, siege without one
	client       *http.Client
	id           atomic.Int64
	heard        *kept
}

const modernVersion = "2026-07-28"

// visitor comes with the claims that differ from alice's, and begins.
func (s *siege) visitor(era string, claims mcptest.Claims) *visitor {
	s.t.Helper()
	return s.saying("{}", era, claims)
}

// speaker is a visitor whose client says that it speaks MCPx.
func (s *siege) speaker(era string, claims mcptest.Claims) *visitor {
	s.t.Helper()
	says := map[string]string{"legacy": `{"experimental":{"io.policy-service/tool-requests":{}}}`, "modern": `{"extensions":{"io.policy-service/tool-requests":{}}}`}
	return s.saying(says[era], era, claims)
}

// saying is a visitor whose client says that it has these capabilities.
func (s *siege) saying(capabilities, era string, claims mcptest.Claims) *visitor {
	s.t.Helper()
	v := s.stranger(era, s.issuer.Token(s.t, claims))
	v.capabilities = capabilities
	v.begin()
	return v
}

// stranger comes with a token, and has not begun.
func (s *siege) stranger(era, token string) *visitor {
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	s.t.Cleanup(transport.CloseIdleConnections)
	return &visitor{s: s, era: era, token: token, capabilities: "{}", client: &http.Client{Transport: transport}, heard: &kept{}}
}

// begin begins a session, in the era that has them.
func (v *visitor) begin() {
	v.s.t.Helper()
	got, began := v.tryBegin()
	for end := time.Now().Add(time.Minute); !began && strings.Contains(got.text, `"retry_after"`) && time.Now().Before(end); {
		got, began = v.tryBegin() // a machine that is slow for a PDP that has little time
	}
	if !began {
		v.s.t.Fatalf("no session: %s", got)
	}
}

func (v *visitor) tryBegin() (got echo, began bool) {
	v.s.t.Helper()
	if v.era == "modern" {
		return got, true
	}
	got = v.ask("initialize", `{"protocolVersion":"2025-11-25","clientInfo":{"name":"siege","version":"1"},"capabilities":`+v.capabilities+`}`)
	v.session = got.header.Get("Mcp-Session-Id")
	return got, v.session != ""
}

// text is a request.
func (v *visitor) text(method, params string) string {
	return `{"jsonrpc":"2.0","id":` + strconv.FormatInt(v.id.Add(1), 10) + `,"method":"` + method + `","params":` + v.params(params) + `}`
}

// params are params with what the era has in them.
func (v *visitor) params(params string) string {
	meta := v.meta
	if v.era == "modern" {
		meta = `,"io.modelcontextprotocol/protocolVersion":"` + modernVersion + `","io.modelcontextprotocol/clientInfo":{"name":"` + cmp.Or(v.name, "siege") + `","version":"1"},"io.modelcontextprotocol/clientCapabilities":` + v.capabilities + meta
	}
	if meta == "" {
		return params
	}
	meta = `"_meta":{` + meta[1:] + `}}`
	if head := strings.TrimSuffix(strings.TrimSpace(params), "}"); strings.TrimSpace(head) != "{" {
		return head + "," + meta
	}
	return "{" + meta
}

// ask sends a request as a client does.
func (v *visitor) ask(method, params string, headers ...string) echo {
	v.s.t.Helper()
	return v.send(v.text(method, params), append(v.headers(method, params), headers...)...)
}

// call calls a tool.
func (v *visitor) call(tool, arguments string, headers ...string) echo {
	v.s.t.Helper()
	return v.ask("tools/call", `{"name":"`+tool+`","arguments":`+arguments+`}`, headers...)
}

// headers are those of the era for a request.
func (v *visitor) headers(method, params string) []string {
	all := []string{"Content-Type", "application/json", "Accept", "application/json, text/event-stream", "Authorization", "Bearer " + v.token}
	if v.era == "legacy" {
		if v.session != "" {
			all = append(all, "Mcp-Session-Id", v.session, "Mcp-Protocol-Version", "2025-11-25")
		}
		return all
	}
	all = append(all, "Mcp-Protocol-Version", modernVersion, "Mcp-Method", method)
	var named struct{ Name, URI string }
	if err := json.Unmarshal([]byte(params), &named, json.MatchCaseInsensitiveNames(true), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)); err == nil {
		switch method {
		case "tools/call", "prompts/get":
			all = append(all, "Mcp-Name", mirrored(named.Name))
		case "resources/read":
			all = append(all, "Mcp-Name", mirrored(named.URI))
		}
	}
	return all
}

func mirrored(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(s)) + "?="
	}
	return s
}

// send sends a body. Of headers, which are name, value, …, the last of a name counts; "" takes it away.
func (v *visitor) send(body string, headers ...string) echo {
	v.s.t.Helper()
	got, err := v.try(v.s.t.Context(), http.MethodPost, body, headers...)
	orFail(v.s.t, err)
	return got
}

// sendTo sends a request to a URL.
func (v *visitor) sendTo(ctx context.Context, verb, to, body string, headers ...string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, verb, to, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	for i := 0; i+1 < len(headers); i += 2 {
		switch name, value := headers[i], headers[i+1]; {
		case strings.EqualFold(name, "host"):
			r.Host = value
		case strings.HasPrefix(name, "+"):
			r.Header.Add(name[1:], value)
		case value == "":
			r.Header.Del(name)
		default:
			r.Header.Set(name, value)
		}
	}
	return v.client.Do(r)
}

func (v *visitor) try(ctx context.Context, verb, body string, headers ...string) (echo, error) {
	response, err := v.sendTo(ctx, verb, v.s.url, body, headers...)
	if err != nil {
		return echo{}, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	_ = response.Header.Write(v.heard)
	_, _ = v.heard.Write(text)
	return readAnswer(response, text), err
}

// opens sends a request, and has of the answer what comes before its body.
func (v *visitor) opens(ctx context.Context, verb, method, params string) *http.Response {
	v.s.t.Helper()
	body := ""
	if verb == http.MethodPost {
		body = v.text(method, params)
	}
	answer, err := v.sendTo(ctx, verb, v.s.url, body, v.headers(method, params)...)
	orFail(v.s.t, err)
	return answer
}

// echo is what came of a request.
type echo struct {
	status int
	header http.Header
	text   string
	// before are the messages before the response; result and fault are the response's own.
	before []jsontext.Value
	id     jsontext.Value
	result jsontext.Value
	fault  *fault
	finals int
}

// fault is the error of a response.
type fault struct {
	Code    int            `json:"code"`
	Message string         `json:"message"`
	Data    jsontext.Value `json:"data"`
}

func (a echo) String() string { return fmt.Sprintf("%d %.600s", a.status, a.text) }

// code is that of the error, 0 if there is none.
func (a echo) code() int {
	if a.fault == nil {
		return 0
	}
	return a.fault.Code
}

// blocked is data.type of the error.
func (a echo) kind() string {
	var d struct {
		Type string `json:"type"`
	}
	if a.fault == nil || json.Unmarshal(a.fault.Data, &d) != nil {
		return ""
	}
	return d.Type
}

func (a echo) ran() bool { return a.status == http.StatusOK && a.fault == nil && a.result != nil }

func readAnswer(r *http.Response, text []byte) echo {
	a := echo{status: r.StatusCode, header: r.Header, text: string(text)}
	messages := []jsontext.Value{text}
	if strings.HasPrefix(r.Header.Get("Content-Type"), "text/event-stream") {
		messages = nil
		for line := range strings.Lines(string(text)) {
			if data, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "data: "); ok && data != "" {
				messages = append(messages, jsontext.Value(data))
			}
		}
	}
	for _, m := range messages {
		var said struct {
			ID     jsontext.Value `json:"id"`
			Method string         `json:"method"`
			Result jsontext.Value `json:"result"`
			Error  *fault         `json:"error"`
		}
		if err := json.Unmarshal(m, &said); err != nil {
			continue
		}
		if said.Method != "" {
			a.before = append(a.before, m)
			continue
		}
		a.finals++
		a.id, a.result, a.fault = said.ID, said.Result, said.Error
	}
	return a
}

// executed are the methods that reached the server, but for what a gateway sends by itself.
func (s *siege) executed() (methods []string) {
	for _, g := range s.rec.Executed() {
		methods = append(methods, g.Method)
	}
	return methods
}

// untouched fails if anything reached the server that a client wanted.
func (s *siege) untouched(t testing.TB) {
	t.Helper()
	if all := s.executed(); len(all) > 0 {
		t.Errorf("the server got %q", all)
	}
}

// records are the lines of the decision log. The PDP is stopped for it.
func (s *siege) records() (lines []loggedLine) {
	s.t.Helper()
	orFail(s.t, s.pdp.Stop(context.Background()))
	r, err := segment.OpenReader(s.data)
	orFail(s.t, err)
	defer func() { _ = r.Close() }()
	for line, err := range r.Records(s.t.Context(), 0, r.Size()) {
		orFail(s.t, err)
		var one loggedLine
		orFail(s.t, json.Unmarshal(line.Line, &one))
		one.line = string(line.Line)
		lines = append(lines, one)
	}
	return lines
}

// permitted are the markers of the calls that have a permit on record, sorted. The PDP is stopped for it.
func (s *siege) permitted() (all []string) {
	s.t.Helper()
	for _, line := range s.records() {
		if marker := markerOf(line.Request.Context.Arguments); marker != "" && line.Decision && line.Request.Action.Name != "tool.request" { // which is what a refusal suggests
			all = append(all, marker)
		}
	}
	slices.Sort(all)
	return all
}

// record is a line of the decision log, as far as it is looked at.
type loggedLine struct {
	Kind     string `json:"kind"`
	Decision bool   `json:"decision"`
	Request  struct {
		Action struct {
			Name string `json:"name"`
		} `json:"action"`
		Context struct {
			Arguments jsontext.Value `json:"arguments"`
		} `json:"context"`
	} `json:"request"`
	line string
}

// markerOf is the marker in arguments.
func markerOf(arguments jsontext.Value) string {
	var a struct {
		Marker string `json:"marker"`
	}
	_ = json.Unmarshal(arguments, &a, jsontext.AllowDuplicateNames(true))
	return a.Marker
}

// markers are those of the calls that reached the server, sorted.
func (s *siege) markers() (all []string) {
	for _, g := range s.rec.Got() {
		if g.Method != "tools/call" {
			continue
		}
		var params struct {
			Arguments jsontext.Value `json:"arguments"`
		}
		orFail(s.t, json.Unmarshal(g.Params, &params))
		all = append(all, markerOf(params.Arguments))
	}
	slices.Sort(all)
	return all
}
