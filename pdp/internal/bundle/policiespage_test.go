package bundle

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The page for policy authors says what a bundle may hold, and by which code more is refused.
func TestThePoliciesPageSaysWhatABundleMayHold(t *testing.T) {
	t.Parallel()
	page := policiesPage(t, "Limits")
	owner := func(what string, of func(*Bounds) string, names ...string) {
		t.Helper()
		holds(t, page, what, of(TenantBounds), of(RootBounds), coded(names))
	}
	owner("words and signs of policies", func(b *Bounds) string { return grouped(b.Words) }, "many_words")
	owner("steps of checking policies against the schema", func(b *Bounds) string { return grouped(b.Checks) }, "many_checks")
	owner("entities; values in them", func(b *Bounds) string { return grouped(b.Entities) + "; " + grouped(b.Values) }, "many_entities", "many_values")
	owner("references to parents", func(b *Bounds) string { return grouped(b.Parents) }, "many_parents")
	owner("ancestors of one entity; steps to count them all", func(b *Bounds) string { return grouped(b.Ancestors) + "; " + grouped(b.Walked) }, "many_ancestors", "many_ways_up")
	owner("errors that are told", func(*Bounds) string { return grouped(MostErrors) }, "many_errors")

	holds(t, page, "brackets, ifs and signs of a policy or a schema, nested", grouped(maxNesting)+" deep", "`policy_nesting`, `schema_nesting`")
	holds(t, page, "names in a chain of dots or colons", grouped(maxChain), "`policy_chain`, `schema_chain`")
	holds(t, page, "names in all chains behind `has`, those before each counted with it", grouped(maxHasCopies), "`policy_has`")
	holds(t, page, "a text; a pattern behind `like`", size(int64(maxText))+"; "+grouped(maxPattern)+" bytes", "`policy_text`, `policy_pattern`")
	holds(t, page, "elements of a list", fmt.Sprintf("%s plain values; %d if others are among them", grouped(MostElements), maxUnknown), "`policy_list`")
	holds(t, page, "types and references of a schema, once all names of types are written out", grouped(maxSchema), "`schema_size`")
	holds(t, page, "steps from all actions of a schema up to all their groups", grouped(maxActionWays), "`schema_groups`")
	holds(t, page, "a stored value", fmt.Sprintf("%d deep; a list has %s plain values, %d if lists or objects are among them, and %d lists in all if it holds lists of lists",
		storedDepth, grouped(MostElements), MostNested, maxArraysWithin), "`entity_form`")
	for code := range codesIn(t, `"(many_[a-z_]+)"`) {
		if !strings.Contains(page, "`"+code+"`") {
			t.Errorf("it does not name %s", code)
		}
	}
}

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

// The page for policy authors has a row for each warning of check, and for nothing else.
func TestThePoliciesPageNamesEveryWarning(t *testing.T) {
	t.Parallel()
	page := policiesPage(t, "Warnings")
	want := codesIn(t, `(?:\.(?:warn|warnAt|Warn|tell)\([^"\n]*|\bconst code = )"([a-z_]+)"`)
	delete(want, "unknown_") // is followed by what it is
	want["unknown_file"], want["unknown_directory"] = true, true
	got := map[string]bool{}
	for row := range strings.Lines(page) {
		if first, _, ok := strings.Cut(strings.TrimPrefix(row, "| "), " | "); ok && strings.HasPrefix(row, "| `") {
			for name := range strings.SplitSeq(first, ", ") {
				got[strings.Trim(name, "`")] = true
			}
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("it names\n%q, and there are\n%q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}

// policiesPage is one section of it.
func policiesPage(t *testing.T, section string) string {
	t.Helper()
	text, err := os.ReadFile("../../../policies/REFERENCE.md")
	must(t, err)
	_, rest, ok := strings.Cut(string(text), "\n## "+section+"\n")
	if !ok {
		t.Fatalf("it has no section %s", section)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	return rest
}

// codesIn are what matches in the source of the library.
func codesIn(t *testing.T, pattern string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob("../../*.go")
	must(t, err)
	for _, room := range []string{"access", "bundle", "document", "engine", "lint", "outline", "places", "source"} {
		more, err := filepath.Glob("../" + room + "/*.go")
		must(t, err)
		files = append(files, more...)
	}
	found := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		must(t, err)
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
			found[m[1]] = true
		}
	}
	return found
}

func holds(t *testing.T, page string, cells ...string) {
	t.Helper()
	if row := "| " + strings.Join(cells, " | ") + " |\n"; !strings.Contains(page, row) {
		t.Errorf("it does not say\n%s", row)
	}
}

func coded(names []string) string { return "`" + strings.Join(names, "`, `") + "`" }

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

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
