package bundle

import (
	"fmt"
	"maps"
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
	declarations := declarationsOf(s)
	z := schemaSizes{common: map[types.Path]ast.IsType{}, sized: map[types.Path]int{}}
	for _, d := range declarations {
		if d.kind == "type" {
			z.common[inNamespace(d.in, d.name)] = d.types[0]
		}
	}
	for _, d := range declarations {
		if d.kind != "type" { // those count where they are named
			z.count(d)
		}
		if z.total > maxSchema { // to go on would take long
			break
		}
	}
	if z.total <= maxSchema {
		return true
	}
	file, line, column := files.declarationOf(z.largest)
	problems.Add(file, line, column, "schema_size",
		fmt.Sprintf("with all names of types written out the schema has more than the %d types and references that it may have, such as in %s",
			maxSchema, Quote(z.largest)),
		"let fewer types refer to others, and fewer actions share long lists and large contexts")
	return false
}

// declaration is an entity type, an action or a common type of a schema, with all that it refers to.
type declaration struct {
	kind, name string // the kind as the schema writes it
	in         types.Path
	entities   [][]ast.EntityTypeRef // lists that other declarations may share, so they are not copied
	actions    []ast.ParentRef
	types      []ast.IsType
	ids        int  // of an enumerated type
	applies    bool // an action has a context, to which the PDP adds members
}

// declarationsOf lists the declarations of a schema, by namespace, kind and name.
func declarationsOf(s *ast.Schema) (all []declaration) {
	spaces := maps.Clone(s.Namespaces)
	if spaces == nil {
		spaces = ast.Namespaces{}
	}
	spaces[""] = ast.Namespace{Entities: s.Entities, Enums: s.Enums, Actions: s.Actions, CommonTypes: s.CommonTypes}
	for in, space := range ByName(spaces) {
		for name, t := range ByName(space.CommonTypes) {
			all = append(all, declaration{kind: "type", name: string(name), in: in, types: []ast.IsType{t.Type}})
		}
		for name, e := range ByName(space.Entities) {
			all = append(all, declaration{kind: "entity", name: string(name), in: in, entities: [][]ast.EntityTypeRef{e.ParentTypes}, types: []ast.IsType{e.Shape, e.Tags}})
		}
		for name, e := range ByName(space.Enums) {
			all = append(all, declaration{kind: "entity", name: string(name), in: in, ids: len(e.Values)})
		}
		for name, a := range ByName(space.Actions) {
			d := declaration{kind: "action", name: string(name), in: in, actions: a.Parents}
			if to := a.AppliesTo; to != nil {
				d.entities = [][]ast.EntityTypeRef{to.Principals, to.Resources}
				d.types, d.applies = []ast.IsType{to.Context}, true
			}
			all = append(all, d)
		}
	}
	return all
}

// eachType visits a type and all types in it.
func eachType(t ast.IsType, visit func(ast.IsType)) {
	visit(t)
	switch t := t.(type) {
	case ast.SetType:
		eachType(t.Element, visit)
	case ast.RecordType:
		for _, a := range ByName(t) {
			eachType(a.Type, visit)
		}
	}
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

func (z *schemaSizes) count(d declaration) {
	size := 1 + len(d.actions) + d.ids
	for _, list := range d.entities {
		size += len(list)
	}
	for _, t := range d.types {
		size += z.size(d.in, t)
	}
	if d.applies {
		size += len(pdpMembers) + 2 // pdp and action
		if d.name == ApprovalAction {
			size += len(wayMembers)
		}
	}
	z.total += size
	if size > z.most || size == z.most && d.name < z.largest {
		z.largest, z.most = d.name, size
	}
}

// size is the size of a type.
func (z *schemaSizes) size(ns types.Path, t ast.IsType) (size int) {
	eachType(t, func(t ast.IsType) {
		size++
		if name, ok := t.(ast.TypeRef); ok {
			size += z.named(ns, types.Path(name))
		}
	})
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
