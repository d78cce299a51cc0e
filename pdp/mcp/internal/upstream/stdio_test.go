package upstream_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"encoding/json"

	"policy-service/pdp/mcp/internal/era"
	"policy-service/pdp/mcp/internal/rpc"
	"policy-service/pdp/mcp/internal/upstream"
)

// child is an upstream that runs this program, with the messages that it dropped.
type child struct {
	upstream.Upstream
	dropped *drops
}

func (d *drops) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return fmt.Sprint(d.count)
}

func (d *drops) get(reason string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.count[reason]
}

// commandOptions are those of a child, without limits that a test would meet.
func commandOptions(kind string) upstream.CommandOptions {
	return upstream.CommandOptions{Command: self(kind), Processes: 256, PerPerson: 256, Options: options("policy-service", "0")}
}

func newChild(t *testing.T, kind string, change ...func(*upstream.CommandOptions)) child {
	t.Helper()
	dropped := &drops{}
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

// request is a call of a tool.
func request(tool, meta string) upstream.Request {
	return upstream.Request{
		Method: "tools/call",
		Params: members(fmt.Sprintf(`{"name":%q,"arguments":{},"_meta":{%s}}`, tool, meta)),
	}
}

// textOf calls a tool, and is the text of its result.
func textOf(s upstream.Session, tool string) (string, error) {
	_, m, err := send(s, request(tool, ""))
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

func TestCommandPrefersTheModernEra(t *testing.T) {
	if s := open(t, newChild(t, "sdk")); s.Era() != era.Modern {
		t.Errorf("era %v", s.Era())
	}
}

func TestCommandSendsTheBytes(t *testing.T) {
	s := open(t, newChild(t, "raw"))
	params := "{\"name\":\"line\",\"arguments\":{\r\n\t\"n\" :9007199254740993 , \"f\":1.0e2,\n\"s\":\"a\\u006e\\n\\r\u2028 \\ud83d\\ude00\"}}"
	stream, err := s.Send(t.Context(), upstream.Request{Method: "tools/call", Params: members(params)})
	if err != nil {
		t.Fatal(err)
	}
	_, m, err := answer(stream)
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
	s := open(t, newChild(t, "raw"))
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
			before, m, err := answer(stream)
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
	s := open(t, newChild(t, "raw"))
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
