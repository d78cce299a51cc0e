package conformance

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// The page of cases shows one that is asked as it stands there, and names every key.
func TestCasesPage(t *testing.T) {
	text, err := os.ReadFile("cases/README.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	_, block, _ := strings.Cut(page, "```yaml\n")
	block, _, found := strings.Cut(block, "```")
	if !found || strings.Count(page, "```yaml\n") != 1 {
		t.Fatal("there is not one block of YAML")
	}
	d := yaml.NewDecoder(strings.NewReader(block))
	d.KnownFields(true)
	var entries []caseEntry
	if err := d.Decode(&entries); err != nil {
		t.Fatal(err)
	}
	all, err := load()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		n := slices.IndexFunc(all, func(c Case) bool { return c.ID == e.ID })
		if n < 0 {
			t.Errorf("no case is called %s", e.ID)
			continue
		}
		if shown, err := e.expand(all[n].Plan); err != nil || !reflect.DeepEqual(shown, all[n:n+1]) {
			t.Errorf("%s is another case here than there: %v", e.ID, err)
		}
	}
	if len(entries) == 0 {
		t.Error("no case is shown")
	}
	for _, key := range keysOf(reflect.TypeFor[caseEntry]()) {
		if !strings.Contains(page, "`"+key+"`") {
			t.Errorf("the key %s is not named", key)
		}
	}
}

// keysOf are the names that yaml gives the fields of a struct, and of those in it.
func keysOf(of reflect.Type) (keys []string) {
	for field := range of.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		switch {
		case strings.Contains(field.Tag.Get("yaml"), ",inline"):
			keys = append(keys, keysOf(field.Type)...)
		case name != "":
			keys = append(keys, name)
		default:
			keys = append(keys, strings.ToLower(field.Name))
		}
	}
	return keys
}
