package source_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"policy-service/pdp"
	"policy-service/pdp/internal/source"
)

// twoTenants is a bundle in which tenant b has something to keep to itself.
var twoTenants = tree{
	"a.cedar":                   renamed(smallest, "root"),
	"tenants/a/own.cedar":       renamed(smallest, "own"),
	"tenants/b/b.cedar":         renamed(smallest, "kept"),
	"tenants/b/entities/e.json": `[{"uid": {"type": "User", "id": "b"}, "attrs": {"kept": true}, "parents": []}]`,
	"tenants/b/tests/t.yaml":    "- {name: kept, request: {}, decision: deny}\n",
}

func TestALinkReachesNothingOfAnotherOwner(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	tree{"x.cedar": renamed(smallest, "kept"), "entities/e.json": "[]\n"}.Write(t, outside)
	for name, c := range map[string]struct {
		links tree
		want  string
	}{
		"a tenant's file":             {tree{"tenants/a/x.cedar": "-> ../b/b.cedar"}, `tenants/a/x.cedar: a symbolic link leads from here out of the directory of tenant "a"`},
		"an absolute link":            {tree{"tenants/a/x.cedar": "-> DIR/tenants/b/b.cedar"}, "tenants/a/x.cedar: "},
		"a tenant's entities":         {tree{"tenants/a/entities": "-> ../b/entities"}, "tenants/a/entities: "},
		"one of the entities":         {tree{"tenants/a/entities/e.json": "-> ../../b/entities/e.json"}, "tenants/a/entities/e.json: "},
		"a link to a link":            {tree{"tenants/a/.next": "-> ../b", "tenants/a/x.cedar": "-> .next/b.cedar"}, "tenants/a/x.cedar: "},
		"a tenant's directory":        {tree{"tenants/c": "-> b"}, `tenants/c: a symbolic link leads from here into the directory of tenant "b"`},
		"a part of another tenant's":  {tree{"tenants/c": "-> b/entities"}, "tenants/c: "},
		"the tenants' directory":      {tree{"tenants/c": "-> ."}, "tenants/c: a symbolic link leads from here to what holds the tenants' directories"},
		"the bundle":                  {tree{"tenants/c": "-> .."}, "tenants/c: "},
		"a root file":                 {tree{"tenants/a/x.cedar": "-> ../../a.cedar"}, "tenants/a/x.cedar: "},
		"a file outside":              {tree{"tenants/a/x.cedar": "-> OUTSIDE/x.cedar"}, "tenants/a/x.cedar: a symbolic link leads from here out of the bundle's directory"},
		"a directory outside":         {tree{"tenants/c": "-> OUTSIDE"}, "tenants/c: "},
		"a root's file outside":       {tree{"x.cedar": "-> OUTSIDE/x.cedar"}, "x.cedar: "},
		"a root's entities outside":   {tree{"entities": "-> OUTSIDE/entities"}, "entities: "},
		"outside by another way":      {tree{"x.cedar": "-> ../../../../../../../../../../../../../../OUTSIDE/x.cedar"}, "x.cedar: "},
		"a root's link to a tenant's": {tree{"x.cedar": "-> tenants/b/b.cedar"}, `x.cedar: a symbolic link leads from here into the directory of tenant "b"`},
		"a root's entities":           {tree{"entities": "-> tenants/b/entities"}, "entities: "},
		"among the tenants":           {tree{"tenants/.old/x.cedar": smallest, "x.cedar": "-> tenants/.old/x.cedar"}, "x.cedar: a symbolic link leads from here into what holds the tenants' directories"},
		"a tenant in root's entities": {tree{"entities/e.json": "[]", "tenants/c": "-> ../entities"}, `entities: a symbolic link leads from here into the directory of tenant "c"`},
		"tenants that are the root":   {tree{"tenants": "-> ."}, "a.cedar: "},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if c.links["tenants"] == "" {
				twoTenants.Write(t, dir)
			}
			tree{"a.cedar": twoTenants["a.cedar"]}.Write(t, dir)
			if c.links["entities/e.json"] == "" { // so that the MANIFEST is a good one
				must(t, pdp.Dir(dir).WriteManifest())
			}
			for file, target := range c.links {
				target = strings.NewReplacer("/OUTSIDE", outside, "OUTSIDE", outside, "DIR", dir).Replace(target)
				tree{file: target}.Write(t, dir)
			}
			for range 2 { // beside the MANIFEST, and without it
				files := pdp.Dir(dir).Read()
				if !strings.Contains(files.Problems.Error()+"\n", c.want) || !slices.ContainsFunc(files.Problems, func(p pdp.Problem) bool { return p.Code == "link_astray" }) {
					t.Errorf("want %s, got %v", c.want, files.Problems)
				}
				for file, content := range files.Content {
					if !strings.HasPrefix(file, "tenants/b/") && strings.Contains(string(content), "kept") {
						t.Errorf("%s holds what is not its owner's", file)
					}
				}
				if strings.Contains(files.Problems.Error(), outside) {
					t.Errorf("it names the target: %v", files.Problems)
				}
				if bundle, problems := pdp.Load(pdp.Dir(dir)); bundle != nil || !problems.Refuse() {
					t.Error("it loads")
				}
				if err := os.Remove(filepath.Join(dir, "MANIFEST")); err != nil && !os.IsNotExist(err) {
					t.Fatal(err)
				}
			}
		})
	}
}

// A test has a request and what it expects: what policies a tenant has can be read from it.
func TestALinkReachesNoTestsOfAnotherTenant(t *testing.T) {
	t.Parallel()
	for _, links := range []tree{{"tenants/a/tests": "-> ../b/tests"}, {"tenants/a/tests/t.yaml": "-> ../../b/tests/t.yaml"}, {"tests": "-> tenants/b/tests"}} {
		dir := t.TempDir()
		twoTenants.Write(t, dir)
		links.Write(t, dir)
		files := pdp.Dir(dir).ReadTests()
		if !slices.Equal(loadedNames(files), []string{"tenants/b/tests/t.yaml"}) || !files.Problems.Refuse() {
			t.Errorf("%v: %v, %v", links, loadedNames(files), files.Problems)
		}
	}
}

func TestAManifestMakesNoLinkFollowed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	twoTenants.Write(t, dir)
	tree{"tenants/a/x.cedar": renamed(smallest, "other")}.Write(t, dir)
	must(t, pdp.Dir(dir).WriteManifest())
	must(t, os.Rename(filepath.Join(dir, "tenants/a/x.cedar"), filepath.Join(dir, "tenants/b/x.cedar")))
	tree{"tenants/a/x.cedar": "-> ../b/x.cedar"}.Write(t, dir)
	if got := codes(pdp.Dir(dir).Read().Problems); !slices.Contains(got, "tenants/a/x.cedar link_astray") {
		t.Error(got)
	}
	if _, problems := pdp.Dir(dir).Manifest(); !problems.Refuse() {
		t.Error("a MANIFEST can be written for it")
	}
}

func TestLinksThatStayWithTheirOwnerAreFollowed(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	for name, c := range map[string]struct {
		files tree
		want  []string
	}{
		"a volume": {
			tree{"..1/a.cedar": smallest, "..1/users.json": "[]\n", "..data": "-> ..1", "a.cedar": "-> ..data/a.cedar", "entities/users.json": "-> ../..data/users.json"},
			[]string{"a.cedar", "entities/users.json"},
		},
		"a volume with paths": {
			tree{"..1/a.cedar": smallest, "..1/tenants/acme/b.cedar": smallest, "..data": "-> ..1", "a.cedar": "-> ..data/a.cedar", "tenants": "-> ..data/tenants"},
			[]string{"a.cedar", "tenants/acme/b.cedar"},
		},
		"a tenant's own volume": {
			tree{"a.cedar": smallest, "tenants/acme/..1/b.cedar": smallest, "tenants/acme/..1/e.json": "[]\n", "tenants/acme/..data": "-> ..1", "tenants/acme/b.cedar": "-> ..data/b.cedar", "tenants/acme/entities/e.json": "-> ../..data/e.json"},
			[]string{"a.cedar", "tenants/acme/b.cedar", "tenants/acme/entities/e.json"},
		},
		"a volume of tenants": {
			tree{"a.cedar": smallest, "tenants/..1/acme/b.cedar": smallest, "tenants/..data": "-> ..1", "tenants/acme": "-> ..data/acme"},
			[]string{"a.cedar", "tenants/acme/b.cedar"},
		},
		"absolute links": {
			tree{".x/b.cedar": smallest, "b.cedar": "-> " + top + "/link/.x/b.cedar", "tenants/acme/.x": smallest, "tenants/acme/b.cedar": "-> " + top + "/link/tenants/acme/.x"},
			[]string{"b.cedar", "tenants/acme/b.cedar"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, link := filepath.Join(top, "bundle"), filepath.Join(top, "link")
			must(t, os.RemoveAll(dir))
			c.files.Write(t, dir)
			_ = os.Symlink("bundle", link) // there from the case before
			for _, root := range []string{dir, link} {
				files := pdp.Dir(root).Read()
				if got := loadedNames(files); !slices.Equal(got, c.want) || len(files.Problems) > 0 {
					t.Error(root, got, files.Problems)
				}
			}
		})
	}
}

// winding is a chain of links, each by way of as many names as a link can say, to a file
// that is there. The first of them is l0.
func winding(dir, file string) tree {
	files := tree{dir + "e/": "", dir + ".l38": "-> " + file}
	for n := range 38 {
		files[dir+fmt.Sprintf(".l%d", n)] = "-> " + strings.Repeat("e/../", 800) + fmt.Sprintf(".l%d", n+1)
	}
	return files
}

// Every reading, the one too that brings the root's emergency forbid, waits for the ways
// that a tenant's links take. It is counted how many names are looked up on them.
func TestATenantsWindingLinksHoldUpNoReading(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	deep := strings.Repeat("d/", 200)
	for name, c := range map[string]struct {
		files tree
		want  string // the only problem
		most  int    // names that are looked up for the tenant
	}{
		"a long chain": {allOf(winding("tenants/acme/", ".x"), sameLinks(1, ".l0")), "tenants/acme/x0.cedar link_astray", 100},
		"outside":      {sameLinks(1, filepath.Join(outside, ".l0")), "tenants/acme/x0.cedar link_astray", 200},
		"a name more":  {allOf(tree{"tenants/acme/e/": ""}, sameLinks(1, strings.Repeat("e/../", 127)+".x")), "tenants/acme/x0.cedar link_astray", 100},
		"many files":   {allOf(tree{"tenants/acme/e/": ""}, sameLinks(400, strings.Repeat("e/../", 126)+".x")), "", source.TenantBounds.Looked + 300},
		"deep down":    {allOf(tree{"tenants/acme/" + deep + "x": "// nothing"}, sameLinks(400, deep+"x")), "", source.TenantBounds.Looked + 300},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			tree{"a.cedar": smallest, "tenants/acme/.x": "// nothing", "tenants/other/y.cedar": renamed(smallest, "y")}.Write(t, dir)
			if name == "outside" {
				winding("", filepath.Join(dir, "tenants/acme/.x")).Write(t, outside)
			}
			c.files.Write(t, dir)
			files, walked := source.ReadAndCount(dir)
			if walked["acme"] > c.most {
				t.Errorf("%d names are looked up for one tenant", walked["acme"])
			}
			got := codes(slices.DeleteFunc(slices.Clone(files.Problems), func(p pdp.Problem) bool { return p.Severity != pdp.SeverityError }))
			if len(got) != 1 || c.want != "" && got[0] != c.want || c.want == "" && !strings.HasSuffix(got[0], " many_links") || !files.Problems.Refuse() {
				t.Error(files.Problems)
			}
			if names := loadedNames(files); !slices.Contains(names, "a.cedar") || !slices.Contains(names, "tenants/other/y.cedar") {
				t.Errorf("of the others %v is read", names)
			}
		})
	}
}

// A tenant with as many files as it may have, in a volume within a volume, beside a MANIFEST.
func TestATenantsVolumeIsWithinWhatMayBeLookedUp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree{"..1/a.cedar": smallest, "..data": "-> ..1", "a.cedar": "-> ..data/a.cedar", "tenants": "-> ..data/tenants", "..1/tenants/acme/..data": "-> ..1", "..1/tenants/acme/..1/x": "// nothing"}.Write(t, dir)
	for n := range source.TenantBounds.Files {
		must(t, os.Symlink("..data/x", filepath.Join(dir, fmt.Sprintf("..1/tenants/acme/x%d.cedar", n))))
	}
	must(t, pdp.Dir(dir).WriteManifest())
	files, walked := source.ReadAndCount(dir)
	if len(files.Problems) > 0 || len(files.Content) != source.TenantBounds.Files+1 || walked["acme"] == 0 {
		t.Errorf("%d files, %v", len(files.Content), files.Problems)
	}
	t.Logf("%d names of %d", walked["acme"], source.TenantBounds.Looked)
}

// sameLinks are as many links of a tenant to the same.
func sameLinks(n int, target string) tree {
	links := tree{}
	for i := range n {
		links[fmt.Sprintf("tenants/acme/x%d.cedar", i)] = "-> " + target
	}
	return links
}

func allOf(trees ...tree) tree {
	all := tree{}
	for _, files := range trees {
		maps.Copy(all, files)
	}
	return all
}
