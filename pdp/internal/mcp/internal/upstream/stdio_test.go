package upstream_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"policy-service/pdp/internal/mcp/internal/era"
	"policy-service/pdp/internal/mcp/internal/upstream"
	"policy-service/pdp/internal/rpc"
	"policy-service/pdp/pdptest/mcptest"
	"policy-service/pdp/pdptest/written"
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
	mcptest.Must(t, err)
	t.Cleanup(func() {
		if err := u.Close(); err != nil {
			t.Error(err)
		}
	})
	return child{u, dropped}
}

// patient is for a child that is no silent one.
func patient(o *upstream.CommandOptions) { o.Probe = time.Minute }

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

func TestCommandSendsTheBytes(t *testing.T) {
	s := open(t, newChild(t, "raw"))
	params := "{\"name\":\"line\",\"arguments\":{\r\n\t\"n\" :9007199254740993 , \"f\":1.0e2,\n\"s\":\"a\\u006e\\n\\r\u2028 \\ud83d\\ude00\"}}"
	stream := begin(t, s, upstream.Request{Method: "tools/call", Params: members(params)})
	_, m, err := answer(stream)
	mcptest.Must(t, err)
	encoded, err := text(m)
	mcptest.Must(t, err)
	got, err := base64.StdEncoding.DecodeString(encoded)
	mcptest.Must(t, err)
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
	first := begin(t, s, request("silence", `"progressToken":"a"`))
	defer first.Close()
	var e *upstream.Error
	if _, err := s.Send(t.Context(), request("echo", `"progressToken":"\u0061"`)); !errors.As(err, &e) || !e.NotSent || e.Gone {
		t.Errorf("%v", err)
	}
}

func TestCommandGreeting(t *testing.T) {
	refused := "-"
	for _, c := range []struct {
		kind string
		eras []era.Era
		want string
	}{
		{"raw", nil, "legacy"},
		{"silent", nil, "legacy"},
		{"silent-chatty", nil, "legacy"},
		{"exits", nil, "legacy"},
		{"no-id", nil, "legacy"},
		{"html", nil, "legacy"},
		{"any-result", nil, "legacy"},
		{"talks", nil, "legacy"},
		{"discovers-legacy", nil, "legacy"},
		{"other-modern-and-legacy", nil, "legacy"},
		{"modern", nil, "modern"},
		{"silent-refuses", nil, "modern"},
		{"other-modern", nil, refused},
		{"refuses", nil, refused},
		{"old", nil, refused},
		{"dies", nil, refused},
		{"raw", []era.Era{era.Modern}, refused},
		{"exits", []era.Era{era.Modern}, refused},
		{"exits", []era.Era{era.Legacy}, "legacy"}, // it is not asked
		{"modern", []era.Era{era.Modern}, "modern"},
	} {
		t.Run(fmt.Sprint(c.kind, c.eras), func(t *testing.T) {
			t.Parallel()
			u := newChild(t, c.kind, func(o *upstream.CommandOptions) {
				if o.Eras, o.Probe = c.eras, time.Minute; strings.HasPrefix(c.kind, "silent") {
					o.Probe = time.Second
				}
			})
			for range 2 { // the second time it is known
				s, err := u.Open(t.Context(), upstream.Client{Principal: "alice"})
				if c.want == refused {
					var e *upstream.Error
					if !errors.As(err, &e) {
						t.Fatalf("%v %v", s, err)
					}
					continue
				}
				if err != nil || s.Era().String() != c.want || !strings.Contains(string(s.Server()), `"capabilities"`) {
					t.Fatalf("%v %v", s, err)
				}
				if got, err := textOf(s, "well"); got != "well" {
					t.Errorf("%q %v", got, err)
				}
				s.Close()
			}
		})
	}
}

// A server that refuses what one client says of itself speaks the same era with others as before.
func TestCommandRefusesOneClient(t *testing.T) {
	t.Parallel()
	for method, legacy := range map[string]bool{"server/discover": false, "initialize": true} {
		u := newChild(t, "modern", patient) // which takes initialize, too
		odd := upstream.Client{Principal: "eve", Legacy: legacy, Info: []byte(`{"name":"refuse ` + method + `","version":"1"}`)}
		if s, err := u.Open(t.Context(), odd); err == nil || !strings.Contains(err.Error(), method) {
			t.Errorf("%s: %v %v", method, s, err)
		}
		s, err := u.Open(t.Context(), upstream.Client{Principal: "alice", Legacy: legacy})
		if err != nil || (s.Era() == era.Legacy) != legacy {
			t.Errorf("%s: another client: %v %v", method, s, err)
		}
	}
}

// An operator reads at which step a program gave no answer.
func TestCommandNamesTheSilentStep(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind, step string
		era        era.Era
	}{
		{"mute", "initialize: ", era.Legacy},
		{"silent", "server/discover: ", era.Modern},
	} {
		u := newChild(t, c.kind, func(o *upstream.CommandOptions) { o.Eras, o.Timeout = []era.Era{c.era}, 2*time.Second })
		_, err := u.Open(t.Context(), upstream.Client{Principal: "alice"})
		var e *upstream.Error
		if !errors.As(err, &e) || !strings.HasPrefix(err.Error(), c.step) {
			t.Errorf("%s: %v", c.kind, err)
		}
	}
}

// TestCommandKeepsWhatComesAtOnce has a server ask before anybody can listen.
func TestCommandKeepsWhatComesAtOnce(t *testing.T) {
	var log written.Text
	u := newChild(t, "asks-at-once", patient, func(o *upstream.CommandOptions) { o.Logger = slog.New(slog.NewJSONHandler(&log, nil)) })
	s := open(t, u)
	mcptest.Until(t, "it has asked", func() bool { return strings.Contains(log.String(), "I have asked") })
	listening := listen(t, s)
	if m, err := listening.Next(); err != nil || m.Method != "roots/list" {
		t.Errorf("%v %v", m, err)
	}
	if got := u.dropped.String(); got != "map[]" {
		t.Errorf("dropped %s", got)
	}
}

// TestCommandTellsServersWhoAsks has a server repeat its initialize.
func TestCommandTellsServersWhoAsks(t *testing.T) {
	u := newChild(t, "line-of-initialize")
	s, err := u.Open(t.Context(), upstream.Client{
		Principal:    "alice",
		Token:        "SECRET-TOKEN",
		Info:         []byte(`{"name":"inspector","version":"9"}`),
		Capabilities: []byte(`{"elicitation":{}}`),
	})
	mcptest.Must(t, err)
	got := string(s.Server())
	want := `{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{\"elicitation\":{}},\"clientInfo\":{\"name\":\"inspector\",\"version\":\"9\"}}`
	if !strings.Contains(got, want) || strings.Contains(got, "SECRET") {
		t.Errorf("it was told %s", got)
	}
}

func TestCommandBacksOff(t *testing.T) {
	t.Parallel()
	u := newChild(t, "dies")
	begun := time.Now()
	refused := false
	for range 10 { // after failures it waits 100, 200 and 400 ms, and then it is an error at once
		_, err := u.Open(t.Context(), upstream.Client{Principal: "alice"})
		if err == nil {
			t.Fatal("it was opened")
		}
		if refused = strings.Contains(err.Error(), "lately"); refused {
			break
		}
	}
	if !refused {
		t.Error("it was started each time")
	}
	if took := time.Since(begun); took < 700*time.Millisecond {
		t.Errorf("four failures within %v", took)
	}
	if _, err := u.Open(t.Context(), upstream.Client{Principal: "bob"}); err == nil || strings.Contains(err.Error(), "lately") {
		t.Errorf("another principal: %v", err)
	}
}

// One person cannot have all programs, nor can all together have more than run, and there is room again once one has ended.
func TestCommandSharesProcesses(t *testing.T) {
	u := newChild(t, "raw", func(o *upstream.CommandOptions) { o.Processes, o.PerPerson = 3, 2 })
	open := func(person string, n int) (upstream.Session, error) {
		return u.Open(t.Context(), upstream.Client{Principal: fmt.Sprint(person, " by client ", n), Person: person})
	}
	var e *upstream.Error
	var first upstream.Session
	for _, c := range []struct {
		person      string
		many, share bool
	}{{"mallory", false, false}, {"mallory", false, false}, {"mallory", true, true}, {"bob", false, false}, {"bob", true, false}} {
		s, err := open(c.person, 1)
		if c.many != (errors.As(err, &e) && e.NotSent) || c.share != errors.Is(err, upstream.ErrManyOfPerson) {
			t.Fatalf("%+v: %+v", c, err)
		}
		if first == nil {
			first = s
		}
	}
	first.Close()
	mcptest.Until(t, "there is room again", func() bool {
		_, err := open("mallory", 3)
		return err == nil
	})
	if err := u.Close(); err != nil {
		t.Error(err)
	}
	if _, err := open("carol", 1); !errors.As(err, &e) || !e.Gone {
		t.Errorf("%+v", err)
	}
}

func TestNewCommandRefuses(t *testing.T) {
	for _, o := range []upstream.CommandOptions{
		{},
		{Command: []string{""}},
		{Command: []string{"./server"}},
	} {
		if _, err := upstream.NewCommand(o); err == nil {
			t.Errorf("%q %q is taken", o.Command, o.Env)
		}
	}
}

func TestCommandLooksForThePrograminThePathOfItsEnvironment(t *testing.T) {
	dir := t.TempDir()
	program := self()[0]
	mcptest.Must(t, os.Symlink(program, dir+"/the-server"))
	named := func(path string) func(*upstream.CommandOptions) {
		return func(o *upstream.CommandOptions) {
			o.Command = []string{"the-server", asChild, "raw", "$(exit 1)", "; exit 1", "*"}
			o.Env = map[string]string{"PATH": path}
		}
	}
	open(t, newChild(t, "", named("relative:"+dir)))
	t.Chdir(dir)
	for _, path := range []string{"", ".", "/nowhere"} {
		var e *upstream.Error
		if _, err := newChild(t, "", named(path)).Open(t.Context(), upstream.Client{}); !errors.As(err, &e) || !strings.Contains(err.Error(), "PATH") {
			t.Errorf("PATH %q: %v", path, err)
		}
	}
}
