package mcp_test

import (
	"net/http"
	"strings"
	"testing"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
)

// D37, D39, D40: whatever a server answers, its client gets one answer to its own request, in the gateway's own words
// between messages. ID in an answer is the id of the request. TestAnswers of upstream has more of them.
func TestAnswersOfServers(t *testing.T) {
	t.Parallel()
	const fine = `{"jsonrpc":"2.0","id":ID,"result":{"resultType":"complete","content":[{"type":"text","text":"fine"}]}}`
	event := func(data string) string { return "event: message\ndata: " + data + "\n\n" }
	for name, test := range map[string]struct {
		status     int
		type_      string
		text       string
		code       int // 0 is that the fine answer leaves
		wantBefore int
		dropped    string // why something is, each time
	}{
		"fine":                  {200, "application/json", fine, 0, 0, ""},
		"another id":            {200, "application/json", strings.Replace(fine, "ID", "424242", 1), -32603, 0, "foreign_id"},
		"a result twice":        {200, "application/json", strings.Replace(fine, `"result"`, `"result":{"content":[]},"result"`, 1), -32603, 0, ""},
		"content twice":         {200, "application/json", strings.Replace(fine, `"content"`, `"content":[],"content"`, 1), -32603, 0, "unreadable"},
		"a status of 500":       {500, "application/json", fine, -32603, 0, ""},
		"a task":                {200, "application/json", `{"jsonrpc":"2.0","id":ID,"result":{"resultType":"task","task":{"taskId":"1","status":"working"}}}`, -32603, 0, ""},
		"too large":             {200, "application/json", strings.Replace(fine, "fine", strings.Repeat("x", 80<<10), 1), -32603, 0, ""},
		"two events":            {200, "text/event-stream", event(fine) + event(strings.Replace(fine, "fine", "later", 1)), 0, 0, "after_response"},
		"another, then its own": {200, "text/event-stream", event(strings.Replace(fine, "ID", "99", 1)) + event(fine), 0, 0, "foreign_id"},
		"progress of another":   {200, "text/event-stream", event(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p999","progress":1}}`) + event(fine), 0, 0, "progress of another request"},
		"a stream of nothing":   {200, "text/event-stream", ": hello\n\n", -32603, 0, ""},
		"split":                 {200, "application/json", strings.Replace(fine, "fine", `fine\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{}}\n\n\r\r`+"\u2028\u2029", 1), 0, 0, ""},
		"between tokens":        {200, "application/json", strings.Replace(fine, `,"result"`, "\r\n\r\n,\n\n\"result\"", 1), 0, 0, ""},
	} {
		counts := sdkmetric.NewManualReader()
		s := newSiege(t, camp{
			deps: mcp.Deps{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(counts))},
			answers: mcptest.Answers{Handle: func(c *mcptest.Call) bool {
				if c.Method != "tools/call" {
					return false
				}
				c.Raw(test.status, test.type_, strings.ReplaceAll(test.text, "ID", string(c.ID)))
				return true
			}},
			change: ofServer(func(u *mcp.UpstreamConfig) { u.MaxResult = 64 << 10 }),
		})
		for _, era := range eras {
			v := s.visitor(era, nil)
			for _, accept := range []string{"application/json, text/event-stream", "text/event-stream, application/json"} {
				got := v.call("look", `{}`, "Accept", accept)
				if got.code() != test.code || got.ran() != (test.code == 0) || got.finals != 1 || len(got.before) != test.wantBefore || got.status != http.StatusOK {
					t.Errorf("%s, %s, %s: %d answers, %s", name, era, accept, got.finals, got)
				}
				if test.code == 0 && !strings.Contains(string(got.result), "fine") || strings.Contains(got.text, "later") {
					t.Errorf("%s, %s: %s", name, era, got)
				}
			}
		}
		if test.dropped != "" { // what comes after the response is read when the client has it
			mcptest.Until(t, name+" is counted", func() bool { return droppedBy(t, counts)[test.dropped] == 4 })
		}
	}
}

// D40: a list is filtered whatever it comes as, or it is an error.
func TestListsInDisguise(t *testing.T) {
	t.Parallel()
	const list = `{"jsonrpc":"2.0","id":ID,"result":{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":` + siegeTools + `}}`
	for name, test := range map[string]struct {
		status      int
		type_, text string
	}{
		"Application/JSON": {200, "Application/JSON", list},
		"201":              {201, "application/json", list},
		"text/plain":       {200, "text/plain", list},
		"no type":          {200, "", list},
		"in an event":      {200, "text/event-stream", "event: other\ndata: " + list + "\n\n"},
		"in two events":    {200, "text/event-stream", "data: " + strings.Replace(list, "ID", "1234", 1) + "\n\ndata: " + list + "\n\n"},
		"in another case":  {200, "application/json", strings.Replace(list, `"tools"`, `"Tools"`, 1)},
		"twice":            {200, "application/json", strings.Replace(list, `"tools"`, `"tools":[],"tools"`, 1)},
		"beside":           {200, "application/json", strings.Replace(list, `"tools"`, `"TOOLS":`+siegeTools+`,"tools"`, 1)},
	} {
		s := newSiege(t, camp{
			policies: map[string]string{"a.cedar": `permit(principal, action, resource); forbid(principal, action == Action::"tool.invoke", resource == tool::"rec:change");`},
			answers: mcptest.Answers{Handle: func(c *mcptest.Call) bool {
				if c.Method != "tools/list" {
					return false
				}
				c.Raw(test.status, test.type_, strings.ReplaceAll(test.text, "ID", string(c.ID)))
				return true
			}},
		})
		for _, era := range eras {
			got := s.visitor(era, nil).ask("tools/list", `{}`)
			if strings.Contains(got.text, `"change"`) || got.fault == nil && !strings.Contains(got.text, `"look"`) {
				t.Errorf("%s, %s: %s", name, era, got)
			}
		}
	}
}
