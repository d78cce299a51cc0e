package mcp_test

import (
	"context"
	"crypto/rand"
	"net/http"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/server/config"
)

// masksLook takes something out of the results of look, and of nothing else.
var masksLook = map[string]string{
	"a.cedar": `@id("all") permit (principal, action, resource) unless { action == Action::"tool.invoke" && resource == tool::"rec:look" };
		@id("mask") @obligation("mask") permit (principal, action == Action::"tool.invoke", resource == tool::"rec:look");`,
	"obligations.yaml": "mask: {type: redact, properties: {fields: [/ssn]}}\n",
}

// What a server writes to its log behind an answer from which something was taken out may be just that: nothing says that it
// is of the next request, in whose course it comes.
func TestLogBehindARedactedAnswer(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t-123-45"
	for _, program := range []bool{false, true} {
		s := newSiege(t, camp{policies: masksLook, program: program, answers: mcptest.Answers{Eras: []string{"legacy"}, Handle: func(c *mcptest.Call) bool {
			if c.Method == "tools/call" && strings.Contains(string(c.Params), `"change"`) {
				c.Message(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"looked at ` + secret + `"}}`)
			}
			return false
		}}})
		v := s.visitor("legacy", nil)
		for _, tool := range []string{"look", "change"} {
			if got := v.call(tool, `{}`); got.fault != nil || strings.Contains(got.text, secret) {
				t.Errorf("program %t, %s: %s", program, tool, got)
			}
		}
	}
}

// That something has changed is said in no words of the server's while something is to be taken out of its results.
func TestChangesWithoutWords(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t-123-45"
	s := newSiege(t, camp{policies: masksLook, answers: mcptest.Answers{Eras: []string{"legacy"}, Handle: func(c *mcptest.Call) bool {
		if c.Method == "tools/call" {
			c.Message(`{"jsonrpc":"2.0","method":"notifications/` + secret + `/list_changed"}`)
			c.Message(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"mem://notes","title":"` + secret + `","_meta":{"a":"` + secret + `"}}}`)
			c.Message(`{"jsonrpc":"2.0","method":"notifications/prompts/list_changed","params":{"why":"` + secret + `"}}`)
		}
		return false
	}}})
	v := s.visitor("legacy", nil)
	stream := v.stream("")
	if got := v.call("look", `{}`); got.fault != nil {
		t.Fatal(got)
	}
	var heard strings.Builder
	for !strings.Contains(heard.String(), "prompts/list_changed") && stream.lines.Scan() {
		heard.WriteString(stream.lines.Text())
	}
	stream.end()
	if got := heard.String(); strings.Contains(got, secret) || !strings.Contains(got, `"uri":"mem://notes"`) {
		t.Errorf("the client hears %s", got)
	}
}

// TestNotificationsAreNoBackDoor: what a client says without an answer reaches no server that no policy decided about.
func TestNotificationsAreNoBackDoor(t *testing.T) {
	t.Parallel()
	const policies = `@id("all") permit (principal, action, resource) unless {action == Action::"note" && context.text != "fine"};`
	s := newSiege(t, camp{policies: map[string]string{"a.cedar": policies}, answers: mcptest.Answers{Eras: []string{"legacy"}}, change: func(c *mcp.Config) {
		server := c.Upstreams["rec"]
		server.ServerRequests.Roots = mcp.RelayOn
		c.Upstreams["rec"] = server
		c.Mappings = map[string]config.Object{"notifications/mapped": config.Object(`{"evaluation":{"subject":{"type":"user","id":"$token.sub"},"action":{"name":"note"},"resource":{"type":"mcp_server","id":"$server.name"},"context":{"text":"$params.text"}}}`)}
	}})
	v := s.visitor("legacy", nil)
	if got := v.call("look", `{}`); !got.ran() {
		t.Fatal(got)
	}
	for _, note := range []string{
		`"notifications/tools/list_changed","params":{"x":"needle"}`, `"notifications/custom","params":{"x":"needle"}`, `"tools/call","params":{"name":"change","arguments":{"x":"needle"}}`,
		`"notifications/cancelled","params":{"requestId":99,"reason":"needle"}`, `"notifications/progress","params":{"progressToken":"needle","progress":1,"message":"needle"}`,
		`"notifications/roots/list_changed","params":{"x":"needle","_meta":{"x":"needle"}}`, `"notifications/initialized","params":{"x":"needle"}`,
		`"notifications/mapped","params":{"text":"needle"}`, `"notifications/mapped","params":{"text":"fine"}`,
	} {
		if got := v.send(`{"jsonrpc":"2.0","method":`+note+`}`, v.headers("", "")...); got.status != http.StatusAccepted && got.status != http.StatusBadRequest {
			t.Errorf("%s: %s", note, got)
		}
	}
	if where := s.rec.Saw("needle"); where != "" {
		t.Errorf("the server has it in %s", where)
	}
	for _, wanted := range []string{`"notifications/roots/list_changed"`, `"text":"fine"`} {
		if s.rec.Saw(wanted) == "" {
			t.Errorf("the server has no %s", wanted)
		}
	}
}

// A notification is handed on without a decision, but nothing is opened for it: a person who may do nothing any longer has
// no session with the server begun by one.
func TestNotificationsOpenNothing(t *testing.T) {
	t.Parallel()
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	file := secretFile(t, string(key))
	sealed := func(c *mcp.Config) { c.Seal.KeyFiles = []string{file} }
	before, after := mcptest.NewRecorder(t, mcptest.Answers{Eras: []string{"legacy"}}), mcptest.NewRecorder(t, mcptest.Answers{Eras: []string{"legacy"}})
	at, _ := through(t, passage{name: "up", upstream: before.URL, change: sealed})
	session := legacySession(t, at)
	nothing := pdptest.Bundle(map[string]string{"a.cedar": `forbid (principal, action, resource);`, "bundle.yaml": "allow_trivial: true\n"})
	session.at, _ = through(t, passage{name: "up", upstream: after.URL, change: sealed, bundle: &nothing})
	answer := session.do(t, http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/roots/list_changed","params":{}}`)
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusAccepted {
		t.Errorf("the notification: %s", answer.Status)
	}
	if got := after.Got(); len(got) > 0 {
		t.Errorf("the server got %d messages, the first is %s", len(got), got[0].Method)
	}
}

// A gateway that is closed has on record what became of the calls that were under way: it does not end before.
func TestClosedIsOnRecord(t *testing.T) {
	t.Parallel()
	come := make(chan struct{})
	s := newSiege(t, camp{policies: masksLook, answers: mcptest.Answers{Handle: func(c *mcptest.Call) bool {
		if c.Method != "tools/call" {
			return false
		}
		come <- struct{}{}
		<-c.Context.Done()
		return true
	}}})
	const calls = 8
	answered := make(chan echo, calls)
	for range calls {
		v := s.stranger("modern", s.issuer.Token(t, nil))
		go func() {
			got, _ := v.try(t.Context(), http.MethodPost, v.text("tools/call", `{"name":"look","arguments":{}}`), v.headers("tools/call", `{"name":"look"}`)...)
			answered <- got
		}()
	}
	for range calls {
		<-come
	}
	orFail(t, s.gateway.Close())
	receipts := 0
	for _, line := range s.records() {
		if line.Kind == "receipt" {
			receipts++
		}
	}
	if receipts != calls {
		t.Errorf("of %d calls %d are on record", calls, receipts)
	}
	for range calls {
		if got := <-answered; got.code() != -32603 {
			t.Error(got)
		}
	}
	if got := s.stranger("modern", s.issuer.Token(t, nil)).call("look", `{}`); got.ran() {
		t.Errorf("behind the end: %s", got)
	}
}

// besideTraces has spans that panic when they are told how a call went.
type besideTraces struct{ noop.TracerProvider }

type besideTracer struct{ noop.Tracer }

type besideSpan struct{ noop.Span }

func (besideTraces) Tracer(string, ...trace.TracerOption) trace.Tracer { return besideTracer{} }

func (besideTracer) Start(ctx context.Context, name string, _ ...trace.SpanStartOption) (context.Context, trace.Span) {
	if name == "mcp tools/call" {
		return ctx, besideSpan{}
	}
	return ctx, noop.Span{}
}

func (besideSpan) IsRecording() bool { return true }

func (besideSpan) SetAttributes(...attribute.KeyValue) { panic(http.ErrAbortHandler) }

// A request that panics before its answer leaves has on record what became of what it owed.
func TestAPanicIsOnRecord(t *testing.T) {
	t.Parallel()
	s := newSiege(t, camp{policies: masksLook, deps: mcp.Deps{TracerProvider: besideTraces{}}})
	v := s.stranger("modern", s.issuer.Token(t, nil))
	if got, err := v.try(t.Context(), http.MethodPost, v.text("tools/call", `{"name":"look","arguments":{}}`), v.headers("tools/call", `{"name":"look"}`)...); err == nil {
		t.Fatalf("nobody has panicked: %v", got)
	}
	if !slices.ContainsFunc(s.records(), func(l record) bool { return l.Kind == "receipt" }) {
		t.Error("what became of the call is not on record")
	}
}

// TestNoLogLevelThatPolicyRefuses: what a client of the modern era wants of a log, with a call, is asked about as a legacy
// client's own message is.
func TestNoLogLevelThatPolicyRefuses(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]bool{
		`@id("all") permit (principal, action, resource);`:                                                 true,
		`@id("all") permit (principal, action, resource) unless { action == Action::"logging/setLevel" };`: false,
	} {
		s := newSiege(t, camp{policies: map[string]string{"a.cedar": policy}, answers: mcptest.Answers{Eras: []string{"legacy"}}})
		v := s.visitor("modern", nil)
		v.meta = `,"io.modelcontextprotocol/logLevel":"debug"`
		if got := v.call("look", `{}`); !got.ran() {
			t.Error(got)
		}
		if got := s.rec.Saw(`"logging/setLevel"`) != ""; got != want {
			t.Errorf("%s: the server is told a level: %t", policy, got)
		}
	}
}
