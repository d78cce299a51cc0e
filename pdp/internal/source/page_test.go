package source

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The pages for policy authors and operators say how much an owner's files may be, and the former the codes.
func TestPagesSayHowMuchFilesMayBe(t *testing.T) {
	t.Parallel()
	page := func(file string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	policies, limits := page("../../../policies/REFERENCE.md"), page("../../server/LIMITS.md")
	row := func(page string, cells ...string) {
		t.Helper()
		if want := "| " + strings.Join(cells, " | ") + " |\n"; !strings.Contains(page, want) {
			t.Errorf("it does not say\n%s", want)
		}
	}
	both := func(page, what string, of func(*Bounds) string, codes ...string) {
		t.Helper()
		row(page, append([]string{what, of(TenantBounds), of(RootBounds)}, codes...)...)
	}
	both(policies, "files; bytes of all of them", func(b *Bounds) string { return grouped(b.Files) + "; " + size(b.Bytes) }, "`many_files`, `many_bytes`")
	both(policies, "bytes of all access declarations", func(b *Bounds) string { return size(b.Access) }, "`many_declarations`")
	both(policies, "files and directories in one directory", func(b *Bounds) string { return grouped(b.Names) }, "`many_names`")
	both(policies, "names looked up on the ways to its files, links included", func(b *Bounds) string { return grouped(b.Looked) }, "`many_links`")
	both(policies, "bytes of `obligations.yaml`; of one entity file", func(b *Bounds) string { return size(b.Obligations) + "; " + size(b.EntityFile) }, "`too_large`")
	row(policies, "policy file, access declaration; test file; schema, `bundle.yaml`, `filters.yaml`; MANIFEST",
		size(min(policyKind.max, accessKind.max))+"; "+size(testKind.max)+"; "+size(min(schemaKind.max, settingsKind.max))+"; "+size(manifestKind.max), "`too_large`")
	both(limits, "files, bytes of all of them", func(b *Bounds) string { return grouped(b.Files) + ", " + size(b.Bytes) })
	both(limits, "bytes of all access declarations", func(b *Bounds) string { return size(b.Access) })
	both(limits, "names looked up on the ways to its files", func(b *Bounds) string { return grouped(b.Looked) })
}

// grouped is a number as pages write it.
func grouped(n int) string {
	text := fmt.Sprint(n)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

func size(bytes int64) string {
	if bytes >= 1<<20 {
		return fmt.Sprintf("%d MiB", bytes>>20)
	}
	return fmt.Sprintf("%d KiB", bytes>>10)
}
