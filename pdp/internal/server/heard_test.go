package server_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/door"
)

// Who may decide by a form is told by a notification what waits, and the gateway that fetches it for them is on record
// for that, as if it had fetched the form.
func TestHeardNotificationForAPerson(t *testing.T) {
	t.Parallel()
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
		"a client without end":    {"gw", r.beside("mia", forGateway, "agent/"+strings.Repeat("a", 2048)), 403},
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
	t.Parallel()
	r := openRelays(t, votesFiles("obligations.yaml", "\ntwice: {type: approval_required, properties: {template: any, quorum: 2}}\n",
		"a.cedar", `@id("stop") @obligation("twice") permit(principal, action == Action::"tool.invoke", resource == tool::"stop");`))
	id := r.asksFor("stop", "mia")
	path, his := "/v1/approvals/"+id, r.beside("noah", forGateway, "agent/desk")
	if status, text := r.do("gw", "POST", path+"/response", accepts, his...); status != 200 {
		t.Fatalf("he approves: %d %s", status, text)
	}
	if status, text := r.do("gw", "GET", path+"/authorization-notification", "", his...); status != 409 || !strings.Contains(text, "you have voted") {
		t.Errorf("he is told %d %s", status, text)
	}
}

// Who named somebody else is told no more; the other one is, and decides.
func TestHeardNotificationForADelegate(t *testing.T) {
	t.Parallel()
	r := openRelays(t, votesFiles("obligations.yaml", "\nhanded: {type: approval_required, properties: {template: any, delegable: true}}\n",
		"a.cedar", `@id("hand") @obligation("handed") permit(principal, action == Action::"tool.invoke", resource == tool::"hand");`))
	id := r.asksFor("hand", "mia")
	path, his, hers := "/v1/approvals/"+id, r.beside("noah", forGateway, "agent/desk"), r.beside("eve", forGateway, "agent/desk")
	told := func(whose []string, want int) {
		t.Helper()
		for _, message := range []string{"/authorization-notification", "/elicitation"} {
			if status, text := r.do("gw", "GET", path+message, "", whose...); status != want {
				t.Errorf("%s: got %d %s, want %d", message, status, text, want)
			}
		}
	}
	told(his, 200)
	told(hers, 404)
	answer := func(whose []string, decision string) {
		t.Helper()
		if status, text := r.do("gw", "POST", path+"/response", `{"authorizationId":"`+id+`",`+decision+`}`, whose...); status != 200 {
			t.Fatalf("%s: got %d %s", decision, status, text)
		}
	}
	answer(his, `"decision":"delegate","delegateTo":"user::\"eve\""`)
	told(his, 404)
	told(hers, 200)
	answer(hers, `"decision":"approve"`)
	if got, _ := r.sees("gw", id); got.Status != "approved" {
		t.Errorf("it is %s", got.Status)
	}
}

// Who answers a request for authorization may name somebody else, as in a form and as by a decision, and that person
// decides then.
func TestHeardDelegatesByAuthorization(t *testing.T) {
	t.Parallel()
	c := openCounter(t, func(config *server.Config) { config.Approvals.NewPerMinutePerSubject = 1000 })
	for n, test := range []struct {
		body     string
		status   int
		delegate bool
	}{
		{`{"authorizationId":"ID","decision":"delegate","delegateTo":"user::\"eve\"","reason":"she knows"}`, 200, true},
		{`{"authorizationId":"ID","decision":"delegate","delegateTo":"user::\"eve\"","reason":null,"validUntil":null,"arguments":{"branch":"main","n":7}}`, 200, true},
		{`{"authorizationId":"ID","decision":"delegate"}`, 400, false},
		{`{"authorizationId":"ID","decision":"delegate","delegateTo":null}`, 400, false},
		{`{"authorizationId":"ID","decision":"delegate","delegateTo":""}`, 400, false},
		{`{"authorizationId":"ID","decision":"delegate","delegateTo":["user::\"eve\""]}`, 400, false},
		{`{"authorizationId":"ID","decision":"delegate","delegateTo":"eve"}`, 400, false},
		{`{"authorizationId":"ID","decision":"delegate","delegateTo":"user::\"mia\""}`, 400, false},
		{`{"authorizationId":"ID","decision":"delegate","delegateTo":"user::\"mia.admin\""}`, 400, false},
		{`{"authorizationId":"ID","decision":"delegate","delegateTo":"agent::\"bot\""}`, 400, false},
		{`{"authorizationId":"ID","decision":"delegate","delegateTo":"user::\"eve\"","validUntil":"2099-01-02T15:04:05Z"}`, 400, false},
		{`{"authorizationId":"ID","decision":"approve","delegateTo":"user::\"eve\""}`, 400, false},
		{`{"authorizationId":"ID","decision":"deny","delegateTo":"user::\"eve\""}`, 400, false},
		{`{"authorizationId":"ID","decision":"Delegate","delegateTo":"user::\"eve\""}`, 400, false},
		{`{"authorizationId":"ID","decision":"delegate","decision":"delegate","delegateTo":"user::\"eve\""}`, 400, false},
		{`{"action":"accept","content":{"approve":true},"delegateTo":"user::\"eve\""}`, 400, false},
		{`{"delegateTo":"user::\"eve\""}`, 400, false},
		{`{"authorizationId":"ID","decision":"delegate","delegateTo":"user::\"eve\"","arguments":{"branch":"dev","n":7}}`, 409, false},
	} {
		id := c.asks("pep", tool("push", fmt.Sprintf(`%s,"case":%d`, push, n))).Approval.ID
		path := "/v1/approvals/" + id + "/response"
		status, text := c.do("mia", "POST", path, strings.ReplaceAll(test.body, "ID", id))
		if got, _ := c.sees("pep", id); status != test.status || got.Status != "pending" {
			t.Errorf("%s: got %d %s, and it is %s", test.body, status, text, got.Status)
		}
		approve := `{"authorizationId":"` + id + `","decision":"approve"}`
		if status, text := c.do("eve", "POST", path, approve); (status == 200) != test.delegate {
			t.Errorf("%s: eve is answered %d %s", test.body, status, text)
		}
		if test.delegate && !strings.Contains(text, `"said":[{"by":"user::\"mia\"","decision":"delegate","reason":`) {
			t.Errorf("got %s", text)
		}
	}
	id := c.asks("pep", tool("list", `"x":1`)).Approval.ID
	status, text := c.do("mia", "POST", "/v1/approvals/"+id+"/response", `{"authorizationId":"`+id+`","decision":"delegate","delegateTo":"user::\"eve\""}`)
	if status != 409 || !strings.Contains(text, "cannot be delegated") {
		t.Errorf("what cannot be delegated: %d %s", status, text)
	}
}

// Who follows its tasks hears of a vote after which others may decide than before, however it was sent, while it waits
// and afterwards. A form that is shown changes nothing.
func TestHeardOfVotes(t *testing.T) {
	t.Parallel()
	c := openDesk(t)
	p := c.program("asker")
	for n, test := range []struct{ tool, path, body string }{
		{"push", "decision", `{"decision":"delegate","reason":"she knows","to":"user::\"eve\""}`},
		{"push", "response", `{"action":"accept","content":{"action":"delegate","delegateTo":"user::\"eve\""}}`},
		{"push", "response", `{"authorizationId":"ID","decision":"delegate","delegateTo":"user::\"eve\""}`},
		{"stop", "decision", yes}, // the first of two
	} {
		one := p.requests(wants(test.tool, fmt.Sprintf(`"n":%d`, n)))
		id := one.Task.Approvals[0].ID
		f, later := p.follows(), p.follows()
		f.lists("")
		later.lists("")
		looks := c.Looks()
		waits := c.polls("asker", "/access/v1/requests?wait=30s&after="+f.cursor, 1)
		eventually(t, "it has looked", func() bool { return c.Looks() > looks })
		begun := time.Now()
		c.says("zoe", id, test.path, strings.ReplaceAll(test.body, "ID", id), 200)
		got := <-waits
		if tasks, _ := f.reads(got.Body); got.Status != 200 || stands(tasks) != "pending" || tasks[0].Task.ID != one.Task.ID || tasks[0].Task.Approvals[0].ID != id {
			t.Errorf("%s: who waits is told %d %s", test.body, got.Status, got.Body)
		}
		if time.Since(begun) > 25*time.Second { // at the end of its time everybody looks once more
			t.Error("who waits is told of nothing")
		}
		if tasks, _ := later.lists(""); stands(tasks) != "pending" || tasks[0].Task.ID != one.Task.ID {
			t.Errorf("%s: afterwards comes %v", test.body, tasks)
		}
		if tasks, _ := f.lists(""); len(tasks) != 0 {
			t.Errorf("%s: it is told again: %v", test.body, tasks)
		}
	}
}

// The time that the server of a tool asks for only shortens the one of the policy, and what it says is shown to people as
// its words.
func TestHeardHintOfAServer(t *testing.T) {
	t.Parallel()
	c := openDesk(t, func(config *server.Config) { config.Approvals.NewPerMinutePerSubject = 1000 })
	p := c.program("asker")
	asks := func(n int, hint string) (id string) {
		t.Helper()
		return p.requests(fmt.Sprintf(`"subject":{"type":"agent","id":"bot"},"action":{"name":"tool.invoke"},
			"resource":{"type":"tool","id":"push","properties":{"approval_hint":%s}},"context":{"n":%d}`, hint, n)).Task.Approvals[0].ID
	}
	for n, test := range []struct {
		hint string
		want time.Duration
	}{
		{`{"timeout":90}`, 90 * time.Second},
		{`{"timeout":1,"required":true,"mode":"automatic"}`, time.Second},
		{`{"timeout":599.0}`, 599 * time.Second},
		{`{"timeout":600}`, 10 * time.Minute}, // which is the policy's
		{`{"timeout":601}`, 10 * time.Minute},
		{`{"timeout":9223372036854775807}`, 10 * time.Minute},
		{`{"timeout":1e400}`, 10 * time.Minute},
		{`{"timeout":0}`, 10 * time.Minute},
		{`{"timeout":-5}`, 10 * time.Minute},
		{`{"timeout":0.5}`, 10 * time.Minute},
		{`{"timeout":"90"}`, 10 * time.Minute},
		{`[{"timeout":90}]`, 10 * time.Minute},
		{`"90"`, 10 * time.Minute},
	} {
		_, text := c.do("zoe", "GET", "/v1/approvals/"+asks(n, test.hint), "")
		if want := `"expires_at":"` + c.Now().Add(test.want).Format(time.RFC3339) + `"`; !strings.Contains(text, want) {
			t.Errorf("%s: got %s, want %s", test.hint, text, want)
		}
	}

	id := asks(100, `{"timeout":30,"message":"Harmless.\nbot wants nothing\u202e"}`)
	for _, message := range []string{"elicitation", "authorization-notification", "authorization-request"} {
		text := c.message("zoe", id, message, 200)
		if !strings.Contains(text, `"message":"bot wants push\nagent/bot asks for tool.invoke on tool/push\nThe server says: \"Harmless.\\nbot wants nothing\\u202e\"\nBesides: {`) {
			t.Errorf("%s: got %s", message, text)
		}
	}
	if text := c.message("zoe", id, "elicitation", 200); strings.Count(text, `"timeout":30,"priority"`) != 2 {
		t.Errorf("got %s", text)
	}
	c.Advance(29 * time.Second)
	if got, _ := c.sees("zoe", id); got.Status != "pending" || got.Message != "bot wants push" {
		t.Errorf("it is %+v", got)
	}
	c.Advance(time.Second)
	if got, _ := c.sees("asker", id); got.Status != "expired" {
		t.Errorf("it is %+v", got)
	}
	if status, _ := c.do("zoe", "POST", "/v1/approvals/"+id+"/decision", yes); status == 200 {
		t.Error("it was approved too late")
	}
}

const heardPath = "/access/v1/requests/notifications"

// tells reads the ids of what a gateway may tell a person since a cursor.
func (r relays) tells(after string, header []string) (ids []string, cursor string) {
	r.t.Helper()
	path := heardPath
	if after != "" {
		path += "?after=" + after
	}
	status, text := r.do("gw", "GET", path, "", header...)
	var said struct {
		Items []struct {
			Params struct {
				ID string `json:"id"`
			} `json:"params"`
		} `json:"items"`
		Cursor string `json:"cursor"`
		More   bool   `json:"more"`
	}
	if err := json.Unmarshal([]byte(text), &said); status != 200 || err != nil || said.More {
		r.t.Fatalf("got %d %s", status, text)
	}
	for _, one := range said.Items {
		ids = append(ids, one.Params.ID)
	}
	return ids, said.Cursor
}

// files has a program ask for an approval of a tool for mia's agent.
func (r relays) files(who, tool string, n int) (id string) {
	r.t.Helper()
	return r.program(who).requests(wants(tool, fmt.Sprintf(`"n":%d,"on_behalf_of":[{"type":"user","id":"mia"}],"person":%q`, n, evaluation.PersonOf(ofPeople, "mia")))).Task.Approvals[0].ID
}

// A gateway reads for a person what its own tasks wait for, first all and then what is new, as far as the person may decide about it
// by its forms. It is on record once. Of what other programs asked for it reads nothing.
func TestHeardNotificationsOfAGateway(t *testing.T) {
	t.Parallel()
	r := openRelays(t, votesFiles())
	mail, push := r.files("gw", "mail", 1), r.files("gw", "push", 2)
	r.files("pep", "push", 3)
	hers, his := r.beside("mia", forGateway), r.beside("noah", forGateway, "agent/desk")
	cursors := map[string]string{}
	reads := func(who string, header []string, want ...string) {
		t.Helper()
		ids, cursor := r.tells(cursors[who], header)
		if !slices.Equal(ids, want) {
			t.Errorf("%s is told %q, want %q", who, ids, want)
		}
		cursors[who] = cursor
	}
	reads("mia", hers, mail)
	reads("noah", his, push)
	reads("eve", r.beside("eve", forGateway))
	reads("mia", hers)
	if got, _ := r.tells("", his); !slices.Equal(got, []string{push}) {
		t.Errorf("who begins again is told %q", got)
	}
	if want := []string{"filed", `offered user::"noah" form key:gw`}; !slices.Equal(r.onRecord(push), want) {
		t.Errorf("on record is %q", r.onRecord(push))
	}
	_, alone := r.do("gw", "GET", "/v1/approvals/"+push+"/authorization-notification", "")
	if _, text := r.do("gw", "GET", heardPath, "", his...); !strings.Contains(text, `{"items":[`+alone+`],`) {
		t.Errorf("he is told %s, and by itself it is %s", text, alone)
	}
	late := r.files("gw", "push", 4)
	if status, text := r.do("gw", "POST", "/v1/approvals/"+push+"/response", accepts, his...); status != 200 {
		t.Fatalf("he approves: %d %s", status, text)
	}
	reads("noah", his, late)
	reads("mia", hers)
	reads("noah", his)
}

// A person who has voted, or named another one, is told no more, and the other one is, though it waited before.
func TestHeardNotificationsAfterAVote(t *testing.T) {
	t.Parallel()
	r := openRelays(t, votesFiles("obligations.yaml", "\nhanded: {type: approval_required, properties: {template: any, delegable: true, quorum: 2}}\n",
		"a.cedar", `@id("hand") @obligation("handed") permit(principal, action == Action::"tool.invoke", resource == tool::"hand");`))
	one, two := r.files("gw", "hand", 1), r.files("gw", "hand", 2)
	his, zoes, eves := r.beside("noah", forGateway, "agent/desk"), r.beside("zoe", forGateway, "agent/desk"), r.beside("eve", forGateway, "agent/desk")
	ids, hisCursor := r.tells("", his)
	none, evesCursor := r.tells("", eves)
	if !slices.Equal(ids, []string{one, two}) || len(none) > 0 {
		t.Fatalf("he is told %q, and eve %q", ids, none)
	}
	says := func(id string, header []string, decision string) {
		t.Helper()
		if status, text := r.do("gw", "POST", "/v1/approvals/"+id+"/response", `{"authorizationId":"`+id+`",`+decision+`}`, header...); status != 200 {
			t.Fatalf("%s: got %d %s", decision, status, text)
		}
	}
	says(one, his, `"decision":"approve"`)
	says(two, his, `"decision":"delegate","delegateTo":"user::\"eve\""`)
	for _, after := range []string{"", hisCursor} {
		if ids, _ := r.tells(after, his); len(ids) > 0 {
			t.Errorf("he is told %q after his votes", ids)
		}
	}
	if ids, _ := r.tells(evesCursor, eves); !slices.Equal(ids, []string{two}) {
		t.Errorf("eve is told %q", ids)
	}
	if ids, _ := r.tells("", zoes); !slices.Equal(ids, []string{one, two}) {
		t.Errorf("zoe is told %q", ids)
	}
}

// No other credential reads what a gateway may tell a person, and no cursor is anybody else's.
func TestHeardNotificationsAreOfAGatewayAndItsPerson(t *testing.T) {
	t.Parallel()
	r := openRelays(t, votesFiles())
	r.files("gw", "mail", 1)
	mine := r.beside("mia", forGateway)
	_, cursor := r.tells("", mine)
	f := r.program("gw").follows()
	f.lists("")
	tasks := f.cursor
	r.key["mia"] = "Bearer " + r.token("mia", "pdp")
	for name, test := range map[string]struct {
		who, query string
		header     []string
		want       int
	}{
		"the gateway alone":           {"gw", "", nil, 403},
		"an approver alone":           {"zoe", "", nil, 403},
		"she alone":                   {"mia", "", nil, 403},
		"beside a console":            {"desk", "", mine, 403},
		"beside no gateway":           {"pep", "", mine, 403},
		"another gateway's token":     {"gw", "", r.beside("mia", forOther), 401},
		"beside another gateway":      {"gw-b", "", mine, 401},
		"a cursor of another gateway": {"gw-b", "?after=" + cursor, r.beside("mia", forOther), 400},
		"a cursor of another person":  {"gw", "?after=" + cursor, r.beside("noah", forGateway), 400},
		"a cursor of tasks":           {"gw", "?after=" + tasks, mine, 400},
		"no cursor":                   {"gw", "?after=x", mine, 400},
		"another parameter":           {"gw", "?caller=key:pep", mine, 400},
	} {
		if status, text := r.do(test.who, "GET", heardPath+test.query, "", test.header...); status != test.want {
			t.Errorf("%s: got %d %s, want %d", name, status, text, test.want)
		}
	}
	if status, text := r.do("gw-b", "GET", heardPath, "", r.beside("mia", forOther)...); status != 200 || !strings.HasPrefix(text, `{"items":[],`) {
		t.Errorf("another gateway reads %d %s", status, text)
	}
}

// A page of many approval requests on which another person has voted is put on record at once, and once if several replicas of a
// gateway read it. `.ci/race` looks on.
func TestHeardManyNotificationsAtOnce(t *testing.T) {
	t.Parallel()
	r := openRelays(t, votesFiles("obligations.yaml", "\ntwice: {type: approval_required, properties: {template: any, quorum: 2}}\n",
		"a.cedar", `@id("twice") @obligation("twice") permit(principal, action == Action::"tool.invoke", resource == tool::"twice");`),
		func(config *server.Config) { config.Approvals.NewPerMinutePerSubject = 1000 })
	his, zoes := r.beside("noah", forGateway, "agent/desk"), r.beside("zoe", forGateway, "agent/desk")
	var want []string
	for n := range 20 {
		id := r.files("gw", "twice", n)
		body := `{"authorizationId":"` + id + `","decision":"approve"}`
		if status, text := r.do("gw", "POST", "/v1/approvals/"+id+"/response", body, zoes...); status != 200 {
			t.Fatalf("zoe approves: %d %s", status, text)
		}
		want = append(want, id)
	}
	slices.Sort(want)
	var reading sync.WaitGroup
	for range 4 {
		reading.Go(func() {
			ids, _ := r.tells("", his)
			slices.Sort(ids)
			if !slices.Equal(ids, want) {
				t.Errorf("he is told %q, want %q", ids, want)
			}
		})
	}
	reading.Wait()
	for _, id := range want {
		offers := slices.DeleteFunc(r.onRecord(id), func(step string) bool { return !strings.HasPrefix(step, "offered ") })
		if len(offers) != 1 {
			t.Errorf("on record is %q", offers)
		}
	}
}

// A list with new offers costs a person as many requests as the offers would one by one, by whatever client they are made.
func TestHeardOffersAreCharged(t *testing.T) {
	t.Parallel()
	r := openRelays(t, votesFiles(), func(config *server.Config) {
		config.Load.RateLimit.Callers = []door.CallerRate{{Caller: "jwt:" + ofPeople + "#noah", Rate: door.Rate{PerSecond: 1, Burst: 4}}}
	})
	for n := range 3 {
		r.files("gw", "push", n)
	}
	asks := func(client string, want int) {
		t.Helper()
		if status, text := r.do("gw", "GET", heardPath, "", r.beside("noah", forGateway, client)...); status != want {
			t.Errorf("by %.20s: got %d %s, want %d", client, status, text, want)
		}
	}
	asks("agent/desk", 200)
	asks("agent/desk", 200) // nothing is offered anew
	asks("agent/desk", 429)
	r.Advance(4 * time.Second)
	other := "agent/" + strings.Repeat("x", 1000)
	asks(other, 200)
	asks(other, 200)
	asks("agent/desk", 429)
}
