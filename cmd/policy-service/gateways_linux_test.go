package main

import (
	"bytes"
	"errors"
	"fmt"
	"html"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/pdptest/etcdtest"
	"policy-service/pdp/pdptest/inside/auth"
	"policy-service/pdp/pdptest/inside/record"
	"policy-service/pdp/pdptest/mcptest"
	"policy-service/pdp/pdptest/night"
)

// Three gateways stand before three replicas, and a balancer before each three. All six are processes. Clients of the SDK call tools by
// the balancer, each call with an argument of its own, by which the server and the logs of the replicas know it.

var gatewayPolicies = map[string]string{
	"a.cedar": `
@id("connect") permit(principal, action, resource) unless { resource is tool || action == Action::"approval.decide" };
@id("free") permit(principal, action == Action::"tool.invoke", resource == tool::"rec:free");
@id("confirm") @obligation("confirm") permit(principal, action == Action::"tool.invoke", resource == tool::"rec:confirm");
@id("request") permit(principal == agent::"restricted", action == Action::"tool.request", resource == tool::"rec:free");
@id("restricted") forbid(principal == agent::"restricted", action == Action::"tool.invoke", resource);
@id("fulfil") permit(principal is user, action == Action::"tool.fulfil", resource);
@id("mia") permit(principal == user::"mia", action == Action::"approval.decide", resource is Approval);
`,
	"obligations.yaml": "confirm: {type: approval_required, properties: {template: owner, timeout: 1h, valid_for: 1h}}\n",
	"bundle.yaml":      "allow_trivial: true\n",
}

// balancer sends each request to a process that runs. A request that may have reached one goes to no other.
type balancer struct {
	*httptest.Server
	to    []*clusterReplica
	first func(*http.Request) int // the process that gets a request if it runs; -1 is any
	turn  atomic.Int64
	dials http.Transport
}

func newBalancer(t *testing.T, first func(*http.Request) int) *balancer {
	b := &balancer{first: first, dials: http.Transport{DisableKeepAlives: true}}
	b.Server = httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.Out.Host = r.In.Host }, Transport: b, FlushInterval: -1,
		ErrorLog:     slog.NewLogLogger(slog.DiscardHandler, 0), // of connections that a killed process leaves
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	})
	t.Cleanup(func() {
		b.CloseClientConnections()
		b.Close()
	})
	return b
}

// RoundTrip tries the next process only where no connection was made.
func (b *balancer) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	first := b.first(r)
	if first < 0 {
		first = int(b.turn.Add(1))
	}
	err := errors.New("no process runs")
	for n := range b.to {
		to, runs := b.to[(first+n)%len(b.to)].runsAt()
		if !runs {
			continue
		}
		out := r.Clone(r.Context())
		out.URL.Scheme, out.URL.Host, out.Body = "http", strings.TrimPrefix(to, "http://"), io.NopCloser(bytes.NewReader(body))
		var answer *http.Response
		answer, err = b.dials.RoundTrip(out)
		if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" {
			continue
		}
		return answer, err
	}
	return nil, err
}

// runsAt is the address of a process, if it runs.
func (r *clusterReplica) runsAt() (url string, runs bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.url, r.process != nil && r.url != ""
}

// fleet are the gateways, the replicas behind them, and all that clients have called.
type fleet struct {
	*troubled
	gateways []*clusterReplica
	clients  *balancer // stands before the gateways
	pdps     *balancer // stands before the replicas
	prefer   atomic.Int64
	issuer   *mcptest.Issuer

	calls   sync.Mutex
	sent    map[string]int // how often the server was sent a call, by its argument
	ran     map[string]bool
	denied  map[string]bool
	failed  []string
	release chan struct{} // ends the calls that the server holds
	holds   int           // how many it has held since
}

func openFleet(t *testing.T, seed uint64) *fleet {
	t.Helper()
	f := &fleet{sent: map[string]int{}, ran: map[string]bool{}, denied: map[string]bool{}, release: make(chan struct{})}
	f.prefer.Store(-1)
	f.pdps = newBalancer(t, func(*http.Request) int { return int(f.prefer.Load()) })
	f.clients = newBalancer(t, func(r *http.Request) int {
		name, _, _ := strings.Cut(r.Header.Get("Mcp-Session-Id"), ".")
		return slices.Index([]string{"gateway-0", "gateway-1", "gateway-2"}, name)
	})
	f.troubled = openReplicas(t, seed, gatewayPolicies, "public_url: "+f.pdps.URL+"\nconsole: {}\n")
	f.pdps.to = f.replicas
	f.grant("gateway", "", auth.Decide, auth.Search, auth.Request, auth.Relay, auth.Capability)
	resource := f.clients.URL + "/mcp"
	f.issuer = mcptest.NewIssuer(t, resource, time.Now)
	server := mcptest.NewRecorder(t, mcptest.Answers{
		Tools:  `[{"name":"free","inputSchema":{"type":"object"}},{"name":"confirm","inputSchema":{"type":"object"}},{"name":"never","inputSchema":{"type":"object"}}]`,
		Handle: f.serves,
	})
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "seal.key"), []byte("0123456789abcdef0123456789abcdef"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "pdp.key"), []byte(strings.TrimPrefix(f.key["gateway"], "Bearer ")), 0o600))
	for n := range 3 {
		g := &clusterReplica{n: n, command: "mcp-gateway", program: "policy-service", config: filepath.Join(dir, fmt.Sprint(n, ".yaml"))}
		must(t, os.WriteFile(g.config, fmt.Appendf(nil, `name: gateway-%d
listen: 127.0.0.1:0
resource: %s
pdp: {url: "%s", key_file: pdp.key}
identity: {issuers: [{issuer: "%s", algorithms: [ES256], jwks_file: "%s"}]}
upstreams: {rec: {url: "%s", allow_networks: [127.0.0.0/8]}}
limits: {rate: 100000/s, burst: 100000}
approvals: {wait: 100ms}
tool_requests: {keep: pdp}
seal: {key_files: [seal.key]}
`, n, resource, f.pdps.URL, f.issuer.URL, f.issuer.KeysFile(t), server.URL), 0o600))
		f.gateways = append(f.gateways, g)
		f.start(g)
		t.Cleanup(g.kill)
	}
	f.clients.to = f.gateways
	return f
}

// called are the arguments of a call: of is its own, and the server holds the call if hold is set.
type called struct {
	Of   string `json:"of"`
	Hold bool   `json:"hold,omitzero"`
}

// serves counts a call at the server.
func (f *fleet) serves(c *mcptest.Call) bool {
	var p struct {
		Arguments called `json:"arguments"`
	}
	if c.Method != "tools/call" || json.Unmarshal(c.Params, &p) != nil {
		return false
	}
	f.calls.Lock()
	f.sent[p.Arguments.Of]++
	release := f.release
	f.calls.Unlock()
	if p.Arguments.Hold {
		f.calls.Lock()
		f.holds++
		f.calls.Unlock()
		select {
		case <-release:
		case <-c.Context.Done():
		}
	}
	return false // the recorder answers that it ran
}

func (f *fleet) wasSent(of string) int {
	f.calls.Lock()
	defer f.calls.Unlock()
	return f.sent[of]
}

// agent is a client of the SDK. When its session is over, it begins anew.
type agent struct {
	f       *fleet
	version string
	done    atomic.Int64 // calls that ran
	network http.Transport

	mu      sync.Mutex
	session *sdk.ClientSession
	over    chan struct{} // closed when the session is over
}

// begins begins a session.
func (a *agent) begins() error {
	transport := &sdk.StreamableClientTransport{Endpoint: a.f.issuer.Audience, HTTPClient: &http.Client{Transport: bearer{a.f.issuer.Token(a.f, nil), &a.network}}}
	session, err := sdk.NewClient(&sdk.Implementation{Name: "agent", Version: "1"}, nil).Connect(a.f.Context(), transport, &sdk.ClientSessionOptions{ProtocolVersion: a.version})
	if err != nil {
		return err
	}
	over := make(chan struct{})
	go func() {
		_ = session.Wait()
		close(over)
	}()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.session, a.over = session, over
	return nil
}

// current is the session.
func (a *agent) current() *sdk.ClientSession {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.session
}

// at is the gateway by whose name the id of a session begins.
func at(s *sdk.ClientSession) int {
	name, _, _ := strings.Cut(s.ID(), ".")
	n, err := strconv.Atoi(strings.TrimPrefix(name, "gateway-"))
	if err != nil {
		return none
	}
	return n
}

// calls calls a tool once, whatever comes of it.
func (a *agent) calls(s *sdk.ClientSession, tool string, c called) (ran bool) {
	result, err := s.CallTool(a.f.Context(), &sdk.CallToolParams{Name: tool, Arguments: c})
	a.f.calls.Lock()
	defer a.f.calls.Unlock()
	var refusal *jsonrpc.Error
	switch {
	case err == nil && result.IsError:
		a.f.Errorf("%s %s: %+v", tool, c.Of, result)
	case err == nil:
		a.f.ran[c.Of], ran = true, true
	case errors.As(err, &refusal) && bytes.Contains(refusal.Data, []byte(`"tool_call_blocked"`)) && !bytes.Contains(refusal.Data, []byte(`"retry_after"`)):
		a.f.denied[c.Of] = true
	default:
		a.f.failed = append(a.f.failed, fmt.Sprint(a.version, " ", tool, " ", c.Of, ": ", err))
	}
	return ran
}

// works calls until the end: what is permitted, and what is not.
func (a *agent) works(end <-chan struct{}) {
	pace := time.NewTicker(100 * time.Millisecond) // the machine has others to serve
	defer pace.Stop()
	for {
		select {
		case <-end:
			return
		case <-pace.C:
		}
		select {
		case <-a.over:
			if a.begins() != nil {
				continue
			}
		default:
		}
		s := a.current()
		a.calls(s, "never", called{Of: a.f.newID("never")})
		if a.calls(s, "free", called{Of: a.f.newID("free")}) {
			a.done.Add(1)
		}
	}
}

// modern sends a request of MCP 2026-07-28 to the balancer, or to one gateway.
func (f *fleet) modern(to string, claims mcptest.Claims, method, name string, params map[string]any) (result, fault jsontext.Value) {
	f.Helper()
	params["_meta"] = map[string]any{
		"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientInfo": map[string]any{"name": "raw", "version": "1"},
		"io.modelcontextprotocol/clientCapabilities": map[string]any{},
	}
	params["name"] = name
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
	must(f.T, err)
	r, err := http.NewRequestWithContext(f.Context(), http.MethodPost, to+"/mcp", bytes.NewReader(body))
	must(f.T, err)
	for header, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Authorization": "Bearer " + f.issuer.Token(f, claims),
		"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Mcp-Name": name,
	} {
		r.Header.Set(header, value)
	}
	answer, err := f.client.Do(r)
	if err != nil {
		return nil, jsontext.Value(strconv.Quote(err.Error()))
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	for line := range strings.Lines(string(text)) {
		if data, is := strings.CutPrefix(line, "data: "); is {
			text = []byte(data) // the last message is the answer
		}
	}
	var m struct {
		Result jsontext.Value `json:"result"`
		Error  jsontext.Value `json:"error"`
	}
	if err != nil || json.Unmarshal(text, &m) != nil {
		return nil, jsontext.Value(strconv.Quote(fmt.Sprint(answer.StatusCode, " ", string(text), err)))
	}
	return m.Result, m.Error
}

// member is a text in JSON by its name, wherever it stands.
func member(text jsontext.Value, name string) string {
	found := regexp.MustCompile(`"` + name + `":"([^"]+)"`).FindSubmatch(text)
	if found == nil {
		return ""
	}
	return string(found[1])
}

// open is what waits for people: a call for which an approval was asked, and a request for a tool.
type open struct {
	call, approval   string
	wanted, requests string
}

// asks has people be asked, through one gateway and by one replica.
func (f *fleet) asks(n int) (o open) {
	f.Helper()
	f.prefer.Store(int64(n))
	defer f.prefer.Store(none)
	o.call, o.wanted = f.newID("confirm"), f.newID("wanted")
	etcdtest.Eventually(f, "an approval is asked for", func() bool {
		_, fault := f.modern(f.gateways[n].address(), nil, "tools/call", "confirm", map[string]any{"arguments": called{Of: o.call}})
		o.approval = member(fault, "id")
		return o.approval != ""
	})
	etcdtest.Eventually(f, "a tool is requested", func() bool {
		result, _ := f.modern(f.gateways[n].address(), mcptest.Claims{"client_id": "restricted"}, "tools/request", "free", map[string]any{"arguments": called{Of: o.wanted}, "reason": "maintenance"})
		o.requests = member(result, "requestId")
		return o.requests != ""
	})
	return o
}

var formField = regexp.MustCompile(`<input type="hidden" name="(token|version|shown)" value="([^"]*)">`)

// follows has mia follow the link of an approval to the console of one replica, and approve there.
func (f *fleet) follows(approval string, replica int) {
	f.Helper()
	f.prefer.Store(int64(replica))
	defer f.prefer.Store(none)
	etcdtest.Eventually(f, "a person follows a link and approves", func() bool {
		jar, err := cookiejar.New(nil)
		must(f.T, err)
		client := &http.Client{Jar: jar, Timeout: patience}
		send := func(method, path string, form url.Values) (status int, text string) {
			r, err := http.NewRequestWithContext(f.Context(), method, f.pdps.URL+path, strings.NewReader(form.Encode()))
			must(f.T, err)
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set("Sec-Fetch-Site", "same-origin")
			answer, err := client.Do(r)
			if err != nil {
				return 0, err.Error()
			}
			defer func() { _ = answer.Body.Close() }()
			all, err := io.ReadAll(answer.Body)
			return answer.StatusCode, fmt.Sprint(string(all), err)
		}
		link := "/console/approvals/" + approval
		if status, _ := send("POST", "/console/login", url.Values{"key": {strings.TrimPrefix(f.key["mia"], "Bearer ")}, "next": {link}}); status != http.StatusOK {
			return false
		}
		_, page := send("GET", link, nil)
		_, decides, found := strings.Cut(page, `" class="deciding">`)
		if !found {
			return strings.Contains(page, "fine by mia") // the answer was lost on the way
		}
		form := url.Values{"decision": {"approve"}, "reason": {"fine by mia"}}
		for _, field := range formField.FindAllStringSubmatch(decides, -1) {
			if !form.Has(field[1]) {
				form.Set(field[1], html.UnescapeString(field[2]))
			}
		}
		status, text := send("POST", link+"/decision", form)
		return status == http.StatusOK && strings.Contains(text, "fine by mia")
	})
}

// settles has people decide at other replicas and gateways than those that asked them.
func (f *fleet) settles(o open, replica int) {
	f.Helper()
	f.follows(o.approval, (replica+1)%3)
	f.prefer.Store(int64((replica + 2) % 3))
	defer f.prefer.Store(none)
	etcdtest.Eventually(f, "an approved call runs", func() bool {
		result, _ := f.modern(f.clients.URL, nil, "tools/call", "confirm", map[string]any{"arguments": called{Of: o.call}})
		return result != nil
	})
	for range 3 { // round all gateways
		if result, fault := f.modern(f.clients.URL, nil, "tools/call", "confirm", map[string]any{"arguments": called{Of: o.call}}); result != nil {
			f.Errorf("one approval is used twice: %s %s", result, fault)
		}
	}
	fulfils := map[string]any{"arguments": called{Of: o.wanted}, "onBehalfOf": "restricted", "requestId": o.requests}
	etcdtest.Eventually(f, "a request for a tool is fulfilled", func() bool {
		result, fault := f.modern(f.clients.URL, mcptest.Claims{"sub": "mia", "client_id": nil}, "tools/call", "free", fulfils)
		return result != nil || bytes.Contains(fault, []byte("fulfilled already"))
	})
	for range 3 {
		etcdtest.Eventually(f, "the result of a request is fetched", func() bool {
			result, _ := f.modern(f.clients.URL, mcptest.Claims{"client_id": "restricted"}, "tools/request", "free", map[string]any{"arguments": called{Of: o.wanted}, "requestId": o.requests})
			return member(result, "fulfilledBy") == "mia"
		})
	}
	f.calls.Lock()
	defer f.calls.Unlock()
	f.ran[o.call], f.ran[o.wanted] = true, true
}

// loses has a process be killed while clients of both eras call.
func (f *fleet) loses(victim *clusterReplica) {
	f.Helper()
	var agents []*agent
	var before []*sdk.ClientSession
	for n := range 6 {
		a := &agent{f: f, version: []string{"2025-11-25", "2026-07-28"}[n/3]}
		wants := []int{0, 1, 2, none, none, none}[n]
		etcdtest.Eventually(f, fmt.Sprint("a client begins at gateway ", wants), func() bool {
			if a.begins() != nil {
				return false
			}
			is := at(a.current()) == wants
			if !is {
				_ = a.current().Close()
			}
			return is
		})
		agents, before = append(agents, a), append(before, a.current())
	}
	waits := f.asks(victim.n)
	end := make(chan struct{})
	stop := sync.OnceFunc(func() { close(end) })
	defer stop()
	var work, held sync.WaitGroup
	for _, a := range agents {
		work.Go(func() { a.works(end) })
	}
	heldRan := make([]bool, len(agents))
	for n, a := range agents {
		held.Go(func() {
			for sent := false; !sent && f.Context().Err() == nil; { // a call that was not decided in time is not sent
				of := f.newID("held")
				heldRan[n] = a.calls(before[n], "free", called{Of: of, Hold: true})
				sent = f.wasSent(of) > 0
			}
		})
	}
	etcdtest.Eventually(f, "the server has all calls that it holds", func() bool {
		f.calls.Lock()
		defer f.calls.Unlock()
		return f.holds == len(agents)
	})
	victim.kill()
	goOn := func(what string, most int64) {
		for n, a := range agents {
			done := a.done.Load()
			etcdtest.Eventually(f, fmt.Sprint(what, ": client ", n, " goes on"), func() bool { return a.done.Load() >= done+most })
		}
	}
	goOn("it is killed", 5)
	lost := func(n int) bool { return victim.command == "mcp-gateway" && at(before[n]) == victim.n }
	for n, a := range agents {
		if lost(n) {
			etcdtest.Eventually(f, "a client of a killed gateway begins anew at another", func() bool {
				now := at(a.current())
				return now != victim.n && now != none
			})
		}
	}
	f.settles(waits, victim.n)
	goOn("people have decided", 1)
	f.calls.Lock()
	close(f.release)
	f.release, f.holds = make(chan struct{}), 0
	f.calls.Unlock()
	held.Wait()
	f.start(victim)
	f.ready()
	goOn("it is there again", 5)
	stop()
	work.Wait()
	for n, a := range agents {
		if is := a.current() != before[n]; is != lost(n) && at(before[n]) != none {
			t := map[bool]string{true: "began anew", false: "did not begin anew"}
			f.Errorf("a client of gateway %d %s when %s %d was killed", at(before[n]), t[is], victim.command, victim.n)
		}
		if at(before[n]) != none && heldRan[n] == lost(n) {
			f.Errorf("a call that was under way at gateway %d ran: %v", at(before[n]), heldRan[n])
		}
		_ = a.current().Close()
	}
	f.calls.Lock()
	defer f.calls.Unlock()
	if len(f.failed) > 0 {
		f.Logf("%d calls were not answered, such as %s", len(f.failed), f.failed[0])
	}
	f.failed = nil
}

var ofCall = regexp.MustCompile(`"of":"([^"]+)"`)

// check ends all, and holds what the server was sent against the answers and the logs.
func (f *fleet) check() {
	f.Helper()
	for _, g := range f.gateways {
		g.end(syscall.SIGTERM)
	}
	allowed := map[string]bool{}
	for _, r := range f.replicas {
		r.end(syscall.SIGTERM)
		report := verify.Directory(r.data, verify.Options{Record: func(_ int64, line []byte) {
			record, err := record.Parse(slices.Clone(line))
			must(f.T, err)
			if of := ofCall.FindSubmatch(line); of != nil && record.Decision != nil && *record.Decision {
				allowed[string(of[1])] = true
			}
		}})
		if report.Code != verify.Verified {
			f.Errorf("the log of replica %d does not verify: %+v", r.n, report.Problem)
		}
	}
	for of, times := range f.sent {
		if times != 1 {
			f.Errorf("%s was sent %d times", of, times)
		}
		if !allowed[of] {
			f.Errorf("%s was sent, and no log has an allow", of)
		}
		if f.denied[of] {
			f.Errorf("%s was sent, and its client was told that it is denied", of)
		}
	}
	for of := range f.ran {
		if f.sent[of] != 1 {
			f.Errorf("%s ran by its answer, and was sent %d times", of, f.sent[of])
		}
	}
	denials := 0
	for of := range f.denied {
		if denials++; allowed[of] || !strings.HasPrefix(of, "never") {
			f.Errorf("%s was denied; a log has an allow: %v", of, allowed[of])
		}
	}
	if denials == 0 || len(f.ran) == 0 {
		f.Errorf("%d calls ran, %d were denied", len(f.ran), denials)
	}
	f.Logf("%d calls were sent, %d ran by their answers, %d were denied", len(f.sent), len(f.ran), denials)
}

// losing kills some of three replicas and three gateways, one after the other.
func losing(t *testing.T, pick func(random *rand.Rand) []int) {
	t.Helper()
	seed := rand.Uint64()
	if given, err := strconv.ParseUint(os.Getenv("CLUSTER_SEED"), 10, 64); err == nil {
		seed = given
	}
	t.Logf("seed %d", seed)
	f := openFleet(t, seed)
	all := slices.Concat(f.replicas, f.gateways)
	for _, n := range pick(f.random) {
		victim := all[n]
		if !t.Run(fmt.Sprint(victim.command, " ", victim.n), func(part *testing.T) {
			f.T = part
			defer func() { f.T = t }()
			f.loses(victim)
		}) {
			return
		}
	}
	f.check()
}

// TestThreeGateways: of three gateways before three replicas one of each is killed. Clients of both eras go on, no call is sent
// twice, and no denied call is sent. What waits for people goes on at the others.
func TestThreeGateways(t *testing.T) {
	t.Parallel()
	losing(t, func(random *rand.Rand) []int { return []int{random.IntN(3), 3 + random.IntN(3)} })
}

// TestThreeGatewaysWhole is TestThreeGateways with each process.
func TestThreeGatewaysWhole(t *testing.T) {
	night.Whole(t, "it kills six processes, each for some seconds")
	t.Parallel()
	losing(t, func(random *rand.Rand) []int { return random.Perm(6) })
}
