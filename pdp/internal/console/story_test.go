package console_test

import (
	"net/http"
	"strings"
	"testing"

	"policy-service/pdp/pdptest/browsertest"
)

// TestBrowserStory: four requests differ in nothing but an argument. A lead denies one and approves two, the program
// withdraws the last one meanwhile, and each is found again.
func TestBrowserStory(t *testing.T) {
	t.Parallel()
	for _, s := range screens {
		for name, script := range map[string][]browsertest.Option{"scripts": nil, "no scripts": {browsertest.WithoutScript()}} {
			if testing.Short() && (s.name == "wide and dark" || s.name == "narrow and light" || (s.width > 1000) != (script == nil)) {
				continue
			}
			t.Run(s.name+", "+name, func(t *testing.T) {
				t.Parallel()
				screen := append(script, browsertest.Size(int(s.width), int(s.height)), browsertest.Media("prefers-color-scheme", s.colours))
				story(t, openFlow(t), screen, script == nil)
			})
		}
	}
}

func story(t *testing.T, f *flow, screen []browsertest.Option, scripts bool) {
	branches := []string{"alpha", "beta", "gamma", "delta"}
	ids := map[string]string{}
	for _, branch := range branches {
		ids[branch] = f.asks("agent-release", "github.push_code", `{"branch":"`+branch+`","repository":"shop"}`)
	}
	p := f.open("alice", screen...)
	rows := func(tab string, states ...string) {
		t.Helper()
		if tab != "" {
			p.Loads(func() { p.Click("link", tab) })
		}
		all, cells := p.All("rowheader", "agent/agent-release"), p.All("cell", "")
		if len(all) != len(states) {
			t.Fatalf("%d rows, not %d\n%s", len(all), len(states), p.Tree())
		}
		for n, want := range states {
			branch, state, _ := strings.Cut(want, " ")
			if is := cells[n*len(cells)/len(all)+1].Name; !strings.Contains(all[n].Name, branch) || !strings.Contains(is, state) {
				t.Errorf("row %d is %q, in state %q, and not %q", n+1, all[n].Name, is, want)
			}
		}
	}
	decide := func(branch, reason, button, status string) {
		t.Helper()
		p.Loads(func() { p.Click("link", "Inbox") })
		p.Loads(func() { p.Click("rowheader", branch) })
		if p.Path() != "/console/approvals/"+ids[branch] {
			t.Fatalf("%s leads to %s", branch, p.Path())
		}
		p.Type(reason)
		p.Loads(func() { p.Click("button", button) })
		f.decided(ids[branch], status, byConsole(strings.ToLower(button), "alice", reason))
	}
	rows("", "alpha", "beta", "gamma", "delta")
	if title := browsertest.Eval[string](p, "document.title"); !strings.HasPrefix(title, "(4) ") {
		t.Errorf("the title is %q", title)
	}
	decide("beta", "not this one", "Deny", "denied")
	decide("alpha", "tests are green", "Approve", "approved")
	decide("gamma", "tests are green", "Approve", "approved")

	p.Loads(func() { p.Click("link", "Inbox") })
	rows("", "delta")
	withdraw := func() {
		f.api("gateway", http.MethodPost, "/v1/approvals/"+ids["delta"]+"/cancel", `{"reason":"not needed"}`, new(any))
	}
	if scripts {
		p.Loads(withdraw)
	} else {
		withdraw()
		p.Reload()
	}
	rows("")
	rows("Done", "delta Cancelled", "gamma Approved", "beta Denied", "alpha Approved")
	rows("Said by me", "gamma Approved", "beta Denied", "alpha Approved")
	for branch, status := range map[string]string{"alpha": "Approved", "beta": "Denied", "gamma": "Approved", "delta": "Cancelled"} {
		p.Loads(func() { p.Click("link", "Inbox") })
		p.Loads(func() { p.Click("link", "Done") })
		p.Loads(func() { p.Click("rowheader", branch) })
		if p.Path() != "/console/approvals/"+ids[branch] || !p.Has("heading", status) {
			t.Errorf("%s leads to %s\n%s", branch, p.Path(), p.Tree())
		}
	}
}
