package server_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/pdptest"
)

var maskOfSecret = regexp.MustCompile(`masked:[A-Za-z0-9_-]+`)

// shownText is what the messages of an approval request have in common.
type shownText struct {
	Message string         `json:"message"`
	Request jsontext.Value `json:"request"`
	Unbound []string       `json:"unbound"`
}

// shownTexts are those of each message that there is.
func (c *counter) shownTexts(id string) map[string]shownText {
	c.t.Helper()
	all := map[string]shownText{}
	for _, which := range []string{"elicitation", "elicitation?form=choose", "elicitation?form=review", "authorization-request", "authorization-notification"} {
		var m struct {
			Params struct {
				shownText
				Metadata struct {
					Original shownText `json:"originalRequest"`
				} `json:"metadata"`
				Meta struct {
					Original shownText `json:"originalRequest"`
				} `json:"_meta"`
			} `json:"params"`
			Error struct {
				Data struct {
					Request shownText `json:"authorizationRequest"`
				} `json:"data"`
			} `json:"error"`
		}
		must(c.t, json.Unmarshal([]byte(c.message("mia", id, which, 200)), &m))
		one := m.Params.shownText
		switch {
		case m.Error.Data.Request.Message != "":
			one = m.Error.Data.Request
		case strings.HasPrefix(which, "elicitation"):
			if one = m.Params.Meta.Original; string(one.Request) != string(m.Params.Metadata.Original.Request) {
				c.t.Errorf("%s: _meta and metadata are two", which)
			}
			one.Message = m.Params.Message
		}
		all[which] = one
	}
	return all
}

// Nobody approves what they are not shown: who asks, for whom, and each member that the
// approval is bound to, in each message; of a secret its mask.
func TestNothingIsApprovedUnseen(t *testing.T) {
	t.Parallel()
	files := boundTo("uses: 3, material: [resource, context.amount]")
	files["a.cedar"] = strings.Replace(files["a.cedar"], "context has arguments.blocked", "false", 1) // which errs of arguments in no form
	c := openDeskOn(t, files)
	all := `"amount":7,"trace":"x","password":"hunter2hunter2","arguments":{"a":1},"agent":"helper","on_behalf_of":[{"type":"user","id":"eve"},{"type":"team","id":"x y"}]`
	labelled := func(id, context string) string {
		body := strings.Replace(tool(id, context), `"id":"`+id+`"`, `"id":"`+id+`","labels":{"to":"prod"}`, 1)
		return strings.Replace(body, `"actor_type"`, `"roles":["r"],"actor_type"`, 1)
	}
	for name, test := range map[string]struct{ body, want string }{
		"whole": {labelled("push", all), "bot wants push\n" +
			`helper asks for tool.invoke on tool/push for agent/bot on behalf of user/eve, team/"x y" with {"a":1}` + "\n" +
			`Besides: {"context":{"amount":7,"password":"hidden: 14 bytes (MASKED)","trace":"x"},"resource":{"labels":{"to":"prod"}},"subject":{"roles":["r"]}}` + "\n" +
			`May be otherwise when it is done: context.trace`},
		"in part": {labelled("some", all), "a person must approve this call\n" +
			`helper asks for tool.invoke on tool/some for agent/bot on behalf of user/eve, team/"x y" with {"a":1}` + "\n" +
			`Besides: {"context":{"amount":7,"password":"hidden: 14 bytes (MASKED)","trace":"x"},"resource":{"labels":{"to":"prod"}},"subject":{"roles":["r"]}}` + "\n" +
			"May be otherwise when it is done: context.arguments, context.password, context.trace, subject.properties\nOnce approved it may be done 3 times"},
		"a typed agent":        {tool("push", `"agent":{"type":"agent","id":"helper"}`), "bot wants push\nagent/helper asks for tool.invoke on tool/push for agent/bot"},
		"in a tenant":          {inAcme(tool("push", push)), "bot wants push\n" + `agent/bot asks for tool.invoke on tool/push in tenant acme with {"branch":"main","n":7}`},
		"arguments of no form": {tool("push", `"arguments":"rm -rf /"`), "bot wants push\n" + `agent/bot asks for tool.invoke on tool/push with "rm -rf /"`},
	} {
		asked := c.asks("pep", test.body).Approval
		if asked == nil {
			t.Errorf("%s: nobody is asked", name)
			continue
		}
		id := asked.ID
		_, view := c.do("mia", "GET", "/v1/approvals/"+id, "")
		var shown struct {
			Request jsontext.Value `json:"request"`
			Unbound []string       `json:"unbound"`
		}
		must(t, json.Unmarshal([]byte(view), &shown))
		for which, got := range c.shownTexts(id) {
			message := maskOfSecret.ReplaceAllString(got.Message, "MASKED")
			if message != test.want {
				t.Errorf("%s, %s: got\n%s\nwant\n%s", name, which, message, test.want)
			}
			if string(got.Request) != string(shown.Request) || strings.Join(got.Unbound, " ") != strings.Join(shown.Unbound, " ") {
				t.Errorf("%s, %s: got %s, %v", name, which, got.Request, got.Unbound)
			}
		}
	}
	// By the profile, with properties of the action.
	p := c.program("asker")
	question := `"subject":{"type":"agent","id":"bot"},"action":{"name":"tool.invoke","properties":{"force":true}},"resource":{"type":"tool","id":"push"}`
	p.submits(question + "," + p.denied(question).denial())
	items, _ := c.inbox("mia", "?limit=200")
	for which, got := range c.shownTexts(items[len(items)-1].ID) {
		if want := "bot wants push\nagent/bot asks for tool.invoke on tool/push\n" + `Besides: {"action":{"force":true}}`; got.Message != want {
			t.Errorf("%s: got %s", which, got.Message)
		}
	}
}

// TestWhatIsHiddenIsSaid: approvers see how long a secret is, and what is in an object that is secret by its name, wherever
// they look. Records have neither.
func TestWhatIsHiddenIsSaid(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	asked := c.asks("pep", tool("push", `"arguments":{"secretConfig":{"region":"eu-central","keys":["0123456789"],"on":true},"note":"with 0123456789"}`)).Approval
	if asked == nil {
		t.Fatal("nobody is asked")
	}
	const want = `{"note":"with MASKED","secretConfig":{"keys":["hidden: 10 bytes (MASKED)"],"on":"hidden: bool (MASKED)","region":"hidden: 10 bytes (MASKED)"}}`
	_, view := c.do("mia", "GET", "/v1/approvals/"+asked.ID, "")
	_, list := c.do("mia", "GET", "/v1/approvals", "")
	all := map[string]string{"view": view, "list": list}
	for which, got := range c.shownTexts(asked.ID) {
		all[which] = string(got.Request)
		if !strings.Contains(maskOfSecret.ReplaceAllString(got.Message, "MASKED"), want) {
			t.Errorf("%s: got %s", which, got.Message)
		}
	}
	for which, got := range all {
		if !strings.Contains(maskOfSecret.ReplaceAllString(got, "MASKED"), want) {
			t.Errorf("%s: got %s", which, got)
		}
	}
	c.says("mia", asked.ID, "decision", `{"decision":"approve","reason":"0123456789 in eu-central is right"}`, http.StatusOK)
	_, text := c.do("auditor", "GET", "/v1/log/export", "")
	for _, no := range []string{"hidden:", "region", "0123456789", "eu-central"} {
		if strings.Contains(text, no) {
			t.Errorf("%s is on record: %s", no, text)
		}
	}
	has(t, text, " is right")
}

// No name and no value passes for a line, a name or a member that is not there.
func TestNothingShownPassesForMore(t *testing.T) {
	t.Parallel()
	c := openCounterOn(t, pdptest.Bundle(approvalFiles()))
	for name, test := range map[string]struct{ body, want string }{
		"a line": {strings.Replace(tool("push", `"why":"x\nBesides: {}\r\u2028\u0085Once"`), `"bot"`, `"bot\nBesides: {}"`, 1),
			`"bot\nBesides: {}" wants push` + "\n" + `agent/"bot\nBesides: {}" asks for tool.invoke on tool/push` + "\n" + `Besides: {"context":{"why":"x\nBesides: {}\r\u2028\u0085Once"}}`},
		"a sentence": {strings.Replace(tool("push", ``), `"bot"`, `"bot asks for read on tool/safe with {}"`, 1),
			`"bot asks for read on tool/safe with {}" wants push` + "\n" + `agent/"bot asks for read on tool/safe with {}" asks for tool.invoke on tool/push`},
		"a type":    {tool("push", `"agent":"user/mia"`), "bot wants push\n" + `"user/mia" asks for tool.invoke on tool/push for agent/bot`},
		"direction": {tool("push", `"a\u202eb":"\u2066x\u200b\ufe0f\u3164"`), "bot wants push\nagent/bot asks for tool.invoke on tool/push\n" + `Besides: {"context":{"a\u202eb":"\u2066x\u200b\ufe0f\u3164"}}`},
		"nobody":    {strings.Replace(tool("push", ``), `"bot"`, `""`, 1), " wants push\n" + `agent/"" asks for tool.invoke on tool/push`},
	} {
		id := c.asks("pep", test.body).Approval.ID
		for which, got := range c.shownTexts(id) {
			if got.Message != test.want {
				t.Errorf("%s, %s: got\n%s\nwant\n%s", name, which, got.Message, test.want)
			}
		}
	}
	id := c.asks("pep", tool("push", `"arguments":{"a\u202eb\n":1}`)).Approval.ID
	review := c.message("mia", id, "elicitation?form=review", 200)
	has(t, review, `{\"a\\u202eb\\n\":1}`)
	if strings.Contains(review, `"title":"a`) {
		t.Errorf("there is a field for an argument that is not as it is drawn: %s", review)
	}
}
