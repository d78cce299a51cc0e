package authzenclient_test

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestREADME holds the Go of README.md to the examples, which are run.
func TestREADME(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var source []byte
	for _, name := range []string{"example_test.go", "approvals/example_test.go"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		source = append(source, text...)
	}
	var blocks, examples []string
	for _, after := range strings.Split(string(readme), "\n```go\n")[1:] {
		block, _, _ := strings.Cut(after, "```\n")
		blocks = append(blocks, block)
	}
	for _, after := range strings.Split(string(source), "\nfunc Example")[1:] {
		_, body, _ := strings.Cut(after, "() {\n")
		body, _, _ = strings.Cut(body, "\t// Output:\n")
		examples = append(examples, strings.TrimPrefix(strings.ReplaceAll("\n"+body, "\n\t", "\n"), "\n"))
	}
	if len(examples) != 6 || !slices.Equal(blocks, examples) {
		t.Errorf("README.md says\n%s\nthe examples, of which there are to be 6, are\n%s", strings.Join(blocks, "\n---\n"), strings.Join(examples, "\n---\n"))
	}
}
