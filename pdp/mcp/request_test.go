package mcp_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp"
	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
	pdpserver "policy-service/pdp/server"
)

// requestPolicies are beside those of people. The agent restricted, whoever it is for, requests tools and calls none; so does noah, who
// calls some. People fulfil, but for eve.
const requestPolicies = `
@id("request") permit (principal, action == Action::"tool.request", resource)
when { principal == agent::"restricted" || principal == user::"noah" } unless { resource == tool::"rec:never" };
@id("fulfil") permit (principal is user, action == Action::"tool.fulfil", resource) unless { principal == user::"eve" };
@id("restricted") forbid (principal == agent::"restricted", action == Action::"tool.invoke", resource);
`

const requestObligations = `
mask-pay: {type: redact, properties: {fields: [/pay]}}
`

// agora is a world in which somebody requests what others call.
type agora struct {
	*world
	dir string // of the bundle
}

// newAgora has a request not wait, unless the land says otherwise.
func newAgora(t testing.TB, of land) agora {
	t.Helper()
	files := map[string]string{
		"people.cedar": peoplePolicies, "requests.cedar": requestPolicies, "obligations.yaml": peopleObligations + requestObligations, "entities/people.json": peopleEntities,
		"bundle.yaml": "allow_trivial: true\nallow_self_approval: [confirm, review, brief, pair, delegable]\n",
	}
	maps.Copy(files, of.files)
	a := agora{dir: t.TempDir()}
	orFail(t, os.Mkdir(filepath.Join(a.dir, "entities"), 0o700))
	for name, text := range files {
		orFail(t, os.WriteFile(filepath.Join(a.dir, name), []byte(text), 0o600))
	}
	change := of.change
	of.change = func(c *mcp.Config) {
		c.Approvals.Wait = 100 * time.Millisecond
		if os.Getenv(atPDP) != "" {
			c.ToolRequests.Keep = mcp.KeepAtPDP
		}
		if change != nil {
			change(c)
		}
	}
	of.files, of.serve = files, func(c *pdpserver.Config) { c.Program.Source = pdp.Dir(a.dir) }
	a.world = newPeople(t, of)
	return a
}

// rule puts other policies about requests in force.
func (a agora) rule(policies string) {
	a.t.Helper()
	orFail(a.t, os.WriteFile(filepath.Join(a.dir, "requests.cedar"), []byte(policies), 0o600))
	orFail(a.t, a.pdp.Reload(a.t.Context()))
}

// restricted is the restricted agent of somebody.
func (a agora) restricted(era, of string) *visitor {
	return a.visitor(era, mcptest.Claims{"sub": of, "client_id": "restricted"})
}

// user is somebody without an agent.
func (a agora) user(era, name string) *visitor {
	return a.visitor(era, mcptest.Claims{"sub": name, "client_id": nil})
}

// pendingID is the id of a request that waits, "" if it does not.
func pendingID(got echo) string {
	var s struct {
		Status    string `json:"status"`
		RequestID string `json:"requestId"`
	}
	if got.result == nil || json.Unmarshal(got.result, &s) != nil || s.Status != "pending" {
		return ""
	}
	return s.RequestID
}

// requests requests a tool, and comes back with its id while it waits.
func (v *visitor) requests(tool, arguments string) (id string) {
	v.s.t.Helper()
	got := v.ask("tools/request", `{"name":"`+tool+`","arguments":`+arguments+`,"reason":"for maintenance"}`)
	if id = pendingID(got); id == "" {
		v.s.t.Fatalf("%s: it does not wait: %s", v.era, got)
	}
	return id
}

// fetches comes again for what came of a request.
func (v *visitor) fetches(id, tool, arguments string) echo {
	v.s.t.Helper()
	return v.ask("tools/request", `{"name":"`+tool+`","arguments":`+arguments+`,"requestId":`+inText(id)+`}`)
}

// fulfilling are the params of a call that fulfils a request.
func fulfilling(id, of, tool, arguments string) string {
	return `{"name":"` + tool + `","arguments":` + arguments + `,"onBehalfOf":` + inText(of) + `,"requestId":` + inText(id) + `}`
}

// fulfils calls what was requested.
func (v *visitor) fulfils(id, of, tool, arguments string) echo {
	v.s.t.Helper()
	return v.ask("tools/call", fulfilling(id, of, tool, arguments))
}

// says reports whether the error says something, by a code.
func (a echo) says(code int, what string) bool {
	return a.code() == code && strings.Contains(a.fault.Message, what)
}

const noRequest = "no request of that id waits here"

// names fails unless a result has the two who have a part in it.
func names(t testing.TB, what string, got echo, by, requester string) {
	t.Helper()
	var result struct {
		By   string            `json:"fulfilledBy"`
		For  string            `json:"originalRequester"`
		Meta map[string]string `json:"_meta"`
	}
	if !got.ran() || json.Unmarshal(withoutServerInfo(got.result), &result) != nil {
		t.Errorf("%s: %s", what, got)
		return
	}
	_, shortBy, _ := strings.Cut(by, "/")
	_, shortFor, _ := strings.Cut(requester, "/")
	if result.By != shortBy || result.For != shortFor || result.Meta["io.policy-service/fulfilledBy"] != by || result.Meta["io.policy-service/originalRequester"] != requester {
		t.Errorf("%s: it is fulfilled by %q for %q, %v", what, result.By, result.For, result.Meta)
	}
}

func withoutServerInfo(result jsontext.Value) []byte {
	var all map[string]jsontext.Value
	var meta map[string]jsontext.Value
	if json.Unmarshal(result, &all) != nil || json.Unmarshal(all["_meta"], &meta) != nil {
		return result
	}
	delete(meta, "io.modelcontextprotocol/serverInfo")
	all["_meta"], _ = json.Marshal(meta)
	text, _ := json.Marshal(all)
	return text
}

// pendingRequest is what is told of a request.
type pendingRequest struct {
	Method string `json:"method"`
	Params struct {
		Type      string                    `json:"type"`
		Requester string                    `json:"requester"`
		Target    string                    `json:"target"`
		Tool      string                    `json:"tool"`
		Arguments jsontext.Value            `json:"arguments"`
		RequestID string                    `json:"requestId"`
		Reason    string                    `json:"reason"`
		Meta      map[string]jsontext.Value `json:"_meta"`
	} `json:"params"`
}

// nextRequest is the next that somebody is told, which must be of a request.
func (e *ear) nextRequest() (p pendingRequest) {
	e.t.Helper()
	m := e.next("notifications/tools/request_pending")
	orFail(e.t, json.Unmarshal([]byte(m.text), &p))
	return p
}

// Of all who would fulfil a request one does.
func TestRequestOnce(t *testing.T) {
	t.Parallel()
	a := newAgora(t, land{})
	for _, era := range eras {
		arguments := `{"of":"` + era + `"}`
		id := a.restricted(era, "alice").requests("free", arguments)
		var all []*visitor
		for n := range 64 {
			all = append(all, a.user(eras[n%2], []string{"mia", "noah", "zoe", "alice"}[n%4]))
		}
		before, came, begin := len(a.forwarded("free")), make(chan echo, len(all)), make(chan struct{})
		for _, v := range all {
			go func() {
				<-begin
				came <- v.fulfils(id, "restricted", "free", arguments)
			}()
		}
		close(begin)
		ran := 0
		for range all {
			switch got := <-came; {
			case got.ran():
				ran++
			case !got.says(-32602, "fulfilled already"):
				t.Errorf("%s: %s", era, got)
			}
		}
		if sent := a.forwarded("free")[before:]; ran != 1 || !slices.Equal(sent, []string{arguments}) {
			t.Errorf("%s: %d fulfilled it, and the server got %q", era, ran, sent)
		}
	}
}

// Whoever may not request a tool any more gets nothing from it, and neither does one whose token has expired: the request is over,
// and nothing is sent.
func TestRequestDeniedMeanwhile(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		a := newAgora(t, land{change: func(c *mcp.Config) { c.ToolRequests.TTL = 5 * time.Hour }})
		requester := a.restricted(era, "alice")
		id := requester.requests("free", `{"n":1}`)
		a.rule(strings.Replace(requestPolicies, `unless { resource == tool::"rec:never" }`, `unless { resource == tool::"rec:free" }`, 1))
		mia := a.user(era, "mia")
		mia.fulfils(id, "restricted", "free", `{"n":1}`).refused(t, -32001, "tool_call_blocked", "may not request it any more", era)
		a.rule(requestPolicies)
		mia.fulfils(id, "restricted", "free", `{"n":1}`).refused(t, -32602, "", "fulfilled already", era, "then")
		requester.fetches(id, "free", `{"n":1}`).refused(t, -32001, "", "Access denied", era, "the requester")
		id = requester.requests("free", `{"n":2}`)
		a.advance(2 * time.Hour)
		a.user(era, "mia").fulfils(id, "restricted", "free", `{"n":2}`).refused(t, -32001, "", "expired", era)
		a.restricted(era, "alice").fetches(id, "free", `{"n":2}`).refused(t, -32001, "", "had expired", era, "the requester")
		a.untouched(t)
	}
}

// A tool that has become another is not what was requested.
func TestRequestOfAnotherTool(t *testing.T) {
	t.Parallel()
	other := false
	a := newAgora(t, land{change: func(c *mcp.Config) { c.List.Cache = time.Millisecond }, answers: mcptest.Answers{Handle: func(c *mcptest.Call) bool {
		if c.Method == "tools/list" && other {
			result := `{"tools":[{"name":"free","description":"another","inputSchema":{"type":"object"}}]`
			if c.Modern {
				result += `,"resultType":"complete","ttlMs":0,"cacheScope":"private"`
			}
			c.Result(result + `}`)
			return true
		}
		return false
	}}})
	requester := a.restricted("modern", "alice")
	id := requester.requests("free", `{}`)
	other = true
	a.advance(time.Second)
	a.user("legacy", "mia").fulfils(id, "restricted", "free", `{}`).refused(t, -32602, "", "not the one that was requested")
	a.untouched(t)
}

// A permit that owes more when a request is fulfilled than when it was made counts as well.
func TestRequestOwesMore(t *testing.T) {
	t.Parallel()
	a := newAgora(t, land{answers: mcptest.Answers{Handle: func(c *mcptest.Call) bool {
		if c.Method == "tools/call" {
			c.Result(`{"structuredContent":{"ssn":"s-1","pay":"p-1"},"content":[]}`)
		}
		return c.Method == "tools/call"
	}, Eras: []string{"legacy"}}})
	requester := a.restricted("modern", "alice")
	id := requester.requests("free", `{}`)
	a.rule(requestPolicies + `@id("later") @obligation("mask-pay") permit (principal == agent::"restricted", action == Action::"tool.request", resource);`)
	if got := a.user("legacy", "mia").fulfils(id, "restricted", "free", `{}`); !strings.Contains(got.text, "p-1") {
		t.Errorf("%s", got)
	}
	a.rule(requestPolicies)
	if got := requester.fetches(id, "free", `{}`); !got.ran() || strings.Contains(got.text, "p-1") || !strings.Contains(got.text, "s-1") {
		t.Errorf("%s", got)
	}
}
