package verify_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

// TestStranger: of the writer's package verify uses constants, and nothing that does
// anything. Otherwise a mistake there would be made here again, and never found.
func TestStranger(t *testing.T) {
	constants := map[string]bool{}
	for _, file := range parse(t, "..") {
		for _, d := range file.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.CONST {
				for _, s := range g.Specs {
					for _, name := range s.(*ast.ValueSpec).Names {
						constants[name.Name] = true
					}
				}
			}
		}
	}
	used := 0
	for _, file := range parse(t, ".") {
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok && x.Name == "decisionlog" {
					if used++; !constants[s.Sel.Name] {
						t.Errorf("verify uses decisionlog.%s, which is no constant", s.Sel.Name)
					}
				}
			}
			return true
		})
	}
	if used == 0 {
		t.Error("verify uses nothing of decisionlog: this test looks in the wrong place")
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
