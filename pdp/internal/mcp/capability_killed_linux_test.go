package mcp_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
)

const killedPursePolicies = `@id("plain") permit(principal, action, resource) unless { action == Action::"tool.invoke" };
@id("once") @obligation("once") permit(principal, action == Action::"tool.invoke", resource == tool::"rec:once") when { context.pdp.capability.held };
`

// TestKilledWithCapability: at each point of a call with a capability of one use and an approval the gateway is killed, and its client
// goes on. There is never more than one forward, one use and one spent approval, and no forward without the others. What was not
// spent still counts.
func TestKilledWithCapability(t *testing.T) {
	t.Parallel()
	for e, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			m := &mortals{setting: newSetting(t, "127.0.0.1:0", "modern")}
			m.write("policies/all.cedar", killedPursePolicies)
			m.pdpHere()
			at := heldAddress(t)
			file := m.gatewayFile("gateway.yaml", at, "wait: 2s", "capabilities: {holder_key: gateway, per_minute: 1000}")
			m.gateways[0] = newMortal(t, at, gatewayChild+"="+file)
			spent := 0
			for n, p := range killedPoints {
				if testing.Short() && n%2 != e { // each point in one era
					continue
				}
				spent += m.killsPurse(t, era, p)
			}
			if spent == 0 {
				t.Error("nothing was ever spent before the kill")
			}
		})
	}
}

// killsPurse kills the gateway at a point of a call with a new capability, and has the client go on. It is how many uses were spent
// by then.
func (m *mortals) killsPurse(t *testing.T, era string, p killedPoint) (spent int) {
	t.Helper()
	var grant struct {
		ID    string `json:"id"`
		Token string `json:"token"`
	}
	orFail(t, json.Unmarshal(m.at(0, era, nil).ask("capabilities/request", `{"tools":["once"],"max_uses":1}`).result, &grant))
	m.shows = `,"io.policy-service/capability":` + inText(grant.Token)
	uses := func() int {
		t.Helper()
		text, err := m.as(m.warden, http.MethodGet, "/v1/capabilities/"+grant.ID, "")
		orFail(t, err)
		var said struct {
			Used int `json:"used"`
		}
		orFail(t, json.Unmarshal(text, &said))
		return said.Used
	}
	// approvals are how many were used, by all calls so far.
	approvals := func() (n int) {
		t.Helper()
		text, err := m.as(m.warden, http.MethodGet, "/v1/log/export", "")
		orFail(t, err)
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, `"kind":"decision"`) && strings.Contains(line, `"discharged":[`) {
				n++
			}
		}
		return n
	}
	before := approvals()
	c := m.begin(era, p)
	m.gateways[0].kill()
	c.killed()
	if p.by != nil || era == "legacy" {
		c.comesTo(t, p.name, roundsGone)
	}
	if c.trap != nil {
		c.trap.let <- false // who is killed sends nothing more
	}
	m.gateways[0].start()
	spent = uses()
	c.client = m.at(0, era, &c.client)
	c.client.meta = m.shows
	c.call()
	if a := c.next(); a.kind == roundsForm {
		c.form = a
		c.answer("accept", c.client)
		a = c.next()
		if spent == 0 && a.kind != roundsRan {
			t.Errorf("%s: nothing was spent, and then: %s", p.name, a)
		}
	} else if (a.kind == roundsRan) != (spent == 0) {
		t.Errorf("%s: %d was spent, and then: %s", p.name, spent, a)
	}
	again := c.client
	c.client.meta = m.shows
	c.call()
	if a := c.next(); a.kind != roundsRefused {
		t.Errorf("%s: a call more: %s", p.name, a)
	}
	c.client = again
	if seen, n, all := m.seen(c.marker()), uses(), approvals()-before; n != 1 || all != 1 || seen > 1 || spent == 0 && seen != 1 {
		t.Errorf("%s: %d forwards, %d uses, %d spent approvals; %d uses by the kill", p.name, seen, n, all, spent)
	}
	return spent
}
