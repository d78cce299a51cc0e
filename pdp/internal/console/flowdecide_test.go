package console_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"policy-service/pdp/pdptest/browsertest"
)

// flowScreens are the ways in which people look at the console. Narrow is a telephone.
var flowScreens = map[string][]browsertest.Option{
	"wide":              nil,
	"without script":    {browsertest.WithoutScript()},
	"narrow":            {browsertest.Size(390, 844)},
	"narrow, no script": {browsertest.Size(390, 844), browsertest.WithoutScript()},
}

// flowExtremes are those of them that have least in common.
var flowExtremes = map[string][]browsertest.Option{"wide": nil, "narrow, no script": flowScreens["narrow, no script"]}

// onScreens runs a test on each of some screens, with a server of its own. In the gate it runs on the extremes alone.
func onScreens(t *testing.T, screens map[string][]browsertest.Option, test func(t *testing.T, f *flow, screen []browsertest.Option)) {
	if testing.Short() {
		screens = flowExtremes
	}
	for name, screen := range screens {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, openFlow(t), screen)
		})
	}
}

const flowReason = "I have read the change"

// readyToDecide fails the test unless a person can decide at once: the reason has the focus, and the buttons can be seen.
func readyToDecide(t *testing.T, p *browsertest.Page) {
	t.Helper()
	if at := p.Focus(); at.Role != "textbox" || at.Name != "Reason" {
		t.Errorf("the focus is at %v", at)
	}
	for _, name := range []string{"Approve", "Deny"} {
		if n := p.Find("button", name); !p.InView(n) {
			t.Errorf("%s cannot be seen: it is at %v", name, p.Box(n))
		}
	}
}

// decided fails the test unless the approval request is in a state, and these votes, and no others, are on record.
func (f *flow) decided(id, status string, votes ...string) {
	f.t.Helper()
	got, said := f.said(id)
	var steps []string
	for _, step := range f.onRecord(id) {
		if strings.Contains(step, " by ") {
			steps = append(steps, step)
		}
	}
	if got != status || !slices.Equal(steps, votes) {
		f.t.Errorf("%s is %s, not %s; said %v; on record %q, not %q", id, got, status, said, f.onRecord(id), votes)
	}
}

func byConsole(decision, who, reason string) string {
	return decision + ` by User::"` + who + `" via console: ` + reason
}

func TestBrowserApproveFromInbox(t *testing.T) {
	t.Parallel()
	onScreens(t, flowScreens, func(t *testing.T, f *flow, screen []browsertest.Option) {
		id := f.push("agent-release")
		p := f.open("alice", screen...)
		before := p.Clicks()
		p.Loads(func() { p.Click("link", "agent-release") })
		readyToDecide(t, p)
		p.Type(flowReason)
		p.Loads(func() { p.Click("button", "Approve") })
		if clicks := p.Clicks() - before; clicks != 2 {
			t.Errorf("%d clicks", clicks)
		}
		f.decided(id, "approved", byConsole("approve", "alice", flowReason))
		if status, said := f.said(id); said[0].Via != "console" || said[0].Reason != flowReason {
			t.Errorf("%s, %v", status, said)
		}
	})
}

func TestBrowserApproveFromLink(t *testing.T) {
	t.Parallel()
	onScreens(t, flowScreens, func(t *testing.T, f *flow, screen []browsertest.Option) {
		id := f.push("agent-release")
		p := browsertest.Open(t, f.URL, screen...)
		p.Goto("/console/approvals/" + id) // to the login, and after it back here
		f.logIn(p, "alice")
		readyToDecide(t, p)
		p.Type(flowReason)
		p.Loads(func() { p.Click("button", "Approve") })
		if p.Clicks() != 1 {
			t.Errorf("%d clicks", p.Clicks())
		}
		f.decided(id, "approved", byConsole("approve", "alice", flowReason))
	})
}

// TestBrowserKeyboardAlone has a person who has no mouse log in, decide and log out.
func TestBrowserKeyboardAlone(t *testing.T) {
	t.Parallel()
	onScreens(t, flowScreens, func(t *testing.T, f *flow, screen []browsertest.Option) {
		id, other := f.push("agent-release"), f.push("agent-nightly")
		p := f.open("alice", screen...)
		tabs := p.TabTo("link", "agent-release")
		p.Loads(func() { p.Press("Enter") })
		readyToDecide(t, p)
		p.Type(flowReason)
		if n := p.TabTo("button", "Approve"); n != 1 {
			t.Errorf("Approve is %d keys after the reason", n)
		}
		if n := p.TabTo("button", "Deny"); n != 1 {
			t.Errorf("Deny is %d keys after Approve", n)
		}
		p.Press("Shift+Tab")
		p.Loads(func() { p.Press("Space") })
		f.decided(id, "approved", byConsole("approve", "alice", flowReason))

		p.Goto("/console/approvals")
		p.TabTo("link", "agent-nightly")
		p.Loads(func() { p.Press("Enter") })
		p.Type("not at night")
		p.TabTo("button", "Deny")
		p.Loads(func() { p.Press("Enter") })
		f.decided(other, "denied", byConsole("deny", "alice", "not at night"))

		p.TabTo("button", "Log out")
		p.Loads(func() { p.Press("Enter") })
		if p.Clicks() != 0 || tabs > 15 {
			t.Errorf("%d clicks, and %d keys to the first row", p.Clicks(), tabs)
		}
	})
}

func TestBrowserDelegate(t *testing.T) {
	t.Parallel()
	onScreens(t, flowExtremes, func(t *testing.T, f *flow, screen []browsertest.Option) {
		f.key("zoe", "zoe", "approve") // who leads nothing
		id := f.push("agent-release")
		p, zoe := f.open("alice", screen...), f.open("zoe", screen...)
		zoe.Refused("/console/approvals/"+id, http.StatusNotFound)
		p.Goto("/console/approvals/" + id)
		p.Click("DisclosureTriangle", "Delegate")
		if all := p.All("textbox", "Reason"); len(all) != 1 || p.Has("button", "Approve") {
			t.Errorf("beside the form that delegates there is another one\n%s", p.Tree())
		}
		p.Fill("To", `User::"zoe"`)
		p.Press("Tab")
		p.Type("she wrote it")
		p.Loads(func() { p.Click("button", "Delegate") })
		if steps := f.onRecord(id); len(steps) != 2 || steps[1] != byConsole("delegate", "alice", `she wrote it User::"zoe"`) {
			t.Errorf("on record %q", steps)
		}
		zoe.Goto("/console/approvals/" + id)
		readyToDecide(t, zoe)
		zoe.Type(flowReason)
		zoe.Loads(func() { zoe.Click("button", "Approve") })
		if status, _ := f.said(id); status != "approved" {
			t.Errorf("it is %s", status)
		}
	})
}

// TestBrowserEnterApprovesNothing has somebody who presses Enter in each field, with everything filled in.
func TestBrowserEnterApprovesNothing(t *testing.T) {
	t.Parallel()
	onScreens(t, flowExtremes, func(t *testing.T, f *flow, screen []browsertest.Option) {
		id := f.push("agent-release")
		p := f.open("alice", screen...)
		p.Goto("/console/approvals/" + id)
		p.Type("as agreed")
		p.Press("Enter", "Enter", "Tab", "Shift+Tab", "Enter") // line breaks, and nothing else
		p.Click("DisclosureTriangle", "Delegate")
		for _, field := range p.All("textbox", "Reason") {
			p.FocusOn(field)
			p.Press("Enter")
		}
		p.Settle()
		f.untouched(id)
		p.Fill("To", "Zoe, if that is a name") // no person, as policies write one: Enter may send it, to nobody
		p.Answers(http.StatusUnprocessableEntity, func() { p.Press("Enter") })
		f.untouched(id)
	})
}

// TestBrowserDoubleClickIsOneVote clicks twice before the first answer comes.
func TestBrowserDoubleClickIsOneVote(t *testing.T) {
	t.Parallel()
	onScreens(t, flowExtremes, func(t *testing.T, f *flow, screen []browsertest.Option) {
		id := f.asks("agent-release", "aws.terminate_instance", `{"instance":"i-1"}`) // which needs two people
		p := f.open("alice", screen...)
		p.Goto("/console/approvals/" + id)
		p.Type(flowReason)
		p.Loads(func() { p.DoubleClick("button", "Approve") })
		f.decided(id, "pending", byConsole("approve", "alice", flowReason))
		p.Reload()
		p.Reload()
		f.decided(id, "pending", byConsole("approve", "alice", flowReason))
	})
}

// TestBrowserShortcuts presses the keys that a script listens for. None of them says anything by itself.
func TestBrowserShortcuts(t *testing.T) {
	t.Parallel()
	f := openFlow(t)
	first, second := f.push("agent-release"), f.push("agent-nightly")
	p := f.open("alice")
	p.Press("j", "j", "k")
	if at := p.Focus(); at.Role != "link" || !strings.Contains(at.Name, "agent-release") {
		t.Errorf("after j, j and k the focus is at %v", at)
	}
	p.Loads(func() { p.Press("Enter") })
	p.Type("ad")                  // of the reason
	p.Press("Escape", "a", "Tab") // to Approve, and on
	if at := p.Focus(); at.Name != "Deny" {
		t.Errorf("after a and Tab the focus is at %v", at)
	}
	p.Press("a", "d", "a")
	for _, shown := range []bool{true, false, true} {
		if strings.Contains(p.Tree(), "out of the field") != shown {
			t.Errorf("the line with the keys is there, or is not\n%s", p.Tree())
		}
		p.Press("?")
	}
	p.Loads(func() { p.Press("j") }) // to the next one
	if p.Path() != "/console/approvals/"+second {
		t.Errorf("after j at %s", p.Path())
	}
	p.Press("Escape", "a") // there is no reason yet
	if at := p.Focus(); at.Name != "Reason" {
		t.Errorf("without a reason the focus is at %v", at)
	}
	f.untouched(first)
	f.untouched(second)
}
