package mcp_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/pdptest/mcptest"
)

// malloryBy are the claims of one person by one of many clients.
func malloryBy(n int) mcptest.Claims {
	return mcptest.Claims{"sub": "mallory", "client_id": fmt.Sprint("client-", n)}
}

// A person who leaves unanswered what a server asks, by more clients than a server may ask at all, does not keep the server from
// asking another person.
func TestOnePersonLeavesOthersToBeAsked(t *testing.T) {
	t.Parallel()
	const clients, each = 126, 8 // 1,000 answers are held in all
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			s := newSiege(t, camp{answers: new(asker).answers("legacy"), change: func(c *mcp.Config) { relays(c); c.Sessions.PerPerson = 2 * clients }})
			var asked atomic.Int64
			var all sync.WaitGroup
			work := make(chan *visitor)
			for range 4 {
				all.Go(func() {
					for v := range work {
						for n := 0; n < each && v.era == "modern"; n++ {
							if got := v.call("look", `{}`); strings.Contains(got.text, `"input_required"`) {
								asked.Add(1)
							}
						}
					}
				})
			}
			for n := range clients {
				v := s.takesForms(era, malloryBy(n))
				if work <- v; era == "legacy" { // whose calls wait
					v.asked("look", `{}`)
				}
			}
			close(work)
			all.Wait()
			if got := asked.Load(); era == "modern" && got != each {
				t.Errorf("%d answers are held for one person, want %d", got, each)
			}
			alice := s.takesForms(era, nil)
			if era == "modern" {
				q := stateOf(t, alice.call("look", `{}`))
				if got := alice.retry("look", `{}`, inText(q.State), `{"`+q.key()+`":`+accepted+`}`); !got.ran() || !strings.Contains(got.text, "x-answer") {
					t.Errorf("another person's answer: %s", got)
				}
				return
			}
			q := alice.asked("look", `{}`)
			if got := alice.reply(q.id, accepted); got.status != http.StatusAccepted {
				t.Errorf("another person's answer: %s", got)
			}
			if got := q.rest(t); !strings.Contains(got, "x-answer") {
				t.Errorf("another person's call: %s", got)
			}
		})
	}
}

// opensStream opens a stream that lasts as long as the test, and reports whether it is one.
func (v *visitor) opensStream() bool {
	v.s.t.Helper()
	verb := http.MethodGet
	if v.era == "modern" {
		verb = http.MethodPost
	}
	a := v.opens(v.s.t.Context(), verb, "subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`)
	v.s.t.Cleanup(func() { _ = a.Body.Close() })
	return a.StatusCode == http.StatusOK && a.Header.Get("Content-Type") == "text/event-stream"
}

// A person has so many streams by all clients together, and another person has as many.
func TestStreamsCountByPerson(t *testing.T) {
	inEras(t, func(t *testing.T, era string) {
		const most = 3
		s := newSiege(t, camp{change: func(c *mcp.Config) { c.Limits.PerPrincipal.Concurrent = most }})
		open := 0
		for n := range 2 * most {
			if s.visitor(era, malloryBy(n)).opensStream() {
				open++
			}
		}
		if open != most {
			t.Errorf("one person has %d streams, want %d", open, most)
		}
		for range most {
			if !s.visitor(era, nil).opensStream() {
				t.Error("another person has no stream")
			}
		}
	})
}

// What a server asks outside of calls counts by person, too.
func TestServersAskAPersonSoOften(t *testing.T) {
	t.Parallel()
	const clients, each, most = 6, 4, 16
	var refused atomic.Int64
	s := newSiege(t, camp{change: relays, answers: mcptest.Answers{
		Eras: []string{"legacy"},
		Heard: func(g mcptest.Got) {
			if g.Method == "" && strings.Contains(string(g.Body), "asked too much") {
				refused.Add(1)
			}
		},
		Listen: func(c *mcptest.Call) {
			for n := range each {
				c.Message(fmt.Sprintf(`{"jsonrpc":"2.0","id":"q%d","method":"elicitation/create",%s}`, n, askedForm))
			}
			<-c.Context.Done()
		},
	}})
	for n := range clients {
		s.listener(malloryBy(n)).stream("")
	}
	mcptest.Until(t, "the person is asked as often as may be", func() bool { return refused.Load() == clients*each-most })
	alice := s.listener(nil).stream("")
	for range each {
		alice.hears(`"elicitation/create"`)
	}
	if got := refused.Load(); got != clients*each-most {
		t.Errorf("%d questions are refused", got)
	}
}

// When a link is closed, the answers of its server that wait for the client end at once, and leave their places.
func TestHeldAnswersEndWithTheirLink(t *testing.T) {
	inEras(t, func(t *testing.T, era string) {
		const each = 8
		asks, ended := new(asker), atomic.Int64{}
		answers := asks.answers("legacy")
		answers.Handle = func(c *mcptest.Call) bool {
			handled := asks.handle(c)
			if handled && c.Context.Err() != nil {
				ended.Add(1)
			}
			return handled
		}
		s := newSiege(t, camp{answers: answers, change: func(c *mcp.Config) { relays(c); c.Sessions.PerPerson = 1 }})
		first := s.takesForms(era, malloryBy(0))
		if era == "legacy" {
			first.asked("look", `{}`)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if got, err := first.try(ctx, http.MethodDelete, "", first.headers("", "")...); err != nil || got.status != http.StatusNoContent {
				t.Fatal(got, err)
			}
			mcptest.Until(t, "the call ends with its session", func() bool { return ended.Load() == 1 })
			return
		}
		var q stateAsked
		for range each {
			q = stateOf(t, first.call("look", `{}`))
		}
		second := s.takesForms(era, malloryBy(1))
		second.ask("tools/list", `{}`) // the person may have one link
		mcptest.Until(t, "the calls end with their link", func() bool { return ended.Load() == each })
		for range each {
			mcptest.Until(t, "the person may be asked again", func() bool { return strings.Contains(second.call("look", `{}`).text, `"input_required"`) })
		}
		if got := second.call("look", `{}`); strings.Contains(got.text, `"input_required"`) {
			t.Errorf("one more is asked: %s", got)
		}
		if got := first.retry("look", `{}`, inText(q.State), `{"`+q.key()+`":`+accepted+`}`); got.code() != -32602 {
			t.Errorf("what has ended goes on: %s", got)
		}
	})
}
