package cedartext_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cedar-policy/cedar-go"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"policy-service/pdp/internal/cedartext"
	"policy-service/pdp/pdptest/night"
)

var update = flag.Bool("update", false, "write the goldens")

// TestGoldens: in an archive, a file is followed by its layout, or by why it has none.
func TestGoldens(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("testdata/format/*.txtar")
	must(t, err)
	if len(names) == 0 {
		t.Fatal("there is none")
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		must(t, err)
		archive := txtar.Parse(text)
		made := &txtar.Archive{Comment: archive.Comment}
		for _, file := range archive.Files {
			if strings.HasSuffix(file.Name, " out") {
				continue
			}
			laid, refused := cedartext.Format(string(file.Data))
			if refused != nil {
				laid = refused.Error() + "\n"
			} else {
				keeps(t, string(file.Data), laid)
			}
			made.Files = append(made.Files, file, txtar.File{Name: file.Name + " out", Data: []byte(laid)})
		}
		if *update {
			must(t, os.WriteFile(name, txtar.Format(made), 0o644))
		} else if diff := cmp.Diff(string(text), string(txtar.Format(made))); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestFormatKeepsAll: whatever policies say, and wherever their comments stand, cedar-go reads the same from their layout,
// the comments are there in their order, and to lay it out again changes nothing.
func TestFormatKeepsAll(t *testing.T) {
	t.Parallel()
	most := night.Cases(400)
	for name, texts := range map[string][]string{
		"corpus":     corpus(t),
		"repository": repository(t),
		"plain":      generated(most, plain),
		"commented":  generated(most, making.commented),
		"scattered":  generated(most, making.scattered),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, text := range texts {
				laid, refused := cedartext.Format(text)
				if refused != nil {
					t.Errorf("refused, %v:\n%s", refused, text)
					continue
				}
				keeps(t, text, laid)
			}
		})
	}
}

// keeps fails unless a layout has all that was in the text.
func keeps(t *testing.T, text, laid string) {
	t.Helper()
	if was, is := tree(t, text), tree(t, laid); !bytes.Equal(was, is) {
		t.Errorf("of\n%s\nbecomes\n%s\nof which cedar-go reads\n%s\nand not\n%s", text, laid, is, was)
	}
	if was, is := commentsOf(text), commentsOf(laid); !slices.Equal(was, is) {
		t.Errorf("of\n%s\nbecomes\n%s\nwith the comments\n%q\nand not\n%q", text, laid, is, was)
	}
	if again, refused := cedartext.Format(laid); again != laid {
		t.Errorf("laid out again\n%s\nbecomes, %v,\n%s", laid, refused, again)
	}
}

// tree is what cedar-go reads, as JSON.
func tree(t *testing.T, text string) []byte {
	t.Helper()
	list, err := cedar.NewPolicyListFromBytes("", []byte(text))
	if err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	var all []byte
	for _, p := range list {
		one, err := p.MarshalJSON()
		must(t, err)
		all = append(append(all, one...), '\n')
	}
	return all
}

// commentsOf reads comments in another way than the lexer does.
func commentsOf(text string) (all []string) {
	for line := range strings.Lines(text) {
		quoted := false
		for i := 0; i < len(line); i++ {
			switch {
			case quoted && line[i] == '\\':
				i++
			case line[i] == '"':
				quoted = !quoted
			case !quoted && strings.HasPrefix(line[i:], "//"):
				all = append(all, strings.TrimRight(line[i:], " \t\r\n"))
				i = len(line)
			}
		}
	}
	return all
}

// What hostile texts nest is bounded, and how long they are takes no more than its time.
func TestFormatIsBounded(t *testing.T) {
	t.Parallel()
	const size = 100_000
	for name, text := range map[string]string{
		"brackets": strings.Repeat("(", size),
		"sets":     strings.Repeat("[", size),
		"records":  strings.Repeat("{a:", size),
		"calls":    strings.Repeat("context.contains(", size/10),
		"signs":    strings.Repeat("!", size),
		"ifs":      strings.Repeat("if ", size),
	} {
		_, refused := cedartext.Format("permit(principal,action,resource) when {" + text)
		if refused == nil || refused.Problem != "brackets, ifs and signs nest more than 500 deep" {
			t.Errorf("%s: %v", name, refused)
		}
	}
	for name, text := range map[string]string{
		"a chain":     "context" + strings.Repeat(" && context", size/10),
		"a path":      "context" + strings.Repeat(".a", size/2),
		"a list":      "[" + strings.Repeat("1,", size/2) + "1]",
		"many texts":  "[" + strings.Repeat(`"",`, size/3) + `""]`,
		"nested sets": strings.Repeat("[1,", 400) + "1" + strings.Repeat("]", 400),
	} {
		if _, refused := cedartext.Format("permit(principal,action,resource) when {" + text + "};"); refused != nil {
			t.Errorf("%s: %v", name, refused)
		}
	}
}
