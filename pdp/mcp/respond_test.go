package mcp_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/mcp/mcptest"
)

// Tests of authorization/respond, by which somebody decides about what waits for people, whoever calls.

const respondMethod = "authorization/respond"

// rules are the params by which somebody decides. More has further members, with a comma before them.
func rules(id, decision, more string) string {
	return `{"authorizationId":` + inText(id) + `,"decision":"` + decision + `"` + more + `}`
}

// utters sends a message that has no id, as a client does.
func (v *visitor) utters(method, params string) echo {
	v.s.t.Helper()
	return v.send(`{"jsonrpc":"2.0","method":"`+method+`","params":`+v.params(params)+`}`, v.headers(method, params)...)
}

// responded fails unless a vote was taken, and has become something.
func responded(t testing.TB, got echo, id, status string) {
	t.Helper()
	var said struct {
		ID     string `json:"authorizationId"`
		Status string `json:"status"`
	}
	if !got.ran() || json.Unmarshal(got.result, &said) != nil || said.ID != id || said.Status != status {
		t.Errorf("%s, want that it is %s", got, status)
	}
}

// as is a client of an era with the token of somebody, for no agent.
func (s *siege) as(era, who string) *visitor {
	s.t.Helper()
	return s.visitor(era, mcptest.Claims{"sub": who, "client_id": "desk-of-" + who})
}

// Decisions are counted by how they ended, whether they have an id or not.
func TestRespondIsCounted(t *testing.T) {
	t.Parallel()
	reader, deps := metered()
	w := newPeople(t, land{change: hasten, deps: deps})
	id := required(t, w.plain("legacy").call("delegable", `{}`)).ID
	mia := w.as("legacy", "mia")
	mia.utters(respondMethod, rules(id, "perhaps", "")).has(t, http.StatusAccepted)
	responded(t, mia.ask(respondMethod, rules(id, "approve", "")), id, "approved")
	mia.utters(respondMethod, rules(id, "approve", "")).has(t, http.StatusAccepted)
	if got := fmt.Sprint(callsCounted(reader, respondMethod)); got != "map[answered:1 refused:2]" {
		t.Error(got)
	}
}
