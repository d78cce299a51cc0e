package mcp_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
	"policy-service/pdp/pdptest/night"
)

// endless is an answer for as long as somebody reads, and of at most a GiB.
type endless struct{ kind, begin, again string }

// answer reports how much was read.
func (e endless) answer(c *mcptest.Call) (told int) {
	c.Raw(http.StatusOK, e.kind, strings.ReplaceAll(e.begin, "ID", string(c.ID)))
	for c.Context.Err() == nil && told < 1<<30 {
		c.Raw(http.StatusOK, "", e.again) // the header has gone
		told += len(e.again)
	}
	return told
}

const (
	eventStream = "text/event-stream"
	logNote     = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"error\",\"data\":\"x\"}}\n\n"
)

// endlessForms come as fast as they are read.
func endlessForms() map[string]endless {
	much := strings.Repeat("x", 1<<16)
	return map[string]endless{
		"a body":                 {kind: "application/json", begin: `{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"`, again: much},
		"white space":            {kind: "application/json", again: strings.Repeat(" ", 1<<16)},
		"an event":               {kind: eventStream, begin: "data: ", again: much},
		"an event of many lines": {kind: eventStream, again: "data: " + much + "\n"},
		"a name of an event":     {kind: eventStream, begin: "event: ", again: much},
		"notifications":          {kind: eventStream, again: strings.Repeat(logNote, 16)},
		"progress of others":     {kind: eventStream, again: strings.ReplaceAll(strings.Repeat(logNote, 16), "notifications/message", "notifications/progress")},
		"comments":               {kind: eventStream, again: strings.Repeat(": still here\n\n", 64)},
		"answers to others":      {kind: eventStream, again: strings.Repeat("data: {\"jsonrpc\":\"2.0\",\"id\":4711,\"result\":{}}\n\n", 16)},
	}
}

// endlessSiege has a server of an era that gives such answers, for each of which it may take some time.
type endlessSiege struct {
	*siege
	up      string
	clients []*visitor
	begun   atomic.Int64
	told    chan int // how much was read of each
}

func newEndless(t *testing.T, up string) *endlessSiege {
	forms := endlessForms()
	e := &endlessSiege{up: up, told: make(chan int, 2*len(forms))}
	e.siege = newSiege(t, camp{
		answers: mcptest.Answers{Eras: []string{up}, Handle: func(c *mcptest.Call) bool {
			var params struct{ Arguments struct{ Is string } }
			if err := json.Unmarshal(c.Params, &params, json.MatchCaseInsensitiveNames(true)); err != nil || forms[params.Arguments.Is].kind == "" {
				return false
			}
			e.begun.Add(1)
			e.told <- forms[params.Arguments.Is].answer(c)
			return true
		}},
		change: func(c *mcp.Config) {
			u := c.Upstreams["rec"]
			u.MaxResult, u.Timeout = 1<<20, 30*time.Second
			c.Upstreams["rec"] = u
		},
	})
	for _, era := range eras {
		v := e.stranger(era, e.issuer.Token(t, nil))
		mcptest.Until(t, "a session begins", func() bool {
			_, began := v.tryBegin()
			return began
		})
		e.clients = append(e.clients, v)
	}
	e.goOn(t)
	return e
}

// goOn returns when calls of each client go through.
func (e *endlessSiege) goOn(t *testing.T) {
	t.Helper()
	for _, v := range e.clients {
		mcptest.Until(t, "a call goes through", func() bool { return v.call("look", `{}`).ran() })
	}
}

func (e *endlessSiege) call(t *testing.T, v *visitor, name string) {
	if got := v.call("look", `{"is":"`+name+`"}`); got.code() != -32603 || got.finals != 1 || got.kind() != "upstream_unavailable" && got.kind() != "result_too_large" {
		t.Errorf("%s to %s, %s: %d answers, %s", v.era, e.up, name, got.finals, got)
	}
}

// over fails unless the server has learnt of each answer that it is not read any more, and calls go through.
func (e *endlessSiege) over(t *testing.T) {
	t.Helper()
	for range e.begun.Load() {
		if n := <-e.told; n > 32<<20 { // what a message may have four times over, and what is on its way
			t.Errorf("to %s: of one answer %d MiB were taken", e.up, n>>20)
		}
	}
	e.goOn(t)
}

// D37: an answer that does not end costs its client one error, and the gateway no more than its bounds. Whoever gives it
// learns that nobody reads.
func TestEndlessAnswers(t *testing.T) {
	t.Parallel()
	for _, up := range eras {
		t.Run(up, func(t *testing.T) {
			t.Parallel()
			e := newEndless(t, up)
			for _, v := range e.clients {
				for name := range endlessForms() {
					e.call(t, v, name)
				}
			}
			e.over(t)
		})
	}
}

// What such an answer costs in memory does not depend on how long it goes on.
func TestEndlessAnswersAreFlat(t *testing.T) {
	night.Measures(t)
	for _, up := range eras {
		e := newEndless(t, up)
		for _, v := range e.clients {
			for name := range endlessForms() {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				e.call(t, v, name)
				runtime.ReadMemStats(&after)
				if cost := after.TotalAlloc - before.TotalAlloc; cost > 64<<20 {
					t.Errorf("%s to %s, %s: it cost %d MiB of memory", v.era, up, name, cost>>20)
				}
			}
		}
		e.over(t)
	}
}

// D37: what comes for a call that was given up reaches nobody, and is counted.
func TestAnswersAfterCancellation(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			began, told := make(chan bool), make(chan bool, 1)
			counts := sdkmetric.NewManualReader()
			s := newSiege(t, camp{program: true, deps: mcp.Deps{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(counts))}, answers: mcptest.Answers{
				Heard: func(g mcptest.Got) {
					if g.Method == "notifications/cancelled" {
						told <- true
					}
				},
				Handle: func(c *mcptest.Call) bool {
					if c.Method != "tools/call" || !strings.Contains(string(c.Params), `"given up"`) {
						return false
					}
					began <- true
					<-told
					c.Message(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p1","progress":1,"message":"too late"}}`)
					c.Result(`{"resultType":"complete","content":[{"type":"text","text":"too late"}]}`)
					c.Error(`{"code":-1,"message":"too late"}`)
					return true
				},
			}})
			v := s.visitor(era, nil)
			v.meta = `,"progressToken":"mine"`
			ctx, cancel := context.WithCancel(t.Context())
			params := `{"name":"look","arguments":{"is":"given up"}}`
			text := v.text("tools/call", params)
			id := v.id.Load()
			ended := make(chan echo)
			go func() {
				got, _ := v.try(ctx, http.MethodPost, text, v.headers("tools/call", params)...)
				ended <- got
			}()
			<-began
			if era == "modern" {
				cancel()
			} else if got := v.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id), v.headers("", "")...); got.status != http.StatusAccepted {
				t.Errorf("%s", got)
			}
			if got := <-ended; strings.Contains(got.text, "too late") || got.ran() {
				t.Errorf("%s", got)
			}
			cancel()
			mcptest.Until(t, "all of it has come", func() bool { return droppedBy(t, counts)["foreign_id"] == 3 })
			for range 3 {
				if got := v.call("look", `{}`); !got.ran() || got.finals != 1 || strings.Contains(got.text, "too late") || len(got.before) > 0 {
					t.Errorf("another call: %s", got)
				}
			}
		})
	}
}

// D37: progress is of the call that it names, if it is the one it comes for. What is of another's goes nowhere.
func TestProgressOfOthers(t *testing.T) {
	t.Parallel()
	for _, program := range []bool{false, true} {
		for _, era := range eras {
			both := new(sync.WaitGroup)
			both.Add(2)
			counts := sdkmetric.NewManualReader()
			s := newSiege(t, camp{program: program, deps: mcp.Deps{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(counts))}, answers: mcptest.Answers{Handle: func(c *mcptest.Call) bool {
				if c.Method != "tools/call" {
					return false
				}
				both.Done()
				both.Wait()
				who := "alice"
				if strings.Contains(string(c.Params), `"of":"bob"`) {
					who = "bob"
				}
				for _, token := range []string{`"p1"`, `"p2"`, `"mine-alice"`, `"mine-bob"`, `1`, `null`, `{}`} {
					c.Message(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + token + `,"progress":1,"message":"of ` + who + `"}}`)
				}
				c.Result(`{"resultType":"complete","content":[]}`)
				return true
			}}})
			var calls sync.WaitGroup
			for _, who := range []string{"alice", "bob"} {
				v := s.visitor(era, mcptest.Claims{"sub": who})
				v.meta = `,"progressToken":"mine-` + who + `"`
				calls.Go(func() {
					got := v.call("look", `{"of":"`+who+`"}`)
					if !got.ran() || len(got.before) != 1 || !strings.Contains(string(got.before[0]), `"mine-`+who+`"`) || !strings.Contains(string(got.before[0]), "of "+who) {
						t.Errorf("%s, %s: %s", era, who, got)
					}
				})
			}
			calls.Wait()
			dropped := droppedBy(t, counts)
			if n := dropped["progress of another request"] + dropped["foreign_id"]; n != 12 {
				t.Errorf("%s: dropped are %v", era, dropped)
			}
		}
	}
}

// D37: who asks for input where there is none to ask for, has answered ambiguously.
func TestInputWhereNoneIs(t *testing.T) {
	t.Parallel()
	s := newSiege(t, camp{change: relays, answers: mcptest.Answers{Eras: []string{"modern"}, Handle: func(c *mcptest.Call) bool {
		if c.Method == "server/discover" || c.Method == "initialize" {
			return false
		}
		c.Result(`{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create",` + askedForm + `}},"requestState":"theirs",
			"prompts":[{"name":"greet"}],"resources":[{"uri":"mem://a","name":"a"}],"resourceTemplates":[{"uriTemplate":"mem://{a}","name":"a"}],"completion":{"values":["a"]}}`)
		return true
	}}})
	methods := map[string]string{
		"prompts/list": `{}`, "resources/list": `{}`, "resources/templates/list": `{}`,
		"completion/complete": `{"ref":{"type":"ref/prompt","name":"greet"},"argument":{"name":"a","value":"b"}}`,
	}
	for era, v := range map[string]*visitor{"modern": s.person(nil), "legacy": s.listener(nil)} {
		for method, params := range methods {
			got := v.ask(method, params)
			if got.code() != -32603 || got.kind() != "upstream_ambiguous" || got.finals != 1 || len(got.before) > 0 || strings.Contains(got.text, "Who?") || strings.Contains(got.text, "theirs") {
				t.Errorf("%s, %s: %s", era, method, got)
			}
		}
	}
	list := newSiege(t, camp{change: relays, answers: mcptest.Answers{Eras: []string{"modern"}, Results: map[string]string{
		"tools/list": `{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create",` + askedForm + `}},"tools":` + siegeTools + `}`,
	}}})
	for era, v := range map[string]*visitor{"modern": list.person(nil), "legacy": list.listener(nil)} {
		if got := v.ask("tools/list", `{}`); got.code() != -32603 || got.kind() != "upstream_ambiguous" || got.finals != 1 || len(got.before) > 0 {
			t.Errorf("%s: %s", era, got)
		}
		if got := v.call("look", `{}`); got.ran() || got.finals != 1 {
			t.Errorf("%s: %s", era, got)
		}
	}
	list.untouched(t)
}
