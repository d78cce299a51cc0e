package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// listed reads a list: a package a line, and the names of tests after it, if not all of them run. A line that begins with
// space goes on with the names. Packages without names are one group.
func listed(file string) (groups []group, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var whole group
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0:
		case line[0] == ' ' || line[0] == '\t':
			last := &groups[len(groups)-1]
			last.tests = append(last.tests, fields...)
		default:
			groups = append(groups, group{fields[:1], fields[1:]})
		}
	}
	named := slices.DeleteFunc(groups, func(g group) bool {
		if len(g.tests) == 0 {
			whole.packages = append(whole.packages, g.packages...)
		}
		return len(g.tests) == 0
	})
	if len(whole.packages) > 0 {
		named = append(named, whole)
	}
	return named, nil
}

// calling finds the tests that call a function of package night in the text, and not by `go test -list`, so that a test
// behind a build tag is reported as not run, and not passed over.
func calling(function string) (groups []group, err error) {
	err = fs.WalkDir(os.DirFS("."), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !calls(f, function) {
				continue
			}
			if !strings.HasPrefix(f.Name.Name, "Test") {
				return fmt.Errorf("%s: %s calls night.%s; let the tests that use it call it", name, f.Name.Name, function)
			}
			room := "./" + path.Dir(name)
			if n := len(groups); n == 0 || groups[n-1].packages[0] != room {
				groups = append(groups, group{packages: []string{room}})
			}
			last := &groups[len(groups)-1]
			last.tests = append(last.tests, f.Name.Name)
		}
		return nil
	})
	if err == nil && len(groups) == 0 {
		err = fmt.Errorf("no test calls night.%s", function)
	}
	return groups, err
}

func calls(f *ast.FuncDecl, function string) (found bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		if selector, ok := n.(*ast.SelectorExpr); ok && selector.Sel.Name == function {
			x, ok := selector.X.(*ast.Ident)
			found = found || ok && x.Name == "night"
		}
		return !found
	})
	return found
}
