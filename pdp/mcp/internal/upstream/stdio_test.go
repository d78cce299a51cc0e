package upstream_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"encoding/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/upstream"
	"policy-service/pdp/mcp/mcptest"
)

// child is an upstream that runs this program, with what it dropped.
type child struct {
	upstream.Upstream
	dropped *counts
}

type counts struct {
	mu sync.Mutex
	of map[string]int
}

func (c *counts) add(reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[reason]++
}

func (c *counts) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprint(c.of)
}

func (c *counts) get(reason string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[reason]
}

// commandOptions are those of a child, without limits that a test would meet.
func commandOptions(kind string) upstream.CommandOptions {
	return upstream.CommandOptions{Command: self(kind), Processes: 256, PerPerson: 256, Options: options("policy-service", "0")}
}

func newChild(t *testing.T, kind string, change ...func(*upstream.CommandOptions)) child {
	t.Helper()
	dropped := &counts{of: map[string]int{}}
	o := commandOptions(kind)
	o.Env, o.Stop, o.Dropped = quick, 10*time.Second, dropped.add
	for _, c := range change {
		c(&o)
	}
	u, err := upstream.NewCommand(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := u.Close(); err != nil {
			t.Error(err)
		}
	})
	return child{u, dropped}
}

func openChild(t *testing.T, u upstream.Upstream) upstream.Session {
	t.Helper()
	s, err := u.Open(t.Context(), upstream.Client{Principal: "alice"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// request is a call of a tool.
func request(tool, meta string) upstream.Request {
	return upstream.Request{
		Method: "tools/call",
		Params: members(fmt.Sprintf(`{"name":%q,"arguments":{},"_meta":{%s}}`, tool, meta)),
	}
}

// finish reads a stream to its end: what came before the response, and that.
func finish(stream upstream.Stream) (before []rpc.Message, response rpc.Message, err error) {
	for {
		m, err := stream.Next()
		switch {
		case errors.Is(err, io.EOF):
			return before, response, nil
		case err != nil:
			return before, response, err
		case m.IsResponse():
			response = m
		default:
			before = append(before, m)
		}
	}
}

// textOf calls a tool, and is the text of its result.
func textOf(s upstream.Session, tool string) (string, error) {
	stream, err := s.Send(context.Background(), request(tool, ""))
	if err != nil {
		return "", err
	}
	defer stream.Close()
	_, m, err := finish(stream)
	if err != nil {
		return "", err
	}
	return text(m)
}

func text(m rpc.Message) (string, error) {
	var result struct{ Content []struct{ Text string } }
	if err := json.Unmarshal(m.Result, &result); err != nil || len(result.Content) != 1 {
		return "", fmt.Errorf("result %s, error %s: %w", m.Result, m.Error, err)
	}
	return result.Content[0].Text, nil
}

// modernMeta is what a request of the modern era says of itself.
const modernMeta = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}`

func TestCommandSpeaksBothErasWithTheSDK(t *testing.T) {
	for _, e := range []era.Era{era.Legacy, era.Modern} {
		t.Run(e.String(), func(t *testing.T) {
			u := newChild(t, "sdk", func(o *upstream.CommandOptions) { o.Eras = []era.Era{e} })
			s := openChild(t, u)
			if s.Era() != e || !bytes.Contains(s.Server(), []byte("capabilities")) {
				t.Fatalf("era %v, server %s", s.Era(), s.Server())
			}
			meta := `"progressToken":"p1"`
			if e == era.Modern {
				meta += "," + modernMeta
			}
			stream, err := s.Send(t.Context(), upstream.Request{
				Method: "tools/call",
				Params: members(`{"name":"echo","arguments":{"text":"hello"},"_meta":{` + meta + `}}`),
			})
			if err != nil {
				t.Fatal(err)
			}
			before, m, err := finish(stream)
			if err != nil || !m.ID.IsZero() || !bytes.Contains(m.Result, []byte(`"structuredContent":{"text":"hello"}`)) {
				t.Fatalf("%s %s %v", m.Result, m.Error, err)
			}
			if len(before) != 1 || before[0].Method != "notifications/progress" {
				t.Errorf("before the response: %v", before)
			}
			if got := u.dropped.String(); got != "map[]" {
				t.Errorf("dropped %s", got)
			}
		})
	}
}

func TestCommandPrefersTheModernEra(t *testing.T) {
	if s := openChild(t, newChild(t, "sdk")); s.Era() != era.Modern {
		t.Errorf("era %v", s.Era())
	}
}

// TestCommandTellsTheSDKThatNobodyWaits gives a call up.
func TestCommandTellsTheSDKThatNobodyWaits(t *testing.T) {
	for _, e := range []era.Era{era.Legacy, era.Modern} {
		var log syncBuffer
		u := newChild(t, "sdk", func(o *upstream.CommandOptions) {
			o.Eras, o.Logger = []era.Era{e}, slog.New(slog.NewJSONHandler(&log, nil))
		})
		s := openChild(t, u)
		call, err := s.Send(t.Context(), sdkCall(e, "wait"))
		if err != nil {
			t.Fatal(err)
		}
		mcptest.Until(t, "the call waits", func() bool { return strings.Contains(log.String(), "I wait") })
		call.Close()
		mcptest.Until(t, "the server was told", func() bool { return strings.Contains(log.String(), "I was told to stop") })
		if s.Close(); !strings.Contains(fmt.Sprint(call.Next()), "given up") {
			t.Error(call.Next())
		}
	}
}

func sdkCall(e era.Era, tool string) upstream.Request {
	meta := ""
	if e == era.Modern {
		meta = modernMeta
	}
	return upstream.Request{
		Method: "tools/call",
		Params: members(fmt.Sprintf(`{"name":%q,"arguments":{"text":""},"_meta":{%s}}`, tool, meta)),
	}
}

// TestCommandRelaysQuestionsOfTheSDK has a server of the SDK ask the client.
func TestCommandRelaysQuestionsOfTheSDK(t *testing.T) {
	u := newChild(t, "sdk", func(o *upstream.CommandOptions) { o.Eras = []era.Era{era.Legacy} })
	s, err := u.Open(t.Context(), upstream.Client{Principal: "alice", Capabilities: jsontext.Value(`{"elicitation":{}}`)})
	if err != nil {
		t.Fatal(err)
	}
	call, err := s.Send(t.Context(), sdkCall(era.Legacy, "ask"))
	if err != nil {
		t.Fatal(err)
	}
	defer call.Close()
	question, err := call.Next()
	if err != nil || question.Method != "elicitation/create" {
		t.Fatalf("%v %v", question, err)
	}
	if err := s.Notify(t.Context(), rpc.Answer(question.ID, jsontext.Value(`{"action":"decline"}`))); err != nil {
		t.Fatal(err)
	}
	if _, m, err := finish(call); err != nil || !bytes.Contains(m.Result, []byte(`"structuredContent":{"text":"decline"}`)) {
		t.Errorf("%s %s %v", m.Result, m.Error, err)
	}
}

func TestCommandSubscribes(t *testing.T) {
	u := newChild(t, "sdk")
	s := openChild(t, u)
	subscription, err := s.Send(t.Context(), upstream.Request{
		Method: "subscriptions/listen",
		Params: members(`{"notifications":{"toolsListChanged":true},"_meta":{` + modernMeta + `}}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := subscription.Next(); err != nil || m.Method != "notifications/subscriptions/acknowledged" {
		t.Fatalf("%v %v", m, err)
	}
	call, err := s.Send(t.Context(), upstream.Request{
		Method: "tools/call",
		Params: members(`{"name":"grow","arguments":{"text":""},"_meta":{` + modernMeta + `}}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	if before, _, err := finish(call); err != nil || len(before) > 0 {
		t.Errorf("%v %v", before, err)
	}
	if m, err := subscription.Next(); err != nil || m.Method != "notifications/tools/list_changed" {
		t.Errorf("%v %v", m, err)
	}
	subscription.Close()
	if _, err := subscription.Next(); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("after it was given up: %v", err)
	}
	listening, err := s.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := listening.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("listening in the modern era: %v", err)
	}
}

func TestCommandSendsTheBytes(t *testing.T) {
	s := openChild(t, newChild(t, "raw"))
	params := "{\"name\":\"line\",\"arguments\":{\r\n\t\"n\" :9007199254740993 , \"f\":1.0e2,\n\"s\":\"a\\u006e\\n\\r\u2028 \\ud83d\\ude00\"}}"
	stream, err := s.Send(t.Context(), upstream.Request{Method: "tools/call", Params: members(params)})
	if err != nil {
		t.Fatal(err)
	}
	_, m, err := finish(stream)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := text(m)
	if err != nil {
		t.Fatal(err)
	}
	got, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.NewReplacer("\r", " ", "\n", " ").Replace(params)
	if _, sent, _ := strings.Cut(string(got), `"params":`); sent != want+"}\n" {
		t.Errorf("arrived %q\nwant    %q", sent, want)
	}
}

func TestCommandKeepsManyCallsApart(t *testing.T) {
	s := openChild(t, newChild(t, "raw"))
	var calls sync.WaitGroup
	for n := range 50 {
		calls.Go(func() {
			token := fmt.Sprintf(`"t%d"`, n)
			stream, err := s.Send(t.Context(), request("progress", `"progressToken":`+token))
			if err != nil {
				t.Error(err)
				return
			}
			defer stream.Close()
			before, m, err := finish(stream)
			if err != nil {
				t.Error(err)
				return
			}
			if got, err := text(m); err != nil || got != token || len(before) != 3 {
				t.Errorf("%s: answer %s, %d before, %v", token, got, len(before), err)
			}
			for _, p := range before {
				if !bytes.Contains(p.Params, []byte(token)) {
					t.Errorf("%s got %s", token, p.Params)
				}
			}
		})
	}
	calls.Wait()
}

func TestCommandRefusesTwoCallsWithOneToken(t *testing.T) {
	s := openChild(t, newChild(t, "raw"))
	first, err := s.Send(t.Context(), request("silence", `"progressToken":"a"`))
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	var e *upstream.Error
	if _, err = s.Send(t.Context(), request("echo", `"progressToken":"\u0061"`)); !errors.As(err, &e) || !e.NotSent || e.Gone {
		t.Errorf("%v", err)
	}
}
