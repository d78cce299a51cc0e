package server_test

import (
	"fmt"
	"strings"
	"testing"
)

// presentedForms are the ways to bring an approval, and the ones that must not pass for none.
func presentedForms(id string) (good []string, bad map[string]string) {
	good = []string{
		`"justification":"approved"`, `"approval_id":"` + id + `"`, `"approval":{"id":"` + id + `"}`, `"justification":"approved","approval_id":"` + id + `"`,
		`"approval":{"id":"` + id + `"},"approval_id":"` + id + `"`, `"approval":null,"approval_id":"` + id + `"`, `"approval":{"id":"` + id + `"},"approval_id":null`,
		`"approval_id":"` + id + `","justification":"a dry run"`,
	}
	return good, map[string]string{
		`"approval_id":7`: "approval_id", `"approval_id":["` + id + `"]`: "approval_id", `"approval_id":{"id":"` + id + `"}`: "approval_id", `"approval_id":""`: "approval_id", `"approval_id":true`: "approval_id",
		`"approval":"` + id + `"`: "approval", `"approval":[{"id":"` + id + `"}]`: "approval", `"approval":{}`: "approval/id", `"approval":{"id":7}`: "approval/id", `"approval":{"id":null}`: "approval/id", `"approval":{"id":""}`: "approval/id",
		`"approval":{"id":"` + id + `"},"approval_id":"other"`: "approval_id",
		`"justification":"approved","approval_id":7`:           "approval_id",
		`"approval_id":"` + id + `","approval":7`:              "approval",
	}
}

// However an approval is brought it is found, in both shapes, and with X-Approval: none.
func TestAnApprovalIsFoundHoweverItIsBrought(t *testing.T) {
	t.Parallel()
	c := openDesk(t)
	good, _ := presentedForms("ID")
	for n, claim := range good {
		for shape, goes := range map[string]func(question, claim string) bool{
			"native": func(question, claim string) bool {
				return c.asks("pep", tool("push", question+","+claim)).may()
			},
			"native, asking nobody": func(question, claim string) bool {
				return c.asks("pep", tool("push", question+","+claim), "X-Approval", "none").may()
			},
			"AuthZEN": func(question, claim string) bool {
				return c.program("pep").evaluates(wants("push", question+","+claim)).Decision
			},
		} {
			question := fmt.Sprintf(`"n":%d,"shape":%q`, n, shape)
			id := c.asks("pep", tool("push", question)).Approval.ID
			claim := strings.ReplaceAll(claim, "ID", id)
			if goes(question, claim) {
				t.Errorf("%s, %s: goes through before anybody approved", shape, claim)
			}
			c.says("mia", id, "decision", yes, 200)
			for name, other := range map[string]string{"another question": `"other":1`, "another id": question} {
				text := claim
				if name == "another id" {
					if text = strings.ReplaceAll(claim, id, "01900000-0000-7000-8000-000000000000"); text == claim {
						continue
					}
				}
				if goes(other, text) {
					t.Errorf("%s, %s: goes through with %s", shape, claim, name)
				}
			}
			if !goes(question, claim) {
				t.Errorf("%s, %s: does not go through", shape, claim)
			}
			if goes(question, claim) {
				t.Errorf("%s, %s: goes through twice", shape, claim)
			}
		}
	}
}

// What is no id is refused where it stands, and never passed over: not by the shape, not
// by a batch, a search or an access request, and nothing is filed or used.
func TestNoApprovalIsPassedOver(t *testing.T) {
	t.Parallel()
	c := openDesk(t)
	id := c.approved()
	p := c.program("asker")
	denial := p.denied(wants("push", push)).denial()
	good, bad := presentedForms(id)
	filed, _ := c.inbox("mia", "")
	for claim, at := range bad {
		pointed := `"pointer":"/context/` + at + `"`
		for name, ask := range map[string][3]string{
			"native":            {"pep", "/v1/authorize", tool("push", push+","+claim)},
			"AuthZEN":           {"pep", evaluationPath, "{" + wants("push", push+","+claim) + "}"},
			"a batch of none":   {"pep", "/access/v1/evaluations", "{" + wants("push", push+","+claim) + "}"},
			"a search":          {"searcher", "/access/v1/search/action", `{"subject":{"type":"agent","id":"bot"},"resource":{"type":"tool","id":"push"},"context":{` + claim + `}}`},
			"an access request": {"asker", "/access/v1/requests", "{" + wants("push", push+","+claim) + "," + denial + "}"},
		} {
			c.reply(ask[0], "POST", ask[1], ask[2]).is(t, fmt.Sprintf("%s, %s", name, claim), 400, pointed)
		}
		items := fmt.Sprintf(`{%s,"evaluations":[{"context":{%s,%s}},{}]}`, wants("push", push), push, claim)
		if status, text := c.do("pep", "POST", "/access/v1/evaluations", items); status != 200 || !strings.Contains(text, `"status":400`) || !strings.Contains(text, "/evaluations/0/context/"+at) || strings.Contains(text, `"decision":true`) {
			t.Errorf("an item, %s: got %d %s", claim, status, text)
		}
		inherited := fmt.Sprintf(`{%s,"evaluations":[{},{}]}`, wants("push", push+","+claim))
		if status, text := c.do("pep", "POST", "/access/v1/evaluations", inherited); status != 200 || strings.Count(text, `"status":400`) != 2 {
			t.Errorf("inherited, %s: got %d %s", claim, status, text)
		}
	}
	if now, _ := c.inbox("mia", ""); len(now) != len(filed) {
		t.Errorf("filed: %+v", now)
	}
	c.stands(t, "used", "pep", id, "approved", 0)
	var items []string
	for _, claim := range good {
		items = append(items, wants("push", push+","+claim))
	}
	if got := c.program("pep").batch("", items...); said(got) != "+"+strings.Repeat("-", len(good)-1) {
		t.Errorf("in one batch, which may use it once: got %v", got)
	}
}
