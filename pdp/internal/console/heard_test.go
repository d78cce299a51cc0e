package console_test

import (
	"strings"
	"testing"
	"time"
)

// What the server of a tool says is on a line of its own, as its words, and where it says nothing there is no line.
func TestHeardServerSaysOnThePage(t *testing.T) {
	t.Parallel()
	p := openPages(t)
	alice := p.logIn("alice")
	post := func(path, body, after string, want int) string {
		t.Helper()
		got := p.Post(path, body, "Authorization", "Bearer "+p.secret["asker"])
		_, text, found := strings.Cut(got.Body, after)
		if got.Status != want || !found {
			t.Fatalf("%d %s", got.Status, got.Body)
		}
		text, _, _ = strings.Cut(text, `"`)
		return text
	}
	page := func(properties string) string {
		t.Helper()
		question := `"subject":{"type":"agent","id":"agent-release"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"push","properties":` + properties + `}`
		token := post("/access/v1/evaluation", "{"+question+"}", `"binding_token":"`, 200)
		expires := p.Now().Add(10 * time.Minute).UTC().Format(time.RFC3339)
		return alice.page("/console/approvals/" + post("/access/v1/requests",
			"{"+question+`,"denial":{"binding_token":"`+token+`","expires_at":"`+expires+`"}}`, `"approvals":[{"id":"`, 202))
	}
	got := page(`{"approval_hint":{"message":"<b>Harmless.</b>\nDoes  tool.read\u202e"}}`)
	hasNot(t, got, "<b>", "\u202e")
	has(t, strings.Join(strings.Fields(plain(got)), " "), spaced([]string{
		`agent-release wants to use push. (written by the policy, which may quote the request)`,
		`The server says " <b>Harmless.</b> \n Does tool.read \u202e " (nobody vouches for it)`,
	})...)
	hasNot(t, page(`{"approval_hint":{"required":true}}`), "The server says")
	hasNot(t, page(`{"approval_hint":{"message":7}}`), "The server says")
}
