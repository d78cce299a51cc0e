package mcp_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/mcp"
	"policy-service/pdp/mcp/mcptest"
)

// requestPolicies are beside those of people: the agent that is called "restricted" may request all tools, and calls none. Mia and noah fulfil, and
// so does alice herself.
const requestPolicies = `
@id("request") permit (principal == agent::"restricted", action == Action::"tool.request", resource);
@id("fulfil") permit (principal is user, action == Action::"tool.fulfil", resource) unless { principal == user::"eve" };
@id("restricted") forbid (principal == agent::"restricted", action == Action::"tool.invoke", resource);
`

// agora is a world in which somebody requests what others call.
type agora struct{ *world }

func newAgora(t testing.TB, of land) agora {
	t.Helper()
	files := map[string]string{"requests.cedar": requestPolicies}
	for name, text := range of.files {
		files[name] = text
	}
	of.files = files
	change := of.change
	of.change = func(c *mcp.Config) {
		c.Approvals.Wait = 10e9
		if change != nil {
			change(c)
		}
	}
	return agora{newPeople(t, of)}
}

// restricted is alice's restricted agent.
func (a agora) restricted(era string) *visitor {
	return a.visitor(era, mcptest.Claims{"client_id": "restricted"})
}

// user is somebody without an agent.
func (a agora) user(era, name string) *visitor {
	return a.visitor(era, mcptest.Claims{"sub": name, "client_id": nil})
}

// requested is a request for a tool that is under way.
type requestedTool struct {
	id   string
	over chan echo
}

// status is what a request is answered that waits.
type pendingStatus struct {
	Status    string `json:"status"`
	RequestID string `json:"requestId"`
}

// pending is the id of a request that waits, "" if it is none.
func pendingID(got echo) string {
	var s pendingStatus
	if got.result == nil || json.Unmarshal(got.result, &s) != nil || s.Status != "pending" {
		return ""
	}
	return s.RequestID
}

// requests requests a tool, and comes back at once with its id.
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

// fulfils calls what was requested.
func (v *visitor) fulfils(id, of, tool, arguments string) echo {
	v.s.t.Helper()
	return v.ask("tools/call", `{"name":"`+tool+`","arguments":`+arguments+`,"onBehalfOf":`+inText(of)+`,"requestId":`+inText(id)+`}`)
}

// quick has a request not wait.
func quick(c *mcp.Config) { c.Approvals.Wait = 100e6 }

// A request is fulfilled once, exactly as it was made, by whoever may, in whichever era; both get the result.
func TestRequestFulfilled(t *testing.T) {
	a := newAgora(t, land{change: quick})
	for _, one := range eras {
		for _, other := range eras {
			requester, mia := a.restricted(one), a.user(other, "mia")
			arguments := `{"b": 1,  "a":["\u006e","` + one + other + `"]}`
			if got := requester.call("free", arguments); got.kind() != "tool_call_blocked" || !strings.Contains(got.text, `"suggestion":"call tools/request"`) {
				t.Errorf("%s: %s", one, got)
			}
			id := requester.requests("free", arguments)
			if again := pendingID(requester.fetches(id, "free", arguments)); again != id {
				t.Errorf("%s: it waits by another id", one)
			}
			before := len(a.forwarded("free"))
			got := mia.fulfils(id, "restricted", "free", `{"a":["n","`+one+other+`"],"b":1}`)
			fetched := requester.fetches(id, "free", arguments)
			for _, result := range []echo{got, fetched} {
				if !result.ran() || !strings.Contains(string(result.result), `"text":"ran"`) || !strings.Contains(string(result.result), `"fulfilledBy":"mia"`) || !strings.Contains(string(result.result), `"originalRequester":"restricted"`) ||
					!strings.Contains(string(result.result), `"io.policy-service/fulfilledBy":"user/mia"`) || !strings.Contains(string(result.result), `"io.policy-service/originalRequester":"agent/restricted"`) {
					t.Errorf("%s for %s: %s", other, one, result)
				}
			}
			if all := a.forwarded("free"); len(all) != before+1 || all[before] != arguments {
				t.Errorf("%s for %s: the server got %q", other, one, all[before:])
			}
			for _, g := range a.rec.Executed() {
				for _, ours := range []string{"onBehalfOf", "requestId", "reason", "io.policy-service"} {
					if strings.Contains(string(g.Params), ours) {
						t.Errorf("the server gets %s: %s", ours, g.Params)
					}
				}
			}
			if late := mia.fulfils(id, "restricted", "free", arguments); late.code() != -32602 || !strings.Contains(late.text, "fulfilled already") {
				t.Errorf("a second time: %s", late)
			}
		}
	}
}
