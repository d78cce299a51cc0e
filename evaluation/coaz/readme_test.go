package coaz_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"policy-service/evaluation/coaz"
)

// TestREADMEGo holds the Go of README.md to the examples, which are run.
func TestREADMEGo(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var examples []string
	for _, after := range strings.Split(string(source), "\nfunc Example")[1:] {
		_, body, _ := strings.Cut(after, "() {\n")
		body, _, _ = strings.Cut(body, "\t// Output:\n")
		examples = append(examples, strings.TrimPrefix(strings.ReplaceAll("\n"+body, "\n\t", "\n"), "\n"))
	}
	if blocks := readmeBlocks(t, "go"); len(examples) != 3 || !slices.Equal(blocks, examples) {
		t.Errorf("README.md says\n%s\nthe examples, of which there are to be 3, are\n%s", strings.Join(blocks, "\n---\n"), strings.Join(examples, "\n---\n"))
	}
}

// TestREADMEJSON makes each question of README.md of the tool, the params and the claims before it.
func TestREADMEJSON(t *testing.T) {
	t.Parallel()
	b := newBinding(t, coaz.Options{})
	var mapping *coaz.Mapping
	op := coaz.Operation{Method: "tools/call"}
	questions := 0
	for _, block := range readmeBlocks(t, "json") {
		o := object(t, block)
		has := func(name string) bool { _, ok := o.Get(name); return ok }
		var err error
		switch {
		case has("inputSchema"):
			if mapping, err = b.Parse(o); err != nil || mapping == nil {
				t.Fatalf("%v in %s", err, block)
			}
		case has("arguments"):
			op.Params = o
		case has("sub"):
			op.Token = o
		default:
			questions++
			q, err := mapping.Questions(op)
			if err != nil {
				t.Fatalf("%v, for %s", err, block)
			}
			if diff := cmp.Diff(anyOf(t, block), anyOf(t, string(q.Envelopes[0].Body))); diff != "" {
				t.Errorf("(-README.md +made):\n%s", diff)
			}
		}
	}
	if questions != 3 {
		t.Errorf("%d questions", questions)
	}
	for name, text := range map[string][]byte{"tool": toolText, "params": paramsText, "claims": claimsText} {
		if !slices.Contains(readmeBlocks(t, "json"), string(text)+"\n") {
			t.Errorf("the %s of the examples is not on the page", name)
		}
	}
}

// TestREADMETables holds what the page says about limits, codes and defaults to the code.
func TestREADMETables(t *testing.T) {
	t.Parallel()
	page := readme(t)
	for method := range defaultTexts(t) {
		if !strings.Contains(page, "`"+method+"`") {
			t.Errorf("the page lacks the default of %s", method)
		}
	}
	d := coaz.DefaultLimits()
	if d.Mapping != 32<<10 || d.Depth != 16 || d.Entries != 64 || d.Expression != 2<<10 || d.Cost != 10_000 || d.Values != 20_000 {
		t.Errorf("the page has other limits than %+v", d)
	}
	m := declare(t, newBinding(t, coaz.Options{}), single(map[string]string{"resource": `{"type": "t", "id": "$params.arguments.no"}`}))
	_, err := m.Questions(operationOf(t, asked))
	if !strings.Contains(page, "`"+err.Error()+"`") {
		t.Errorf("the page does not have the error %q", err)
	}
}

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// readmeBlocks are the blocks of README.md that are tagged so.
func readmeBlocks(t *testing.T, tag string) (blocks []string) {
	t.Helper()
	for _, after := range strings.Split(readme(t), "\n```"+tag+"\n")[1:] {
		block, _, _ := strings.Cut(after, "```\n")
		blocks = append(blocks, block)
	}
	return blocks
}
