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
