package mcp_test

import (
	"testing"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/pdptest/mcptest"
)

// Tests of authorization/respond, by which somebody decides about what waits for people, whoever calls.

const respondMethod = "authorization/respond"

// rules are the params by which somebody decides. More has further members, with a comma before them.
func rules(id, decision, more string) string {
	return `{"authorizationId":` + inText(id) + `,"decision":"` + decision + `"` + more + `}`
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
