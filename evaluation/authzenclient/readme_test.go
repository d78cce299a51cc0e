package authzenclient_test

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestREADME holds the Go of README.md, and of the page for agents that hold capabilities, to the examples, which are run.
func TestREADME(t *testing.T) {
	t.Parallel()
	read := func(names ...string) (all string) {
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			all += string(text)
		}
		return all
	}
	readme := read("README.md", "../../pdp/capability/AGENT.md")
	source := read("example_test.go", "approvals/example_test.go")
	var blocks, examples []string
	for _, after := range strings.Split(readme, "\n```go\n")[1:] {
		block, _, _ := strings.Cut(after, "```\n")
		blocks = append(blocks, block)
	}
	for _, after := range strings.Split(source, "\nfunc Example")[1:] {
		_, body, _ := strings.Cut(after, "() {\n")
		body, _, _ = strings.Cut(body, "\t// Output:\n")
		examples = append(examples, strings.TrimPrefix(strings.ReplaceAll("\n"+body, "\n\t", "\n"), "\n"))
	}
	if len(examples) != 7 || !slices.Equal(blocks, examples) {
		t.Errorf("README.md says\n%s\nthe examples, of which there are to be 7, are\n%s", strings.Join(blocks, "\n---\n"), strings.Join(examples, "\n---\n"))
	}
}
