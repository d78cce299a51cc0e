package mcp_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"policy-service/pdp/mcp/mcptest"
)

// While something is to be taken out of a result, no word of the server's reaches the client by any other way: not by a
// message before the result, not by what the server asks, and not by an error, however it comes.
func TestWordsOfTheServer(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t-123-45"
	elicit := `"method":"elicitation/create","params":{"message":"of ` + secret + `","requestedSchema":{"type":"object","properties":{}}}`
	told := map[string]func(c *mcptest.Call){
		"result": func(c *mcptest.Call) {
			c.Result(`{"content":[{"type":"text","text":"` + secret + `"}],"structuredContent":{"ssn":"` + secret + `","name":"` + secret + `"},"_meta":{"a":"` + secret + `"}}`)
		},
		"error": func(c *mcptest.Call) { c.Error(`{"code":-32000,"message":"` + secret + `","data":"` + secret + `"}`) },
		"status": func(c *mcptest.Call) {
			c.Raw(403, "application/json", `{"jsonrpc":"2.0","id":`+string(c.ID)+`,"error":{"code":-32000,"message":"`+secret+`","data":"`+secret+`"}}`)
		},
		"without id": func(c *mcptest.Call) {
			c.Raw(400, "application/json", `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"`+secret+`"}}`)
		},
		"log": func(c *mcptest.Call) {
			c.Message(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"` + secret + `"}}`)
			c.Result(`{"content":[]}`)
		},
		"asks": func(c *mcptest.Call) {
			if c.Modern {
				c.Result(`{"resultType":"input_required","inputRequests":{"a":{` + elicit + `}},"requestState":"` + secret + `"}`)
				return
			}
			c.Message(`{"jsonrpc":"2.0","id":"` + secret + `",` + elicit + `}`)
			c.Result(`{"content":[]}`)
		},
	}
	for _, up := range eras {
		s := newSiege(t, camp{policies: masksLook, change: relays, answers: mcptest.Answers{Eras: []string{up}, Handle: func(c *mcptest.Call) bool {
			for name, say := range told {
				if c.Method == "tools/call" && strings.Contains(string(c.Params), `"as":"`+name+`"`) {
					say(c)
					return true
				}
			}
			return false
		}}})
		v := s.person(nil)
		v.meta = `,"progressToken":"p","io.modelcontextprotocol/logLevel":"debug"`
		for name := range told {
			got := v.call("look", `{"as":"`+name+`"}`)
			if strings.Contains(got.text, secret) || got.finals != 1 {
				t.Errorf("%s, %s: the client reads %s", up, name, got)
			}
			isThis := func(g mcptest.Got) bool {
				return g.Method == "tools/call" && strings.Contains(string(g.Params), `"as":"`+name+`"`)
			}
			if !slices.ContainsFunc(s.rec.Got(), isThis) {
				t.Errorf("%s, %s: the call did not arrive: %s", up, name, got)
			}
		}
	}
}

// What a server says beside the answers to requests cannot be told to be of none of them. So once something was to be taken
// out of a result of a client, it hears no free words of the server's beside any longer, and nobody asks it for the server.
func TestWordsBesideTheAnswers(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t-123-45"
	called := make(chan bool)
	s := newSiege(t, camp{policies: masksLook, change: relays, answers: mcptest.Answers{
		Eras: []string{"legacy"},
		Handle: func(c *mcptest.Call) bool {
			if c.Method != "tools/call" {
				return false
			}
			called <- true
			<-called
			c.Result(`{"content":[]}`)
			return true
		},
		Listen: func(c *mcptest.Call) {
			<-called
			c.Message(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"` + secret + `"}}`)
			c.Message(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"` + secret + `","requestedSchema":{"type":"object","properties":{}}}}`)
			c.Message(`{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}`)
			called <- true
			<-c.Context.Done()
		},
	}})
	v := s.listener(nil)
	stream := v.stream("")
	if got := v.call("look", `{}`); !got.ran() {
		t.Fatal(got)
	}
	var heard strings.Builder
	for !strings.Contains(heard.String(), "list_changed") && stream.lines.Scan() {
		heard.WriteString(stream.lines.Text() + "\n")
	}
	stream.end()
	if got := heard.String(); strings.Contains(got, secret) || !strings.Contains(got, "list_changed") {
		t.Errorf("the client hears %s", got)
	}
}

// legacyOne is a session of the legacy era, with a client that takes forms.
type legacyOne struct{ at, id string }

func legacySession(t *testing.T, at string) legacyOne {
	t.Helper()
	s := legacyOne{at: at}
	answer := s.do(t, http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","clientInfo":{"name":"c","version":"1"},"capabilities":{"elicitation":{}}}}`)
	if got := readAll(t, answer.Body); !strings.Contains(got, `"result"`) {
		t.Fatal(got)
	}
	s.id = answer.Header.Get("Mcp-Session-Id")
	return s
}

func (s legacyOne) do(t *testing.T, method, body string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.at, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Mcp-Session-Id": s.id} {
		if v != "" {
			r.Header.Set(name, v)
		}
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}
