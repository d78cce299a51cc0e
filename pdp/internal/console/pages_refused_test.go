package console_test

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// What differs from the last time is said, and what is the same.
func TestPageCompares(t *testing.T) {
	t.Parallel()
	p := openPages(t)
	mia, alice := p.logIn("mia"), p.logIn("alice")
	first := p.asks("github.push_code", `{"arguments":{"branch":"staging","force":true,"repository":"shop"}}`)
	mia.says(mia.page("/console/approvals/"+first), "/decision", "decision", "approve", "reason", "as planned")
	p.Advance(5 * time.Minute)
	id := p.asks("github.push_code", `{"arguments":{"branch":"main","repository":"shop","tags":[1,"<b>"]},"note":7}`)
	has(t, plain(alice.page("/console/approvals/"+id)),
		`Arguments Name Now Last time branch new: " main " last time: was: " staging "`, `note new: 7 not there last time`, `tags new: [1, "<b>"] not there last time force not there now last time: was: true`, `repository " shop " same as last time`,
		`The last one like it: 03:04 UTC , Approved ; User::"mia" approved: as planned`,
		`Asked of team-lead in tenant default , besides you: User::"frank" , User::"mia"`)
}

// What does not count is said, decides nothing, and keeps what was typed.
func TestPageKeepsWhatWasTyped(t *testing.T) {
	t.Parallel()
	p := openPages(t)
	alice, frank := p.logIn("alice"), p.logIn("frank")
	id := p.asks("github.push_code", push)
	at := "/console/approvals/" + id
	old := alice.page(at)
	refused := func(status int, fields ...string) (body string) {
		t.Helper()
		got := alice.says(old, "/decision", fields...)
		if got.Status != status {
			t.Fatalf("%d %s", got.Status, got.Body)
		}
		return got.Body
	}
	body := refused(http.StatusUnprocessableEntity, "decision", "approve", "reason", " \n")
	has(t, body, `aria-invalid="true"`, `Write why: it goes on record.`, ` autofocus`)
	has(t, refused(http.StatusBadRequest, "decision", "approve", "reason", strings.Repeat("x", 2000)), strings.Repeat("x", 2000)+"</textarea>", "nothing was decided")
	refused(http.StatusBadRequest, "decision", "revoke", "reason", "r")
	body = refused(http.StatusUnprocessableEntity, "decision", "delegate", "reason", "on leave", "to", " ")
	has(t, body, `<details class="delegate" open>`, `Name a person, as policies do`, `>on leave</textarea>`)
	body = refused(http.StatusUnprocessableEntity, "decision", "delegate", "reason", "", "to", `User::"lena"`)
	has(t, body, `value="User::&#34;lena&#34;"`)
	body = refused(http.StatusBadRequest, "decision", "delegate", "reason", "on leave", "to", `User::"alice"`)
	has(t, body, `value="User::&#34;alice&#34;"`, `>on leave</textarea>`, "this is yourself")
	hasNot(t, plain(alice.page(at)), "Said")

	// Somebody else is faster. What alice typed stands there still, and counts if she says it of what is there now.
	got := frank.says(frank.page(at), "/decision", "decision", "delegate", "reason", "on leave", "to", `User::"lena"`)
	has(t, plain(frank.page(got.Header.Get("Location"))), "Waits for others", `User::"frank" delegated to User::"lena"`,
		"You cannot approve, deny or delegate: you may see this approval request, but you have no vote on it")
	body = refused(http.StatusConflict, "decision", "approve", "reason", "typed before")
	has(t, plain(body), "It has changed since you opened it, and nothing was decided.", "typed before Approve", `User::"frank" delegated to`)
	if got = alice.says(body, "/decision", "decision", "approve", "reason", "typed before"); got.Status != http.StatusSeeOther {
		t.Errorf("%d %s", got.Status, got.Body)
	}
	// Somebody clicks twice, and the second answer is what they see. Another word does not count.
	twice := alice.says(body, "/decision", "decision", "approve", "reason", "typed before")
	if twice.Status != http.StatusSeeOther || twice.Header.Get("Location") != got.Header.Get("Location") {
		t.Errorf("%d %s", twice.Status, twice.Body)
	}
	has(t, plain(refused(http.StatusConflict, "decision", "deny", "reason", "typed before")), "Approved", "nothing was decided")
}

// The inbox has tabs, filters and pages, and each link keeps what is chosen.
func TestPagesOfInbox(t *testing.T) {
	t.Parallel()
	p := openPages(t)
	alice := p.logIn("alice")
	var ids []string
	for n := range 52 {
		ids = append(ids, p.asks("deploy", `{"arguments":{"n":`+strings.Repeat("1", n+1)+`}}`))
		p.Advance(time.Millisecond)
	}
	other := p.asks("other", push)
	body := alice.page("/console/approvals")
	has(t, body, `50+`, `href="/pdp/console/approvals/`+ids[0]+`"`, `href="/pdp/console/approvals/`+ids[49]+`"`, `rel="next"`)
	hasNot(t, body, ids[50], "First page")
	if len(body) > 200<<10 {
		t.Errorf("a page of the inbox has %d bytes", len(body))
	}
	_, rest, _ := strings.Cut(body, `<nav class="pages"`)
	_, rest, _ = strings.Cut(rest, `href="`)
	next, _, _ := strings.Cut(rest, `"`)
	body = alice.page(strings.ReplaceAll(next, "&amp;", "&"))
	has(t, body, ids[50], ids[51], other, "First page")
	hasNot(t, body, ids[49], "Next page")

	body = alice.page("/console/approvals?resource=tool/other&tenant=default")
	has(t, body, other, `value="tool/other"`, `tab=done&amp;tenant=default`, "Clear")
	hasNot(t, body, ids[0])
	has(t, plain(alice.page("/console/approvals?resource=%22%3E%3Cb%3E")), "Nothing matches the filter.")

	alice.says(alice.page("/console/approvals/"+other), "/decision", "decision", "deny", "reason", "no")
	hasNot(t, alice.page("/console/approvals?resource=tool/other"), other)
	has(t, plain(alice.page("/console/approvals?tab=said&status=denied")), "tool/other", "Denied")
	has(t, plain(alice.page("/console/approvals?tab=done&status=denied")), "tool/other", "Denied")
	has(t, plain(alice.page("/console/approvals?tab=done")), "Done 1", "tool/other", "Denied")
	hasNot(t, alice.page("/console/approvals?tab=done&status=approved"), other)

	// A page leads to those beside it.
	body = alice.page("/console/approvals/" + ids[1])
	has(t, body, `href="/pdp/console/approvals/`+ids[0]+`" rel="prev"`, `href="/pdp/console/approvals/`+ids[2]+`" rel="next"`)
	got := alice.says(body, "/decision", "decision", "deny", "reason", "no")
	has(t, alice.page(got.Header.Get("Location")), `<a href="/pdp/console/approvals/`+ids[0]+`" rel="next">Next</a>`)
}
