package mcp_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"policy-service/pdp/internal/logging"
	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/pdptest/mcptest"
)

// lines are the lines of a log with a message.
func (k *kept) lines(message string) []string {
	return slices.DeleteFunc(strings.Split(k.String(), "\n"), func(line string) bool { return !strings.Contains(line, `"msg":"`+message+`"`) })
}

// A listing of which hundreds of items are left out is one line, by reason, with the first name.
func TestListingIsOneLine(t *testing.T) {
	inEras(t, func(t *testing.T, era string) {
		tools := []string{`{"name":"look","inputSchema":{"type":"object"}}`}
		var prompts, resources []string
		for n := range 300 {
			tools = append(tools, `{"inputSchema":{}}`, fmt.Sprintf(`{"name":"bad-%d\u202e%s","inputSchema":{},"execution":{"taskSupport":"required"}}`, n, strings.Repeat("y", 5000)),
				fmt.Sprintf(`{"name":"twin-%d","inputSchema":{}}`, n/2))
			prompts = append(prompts, `{"description":"nameless"}`)
			resources = append(resources, fmt.Sprintf(`{"uri":"file:///etc/%d","name":"n"}`, n), fmt.Sprintf(`{"uri":"mem://%d/%s","name":"n"}`, n, strings.Repeat("z", 1<<12)))
		}
		const result = `{"resultType":"complete","ttlMs":0,"cacheScope":"private",`
		s := newSiege(t, camp{
			answers: mcptest.Answers{Tools: "[" + strings.Join(tools, ",") + "]", Results: map[string]string{
				"prompts/list":   result + `"prompts":[` + strings.Join(prompts, ",") + `]}`,
				"resources/list": result + `"resources":[` + strings.Join(resources, ",") + `]}`,
			}},
			change: func(c *mcp.Config) {
				u := c.Upstreams["rec"]
				u.URIs, u.MaxResult = []string{"mem://"}, 16<<20
				c.Upstreams["rec"] = u
			},
		})
		v := s.visitor(era, nil)
		if got := v.ask("tools/list", `{}`); strings.Count(got.text, `"name":"look"`) != 1 || strings.Contains(got.text, "bad-") {
			t.Errorf("%s", got)
		}
		v.ask("prompts/list", `{}`)
		v.ask("resources/list", `{}`)
		lines := s.logs.lines("items of a list are left out")
		if len(lines) != 3 {
			t.Fatalf("%d lines: %.2000s", len(lines), lines)
		}
		for n, want := range []string{
			`"method":"tools/list","items":{"no name":300,"two by one name, or by names that clients could take for one":150,"unusable":300},"first":"bad-0\\u202eyyy`,
			`"method":"prompts/list","items":{"no name":300},"first":""`,
			`"method":"resources/list","items":{"not below upstreams.rec.uris":300},"first":"file:///etc/0"`,
		} {
			if !strings.Contains(lines[n], want) || len(lines[n]) > 1<<10 || strings.Contains(lines[n], "\u202e") {
				t.Errorf("%.3000s, want %s", lines[n], want)
			}
		}
	})
}

// A server that is told that clients take no questions, although they say that they do, is named in the log, once.
func TestWithheldQuestionsAreOneLine(t *testing.T) {
	inEras(t, func(t *testing.T, era string) {
		const message = "clients take questions for their people, and the server is told that they take none, because the configuration refuses them"
		for asks, want := range map[string]int{mcp.RelayOn: 0, "deny": 1} {
			s := newSiege(t, camp{
				answers: mcptest.Answers{Eras: []string{"legacy"}},
				change:  ofServer(func(u *mcp.UpstreamConfig) { u.ServerRequests.Elicitation = asks }),
			})
			s.visitor(era, mcptest.Claims{"sub": "bob"}).ask("tools/list", `{}`)
			for _, sub := range []string{"alice", "mallory"} {
				s.takesForms(era, mcptest.Claims{"sub": sub}).ask("tools/list", `{}`)
			}
			told := slices.ContainsFunc(s.rec.Got(), func(g mcptest.Got) bool {
				return g.Method == "initialize" && strings.Contains(string(g.Params), `"elicitation"`)
			})
			if lines := s.logs.lines(message); told != (want == 0) || len(lines) != want {
				t.Errorf("%s: the server is told %v, and the log has %q", asks, told, lines)
			}
		}
	})
}

// Whoever has requests refused in other words each time does not fill the log: neither a client by names, nor a server by sizes.
func TestRefusalsInManyWordsAreOneLine(t *testing.T) {
	inEras(t, func(t *testing.T, era string) {
		s := newSiege(t, camp{
			answers: mcptest.Answers{Handle: func(c *mcptest.Call) bool {
				if c.Method == "prompts/get" {
					c.Result(`{"resultType":"complete","messages":[],"x":"` + strings.Repeat("x", 2048+len(c.Body)) + `"}`)
				}
				return c.Method == "prompts/get"
			}},
			change: func(c *mcp.Config) {
				u := c.Upstreams["rec"]
				u.MaxResult, c.Limits.MaxArguments = 2048, 1024
				c.Upstreams["rec"] = u
			},
		})
		logs := &kept{}
		log := logging.New(logs, logging.Config{Level: "info", Format: logging.JSON})
		s.deps.Logger = log.Logger
		s.gateway, s.url = s.beside()
		v := s.visitor(era, nil)
		refused := func(name string, code int, once func(n int) echo) {
			t.Helper()
			before := len(logs.lines("refused"))
			for n := range 20 {
				if got := once(n); got.code() != code {
					t.Fatalf("%s: %s", name, got)
				}
			}
			if lines := logs.lines("refused")[before:]; len(lines) != 1 {
				t.Errorf("%s: %d lines: %q", name, len(lines), lines)
			}
		}
		refused("arguments", -32602, func(n int) echo {
			return v.call(fmt.Sprintf("look-%d", n), `{"a":"`+strings.Repeat("a", 1100)+`"}`)
		})
		refused("results", -32603, func(n int) echo {
			return v.ask("prompts/get", fmt.Sprintf(`{"name":"p","arguments":{"a":%q}}`, strings.Repeat("b", 10*n)))
		})
	})
}

// An approval that the PDP has not settled yet is a refusal of its own, which says what to do, and the same call runs once it is
// settled.
func TestGrantPendingIsItsOwnAnswer(t *testing.T) {
	inEras(t, func(t *testing.T, era string) {
		for _, denials := range []mcp.Denials{"", mcp.DenialsResult} {
			tap := newWiretap(t)
			tap.answers(func(w http.ResponseWriter, r *http.Request, body []byte) bool {
				is := strings.HasSuffix(r.URL.Path, "/access/v1/evaluation") && strings.Contains(string(body), `"approval":{"id":`)
				if is {
					w.Header().Set("Content-Type", "application/json")
					w.Header().Set("X-Request-ID", r.Header.Get("X-Request-ID"))
					_, err := w.Write([]byte(`{"decision":false,"context":{"reason":"grant_pending","next_action":"retry","retry_after":7}}`))
					orFail(t, err)
				}
				return is
			})
			w := newPeople(t, land{before: tap.before, serve: tap.serve, change: func(c *mcp.Config) { c.Denials = denials }})
			v := w.client(era)
			d := v.dialogue("confirm", `{}`)
			id := w.asks("confirm")
			d.answer(v, saysYes)
			got := d.end()
			const words = "Authorization required: grant_pending. Whether the approval counts is not settled yet: send the same call again after 7 s"
			if denials == mcp.DenialsResult {
				if got.fault != nil || !strings.Contains(got.text, words) || !strings.Contains(got.text, `"isError":true`) {
					t.Errorf("%s", got)
				}
			} else {
				got.refused(t, -32001, "tool_call_blocked", words)
				for _, want := range []string{`"authorizationId":"` + id + `"`, `"reason":"grant_pending"`, `"suggestion":"send the call again"`, `"retry_after":7`} {
					if !strings.Contains(string(got.fault.Data), want) {
						t.Errorf("%s, want %s", got.fault.Data, want)
					}
				}
			}
			w.ran("confirm")
			tap.answers(nil)
			v.call("confirm", `{}`).runs(t)
			w.ran("confirm", `{}`)
		}
	})
}
