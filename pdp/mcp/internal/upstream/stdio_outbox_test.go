package upstream

import (
	"testing"

	"policy-service/pdp/mcp/internal/rpc"
)

// A caller that takes lines back leaves their places to others, while the server reads nothing.
func TestOutboxFreesWhatIsWithdrawn(t *testing.T) {
	t.Parallel()
	o, m := newOutbox(), rpc.Message{Method: "notifications/message"}
	fill := func(most int64) {
		t.Helper()
		var all []*outLine
		for l := o.add(m, most); l != nil; l = o.add(m, most) {
			all = append(all, l)
		}
		if int64(len(all)) != most {
			t.Fatalf("%d lines of %d", len(all), most)
		}
		for _, l := range all {
			o.withdraw(l)
		}
	}
	for range 3 {
		fill(mostLines)
	}
	fill(mostOwnLines)
	for len(o.lines) < cap(o.lines) { // what was withdrawn is bounded too
		o.withdraw(o.add(m, mostLines))
	}
	if o.add(m, mostLines) != nil {
		t.Error("the outbox has no bound")
	}
}
