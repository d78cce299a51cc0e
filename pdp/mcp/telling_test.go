package mcp_test

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"testing"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
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
		reader := sdkmetric.NewManualReader()
		s := newSiege(t, camp{deps: mcp.Deps{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))}})
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

// A call of a tool that is not as it is locked is counted if it is let pass, and no other call is.
func TestThatWarnLetACallPassIsToldOf(t *testing.T) {
	t.Parallel()
	reader := sdkmetric.NewManualReader()
	changed := `[{"name":"pay","description":"new","inputSchema":{"type":"object"}},{"name":"small","inputSchema":` + misfitSchema + `}]`
	s := newSiege(t, camp{
		answers: mcptest.Answers{Tools: changed}, deps: mcp.Deps{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))},
		change: func(c *mcp.Config) { c.Lock = mcp.LockConfig{File: misfitLock(t, misfitTools()), Mode: mcp.LockWarn} },
	})
	for _, era := range eras {
		v := s.visitor(era, nil)
		v.call("pay", `{}`)
		v.call("small", `{}`)
	}
	if got := above0(countedBy(reader, "policy_service.mcp.let_pass", "setting")); fmt.Sprint(got) != "map[lock:2]" {
		t.Errorf("counted %v", got)
	}
	if got := strings.Count(s.logs.String(), `lock.mode is warn","tool":"rec:pay","tenant":"default","principal":"`); got != 2 {
		t.Errorf("%d events", got)
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
