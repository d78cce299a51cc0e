package main

import (
	"slices"
	"strings"
	"testing"
)

// TestTutorialInABrowser reads the tutorial as a person with a browser does: in place of the command that approves, that
// person opens the link that is shown, and does there what the page says.
func TestTutorialInABrowser(t *testing.T) {
	needProgram(t, "curl")
	bin := built(t)
	p := readPage(t, "policies/TUTORIAL.md")
	const reason = "the parcel was lost"
	for _, said := range []string{"Open that link in a browser", "paste the line in `mia.key`, and press Enter", "Type a reason, `" + reason + "`, and press **Approve**"} {
		if !strings.Contains(strings.Join(strings.Fields(p.text), " "), said) {
			t.Errorf("%s no longer says %q, which is what is done here", p.path, said)
		}
	}
	steps := slices.DeleteFunc(p.steps(t), func(s step) bool { return strings.HasPrefix(s.command, "policy-service approvals approve ") })
	if len(steps) != len(p.steps(t))-1 {
		t.Fatalf("%s has %d commands, and %d of them do not approve", p.path, len(p.steps(t)), len(steps))
	}
	parallelPage(t)
	m := newTerminal(t, p, bin)
	m.follows = reason
	m.read(t, p, steps)
}
