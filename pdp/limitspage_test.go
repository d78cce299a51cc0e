package pdp

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The page for operators says what one owner of files may bring.
func TestTheLimitsPageSaysWhatAnOwnerMayBring(t *testing.T) {
	page, err := os.ReadFile("server/LIMITS.md")
	must(t, err)
	row := func(what string, of func(*bounds) string) {
		t.Helper()
		holds(t, string(page), what, of(tenantBounds), of(rootBounds))
	}
	row("files, bytes of all of them", func(b *bounds) string { return fmt.Sprintf("%s, %d MiB", grouped(b.files), b.bytes>>20) })
	row("names looked up on the ways to its files", func(b *bounds) string { return grouped(b.looked) })
	row("entities, values in them", func(b *bounds) string { return grouped(b.entities) + ", " + grouped(b.values) })
	row("references to parents; ancestors of one entity", func(b *bounds) string { return grouped(b.parents) + "; " + grouped(b.ancestors) })
	row("steps through `identities` of one person, of all", func(b *bounds) string { return grouped(b.person) + ", " + grouped(b.persons) })
	row("words and signs of policies", func(b *bounds) string { return grouped(b.words) })
	row("steps of checking policies against the schema", func(b *bounds) string { return grouped(b.checks) })
	a := newAllowance()
	for _, want := range []string{
		grouped(maxSchema) + " types and references",
		fmt.Sprintf("more than %d MiB of new files at once, or %d KiB a second in the long run; each\n  edit counts as %d KiB at least", a.most>>20, a.second>>10, a.least>>10),
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("it does not say %s", want)
		}
	}
}
