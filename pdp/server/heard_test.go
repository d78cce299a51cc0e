package server_test

import (
	"slices"
	"strings"
	"testing"
)

// Who may decide by a form is told by a notification what waits, and the gateway that fetches it for them is on record
// for that, as if it had fetched the form.
func TestHeardNotificationForAPerson(t *testing.T) {
	r := openRelays(t, votesFiles())
	id := r.asksFor("mail", "mia")
	path := "/v1/approvals/" + id + "/authorization-notification"
	mine := r.beside("mia", forGateway)
	for name, test := range map[string]struct {
		who    string
		header []string
		want   int
	}{
		"another person":          {"gw", r.beside("noah", forGateway), 404},
		"another gateway":         {"gw-b", r.beside("mia", forOther), 404},
		"another gateway's token": {"gw", r.beside("mia", forOther), 401},
		"beside another gateway":  {"gw-b", mine, 401},
		"beside a console":        {"desk", mine, 403},
		"beside no gateway":       {"pep", mine, 403},
	} {
		if status, text := r.do(test.who, "GET", path, "", test.header...); status != test.want {
			t.Errorf("%s: got %d %s, want %d", name, status, text, test.want)
		}
	}
	_, alone := r.do("gw", "GET", path, "")
	if want := []string{"filed"}; !slices.Equal(r.onRecord(id), want) {
		t.Errorf("on record is %q", r.onRecord(id))
	}
	status, text := r.do("gw", "GET", path, "", mine...)
	if status != 200 || text != alone || !strings.Contains(text, `"method":"notifications/authorization/request","params":{"id":"`+id+`","tool":"mail"`) {
		t.Errorf("she is told %d %s; the gateway alone is told %s", status, text, alone)
	}
	if status, text := r.do("gw", "POST", "/v1/approvals/"+id+"/response", `{"authorizationId":"`+id+`","decision":"approve"}`, mine...); status != 200 {
		t.Errorf("she answers: %d %s", status, text)
	}
	if want := []string{"filed", `offered user::"mia" form key:gw`, `approve user::"mia" form key:gw`, "approved"}; !slices.Equal(r.onRecord(id), want) {
		t.Errorf("on record is %q", r.onRecord(id))
	}
	if status, text := r.do("gw", "GET", path, "", mine...); status != 409 {
		t.Errorf("what is approved is told: %d %s", status, text)
	}
}

// Who has voted is told no more: what they answered would not count.
func TestHeardNotificationForWhoHasVoted(t *testing.T) {
	r := openRelays(t, votesFiles("obligations.yaml", "\ntwice: {type: approval_required, properties: {template: any, quorum: 2}}\n",
		"a.cedar", `@id("stop") @obligation("twice") permit(principal, action == Action::"tool.invoke", resource == tool::"stop");`))
	id := r.asksFor("stop", "mia")
	path, his := "/v1/approvals/"+id, r.beside("noah", forGateway)
	if status, text := r.do("gw", "POST", path+"/response", accepts, his...); status != 200 {
		t.Fatalf("he approves: %d %s", status, text)
	}
	if status, text := r.do("gw", "GET", path+"/authorization-notification", "", his...); status != 409 || !strings.Contains(text, "you have voted") {
		t.Errorf("he is told %d %s", status, text)
	}
}
