package server_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest"
)

// message is what a gateway gets, as text.
func (c *counter) message(who, id, which string, want int) string {
	c.t.Helper()
	status, text := c.do(who, "GET", "/v1/approvals/"+id+"/"+which, "")
	if status != want {
		c.t.Errorf("%s gets %s: %d %s, want %d", who, which, status, text, want)
	}
	return text
}

// request is a question that waits; "" is the usual one.
func (c *counter) request(arguments string) (id string) {
	c.t.Helper()
	asked := c.asks("pep", tool("push", `"arguments":{"branch":"main","n":7,"password":"hunter2hunter2"}`+arguments))
	if asked.Approval == nil {
		c.t.Fatalf("got %+v", asked)
	}
	return asked.Approval.ID
}

// plainly is a message without what is of this request only.
func (c *counter) plainly(text, id string) string {
	var shown struct {
		Decision string `json:"decision"`
		Request  struct {
			Context struct {
				Arguments struct {
					Password string `json:"password"`
				} `json:"arguments"`
			} `json:"context"`
		} `json:"request"`
	}
	_, body := c.do("mia", "GET", "/v1/approvals/"+id, "")
	must(c.t, json.Unmarshal([]byte(body), &shown))
	masked := shown.Request.Context.Arguments.Password
	if !strings.HasPrefix(masked, "hidden: 14 bytes (masked:") || strings.Contains(text, "hunter2") {
		c.t.Errorf("a secret is shown: %s", text)
	}
	return strings.NewReplacer(id, "ID", shown.Decision, "DECISION", masked, "MASKED").Replace(text)
}

func TestMCPMessages(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	id := c.request("")
	c.Advance(time.Minute)
	const (
		arguments = `{"branch":"main","n":7,"password":"MASKED"}`
		asks      = `"message":"bot wants push\nagent/bot asks for tool.invoke on tool/push with {\"branch\":\"main\",\"n\":7,\"password\":\"MASKED\"}",`
		whole     = `"request":{"subject":{"type":"agent","id":"bot"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"push"},"context":{"arguments":` + arguments + `}}`
		metadata  = `{"elicitationType":"tool_approval","timeout":540,"priority":"normal","originalRequest":{"from":"agent/bot","tool":"push","arguments":` + arguments + `,"requestId":"DECISION",` + whole + `}}`
		reason    = `"reason":{"type":"string","title":"Reason","maxLength":1024}`
		approve   = `"approve":{"type":"boolean","title":"Approve"}`
	)
	elicits := func(properties, required string) string {
		return `{"jsonrpc":"2.0","id":"ID","method":"elicitation/create","params":{"_meta":` + metadata +
			`,` + asks + `"requestedSchema":{"type":"object","properties":{` + properties + `},"required":[` + required + `]},"metadata":` + metadata + `}}`
	}
	authorization := `{"id":"ID","tool":"push","arguments":` + arguments + `,"requester":"agent/bot","reason":"bot wants push","expiresAt":"` + pdptest.Now.Add(10*time.Minute).Format(time.RFC3339) + `",` + asks + whole + `}`
	choose := elicits(`"action":{"type":"string","title":"Decision","enum":["approve","deny","delegate"]},`+
		`"delegateTo":{"type":"string","title":"Delegate to","description":"Who decides instead, as policies name them, such as User::\"mia\"."},`+reason, `"action"`)
	for which, want := range map[string]string{
		"elicitation":              choose, // the obligation is delegable
		"elicitation?form=approve": elicits(approve+`,`+reason, `"approve"`),
		"elicitation?form=choose":  choose,
		"elicitation?form=review": elicits(approve+`,"arguments.branch":{"type":"string","title":"branch","default":"main"},"arguments.n":{"type":"integer","title":"n","default":7},`+
			`"arguments.password":{"type":"string","title":"password","default":"MASKED"},`+reason, `"approve"`),
		"authorization-request":                       `{"jsonrpc":"2.0","id":"ID","error":{"code":-32001,"message":"authorization required","data":{"authorizationRequest":` + authorization + `}}}`,
		"authorization-request?call=7":                `{"jsonrpc":"2.0","id":7,"error":{"code":-32001,"message":"authorization required","data":{"authorizationRequest":` + authorization + `}}}`,
		"authorization-request?call=%22call%5C%22%22": `{"jsonrpc":"2.0","id":"call\"","error":{"code":-32001,"message":"authorization required","data":{"authorizationRequest":` + authorization + `}}}`,
		"authorization-notification":                  `{"jsonrpc":"2.0","method":"notifications/authorization/request","params":` + authorization + `}`,
	} {
		for _, who := range []string{"pep", "mia"} {
			if got := c.plainly(c.message(who, id, which, 200), id); got != want {
				t.Errorf("%s gets %s:\n%s\nwant\n%s", who, which, got, want)
			}
		}
		for _, who := range []string{"eve", "other-pep", "auditor", "acme-lead"} {
			c.message(who, id, which, 404)
		}
		c.message("", id, which, 401)
		c.message("mia", "01900000-0000-7000-8000-000000000000", which, 404)
	}
	for _, which := range []string{"elicitation?form=all", "elicitation?form=", "elicitation?from=mia", "authorization-request?call=x", "authorization-request?call=1.5", "authorization-request?call=null",
		"authorization-request?call=%5B1%5D", "authorization-request?call=%22", "authorization-notification?form=approve"} {
		c.message("mia", id, which, 400)
	}
}

// What each argument is in a form, and that each comes back as what it is.
func TestMCPReviewsArguments(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	const arguments = `"a":true,"approve":false,"arguments.a":"x","big":9007199254740993,"f":50e-1,"l":[1,"x"],"o":{"k":"v"},"s":"[1]","z":null`
	id := c.asks("pep", tool("push", `"arguments":{`+arguments+`}`)).Approval.ID
	text := c.message("mia", id, "elicitation?form=review", 200)
	const fields = `"properties":{"approve":{"type":"boolean","title":"Approve"},"arguments.a":{"type":"boolean","title":"a","default":true},` +
		`"arguments.approve":{"type":"boolean","title":"approve","default":false},"arguments.arguments.a":{"type":"string","title":"arguments.a","default":"x"},` +
		`"arguments.big":{"type":"string","title":"big","default":"9007199254740993"},"arguments.f":{"type":"number","title":"f","default":50e-1},` +
		`"arguments.l":{"type":"string","title":"l","default":"[1,\"x\"]"},"arguments.o":{"type":"string","title":"o","default":"{\"k\":\"v\"}"},` +
		`"arguments.s":{"type":"string","title":"s","default":"[1]"},"reason":`
	if !strings.Contains(text, fields) {
		t.Errorf("got %s\nwant %s", text, fields)
	}
	const back = `"arguments.a":true,"arguments.approve":false,"arguments.arguments.a":"x","arguments.big":"9007199254740993","arguments.f":5.0,"arguments.l":"[1,\"x\"]","arguments.o":"{\"k\":\"v\"}","arguments.s":"[1]"`
	says := func(content string, want int) shown {
		return c.says("mia", id, "response", `{"action":"accept","content":{"approve":true,`+content+`}}`, want)
	}
	for _, change := range [][2]string{
		{`"arguments.a":true,`, ``}, // taken out
		{`"arguments.a":true`, `"arguments.a":"true"`}, {`"arguments.a":true`, `"arguments.a":false`}, {`"arguments.a":true`, `"arguments.a":true,"arguments.more":1`},
		{`740993`, `740992`}, {`"9007199254740993"`, `9007199254740992`}, {`5.0`, `5.00001`}, {`[1,`, `[2,`}, {`"[1]"`, `[1]`},
	} {
		if changed := strings.Replace(back, change[0], change[1], 1); changed == back {
			t.Errorf("%v changes nothing", change)
		} else {
			says(changed, 409)
		}
	}
	if got := says(back, 200); got.Status != "approved" {
		t.Errorf("as it was shown: %+v", got)
	}
}

// A call that has no arguments is asked about all the same, and in words that are ours.
func TestMCPWithoutArguments(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	for context, want := range map[string]string{``: "tool/push", `"agent":"helper"`: "helper asks for"} {
		id := c.asks("pep", tool("push", context)).Approval.ID
		var m struct {
			Params struct {
				Message  string `json:"message"`
				Metadata struct {
					OriginalRequest struct {
						Arguments map[string]any `json:"arguments"`
					} `json:"originalRequest"`
				} `json:"metadata"`
			} `json:"params"`
		}
		must(t, json.Unmarshal([]byte(c.message("zoe", id, "elicitation?form=review", 200)), &m))
		if !strings.Contains(m.Params.Message, want) || m.Params.Metadata.OriginalRequest.Arguments == nil || len(m.Params.Metadata.OriginalRequest.Arguments) > 0 {
			t.Errorf("%s: got %+v", context, m)
		}
	}
	odd := strings.Replace(tool("push", `"arguments":{"x":"a\u202eb"}`), `"bot"`, `"bot\nmia approves"`, 1)
	text := c.message("mia", c.asks("pep", odd).Approval.ID, "elicitation", 200)
	if want := `"message":"\"bot\\nmia approves\" wants push\nagent/\"bot\\nmia approves\" asks for tool.invoke on tool/push with {\"x\":\"a\\u202eb\"}",`; !strings.Contains(text, want) {
		t.Errorf("got %s\nwant %s", text, want)
	}
}

// In each state there are the messages of that state, and no others.
func TestMCPStates(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	denied := func(status, reason string) string {
		return `{"jsonrpc":"2.0","id":"ID","error":{"code":-32002,"message":"authorization ` + status + `","data":{"authorizationId":"ID","reason":"` + reason + `"}}}`
	}
	for status, state := range map[string]struct {
		bring func(id string)
		want  string
	}{
		"denied": {func(id string) {
			c.says("mia", id, "response", `{"action":"decline","content":{"reason":"not today"}}`, 200)
		}, denied("denied", "not today")},
		"cancelled": {func(id string) { c.says("pep", id, "cancel", ``, 200) }, denied("cancelled", "whoever asked no longer wants it")},
		"expired":   {func(string) { c.Advance(10 * time.Minute) }, denied("expired", "its time was up")},
		"approved":  {func(id string) { c.says("mia", id, "decision", yes, 200) }, ""},
		"revoked": {func(id string) {
			c.says("mia", id, "decision", yes, 200)
			c.says("noah", id, "revoke", ``, 200)
		}, denied("revoked", "an approver took it back")},
	} {
		id := c.request(`,"state":"` + status + `"`)
		state.bring(id)
		for _, which := range []string{"elicitation", "authorization-notification"} {
			if text := c.message("pep", id, which, 409); !strings.Contains(text, "is "+status) {
				t.Errorf("%s: got %s", status, text)
			}
		}
		if state.want == "" {
			c.message("pep", id, "authorization-request", 409)
		} else if got := strings.ReplaceAll(c.message("pep", id, "authorization-request", 200), id, "ID"); got != state.want {
			t.Errorf("%s: got %s\nwant %s", status, got, state.want)
		}
	}
	id := c.asks("pep", tool("push", again)).Approval.ID
	c.says("mia", id, "decision", yes, 200)
	c.asks("pep", tool("push", again)).passes(t, "it does not go through")
	c.message("pep", id, "authorization-request", http.StatusConflict)
}

// Whatever is answered, only what says so plainly approves.
func TestMCPResponses(t *testing.T) {
	t.Parallel()
	c := openCounter(t, func(config *server.Config) { config.Approvals.NewPerMinutePerSubject = 1000 })
	const pending = "pending"
	for n, test := range []struct {
		who, body string
		status    int
		becomes   string
	}{
		{"mia", `{"action":"accept","content":{"approve":true}}`, 200, "approved"},
		{"mia", `{"action":"accept","content":{"approve":true,"reason":"fine"},"_meta":{"x":1}}`, 200, "approved"},
		{"mia", `{"action":"accept","content":{"action":"approve","delegateTo":""}}`, 200, "approved"},
		{"mia", `{"action":"accept","content":{"action":"approve","approve":true}}`, 200, "approved"},
		{"mia", `{"action":"accept","content":{"approve":true,"arguments":{"n":7.0,"branch":"main"}}}`, 200, "approved"},
		{"mia", `{"authorizationId":"ID","decision":"approve"}`, 200, "approved"},
		{"mia", `{"authorizationId":"ID","decision":"approve","reason":"fine","validUntil":"UNTIL","from":"user::\"eve\""}`, 200, "approved"},

		{"mia", `{"action":"accept","content":{"approve":false}}`, 200, "denied"},
		{"mia", `{"action":"accept","content":{}}`, 200, "denied"},
		{"mia", `{"action":"accept"}`, 200, "denied"},
		{"mia", `{"action":"accept","content":{"approve":null,"approved":true,"decision":"approve"}}`, 200, "denied"},
		{"mia", `{"action":"accept","content":{"approve":true,"action":"deny"}}`, 200, "denied"},
		{"mia", `{"action":"accept","content":{"approve":false,"action":"approve"}}`, 200, "denied"},
		{"mia", `{"action":"accept","content":{"approve":true,"action":"delegate","delegateTo":"user::\"eve\""}}`, 200, "denied"},
		{"mia", `{"action":"accept","content":{"approve":false,"arguments.branch":"dev"}}`, 200, "denied"},
		{"mia", `{"action":"decline"}`, 200, "denied"},
		{"mia", `{"action":"decline","content":{"approve":true,"action":"approve"}}`, 200, "denied"},
		{"mia", `{"authorizationId":"ID","decision":"deny","approve":true}`, 200, "denied"},

		{"mia", `{"action":"cancel"}`, 200, pending},
		{"mia", `{"action":"cancel","content":{"approve":true}}`, 200, pending},
		{"mia", `{"action":"accept","content":{"action":"delegate","delegateTo":"user::\"eve\""}}`, 200, pending},

		{"mia", `{"action":"accept","content":{"approve":"true"}}`, 400, pending},
		{"mia", `{"action":"accept","content":{"approve":1}}`, 400, pending},
		{"mia", `{"action":"accept","content":{"approve":[true]}}`, 400, pending},
		{"mia", `{"action":"accept","content":{"approve":false,"approve":true}}`, 400, pending},
		{"mia", `{"action":"accept","content":{"action":"APPROVE"}}`, 400, pending},
		{"mia", `{"action":"accept","content":{"action":"delegate"}}`, 400, pending},
		{"mia", `{"action":"accept","content":{"action":"delegate","delegateTo":"mia"}}`, 400, pending},
		{"mia", `{"action":"accept","content":{"action":"delegate","delegateTo":"user::\"mia\""}}`, 400, pending},
		{"mia", `{"action":"accept","content":{"action":"approve","delegateTo":"user::\"eve\""}}`, 400, pending},
		{"mia", `{"action":"accept","content":{"approve":true,"reason":7}}`, 400, pending},
		{"mia", `{"action":"accept","content":{"approve":true,"reason":"` + strings.Repeat("x", 1025) + `"}}`, 400, pending},
		{"mia", `{"action":"accept","content":true}`, 400, pending},
		{"mia", `{"action":"Accept","content":{"approve":true}}`, 400, pending},
		{"mia", `{"action":"accept","content":{"approve":true},"authorizationId":"ID","decision":"approve"}`, 400, pending},
		{"mia", `{"action":"accept","content":{"approve":true},"decision":"approve"}`, 400, pending},
		{"mia", `{"action":"accept","content":{"approve":true},"reason":"fine"}`, 400, pending},
		{"mia", `{"content":{"approve":true}}`, 400, pending},
		{"mia", `{"jsonrpc":"2.0","id":"ID","result":{"action":"accept","content":{"approve":true}}}`, 400, pending},
		{"mia", `{"approve":true}`, 400, pending},
		{"mia", `{}`, 400, pending},
		{"mia", `[]`, 400, pending},
		{"mia", ``, 400, pending},
		{"mia", `{"decision":"approve"}`, 400, pending},
		{"mia", `{"authorizationId":"ID"}`, 400, pending},
		{"mia", `{"authorizationId":"ID","decision":"delegate","to":"user::\"eve\""}`, 400, pending},
		{"mia", `{"authorizationId":"ID","decision":true}`, 400, pending},
		{"mia", `{"authorizationId":"01900000-0000-7000-8000-000000000000","decision":"approve"}`, 400, pending},
		{"mia", `{"authorizationId":"","decision":"approve"}`, 400, pending},
		{"mia", `{"authorizationId":"ID","decision":"approve","validUntil":"soon"}`, 400, pending},
		{"mia", `{"authorizationId":"ID","decision":"deny","validUntil":"UNTIL"}`, 400, pending},

		{"mia", `{"action":"accept","content":{"approve":true,"arguments.branch":"dev","arguments.n":7}}`, 409, pending},
		{"mia", `{"action":"accept","content":{"approve":true,"arguments.branch":"main"}}`, 409, pending},
		{"mia", `{"action":"accept","content":{"approve":true,"branch":"dev"}}`, 409, pending},
		{"mia", `{"action":"accept","content":{"approve":true,"arguments":{"branch":"dev","n":7}}}`, 409, pending},
		{"mia", `{"action":"accept","content":{"approve":true,"arguments":"{}"}}`, 409, pending},
		{"mia", `{"action":"accept","content":{"action":"delegate","delegateTo":"user::\"eve\"","branch":"dev"}}`, 409, pending},
		{"mia", `{"authorizationId":"ID","decision":"approve","arguments":{"branch":"dev"}}`, 409, pending},

		{"eve", `{"action":"accept","content":{"approve":true},"from":"user::\"mia\""}`, 404, pending},
		{"eve", `{"authorizationId":"ID","decision":"approve","from":"user::\"mia\"","by":"user::\"mia\""}`, 404, pending},
		{"acme-lead", `{"action":"accept","content":{"approve":true}}`, 404, pending},
		{"pep", `{"action":"accept","content":{"approve":true},"from":"user::\"mia\""}`, 403, pending},
		{"pep", `{"action":"cancel"}`, 403, pending},
		{"other-pep", `{"authorizationId":"ID","decision":"approve"}`, 403, pending},
		{"auditor", `{"action":"accept","content":{"approve":true}}`, 403, pending},
		{"", `{"action":"accept","content":{"approve":true}}`, 401, pending},
	} {
		id := c.asks("pep", tool("push", fmt.Sprintf(`%s,"case":%d`, push, n))).Approval.ID
		body := strings.NewReplacer("ID", id, "UNTIL", c.Now().Add(time.Minute).Format(time.RFC3339)).Replace(test.body)
		c.reply(test.who, "POST", "/v1/approvals/"+id+"/response", body).is(t, fmt.Sprintf("%s says %s", test.who, test.body), test.status)
		if got, _ := c.sees("pep", id); got.Status != test.becomes {
			t.Errorf("%s says %s: it is %s, want %s", test.who, test.body, got.Status, test.becomes)
		}
	}
}

// An agent with a key of its own does not answer for itself, and whoever has voted has
// said it, in whatever form.
func TestMCPNobodyAnswersTwiceOrForThemselves(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	const approve = `{"action":"accept","content":{"approve":true}}`
	own := c.asks("helper", strings.Replace(tool("push", push), `"bot"`, `"helper"`, 1)).Approval.ID
	c.says("helper", own, "response", approve, 403)
	through := c.asks("pep", strings.Replace(tool("push", push), `"bot"`, `"helper"`, 1)).Approval.ID
	c.says("noah", through, "response", approve, 404) // it is noah's agent
	two := c.asks("pep", tool("stop", push)).Approval.ID
	c.says("mia", two, "response", approve, 200)
	c.says("mia", two, "response", approve, 409)
	c.says("mia", two, "decision", yes, 409)
	c.says("mia.admin", two, "response", `{"authorizationId":"`+two+`","decision":"approve"}`, 409)
	c.says("zoe", two, "response", `{"authorizationId":"`+two+`","decision":"approve"}`, 200).is(t, "the answer", "approved")
	c.says("noah", two, "response", approve, 409)
	c.says("mia", two, "response", `{"action":"accept","content":{"action":"delegate","delegateTo":"user::\"eve\""}}`, 409)
	c.asks("pep", tool("stop", again)).passes(t, "what was approved does not go through")
}

// The record says by which way somebody answered, and why; a secret of the request that
// the reason quotes is not in it.
func TestMCPIsOnRecord(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	c.says("mia", c.request(`,"n":1`), "response", `{"action":"accept","content":{"approve":true,"reason":"hunter2hunter2 is fine"}}`, 200)
	c.says("mia", c.request(`,"n":2`), "response", `{"action":"decline"}`, 200)
	c.says("mia", c.request(`,"n":3`), "decision", yes, 200)
	_, text := c.do("auditor", "GET", "/v1/log/export", "")
	var said []string
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		var r struct {
			Event   string `json:"event"`
			Details struct {
				Via    string `json:"via"`
				By     string `json:"by"`
				Reason string `json:"reason"`
			} `json:"details"`
		}
		if json.Unmarshal([]byte(line), &r) == nil && r.Details.By != "" {
			said = append(said, r.Event+" "+r.Details.Via+" "+r.Details.By+" "+r.Details.Reason)
		}
	}
	got := regexp.MustCompile(`masked:\S+`).ReplaceAllString(strings.Join(said, "; "), "MASKED")
	if want := `approve api user::"mia" MASKED is fine; deny api user::"mia" declined; approve api user::"mia" fine`; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if strings.Contains(text, "hunter2") {
		t.Error("a secret is on record")
	}
}
