package console_test

import "testing"

const pagesEntities = `
-- entities/known.json --
[{"uid": {"type": "Tool", "id": "github.push_code"}, "attrs": {}, "parents": []},
 {"uid": {"type": "Agent", "id": "agent-release"}, "attrs": {}, "parents": []}]
`

// What looks like something that the policies know is named, beside names and above the buttons; what is known is not.
func TestPageNamesWhatLooksKnown(t *testing.T) {
	t.Parallel()
	p := openPages(t, pagesEntities)
	alice := p.logIn("alice")
	known := plain(alice.page("/console/approvals/" + p.asks("github.push_code", push)))
	has(t, known, "Does tool.invoke with tool/github.push_code")
	hasNot(t, known, "looks like")
	for _, context := range []string{
		`{"arguments":{"tool":"github.push_c0de"},"agent":{"type":"agent","id":"agent-re1ease"}}`,
		`{"arguments":{"tool":"github.push_c0de"},"on_behalf_of":[{"type":"agent","id":"agent-re1ease"}]}`,
	} {
		text := plain(alice.page("/console/approvals/" + p.asks("github.push_c0de", context)))
		has(t, text, "tool/github.push_c0de looks like github.push_code , and is another",
			"agent/agent-re1ease looks like agent-release , and is another",
			"/resource/id looks like github.push_code , and is another.",
			"/context/arguments/tool looks like github.push_code , and is another.")
	}
}

// People see who asked the one who acts, apart from those for whom it is done, and once; a requester that names nobody else
// is not shown.
func TestActorsPageNamesTheRequester(t *testing.T) {
	t.Parallel()
	p := openPages(t, pagesEntities)
	alice := p.logIn("alice")
	page := plain(alice.page("/console/approvals/" + p.asks("github.push_code", `{"arguments":{"n":1},"on_behalf_of":[{"type":"user","id":"bob"}],"requester":{"type":"agent","id":"agent-re1ease"}}`)))
	has(t, page, "For user/bob Requested by agent/agent-re1ease looks like agent-release , and is another Does tool.invoke",
		"/context/requester/id looks like agent-release , and is another.")
	hasNot(t, page, "Context Name Value")
	hasNot(t, plain(alice.page("/console/approvals/"+p.asks("github.push_code", `{"arguments":{"n":2}}`))), "Requested by")
}
