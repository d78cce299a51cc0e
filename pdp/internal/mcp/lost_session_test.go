package mcp_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"policy-service/pdp/pdptest/mcptest"
)

// A server of the legacy era may lose a session. A call that it may have executed is not sent again, whatever it answers;
// one that it turned away at its door is sent again once, in a session of its own. Then calls go on.
func TestCallsOfLostSessions(t *testing.T) {
	t.Parallel()
	const (
		lost     = `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}`
		named    = `{"jsonrpc":"2.0","id":ID,"error":{"code":-32001,"message":"Session not found"}}`
		ran      = `{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"ran"}]}}`
		twice    = `{"jsonrpc":"2.0","id":ID,"result":{"content":[],"content":[]}}`
		progress = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"it begins"}}`
		question = `{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"sure?","requestedSchema":{"type":"object","properties":{}}}}`
	)
	type answer struct {
		status      int
		type_, text string
		again       bool // it is sent again
	}
	event := func(data string) string { return "data: " + data + "\n\n" }
	var executed atomic.Int64
	var next atomic.Pointer[answer]
	var s *siege
	s = newSiege(t, camp{answers: mcptest.Answers{Eras: []string{"legacy"}, Handle: func(c *mcptest.Call) bool {
		if c.Method != "tools/call" {
			return false
		}
		executed.Add(1)
		odd := next.Swap(nil)
		if odd != nil {
			s.rec.Forget() // also to whoever goes on with its stream
			c.Raw(odd.status, odd.type_, strings.ReplaceAll(odd.text, "ID", string(c.ID)))
		}
		return odd != nil
	}}})
	for name, test := range map[string]answer{
		"404, plain":                       {404, "text/plain", "session not found", true},
		"404, nothing":                     {404, "", "", true},
		"404, in JSON-RPC":                 {404, "application/json", lost, true},
		"404, by the id":                   {404, "application/json", named, true},
		"404, in JSON-RPC, as an event":    {404, "text/event-stream", event(lost), true},
		"404, a result":                    {404, "application/json", ran, false},
		"404, a result, as an event":       {404, "text/event-stream", event(ran), false},
		"404, a result that is ambiguous":  {404, "application/json", twice, false},
		"404, after a message of its log":  {404, "text/event-stream", event(progress) + event(lost), false},
		"404, after a question":            {404, "text/event-stream", event(question) + event(named), false},
		"404, a message of its log":        {404, "application/json", progress, false},
		"404, a stream that ends":          {404, "text/event-stream", event(progress), false},
		"404, an event that is cut":        {404, "text/event-stream", "data: " + ran[:40], false},
		"404, a result that is cut":        {404, "application/json", ran[:40], false},
		"404, a batch":                     {404, "application/json", "[" + ran + "]", false},
		"404, JSON of a proxy":             {404, "application/json", `{"detail":"Not Found"}`, true},
		"404, by no id of anybody":         {404, "application/json", strings.Replace(lost, "null", `"server-error"`, 1), true},
		"400, without a session":           {400, "application/json", strings.Replace(lost, "-32001", "-32000", 1), false},
		"400, another revision, and a log": {400, "text/event-stream", event(progress) + event(strings.Replace(lost, "-32001", "-32022", 1)), false},
		"500, in JSON-RPC":                 {500, "application/json", lost, false},
		"200, in JSON-RPC":                 {200, "application/json", named, false},
		"200, a stream that ends":          {200, "text/event-stream", event(progress), false},
		"200, a stream to go on with":      {200, "text/event-stream", "id: 1\n" + event(progress), false},
	} {
		for _, era := range eras {
			v := s.visitor(era, nil)
			v.call("look", `{}`) // which opens a session, if there is none
			executed.Store(0)
			next.Store(&test)
			got, want := v.call("look", `{}`), int64(1)
			if test.again {
				want = 2
			}
			if n := executed.Load(); n != want || got.ran() != test.again || got.finals != 1 || got.status != http.StatusOK {
				t.Errorf("%s, %s: executed %d times, and its caller was told %s", name, era, n, got)
			}
			if got := v.call("look", `{}`); !got.ran() || executed.Load() != want+1 {
				t.Errorf("%s, %s, the next: executed %d times in all, and its caller was told %s", name, era, executed.Load(), got)
			}
		}
	}
}
