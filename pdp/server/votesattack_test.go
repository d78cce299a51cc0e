package server_test

import (
	"strings"
	"testing"
)

// Whoever stands in for another person votes by the ways that are open to that person, and by no other: a lead who
// decides in a console does not have somebody's agent confirm instead.
func TestADelegateHasNoOtherWay(t *testing.T) {
	r := openRelays(t, votesFiles())
	id := r.asksFor("deploy", "mia")
	path := "/v1/approvals/" + id
	if status, text := r.do("desk", "POST", path+"/decision", `{"decision":"delegate","to":"user::\"bob\"","reason":"on leave"}`, r.beside("noah", forGateway)...); status != 200 {
		t.Fatalf("he delegates: %d %s", status, text)
	}
	his := r.beside("bob", forGateway)
	r.key["bob"] = "Bearer " + r.token("bob", "pdp")
	for name, test := range map[string]struct {
		who, method, path, body string
		header                  []string
	}{
		"by a form":              {"gw", "POST", "/response", accepts, his},
		"he is shown a form":     {"gw", "GET", "/elicitation", "", his},
		"by the API":             {"bob", "POST", "/decision", yes, nil},
		"by the API, as a reply": {"bob", "POST", "/response", accepts, nil},
	} {
		if status, text := r.do(test.who, test.method, path+test.path, test.body, test.header...); status != 404 {
			t.Errorf("%s: got %d %s", name, status, text)
		}
	}
	if status, text := r.do("desk", "POST", path+"/decision", yes, his...); status != 200 || !strings.Contains(text, `"status":"approved"`) {
		t.Errorf("in the console: %d %s", status, text)
	}
	// A table says the way of each, too.
	_, table := r.do("auditor", "GET", "/v1/log/export?format=csv&approval="+id, "")
	if !strings.Contains(table, `""via"":""console"",""gateway"":""key:desk""`) {
		t.Errorf("the table is %s", table)
	}
}

// Who has voted is shown no form: what they answered would not count.
func TestAFormForWhoHasVoted(t *testing.T) {
	r := openRelays(t, votesFiles("obligations.yaml", "\ntwice: {type: approval_required, properties: {template: any, quorum: 2}}\n",
		"a.cedar", `@id("stop") @obligation("twice") permit(principal, action == Action::"tool.invoke", resource == tool::"stop");`))
	id := r.asksFor("stop", "mia")
	path, his := "/v1/approvals/"+id, r.beside("noah", forGateway)
	if status, text := r.do("desk", "POST", path+"/decision", yes, his...); status != 200 || !strings.Contains(text, `"status":"pending"`) {
		t.Fatalf("he approves: %d %s", status, text)
	}
	if status, text := r.do("gw", "GET", path+"/elicitation", "", his...); status != 409 || !strings.Contains(text, "you have voted") {
		t.Errorf("he is shown %d %s", status, text)
	}
	if status, text := r.do("gw-b", "GET", path+"/elicitation", "", r.beside("zoe", forOther)...); status != 200 {
		t.Errorf("another lead is shown %d %s", status, text)
	}
	if got := strings.Join(r.onRecord(id), ", "); got != `filed, approve user::"noah" console key:desk, offered user::"zoe" form key:gw-b` {
		t.Errorf("on record is %s", got)
	}
}
