package mcp_test

import (
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/pdptest/mcptest"
)

// A result beyond max_result is called that, with its size, by the key to change; and no other call of the session fails with it.
func TestALargeResultTakesNoOtherCallWithIt(t *testing.T) {
	t.Parallel()
	const limit = 64 << 10
	for name, c := range map[string]struct {
		program, stream bool
		idLast          bool
	}{"http": {}, "event stream": {stream: true}, "program": {program: true}, "program, id at the end": {program: true, idLast: true}} {
		for _, era := range eras {
			t.Run(name+", "+era, func(t *testing.T) {
				t.Parallel()
				waits, goOn := make(chan struct{}), make(chan struct{})
				goes := sync.OnceFunc(func() { close(goOn) })
				t.Cleanup(goes)
				result := `{"resultType":"complete","content":[{"type":"text","text":"` + strings.Repeat(`\\\"id`, limit) + `"}],"id":7}`
				s := newSiege(t, camp{program: c.program, answers: mcptest.Answers{Handle: func(call *mcptest.Call) bool {
					id := string(call.ID)
					switch {
					case call.Method != "tools/call":
						return false
					case strings.Contains(string(call.Params), "change"):
						close(waits)
						<-goOn
						return false
					case c.stream:
						call.Raw(200, "text/event-stream", "data: "+`{"jsonrpc":"2.0","id":`+id+`,"result":`+result+"}\n\n")
					case c.idLast:
						call.Raw(200, "application/json", `{"result":`+result+` , "jsonrpc":"2.0","id" : `+id+"}\n")
					default:
						call.Answer(`{"jsonrpc":"2.0","id":` + id + `,"result":` + result + `}`)
					}
					return true
				}}, change: ofServer(func(u *mcp.UpstreamConfig) { u.MaxResult = limit })})
				v := s.visitor(era, nil)
				var all sync.WaitGroup
				all.Go(func() {
					if got := v.call("change", `{}`); !got.ran() {
						t.Errorf("the other call: %s", got)
					}
				})
				<-waits
				got := v.call("look", `{}`)
				goes()
				all.Wait()
				var data struct {
					Type        string
					Size, Limit int
				}
				if got.fault == nil || json.Unmarshal(got.fault.Data, &data, json.MatchCaseInsensitiveNames(true)) != nil {
					t.Fatal(got)
				}
				if got.code() != -32603 || data.Type != "result_too_large" || data.Limit != limit || data.Size < len(result) || data.Size > len(result)+100 {
					t.Errorf("of %d bytes: %s", len(result), got)
				}
				if want := "upstreams.rec.max_result is " + strconv.Itoa(limit); !strings.Contains(s.logs.String(), want) {
					t.Errorf("the log does not say %q", want)
				}
			})
		}
	}
}
