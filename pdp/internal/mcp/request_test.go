package mcp_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/pdptest/mcptest"
)

// requestPolicies are beside those of people. The agent restricted, whoever it is for, requests tools and calls none; so does noah, who
// calls some. People fulfil, but for eve.
const requestPolicies = `
@id("request") permit (principal, action == Action::"tool.request", resource)
when { principal == agent::"restricted" || principal == user::"noah" } unless { resource == tool::"rec:never" };
@id("fulfil") permit (principal is user, action == Action::"tool.fulfil", resource) unless { principal == user::"eve" };
@id("restricted") forbid (principal == agent::"restricted", action == Action::"tool.invoke", resource);
`

// newAgora is a world in which somebody requests what others call. A request does not wait, unless the land says otherwise.
func newAgora(t testing.TB, of land) *world {
	t.Helper()
	files := map[string]string{"requests.cedar": requestPolicies}
	maps.Copy(files, of.files)
	change := of.change
	of.files, of.change = files, func(c *mcp.Config) {
		hasten(c)
		if os.Getenv(atPDP) != "" {
			c.ToolRequests.Keep = mcp.KeepAtPDP
		}
		if change != nil {
			change(c)
		}
	}
	return newPeople(t, of)
}

// restricted is the restricted agent of somebody.
func (w *world) restricted(era, of string) *visitor {
	return w.visitor(era, mcptest.Claims{"sub": of, "client_id": "restricted"})
}

// user is somebody without an agent.
func (w *world) user(era, name string) *visitor {
	return w.visitor(era, mcptest.Claims{"sub": name, "client_id": nil})
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
		By   string `json:"fulfilledBy"`
		For  string `json:"originalRequester"`
		Meta struct {
			By  string `json:"io.policy-service/fulfilledBy"`
			For string `json:"io.policy-service/originalRequester"`
		} `json:"_meta"`
	}
	if !got.ran() || json.Unmarshal(got.result, &result) != nil {
		t.Errorf("%s: %s", what, got)
		return
	}
	_, shortBy, _ := strings.Cut(by, "/")
	_, shortFor, _ := strings.Cut(requester, "/")
	if result.By != shortBy || result.For != shortFor || result.Meta.By != by || result.Meta.For != requester {
		t.Errorf("%s: it is fulfilled by %q for %q, %v", what, result.By, result.For, result.Meta)
	}
}

// pendingRequest is what is told of a request.
type pendingRequest struct {
	Params struct {
		Requester string         `json:"requester"`
		Tool      string         `json:"tool"`
		Arguments jsontext.Value `json:"arguments"`
		RequestID string         `json:"requestId"`
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
		a.fulfilledOnce(id, arguments, all)
	}
}

// fulfilledOnce has many fulfil a request at the same time, and fails unless one does.
func (w *world) fulfilledOnce(id, arguments string, all []*visitor) {
	w.t.Helper()
	before, came, begin := len(w.forwarded("free")), make(chan echo, len(all)), make(chan struct{})
	for _, v := range all {
		go func() {
			<-begin
			came <- v.fulfils(id, "restricted", "free", arguments)
		}()
	}
	close(begin)
	ran := 0
	for range all {
		if got := <-came; got.ran() {
			ran++
		} else {
			got.refused(w.t, -32602, "", "fulfilled already", arguments)
		}
	}
	if sent := w.forwarded("free")[before:]; ran != 1 || !slices.Equal(sent, []string{arguments}) {
		w.t.Errorf("%d fulfilled it, and the server got %q", ran, sent)
	}
}

// The id of a request is of its tenant: in another there is none.
func TestRequestTenants(t *testing.T) {
	t.Parallel()
	var there *mcptest.Issuer
	a := newAgora(t, land{change: func(c *mcp.Config) {
		there = mcptest.NewIssuer(t, siegeResource, time.Now)
		one := c.Identity.Issuers[0]
		one.Tenant = "default"
		other := mcp.IssuerConfig{Issuer: there.URL, Algorithms: []string{"ES256"}, JWKSFile: there.KeysFile(t), Tenant: "elsewhere"}
		c.Identity.Issuers = []mcp.IssuerConfig{one, other}
	}})
	requester := a.restricted("modern", "alice")
	id := requester.requests("free", `{}`)
	stranger := a.stranger("modern", there.Token(t, mcptest.Claims{"sub": "mia", "client_id": nil}))
	stranger.fulfils(id, "restricted", "free", `{}`).refused(t, -32602, "", noRequest)
	same := a.stranger("modern", there.Token(t, mcptest.Claims{"sub": "alice", "client_id": "restricted"}))
	same.fetches(id, "free", `{}`).refused(t, -32602, "", noRequest)
	a.untouched(t)
	if pendingID(requester.fetches(id, "free", `{}`)) != id {
		t.Error("it does not wait any longer")
	}
}
