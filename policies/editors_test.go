package policies_test

import (
	"encoding/xml"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"policy-service/policies"
)

// associations are the patterns of the files that have a schema, by the path of the schema in a bundle.
type associations map[string][]string

// TestEditors: the settings for four editors can be read, name schemas that there are, and give each file of each bundle
// the schema of its kind and no other.
func TestEditors(t *testing.T) {
	t.Parallel()
	vscode := ofVSCode(t)
	for editor, others := range map[string]associations{"neovim": ofNeovim(t), "helix": ofHelix(t)} {
		if diff := cmp.Diff(vscode, others); diff != "" {
			t.Errorf("VS Code (-) and %s (+) have the same language server, and not the same patterns\n%s", editor, diff)
		}
	}
	jetbrains := ofJetBrains(t)
	for _, all := range []associations{vscode, jetbrains} {
		for schema := range all {
			name, in := strings.CutPrefix(schema, ".schemas/")
			if _, err := os.Stat("../schemas/" + name); err != nil || !in {
				t.Errorf("there is no schema %s: %v", schema, err)
			}
		}
	}
	seen := map[string]int{}
	for _, file := range filesToEdit(t) {
		want := kindOf(file)
		seen[want]++
		if got := vscode.of(file, "**/"); got != want {
			t.Errorf("%s has %q in VS Code, Neovim and Helix, want %q", file, got, want)
		}
		if got := jetbrains.of(file, ""); got != want {
			t.Errorf("%s has %q in JetBrains, want %q", file, got, want)
		}
	}
	for schema := range vscode {
		if seen[schema] == 0 {
			t.Errorf("no file has %s", schema)
		}
	}
}

// filesToEdit are the YAML files of all bundles, and some that no bundle here has.
func filesToEdit(t *testing.T) []string {
	t.Helper()
	all := []string{"access/wiki.yaml", "tenants/acme/access/wiki.yml", "tenants/acme/obligations.yaml", "tenants/acme/tests/a.yml", "tests/bundle.json", "entities/a.json"}
	for _, name := range bundles(t) {
		files, err := policies.Named(name)
		if err != nil {
			t.Fatal(err)
		}
		err = fs.WalkDir(files, ".", func(file string, e fs.DirEntry, err error) error {
			if path.Ext(file) == ".yaml" {
				all = append(all, file)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// kindOf is the schema that a file of a bundle has.
func kindOf(file string) string {
	switch {
	case path.Base(path.Dir(file)) == "tests":
		return ".schemas/tests.schema.json"
	case path.Base(path.Dir(file)) == "access":
		return ".schemas/access.schema.json"
	case path.Ext(file) == ".yaml":
		return ".schemas/" + strings.TrimSuffix(path.Base(file), ".yaml") + ".schema.json"
	}
	return ""
}

// of are the schemas of a file, with the rules of yaml-language-server: a pattern may begin anywhere, and one with !
// excludes. What a pattern begins with besides is the beginning.
func (a associations) of(file, beginning string) string {
	var schemas []string
	for schema, patterns := range a {
		matches := false
		for _, p := range patterns {
			if p, excluded := strings.CutPrefix(p, "!"); excluded && globs(beginning+p, file) {
				matches = false
				break
			}
			matches = matches || globs(beginning+p, file)
		}
		if matches {
			schemas = append(schemas, schema)
		}
	}
	slices.Sort(schemas)
	return strings.Join(schemas, " and ")
}

// globs reports if a pattern matches a path: ** stands for directories, * for what has no slash.
func globs(pattern, file string) bool {
	text := strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*\*/`, `(?:.*/)?`)
	return regexp.MustCompile(`^` + strings.ReplaceAll(text, `\*`, `[^/]*`) + `$`).MatchString(file)
}

func settings(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile("editors/" + file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func ofVSCode(t *testing.T) associations {
	t.Helper()
	var told struct {
		Files      map[string]string `json:"files.associations"`
		Cedar      map[string]any    `json:"[cedar]"`
		SchemaFile string            `json:"cedar.schemaFile"`
		Schemas    associations      `json:"yaml.schemas"`
	}
	if err := json.Unmarshal(settings(t, "vscode/settings.json"), &told, json.RejectUnknownMembers(true)); err != nil {
		t.Fatal(err)
	}
	if _, err := fs.Stat(policies.Starter(), told.SchemaFile); err != nil {
		t.Error(err)
	}
	var advised struct {
		Recommendations []string `json:"recommendations"`
	}
	if err := json.Unmarshal(settings(t, "vscode/extensions.json"), &advised, json.RejectUnknownMembers(true)); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(advised.Recommendations, told.Cedar["editor.defaultFormatter"].(string)) {
		t.Errorf("%v formats, and is not recommended", told.Cedar["editor.defaultFormatter"])
	}
	all := associations{}
	for schema, patterns := range told.Schemas {
		all[strings.TrimPrefix(schema, "./")] = patterns
	}
	return all
}

func ofHelix(t *testing.T) associations {
	t.Helper()
	var told struct {
		Language []struct {
			Name         string
			Scope        string
			FileTypes    []string `toml:"file-types"`
			CommentToken string   `toml:"comment-token"`
			Indent       map[string]any
			Servers      []string `toml:"language-servers"`
			Format       bool     `toml:"auto-format"`
		}
		LanguageServer map[string]struct {
			Command string
			Args    []string
			Config  struct {
				YAML struct{ Schemas associations }
			}
		} `toml:"language-server"`
	}
	read, err := toml.Decode(string(settings(t, "helix/languages.toml")), &told)
	if err != nil || len(read.Undecoded()) > 0 {
		t.Fatalf("%v, and %v is not known", err, read.Undecoded())
	}
	for _, l := range told.Language {
		if l.Name != "yaml" && !slices.Equal(l.FileTypes, []string{l.Name}) {
			t.Errorf("%s are %q", l.Name, l.FileTypes)
		}
		if !slices.Contains(l.Servers, "policy-service") {
			t.Errorf("%s has the language servers %q", l.Name, l.Servers)
		}
	}
	if ours := told.LanguageServer["policy-service"]; ours.Command != "policy-service" || !slices.Equal(ours.Args, []string{"lsp"}) {
		t.Errorf("our language server is started by %s %q", ours.Command, ours.Args)
	}
	return told.LanguageServer["yaml-language-server"].Config.YAML.Schemas
}

// ofNeovim reads no Lua, only the lines with patterns. That brackets are closed is all that is known of the rest.
func ofNeovim(t *testing.T) associations {
	t.Helper()
	text := string(settings(t, "neovim/.nvim.lua"))
	for _, pair := range []string{"()", "{}", "[]"} {
		if strings.Count(text, pair[:1]) != strings.Count(text, pair[1:]) {
			t.Errorf("its %s are not closed", pair)
		}
	}
	all := associations{}
	for _, line := range regexp.MustCompile(`(?m)^ *\["([^"]+)"\] = \{ (.*) \},$`).FindAllStringSubmatch(text, -1) {
		for _, p := range strings.Split(line[2], ", ") {
			all[line[1]] = append(all[line[1]], strings.Trim(p, `"`))
		}
	}
	return all
}

func ofJetBrains(t *testing.T) associations {
	t.Helper()
	type option struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
		Items []struct {
			Options []struct {
				Name  string `xml:"name,attr"`
				Value string `xml:"value,attr"`
			} `xml:"option"`
		} `xml:"list>Item"`
	}
	var told struct {
		Component struct {
			Name    string `xml:"name,attr"`
			Entries []struct {
				Options []option `xml:"value>SchemaInfo>option"`
			} `xml:"state>map>entry"`
		} `xml:"component"`
	}
	if err := xml.Unmarshal(settings(t, "jetbrains/jsonSchemas.xml"), &told); err != nil {
		t.Fatal(err)
	}
	all := associations{}
	for _, e := range told.Component.Entries {
		var schema string
		for _, o := range e.Options {
			if o.Name == "relativePathToSchema" {
				schema = o.Value
			}
			for _, item := range o.Items {
				for _, part := range item.Options {
					if part.Name == "path" {
						all[schema] = append(all[schema], part.Value)
					}
				}
			}
		}
	}
	return all
}
