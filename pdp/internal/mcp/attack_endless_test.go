package mcp_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"policy-service/pdp/pdptest/mcptest"
)

// D37: what comes for a call that was given up reaches nobody, and is counted.
func TestAnswersAfterCancellation(t *testing.T) {
	inEras(t, func(t *testing.T, era string) {
		began, told := make(chan bool), make(chan bool, 1)
		counts, deps := metered()
		s := newSiege(t, camp{program: true, deps: deps, answers: mcptest.Answers{
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
		call := v.waits("look", `{"is":"given up"}`)
		<-began
		if era == "modern" {
			call.leave()
		} else {
			note := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, v.id.Load())
			v.send(note, v.headers("", "")...).has(t, http.StatusAccepted)
		}
		<-call.over
		if len(call.ended) > 0 {
			if got := <-call.ended; strings.Contains(got.text, "too late") || got.ran() {
				t.Errorf("%s", got)
			}
		}
		mcptest.Until(t, "all of it has come", func() bool { return droppedBy(t, counts)["foreign_id"] == 3 })
		for range 3 {
			if got := v.call("look", `{}`); !got.ran() || got.finals != 1 || strings.Contains(got.text, "too late") || len(got.before) > 0 {
				t.Errorf("another call: %s", got)
			}
		}
	})
}

// D37: progress is of the call that it names, if it is the one it comes for. What is of another's goes nowhere.
func TestProgressOfOthers(t *testing.T) {
	t.Parallel()
	for _, program := range []bool{false, true} {
		for _, era := range eras {
			both := new(sync.WaitGroup)
			both.Add(2)
			counts, deps := metered()
			s := newSiege(t, camp{program: program, deps: deps, answers: mcptest.Answers{Handle: func(c *mcptest.Call) bool {
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
