package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
)

// TestJustificationIsOnRecord: what approvers read as the reason of the question stands in the steps that they were shown, as
// the decision has it: without secrets, and without what approvers are shown of secrets.
func TestJustificationIsOnRecord(t *testing.T) {
	t.Parallel()
	c := openDesk(t)
	const secret = "hunter2hunter2"
	id := c.asks("pep", tool("push", `"arguments":{"password":"`+secret+`"},"justification":"the Q3 launch, by `+secret+`"`)).Approval.ID
	c.says("mia", id, "decision", `{"decision":"approve","reason":"fine"}`, http.StatusOK)
	if _, shown := c.do("mia", "GET", "/v1/approvals/"+id, ""); !strings.Contains(shown, "the Q3 launch, by ") || strings.Contains(shown, secret) {
		t.Errorf("an approver is shown %s", shown)
	}
	type line struct {
		Kind, Event string
		Request     struct {
			Context struct{ Justification string }
		}
		Details struct {
			Justification struct{ Justification string }
		}
	}
	var decided, steps struct{ Items []line }
	read := func(query string, into any) {
		t.Helper()
		status, text := c.do("operator", "GET", "/v1/decisions?order=oldest&text=q3+launch&kind="+query, "")
		if status != http.StatusOK || strings.Contains(text, secret) {
			t.Fatalf("got %d %s", status, text)
		}
		must(t, json.Unmarshal([]byte(text), into, json.MatchCaseInsensitiveNames(true)))
	}
	read("decision", &decided)
	read("approval", &steps)
	if len(decided.Items) != 1 || len(steps.Items) != 2 || steps.Items[0].Event != "filed" || steps.Items[1].Event != "approve" {
		t.Fatalf("found %+v and %+v", decided, steps)
	}
	want := decided.Items[0].Request.Context.Justification
	for _, step := range steps.Items {
		if got := step.Details.Justification.Justification; got != want || !strings.HasPrefix(got, "the Q3 launch, by masked:") || strings.Contains(got, "(") {
			t.Errorf("%s has %q, and the decision %q", step.Event, got, want)
		}
	}
}
