package mcp_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/pdptest/clock"
	"policy-service/pdp/pdptest/mcptest"
)

// turncoat is a server that changes its tools and instructions.
type turncoat struct {
	mu           sync.Mutex
	tools        []string
	instructions string
	// only is the one session that sees the changes; "" is all.
	only string
}

// The tools at first.
const (
	alpha = `{"name":"alpha","title":"Alpha","description":"Reads.","inputSchema":{"type":"object","properties":{"marker":{"type":"string"}}},` +
		`"outputSchema":{"type":"object"},"annotations":{"readOnlyHint":true},"authorization":{"required":false},"_meta":{"x":1}}`
	beta = `{"name":"beta","description":"Writes.","inputSchema":{"type":"object"}}`
)

func (s *turncoat) says(instructions string, tools ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.instructions, s.tools = instructions, tools
}

func (s *turncoat) asAtFirst() { s.says("Be kind.", alpha, beta) }

func (s *turncoat) handle(c *mcptest.Call) bool {
	s.mu.Lock()
	tools, instructions := s.tools, s.instructions
	if s.only != "" && c.Header.Get("Mcp-Session-Id") != s.only {
		tools, instructions = []string{alpha, beta}, "Be kind."
	}
	s.mu.Unlock()
	said, _ := json.Marshal(instructions)
	const of = `"capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"t","version":"1"},"instructions":`
	switch {
	case c.Method == "tools/list" && c.Modern:
		c.Result(`{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[` + strings.Join(tools, ",") + `]}`)
	case c.Method == "tools/list":
		c.Result(`{"tools":[` + strings.Join(tools, ",") + `]}`)
	case c.Method == "initialize" && !c.Modern:
		c.Result(`{"protocolVersion":"2025-11-25",` + of + string(said) + `}`)
	case c.Method == "server/discover" && c.Modern:
		c.Result(`{"resultType":"complete","ttlMs":0,"cacheScope":"private","supportedVersions":["2026-07-28"],` + of + string(said) + `}`)
	case c.Method == "tools/call" && strings.Contains(string(c.Params), `"tell"`):
		c.Message(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		c.Result(`{"content":[]}`)
	default:
		return false
	}
	return true
}

// lockedSiege is a gateway before a turncoat, whose tools at first are locked.
type lockedSiege struct {
	*siege
	server *turncoat
	clock  *clock.Clock
	counts *sdkmetric.ManualReader
	file   string
}

func newLockedSiege(t *testing.T, mode mcp.LockMode, upstreamEras ...string) lockedSiege {
	t.Helper()
	l := lockedSiege{server: &turncoat{}, clock: clock.New(), counts: sdkmetric.NewManualReader(), file: filepath.Join(t.TempDir(), "tools.lock.json")}
	l.server.asAtFirst()
	l.siege = newSiege(t, camp{
		answers: mcptest.Answers{Handle: l.server.handle, Eras: upstreamEras}, now: l.clock.Now,
		deps: mcp.Deps{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(l.counts))},
		change: func(c *mcp.Config) {
			found, err := mcp.Survey(t.Context(), *c, mcp.Deps{}, "")
			orFail(t, err)
			orFail(t, found.Write(l.file))
			c.Lock = mcp.LockConfig{File: l.file, Mode: mode}
		},
	})
	return l
}

// later has every listing be too old.
func (l lockedSiege) later() { l.clock.Advance(6 * time.Second) }

// drifted is how much of the one server is counted as not as it is locked, -1 if nothing is counted.
func (l lockedSiege) drifted() int64 { return gaugeIn(l.counts, "policy_service.mcp.drift") }

// tools are those that a visitor is shown, as they are shown.
func (v *visitor) tools() (names []string, text string) {
	v.s.t.Helper()
	got := v.ask("tools/list", `{}`)
	var listed struct {
		Tools []struct {
			Name string `json:"name"`
		} `json:"tools"`
	}
	orFail(v.s.t, json.Unmarshal(got.result, &listed))
	for _, t := range listed.Tools {
		names = append(names, t.Name)
	}
	return names, string(got.result)
}

// driftKinds are the changes that a server may make.
var driftKinds = []struct {
	kind, tool   string // tool is the one in the report
	instructions string // "" are those at first
	tools        []string
	left         string // the tools that are still there if the lock is enforced
	calls        string // the tool that is called
}{
	{"description", "alpha", "", []string{strings.Replace(alpha, "Reads.", "Reads.\u200b", 1), beta}, "beta", "alpha"},
	{"title", "alpha", "", []string{strings.Replace(alpha, `"Alpha"`, `"Omega"`, 1), beta}, "beta", "alpha"},
	{"input_schema", "alpha", "", []string{strings.Replace(alpha, `{"type":"string"}`, `{"type":"string","maxLength":9}`, 1), beta}, "beta", "alpha"},
	{"output_schema", "alpha", "", []string{strings.Replace(alpha, `"outputSchema":{"type":"object"},`, ``, 1), beta}, "beta", "alpha"},
	{"annotations", "alpha", "", []string{strings.Replace(alpha, `"readOnlyHint":true`, `"readOnlyHint":false`, 1), beta}, "beta", "alpha"},
	{"mapping", "beta", "", []string{alpha, strings.Replace(beta, `{"type":"object"}`, `{"type":"object","x-authzen-mapping":{"evaluation":{"action":{"name":"read"},"resource":{"type":"public","id":"1"}}}}`, 1)}, "alpha", "beta"},
	{"authorization", "alpha", "", []string{strings.Replace(alpha, `"required":false`, `"required":true`, 1), beta}, "beta", "alpha"},
	{"other", "alpha", "", []string{strings.Replace(alpha, `"x":1`, `"x":null`, 1), beta}, "beta", "alpha"},
	{"new_tool", "gamma", "", []string{alpha, beta, strings.Replace(beta, "beta", "gamma", 1)}, "alpha beta", "gamma"},
	{"gone_tool", "alpha", "", []string{beta}, "beta", "alpha"},
	{"renamed", "alpha", "", []string{strings.Replace(alpha, `"alpha"`, `"gamma"`, 1), beta}, "beta", "gamma"},
	{"swapped", "alpha", "", []string{strings.Replace(beta, "beta", "alpha", 1), strings.Replace(alpha, `"alpha"`, `"beta"`, 1)}, "", "alpha"},
	{"instructions", "", "Be quick.", []string{alpha, beta}, "alpha beta", ""},
}

// TestDrift has a server change each thing that it says, and change it back.
func TestDrift(t *testing.T) {
	t.Parallel()
	for _, mode := range []mcp.LockMode{mcp.LockEnforce, mcp.LockWarn, mcp.LockOff} {
		for _, era := range eras {
			t.Run(string(mode)+" "+era, func(t *testing.T) {
				t.Parallel()
				s := newLockedSiege(t, mode)
				alice, bob := s.visitor(era, nil), s.visitor(era, mcptest.Claims{"sub": "bob"})
				for _, d := range driftKinds {
					s.server.asAtFirst()
					s.later()
					for _, v := range []*visitor{alice, bob} { // their lists of the locked tools end
						if got, _ := v.tools(); strings.Join(got, " ") != "alpha beta" {
							t.Fatalf("before %s: %q", d.kind, got)
						}
					}
					orFail(t, s.gateway.Ready())
					logged := s.logs.String()
					instructions := d.instructions
					if instructions == "" {
						instructions = "Be kind."
					}
					s.server.says(instructions, d.tools...)
					if d.kind == "instructions" { // which a server says when a session begins
						s.rec.Forget()
						alice, bob = s.visitor(era, mcptest.Claims{"client_id": "other"}), s.visitor(era, mcptest.Claims{"sub": "bob", "client_id": "other"})
					}
					s.later()
					for n, v := range []*visitor{alice, bob} {
						s.drifts(t, mode, v, d.kind, fmt.Sprintf("%s %d", d.kind, n), n)
					}
					if mode == mcp.LockOff {
						continue
					}
					what := "rec: tool " + d.tool + ": " + d.kind
					if d.tool == "" {
						what = "rec: instructions"
					}
					if err := s.gateway.Ready(); err == nil || !strings.Contains(err.Error(), what) {
						t.Errorf("%s: ready is %v", d.kind, err)
					}
					if n := strings.Count(strings.TrimPrefix(s.logs.String(), logged), `"what":"`+what+`"`); n != 1 {
						t.Errorf("%s is logged %d times", d.kind, n)
					}
				}
				s.recorded(t, mode)
			})
		}
	}
}

// drifts checks the view of one of two visitors of a change. One of them lists, the other only calls.
func (l lockedSiege) drifts(t *testing.T, mode mcp.LockMode, v *visitor, kind, marker string, n int) {
	t.Helper()
	d := driftKinds[0]
	for _, one := range driftKinds {
		if one.kind == kind {
			d = one
		}
	}
	var all []string
	for _, tool := range d.tools {
		all = append(all, strings.Split(tool, `"`)[3])
	}
	want := strings.Join(all, " ")
	if mode == mcp.LockEnforce {
		want = d.left
	}
	if n == 0 {
		if got, text := v.tools(); strings.Join(got, " ") != want {
			t.Errorf("%s: listed %s", kind, text)
		}
	}
	if d.calls != "" {
		got, other := v.call(d.calls, `{"marker":"`+marker+`"}`), v.call("nothing", `{}`)
		there := mode != mcp.LockEnforce && strings.Contains(" "+want+" ", " "+d.calls+" ")
		switch {
		case there && !got.ran():
			t.Errorf("%s: called, %s", kind, got)
		case !there && (got.code() != other.code() || got.status != other.status || got.fault.Message != other.fault.Message || string(got.fault.Data) != string(other.fault.Data)):
			t.Errorf("%s: called, %s; one that does not exist, %s", kind, got, other)
		}
		if reached := strings.Contains(strings.Join(l.markers(), "\n"), marker); reached != there {
			t.Errorf("%s: the server got the call: %v", kind, reached)
		}
	}
	if kind == "instructions" {
		method := map[string]string{"legacy": "initialize", "modern": "server/discover"}[v.era]
		said := v.ask(method, `{"protocolVersion":"2025-11-25","clientInfo":{"name":"siege","version":"1"},"capabilities":{}}`, "Mcp-Session-Id", "")
		if got := strings.Contains(said.text, "Be kind."); got != (mode == mcp.LockEnforce) {
			t.Errorf("instructions: %s", said)
		}
		_, _ = v.tools()
	}
	if counted := l.drifted(); (mode == mcp.LockOff) != (counted == -1) || mode != mcp.LockOff && counted == 0 {
		t.Errorf("%s: counted %d", kind, counted)
	}
}

// recorded checks in the decision log whether tools were as they are locked.
func (l lockedSiege) recorded(t *testing.T, mode mcp.LockMode) {
	t.Helper()
	pinned := map[bool]int{}
	for _, line := range l.records() {
		if line.Request.Action.Name != "tool.invoke" || markerOf(line.Request.Context.Arguments) == "" {
			continue
		}
		for _, as := range []bool{true, false} {
			if strings.Contains(line.line, fmt.Sprintf(`"pinned":%v`, as)) {
				pinned[as]++
			}
		}
	}
	want := map[bool]int{}
	if mode == mcp.LockWarn { // two calls of each kind, but of the tool that is gone and for instructions
		want[false] = 2 * (len(driftKinds) - 2)
	}
	if pinned[true] != want[true] || pinned[false] != want[false] {
		t.Errorf("pinned on record: %v", pinned)
	}
}

// changedAlpha is a definition that was not accepted.
var changedAlpha = strings.Replace(alpha, "Reads.", "Reads all.", 1)

// A change that a server shows to one client alone is noticed with that client alone, and ends when that client sees it mended.
func TestDriftForOnePrincipal(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		s := newLockedSiege(t, mcp.LockEnforce, "legacy")
		alice := s.visitor(era, nil)
		_, _ = alice.tools()
		of := s.rec.Got()
		s.server.mu.Lock()
		s.server.only = of[len(of)-1].Header.Get("Mcp-Session-Id")
		s.server.mu.Unlock()
		s.server.says("Be kind.", changedAlpha, beta)
		s.later()
		if got := alice.call("alpha", `{"marker":"alice"}`); got.code() != -32602 {
			t.Errorf("%s: who is shown another definition: %s", era, got)
		}
		for _, wait := range []time.Duration{0, 59 * time.Minute} {
			s.clock.Advance(wait)
			bob := s.visitor(era, mcptest.Claims{"sub": "bob"}) // whose token lasts
			if got := bob.call("alpha", `{"marker":"bob"}`); !got.ran() {
				t.Errorf("%s: who is not: %s", era, got)
			}
			if err := s.gateway.Ready(); err == nil || s.drifted() != 1 {
				t.Errorf("%s, %v later: ready is %v, counted %d", era, wait, err, s.drifted())
			}
		}
		s.clock.Advance(2 * time.Minute) // an hour after alice's list
		if err := s.gateway.Ready(); err != nil || s.drifted() != 0 {
			t.Errorf("%s: nobody has seen it for an hour: ready is %v", era, err)
		}
		alice = s.visitor(era, nil)
		s.server.mu.Lock()
		s.server.only = ""
		s.server.mu.Unlock()
		if got := alice.call("alpha", `{}`); got.code() != -32602 {
			t.Errorf("%s: %s", era, got)
		}
		if err := s.gateway.Ready(); err == nil {
			t.Errorf("%s: it is there again, and not told", era)
		}
		s.server.asAtFirst()
		s.later()
		if got := alice.call("alpha", `{}`); !got.ran() || s.gateway.Ready() != nil {
			t.Errorf("%s: it is mended: %s, ready is %v", era, got, s.gateway.Ready())
		}
	}
}

// A listing is believed for five seconds, or until the server says that it has changed.
func TestDriftBetweenListAndCall(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		for _, upstream := range eras {
			s := newLockedSiege(t, mcp.LockEnforce, upstream)
			v := s.visitor(era, nil)
			if got, _ := v.tools(); len(got) != 2 {
				t.Fatal(got)
			}
			s.server.says("Be kind.", changedAlpha, beta)
			if got := v.call("alpha", `{"marker":"seen"}`); !got.ran() { // as it was listed
				t.Error(got)
			}
			if got := v.call("beta", `{"tell":true}`); !got.ran() {
				t.Error(got)
			}
			if got := v.call("alpha", `{"marker":"unseen"}`); got.code() != -32602 || got.fault.Message != v.call("none", "{}").fault.Message {
				t.Errorf("%s, %s: the server has said that its tools are changed: %s", era, upstream, got)
			}
			s.server.asAtFirst()
			s.later()
			_, _ = v.tools()
			s.server.says("Be kind.", changedAlpha, beta)
			s.later()
			if got := v.call("alpha", `{"marker":"unseen"}`); got.code() != -32602 {
				t.Errorf("%s, %s: it was listed too long ago: %s", era, upstream, got)
			}
			if got := strings.Join(s.markers(), " "); got != " seen" {
				t.Errorf("the server got %q", got)
			}
		}
	}
}

// A server that is another each time it is asked fills neither the log nor the memory.
func TestDriftIsBounded(t *testing.T) {
	t.Parallel()
	s := newLockedSiege(t, mcp.LockEnforce)
	v := s.visitor("modern", nil)
	for n := range 100 {
		s.server.says("Be kind.", strings.Replace(alpha, "Reads.", fmt.Sprintf("Reads %d.", n), 1), beta,
			strings.Replace(beta, "beta", fmt.Sprintf("x\u202e%d%s", n, strings.Repeat("y", 300)), 1))
		s.later()
		if got, _ := v.tools(); len(got) != 1 {
			t.Fatal(got)
		}
	}
	if n := strings.Count(s.logs.String(), `"a server is not as it is locked"`); n != 33 {
		t.Errorf("it is logged %d times", n)
	}
	if err := s.gateway.Ready(); err == nil || !strings.Contains(err.Error(), "rec: more") || len(err.Error()) > 4<<10 {
		t.Errorf("ready is %v", err)
	}
	s.server.says("Be kind.", strings.Replace(alpha, "Reads.", "Reads 1.", 1), beta, strings.Replace(beta, "beta", "x\u202e1", 1))
	s.later()
	_, _ = v.tools()
	if err := s.gateway.Ready(); err == nil || strings.Contains(err.Error(), "\u202e") {
		t.Errorf("ready is %v", err)
	}
	s.server.asAtFirst()
	s.later()
	if _, _ = v.tools(); s.gateway.Ready() != nil || s.drifted() != 0 {
		t.Errorf("it is mended, and ready is %v", s.gateway.Ready())
	}
	before := len(s.logs.String())
	for range 10 { // a drift that comes back is not logged again
		s.server.says("Be kind.", strings.Replace(alpha, "Reads.", "Reads 1.", 1), beta)
		s.later()
		_, _ = v.tools()
		s.server.asAtFirst()
		s.later()
		_, _ = v.tools()
	}
	if strings.Contains(s.logs.String()[before:], "locked") {
		t.Error("a finding is told again")
	}
}
