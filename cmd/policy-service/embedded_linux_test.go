package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"policy-service/evaluation"
	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/pdptest/mcptest"
)

// edited is what the tools of [editedServer] take.
type edited struct {
	Path string `json:"path"`
}

// editedServer is an MCP server whose tools do nothing but write that they were called, into the file $CALLS.
func editedServer() {
	s := sdk.NewServer(&sdk.Implementation{Name: "pages", Version: "1"}, nil)
	for _, name := range []string{"read", "write", "wipe"} {
		sdk.AddTool(s, &sdk.Tool{Name: name, Description: name}, func(_ context.Context, _ *sdk.CallToolRequest, in edited) (*sdk.CallToolResult, any, error) {
			f, err := os.OpenFile(os.Getenv("CALLS"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err == nil {
				_, err = fmt.Fprintln(f, name, in.Path)
				err = errors.Join(err, f.Close())
			}
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: name + " is done"}}}, nil, err
		})
	}
	_ = s.Run(context.Background(), &sdk.StdioTransport{})
}

// household is a directory with all that a gateway has that asks people by a PDP in its process: policies/mcp decides, the
// tool "write" is to be confirmed, and "wipe" takes a second person.
type household struct {
	t   *testing.T
	dir string
	log lockedText
}

// lockedText is text that a process writes while a test reads it.
type lockedText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

const desktopIdentity = "{static: {sub: alice, client_id: desktop}}"

func newHousehold(t *testing.T, identity string, wait time.Duration) *household {
	t.Helper()
	server, err := exec.LookPath("edited-mcp-server")
	must(t, err)
	h := &household{t: t, dir: t.TempDir()}
	must(t, os.CopyFS(h.in("policies"), os.DirFS(filepath.Join(starter(t), "..", "mcp"))))
	text := fmt.Sprintf(`listen: 127.0.0.1:0
resource: http://127.0.0.1:8181/mcp
identity: %s
pdp: {embedded: {policies: %q, data: %q}, timeout: 1m}
approvals: {wait: %s}
seal: {key_files: [%q]}
upstreams:
  pages:
    command: [%q]
    env: {CALLS: %q}
    labels: {integration: pages}
    tools: {read: {labels: {impact: read}}, write: {labels: {impact: write}}, wipe: {labels: {impact: destroy}}}
`, identity, h.in("policies"), h.in("data"), wait, h.in("seal.key"), server, h.in("calls"))
	must(t, os.WriteFile(h.in("seal.key"), []byte("0123456789abcdef0123456789abcdef"), 0o600))
	must(t, os.WriteFile(h.in("gateway.yaml"), []byte(text), 0o600))
	return h
}

func (h *household) in(name string) string { return filepath.Join(h.dir, name) }

// gateway is the program, not yet started.
func (h *household) gateway(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, "policy-service", append([]string{"mcp-gateway", "--config", h.in("gateway.yaml")}, args...)...)
	c.Stderr = &h.log
	return c
}

// calls are those that reached the server.
func (h *household) calls() []string {
	h.t.Helper()
	text, err := os.ReadFile(h.in("calls"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		h.t.Fatal(err)
	}
	return strings.Fields(strings.ReplaceAll(strings.TrimSpace(string(text)), " ", ":"))
}

func (h *household) called(want ...string) {
	h.t.Helper()
	if got := h.calls(); !slices.Equal(got, want) {
		h.t.Errorf("the server was called as %q, want %q", got, want)
	}
}

// record is what of the decision log is of interest here. The gateway has stopped.
func (h *household) record() string {
	h.t.Helper()
	if report := verify.Directory(h.in("data"), verify.Options{}); !report.Verified() {
		h.t.Errorf("%+v", report)
	}
	shown, err := exec.CommandContext(h.t.Context(), "policy-service", "log", "tail", "--data", h.in("data"), "--last", "1000", "--json").Output()
	must(h.t, err)
	return string(shown)
}

// secretForm is the form of the secret by which the person of identity.static is known in the process.
var secretForm = regexp.MustCompile(`static_[A-Z2-7]{26}`)

// holdsNoSecret looks for it in text, of somewhere.
func (h *household) holdsNoSecret(where string, text []byte) {
	h.t.Helper()
	if secretForm.Match(text) {
		h.t.Errorf("%s has the secret", where)
	}
}

// keepsNoSecret looks for it everywhere where others can read, but in the process itself.
func (h *household) keepsNoSecret(pids ...int) {
	h.t.Helper()
	h.holdsNoSecret("the log", []byte(h.log.String()))
	for _, pid := range pids {
		for _, name := range []string{"environ", "cmdline"} {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
			must(h.t, err)
			h.holdsNoSecret(name, text)
		}
	}
	must(h.t, filepath.WalkDir(h.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		h.holdsNoSecret(path, text)
		return err
	}))
}

// family are a process and its children.
func family(t *testing.T, pid int) []int {
	t.Helper()
	all := []int{pid}
	text, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	must(t, err)
	for _, name := range text {
		children, err := os.ReadFile(name)
		must(t, err)
		for _, field := range strings.Fields(string(children)) {
			var child int
			_, err := fmt.Sscan(field, &child)
			must(t, err)
			all = append(all, child)
		}
	}
	return all
}

// clientPerson is the person at a client of the SDK: what they are shown, and what they answer.
type clientPerson struct {
	mu     sync.Mutex
	shown  []*sdk.ElicitParams
	answer string
}

func (a *clientPerson) elicit(_ context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.shown = append(a.shown, r.Params)
	if a.answer != "accept" {
		return &sdk.ElicitResult{Action: a.answer}, nil
	}
	return &sdk.ElicitResult{Action: a.answer, Content: map[string]any{"approve": true, evaluation.ArgumentPrefix + "path": "plan.md"}}, nil
}

// next is what they answer from now on. It returns how often they were asked before.
func (a *clientPerson) next(answer string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := len(a.shown)
	a.shown, a.answer = nil, answer
	return n
}

// TestEmbeddedFormOverStdio is a desktop client whose person confirms what their agent does, by a PDP in the gateway.
//
// It takes 5 s: that long the gateway waits for somebody else once the person has closed the form, and a client whose
// person says yes must not be late.
func TestEmbeddedFormOverStdio(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			h, person := newHousehold(t, desktopIdentity, 5*time.Second), &clientPerson{}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			gateway := h.gateway(ctx, "--stdio")
			client := sdk.NewClient(&sdk.Implementation{Name: "desktop", Version: "1"}, &sdk.ClientOptions{ElicitationHandler: person.elicit})
			session, err := client.Connect(ctx, &sdk.CommandTransport{Command: gateway, TerminateDuration: patience}, &sdk.ClientSessionOptions{ProtocolVersion: version})
			if err != nil {
				t.Fatalf("%v\n%s", err, &h.log)
			}
			if got := session.InitializeResult().ProtocolVersion; got != version {
				t.Fatalf("they speak %s", got)
			}
			call := func(tool string) error {
				result, err := session.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: edited{Path: "plan.md"}})
				if err == nil && result.IsError {
					t.Errorf("%s: %+v", tool, result.Content[0])
				}
				return err
			}
			refused := func(tool, want string) {
				t.Helper()
				var e *jsonrpc.Error
				if err := call(tool); !errors.As(err, &e) || !strings.Contains(string(e.Data), want) {
					t.Errorf("%s: %v", tool, err)
				} else {
					h.holdsNoSecret("a refusal", append(e.Data, err.Error()...))
				}
			}
			if err := call("read"); err != nil || person.next("accept") != 0 {
				t.Errorf("what needs nobody: %v", err)
			}
			h.called("read:plan.md")

			if err := call("write"); err != nil {
				t.Errorf("%v\n%s", err, h.log.String())
			}
			h.called("read:plan.md", "write:plan.md")
			if len(person.shown) != 1 || !strings.Contains(person.shown[0].Message, "pages:write") || !strings.Contains(person.shown[0].Message, "plan.md") {
				t.Errorf("the person was shown %+v", person.shown)
			}
			person.next("decline")
			refused("write", `"authorization_denied"`)
			if n := person.next("cancel"); n != 1 {
				t.Errorf("asked %d times", n)
			}
			refused("write", `"authorizationRequest"`)
			if n := person.next("accept"); n != 1 {
				t.Errorf("asked %d times", n)
			}
			refused("wipe", `"authorizationRequest"`)
			if n := person.next("accept"); n != 0 {
				t.Errorf("under second-person the person is asked: %d times", n)
			}
			h.called("read:plan.md", "write:plan.md")

			all := family(t, gateway.Process.Pid)
			if h.keepsNoSecret(all...); len(all) < 2 {
				t.Error("the server's process was not looked at")
			}
			if err := session.Close(); err != nil {
				t.Errorf("%v\n%s", err, &h.log)
			}
			if log := h.log.String(); !strings.Contains(log, "nobody can give an approval that takes a second person") || strings.Contains(log, "no form is shown") {
				t.Errorf("the log:\n%s", log)
			}
			record := h.record()
			h.holdsNoSecret("the record", []byte(record))
			h.keepsNoSecret()
			for _, want := range []string{`"via":"form"`, `"gateway":"key:mcp-gateway"`, `"caller":"jwt:http://127.0.0.1:8181/mcp#alice"`, `user::\"alice\"`} {
				if !strings.Contains(record, want) {
					t.Errorf("the record lacks %s:\n%s", want, record)
				}
			}
		})
	}
}

// line is a client that sends lines, and reads them.
type line struct {
	t    *testing.T
	in   io.WriteCloser
	out  *bufio.Reader
	wait func() error
}

func (h *household) line(ctx context.Context) *line {
	h.t.Helper()
	c := h.gateway(ctx, "--stdio")
	in, err := c.StdinPipe()
	must(h.t, err)
	out, err := c.StdoutPipe()
	must(h.t, err)
	must(h.t, c.Start())
	return &line{h.t, in, bufio.NewReader(out), c.Wait}
}

// said is what a gateway says to a client.
type said struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Result struct {
		ResultType    string                     `json:"resultType"`
		InputRequests map[string]json.RawMessage `json:"inputRequests"`
		RequestState  string                     `json:"requestState"`
		Content       []struct{ Text string }    `json:"content"`
	} `json:"result"`
	Error *struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	} `json:"error"`
	text string
}

// key is the one that the client is to answer by.
func (s said) key() string {
	for key := range s.Result.InputRequests {
		return key
	}
	return ""
}

func (l *line) send(text string) {
	l.t.Helper()
	_, err := fmt.Fprintln(l.in, text)
	must(l.t, err)
}

// next is what comes next. Notifications are passed over.
func (l *line) next() (s said) {
	l.t.Helper()
	for {
		text, err := l.out.ReadString('\n')
		must(l.t, err)
		s = said{text: text}
		must(l.t, json.Unmarshal([]byte(text), &s))
		if len(s.ID) > 0 {
			return s
		}
	}
}

const takesForms = `{"elicitation":{"form":{}}}`

// modernCall is a call of the era of 2026-07-28.
func modernCall(id int, tool, more string) string {
	return `{"jsonrpc":"2.0","id":` + strconv.Itoa(id) + `,"method":"tools/call","params":{"name":"` + tool + `","arguments":{"path":"plan.md"}` + more +
		`,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"raw","version":"1"},"io.modelcontextprotocol/clientCapabilities":` + takesForms + `}}}`
}

func answering(key, answer, state string) string {
	text, _ := json.Marshal(state)
	if state == "" {
		return `,"inputResponses":{"` + key + `":` + answer + `}`
	}
	return `,"inputResponses":{"` + key + `":` + answer + `},"requestState":` + string(text)
}

const yesToPlan = `{"action":"accept","content":{"approve":true,"` + evaluation.ArgumentPrefix + `path":"plan.md"}}`

// TestEmbeddedRawOverStdio is a client that says yes to whatever it likes, without anybody behind it.
func TestEmbeddedRawOverStdio(t *testing.T) {
	t.Parallel()
	h := newHousehold(t, desktopIdentity, 100*time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	l := h.line(ctx)
	id := 0
	send := func(tool, more string) {
		t.Helper()
		id++
		l.send(modernCall(id, tool, more))
	}
	next := func() said {
		t.Helper()
		got := l.next()
		h.holdsNoSecret("an answer", []byte(got.text))
		return got
	}
	send("write", "")
	shown := next()
	if shown.Result.ResultType != "input_required" || len(shown.Result.InputRequests) != 1 {
		t.Fatalf("%s\n%s", shown.text, h.log.String())
	}
	// What takes a second person shows no form, and no yes counts: neither to nothing, nor to what was asked about another call.
	tries := []string{
		"", answering("approval", yesToPlan, ""), answering(shown.key(), yesToPlan, ""),
		answering(shown.key(), yesToPlan, shown.Result.RequestState), `,"requestState":"` + shown.Result.RequestState + `"`,
	}
	for _, more := range tries {
		send("wipe", more)
	}
	for range tries {
		if got := next(); got.Error == nil {
			t.Errorf("%s", got.text)
		}
	}
	h.called()
	// The state of the call itself is none the worse for it. It counts once.
	repeat := func(answers string) (got said) {
		t.Helper()
		for send("write", answers); ; send("write", `,"inputResponses":{},"requestState":"`+got.Result.RequestState+`"`) {
			if got = next(); got.Result.ResultType != "input_required" || len(got.Result.InputRequests) > 0 {
				return got
			}
		}
	}
	if got := repeat(answering(shown.key(), yesToPlan, shown.Result.RequestState)); got.Error != nil || len(got.Result.Content) != 1 {
		t.Errorf("%s", got.text)
	}
	h.called("write:plan.md")
	if got := repeat(answering(shown.key(), yesToPlan, shown.Result.RequestState)); got.Error == nil {
		t.Errorf("once more: %s", got.text)
	}
	h.called("write:plan.md")
	must(t, l.in.Close())
	must(t, l.wait())
	record := h.record()
	if n := strings.Count(record, `"via":"form"`); n == 0 || strings.Contains(record, `"template":"second-person","status":"approved"`) {
		t.Errorf("the record:\n%s", record)
	}
}

// TestEmbeddedRawLegacyOverStdio answers what it was never asked.
func TestEmbeddedRawLegacyOverStdio(t *testing.T) {
	t.Parallel()
	h := newHousehold(t, desktopIdentity, 100*time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	l := h.line(ctx)
	l.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":` + takesForms + `,"clientInfo":{"name":"raw","version":"1"}}}`)
	l.next()
	l.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	l.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"wipe","arguments":{"path":"plan.md"}}}`)
	for _, id := range []string{`2`, `"2"`, `"approval"`, `0`} {
		l.send(`{"jsonrpc":"2.0","id":` + id + `,"result":` + yesToPlan + `}`)
	}
	got := l.next()
	for got.Error == nil || string(got.ID) != "2" || !strings.Contains(string(got.Error.Data), "authorizationRequest") {
		if got.Method != "" {
			t.Fatalf("it is asked: %s", got.text)
		}
		got = l.next()
	}
	var required struct {
		AuthorizationRequest struct{ ID string } `json:"authorizationRequest"`
	}
	must(t, json.Unmarshal(got.Error.Data, &required))
	if required.AuthorizationRequest.ID == "" {
		t.Fatalf("%s", got.text)
	}
	// Its own id is known now: by that it says yes as well.
	id, _ := json.Marshal(required.AuthorizationRequest.ID)
	l.send(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"wipe","arguments":{"path":"plan.md"}}}`)
	l.send(`{"jsonrpc":"2.0","id":` + string(id) + `,"result":` + yesToPlan + `}`)
	for got = l.next(); string(got.ID) != "3"; got = l.next() {
		if got.Method != "" {
			t.Fatalf("it is asked: %s", got.text)
		}
	}
	if got.Error == nil {
		t.Errorf("%s", got.text)
	}
	h.called()
	must(t, l.in.Close())
	must(t, l.wait())
}

// serve starts a gateway over HTTP, and returns its address and what stops it.
func (h *household) serve(ctx context.Context) (url string, stop func()) {
	h.t.Helper()
	c := h.gateway(ctx, "--addr-file", h.in("addr"))
	must(h.t, c.Start())
	return "http://" + awaitAddr(h.t, c, h.in("addr"), &h.log) + "/mcp", func() {
		h.t.Helper()
		must(h.t, c.Process.Signal(os.Interrupt))
		must(h.t, c.Wait())
	}
}

// post sends a call of the modern era with a token.
func post(t *testing.T, url, token, tool, more string) (status int, s said) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(modernCall(1, tool, more)))
	must(t, err)
	for name, v := range map[string]string{
		"Authorization": "Bearer " + token, "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": tool,
	} {
		r.Header.Set(name, v)
	}
	w, err := http.DefaultClient.Do(r)
	must(t, err)
	defer func() { must(t, w.Body.Close()) }()
	body, err := io.ReadAll(w.Body)
	must(t, err)
	s.text = string(body)
	if data := bytes.LastIndex(body, []byte("data: ")); data >= 0 {
		body = body[data+len("data: "):]
	}
	if len(body) > 0 {
		must(t, json.Unmarshal(body, &s))
	}
	return w.StatusCode, s
}

// TestEmbeddedFormOverHTTP has people with tokens, who answer forms of a gateway that stops between question and answer.
//
// It starts the gateway twice, which takes a second.
func TestEmbeddedFormOverHTTP(t *testing.T) {
	t.Parallel()
	const resource = "http://127.0.0.1:8181/mcp"
	issuer, stranger := mcptest.NewIssuer(t, resource, time.Now), mcptest.NewIssuer(t, resource, time.Now)
	h := newHousehold(t, fmt.Sprintf("{issuers: [{issuer: %q, algorithms: [ES256]}]}", issuer.URL), 100*time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	of := func(by *mcptest.Issuer, change mcptest.Claims) string {
		all := mcptest.Claims{"sub": "alice", "client_id": "desktop"}
		maps.Copy(all, change)
		return by.Token(t, all)
	}
	alice := of(issuer, nil)
	url, stop := h.serve(ctx)
	_, shown := post(t, url, alice, "write", "")
	if shown.Result.ResultType != "input_required" || len(shown.Result.InputRequests) != 1 {
		t.Fatalf("%s\n%s", shown.text, h.log.String())
	}
	answer := answering(shown.key(), yesToPlan, shown.Result.RequestState)
	stop()
	url, stop = h.serve(ctx)
	for name, test := range map[string]struct {
		token  string
		status int
	}{
		"another issuer":   {of(stranger, nil), http.StatusUnauthorized},
		"another audience": {of(issuer, mcptest.Claims{"aud": "https://other.example/mcp"}), http.StatusUnauthorized},
		"expired":          {of(issuer, mcptest.Claims{"exp": time.Now().Add(-time.Minute).Unix()}), http.StatusUnauthorized},
		"bob":              {of(issuer, mcptest.Claims{"sub": "bob"}), http.StatusOK},
		"another client":   {of(issuer, mcptest.Claims{"client_id": "ci"}), http.StatusOK},
	} {
		if status, got := post(t, url, test.token, "write", answer); status != test.status || got.Error == nil && status == http.StatusOK {
			t.Errorf("%s: %d %s", name, status, got.text)
		}
	}
	h.called()
	// The same person with a newer token.
	_, got := post(t, url, of(issuer, mcptest.Claims{"jti": "2"}), "write", answer)
	for got.Result.ResultType == "input_required" && len(got.Result.InputRequests) == 0 {
		_, got = post(t, url, alice, "write", `,"inputResponses":{},"requestState":"`+got.Result.RequestState+`"`)
	}
	if got.Error != nil || len(got.Result.Content) != 1 {
		t.Errorf("%s\n%s", got.text, h.log.String())
	}
	h.called("write:plan.md")
	if _, got := post(t, url, alice, "wipe", ""); got.Error == nil || !strings.Contains(string(got.Error.Data), "authorizationRequest") {
		t.Errorf("wipe: %s", got.text)
	}
	// Carol is an operator, and a person of this gateway too: she is not asked about what alice's agent wants.
	if _, got := post(t, url, of(issuer, mcptest.Claims{"sub": "carol"}), "wipe", answer); got.Error == nil {
		t.Errorf("carol: %s", got.text)
	}
	stop()
	h.called("write:plan.md")
	record := h.record()
	for _, want := range []string{`"via":"form"`, `"caller":"jwt:` + issuer.URL + `#alice"`} {
		if !strings.Contains(record, want) {
			t.Errorf("the record lacks %s:\n%s", want, record)
		}
	}
	for _, token := range []string{alice, alice[strings.LastIndex(alice, ".")+1:]} {
		if strings.Contains(record, token) || strings.Contains(h.log.String(), token) {
			t.Error("a token is in the record, or in the log")
		}
	}
}

// TestEmbeddedNobodyApproves has calls that nobody can ever approve: they are refused with the reason, and no client is told to send
// them again. A client that knows the gateway's messages can say yes by these, and waits.
func TestEmbeddedNobodyApproves(t *testing.T) {
	t.Parallel()
	h := newHousehold(t, desktopIdentity, 100*time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	const speaks = `"io.policy-service/authorization":{}`
	for _, c := range []struct{ capabilities, tool, want string }{
		{`{}`, "write", "and the client shows no forms"},
		{`{"elicitation":{"url":{}}}`, "write", "and the client shows no forms"},
		{takesForms, "wipe", "whose approval does not count"},
		{`{"elicitation":{},"experimental":{` + speaks + `},"extensions":{` + speaks + `}}`, "wipe", "whose approval does not count"},
		{`{"experimental":{` + speaks + `},"extensions":{` + speaks + `}}`, "write", ""},
	} {
		for _, era := range []string{"legacy", "modern"} {
			l := h.line(ctx)
			call := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"` + c.tool + `","arguments":{"path":"plan.md"}}}`
			if era == "modern" {
				call = strings.Replace(modernCall(2, c.tool, ""), takesForms, c.capabilities, 1)
			} else {
				l.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":` + c.capabilities + `,"clientInfo":{"name":"raw","version":"1"}}}`)
				l.next()
			}
			l.send(call)
			got := l.next()
			text := got.text
			switch said := strings.Contains(text, "Nobody can approve it: the PDP in the gateway's process hears only the person of this client, "+c.want); {
			case c.want != "" && (!said || strings.Contains(text, "send the call again")):
				t.Errorf("%s, %s of %s: %s", era, c.tool, c.capabilities, text)
			case c.want == "" && strings.Contains(text, "Nobody can approve it"):
				t.Errorf("%s, %s of %s: %s", era, c.tool, c.capabilities, text)
			}
			must(t, l.in.Close())
			must(t, l.wait())
		}
	}
	h.called()
}
