package verify_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestStranger: of the rooms of the log, verify imports the constants and the texts of C2SP, and the constants come with nothing
// that does anything. Otherwise a mistake of the writer would be made here again, and never found.
func TestStranger(t *testing.T) {
	t.Parallel()
	const log = "policy-service/pdp/internal/decisionlog"
	used := map[string]bool{}
	for _, file := range parse(t, ".") {
		for _, one := range file.Imports {
			if path := strings.Trim(one.Path.Value, `"`); strings.HasPrefix(path, log) {
				used[path] = true
			}
		}
	}
	if got, want := slices.Sorted(maps.Keys(used)), []string{log + "/c2sp", log + "/format"}; !slices.Equal(got, want) {
		t.Errorf("of the log verify imports %v, not %v", got, want)
	}
	constants := 0
	for _, file := range parse(t, "../../internal/decisionlog/format") {
		for _, d := range file.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				t.Errorf("format has something that is no constant: %#v", d)
				continue
			}
			constants += len(g.Specs)
		}
	}
	if constants == 0 {
		t.Error("format has no constants: this test looks in the wrong place")
	}
}

func parse(t *testing.T, dir string) (files []*ast.File) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	check(t, err)
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), dir+"/"+e.Name(), nil, 0)
		check(t, err)
		files = append(files, file)
	}
	return files
}
