// Command structure holds the tree to the promises that need more than the text of its files: which packages another one
// brings along through others, where the fields of a type are used, and what strangers are shown. pdp/deps_test.go has all other promises, and the
// map of the rooms. It is run at the top of the repository, by make lint:
//
//	go run ./.ci/structure
package main

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const module = "policy-service/"

// heavy: ROOM must not bring NOT along, directly or through others, because BECAUSE.
var heavy = []struct{ room, not, because string }{
	{"schemas", "net/http", "PEPs read the schemas, and would carry HTTP"},
	{"evaluation", "net/http github.com/cedar-policy go.etcd.io/bbolt go.opentelemetry.io github.com/fsnotify/fsnotify cel.dev/cel-go", "PEPs import the vocabulary, and would carry a part of the server"},
	{"evaluation/capability", "net/http github.com/cedar-policy go.etcd.io/bbolt go.opentelemetry.io cel.dev/cel-go", "an agent that makes proofs would carry HTTP, or a part of the server"},
	{"evaluation/coaz", "net/http", "a PEP that asks in process would carry HTTP"},
	{"evaluation/authzenclient", "github.com/cedar-policy go.etcd.io/bbolt", "a PEP that asks would carry a PDP"},
	{"evaluation/authzenclient/approvals", "github.com/cedar-policy go.etcd.io/bbolt github.com/labstack", "a PEP that asks people would carry a PDP"},
	{"evaluation/authzenclient", "github.com/labstack go.opentelemetry.io", "a PEP has a web framework and telemetry of its own"},
	{"evaluation/authzenclient", "cel.dev/cel-go", "a PEP without mappings would carry 10 MB that read them"},
	{"evaluation/coaz/sdkpep", "github.com/cedar-policy go.etcd.io/bbolt github.com/labstack", "an MCP server that is its own PEP would carry a PDP"},
	{"obligations", "net/http github.com/cedar-policy go.etcd.io/bbolt go.opentelemetry.io", "a PEP that discharges obligations would carry a part of the server"},
	{"pdp", "github.com/labstack go.opentelemetry.io/otel/sdk", "a program that embeds a PDP has a web framework and telemetry of its own"},
	{"pdp/internal/decisionlog/recorder", "github.com/labstack", "what goes on record would depend on HTTP"},
	{"pdp/internal/approval/broker", "github.com/labstack", "the rules of approvals would depend on HTTP"},
	{"pdp/internal/mcp", "policy-service/pdp/internal/document policy-service/pdp/internal/engine policy-service/pdp/internal/places policy-service/pdp/internal/source github.com/cedar-policy go.etcd.io/bbolt github.com/labstack", "a gateway would carry a PDP, and asks one over HTTP"},
	{"pdp/mcp/wire", "net/http go.etcd.io/bbolt", "gateways of others build these messages, and would carry HTTP and a store"},
	{"conformance", "github.com/cedar-policy", "the suite would judge Cedar instead of AuthZEN"},
	{"conformance/pep", "github.com/modelcontextprotocol/go-sdk", "the suite sends messages that no client would send, and the SDK is one"},
	{"conformance/pep", "cel.dev/cel-go", "the suite would read a mapping with the mistakes of our PEP, and pass them"},
	{"pdp/internal/load", "github.com/cedar-policy", "it measures any server, and would carry ours"},
	{"pdp/internal/command/author", "github.com/labstack", "check, test and fmt run in pipelines and editors, and would carry a server"},
	{"cmd/policy-service", "github.com/chromedp", "the binary would carry the driver of a browser"},
}

// closed: NAMES of a room may be used only in ROOMS, because BECAUSE. The name of a struct stands for its exported fields, which
// other packages reach by another name of the struct. A method that is called by an interface is not seen.
var closed = []struct{ room, names, rooms, because string }{
	{"pdp/internal/bundle", "Bundle", "pdp pdp/internal/bundle pdp/internal/engine pdp/internal/filter pdp/internal/lint pdp/internal/outline",
		"a program that embeds a PDP would read how it decides, and break when that changes"},
	{"pdp/internal/decisionlog/segment", "Reader.SegmentFiles Reader.FindFile Reader.AddFile Reader.Scan Reader.SetSize Reader.Opening Reader.View Reader.ReadSome Reader.ReadSpan " +
		"Reader.ReadListed Reader.SnapshotTo Reader.WatchedSnapshot NewFile OpenFile NewKey OpenKey PublishKey",
		"pdp/internal/decisionlog pdp/internal/decisionlog/segment",
		"who holds a log to read it would write to its files, or sign for it"},
}

// public are the packages that strangers may import: a name of theirs stays once a version has it. All others are below an
// internal directory, or programs, or make no promise (pdp/pdptest).
var public = strings.Fields("evaluation evaluation/authzenclient evaluation/authzenclient/approvals evaluation/capability evaluation/coaz evaluation/coaz/sdkpep " +
	"evaluation/recent obligations schemas policies pdp pdp/command pdp/mcp/wire pdp/decisionlog/verify pdp/approval/webhook conformance conformance/pep")

// unnamed are the hidden TYPES that public packages show without a name for them, BECAUSE.
var unnamed = []struct{ types, because string }{
	{"evaluation/authzenclient/internal/link.Link", "package approvals alone uses it"},
	{"pdp/internal/bundle.Config pdp/internal/bundle.Schema pdp/internal/bundle.Mapping pdp/internal/bundle.View pdp/internal/bundle.Policy pdp/internal/bundle.AttributeShape",
		"strangers hold a bundle, and what it shows is for pdp and the rooms below"},
	{"pdp/internal/evidence.Text", "it has no written form but that of our own log"},
	{"pdp/internal/decisionlog/c2sp.LogKey pdp/internal/decisionlog/c2sp.Opened pdp/internal/decisionlog/c2sp.Witness", "a policy is parsed as a whole"},
	{"pdp/internal/bundle.AttributePath pdp/internal/document.Mend pdp/internal/outline.Obligation pdp/internal/source.Reading",
		"it is read where it is shown, and nobody need declare one"},
}

func main() {
	tree, err := list()
	if err != nil {
		fmt.Fprintln(os.Stderr, "structure:", err)
		os.Exit(2)
	}
	tree.checkHeavy()
	for _, c := range closed {
		for name := range strings.FieldsSeq(c.names) {
			if err := tree.checkClosed(c.room, name, strings.Fields(c.rooms), c.because); err != nil {
				tree.fault("who uses %s.%s cannot be found: %v", c.room, name, err)
			}
		}
	}
	if err := tree.checkPublic(); err != nil {
		tree.fault("what strangers are shown cannot be found: %v", err)
	}
	if tree.faults > 0 {
		os.Exit(1)
	}
}

type house struct {
	packages map[string]listed // all that is built, by import path
	files    *token.FileSet
	types    types.Importer // reads what the go command compiled, each package once
	faults   int
}

// listed is a package as go list says it.
type listed struct {
	export, dir string
	deps, files []string
}

// list asks the go command, which compiles what is not in its cache, as go vet does before.
func list() (*house, error) {
	goList := exec.Command("go", "list", "-export", "-deps", "-f",
		"{{.ImportPath}}\t{{.Export}}\t{{.Dir}}\t{{join .Deps \" \"}}\t{{join .GoFiles \" \"}}", "./...")
	goList.Stderr = os.Stderr
	out, err := goList.Output()
	h := &house{packages: map[string]listed{}, files: token.NewFileSet()}
	h.types = importer.ForCompiler(h.files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(h.packages[path].export) })
	for line := range strings.Lines(string(out)) {
		w := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		h.packages[w[0]] = listed{w[1], w[2], strings.Fields(w[3]), strings.Fields(w[4])}
	}
	return h, err
}

func (h *house) fault(format string, args ...any) {
	h.faults++
	fmt.Printf(format+"\n", args...)
}

func (h *house) checkHeavy() {
	for _, line := range heavy {
		room, exists := h.packages[module+line.room]
		if !exists {
			h.fault("a line of heavy names %s, which is no package: correct it", line.room)
		}
		for not := range strings.FieldsSeq(line.not) {
			within := func(p string) bool { return p == not || strings.HasPrefix(p, not+"/") }
			if !slices.ContainsFunc(slices.Collect(maps.Keys(h.packages)), within) {
				h.fault("the line of %s names %s, which nothing imports: correct it, or delete it", line.room, not)
			}
			if at := slices.IndexFunc(room.deps, within); at >= 0 {
				h.fault("%s brings %s along and must not, because %s", line.room, room.deps[at], line.because)
			}
		}
	}
}

// checkClosed looks for a name, or the fields of a struct, in every package of ours that has the package of it below it, also if
// it gets a value of the type from a third package. It compares what was declared, so that neither an alias nor a struct that
// embeds the type hides a use.
func (h *house) checkClosed(home, name string, rooms []string, because string) error {
	in, err := h.types.Import(module + home)
	if err != nil {
		return err
	}
	name, member, isMember := strings.Cut(name, ".")
	of := in.Scope().Lookup(name)
	if of == nil {
		return fmt.Errorf("the package has no such name")
	}
	closed := map[types.Object]bool{of: true}
	if isMember {
		found, _, _ := types.LookupFieldOrMethod(types.NewPointer(of.Type()), true, in, member)
		if found == nil {
			return fmt.Errorf("the type has no such field or method")
		}
		closed = map[types.Object]bool{found: true}
	} else if fields, ok := of.Type().Underlying().(*types.Struct); ok {
		closed = map[types.Object]bool{}
		for f := range fields.Fields() {
			closed[f] = f.Exported()
			if f.Embedded() {
				return fmt.Errorf("it embeds %s, whose fields are not known here: give the field a name", f.Name())
			}
		}
	}
	used := false
	for path, p := range h.packages {
		room, ours := strings.CutPrefix(path, module)
		if !ours || !slices.Contains(p.deps, module+home) {
			continue
		}
		var parsed []*ast.File
		for _, file := range p.files {
			syntax, err := parser.ParseFile(h.files, filepath.Join(p.dir, file), nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			parsed = append(parsed, syntax)
		}
		info := types.Info{Uses: map[*ast.Ident]types.Object{}}
		if _, err := (&types.Config{Importer: h.types}).Check(path, h.files, parsed, &info); err != nil {
			return err
		}
		for at, object := range info.Uses {
			if !closed[object] {
				continue
			}
			if used = true; !slices.Contains(rooms, room) {
				h.fault("%s: %s uses %s of %s.%s and must not, because %s", h.files.Position(at.Pos()), room, object.Name(), home, name, because)
			}
		}
	}
	if !used {
		return fmt.Errorf("nothing uses one")
	}
	return nil
}

// checkPublic reports what has exported names without being public, and each public name that shows a type of a hidden
// package to which no public package gives a name. The fields and methods of such a name count too, also if it is an alias.
func (h *house) checkPublic() error {
	scopes, named, used := map[string]*types.Scope{}, map[string]bool{}, map[string]bool{}
	for path := range h.packages {
		room, ours := strings.CutPrefix(path, module)
		if !ours || isHidden(path) || strings.HasPrefix(room+"/", "pdp/pdptest/") {
			continue
		}
		p, err := h.types.Import(path)
		if err != nil {
			return err
		}
		if !slices.Contains(public, room) {
			if p.Name() != "main" && slices.ContainsFunc(p.Scope().Names(), token.IsExported) {
				h.fault("%s exports names and is not public: move it below pdp/internal, or list it in public", room)
			}
			continue
		}
		scopes[room] = p.Scope()
		for _, name := range p.Scope().Names() {
			if alias, ok := p.Scope().Lookup(name).Type().(*types.Alias); ok && token.IsExported(name) {
				named[types.TypeString(types.Unalias(alias), nil)] = true
			}
		}
	}
	for _, u := range unnamed {
		for name := range strings.FieldsSeq(u.types) {
			named[module+name], used[module+name] = true, false
		}
	}
	for _, room := range public {
		scope := scopes[room]
		if scope == nil {
			h.fault("public lists %s, which is no package: correct it", room)
			continue
		}
		for _, name := range scope.Names() {
			if !token.IsExported(name) {
				continue
			}
			shown(scope.Lookup(name), func(where string, t *types.TypeName) {
				hidden := t.Pkg() != nil && isHidden(t.Pkg().Path())
				if full := types.TypeString(t.Type(), nil); hidden && named[full] {
					used[full] = true
				} else if hidden {
					h.fault("%s.%s shows %s, which strangers cannot name: give it a name in a public package, or do not show it", room, where, full)
				}
			})
		}
	}
	for name, isUsed := range used {
		if !isUsed {
			h.fault("unnamed lists %s, which is not shown: delete it", name)
		}
	}
	return nil
}

// isHidden reports whether a package is ours and below an internal directory.
func isHidden(path string) bool {
	return strings.HasPrefix(path, module) && slices.Contains(strings.Split(path, "/"), "internal")
}

// shown calls see for each type that a reader of an exported name meets, with the place: the name, a field or a method.
func shown(o types.Object, see func(where string, t *types.TypeName)) {
	if _, isType := o.(*types.TypeName); !isType {
		met(o.Name(), o.Type(), see)
		return
	}
	t := types.Unalias(o.Type())
	met(o.Name(), t.Underlying(), see)
	if types.IsInterface(t) {
		return // its methods are met
	}
	methods := types.NewMethodSet(types.NewPointer(t))
	for m := range methods.Methods() {
		if m.Obj().Exported() {
			met(o.Name()+"."+m.Obj().Name(), m.Type(), see)
		}
	}
}

// met calls see for each named type in t.
func met(where string, t types.Type, see func(where string, t *types.TypeName)) {
	switch t := types.Unalias(t).(type) {
	case *types.Named:
		see(where, t.Obj())
		for arg := range t.TypeArgs().Types() {
			met(where, arg, see)
		}
	case *types.Map:
		met(where, t.Key(), see)
		met(where, t.Elem(), see)
	case interface{ Elem() types.Type }: // a pointer, slice, array or channel
		met(where, t.Elem(), see)
	case *types.Signature:
		for v := range t.Params().Variables() {
			met(where, v.Type(), see)
		}
		for v := range t.Results().Variables() {
			met(where, v.Type(), see)
		}
	case *types.Struct:
		for f := range t.Fields() {
			if f.Exported() {
				met(where+"."+f.Name(), f.Type(), see)
			} else if f.Embedded() { // its exported fields are fields of t
				met(where, f.Type().Underlying(), see)
			}
		}
	case *types.Interface:
		for m := range t.Methods() {
			if m.Exported() {
				met(where+"."+m.Name(), m.Type(), see)
			}
		}
	}
}
