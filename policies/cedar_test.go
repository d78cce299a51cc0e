package policies_test

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"policy-service/pdp/pdptest/night"
	"policy-service/pdp/pdptest/npm"
	"policy-service/policies"
)

// forCedar is a bundle as Cedar's own tools are given it.
type forCedar struct {
	Schema   string                    `json:"schema"` // all files of it, "" if there is none
	Policies map[string]string         `json:"policies"`
	Entities map[string]jsontext.Value `json:"entities"`
}

// saidByCedar is what they say of one; testdata/cedar/run.mjs says how.
type saidByCedar struct {
	Version   string
	Faults    []string
	Formatted map[string]string
}

// TestCedarsOwnTools: Cedar's strict validator finds nothing in the bundles, and its formatter leaves them as they are. So an
// editor with Cedar's extension underlines nothing of what is shipped, and a save changes nothing.
//
// The two validators differ, for reasons of cedar-go's: it does not check the ids of enumerated types, which we do besides;
// and "no applicable action" is an error of its, a warning of Cedar's and of ours. Neither occurs in these bundles, so
// a warning is a fault here.
func TestCedarsOwnTools(t *testing.T) {
	night.Npm(t)
	t.Parallel()
	names := bundles(t)
	var cases []forCedar
	for _, name := range names {
		cases = append(cases, asForCedar(t, name))
	}
	// What they have to find, or they would find nothing.
	undeclared, unformatted := asForCedar(t, "starter"), asForCedar(t, "always-allow")
	undeclared.Schema = strings.NewReplacer("    pdp: Pdp,\n", "", "{pdp: Pdp}", "{}").Replace(undeclared.Schema)
	undeclared.Entities["entities/more.json"] = jsontext.Value(`[{"uid": {"type": "User", "id": "u"}, "attrs": {"age": 7}, "parents": []}]`)
	unformatted.Policies["tools.cedar"] = "\n" + unformatted.Policies["tools.cedar"]
	cases = append(cases, undeclared, unformatted)

	answers := npm.Answers[forCedar, saidByCedar](t, npm.Install(t, "Rust Cedar", cedarFiles(t)), cases)
	for n, name := range names {
		for _, fault := range answers[n].Faults {
			t.Errorf("%s: %s", name, fault)
		}
		if diff := cmp.Diff(cases[n].Policies, answers[n].Formatted); diff != "" {
			t.Errorf("%s: cedar format --line-width 80 --indent-width 2 changes it\n%s", name, diff)
		}
	}
	undone, changed := answers[len(names)], answers[len(names)+1]
	if found := strings.Join(undone.Faults, "\n"); !strings.Contains(found, "guardrails.cedar: policy4: ") || !strings.Contains(found, "entities/more.json: ") {
		t.Errorf("of a schema without pdp, and an attribute that is not declared, they say %q", undone.Faults)
	}
	if cmp.Equal(unformatted.Policies, changed.Formatted) {
		t.Error("they change nothing in a file that begins with an empty line")
	}
	t.Log("Cedar", answers[0].Version)
}

// bundles are the names of all bundles here.
func bundles(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("*/bundle.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are %d bundles: %v", len(files), err)
	}
	for _, file := range files {
		names = append(names, filepath.Dir(file))
	}
	return names
}

// asForCedar is a bundle with all that is in it for Cedar's tools, of its tenants too.
func asForCedar(t *testing.T, name string) forCedar {
	t.Helper()
	c := forCedar{Policies: map[string]string{}, Entities: map[string]jsontext.Value{}}
	files, err := policies.Named(name)
	if err != nil {
		t.Fatal(err)
	}
	err = fs.WalkDir(files, ".", func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, file)
		if err != nil {
			return err
		}
		switch in := path.Base(path.Dir(file)); {
		case path.Ext(file) == ".cedar":
			c.Policies[file] = string(text)
		case path.Ext(file) == ".cedarschema":
			c.Schema += string(text)
		case path.Ext(file) == ".json" && in == "entities":
			c.Entities[file] = text
		}
		return nil
	})
	if err != nil || len(c.Policies) == 0 || len(c.Entities) == 0 {
		t.Fatalf("%s has %q and %q: %v", name, slices.Collect(maps.Keys(c.Policies)), slices.Collect(maps.Keys(c.Entities)), err)
	}
	return c
}

// cedarFiles are what npm installs, which package toolschema pins, and what asks it.
func cedarFiles(t *testing.T) fs.FS {
	t.Helper()
	const pinned, ours = "../pdp/internal/mcp/toolschema/testdata/cedar", "testdata/cedar"
	all := fstest.MapFS{}
	for _, file := range []string{pinned + "/package.json", pinned + "/package-lock.json", ours + "/run.mjs"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all[path.Base(file)] = &fstest.MapFile{Data: text, Mode: 0o644}
	}
	return all
}
