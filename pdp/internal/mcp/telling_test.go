package mcp_test

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"policy-service/pdp/internal/logging"
	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/pdptest/mcptest"
)

// above0 leaves what never happened out of counts.
func above0(counts map[string]int64) map[string]int64 {
	maps.DeleteFunc(counts, func(_ string, n int64) bool { return n == 0 })
	return counts
}

// A request that is refused because no decision came is counted by why, and is an event of its own.
func TestThatNoDecisionCameIsToldOf(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		reader, deps := metered()
		s := newSiege(t, camp{deps: deps})
		v := s.visitor(era, nil)
		if got := v.call("look", `{}`); !got.ran() {
			t.Fatal(got)
		}
		if got := above0(countedBy(reader, "policy_service.mcp.undecided", "reason")); len(got) > 0 {
			t.Errorf("%s: %v before anything was wrong", era, got)
		}
		orFail(t, s.pdp.Stop(t.Context()))
		const calls = 3
		for range calls {
			if got := v.call("look", `{}`); got.ran() {
				t.Fatal(got)
			}
		}
		told := above0(countedBy(reader, "policy_service.mcp.undecided", "reason"))
		if fmt.Sprint(told) != fmt.Sprintf("map[unreachable:%d]", calls) {
			t.Errorf("%s: counted %v", era, told)
		}
		const event = `"level":"WARN","msg":"no decision came","reason":"unreachable","method":"tools/call","tool":"rec:look","tenant":"default","code":`
		if got := strings.Count(s.logs.String(), event); got != calls || strings.Contains(s.logs.String(), `"msg":"refused"`) {
			t.Errorf("%s: %d events", era, got)
		}
	}
}

// A call of a tool that is not as it is locked is counted if it is let pass, and no other call is. Its arguments are held against
// no schema; those of another tool are, and what does not fit counts as invalid.
func TestThatWarnLetACallPassIsToldOf(t *testing.T) {
	t.Parallel()
	reader, deps := metered()
	const takes = `"inputSchema":{"type":"object","properties":{"amount":{"type":"integer"}}}}`
	const others = takes + `,{"name":"small",` + takes + `]`
	s := newSiege(t, camp{
		answers: mcptest.Answers{Tools: `[{"name":"pay","description":"new",` + others}, deps: deps,
		change: func(c *mcp.Config) {
			c.Lock = mcp.LockConfig{File: lockOf(t, `[{"name":"pay",`+others), Mode: mcp.LockWarn}
		},
	})
	for _, era := range eras {
		v := s.visitor(era, nil)
		v.call("pay", `{"amount":"text"}`).runs(t, era)
		if got := v.call("small", `{"amount":"text"}`); !got.ran() || !strings.Contains(got.text, `"isError":true`) {
			t.Errorf("%s: %s", era, got)
		}
	}
	if got := fmt.Sprint(callsCounted(reader, "tools/call")); got != "map[answered:2 invalid:2]" {
		t.Errorf("counted %s", got)
	}
	if got := above0(countedBy(reader, "policy_service.mcp.let_pass", "setting")); fmt.Sprint(got) != "map[lock:2]" {
		t.Errorf("counted %v", got)
	}
	if got := strings.Count(s.logs.String(), `lock.mode is warn","tool":"rec:pay","tenant":"default","principal":"`); got != 2 {
		t.Errorf("%d events", got)
	}
}

// A server that is away is one line for all calls of a person, though each error of the network has a port of its own.
func TestServerThatIsAwayFloodsNoLog(t *testing.T) {
	t.Parallel()
	reset := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
		}
	}))
	t.Cleanup(reset.Close)
	s := newSiege(t, camp{change: ofServer(func(u *mcp.UpstreamConfig) { u.URL = reset.URL })})
	told := &kept{}
	log := logging.New(told, logging.Config{})
	s.deps.Logger = log.Logger
	_, s.url = s.beside()
	v := s.visitor("modern", nil)
	for range 3 {
		if got := v.call("look", `{}`); got.ran() {
			t.Fatal(got)
		}
	}
	if got := told.String(); strings.Count(got, "msg=refused") != 1 || !strings.Contains(got, "connection reset") {
		t.Error(got)
	}
	log.Close()
	if got := told.String(); !strings.Contains(got, "repeated=2") {
		t.Error(got)
	}
}

// A line about a request says how it ended, and nothing that the client sent.
func TestAccessLogOfTheGateway(t *testing.T) {
	t.Parallel()
	s := newSiege(t, camp{})
	v := s.visitor("modern", nil)
	v.call("look", `{"SECRET":"SECRET"}`)
	v.ask("SECRET/method", `{"SECRET":1}`)
	for _, header := range []http.Header{{}, {"Authorization": {"Bearer SECRET"}}, {"Accept": {"SECRET"}}} {
		r, err := http.NewRequest(http.MethodPost, s.url+"?SECRET", strings.NewReader(`{"SECRET":1}`))
		orFail(t, err)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		maps.Copy(r.Header, header)
		got, err := http.DefaultClient.Do(r)
		orFail(t, err)
		orFail(t, got.Body.Close())
	}
	var lines []string
	for line := range strings.Lines(s.logs.String()) {
		if strings.Contains(line, `"msg":"request"`) {
			lines = append(lines, regexp.MustCompile(`"time":"[^"]*",|"seconds":[\d.e-]+|"bytes":\d+|"principal":"[^"]+"`).ReplaceAllString(line, "…"))
		}
	}
	const want = `{…"level":"DEBUG+2","msg":"request","method":"tools/call","tool":"rec:look","outcome":"answered","status":200,…,…,"tenant":"default",…}
{…"level":"DEBUG+2","msg":"request","method":"other","tool":"","outcome":"invalid","status":404,…,…,"tenant":"default",…}
{…"level":"DEBUG+2","msg":"request","method":"","tool":"","outcome":"invalid","status":401}
{…"level":"DEBUG+2","msg":"request","method":"","tool":"","outcome":"invalid","status":401}
{…"level":"DEBUG+2","msg":"request","method":"","tool":"","outcome":"invalid","status":406}
`
	if got := strings.Join(lines, ""); got != want || strings.Contains(s.logs.String(), "SECRET") {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
