package pdp_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// The budgets of the architecture, to notice drift by. Test files count in none of them.
const (
	maxFiles         = 30 // of a package
	maxFields        = 15 // of a struct that is no document; an embedded struct of ours counts with its fields
	maxBeside        = 4  // of a document: exported fields with the tag "-", which stand beside it
	maxMethods       = 60 // of a type
	maxServerMethods = 39 // of server.Server, because everything would hang on it if it could
)

// ceilings are the raised bounds, each with its reason: at most maxCeilings, and none for what [neverRaised] names. The
// test fails if a number grows beyond its bound, and if a bound is no longer needed because the number is within the
// budget, or the thing is gone. It does not fail if a number shrinks, so a change that takes something away need not
// come here.
var ceilings = map[string]struct {
	most int
	why  string
}{
	"fields of evaluation.Decision": {17, "PEPs read its fields, so to put some of them into a struct would break their code"},
}

const maxCeilings = 3

// neverRaised reports if a budget holds without exception: those of pdp, of the server and of the decision log, on which
// everything would hang if it could.
func neverRaised(what string) bool {
	_, of, _ := strings.Cut(what, " of ")
	return of == "pdp" || strings.HasPrefix(of, "pdp.") ||
		slices.ContainsFunc([]string{"pdp/server.Server", "pdp/decisionlog.Log"}, func(name string) bool {
			return of == name || strings.HasPrefix(of, name+".")
		})
}

// holders are the types outside pdp/server that hold a *server.Server, each with its reason. No other type or package
// variable may: what needs the whole server to do its work belongs to the server, or needs less than it says.
var holders = map[string]string{
	"pdp/pdptest.Server": "it is a running server, for tests alone",
}

// domain are the rooms of the rules of the product. In a package that imports echo, a file that imports one of them
// must be a handler, which is a file that imports echo too: a rule that knows no HTTP belongs to a room without HTTP.
var domain = []string{"pdp/approval", "pdp/decisionlog/mask"}

// wiring are the files that break the rule of domain, each with its reason.
var wiring = map[string]string{
	"pdp/server/log_lifecycle.go": "it makes the masker and opens the log with it",
	"pdp/server/logconfig.go":     "it reads the masker's part of the configuration",
	"pdp/server/data.go":          "it names approvals.db and the broker's key among the files of a data directory",
	"pdp/server/approvals.go":     "it opens the broker with the server's options",
}

func TestBudgets(t *testing.T) {
	code := parsed(t)
	over := map[string]bool{}
	hold := func(what string, n, most int) {
		if n <= most {
			return
		}
		over[what] = true
		if raised, ok := ceilings[what]; !ok {
			t.Errorf("%s: %d, and the budget is %d. Divide it", what, n, most)
		} else if n > raised.most {
			t.Errorf("%s: %d, and its raised bound is %d. The budget is %d, so it must become less, not more", what, n, raised.most, most)
		}
	}
	for room, n := range code.files {
		hold("files of "+room, n, maxFiles)
	}
	for _, s := range code.structs {
		if !code.isDocument(s) {
			hold("fields of "+s.name, code.fields(s, nil), maxFields)
		}
	}
	for name, all := range code.methods {
		most := maxMethods
		if name == "pdp/server.Server" {
			most = maxServerMethods
		}
		hold("methods of "+name, len(all), most)
	}
	if len(ceilings) > maxCeilings {
		t.Errorf("%d bounds are raised, and at most %d may be. Divide something", len(ceilings), maxCeilings)
	}
	for what, raised := range ceilings {
		if !over[what] {
			t.Errorf("%s: within the budget now, or renamed. Delete its line of ceilings", what)
		}
		if neverRaised(what) || raised.why == "" {
			t.Errorf("%s: this bound may not be raised, or no reason says why it is. Divide it", what)
		}
	}
}

func TestBudgetOfServer(t *testing.T) {
	if _, exists := parsed(t).types["pdp/server.Server"]; !exists {
		t.Fatal("there is no pdp/server.Server; it was renamed: correct this test")
	}
	found := map[string]bool{}
	for _, f := range parsed(t).sources {
		if f.room() == "pdp/server" {
			continue
		}
		for _, d := range f.Decls {
			general, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range general.Specs {
				if name := f.room() + "." + specName(spec); f.holdsServer(spec) {
					found[name] = true
					if holders[name] == "" {
						t.Errorf("%s: %s holds a *server.Server; give it the values that it needs of one", f.name, name)
					}
				}
			}
		}
	}
	for name := range holders {
		if !found[name] {
			t.Errorf("%s holds no *server.Server, or does not exist: delete its line of holders", name)
		}
	}
}

func TestBudgetOfDomain(t *testing.T) {
	for _, room := range domain {
		if !isRoom(room) {
			t.Errorf("there is no package %s; it was renamed: correct its line of domain", room)
		}
	}
	const echo = "github.com/labstack/echo"
	speaks := map[string]bool{} // rooms and files that import echo
	rules := map[string]string{}
	for _, i := range imports(t) {
		if within(i.path, echo) {
			speaks[i.room()], speaks[i.file] = true, true
		}
		for _, room := range domain {
			if within(i.path, module+"/"+room) {
				rules[i.file] = room
			}
		}
	}
	for file, room := range rules {
		if speaks[path.Dir(file)] && !speaks[file] && wiring[file] == "" {
			t.Errorf("%s uses %s and handles no request, in a package that imports echo: put it into a room without echo", file, room)
		}
	}
	for file := range wiring {
		if rules[file] == "" || speaks[file] || !speaks[path.Dir(file)] {
			t.Errorf("%s is gone, or needs no exception: delete its line of wiring", file)
		}
	}
}

// source is the syntax of one file outside the tests, its name from the top of the repository.
type source struct {
	*ast.File
	name string
}

func (f source) room() string { return path.Dir(f.name) }

// imported is the path of the package that a file calls by this name, "" if there is none.
func (f source) imported(name string) string {
	for _, spec := range f.Imports {
		p, _ := strconv.Unquote(spec.Path.Value)
		if spec.Name != nil && spec.Name.Name == name || spec.Name == nil && path.Base(p) == name {
			return p
		}
	}
	return ""
}

// holdsServer reports if a declaration mentions server.Server outside the signatures and bodies of functions, which
// borrow one at most.
func (f source) holdsServer(spec ast.Spec) (holds bool) {
	ast.Inspect(spec, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncType, *ast.FuncLit:
			return false
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			holds = holds || ok && n.Sel.Name == "Server" && f.imported(x.Name) == module+"/pdp/server"
		}
		return true
	})
	return holds
}

func specName(spec ast.Spec) string {
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		return spec.Name.Name
	case *ast.ValueSpec:
		return spec.Names[0].Name
	}
	return ""
}

// declared is a type, or a struct somewhere inside a declaration.
type declared struct {
	name string // room.Name, below it a dot for each level
	file source
	expr ast.Expr
}

// codebase is what the budgets count.
type codebase struct {
	sources []source
	files   map[string]int                 // by room
	types   map[string]declared            // those of the top level of a file, by room.Name
	methods map[string]map[string]struct{} // by room.Name; a method for each platform is one method
	structs []declared
}

func parsed(t *testing.T) *codebase {
	t.Helper()
	c, err := parseAll()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var parseAll = sync.OnceValues(func() (*codebase, error) {
	c := &codebase{
		files:   map[string]int{},
		types:   map[string]declared{},
		methods: map[string]map[string]struct{}{},
	}
	err := walkSources(func(name string) error {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", name), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		c.add(source{file, name})
		return nil
	})
	return c, err
})

func (c *codebase) add(f source) {
	c.sources = append(c.sources, f)
	c.files[f.room()]++
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			name := f.room() + "." + d.Name.Name
			if d.Recv != nil {
				name = f.room() + "." + typeName(d.Recv.List[0].Type)
				if c.methods[name] == nil {
					c.methods[name] = map[string]struct{}{}
				}
				c.methods[name][d.Name.Name] = struct{}{}
				name += "." + d.Name.Name
			}
			c.addStructs(name, f, d)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				name := f.room() + "." + specName(spec)
				if spec, ok := spec.(*ast.TypeSpec); ok {
					c.types[name] = declared{name, f, spec.Type}
				}
				c.addStructs(name, f, spec)
			}
		}
	}
}

// addStructs notes the structs inside a declaration, each by the names of what it stands in.
func (c *codebase) addStructs(name string, f source, in ast.Node) {
	ast.Inspect(in, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.StructType:
			c.structs = append(c.structs, declared{name, f, n})
			for _, field := range n.Fields.List {
				if len(field.Names) > 0 {
					c.addStructs(name+"."+field.Names[0].Name, f, field.Type)
				}
			}
			return false
		case *ast.TypeSpec:
			if n != in {
				c.addStructs(name+"."+n.Name.Name, f, n)
				return false
			}
		}
		return true
	})
}

// fields counts the fields of a struct.
func (c *codebase) fields(s declared, inside []string) (n int) {
	for _, field := range s.expr.(*ast.StructType).Fields.List {
		if embedded, ok := c.embedded(s, field); ok && !slices.Contains(inside, embedded.name) {
			n += c.fields(embedded, append(inside, embedded.name))
		} else {
			n += max(1, len(field.Names))
		}
	}
	return n
}

// embedded finds the struct of ours that a field embeds.
func (c *codebase) embedded(s declared, field *ast.Field) (d declared, ok bool) {
	if len(field.Names) > 0 {
		return d, false
	}
	return c.structOf(s.file, field.Type)
}

func (c *codebase) structOf(f source, expr ast.Expr) (d declared, ok bool) {
	name := f.room() + "." + typeName(expr)
	if selector, isSelector := bare(expr).(*ast.SelectorExpr); isSelector {
		room, ours := strings.CutPrefix(f.imported(typeName(selector.X)), module+"/")
		if !ours {
			return d, false
		}
		name = room + "." + selector.Sel.Name
	}
	if d, ok = c.types[name]; !ok {
		return d, false
	}
	if _, ok = d.expr.(*ast.StructType); ok {
		return d, true
	}
	if bare(d.expr) == nil {
		return d, false
	}
	return c.structOf(d.file, d.expr)
}

// isDocument reports if a struct is the form of a document: every exported field has a json or yaml tag, or embeds a
// struct that is one. The tag "-" is no name in a document: a few such fields may stand beside it, such as the line that
// it was read from, but a struct that has more of them is no document.
func (c *codebase) isDocument(s declared) bool {
	exported, beside := false, 0
	for _, field := range s.expr.(*ast.StructType).Fields.List {
		if len(field.Names) == 0 {
			if embedded, ok := c.embedded(s, field); ok && !tagged(field) {
				if !c.isDocument(embedded) {
					return false
				}
				exported = true
				continue
			}
		}
		name := typeName(field.Type)
		if len(field.Names) > 0 {
			name = field.Names[0].Name
		}
		if !ast.IsExported(name) {
			continue
		}
		switch {
		case tagged(field):
			exported = true
		case field.Tag != nil && strings.Contains(field.Tag.Value, `:"-"`):
			beside += max(1, len(field.Names))
		default:
			return false
		}
	}
	return exported && beside <= maxBeside
}

// tagged reports if a field has a name in a document.
func tagged(field *ast.Field) bool {
	if field.Tag == nil {
		return false
	}
	text, _ := strconv.Unquote(field.Tag.Value)
	for _, format := range []string{"json", "yaml"} {
		if value, ok := reflect.StructTag(text).Lookup(format); ok && value != "-" {
			return true
		}
	}
	return false
}

// bare is the name in a type expression, without pointer and type arguments; nil if it is no name.
func bare(expr ast.Expr) ast.Expr {
	switch expr := expr.(type) {
	case *ast.StarExpr:
		return bare(expr.X)
	case *ast.IndexExpr:
		return bare(expr.X)
	case *ast.IndexListExpr:
		return bare(expr.X)
	case *ast.Ident, *ast.SelectorExpr:
		return expr
	}
	return nil
}

// typeName is the last word of the name in a type expression.
func typeName(expr ast.Expr) string {
	switch expr := bare(expr).(type) {
	case *ast.Ident:
		return expr.Name
	case *ast.SelectorExpr:
		return expr.Sel.Name
	}
	return ""
}
