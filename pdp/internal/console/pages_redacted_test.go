package console_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestPagesShowNothingThatWasRedacted: the list and the page of an approval request say that it was, and by whom it was
// denied.
func TestPagesShowNothingThatWasRedacted(t *testing.T) {
	t.Parallel()
	p := openPages(t)
	const word = "Xyzzy4711"
	id := p.asks("push", `{"arguments":{"branch":"`+word+`"},"justification":"because of `+word+`"}`)
	frank := p.logIn("frank")
	body := frank.page("/console/approvals/" + id)
	if !strings.Contains(body, word) {
		t.Fatalf("got %s", body)
	}
	if got := frank.says(body, "/decision", "decision", "deny", "reason", "no "+word); got.Status != http.StatusSeeOther {
		t.Fatalf("got %d %s", got.Status, got.Body)
	}
	got := p.Post("/v1/approvals/"+id+"/redaction", `{"reason":"erasure"}`, "Authorization", "Bearer "+p.secret["operator"])
	if got.Status != http.StatusOK {
		t.Fatalf("got %d %s", got.Status, got.Body)
	}
	for _, path := range []string{"/console/approvals/" + id, "/console/approvals?tab=said&status=denied"} {
		body := frank.page(path)
		if strings.Contains(body, word) || strings.Contains(body, "agent-release") || !strings.Contains(body, "edacted") {
			t.Errorf("%s: got %s", path, body)
		}
	}
}
