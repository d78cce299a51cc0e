package bundle

import (
	"fmt"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/schema/ast"
)

// maxSchema is how many types and references a written-out schema may have. Some millions
// take a second. A schema of 500 actions with 100 attributes each has 60,000.
const maxSchema = 250_000

// checkSchemaSize refuses a schema that cedar-go cannot write out. cedar-go replaces each name
// of a type by the type, and copies each list for each of the declarations that share it. By
// that, thirty types that each name the one before twice come to a billion.
func checkSchemaSize(files schemaFiles, s *ast.Schema, problems *Problems) bool {
	spaces := spacesOf(s)
	z := schemaSizes{common: map[types.Path]ast.IsType{}, sized: map[types.Path]int{}}
	for ns, d := range spaces {
		for name, common := range d.CommonTypes {
			z.common[inNamespace(ns, string(name))] = common.Type
		}
	}
	for ns, d := range spaces {
		z.count(ns, d)
	}
	if z.total <= maxSchema {
		return true
	}
	file, line, column := files.declarationOf(z.largest)
	problems.Add(file, line, column, "schema_size",
		fmt.Sprintf("with all names of types written out the schema has more than the %d types and references that it may have, most of them in %s",
			maxSchema, Quote(z.largest)),
		"let fewer types refer to others, and fewer actions share long lists and large contexts")
	return false
}

// spacesOf are the namespaces of a schema, with what is declared in none as "".
func spacesOf(s *ast.Schema) map[types.Path]ast.Namespace {
	spaces := map[types.Path]ast.Namespace{
		"": {Entities: s.Entities, Enums: s.Enums, Actions: s.Actions, CommonTypes: s.CommonTypes},
	}
	for name, ns := range s.Namespaces {
		spaces[name] = ns
	}
	return spaces
}

// schemaSizes counts the types and references of a written-out schema. One type counts as
// little more than maxSchema at most, so that no sum overflows.
type schemaSizes struct {
	common  map[types.Path]ast.IsType
	sized   map[types.Path]int // 0 while a type is being counted; a cycle meets that 0, and cedar-go refuses it later
	total   int
	largest string // the declaration that has most
	most    int
}

// count counts the declarations of one namespace.
func (z *schemaSizes) count(ns types.Path, d ast.Namespace) {
	add := func(name string, size int) {
		z.total += size
		if size > z.most || size == z.most && name < z.largest {
			z.largest, z.most = name, size
		}
	}
	for name, e := range d.Entities {
		add(string(name), 1+len(e.ParentTypes)+z.size(ns, e.Shape)+z.size(ns, e.Tags))
	}
	for name, e := range d.Enums {
		add(string(name), 1+len(e.Values))
	}
	for name, a := range d.Actions {
		size := 1 + len(a.Parents)
		if to := a.AppliesTo; to != nil {
			size += len(to.Principals) + len(to.Resources) + len(pdpMembers) + 2 + z.size(ns, to.Context) // the PDP adds pdp and action
			if name == ApprovalAction {
				size += len(wayMembers)
			}
		}
		add(string(name), size)
	}
}

// size is the size of a type.
func (z *schemaSizes) size(ns types.Path, t ast.IsType) int {
	size := 1
	switch t := t.(type) {
	case ast.SetType:
		size += z.size(ns, t.Element)
	case ast.RecordType:
		for _, a := range t {
			size += z.size(ns, a.Type)
		}
	case ast.TypeRef:
		size += z.named(ns, types.Path(t))
	}
	return size
}

// named is the size of the type that a name stands for. It looks the name up as cedar-go does.
func (z *schemaSizes) named(ns, name types.Path) int {
	switch inside := inNamespace(ns, string(name)); {
	case strings.Contains(string(name), "::"):
		ns = name[:strings.LastIndex(string(name), "::")]
	case z.common[inside] != nil:
		name = inside
	default:
		ns = ""
	}
	common, ok := z.common[name]
	if !ok {
		return 0
	}
	size, known := z.sized[name]
	if !known {
		z.sized[name] = 0
		size = min(z.size(ns, common), maxSchema+1)
		z.sized[name] = size
	}
	return size
}

func inNamespace(ns types.Path, name string) types.Path {
	if ns == "" {
		return types.Path(name)
	}
	return ns + "::" + types.Path(name)
}
