package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"policy-service/pdp/pdptest"
)

// Who asked for what somebody does has no vote on it, by no name of theirs and also after the server has started again; it
// is no other's request, and one that nobody can name asks nobody.
func TestActorsRequesterHasNoVote(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	requestedBy := func(more, typ, id string) string {
		return tool("push", push+more+fmt.Sprintf(`,"requester":{"type":%q,"id":%q}`, typ, id))
	}
	ids := map[string]string{}
	tests := map[string]struct{ body, who string }{
		"the requester":       {requestedBy("", "user", "zoe"), "zoe"},
		"by another name":     {requestedBy("", "user", "mia"), "mia.admin"},
		"the other way round": {requestedBy("", "user", "mia.admin"), "mia"},
		"their agent":         {requestedBy("", "agent", "helper"), "noah"},
		"beside the chain":    {requestedBy(`,"on_behalf_of":[{"type":"user","id":"eve"}]`, "user", "zoe"), "zoe"},
		"beside an agent":     {requestedBy(`,"agent":"x"`, "user", "zoe"), "zoe"},
	}
	for name, test := range tests {
		ids[name] = c.asks("pep", test.body).Approval.ID
		c.says(test.who, ids[name], "decision", yes, http.StatusNotFound)
	}
	c.restart(func() {})
	for name, test := range tests {
		c.says(test.who, ids[name], "decision", yes, http.StatusNotFound)
		if items, _ := c.inbox(test.who, "?limit=200"); strings.Contains(fmt.Sprint(items), ids[name]) {
			t.Errorf("%s: it is offered to them", name)
		}
	}
	c.says("mia", ids["the requester"], "decision", yes, http.StatusOK)
	for _, other := range []string{`"requester":{"type":"user","id":"eve"}`, `"on_behalf_of":[{"type":"user","id":"zoe"}]`, `"trace":"x"`} {
		if c.asks("pep", tool("push", again+","+other), "X-Approval", "none").may() {
			t.Errorf("it counts for %s", other)
		}
	}
	c.asks("pep", strings.Replace(requestedBy("", "user", "zoe"), push, again, 1)).passes(t, "it does not count as it was approved")
	id := c.asks("pep", requestedBy("", "agent", "he1per")).Approval.ID
	has(t, c.besideOf("zoe", id, "why", http.StatusOK, nil), `{"pointer":"/context/requester/id","known":"helper"}`)
	if text := c.besideOf("zoe", id, "elicitation", http.StatusOK, nil); !strings.Contains(text, "as requested by agent/he1per") || strings.Contains(text, "on behalf of") {
		t.Errorf("zoe reads %s", text)
	}
}

// Nobody fulfils their own request over HTTP either: alone or in a batch, in either shape.
func TestFulfilOwnByHTTP(t *testing.T) {
	t.Parallel()
	c := openCounterOn(t, pdptest.Bundle(approvalFiles("f.cedar", `@id("fulfil") permit(principal, action == Action::"tool.fulfil", resource is tool);`)))
	const of = `"action":{"name":"tool.fulfil"},"resource":{"type":"tool","id":"free"},"context":{"requester":{"type":"user","id":"mia"}}`
	for name, test := range map[string]struct{ path, body, want string }{
		"AuthZEN":      {evaluationPath, `{"subject":{"type":"user","id":"mia.admin"},` + of + `}`, `{"decision":false,"context":{"reason":"own_request"}}`},
		"another's":    {evaluationPath, `{"subject":{"type":"user","id":"zoe"},` + of + `}`, `{"decision":true}`},
		"native":       {"/v1/authorize", `{"tenant_id":"default","actor":{"actor_type":"user","actor_id":"mia.admin"},"action":"tool.fulfil","resource":{"type":"tool","id":"free"},"context":{"requester":{"type":"user","id":"mia"}}}`, `{"allow":false,"reason":"own_request"}`},
		"a batch":      {"/access/v1/evaluations", `{` + of + `,"evaluations":[{"subject":{"type":"user","id":"mia"}},{"subject":{"type":"user","id":"zoe"}}]}`, `{"evaluations":[{"decision":false,"context":{"reason":"own_request"}},{"decision":true}]}`},
		"no requester": {evaluationPath, `{"subject":{"type":"user","id":"zoe"},"action":{"name":"tool.fulfil"},"resource":{"type":"tool","id":"free"}}`, `{"decision":false,"context":{"reason":"own_request"}}`},
	} {
		status, text := c.do("pep", "POST", test.path, test.body)
		if strings.TrimSpace(text) != test.want {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
}
