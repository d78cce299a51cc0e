package verify_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

// TestStranger: verify uses constants of the writer's packages, and nothing that does
// anything. Otherwise a mistake there would be made here again, and never found.
func TestStranger(t *testing.T) {
	t.Parallel()
	constants := map[string]bool{}
	used := map[string]int{"decisionlog": 0, "export": 0}
	for name, dir := range map[string]string{"decisionlog": "../../internal/decisionlog", "export": "../../internal/decisionlog/export"} {
		for _, file := range parse(t, dir) {
			for _, d := range file.Decls {
				if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.CONST {
					for _, s := range g.Specs {
						for _, constant := range s.(*ast.ValueSpec).Names {
							constants[name+"."+constant.Name] = true
						}
					}
				}
			}
		}
	}
	for _, file := range parse(t, ".") {
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				x, ok := s.X.(*ast.Ident)
				if !ok {
					return true
				}
				if _, writers := used[x.Name]; writers {
					if used[x.Name]++; !constants[x.Name+"."+s.Sel.Name] {
						t.Errorf("verify uses %s.%s, which is no constant", x.Name, s.Sel.Name)
					}
				}
			}
			return true
		})
	}
	for name, n := range used {
		if n == 0 {
			t.Errorf("verify uses nothing of %s: this test looks in the wrong place", name)
		}
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
