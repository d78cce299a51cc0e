package mcp_test

import (
	"fmt"
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
// calls some. People fulfil, but for eve. What each may see of "free" is not the same.
const requestPolicies = `
@id("request") permit (principal, action == Action::"tool.request", resource)
when { principal == agent::"restricted" || principal == user::"noah" } unless { resource == tool::"rec:never" };
@id("fulfil") permit (principal is user, action == Action::"tool.fulfil", resource) unless { principal == user::"eve" };
@id("restricted") forbid (principal == agent::"restricted", action == Action::"tool.invoke", resource);
@id("requested-mask") @obligation("mask-ssn") permit (principal == agent::"restricted", action == Action::"tool.request", resource == tool::"rec:free") when { context.arguments has masked };
@id("fulfil-mask") @obligation("mask-name") permit (principal == user::"zoe", action == Action::"tool.fulfil", resource) when { context.arguments has masked };
@id("invoke-mask") @obligation("mask-pay") permit (principal == user::"zoe", action == Action::"tool.invoke", resource) when { context.arguments has masked };
`

const requestObligations = `
mask-ssn: {type: redact, properties: {fields: [/ssn]}}
mask-name: {type: redact, properties: {fields: [/name]}}
mask-pay: {type: redact, properties: {fields: [/pay]}}
`

// requestEntities: mia has another account.
const requestEntities = `[{"uid":{"type":"user","id":"noah"},"attrs":{"identities":[{"__entity":{"type":"user","id":"noah.admin"}}]},"parents":[{"type":"team","id":"operators"}]},
{"uid":{"type":"user","id":"mia"},"attrs":{},"parents":[{"type":"team","id":"operators"}]},
{"uid":{"type":"user","id":"zoe"},"attrs":{},"parents":[{"type":"team","id":"operators"}]},
{"uid":{"type":"user","id":"noah.admin"},"attrs":{},"parents":[]},
{"uid":{"type":"user","id":"alice"},"attrs":{},"parents":[]},
{"uid":{"type":"user","id":"eve"},"attrs":{},"parents":[]}]`

// agora is a world in which somebody requests what others call.
type agora struct {
	*world
	dir string // of the bundle
}

// newAgora has a request not wait, unless the land says otherwise.
func newAgora(t testing.TB, of land) agora {
	t.Helper()
	files := map[string]string{
		"people.cedar": peoplePolicies, "requests.cedar": requestPolicies, "obligations.yaml": peopleObligations + requestObligations, "entities/people.json": requestEntities,
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

// forged is an id with one character changed.
func forged(id string) string {
	other := "A"
	if id[20] == 'A' {
		other = "B"
	}
	return id[:20] + other + id[21:]
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

// toldOf is the id of the next request that somebody is told of.
func toldOf(e *ear) (id string) {
	e.t.Helper()
	e.welcomed()
	return e.nextRequest().Params.RequestID
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

// A request is fulfilled once, exactly as it was made, by whoever may, in whichever era; both get the result.
func TestRequestFulfilled(t *testing.T) {
	t.Parallel()
	a := newAgora(t, land{})
	for _, one := range eras {
		for _, other := range eras {
			of := other + " for " + one
			requester, mia := a.restricted(one, "alice"), a.user(other, "mia")
			arguments := `{"b": 1,  "a":["\u006e","` + one + other + `"]}`
			id := requester.requests("free", arguments)
			if got := requester.call("free", arguments); got.kind() != "tool_call_blocked" || !strings.Contains(got.text, `"suggestion":"call tools/request"`) {
				t.Errorf("%s: %s", one, got)
			}
			if pendingID(requester.fetches(id, "free", arguments)) != id {
				t.Errorf("%s: it does not wait any longer", of)
			}
			before := len(a.forwarded("free"))
			names(t, of+", the call", mia.fulfils(id, "restricted", "free", `{"a":["n","`+one+other+`"],"b":1}`), "user/mia", "agent/restricted")
			for range 2 { // also a second time
				got := requester.fetches(id, "free", arguments)
				names(t, of+", the request", got, "user/mia", "agent/restricted")
				if has := strings.Contains(got.text, `"resultType":"complete"`); has != (one == "modern") {
					t.Errorf("%s: %s", of, got)
				}
			}
			if all := a.forwarded("free"); len(all) != before+1 || all[before] != arguments {
				t.Errorf("%s: the server got %q", of, all[before:])
			}
		}
	}
	for _, g := range a.rec.Executed() {
		for _, ours := range []string{"onBehalfOf", "requestId", "maintenance", "io.policy-service"} {
			if strings.Contains(string(g.Body), ours) {
				t.Errorf("the server gets %s: %s", ours, g.Body)
			}
		}
	}
}

// Who waits gets the result as soon as it is there, and hears that somebody is waited for.
func TestRequestWaits(t *testing.T) {
	t.Parallel()
	a := newAgora(t, land{change: func(c *mcp.Config) { c.Approvals.Wait = 25 * time.Second }})
	for n, era := range eras {
		requester, mia := a.restricted(era, "alice"), a.user(era, "mia")
		requester.meta = `,"progressToken":"p"`
		arguments := fmt.Sprintf(`{"n":%d}`, n)
		over := make(chan echo, 1)
		go func() {
			over <- requester.ask("tools/request", `{"name":"free","arguments":`+arguments+`}`)
		}()
		mia.meta = `,"io.policy-service/onBehalfOf":"restricted","io.policy-service/requestId":` + inText(toldOf(mia.listens()))
		names(t, era+", the call", mia.call("free", arguments), "user/mia", "agent/restricted")
		got := <-over
		names(t, era+", the request", got, "user/mia", "agent/restricted")
		if len(got.before) == 0 || !strings.Contains(string(got.before[0]), "somebody else must fulfil") {
			t.Errorf("%s: it hears %s", era, got.before)
		}
	}
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

// Whatever is no fulfilment of a request is refused, each for its own reason, and the request waits on as if nothing had been.
func TestRequestRefused(t *testing.T) {
	t.Parallel()
	a := newAgora(t, land{})
	const arguments = `{"a":1,"b":[2]}`
	for _, one := range eras {
		requester := a.restricted(one, "alice")
		for _, other := range eras {
			id, mia := requester.requests("free", arguments), a.user(other, "mia")
			for name, test := range map[string]struct {
				by     *visitor
				params string
				code   int
				says   string
			}{
				"the same principal":    {a.restricted(other, "alice"), fulfilling(id, "restricted", "free", arguments), -32001, "nobody fulfils a request of their own"},
				"the same subject":      {a.restricted(other, "zoe"), fulfilling(id, "restricted", "free", arguments), -32001, "nobody fulfils a request of their own"},
				"no such request":       {mia, fulfilling("x", "restricted", "free", arguments), -32602, noRequest},
				"a forged id":           {mia, fulfilling(forged(id), "restricted", "free", arguments), -32602, noRequest},
				"a bare id":             {mia, fulfilling("restricted", "restricted", "free", arguments), -32602, noRequest},
				"a cursor":              {mia, fulfilling(id+id, "restricted", "free", arguments), -32602, noRequest},
				"of somebody else":      {mia, fulfilling(id, "alice", "free", arguments), -32602, "names somebody else"},
				"by the full name":      {mia, fulfilling(id, "agent/restricted", "free", arguments), -32602, "names somebody else"},
				"other arguments":       {mia, fulfilling(id, "restricted", "free", `{"a":1,"b":[3]}`), -32602, "other arguments"},
				"more arguments":        {mia, fulfilling(id, "restricted", "free", `{"a":1,"b":[2],"c":null}`), -32602, "other arguments"},
				"no arguments":          {mia, `{"name":"free","onBehalfOf":"restricted","requestId":` + inText(id) + `}`, -32602, "other arguments"},
				"another tool":          {mia, fulfilling(id, "restricted", "confirm", arguments), -32602, "for another tool"},
				"no tool":               {mia, fulfilling(id, "restricted", "nonexistent", arguments), -32602, "unknown tool"},
				"without onBehalfOf":    {mia, `{"name":"free","arguments":` + arguments + `,"requestId":` + inText(id) + `}`, -32602, "onBehalfOf"},
				"without requestId":     {mia, `{"name":"free","arguments":` + arguments + `,"onBehalfOf":"restricted"}`, -32602, "requestId"},
				"an empty requestId":    {mia, `{"name":"free","arguments":` + arguments + `,"onBehalfOf":"restricted","requestId":""}`, -32602, "requestId"},
				"a number":              {mia, `{"name":"free","arguments":` + arguments + `,"onBehalfOf":"restricted","requestId":7}`, -32602, "requestId"},
				"two requesters":        {mia, strings.TrimSuffix(fulfilling(id, "restricted", "free", arguments), "}") + `,"_meta":{"io.policy-service/onBehalfOf":"alice"}}`, -32602, "onBehalfOf"},
				"two requests":          {mia, strings.TrimSuffix(fulfilling(id, "restricted", "free", arguments), "}") + `,"_meta":{"io.policy-service/requestId":"x"}}`, -32602, "requestId"},
				"denied by tool.fulfil": {a.user(other, "eve"), fulfilling(id, "restricted", "free", arguments), -32001, "Access denied"},
				"an agent that may not": {a.visitor(other, nil), fulfilling(id, "restricted", "free", arguments), -32001, "Access denied"},
			} {
				if strings.HasPrefix(name, "two") && other == "modern" {
					continue // whose _meta is its own
				}
				if got := test.by.ask("tools/call", test.params); !got.says(test.code, test.says) || test.code == -32001 && got.kind() != "tool_call_blocked" {
					t.Errorf("%s for %s, %s: %s", other, one, name, got)
				}
			}
			if a.untouched(t); t.Failed() {
				t.FailNow()
			}
			if pendingID(requester.fetches(id, "free", arguments)) != id {
				t.Errorf("%s for %s: it does not wait any longer", other, one)
			}
		}
	}
	// What is denied of the call itself leaves the request, too.
	noah := a.user("modern", "noah")
	id := noah.requests("confirm", `{"blocked":true}`)
	if got := a.user("legacy", "mia").fulfils(id, "noah", "confirm", `{"blocked":true}`); got.code() != -32001 || got.kind() != "tool_call_blocked" {
		t.Errorf("denied by tool.invoke: %s", got)
	}
	if pendingID(noah.fetches(id, "confirm", `{"blocked":true}`)) != id {
		t.Error("it does not wait any longer")
	}
	// The PDP knows who noah is, too.
	id = noah.requests("free", `{}`)
	if got := a.visitor("legacy", mcptest.Claims{"sub": "noah"}).fulfils(id, "noah", "free", `{}`); !got.says(-32001, "nobody fulfils a request of their own") {
		t.Errorf("by an agent of the same person: %s", got)
	}
	if got := a.user("modern", "noah.admin").fulfils(id, "noah", "free", `{}`); got.code() != -32001 || got.kind() != "tool_call_blocked" {
		t.Errorf("the same person by another name: %s", got)
	}
	a.untouched(t)
	names(t, "in the end", a.user("modern", "mia").fulfils(id, "noah", "free", `{}`), "user/mia", "user/noah")
}

// A request is its requester's alone, and for the tool and the arguments that it was made for.
func TestRequestComesAgain(t *testing.T) {
	t.Parallel()
	a := newAgora(t, land{})
	for _, era := range eras {
		requester := a.restricted(era, "alice")
		id := requester.requests("free", `{"a":1}`)
		for name, test := range map[string]struct {
			got  echo
			code int
			says string
		}{
			"another's":       {a.restricted(era, "zoe").fetches(id, "free", `{"a":1}`), -32602, noRequest},
			"another agent's": {a.user(era, "noah").fetches(id, "free", `{"a":1}`), -32602, noRequest},
			"other arguments": {requester.fetches(id, "free", `{"a":2}`), -32602, "has other arguments"},
			"another tool":    {requester.fetches(id, "confirm", `{"a":1}`), -32602, "for another tool"},
			"forged":          {requester.fetches(forged(id), "free", `{"a":1}`), -32602, noRequest},
			"of nobody":       {requester.fetches("x", "free", `{"a":1}`), -32602, noRequest},
			"denied":          {requester.ask("tools/request", `{"name":"never","arguments":{}}`), -32001, "Access denied"},
			"no tool":         {requester.ask("tools/request", `{"name":"nonexistent","arguments":{}}`), -32602, "unknown tool"},
			"no arguments":    {requester.ask("tools/request", `{"name":"free","arguments":[]}`), -32602, "arguments"},
			"no name":         {requester.ask("tools/request", `{"arguments":{}}`), -32602, ""},
			"no reason":       {requester.ask("tools/request", `{"name":"free","arguments":{},"reason":7}`), -32602, "reason"},
			"who may call":    {a.visitor(era, nil).ask("tools/request", `{"name":"free","arguments":{}}`), -32001, "Access denied"},
		} {
			if !test.got.says(test.code, test.says) {
				t.Errorf("%s, %s: %s", era, name, test.got)
			}
		}
		again := a.restricted(era, "alice") // by another session
		if pendingID(again.fetches(id, "free", ` {"a" : 1}`)) != id {
			t.Errorf("%s: it does not wait any longer", era)
		}
	}
	if got := a.restricted("modern", "alice").ask("tools/request", `{"name":"free","arguments":{}}`, "Mcp-Name", "confirm"); got.status != 400 || got.code() != -32020 {
		t.Errorf("a header says something else: %s", got)
	}
	if got := a.restricted("modern", "alice").ask("tools/request", `{"name":"free","arguments":{}}`, "Mcp-Name", "free"); pendingID(got) == "" {
		t.Errorf("a header says the same: %s", got)
	}
	a.untouched(t)
}

// Without our own question there is no such method, and nothing can be fulfilled.
func TestRequestUnknownMethod(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*mcp.Config){
		"coaz": func(c *mcp.Config) { c.Ask = mcp.AskCOAZ }, "strict": func(c *mcp.Config) { c.Strict = true },
	} {
		s := newSiege(t, camp{change: change})
		v := s.visitor("legacy", nil)
		for _, tool := range []string{"look", "nonexistent"} {
			if got := v.ask("tools/request", `{"name":"`+tool+`","arguments":{}}`); got.code() != -32601 || got.kind() != "unknown_method" {
				t.Errorf("%s: %s", name, got)
			}
		}
		if got := v.fulfils("x", "alice", "look", `{}`); !got.says(-32602, noRequest) {
			t.Errorf("%s: %s", name, got)
		}
		s.untouched(t)
	}
}

// What waits too long is gone; so is what came of a request that nobody fetches.
func TestRequestExpires(t *testing.T) {
	t.Parallel()
	a := newAgora(t, land{})
	requester, mia := a.restricted("legacy", "alice"), a.user("modern", "mia")
	id, done := requester.requests("free", `{"n":1}`), requester.requests("free", `{"n":2}`)
	names(t, "the call", mia.fulfils(done, "restricted", "free", `{"n":2}`), "user/mia", "agent/restricted")
	a.advance(15 * time.Minute)
	for name, got := range map[string]echo{
		"a fulfilment": mia.fulfils(id, "restricted", "free", `{"n":1}`), "the request": requester.fetches(id, "free", `{"n":1}`),
		"its result": requester.fetches(done, "free", `{"n":2}`), "a second time": mia.fulfils(done, "restricted", "free", `{"n":2}`),
	} {
		if !got.says(-32602, noRequest) {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := a.forwarded("free"); !slices.Equal(got, []string{`{"n":2}`}) {
		t.Errorf("the server got %q", got)
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
		if got := mia.fulfils(id, "restricted", "free", `{"n":1}`); !got.says(-32001, "may not request it any more") || got.kind() != "tool_call_blocked" {
			t.Errorf("%s: %s", era, got)
		}
		a.rule(requestPolicies)
		if got := mia.fulfils(id, "restricted", "free", `{"n":1}`); !got.says(-32602, "fulfilled already") {
			t.Errorf("%s, then: %s", era, got)
		}
		if got := requester.fetches(id, "free", `{"n":1}`); !got.says(-32001, "Access denied") {
			t.Errorf("%s: who has requested it hears %s", era, got)
		}
		id = requester.requests("free", `{"n":2}`)
		a.advance(2 * time.Hour)
		if got := a.user(era, "mia").fulfils(id, "restricted", "free", `{"n":2}`); !got.says(-32001, "expired") {
			t.Errorf("%s, expired: %s", era, got)
		}
		if got := a.restricted(era, "alice").fetches(id, "free", `{"n":2}`); !got.says(-32001, "had expired") {
			t.Errorf("%s, expired, and who has requested it hears %s", era, got)
		}
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
	if got := a.user("legacy", "mia").fulfils(id, "restricted", "free", `{}`); !got.says(-32602, "not the one that was requested") {
		t.Errorf("%s", got)
	}
	a.untouched(t)
}

// Each sees of the result what each may see, and what is withheld from one is not from the other.
func TestRequestRedacted(t *testing.T) {
	t.Parallel()
	result := `{"structuredContent":{"ssn":"s-1","name":"n-1","pay":"p-1","rest":"r-1"},"content":[]}`
	a := newAgora(t, land{answers: mcptest.Answers{Handle: func(c *mcptest.Call) bool {
		if c.Method != "tools/call" {
			return false
		}
		if c.Modern {
			c.Result(`{"resultType":"complete",` + result[1:])
		} else {
			c.Result(result)
		}
		return true
	}}})
	for _, one := range eras {
		for _, other := range eras {
			requester, zoe := a.restricted(one, "alice"), a.user(other, "zoe")
			id := requester.requests("free", `{"masked":1}`)
			called := zoe.fulfils(id, "restricted", "free", `{"masked":1}`)
			got := requester.fetches(id, "free", `{"masked":1}`)
			names(t, "the call", called, "user/zoe", "agent/restricted")
			names(t, "the request", got, "user/zoe", "agent/restricted")
			for text, sees := range map[string][2]bool{"s-1": {true, false}, "n-1": {false, true}, "p-1": {false, true}, "r-1": {true, true}} {
				if has := [2]bool{strings.Contains(called.text, text), strings.Contains(got.text, text)}; has != sees {
					t.Errorf("%s for %s, %s: they see %v: %s, %s", other, one, text, has, called, got)
				}
			}
		}
	}
	old := result
	result = `{"structuredContent":7,"content":[]}`
	requester := a.restricted("modern", "alice")
	id := requester.requests("free", `{"masked":1}`)
	if got := a.user("legacy", "mia").fulfils(id, "restricted", "free", `{"masked":1}`); !got.ran() {
		t.Errorf("what is withheld from who has requested it: %s", got)
	}
	if got := requester.fetches(id, "free", `{"masked":1}`); got.kind() != "withheld" {
		t.Errorf("%s", got)
	}
	noah := a.user("modern", "noah")
	id = noah.requests("free", `{"masked":1}`)
	if got := a.user("legacy", "zoe").fulfils(id, "noah", "free", `{"masked":1}`); got.kind() != "withheld" {
		t.Errorf("%s", got)
	}
	if got := noah.fetches(id, "free", `{"masked":1}`); !got.ran() {
		t.Errorf("what is withheld from who has fulfilled it: %s", got)
	}
	// A permit that owes more when the request is fulfilled than when it was made counts as well.
	result = old
	id = requester.requests("free", `{}`)
	a.rule(requestPolicies + `@id("later") @obligation("mask-pay") permit (principal == agent::"restricted", action == Action::"tool.request", resource);`)
	if got := a.user("legacy", "mia").fulfils(id, "restricted", "free", `{}`); !strings.Contains(got.text, "p-1") {
		t.Errorf("%s", got)
	}
	a.rule(requestPolicies)
	if got := requester.fetches(id, "free", `{}`); !got.ran() || strings.Contains(got.text, "p-1") || !strings.Contains(got.text, "s-1") {
		t.Errorf("%s", got)
	}
}
