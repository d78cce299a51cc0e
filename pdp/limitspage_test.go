package pdp

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"policy-service/pdp/internal/bundle"
)

// The page for operators says what one owner of files may bring.
func TestTheLimitsPageSaysWhatAnOwnerMayBring(t *testing.T) {
	page, err := os.ReadFile("server/LIMITS.md")
	must(t, err)
	row := func(what string, of func(*bundle.Bounds) string) {
		t.Helper()
		holds(t, string(page), what, of(bundle.TenantBounds), of(bundle.RootBounds))
	}
	row("files, bytes of all of them", func(b *bundle.Bounds) string { return fmt.Sprintf("%s, %d MiB", grouped(b.Files), b.Bytes>>20) })
	row("names looked up on the ways to its files", func(b *bundle.Bounds) string { return grouped(b.Looked) })
	row("entities, values in them", func(b *bundle.Bounds) string { return grouped(b.Entities) + ", " + grouped(b.Values) })
	row("references to parents; ancestors of one entity", func(b *bundle.Bounds) string { return grouped(b.Parents) + "; " + grouped(b.Ancestors) })
	row("steps through `identities` of one person, of all", func(b *bundle.Bounds) string { return grouped(b.People.One) + ", " + grouped(b.People.All) })
	row("words and signs of policies", func(b *bundle.Bounds) string { return grouped(b.Words) })
	row("steps of checking policies against the schema", func(b *bundle.Bounds) string { return grouped(b.Checks) })
	a := newAllowance()
	for _, want := range []string{
		grouped(bundle.MaxSchema) + " types and references",
		fmt.Sprintf("more than %d MiB of new files at once, or %d KiB a second in the long run; each\n  edit counts as %d KiB at least", a.most>>20, a.second>>10, a.least>>10),
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("it does not say %s", want)
		}
	}
}
