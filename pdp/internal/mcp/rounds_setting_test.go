package mcp_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/mcp"
	pdpserver "policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/internal/server/config"
	"policy-service/pdp/pdptest/mcptest"
)

// setting is a PDP that asks people, a server that may ask back, and gateways between them. What the PDP and the gateways
// are is in files, so that each can be a process of its own and be started again.
type setting struct {
	t      testing.TB
	rec    *mcptest.Recorder
	issuer *mcptest.Issuer
	pdp    *doorway // before the PDP
	server *doorway // before the server
	dir    string
	bob    string // the API key of somebody else who may decide
	warden string // the API key of who sees capabilities and the log
	logs   *kept

	mu sync.Mutex
	// waits are what legacy answers of the server wait for, by the id of what it asked.
	waits map[string]chan struct{}
	// answered is how often a legacy answer of the server got what it had asked for, by marker.
	answered map[string]int
	// cancelled is how often a legacy answer of the server was told that nobody answers.
	cancelled int
}

const settingResource = "http://127.0.0.1:8181/mcp"

var settingPolicies = map[string]string{
	"bundle.yaml": "allow_trivial: true\nallow_self_approval: [once, twice, both]\n",
	"obligations.yaml": `once: {type: approval_required, properties: {template: once, message: "once?", rounds: 10}}
twice: {type: approval_required, properties: {template: twice, message: "twice?", rounds: 10, uses: 2}}
both: {type: approval_required, properties: {template: both, message: "both?", rounds: 10, quorum: 2}}
none: {type: approval_required, properties: {template: once, message: "none?"}}
few: {type: approval_required, properties: {template: once, message: "few?", rounds: 2}}
`,
	"all.cedar": `@id("plain") permit(principal, action, resource) unless { action == Action::"tool.invoke" || action == Action::"approval.decide" };
@id("once") @obligation("once") permit(principal, action == Action::"tool.invoke", resource == tool::"rec:once");
@id("twice") @obligation("twice") permit(principal, action == Action::"tool.invoke", resource == tool::"rec:twice");
@id("both") @obligation("both") permit(principal, action == Action::"tool.invoke", resource == tool::"rec:both");
@id("none") @obligation("none") permit(principal, action == Action::"tool.invoke", resource == tool::"rec:none");
@id("few") @obligation("few") permit(principal, action == Action::"tool.invoke", resource == tool::"rec:few");
@id("decide") permit(principal is user, action == Action::"approval.decide", resource is Approval);
`,
}

const settingTools = `[{"name":"once","inputSchema":{"type":"object"}},{"name":"twice","inputSchema":{"type":"object"}},{"name":"both","inputSchema":{"type":"object"}},{"name":"none","inputSchema":{"type":"object"}},{"name":"few","inputSchema":{"type":"object"}}]`

// newSetting has the PDP listen at an address, which may have the port 0. No gateway runs yet. ServerEra is that of the server.
func newSetting(t testing.TB, pdpListen, serverEra string) *setting {
	t.Helper()
	s := &setting{t: t, dir: mcptest.QuickDir(t), logs: &kept{}, waits: map[string]chan struct{}{}, answered: map[string]int{}}
	s.issuer = mcptest.NewIssuer(t, settingResource, time.Now)
	s.rec = mcptest.NewRecorder(t, mcptest.Answers{Eras: []string{serverEra}, Tools: settingTools, Handle: s.asksBack, Heard: s.heard})
	s.pdp, s.server = newDoorway(t), newDoorway(t)
	s.server.leadTo(strings.TrimSuffix(s.rec.URL, mcp.Endpoint))
	orFail(t, os.Mkdir(s.file("policies"), 0o700))
	for name, text := range settingPolicies {
		orFail(t, os.WriteFile(filepath.Join(s.file("policies"), name), []byte(text), 0o600))
	}
	apiKeys, err := keys.Open(s.file("data"))
	orFail(t, err)
	gateway, err := apiKeys.Add(keys.Spec{Name: "gateway", Grant: auth.Grant{Permissions: []auth.Permission{auth.Decide, auth.Search, auth.Request, auth.Relay, auth.Capability}}})
	orFail(t, err)
	s.bob, err = apiKeys.Add(keys.Spec{Name: "bob", Principal: auth.Principal{Type: "user", ID: roundsBob}, Grant: auth.Grant{Permissions: []auth.Permission{auth.Approve}}})
	orFail(t, err)
	s.warden, err = apiKeys.Add(keys.Spec{Name: "warden", Grant: auth.Grant{Permissions: []auth.Permission{auth.CapabilityAdmin, auth.LogRead}}})
	orFail(t, err)
	s.write("gateway.key", gateway)
	s.write("seal.key", string(bytes.Repeat([]byte("seal"), 8)))
	s.write("pdp.yaml", fmt.Sprintf(`policies: %q
data: %q
listen: %q
public_url: %q
decision_log: {mode: strict}
approvals: {max_pending_per_subject: 100000, max_pending_per_tenant: 100000, max_pending_per_caller: 100000, new_per_minute_per_subject: 100000, new_per_minute_per_caller: 100000}
auth: {jwt: [{issuer: %q, audience: %q, jwks_file: %q, algorithms: [ES256], principal: {type: user, claim: sub}, relayed_by: [gateway], tenants: [default], permissions: [approve]}]}
`, s.file("policies"), s.file("data"), pdpListen, s.pdp.url, s.issuer.URL, settingResource, s.issuer.KeysFile(t)))
	return s
}

func (s *setting) file(name string) string { return filepath.Join(s.dir, name) }

func (s *setting) write(name, text string) {
	s.t.Helper()
	orFail(s.t, os.WriteFile(s.file(name), []byte(text), 0o600))
}

// pdpHere runs the PDP in this process until the test ends.
func (s *setting) pdpHere() {
	s.t.Helper()
	c := settingPDP(s.t, s.file("pdp.yaml"))
	c.Program.Logger = slog.New(slog.DiscardHandler)
	p, err := pdpserver.New(c)
	orFail(s.t, err)
	orFail(s.t, p.Start(s.t.Context()))
	s.t.Cleanup(func() { orFail(s.t, p.Stop(context.Background())) })
	s.pdp.leadTo("http://" + p.Addr())
}

func settingPDP(t testing.TB, file string) (c pdpserver.Config) {
	t.Helper()
	_, err := pdpserver.ConfigForm.Read(config.Given{File: file}, &c)
	orFail(t, err)
	return c
}

// gatewayFile writes what a gateway is that listens at an address, with further keys of approvals, and more lines.
func (s *setting) gatewayFile(name, listen, approvals string, more ...string) (file string) {
	s.t.Helper()
	s.write(name, fmt.Sprintf(`listen: %q
resource: %s
pdp: {url: %q, key_file: %q, timeout: 20s, breaker: {failures: 1000}}
identity: {issuers: [{issuer: %q, algorithms: [ES256], jwks_file: %q}]}
upstreams: {rec: {url: %q, allow_networks: [127.0.0.0/8, "::1/128"], timeout: 30s, server_requests: {elicitation: relay}}}
seal: {key_files: [%q]}
approvals: {per_principal: 1000, %s}
limits: {rate: 100000/s, burst: 100000, per_principal: {concurrent: 1000}}
%s
`, listen, settingResource, s.pdp.url, s.file("gateway.key"), s.issuer.URL, s.issuer.KeysFile(s.t), s.server.url+mcp.Endpoint, s.file("seal.key"), approvals, strings.Join(more, "\n")))
	return s.file(name)
}

// gatewayHere runs a gateway in this process, until it is ended or the test ends.
func (s *setting) gatewayHere(file string, deps mcp.Deps, change func(*mcp.Config)) (url string, end func()) {
	s.t.Helper()
	var c mcp.Config
	_, err := mcp.Form.Read(config.Given{File: file}, &c)
	orFail(s.t, err)
	mcp.Form.SetDefaults(&c)
	if change != nil {
		change(&c)
	}
	deps.Logger = slog.New(slog.NewTextHandler(s.logs, nil))
	g, err := mcp.New(s.t.Context(), c, deps)
	orFail(s.t, err)
	served := httptest.NewServer(g.Handler())
	end = sync.OnceFunc(func() {
		served.CloseClientConnections()
		served.Close()
		orFail(s.t, g.Close())
	})
	s.t.Cleanup(end)
	return served.URL + mcp.Endpoint, end
}

// asksBack answers a call as its arguments say: after asking its client so often, which must have said its name each time.
func (s *setting) asksBack(c *mcptest.Call) bool {
	if c.Method != "tools/call" {
		return false
	}
	var params struct {
		Arguments struct {
			Marker string `json:"marker"`
			Asks   int    `json:"asks"`
			Bare   bool   `json:"bare"` // it keeps no state
		} `json:"arguments"`
		State     string                    `json:"requestState"`
		Responses map[string]jsontext.Value `json:"inputResponses"`
	}
	orFail(s.t, json.Unmarshal(c.Params, &params))
	of := params.Arguments
	question := func(n int) string {
		return fmt.Sprintf(`{"message":"your name, %d?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}`, n)
	}
	if !c.Modern {
		for n := 1; n <= of.Asks; n++ {
			id := fmt.Sprintf("%s-%d-%s", of.Marker, n, c.ID)
			got := make(chan struct{})
			s.mu.Lock()
			s.waits[id] = got
			s.mu.Unlock()
			c.Message(fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":"elicitation/create","params":%s}`, id, question(n)))
			select {
			case <-got:
			case <-c.Context.Done():
				return true
			}
			s.mu.Lock()
			s.answered[of.Marker]++
			s.mu.Unlock()
		}
		c.Result(fmt.Sprintf(`{"content":[{"type":"text","text":"ran %s"}]}`, of.Marker))
		return true
	}
	round := 0
	for name := range params.Responses {
		_, _ = fmt.Sscanf(name, "r%d", &round)
	}
	if round >= of.Asks {
		c.Result(fmt.Sprintf(`{"resultType":"complete","content":[{"type":"text","text":"ran %s"}]}`, of.Marker))
		return true
	}
	state := fmt.Sprintf(`,"requestState":"round %d"`, round+1)
	if of.Bare {
		state = ""
	}
	c.Result(fmt.Sprintf(`{"resultType":"input_required","inputRequests":{"r%d":{"method":"elicitation/create","params":%s}}%s}`, round+1, question(round+1), state))
	return true
}

func (s *setting) heard(g mcptest.Got) {
	var id string
	if json.Unmarshal(g.ID, &id) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if bytes.Contains(g.Body, []byte(`"action":"cancel"`)) { // no client of these tests says so
		s.cancelled++
		return
	}
	if got := s.waits[id]; got != nil && bytes.Contains(g.Body, []byte(`"result"`)) {
		delete(s.waits, id)
		close(got)
	}
}

// seen is how often the server saw a call: sent, or gone on with.
func (s *setting) seen(marker string) (n int) {
	for _, g := range s.rec.Got() {
		if g.Method != "tools/call" {
			continue
		}
		var params struct {
			Arguments jsontext.Value `json:"arguments"`
		}
		orFail(s.t, json.Unmarshal(g.Params, &params))
		if markerOf(params.Arguments) == marker {
			n++
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return n + s.answered[marker]
}

// byBob has bob say something of the approval that is open for a call: approve, deny or revoke.
func (s *setting) byBob(marker, what string) error {
	id, err := s.open(marker, map[string]string{roundsRevoke: roundsApproved}[what])
	if err != nil {
		return err
	}
	path, body := "/decision", fmt.Sprintf(`{"decision":%q,"reason":"bob says so"}`, what)
	if what == roundsRevoke {
		path, body = "/revoke", `{"reason":"bob says so"}`
	}
	_, err = s.asBob(http.MethodPost, "/v1/approvals/"+id+path, body)
	return err
}

// open is the id of the approval of a call that has a status; "" is pending.
func (s *setting) open(marker, status string) (id string, err error) {
	query := url.Values{"status": {cmp.Or(status, roundsPending)}, "limit": {"200"}}
	for {
		text, err := s.asBob(http.MethodGet, "/v1/approvals?"+query.Encode(), "")
		if err != nil {
			return "", err
		}
		var page struct {
			Items []approval `json:"items"`
			Next  string     `json:"next"`
		}
		if err := json.Unmarshal(text, &page); err != nil {
			return "", err
		}
		for _, one := range page.Items {
			if markerOf(one.Request.Context.Arguments) == marker {
				return one.ID, nil
			}
		}
		if page.Next == "" {
			return "", fmt.Errorf("bob finds nothing that is open for %s", marker)
		}
		query.Set("cursor", page.Next)
	}
}

func (s *setting) asBob(method, path, body string) (text []byte, err error) {
	return s.as(s.bob, method, path, body)
}

// as asks the PDP with an API key.
func (s *setting) as(key, method, path, body string) (text []byte, err error) {
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.pdp.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+key)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if text, err = io.ReadAll(response.Body); err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%d %s", response.StatusCode, text)
	}
	return text, err
}

// records are all that is on record. The PDP must have ended.
func (s *setting) records() (lines []string) {
	s.t.Helper()
	r, err := segment.OpenReader(s.file("data"))
	orFail(s.t, err)
	defer func() { _ = r.Close() }()
	for line, err := range r.Records(context.Background(), 0, r.Size()) {
		orFail(s.t, err)
		lines = append(lines, string(line.Line))
	}
	return lines
}

// doorway stands before somebody, and can hold what passes: a request before it is seen, or an answer that was given.
type doorway struct {
	url string

	mu    sync.Mutex
	to    http.Handler
	traps []*trap
}

// trap holds the next request for which its condition is true, or the answer to it.
type trap struct {
	is    func(r *http.Request, body []byte) bool
	after bool
	held  chan struct{} // closed once it holds one
	let   chan bool     // told whether it passes; what does not pass has never been
}

func newDoorway(t testing.TB) *doorway {
	t.Helper()
	d := &doorway{}
	s := httptest.NewServer(d)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	d.url = s.URL
	return d
}

// leadTo has it lead to somebody at a URL.
func (d *doorway) leadTo(address string) {
	at, err := url.Parse(address)
	if err != nil {
		panic(err)
	}
	to := mcptest.Proxy(at)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.to = to
}

// hold holds the next that is. It holds answers if after is set, and requests if not.
func (d *doorway) hold(after bool, is func(r *http.Request, body []byte) bool) *trap {
	t := &trap{is: is, after: after, held: make(chan struct{}), let: make(chan bool, 1)}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.traps = append(d.traps, t)
	return t
}

// drop has a trap hold nothing any more. What it holds passes, or has never been.
func (d *doorway) drop(t *trap, pass bool) {
	d.mu.Lock()
	d.traps = slices.DeleteFunc(d.traps, func(other *trap) bool { return other == t })
	d.mu.Unlock()
	t.let <- pass
}

func (d *doorway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	d.mu.Lock()
	to := d.to
	n := slices.IndexFunc(d.traps, func(t *trap) bool { return t.is(r, body) })
	var t *trap
	if n >= 0 {
		t = d.traps[n]
		d.traps = slices.Delete(d.traps, n, n+1)
	}
	d.mu.Unlock()
	if t == nil {
		to.ServeHTTP(w, r)
		return
	}
	if !t.after {
		close(t.held)
		if !t.passes(r.Context()) {
			panic(http.ErrAbortHandler)
		}
		to.ServeHTTP(w, r)
		return
	}
	answer := httptest.NewRecorder() // given to the end, whether or not somebody still wants it
	to.ServeHTTP(answer, r.WithContext(context.WithoutCancel(r.Context())))
	close(t.held)
	if !t.passes(r.Context()) {
		panic(http.ErrAbortHandler)
	}
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

// passes waits until it is said whether what is held passes. Nothing passes for somebody who has gone.
func (t *trap) passes(ctx context.Context) bool {
	select {
	case pass := <-t.let:
		return pass
	case <-ctx.Done():
		return false
	}
}
