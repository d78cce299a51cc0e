package mcp_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/pdptest/mcptest"
)

// manyTools are the definitions of n tools.
func manyTools(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("tool-%d", i)
	}
	return definitions(names...)
}

// items counts the questions in the messages to the PDP since the last call.
func (a *explainPDP) items() (n int) {
	for _, one := range a.take() {
		if path, body, _ := strings.Cut(one, " "); strings.HasSuffix(path, "/evaluations") {
			n += strings.Count(body, `"resource":`) + strings.Count(body, `"action":`) // of which each item differs in one at least
		} else {
			n++
		}
	}
	return n
}

// The server gets no more messages than limits.rate lets a person send, whatever the person's messages cause: each client id begins
// at once, in each way. Without that charge one listen with 64 resources is 128 messages.
func TestServerGetsNoMoreThanAPersonMaySend(t *testing.T) {
	t.Parallel()
	var uris []string
	for n := range 64 {
		uris = append(uris, fmt.Sprintf(`"mem://notes/%d"`, n))
	}
	wants := `{"notifications":{"resourceSubscriptions":[` + strings.Join(uris, ",") + `]}}`
	const rate, burst, clients = 25, 40, 40
	for name, of := range map[string]struct {
		server, era string
		most        int // messages that one message may cause
		once        func(v *visitor)
	}{
		"listens":           {"legacy", "modern", 3 + 2*64, func(v *visitor) { v.listenBriefly(wants) }},
		"listens of legacy": {"legacy", "legacy", 4, func(v *visitor) { v.ask("resources/subscribe", `{"uri":"mem://notes/1"}`) }},
		"streams":           {"legacy", "legacy", 5, func(v *visitor) { v.listenBriefly("") }},
		"calls":             {"legacy", "modern", 5, func(v *visitor) { v.call("look", `{}`) }},
		"calls of legacy":   {"modern", "legacy", 5, func(v *visitor) { v.call("look", `{}`) }},
		"levels":            {"legacy", "modern", 6, func(v *visitor) { v.meta = `,"io.modelcontextprotocol/logLevel":"debug"`; v.call("look", `{}`) }},
		"lists": {"modern", "modern", 4, func(v *visitor) {
			v.ask("tools/list", `{}`)
			v.ask("resources/list", `{}`)
			v.ask("prompts/list", `{}`)
		}},
		"completions": {"modern", "modern", 4, func(v *visitor) {
			v.ask("completion/complete", `{"ref":{"type":"ref/prompt","name":"greet"},"argument":{"name":"a","value":"b"}}`)
		}},
		"sessions": {"legacy", "legacy", 5, func(v *visitor) {
			if answer, err := v.sendTo(context.Background(), http.MethodDelete, v.s.url, "", v.headers("", "")...); err == nil {
				_ = answer.Body.Close()
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSiege(t, camp{answers: mcptest.Answers{Eras: []string{of.server}}, change: func(c *mcp.Config) { c.Limits.Rate, c.Limits.Burst = rate, burst }})
			began := time.Now()
			var all sync.WaitGroup
			for n := range clients {
				v := s.stranger(of.era, s.issuer.Token(t, mcptest.Claims{"sub": "mallory", "client_id": fmt.Sprint("client-", n)}))
				all.Go(func() {
					if _, began := v.tryBegin(); began {
						of.once(v)
					}
				})
			}
			all.Wait()
			mcptest.Until(t, "no resource is subscribed to any longer", func() bool {
				on, off := 0, 0
				for _, g := range s.rec.Got() {
					if g.Method == "resources/subscribe" {
						on++
					} else if g.Method == "resources/unsubscribe" {
						off++
					}
				}
				return of.era == "legacy" || on == off
			})
			got := len(s.rec.Got())
			if may := burst + int(rate*time.Since(began).Seconds()) + of.most; got > may || got == 0 {
				t.Errorf("the server got %d messages, and %d may come of one person", got, may)
			}
			s.visitor(of.era, mcptest.Claims{"sub": "alice"}).call("look", `{}`).runs(t, "another person's:")
		})
	}
}

// listenBriefly opens a stream, reads its beginning, and leaves. Wants are those of a client of the modern era.
func (v *visitor) listenBriefly(wants string) {
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	verb, body := http.MethodGet, ""
	if wants != "" {
		verb, body = http.MethodPost, v.text("subscriptions/listen", wants)
	}
	if answer, err := v.sendTo(ctx, verb, v.s.url, body, v.headers("subscriptions/listen", wants)...); err == nil {
		_, _ = answer.Body.Read(make([]byte, 1))
		_ = answer.Body.Close()
	}
}

// A message counts once more for each 32 questions that it causes. While a person owes for them, nothing costly is asked for that
// person, and a list is refused as a whole.
func TestQuestionsCount(t *testing.T) {
	t.Parallel()
	const tools, rate, burst, clients = 320, 1, 100, 30
	for name, of := range map[string]struct {
		mallory string // what mallory is permitted of tools
		once    func(v *visitor)
	}{
		"denied lists": {"", func(v *visitor) { v.ask("tools/list", `{}`) }},
		"lists":        {`permit(principal, action == Action::"tool.invoke", resource == tool::"rec:tool-0");`, func(v *visitor) { v.ask("tools/list", `{}`) }},
		"requestable": {`permit(principal, action == Action::"tool.request", resource == tool::"rec:tool-0");`, func(v *visitor) {
			v.capabilities = `{"extensions":{"io.policy-service/tool-requests":{}}}`
			v.ask("tools/list", `{}`)
		}},
		"resources": {`permit(principal, action == Action::"resources/read", resource);`, func(v *visitor) { v.ask("resources/list", `{}`) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := &explainPDP{}
			resources := make([]string, tools)
			for n := range resources {
				resources[n] = fmt.Sprintf(`{"uri":"mem://notes/%d","name":"n"}`, n)
			}
			s := newSiege(t, camp{
				policies: map[string]string{"a.cedar": `@id("bob") permit(principal == agent::"client-bob", action, resource);
@id("begin") permit(principal, action, resource) unless { [Action::"tool.invoke", Action::"tool.request", Action::"resources/read"].contains(action) };
` + of.mallory},
				answers: mcptest.Answers{Tools: manyTools(tools), Results: map[string]string{"resources/list": `{"resultType":"complete","ttlMs":0,"cacheScope":"private","resources":[` + strings.Join(resources, ",") + `]}`}},
				change:  func(c *mcp.Config) { c.Limits.Rate, c.Limits.Burst = rate, burst },
				deps:    mcp.Deps{Transport: asked},
			})
			s.visitor("modern", mcptest.Claims{"sub": "bob", "client_id": "client-bob"}).ask("tools/list", `{}`).runs(t, "bob:") // the tools are known
			asked.take()
			began := time.Now()
			var all sync.WaitGroup
			for n := range clients {
				v := s.stranger("modern", s.issuer.Token(t, mcptest.Claims{"sub": "mallory", "client_id": fmt.Sprint("client-", n)}))
				all.Go(func() { of.once(v) })
			}
			all.Wait()
			items := asked.items()
			if may := 32 * (burst + int(rate*time.Since(began).Seconds()) + clients); items > may || items == 0 {
				t.Errorf("%d questions, of at most %d", items, may)
			}
		})
	}
}

// Whether a principal may use a server at all is asked once in two seconds, and again when the policies or the lock change. What
// is kept permits nothing: each call and each item of a list is decided.
func TestUseOfAServerIsKept(t *testing.T) {
	t.Parallel()
	const all = `@id("all") permit (principal, action, resource);`
	const none = `@id("all") permit (principal, action, resource) unless { [Action::"tool.invoke"].contains(action) };`
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			at := time.Now()
			var mu sync.Mutex
			now := func() time.Time { mu.Lock(); defer mu.Unlock(); return at }
			asked := &explainPDP{}
			s := newSiege(t, camp{
				policies: map[string]string{"a.cedar": all + "\n" + `@id("mallory") forbid (principal == agent::"desktop", action in [Action::"tool.invoke", Action::"prompts/list", Action::"resources/list"], resource);`},
				answers:  mcptest.Answers{Tools: manyTools(40)}, deps: mcp.Deps{Transport: asked}, now: now,
			})
			s.visitor(era, mcptest.Claims{"sub": "bob", "client_id": "bob"}).ask("tools/list", `{}`).runs(t, "bob:")
			v := s.visitor(era, mcptest.Claims{"client_id": "desktop"})
			lists := func(kept, shown bool, of string) {
				t.Helper()
				asked.take()
				got := v.ask("tools/list", `{}`)
				if got.runs(t, of); strings.Contains(got.text, "tool-1") != shown {
					t.Errorf("%s: the list is %s", of, got)
				}
				if n := asked.items(); kept != (n == 1) { // may the list be asked for
					t.Errorf("%s: %d questions", of, n)
				}
			}
			lists(false, false, "at first")
			lists(true, false, "again")
			mu.Lock()
			at = at.Add(2 * time.Second)
			mu.Unlock()
			lists(false, false, "two seconds later")
			lists(true, false, "and again")
			s.rule("b.cedar", `@id("more") permit (principal == agent::"desktop", action == Action::"prompts/get", resource);`)
			v.ask("prompts/list", `{}`) // whose answer says that the policies are others
			lists(false, false, "by other policies")
			// A yes that is kept lets nothing through.
			s.rule("a.cedar", all)
			v.ask("prompts/list", `{}`)
			lists(false, true, "once it is permitted")
			s.rule("a.cedar", none)
			if got := v.call("tool-1", `{}`); got.code() != -32001 {
				t.Errorf("a denied call behind a yes that is kept: %s", got)
			}
			if n := slices.Index(s.executed(), "tools/call"); n >= 0 {
				t.Errorf("the server got %q", s.executed())
			}
		})
	}
}

// A call of a tool that is not there, or that is denied, has the PDP asked about that tool alone.
func TestUnknownToolIsOneQuestion(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		for _, method := range []string{"tools/call", "tools/request"} {
			t.Run(era+"/"+method, func(t *testing.T) {
				t.Parallel()
				asked := &explainPDP{}
				s := newSiege(t, camp{
					policies: map[string]string{"a.cedar": `@id("bob") permit(principal == agent::"bob", action, resource); @id("begin") permit(principal, action == Action::"initialize", resource);`},
					answers:  mcptest.Answers{Tools: manyTools(300)}, deps: mcp.Deps{Transport: asked},
				})
				s.visitor(era, mcptest.Claims{"sub": "bob", "client_id": "bob"}).ask("tools/list", `{}`).runs(t, "bob:")
				v := s.speaker(era, nil)
				for name, want := range map[string]int{"nothing": -32602, "tool-7": -32001} {
					asked.take()
					if got := v.ask(method, `{"name":"`+name+`","arguments":{},"reason":"why not"}`); got.code() != want {
						t.Errorf("%s: %s", name, got)
					}
					if n := asked.items(); n == 0 || n > 4 {
						t.Errorf("%s: %d questions", name, n)
					}
				}
			})
		}
	}
}
