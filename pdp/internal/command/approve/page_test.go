package approve

import (
	"bytes"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/internal/approval/inbox"
	"policy-service/pdp/internal/command/cli"
)

// Where several replicas share approvals, a page says of each use that may be on record or not where that is, and since when.
func TestUnderWay(t *testing.T) {
	for status, want := range map[string]string{"approved": "one use is under way, since", "revoked": "one use was under way, since"} {
		var r inbox.Request
		if err := json.Unmarshal([]byte(`{"id":"a1","status":"`+status+`","in_flight":[{"decision":"d7","origin":"pdp/eu-2","since":"2026-01-02T03:04:05Z"}]}`), &r); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		(&page{Streams: cli.Streams{Out: &out}}).print(r)
		if got := strings.Join(strings.Fields(out.String()), " "); !strings.Contains(got, "under way "+want) || !strings.Contains(strings.ReplaceAll(got, " ", ""), "atpdp/eu-2,bydecisiond7") {
			t.Errorf("%s: %s", status, got)
		}
		out.Reset()
		r.InFlight = nil
		if (&page{Streams: cli.Streams{Out: &out}}).print(r); strings.Contains(out.String(), "under way") {
			t.Errorf("nothing is under way: %s", out.String())
		}
	}
}
