package bundle

import (
	"os"
	"strings"
	"testing"
)

// The page for operators says what one owner of files may bring.
func TestTheLimitsPageSaysWhatAnOwnerMayBring(t *testing.T) {
	page, err := os.ReadFile("../../server/LIMITS.md")
	must(t, err)
	row := func(what string, of func(*Bounds) string) {
		t.Helper()
		holds(t, string(page), what, of(TenantBounds), of(RootBounds))
	}
	row("entities, values in them", func(b *Bounds) string { return grouped(b.Entities) + ", " + grouped(b.Values) })
	row("references to parents; ancestors of one entity", func(b *Bounds) string { return grouped(b.Parents) + "; " + grouped(b.Ancestors) })
	row("words and signs of policies", func(b *Bounds) string { return grouped(b.Words) })
	row("steps of checking policies against the schema", func(b *Bounds) string { return grouped(b.Checks) })
	if want := grouped(maxSchema) + " types and references"; !strings.Contains(string(page), want) {
		t.Errorf("it does not say %s", want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
