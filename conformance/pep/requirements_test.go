package pep

import (
	"path"
	"strings"
	"testing"

	"policy-service/conformance/internal/casetest"
)

// The page names only cases that there are, all of them, and each of its rows says something.
func TestRequirements(t *testing.T) {
	t.Parallel()
	all, err := load()
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	rows := casetest.Rows(t, "REQUIREMENTS.md")
	for _, row := range rows {
		for _, name := range row.Names() {
			if strings.HasPrefix(name, "--") {
				continue // a flag
			}
			found := false
			for _, c := range all {
				if ok, err := path.Match(name, c.ID); err != nil {
					t.Error(err)
				} else if ok {
					found, named[c.ID] = true, true
				}
			}
			if !found {
				t.Errorf("no case is called %s: %s", name, row.Says)
			}
		}
	}
	for _, c := range all {
		if !named[c.ID] {
			t.Errorf("%s shows nothing that the page says: %s", c.ID, c.Title)
		}
	}
	if len(rows) < 80 {
		t.Errorf("only %d rows", len(rows))
	}
}
