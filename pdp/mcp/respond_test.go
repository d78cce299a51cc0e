package mcp_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

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

// unheard fails unless a message without an id was taken, and nothing was said of it.
func unheard(t testing.TB, got echo) {
	t.Helper()
	if got.status != http.StatusAccepted || got.text != "" {
		t.Errorf("%s, want 202 and nothing more", got)
	}
}

// as is a client of an era with the token of somebody, for no agent.
func (s *siege) as(era, who string) *visitor {
	s.t.Helper()
	return s.visitor(era, mcptest.Claims{"sub": who, "client_id": "desk-of-" + who})
}

// A vote says of an approval until when it counts, and without a reason the plain fact.
func TestRespondValidUntil(t *testing.T) {
	inEras(t, func(t *testing.T, era string) {
		w := newPeople(t, land{change: hasten})
		caller, mia := w.plain(era), w.as(era, "mia")
		id := required(t, caller.call("delegable", `{}`)).ID
		until := w.now().Add(time.Minute).UTC().Truncate(time.Second).Format(time.RFC3339)
		responded(t, mia.ask(respondMethod, rules(id, "approve", `,"validUntil":"`+until+`"`)), id, "approved")
		if got := w.api("gateway", http.MethodGet, "/v1/approvals/"+id, "").Body; !strings.Contains(got, `"valid_until":"`+until) || !strings.Contains(got, `"reason":"approved"`) {
			t.Errorf("on record is %s", got)
		}
		w.advance(2 * time.Minute)
		if got := caller.call("delegable", `{}`); got.ran() {
			t.Errorf("%s", got)
		}
		w.ran("delegable")
	})
}

// Decisions are counted by how they ended, whether they have an id or not.
func TestRespondIsCounted(t *testing.T) {
	t.Parallel()
	reader, deps := metered()
	w := newPeople(t, land{change: hasten, deps: deps})
	id := required(t, w.plain("legacy").call("delegable", `{}`)).ID
	mia := w.as("legacy", "mia")
	unheard(t, mia.utters(respondMethod, rules(id, "perhaps", "")))
	responded(t, mia.ask(respondMethod, rules(id, "approve", "")), id, "approved")
	unheard(t, mia.utters(respondMethod, rules(id, "approve", "")))
	if got := fmt.Sprint(callsCounted(reader, respondMethod)); got != "map[answered:1 refused:2]" {
		t.Error(got)
	}
}
