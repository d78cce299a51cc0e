package server_test

import (
	"encoding/csv"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"policy-service/pdp/internal/decisionlog/report"
)

// What waits for approval is no allow, wherever the log is read, until somebody approved and the caller asked again.
func TestWaitingIsNoAllow(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	id := c.asks("pep", tool("push", push)).Approval.ID // a yes with which nobody may go ahead
	c.says("mia", id, "decision", yes, 200)
	if !c.asks("pep", tool("push", again)).may() {
		t.Fatal("it was not approved")
	}
	c.asks("pep", tool("nowhere", push))
	for answer, want := range map[string]int{"allow": 1, "waiting": 1, "deny": 1} {
		status, text := c.do("auditor", "GET", "/v1/decisions?decision="+answer, "")
		var page recordPage
		must(t, json.Unmarshal([]byte(text), &page))
		if status != 200 || len(page.Items) != want || strings.Contains(text, `"type":"approval_required","properties"`) != (answer == "waiting") {
			t.Errorf("%s: got %d %s", answer, status, text)
		}
	}
	var r report.Report
	_, text := c.do("auditor", "GET", "/v1/log/report", "")
	must(t, json.Unmarshal([]byte(text), &r))
	if p := r.Population; p.Allowed != 1 || p.Waiting != 1 || p.Denied != 1 {
		t.Errorf("the report: %s", text)
	}
	if _, text := c.do("auditor", "GET", "/v1/log/stats", ""); !strings.Contains(text, `"allowed":1,"waiting":1,"denied":1,`) {
		t.Errorf("the counts: %s", text)
	}
	_, text = c.do("auditor", "GET", "/v1/log/export?format=csv", "")
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	must(t, err)
	cell := func(row []string, column string) string { return row[slices.Index(rows[0], column)] }
	answers := map[string]int{}
	for _, row := range rows[1:] {
		if cell(row, "kind") == "decision" {
			answers[cell(row, "decision")]++
		}
		var request, details struct {
			Subject  struct{ ID string }
			Approval string
		}
		if text := cell(row, "request"); text != "" {
			must(t, json.Unmarshal([]byte(text), &request))
		}
		if text := cell(row, "details"); text != "" {
			must(t, json.Unmarshal([]byte(text), &details))
		}
		wantID, wantBy, wantReason := details.Approval, "", ""
		switch {
		case cell(row, "event") == "approve":
			wantBy, wantReason = `user::"mia"`, "fine"
		case cell(row, "decision") == "allow":
			wantID = id
		}
		if cell(row, "approval_id") != wantID || cell(row, "by") != wantBy || cell(row, "reason_text") != wantReason || request.Subject.ID != cell(row, "subject_id") {
			t.Errorf("%q", row)
		}
	}
	if want := map[string]int{"allow": 1, "waiting": 1, "deny": 1}; !maps.Equal(answers, want) {
		t.Errorf("got %v, want %v", answers, want)
	}
}
