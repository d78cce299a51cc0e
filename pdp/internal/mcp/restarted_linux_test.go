package mcp_test

import (
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"

	"policy-service/pdp/pdptest/mcptest"
)

// reborn is a server of the legacy era that begins anew, and says something by itself.
type reborn struct {
	t       *testing.T
	s       *siege
	program bool
	refuses bool // subscriptions, once it began anew

	mu   sync.Mutex
	born int
	says *mcptest.Call // by which it says something by itself
	over chan struct{} // ends its streams
	here chan struct{} // has a value for each answer to its ping
}

func newReborn(t *testing.T, program, refuses bool) *reborn {
	b := &reborn{t: t, program: program, refuses: refuses, over: make(chan struct{}), here: make(chan struct{}, 1)}
	b.s = newSiege(t, camp{program: program, answers: mcptest.Answers{Eras: []string{"legacy"}, Listen: func(c *mcptest.Call) {
		over := b.talks(c)
		select {
		case <-over:
		case <-c.Context.Done():
		}
	}, Heard: func(g mcptest.Got) {
		if g.Method == "" {
			b.here <- struct{}{}
		}
	}, Handle: func(c *mcptest.Call) bool {
		b.mu.Lock()
		again := b.born > 0
		refuses := b.refuses && again
		b.mu.Unlock()
		switch {
		case again && !program && c.Method == "logging/setLevel": // it wants to know whether somebody is there before it answers
			c.Message(`{"jsonrpc":"2.0","id":"ping","method":"ping"}`)
			select {
			case <-b.here:
			case <-c.Context.Done():
			}
		case program && c.Method == "initialize":
			b.talks(c)
		case refuses && c.Method == "resources/subscribe":
			c.Error(`{"code":-32002,"message":"there is no such resource any more"}`)
			return true
		}
		return false
	}}})
	return b
}

// talks has the server speak by a call from now on, which is one that is open.
func (b *reborn) talks(c *mcptest.Call) (over chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.says = c
	return b.over
}

// anew has the server begin anew, and forget all that it was told.
func (b *reborn) anew() {
	b.t.Helper()
	b.mu.Lock()
	b.born++
	close(b.over)
	b.over, b.says = make(chan struct{}), nil
	b.mu.Unlock()
	b.s.rec.Forget()
	if b.program {
		running, _ := programs(b.s.rec)
		for _, pid := range running {
			orFail(b.t, syscall.Kill(pid, syscall.SIGKILL))
		}
	}
}

// told is how often it was sent a message that has a text in it.
func (b *reborn) told(method, text string) (times int) {
	for _, g := range b.s.rec.Got() {
		if g.Method == method && strings.Contains(string(g.Params), text) {
			times++
		}
	}
	return times
}

// say has it say something by itself.
func (b *reborn) say(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.says.Message(text)
}

// hearsAll waits until a client heard all of some texts.
func (e *ear) hearsAll(texts ...string) {
	e.t.Helper()
	for len(texts) > 0 {
		m, ok := <-e.heard
		if !ok {
			e.t.Fatalf("%s: the stream ended, and %q was not heard", e.era, texts)
		}
		for n, text := range texts {
			if strings.Contains(m.text, text) {
				texts = append(texts[:n:n], texts[n+1:]...)
				break
			}
		}
	}
}

const (
	updatedNotes = `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"mem://notes"}}`
	aLogLine     = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"debug","data":"still here"}}`
)

// A server that begins anew tells its clients as much as before, though none of them calls it; and they know that they may have
// missed something.
func TestARestartedServerSilencesNobody(t *testing.T) {
	t.Parallel()
	for name, program := range map[string]bool{"http": false, "program": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newReborn(t, program, false)
			v := b.s.visitor("legacy", nil)
			stream := v.listens()
			stream.welcomed()
			for _, one := range [][2]string{{"resources/subscribe", `{"uri":"mem://notes"}`}, {"resources/subscribe", `{"uri":"mem://given-up"}`}, {"resources/unsubscribe", `{"uri":"mem://given-up"}`}, {"logging/setLevel", `{"level":"debug"}`}} {
				if got := v.ask(one[0], one[1]); !got.ran() {
					t.Fatal(got)
				}
			}
			for n := range 2 {
				b.anew()
				stream.hearsAll("tools/list_changed", "prompts/list_changed", "resources/list_changed", "mem://notes")
				mcptest.Until(t, "the server is told again what it was told", func() bool {
					return b.told("resources/subscribe", "mem://notes") == n+2 && b.told("logging/setLevel", "debug") == n+2
				})
				mcptest.Until(t, "the server has a way to speak", func() bool {
					b.mu.Lock()
					defer b.mu.Unlock()
					return b.says != nil
				})
				b.say(updatedNotes)
				b.say(aLogLine)
				stream.hearsAll("mem://notes", "still here")
			}
			if n := b.told("resources/subscribe", "given-up"); n != 1 {
				t.Errorf("it was told %d times of what the client gave up", n)
			}
		})
	}
}

// Where a server that began anew does not take what a client told it before, the client begins anew, and does not listen in vain.
func TestARestartedServerThatRefusesEndsTheSession(t *testing.T) {
	t.Parallel()
	b := newReborn(t, true, true)
	v := b.s.visitor("legacy", nil)
	stream := v.listens()
	stream.welcomed()
	if got := v.ask("resources/subscribe", `{"uri":"mem://notes"}`); !got.ran() {
		t.Fatal(got)
	}
	b.anew()
	mcptest.Until(t, "the session is over", func() bool { return v.ask("tools/list", `{}`).status == http.StatusNotFound })
	for open := true; open; {
		_, open = <-stream.heard
	}
	v.session = ""
	v.begin()
	v.call("look", `{}`).runs(t)
}

// A client that wants to listen to a server which has ended meanwhile need not call it first.
func TestListenOpensTheSession(t *testing.T) {
	t.Parallel()
	for name, program := range map[string]bool{"http": false, "program": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newReborn(t, program, false)
			v := b.s.visitor("modern", nil)
			if got := v.call("look", `{}`); !got.ran() {
				t.Fatal(got)
			}
			b.anew()
			if program {
				mcptest.Until(t, "the gateway sees that the program ended", func() bool { return strings.Contains(b.s.logs.String(), "a process of an MCP server ended") })
			}
			stream := v.listensTo(`{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["mem://notes"]}}`)
			if got := stream.next("notifications/subscriptions/acknowledged"); !strings.Contains(got.text, "mem://notes") {
				t.Fatal(got.text)
			}
			if program { // over HTTP the end of the server's stream is that of the client's
				b.anew()
				stream.hearsAll("tools/list_changed", "mem://notes")
			}
		})
	}
}
