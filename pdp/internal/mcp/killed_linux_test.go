package mcp_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/decisionlog/verify"
	pdpserver "policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/config"
	"policy-service/pdp/pdptest/mcptest"
)

// R16: a process is killed at an exact point of a call that people decide about, and another goes on. Nothing tells when
// that point is but the question, or the answer, that is held on its way.

const killedPDPChild = "MCP_TEST_KILLED_PDP"

func init() { isChild(killedPDPChild, serveKilledPDP) }

func serveKilledPDP(file string) error {
	var c pdpserver.Config
	if _, err := pdpserver.ConfigForm.Read(config.Given{File: file}, &c); err != nil {
		return err
	}
	return serveUntilInputEnds(c)
}

// mortal is a process that can be killed, and started again as it was.
type mortal struct {
	t         testing.TB
	addr      string
	variables []string  // say what it is
	command   *exec.Cmd // nil if it does not run
	input     io.Closer
	said      kept
}

func newMortal(t testing.TB, addr string, variables ...string) *mortal {
	t.Helper()
	m := &mortal{t: t, addr: addr, variables: append(variables, "GOGC=400")} // it lives for a moment
	m.start()
	t.Cleanup(func() {
		if m.command != nil {
			m.kill()
		}
	})
	return m
}

// start returns when it answers.
func (m *mortal) start() {
	m.t.Helper()
	m.command, m.input, _, _ = startSelf(m.t, &m.said, m.variables...)
}

// kill kills it with SIGKILL, and returns when it is gone.
func (m *mortal) kill() {
	m.t.Helper()
	_ = m.command.Process.Kill()
	if err := m.command.Wait(); !strings.Contains(fmt.Sprint(err), "killed") {
		m.t.Errorf("it ended otherwise than by being killed: %v\n%s", err, &m.said)
	}
	m.command = nil
}

// stop has it end by itself.
func (m *mortal) stop() {
	m.t.Helper()
	_ = m.input.Close()
	process := m.command.Process
	defer time.AfterFunc(time.Minute, func() { _ = process.Kill() }).Stop()
	if err := m.command.Wait(); err != nil {
		m.t.Errorf("it ended with %v\n%s", err, &m.said)
	}
	m.command = nil
}

// mortals are a PDP and two gateways with the same keys, each a process.
type mortals struct {
	*setting
	pdp      *mortal
	gateways [2]*mortal
	last     int
	// shows is what the next call shows in _meta.
	shows string
}

func newMortals(t testing.TB) *mortals {
	t.Helper()
	at := heldAddress(t)
	m := &mortals{setting: newSetting(t, at, "modern")}
	m.setting.pdp.leadTo("http://" + at)
	m.pdp = newMortal(t, at, killedPDPChild+"="+m.file("pdp.yaml"))
	for n := range m.gateways {
		at := heldAddress(t)
		m.gateways[n] = newMortal(t, at, gatewayChild+"="+m.gatewayFile(fmt.Sprintf("gateway-%d.yaml", n), at, "wait: 2s"))
	}
	return m
}

// over ends them all. The log must be whole then, and have it that people were asked so often.
func (m *mortals) over(filed int) {
	m.t.Helper()
	for _, g := range m.gateways {
		g.kill()
	}
	m.pdp.stop()
	if report := verify.Directory(m.file("data"), verify.Options{}); !report.Verified() {
		m.t.Errorf("the log: %v: %v", report.Code, report.Problem)
	}
	if got := strings.Count(strings.Join(m.records(), "\n"), `"event":"filed"`); got != filed {
		m.t.Errorf("people were asked %d times, and it should be %d", got, filed)
	}
}

// at is alice's agent at a gateway.
func (m *mortals) at(n int, era string, beside *roundsClient) roundsClient {
	m.t.Helper()
	return m.client(era, "http://"+m.gateways[n].addr+"/mcp", beside)
}

// killedPoint is a point of a call at which somebody is killed.
type killedPoint struct {
	name string
	// by says what is held at that point: it goes to the PDP, or if forwards is set to the server. Nothing is held where it is
	// nil, between two requests of the client.
	by       func(*http.Request, []byte) bool
	forwards bool
	// answer is set if the answer is held, and not the request.
	answer bool
	// early is set if the client has not been asked yet.
	early bool
	// filed is set if people have been asked by then, approved if they have agreed, and spent if the use of that was made.
	filed, approved, spent bool
	// seen is set if the server has seen the call.
	seen bool
}

func verbTo(verb, path string) func(*http.Request, []byte) bool {
	return func(r *http.Request, _ []byte) bool { return r.Method == verb && strings.HasSuffix(r.URL.Path, path) }
}

var (
	filesTask = verbTo(http.MethodPost, "/access/v1/requests")
	wantsForm = verbTo(http.MethodGet, "/elicitation")
	responds  = verbTo(http.MethodPost, "/response")
)

func aCall(_ *http.Request, body []byte) bool { return bytes.Contains(body, []byte(`"tools/call"`)) }

// asksPlainly is a question about a call, and uses one that presents an approval.
func asksPlainly(r *http.Request, body []byte) bool {
	return strings.HasSuffix(r.URL.Path, "/evaluation") && bytes.Contains(body, []byte(`"tool.invoke"`)) && !presentsApproval(body)
}

func uses(r *http.Request, body []byte) bool {
	return strings.HasSuffix(r.URL.Path, "/evaluation") && presentsApproval(body)
}

func presentsApproval(body []byte) bool { return bytes.Contains(body, []byte(`"approval":{`)) }

var killedPoints = []killedPoint{
	{name: "before the PDP is asked", by: asksPlainly, early: true},
	{name: "after the PDP's no", by: asksPlainly, answer: true, early: true},
	{name: "before people are asked", by: filesTask, early: true},
	{name: "after people were asked", by: filesTask, answer: true, early: true, filed: true},
	{name: "before the form", by: wantsForm, early: true, filed: true},
	{name: "after the form", by: wantsForm, answer: true, early: true, filed: true},
	{name: "before the client's answer", filed: true},
	{name: "after the client's answer", by: responds, filed: true},
	{name: "after the response", by: responds, answer: true, filed: true, approved: true},
	{name: "before the use", by: uses, filed: true, approved: true},
	{name: "after the use", by: uses, answer: true, filed: true, approved: true, spent: true},
	{name: "as it forwards", by: aCall, forwards: true, filed: true, approved: true, spent: true},
	{name: "before the server's answer", by: aCall, forwards: true, answer: true, filed: true, approved: true, spent: true, seen: true},
}

// catch holds what is on its way at a point.
func (p killedPoint) catch(m *mortals) *trap {
	at := m.setting.pdp
	if p.forwards {
		at = m.server
	}
	return at.hold(p.answer, p.by)
}

// begun is a call of either era on its way to somebody's death.
type begunCall struct {
	m         *mortals
	era       string
	client    roundsClient
	arguments string
	// form is what the client was asked, if it was.
	form wasAsked
	// trap holds what is on its way, nil if nothing is.
	trap *trap
	// beyond holds what the gateway does if it hears by another way of the answer that is held.
	beyond  *trap
	over    chan wasAsked // what came of it, in the modern era
	waiting *waitingCall
}

// begin calls a tool, up to a point, and returns when that is reached.
func (m *mortals) begin(era string, p killedPoint) *begunCall {
	m.t.Helper()
	m.last++
	c := &begunCall{m: m, era: era, client: m.at(0, era, nil), over: make(chan wasAsked, 1)}
	c.arguments, c.client.meta = fmt.Sprintf(`{"marker":"killed %d"}`, m.last), m.shows
	if !p.early {
		c.call()
		if c.form = c.next(); c.form.kind != roundsForm {
			m.t.Fatalf("no form: %s", c.form)
		}
	}
	if p.by == nil {
		return c
	}
	c.trap = p.catch(m)
	if p.approved && !p.spent && p.answer {
		c.beyond = m.setting.pdp.hold(false, uses)
	}
	if p.early {
		c.call()
	} else {
		c.answer("accept", c.client)
	}
	select {
	case <-c.trap.held:
	case a := <-c.comes():
		m.t.Fatalf("%s is never reached: %s", p.name, a)
	case <-time.After(roundsPatience):
		m.t.Fatalf("%s is never reached", p.name)
	}
	return c
}

// killed is called once somebody is: the next use of an approval passes.
func (c *begunCall) killed() {
	if c.beyond != nil {
		c.m.setting.pdp.drop(c.beyond, false)
	}
}

func (c *begunCall) marker() string { return fmt.Sprintf("killed %d", c.m.last) }

// call begins the call.
func (c *begunCall) call() {
	if c.era == "legacy" {
		c.waiting = c.client.begins("once", c.arguments)
		return
	}
	go c.again(nil, "")
}

func (c *begunCall) again(with *wasAsked, answer string) {
	a, err := c.client.call(c.m.t.Context(), "once", c.arguments, with, answer)
	if err != nil {
		a = wasAsked{kind: "odd", text: err.Error()}
	}
	c.over <- a
}

// answer answers the form, at some gateway.
func (c *begunCall) answer(answer string, at roundsClient) {
	if c.era == "legacy" {
		q := c.form
		go func() { _ = at.answer(c.m.t.Context(), q, answer, 1) }() // who is killed answers nothing
		return
	}
	form := c.form
	go c.again(&form, answer)
}

func (c *begunCall) comes() <-chan wasAsked {
	if c.era == "legacy" {
		return c.waiting.said
	}
	return c.over
}

// next is what comes.
func (c *begunCall) next() wasAsked {
	c.m.t.Helper()
	select {
	case a := <-c.comes():
		return a
	case <-time.After(roundsPatience):
		c.m.t.Fatal("nothing comes")
		return wasAsked{}
	}
}

// At each point the gateway is killed; it, or a replica, goes on. No call is made twice, none without
// agreement, and people are asked once, but where the use was spent (R18). By a state of before the client goes on, or by
// the same call. It takes some seconds: two gateways and a PDP are processes, and are started again and again.
func TestKilledGateway(t *testing.T) {
	t.Parallel()
	for e, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			m := newMortals(t)
			filed := 0
			for n, p := range killedPoints {
				for b, by := range []string{"the same gateway", "a replica"} {
					if testing.Short() && (n%2 != e || n/2%2 != b) { // each point in one era; TestKilledPDP has the other
						continue
					}
					for _, with := range []string{"call", "state"} {
						if with == "state" && (p.early || era == "legacy") {
							continue
						}
						filed += m.killsGateway(t, era, by, with, p)
					}
				}
			}
			m.over(filed)
		})
	}
}

// hasSeen fails unless the server has seen a call so often.
func (m *mortals) hasSeen(t *testing.T, name string, c *begunCall, seen int) {
	t.Helper()
	if got := m.seen(c.marker()); got != seen {
		t.Errorf("%s: the server has seen it %d times, and it should be %d", name, got, seen)
	}
}

// once is how often the server has seen a call by a point at which it has, or has not.
func once(seen bool) int {
	if seen {
		return 1
	}
	return 0
}

// comesTo fails unless what comes of a call is of one of these kinds.
func (c *begunCall) comesTo(t *testing.T, name string, kinds ...string) wasAsked {
	t.Helper()
	a := c.next()
	if !slices.Contains(kinds, a.kind) {
		t.Errorf("%s: %s, and it should be one of %q", name, a, kinds)
	}
	return a
}

// goesOn has the client answer by the state that it has. It is how often the server must see the call after that.
func (p killedPoint) goesOn(t *testing.T, name string, c *begunCall) (seen int) {
	t.Helper()
	want := roundsRan
	if p.spent {
		want = roundsRefused
	}
	c.answer("accept", c.client)
	c.comesTo(t, name, want)
	return once(!p.spent)
}

// killsGateway kills the first gateway at a point of a new call, and has the client go on. It is how often people must
// have been asked.
func (m *mortals) killsGateway(t *testing.T, era, by, with string, p killedPoint) (filed int) {
	t.Helper()
	name := p.name + ", goes on by the " + with
	c := m.begin(era, p)
	m.gateways[0].kill()
	c.killed()
	if p.by != nil || era == "legacy" {
		c.comesTo(t, name, roundsGone)
	}
	n := 1
	if by == "the same gateway" {
		m.gateways[0].start()
		n = 0
	}
	c.client = m.at(n, era, &c.client)
	seen := once(p.seen)
	m.hasSeen(t, name, c, seen)
	filed = 1
	if with == "state" {
		seen += p.goesOn(t, name, c)
	} else {
		if p.spent {
			filed = 2 // R18
		}
		c.call()
		seen++
		if p.approved && !p.spent {
			c.comesTo(t, name, roundsRan)
		} else {
			a := c.comesTo(t, name, roundsForm)
			if !p.early && (a.approval == c.form.approval) == p.spent {
				t.Errorf("%s: people are asked anew: %t", name, a.approval != c.form.approval)
			}
			c.form = a
			c.answer("accept", c.client)
			c.comesTo(t, name, roundsRan)
		}
	}
	m.hasSeen(t, name, c, seen)
	if !p.early && !p.spent && era == "modern" { // what the client had in hand is worth nothing now
		old := c.form
		if a, err := c.client.call(t.Context(), "once", c.arguments, &old, "accept"); err != nil || a.kind != roundsRefused {
			t.Errorf("%s: the same again: %s, %v", name, a, err)
		}
		m.hasSeen(t, name, c, seen)
	}
	if by == "a replica" {
		m.gateways[0].start()
	}
	return filed
}

// At each point the PDP is killed, and started again on what it has kept. While it is away nothing is forwarded that it has
// not said yes to, and then all goes on. If what is held is an answer, it reaches the gateway, or it is lost. It takes some
// seconds, as TestKilledGateway does.
func TestKilledPDP(t *testing.T) {
	t.Parallel()
	for e, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			m := newMortals(t)
			filed := 0
			for n, p := range killedPoints {
				if testing.Short() && n%2 == e { // each point in one era
					continue
				}
				for _, with := range []string{"call", "state"} {
					for _, lost := range []bool{false, true} {
						if with == "state" && (p.early || era == "legacy") || lost && (!p.answer || p.forwards) {
							continue
						}
						if testing.Short() && p.answer && !p.early && !p.forwards && lost == (with == "call") { // each once
							continue
						}
						filed += m.killsPDP(t, era, with, lost, p)
					}
				}
			}
			m.over(filed)
		})
	}
}

// killedAnswers are what may come of a call without a PDP where it is not just that the PDP is away, by the name of the
// point. The gateway has what it needs for its answer, or waits for a PDP that may come back.
var killedAnswers = map[string][]string{
	"after the form":     {roundsForm},
	"after the response": {roundsAway, roundsWait, roundsRequired},
}

// killsPDP kills the PDP at a point of a new call, and has the client go on. It is how often people must have been asked.
func (m *mortals) killsPDP(t *testing.T, era, with string, lost bool, p killedPoint) (filed int) {
	t.Helper()
	name := p.name
	if lost {
		name += ", which is lost"
	}
	name += ", goes on by the " + with
	c := m.begin(era, p)
	m.pdp.kill()
	c.killed()
	if c.trap != nil {
		c.trap.let <- !lost
	}
	ran := p.spent && !lost // it has said yes
	var first wasAsked
	switch {
	case p.by == nil && era == "legacy": // the call goes on waiting
	case p.by == nil:
		c.answer("accept", c.client)
		fallthrough
	default:
		want := []string{roundsAway}
		if at, is := killedAnswers[p.name]; ran {
			want = []string{roundsRan}
		} else if is && !lost {
			want = at
		}
		first = c.comesTo(t, name+", while the PDP is away", want...)
	}
	seen := once(ran)
	m.hasSeen(t, name, c, seen)
	m.pdp.start()
	filed = 1
	switch {
	case with == "state":
		seen += p.goesOn(t, name, c)
	case p.by == nil && era == "legacy":
		c.answer("accept", c.client)
		c.comesTo(t, name+", which goes on waiting", roundsRan)
		seen++
	default:
		if p.spent {
			filed = 2
		}
		if first.kind != roundsForm || era == "modern" {
			c.call()
			first = c.next()
		}
		if p.approved && !p.spent {
			if first.kind != roundsRan {
				t.Errorf("%s: %s, and it was agreed to", name, first)
			}
		} else if c.form = first; first.kind != roundsForm {
			t.Errorf("%s: %s, and it should be a form", name, first)
		} else {
			c.answer("accept", c.client)
			c.comesTo(t, name, roundsRan)
		}
		seen++
	}
	m.hasSeen(t, name, c, seen)
	return filed
}

// The answer of a legacy client comes to a replica, and its call waits at the other gateway. Either is killed around the
// response: what the person said counts once, and they are asked once.
// It takes some seconds: gateways are processes, and are started again.
func TestKilledReplica(t *testing.T) {
	t.Parallel()
	m := newMortals(t)
	at := func(p string) killedPoint {
		return killedPoints[slices.IndexFunc(killedPoints, func(one killedPoint) bool { return one.name == p })]
	}
	none := at("before the client's answer")
	var open error
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("of the approval: %v\nthe PDP: %s\nthe gateways: %s\n%s", open, &m.pdp.said, &m.gateways[0].said, &m.gateways[1].said)
		}
	})
	for _, p := range []killedPoint{at("after the client's answer"), at("after the response")} {
		for killed := range m.gateways {
			name := fmt.Sprintf("gateway %d is killed %s", killed, p.name)
			c := m.begin("legacy", none)
			beyond, trap := m.setting.pdp.hold(false, uses), p.catch(m) // gateway 0 hears by another way that they have agreed
			c.answer("accept", m.at(1, "legacy", &c.client))
			select {
			case <-trap.held:
			case <-time.After(roundsPatience):
				t.Fatalf("%s: that is never reached", name)
			}
			m.gateways[killed].kill()
			m.setting.pdp.drop(beyond, killed != 0)
			if killed == 0 { // its client comes again; of what gateway 1 has sent nothing passes when it has gone
				trap.let <- true
				c.comesTo(t, name, roundsGone)
				m.gateways[0].start()
				mcptest.Until(t, "the answer has counted", func() bool {
					_, open = m.open(c.marker(), roundsApproved)
					return open == nil
				})
				c.client = m.at(0, "legacy", &c.client)
				c.call()
			} else if m.gateways[1].start(); !p.approved {
				m.hasSeen(t, name, c, 0)
				c.answer("accept", m.at(1, "legacy", &c.client))
			}
			c.comesTo(t, name, roundsRan)
			m.hasSeen(t, name, c, 1)
		}
	}
	m.over(4)
}

// A server that goes away with a call has it once: the gateway never sends it again, and its client is told so. Whether the
// server has seen it or not, the approval is used up.
func TestKilledServer(t *testing.T) {
	t.Parallel()
	m := newMortals(t)
	for _, era := range eras {
		for _, p := range killedPoints {
			if !p.forwards {
				continue
			}
			name := era + ": " + p.name
			c := m.begin(era, p)
			c.trap.let <- false
			c.comesTo(t, name, roundsAway)
			if era == "modern" {
				c.answer("accept", c.client)
				c.comesTo(t, name+", the same again", roundsRefused)
			}
			c.call()
			if a := c.comesTo(t, name, roundsForm); a.approval == c.form.approval {
				t.Errorf("%s: people are not asked anew", name)
			}
			m.hasSeen(t, name, c, once(p.seen))
		}
	}
}
