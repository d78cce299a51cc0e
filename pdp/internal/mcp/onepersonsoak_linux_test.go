package mcp_test

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"policy-service/pdp"
	"policy-service/pdp/internal/mcp"
	pdpserver "policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/mcptest"
	"policy-service/pdp/pdptest/night"
)

// TestSoakOnePerson has one person with 200 client ids and 8 connections of each do their worst, in each way, while another
// person calls and lists. The other is never refused, and their p99 is at most three times what it is alone. Afterwards nothing
// of the attack is left. The limits are those that a gateway has by default. In one way, all who ask are persons who give up in the
// midst of their calls, while the server and the PDP go away and come back: whoever gets an answer gets the right one.
//
// SOAKNEIGHBOURS is how long each attack lasts (10s). Of less than a minute the median is judged in place of the p99, which the
// first second of an attack decides.
func TestSoakOnePerson(t *testing.T) {
	night.Soaks(t)
	span, err := time.ParseDuration(cmp.Or(os.Getenv("SOAKNEIGHBOURS"), "10s"))
	orFail(t, err)
	table := []string{"attack, era, PDP | attacker's counts | p50/p99 alone, p50/p99 beside (ratio) of n, refused | log, part of 4 MiB | goroutines/connections/descriptors/children/heap before; most waiting, children, memory meanwhile; after"}
	defer func() { t.Log(strings.Join(table, "\n")) }()
	for _, a := range assaults {
		for _, where := range []string{"separate", "embedded"} {
			for _, era := range eras {
				t.Run(a.name+"/"+where+"/"+era, func(t *testing.T) {
					table = append(table, fmt.Sprintf("%s, %s, %s | ", a.name, era, where)+newAttacked(t, a, where).run(era, span))
				})
			}
		}
	}
}

const (
	attackIDs, attackEach = 200, 8
	// attackMemory is what a gateway may have before it is ended: the machine is not its alone.
	attackMemory = 4 << 30
	// personLog is what one person may have of the smallest log that can be bounded.
	personLog = 64 << 20 / 16
)

// An assault is a way to do one's worst.
type assault struct {
	name    string
	program bool   // the server is a program
	shows   string // what is among the attacker's counts if it has really happened
	policy  string // in the bundle; "" is none
	once    func(*intruder)
	fickle  bool // the server, and a PDP beside the gateway, go away and come back meanwhile
	// dear has messages that cause much: 1,000 tools, and a server of the legacy era that asks about prompts. The median of the
	// other person is at most twice what it is alone, the server gets no more than the limits let two people send, and it can
	// still ask the other person.
	dear bool
}

var assaults = []assault{
	{name: "lists", shows: "answered", once: func(c *intruder) { c.ask([]string{"tools/list", "prompts/list", "resources/list"}[c.n%3], `{}`) }},
	{name: "large contexts", shows: "answered", once: func(c *intruder) {
		c.meta = `,"io.policy-service/context":{"x":"` + strings.Repeat("x", 4000) + `"}`
		c.ask([]string{"tools/list", "tools/call"}[c.n%2], `{"name":"free","arguments":{}}`)
	}},
	{name: "approvals", shows: "waiting", once: func(c *intruder) { c.call("second-person") }},
	{name: "denied", program: true, shows: "tool_call_blocked", policy: mayNothing, once: func(c *intruder) {
		c.info = fmt.Sprintf("%s-%d", c.token[len(c.token)-8:], c.id.Load())
		c.newSession()
		c.call("never")
	}},
	{name: "sessions", program: true, shows: "processes", once: func(c *intruder) { c.newSession(); c.call("free") }},
	{name: "notifications", shows: "accepted", once: func(c *intruder) {
		if c.begun() {
			name := []string{"notifications/roots/list_changed", "notifications/progress", "notifications/cancelled", "notifications/custom"}[c.n%4]
			c.post(`{"jsonrpc":"2.0","method":"`+name+`","params":`+c.params(`{"progressToken":1,"progress":1,"requestId":1}`)+`}`, name, "")
		}
	}},
	{name: "streams", shows: "stream open", once: (*intruder).listen},
	{name: "tool requests", shows: "waiting", once: func(c *intruder) {
		c.ask("tools/request", fmt.Sprintf(`{"name":"never","arguments":{"n":%d},"reason":"why not"}`, c.id.Load()))
	}},
	{name: "forms", shows: "form shown", once: func(c *intruder) {
		c.capabilities = `{"elicitation":{"form":{}}}`
		c.call("confirm")
	}},
	{name: "stalled bodies", shows: "body stalled", once: (*intruder).stall},
	{name: "unread results", shows: "result unread", once: (*intruder).leaveUnread},
	{name: "dear messages", shows: "rate_limited", policy: mayListen, dear: true, once: (*intruder).beDear},
	{name: "giving up", shows: "given up", policy: maySlow, once: (*intruder).giveUp, fickle: true},
}

// mayNothing has all but the other person begin, and do nothing else.
const mayNothing = `@id("nothing") forbid (principal, action, resource) unless { principal == agent::"agent-release" || action == Action::"initialize" };`

// mayListen has all but the other person use no tool.
const mayListen = `@id("listen") permit (principal, action, resource) unless { action == Action::"tool.invoke" };
@id("no-tool") forbid (principal, action == Action::"tool.invoke", resource) unless { principal == agent::"agent-release" };`

// maySlow has all call a tool that does not answer.
const maySlow = `@id("slow") permit (principal, action == Action::"tool.invoke", resource == tool::"rec:slow");`

const attackerChild = "MCP_TEST_ATTACKER"

func init() { isChild(attackerChild, invade) }

// attacker is the one person, in a process of its own that has the processor only when nobody else wants it: on a network its work
// is not done by the gateway's machine.
type attacker struct {
	Addr, Era, Name string
	For             int64 // nanoseconds
	Tokens          []string

	does   func(*intruder)
	until  time.Time
	mu     sync.Mutex
	counts map[string]int
}

func invade(file string) error {
	threads, err := os.ReadDir("/proc/self/task")
	for _, thread := range threads { // of which all later ones have it
		id, _ := strconv.Atoi(thread.Name())
		err = errors.Join(err, unix.Setpriority(unix.PRIO_PROCESS, id, 19))
	}
	text, read := os.ReadFile(file)
	a := &attacker{counts: map[string]int{}}
	if err := errors.Join(err, read, json.Unmarshal(text, a)); err != nil {
		return err
	}
	is := assaults[slices.IndexFunc(assaults, func(one assault) bool { return one.name == a.Name })]
	if a.does = is.once; a.Era == "legacy" && !is.program { // more sessions would push each other out
		a.Tokens = a.Tokens[:60]
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	a.until = time.Now().Add(time.Duration(a.For))
	var all sync.WaitGroup
	sessions := make([]begunSession, len(a.Tokens))
	for n := range attackIDs * attackEach {
		of := n % len(a.Tokens)
		c := &intruder{attacker: a, number: n, shared: &sessions[of], info: "siege", visitor: visitor{era: a.Era, token: a.Tokens[of], capabilities: `{}`}}
		c.id.Store(int64(n) << 32) // all of one session differ
		all.Go(c.run)
	}
	all.Wait()
	return json.MarshalWrite(os.Stdout, a.counts, json.Deterministic(true))
}

func (a *attacker) count(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.counts[what]++
}

func (a *attacker) over() bool { return !time.Now().Before(a.until) }

// intruder is one of its connections.
type intruder struct {
	*attacker
	visitor
	number int
	shared *begunSession // of this client id
	info   string        // its clientInfo's name
	n      int
	conn   net.Conn
	r      *bufio.Reader
	unread []net.Conn // with results that are not read
}

// begunSession is a session that the connections of one client id share.
type begunSession struct {
	mu sync.Mutex
	id string
}

func (s *begunSession) ends(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.id == id {
		s.id = ""
	}
}

func (c *intruder) run() {
	for ; !c.over(); c.n++ {
		c.does(c)
	}
	c.drop()
	closeAll(c.unread)
}

func (c *intruder) drop() {
	if c.conn != nil {
		_ = c.conn.Close()
	}
	c.conn = nil
}

// lost is a connection that was cut off, or is not to be had.
func (c *intruder) lost(what string) {
	if c.drop(); !c.over() {
		c.count(what)
	}
}

// write writes a request whose header says that its body has a size.
func (c *intruder) write(verb, body string, size int, method, params string) bool {
	if c.conn == nil {
		conn, err := net.DialTimeout("tcp", c.Addr, time.Until(c.until))
		if err != nil {
			c.lost("no connection")
			return false
		}
		_ = conn.(*net.TCPConn).SetReadBuffer(4096)
		c.conn, c.r = conn, bufio.NewReader(conn)
	}
	_ = c.conn.SetDeadline(c.until)
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n", verb, mcp.Endpoint, size)
	for h := c.headers(method, params); len(h) > 1; h = h[2:] {
		b.WriteString(h[0] + ": " + h[1] + "\r\n")
	}
	if _, err := io.WriteString(c.conn, b.String()+"\r\n"+body); err != nil {
		c.lost("lost")
		return false
	}
	return true
}

// answer reads an answer to its end, and counts it. Unless it is nil, leaves has those that it reports not be read on.
func (c *intruder) answer(leaves func(*http.Response) bool) (got echo) {
	response, err := http.ReadResponse(c.r, nil)
	if err != nil {
		c.lost("lost")
		return got
	}
	if leaves != nil && leaves(response) {
		c.drop()
		return got
	}
	var text []byte
	for lines := bufio.NewReader(response.Body); err == nil; {
		var line []byte
		line, err = lines.ReadBytes('\n')
		if text = append(text, line...); bytes.Contains(line, []byte(`"elicitation/create"`)) {
			c.count("form shown")
		}
	}
	if err != io.EOF {
		c.lost("lost")
		return got
	}
	if response.Close {
		c.drop()
	}
	switch got = readAnswer(response, text); {
	case got.status == http.StatusAccepted:
		c.count("accepted")
	case got.ran() && got.header.Get("Mcp-Session-Id") != "":
		c.count("session")
	case got.ran():
		c.count("answered")
	case got.kind() != "":
		c.count(got.kind())
	case got.fault != nil && got.status == http.StatusOK:
		c.count("error " + strconv.Itoa(got.code()))
	default:
		c.count(strconv.Itoa(got.status))
	}
	return got
}

func (c *intruder) post(body, method, params string) (got echo) {
	if body = strings.Replace(body, `"siege"`, strconv.Quote(c.info), 1); !c.write(http.MethodPost, body, len(body), method, params) {
		return got
	}
	return c.answer(nil)
}

// newSession leaves a session of the legacy era behind, and begins another.
func (c *intruder) newSession() {
	c.shared = &begunSession{}
}

// begun reports whether there is a session, where the era has them, and has one begin.
func (c *intruder) begun() bool {
	if c.era == "modern" {
		return true
	}
	c.shared.mu.Lock()
	defer c.shared.mu.Unlock()
	if c.session = c.shared.id; c.session != "" {
		return true
	}
	c.shared.id = c.post(c.text("initialize", `{"protocolVersion":"2025-11-25","clientInfo":{"name":"siege","version":"1"},"capabilities":`+c.capabilities+`}`), "initialize", `{}`).header.Get("Mcp-Session-Id")
	c.session = c.shared.id
	return c.session != ""
}

func (c *intruder) ask(method, params string) {
	if c.begun() && c.post(c.text(method, params), method, params).status == http.StatusNotFound {
		c.shared.ends(c.session)
	}
}

// call calls a tool with arguments that it had never before.
func (c *intruder) call(tool string) {
	c.ask("tools/call", fmt.Sprintf(`{"name":"%s","arguments":{"n":%d}}`, tool, c.id.Load()))
}

// listen has every other connection listen to the end, and the others open one stream after the other.
func (c *intruder) listen() {
	if !c.begun() {
		return
	}
	const params = `{"notifications":{"toolsListChanged":true,"resourcesListChanged":true}}`
	verb, body := http.MethodGet, ""
	if c.era == "modern" {
		verb, body = http.MethodPost, c.text("subscriptions/listen", params)
	}
	if !c.write(verb, body, len(body), "subscriptions/listen", params) {
		return
	}
	c.answer(func(r *http.Response) bool {
		if r.StatusCode != http.StatusOK || r.Header.Get("Content-Type") != "text/event-stream" {
			return false
		}
		c.count("stream open")
		if c.number%2 == 1 {
			_ = c.conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		}
		if _, err := io.Copy(io.Discard, r.Body); !errors.Is(err, os.ErrDeadlineExceeded) {
			c.count("stream ended")
		}
		return true
	})
}

// beDear has each message cause as much as it can, or hold as much for as long as it can, in sessions that come and go.
func (c *intruder) beDear() {
	c.capabilities = `{"elicitation":{"form":{}}}`
	switch c.n % 8 { // what holds something comes first: later the person owes for the rest
	case 0:
		c.leaveAsked()
	case 1:
		c.listen()
	case 2:
		if c.number%8 == 0 {
			c.newSession()
		}
		c.ask("tools/list", `{}`)
	case 3:
		c.call("nothing")
	case 4:
		c.ask("resources/list", `{}`)
	case 5:
		c.ask("completion/complete", `{"ref":{"type":"ref/prompt","name":"greet"},"argument":{"name":"a","value":"b"}}`)
	case 6:
		c.ask("prompts/list", `{}`)
	case 7:
		if c.era == "legacy" {
			c.ask("resources/subscribe", fmt.Sprintf(`{"uri":"mem://notes/%d"}`, c.n%64))
			return
		}
		uris := make([]string, 64)
		for n := range uris {
			uris[n] = fmt.Sprintf(`"mem://notes/%d"`, n)
		}
		params := `{"notifications":{"resourceSubscriptions":[` + strings.Join(uris, ",") + `]}}`
		if body := c.text("subscriptions/listen", params); c.write(http.MethodPost, body, len(body), "subscriptions/listen", params) {
			_ = c.conn.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
			_, _ = c.r.Peek(1)
			c.drop()
		}
	}
}

// leaveAsked has the server ask something, and does not answer. In the legacy era the first call of each connection waits on.
func (c *intruder) leaveAsked() {
	const params = `{"name":"greet"}`
	if body := c.text("prompts/get", params); !c.begun() || !c.write(http.MethodPost, body, len(body), "prompts/get", params) {
		return
	}
	got := c.answer(func(r *http.Response) bool {
		if c.era == "modern" || r.Header.Get("Content-Type") != "text/event-stream" {
			return false
		}
		c.count("asked")
		if len(c.unread) == 0 {
			c.unread, c.conn = append(c.unread, c.conn), nil
		}
		return true
	})
	if strings.Contains(got.text, `"input_required"`) {
		c.count("asked")
	}
}

// giveUp calls in a session of its own, and leaves in the midst of the call, and the session behind. An answer that comes is its own.
func (c *intruder) giveUp() {
	if c.newSession(); !c.begun() {
		return
	}
	params := `{"name":"` + []string{"free", "slow"}[c.n%2] + `","arguments":{}}`
	if body := c.text("tools/call", params); !c.write(http.MethodPost, body, len(body), "tools/call", params) {
		return
	}
	_ = c.conn.SetReadDeadline(time.Now().Add(time.Duration(c.n%16) * 5 * time.Millisecond))
	if _, err := c.r.Peek(1); errors.Is(err, os.ErrDeadlineExceeded) {
		c.count("given up")
		c.drop()
		return
	}
	_ = c.conn.SetReadDeadline(c.until)
	if got := c.answer(nil); got.ran() && !strings.Contains(got.text, `"ran"`) {
		c.count("another's answer")
	}
}

// stall begins a body, of every other connection a large one without its last byte, and waits.
func (c *intruder) stall() {
	body := `{"jsonrpc"`
	if c.number%2 == 1 {
		body += strings.Repeat(" ", 1<<20-1-len(body))
	}
	if !c.write(http.MethodPost, body, max(1000, len(body)+1), "tools/list", `{}`) {
		return
	}
	_ = c.conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	_, err := c.r.Peek(1)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.count("body stalled")
		_ = c.conn.SetReadDeadline(c.until)
		_, err = c.r.Peek(1)
	}
	if err != nil {
		c.lost("cut off")
		return
	}
	c.answer(nil)
	c.drop()
}

// leaveUnread has a result of 4 MB come, and reads no more than its beginning.
func (c *intruder) leaveUnread() {
	const params = `{"name":"big","arguments":{}}`
	if body := c.text("tools/call", params); !c.begun() || !c.write(http.MethodPost, body, len(body), "tools/call", params) {
		return
	}
	c.answer(func(r *http.Response) bool {
		if r.ContentLength < int64(len(bigText)) {
			return false
		}
		c.count("result unread")
		c.unread = append(c.unread, c.conn) // open until all is over, and the next comes on another
		c.conn = nil
		return true
	})
}

var (
	bigText   = strings.Repeat("x", 4<<20-1024)
	bigResult = `{"resultType":"complete","content":[{"type":"text","text":"` + bigText + `"}]}`
)

// attacked is a gateway in a process of its own, and all that stands around it.
type attacked struct {
	*siege
	*gatewayProcess
	assault
	goes []*fickle // those that go away
}

func newAttacked(t *testing.T, of assault, where string) *attacked {
	t.Helper()
	tools, speaks, asks := append(slices.Clone(peopleTools), "big", "slow"), []string(nil), new(asker)
	if of.dear {
		speaks = []string{"legacy"}
		for n := range 980 {
			tools = append(tools, fmt.Sprintf("tool-%d", n))
		}
	}
	rec := mcptest.NewRecorder(t, mcptest.Answers{Eras: speaks, Tools: definitions(tools...), Heard: asks.heard, Handle: func(c *mcptest.Call) bool {
		if of.dear && c.Method == "prompts/get" {
			return asks.handle(c)
		}
		if c.Method == "tools/call" && bytes.Contains(c.Params, []byte(`"slow"`)) {
			<-c.Context.Done()
			return true
		}
		big := c.Method == "tools/call" && bytes.Contains(c.Params, []byte(`"big"`))
		if big {
			c.Result(bigResult)
		}
		return big
	}})
	a := &attacked{assault: of, siege: &siege{t: t, rec: rec, issuer: mcptest.NewIssuer(t, siegeResource, time.Now), data: t.TempDir()}}
	keys, policies, keyFile := a.issuer.KeysFile(t), t.TempDir(), filepath.Join(t.TempDir(), "gateway.key")
	orFail(t, os.Mkdir(filepath.Join(policies, "entities"), 0o700))
	for name, text := range map[string]string{
		"people.cedar": peoplePolicies, "obligations.yaml": peopleObligations, "entities/people.json": peopleEntities, "bundle.yaml": "allow_trivial: true\nallow_self_approval: [confirm]\n",
		"more.cedar": `@id("big") permit (principal, action == Action::"tool.invoke", resource == tool::"rec:big");
@id("request") permit (principal, action == Action::"tool.request", resource);
` + of.policy,
	} {
		orFail(t, os.WriteFile(filepath.Join(policies, name), []byte(text), 0o600))
	}
	decides := fmt.Sprintf(`{embedded: {policies: %q, data: %q}}`, policies, a.data)
	if where == "separate" {
		w := &world{keys: map[string]string{}}
		w.addKey(a.siege, "gateway", "", auth.Decide, auth.Search, auth.Request, auth.Relay)
		orFail(t, os.WriteFile(keyFile, []byte(w.keys["gateway"]), 0o600))
		a.pdp = pdptest.Start(t, pdp.Dir(policies), func(c *pdpserver.Config) {
			c.Data, c.Program.PDP.Now, c.Program.PDP.NewID = a.data, time.Now, nil
			c.Auth.JWT = []auth.JWTIssuer{{
				Issuer: a.issuer.URL, Audience: siegeResource, JWKSFile: keys, Algorithms: []string{"ES256"}, RelayedBy: []string{"gateway"},
				Principal: &auth.PrincipalClaim{Type: "user", Claim: "sub"}, Grant: auth.Grant{Tenants: []string{"default"}, Permissions: []auth.Permission{auth.Approve}},
			}}
		})
		decides = fmt.Sprintf(`{url: %q, key_file: %q, breaker: {cool_down: 100ms}}`, a.before(a.pdp.URL), keyFile)
	}
	server := fmt.Sprintf(`{url: %q, allow_networks: [127.0.0.0/8, "::1/128"]}`, a.before(rec.URL))
	if of.dear {
		server = strings.TrimSuffix(server, "}") + ", server_requests: {elicitation: relay}}"
	}
	if of.program {
		command, err := json.Marshal(rec.Command())
		orFail(t, err)
		server = fmt.Sprintf(`{command: %s}`, command)
	}
	a.gatewayProcess = startGateway(t, fmt.Appendf(nil, "listen: 127.0.0.1:0\nresource: %s\npdp: %s\nidentity: {issuers: [{issuer: %q, algorithms: [ES256], jwks_file: %q}]}\nupstreams: {rec: %s}\n",
		siegeResource, decides, a.issuer.URL, keys, server))
	a.url = "http://" + a.addr + mcp.Endpoint
	return a
}

// before is where a server is found that may go away.
func (a *attacked) before(server string) string {
	if !a.fickle {
		return server
	}
	f, path := fickleAt(a.t, server), ""
	a.goes = append(a.goes, f)
	if at, err := url.Parse(server); err == nil {
		path = at.Path
	}
	return f.URL + path
}

// comeAndGo has all that goes away go and come back in turn, and be there at the end.
func (a *attacked) comeAndGo(ended chan struct{}) {
	next := time.NewTicker(300 * time.Millisecond)
	defer next.Stop()
	for n := 0; len(a.goes) > 0; n++ {
		select {
		case <-next.C:
			a.goes[n/2%len(a.goes)].turn(n%2 == 1)
		case <-ended:
			for _, f := range a.goes {
				f.turn(true)
			}
			return
		}
	}
}

// run has the other person ask alone, and then beside the attack. It gives their line of the table.
func (a *attacked) run(era string, span time.Duration) string {
	t := a.t
	t.Helper()
	other := a.visitor(era, mcptest.Claims{"sub": "alice"})
	other.client.Timeout = floodPatience
	alone, _ := a.asks(other, min(span, 10*time.Second))
	began, sent := time.Now(), a.sent()
	before, logged := a.left(), a.logged()
	file := filepath.Join(t.TempDir(), "attacker.json")
	told := attacker{Addr: a.addr, Era: era, Name: a.name, For: int64(span)}
	for n := range attackIDs {
		sub := "mallory"
		if a.fickle { // who is refused for asking too often has nothing to give up
			sub = fmt.Sprint("mallory-", n)
		}
		told.Tokens = append(told.Tokens, a.issuer.Token(t, mcptest.Claims{"sub": sub, "client_id": fmt.Sprintf("client-%d", n)}))
	}
	text, err := json.Marshal(&told)
	orFail(t, err)
	orFail(t, os.WriteFile(file, text, 0o600))
	said := &kept{}
	command, in, out, _ := startSelf(t, said, attackerChild+"="+file)
	ended, watched := make(chan struct{}), make(chan most)
	go func() { watched <- a.watch(ended) }()
	var goes sync.WaitGroup
	goes.Go(func() { a.comeAndGo(ended) })
	_, err = fmt.Fprintln(in)
	orFail(t, err)
	beside, refused := a.asks(other, span)
	counted, _ := out.ReadBytes('\n') // to its end
	if err := command.Wait(); err != nil {
		t.Errorf("the attacker: %v\n%s", err, said)
	}
	close(ended)
	goes.Wait()
	meanwhile, log := <-watched, a.logged()-logged
	counts := map[string]int{}
	orFail(t, json.Unmarshal(counted, &counts))
	counts["waiting"], counts["processes"] = meanwhile.waiting, meanwhile.children-before.children
	if counts[a.shows] == 0 || a.dear && (counts["asked"] == 0 || counts["stream open"] == 0) {
		t.Errorf("of the attack nothing is seen: %s", counted)
	}
	if a.policy == mayNothing && meanwhile.children > before.children+1 { // one lists in the gateway's own name
		t.Errorf("%d programs run for who may do nothing there", meanwhile.children-before.children)
	}
	if may := 2*200 + int(2*50*time.Since(began).Seconds()); a.dear && a.sent()-sent > may {
		t.Errorf("the server got %d messages, and %d may come of two people", a.sent()-sent, may)
	}
	if a.dear { // while it waits for the attacker
		asked := a.takesForms("modern", mcptest.Claims{"sub": "alice"})
		stateOf(t, asked.ask("prompts/get", `{"name":"greet"}`))
		asked.client.CloseIdleConnections()
	}
	p99, was := beside[len(beside)*99/100], alone[len(alone)*99/100]
	part, times := 99, time.Duration(3)
	if a.dear {
		part, times = 50, 2
	} else if span < time.Minute {
		part = 50
	}
	if counts["another's answer"] > 0 || a.fickle && (len(refused) == 0 || len(refused) == len(beside)) {
		t.Errorf("of the other person's %d requests %d are refused; the attacker got %s", len(beside), len(refused), counted)
	}
	if a.fickle { // the other person cannot be served meanwhile, and is afterwards
		mcptest.Until(t, "requests pass again", func() bool { _, refused := a.asks(other, 0); return len(refused) == 0 })
		refused = nil
	} else if got, bound := beside[len(beside)*part/100], times*alone[len(alone)*part/100]; got > bound {
		t.Errorf("p%d of the other person is %v, and may be %v", part, got, bound)
	}
	for _, text := range refused[:min(5, len(refused))] {
		t.Errorf("the other person is refused: %s", text)
	}
	after := a.settled(other, before)
	return fmt.Sprintf("%s | %v/%v, %v/%v (%.1f) of %d, %d refused | %d KiB, %d %% | %v; %v; %v", counted, alone[len(alone)/2], was, beside[len(beside)/2], p99, float64(p99)/float64(was), len(beside), len(refused),
		log>>10, log*100/personLog, before, meanwhile, after)
}

// sent is how many messages the server got, besides the answers to what it asked by itself.
func (a *attacked) sent() (n int) {
	for _, got := range a.rec.Got() {
		if got.Method != "" || len(got.Body) == 0 {
			n++
		}
	}
	return n
}

// asks has the other person call and list in turn. It gives how long each took, the shortest first, and what was no answer.
func (a *attacked) asks(v *visitor, d time.Duration) (took []time.Duration, refused []string) {
	pace := time.NewTicker(20 * time.Millisecond)
	defer pace.Stop()
	for end := time.Now().Add(d); time.Now().Before(end) || len(took) < 2; <-pace.C {
		method, params := "tools/call", `{"name":"free","arguments":{}}`
		if len(took)%2 == 1 && !a.dear { // whoever lists 1,000 tools over and over is no innocent
			method, params = "tools/list", `{}`
		}
		begun := time.Now()
		got, err := v.try(a.t.Context(), http.MethodPost, v.text(method, params), v.headers(method, params)...)
		if took = append(took, time.Since(begun)); err != nil || !got.ran() {
			refused = append(refused, fmt.Sprintf("%s: %s, %v", method, got, err))
		}
	}
	slices.Sort(took)
	return took, refused
}

// left is what the gateway holds, and what the PDP and the server do that are in the tests' process.
type left struct {
	floodHeld
	descriptors, children, around int
}

func (l left) String() string {
	return fmt.Sprintf("%d+%d/%d/%d/%d/%d MiB", l.goroutines, l.around, l.connections, l.descriptors, l.children, l.heap>>20)
}

func (a *attacked) left() left {
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", a.pid))
	orFail(a.t, err)
	return left{a.holds(), len(files), a.children(), runtime.NumGoroutine()}
}

func (p *gatewayProcess) children() (n int) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", p.pid))
	for _, file := range threads {
		text, _ := os.ReadFile(file)
		n += len(strings.Fields(string(text)))
	}
	return n
}

// settled is what is left once it is no more than before, but for some connections and what a run of the collector leaves. An hour
// later sessions and what waits are over, and the gateway lets go of them in the next minute.
func (a *attacked) settled(other *visitor, before left) (after left) {
	a.t.Helper()
	if _, refused := a.asks(other, 0); len(refused) > 0 {
		a.t.Errorf("after the attack: %s", refused)
	}
	_, err := fmt.Fprintln(a.in, "later")
	orFail(a.t, err)
	looks := time.NewTicker(200 * time.Millisecond)
	defer looks.Stop()
	for end := time.Now().Add(floodPatience + 10*time.Second); ; <-looks.C {
		switch after = a.left(); {
		case after.goroutines <= before.goroutines+16 && after.around <= before.around+64 && after.connections <= before.connections && after.descriptors <= before.descriptors+8 &&
			after.children <= before.children && after.heap <= before.heap+before.heap/2+8<<20:
			return after
		case time.Now().After(end):
			a.t.Errorf("of the attack something is left: %v, there was %v", after, before)
			return after
		}
	}
}

// logged is how large the log is, and all that is beside it.
func (a *attacked) logged() (bytes int64) {
	_ = filepath.WalkDir(a.data, func(_ string, e fs.DirEntry, err error) error {
		if info, gone := e.Info(); err == nil && gone == nil && info.Mode().IsRegular() {
			bytes += info.Size()
		}
		return nil
	})
	return bytes
}

// most is the most that was there at once.
type most struct {
	waiting, children int
	memory            int64
}

func (m most) String() string {
	return fmt.Sprintf("%d, %d, %d MiB", m.waiting, m.children, m.memory>>20)
}

func (a *attacked) watch(ended chan struct{}) (m most) {
	for tick := time.NewTicker(200 * time.Millisecond); ; {
		select {
		case <-tick.C:
		case <-ended:
			return m
		}
		var all, resident int64
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", a.pid))
		_, _ = fmt.Sscan(string(text), &all, &resident)
		m = most{max(m.waiting, a.waiting()), max(m.children, a.children()), max(m.memory, resident*int64(os.Getpagesize()))}
		if m.memory > attackMemory {
			a.t.Errorf("the gateway takes %d MiB", m.memory>>20)
			_ = unix.Kill(a.pid, unix.SIGKILL)
			return m
		}
	}
}

// fickle is a server that goes away and comes back by the same address.
type fickle struct {
	*httptest.Server
	away atomic.Bool
}

func fickleAt(t testing.TB, server string) *fickle {
	t.Helper()
	to, err := url.Parse(server)
	orFail(t, err)
	f, h := &fickle{}, mcptest.Proxy(to)
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
