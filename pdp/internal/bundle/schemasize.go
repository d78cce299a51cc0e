package bundle

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/schema/ast"
	"github.com/go-json-experiment/json/jsontext"
)

// cedar-go writes a schema out: it replaces each name of a type by the type, and copies each list
// for each of the declarations that share it. A schema grows much by that: thirty types that
// each name the one before twice come to a billion. So we count before cedar-go writes it out.
const (
	// maxSchema is how many types and references a written-out schema may have. Some millions
	// take a second. A schema of 500 actions with 100 attributes each has 60,000.
	maxSchema = 250_000
	// maxActionWays is how many steps it may take to go from every action up to all groups
	// that it is in.
	maxActionWays = 1_000_000
)

// comesTo is the size of one declaration in the resolved schema.
type comesTo struct {
	kind, name string
	size       int
}

// schemaSizes counts the size of a written-out schema. Sums stop at the greatest number.
type schemaSizes struct {
	common map[types.Path]ast.IsType
	sized  map[types.Path]int // 0 while a type is being counted; a cycle meets that 0, and cedar-go refuses it later
	found  []comesTo
}

// checkSchemaSize refuses a schema that is too large to be resolved.
func checkSchemaSize(files schemaFiles, s *ast.Schema, problems *Problems) bool {
	z := schemaSizes{common: map[types.Path]ast.IsType{}, sized: map[types.Path]int{}}
	all := map[types.Path]ast.Namespace{"": {
		Entities:    s.Entities,
		Enums:       s.Enums,
		Actions:     s.Actions,
		CommonTypes: s.CommonTypes,
	}}
	for name, ns := range s.Namespaces {
		all[name] = ns
	}
	for ns, d := range all {
		for name, common := range d.CommonTypes {
			z.common[inNamespace(ns, string(name))] = common.Type
		}
	}
	for ns, d := range all {
		z.count(ns, d)
	}
	total := 0
	for _, d := range z.found {
		total = plus(total, d.size)
	}
	if total <= maxSchema {
		return true
	}
	largest := slices.MaxFunc(z.found, func(a, b comesTo) int {
		return cmp.Or(cmp.Compare(a.size, b.size), strings.Compare(b.kind+b.name, a.kind+a.name))
	})
	file, line, column := files.declarationOf(largest.name)
	problems.Add(file, line, column, "schema_size",
		fmt.Sprintf("with all names of types written out the schema comes to %s types and references, and may come to %s; %s %s alone is %s",
			number(total), number(maxSchema), largest.kind, Quote(largest.name), number(largest.size)),
		"let fewer types refer to others, and fewer actions share long lists and large contexts")
	return false
}

// count notes the sizes of the declarations of one namespace.
func (z *schemaSizes) count(ns types.Path, d ast.Namespace) {
	add := func(kind, name string, size int) { z.found = append(z.found, comesTo{kind, name, size}) }
	for name, e := range d.Entities {
		size := plus(1+len(e.ParentTypes), z.size(ns, e.Shape))
		if e.Tags != nil {
			size = plus(size, z.size(ns, e.Tags))
		}
		add("entity", string(name), size)
	}
	for name, e := range d.Enums {
		add("entity", string(name), 1+len(e.Values))
	}
	for name, a := range d.Actions {
		size := 1 + len(a.Parents)
		if to := a.AppliesTo; to != nil {
			size = plus(size+len(to.Principals)+len(to.Resources)+len(pdpMembers)+2, 0) // the PDP adds pdp and action
			if name == ApprovalAction {
				size += len(wayMembers)
			}
			if to.Context != nil {
				size = plus(size, z.size(ns, to.Context))
			}
		}
		add("action", string(name), size)
	}
}

// size is the size of a type.
func (z *schemaSizes) size(ns types.Path, t ast.IsType) int {
	switch t := t.(type) {
	case ast.SetType:
		return plus(1, z.size(ns, t.Element))
	case ast.RecordType:
		size := 1
		for _, a := range t {
			size = plus(size, z.size(ns, a.Type))
		}
		return size
	case ast.TypeRef:
		return plus(1, z.named(ns, types.Path(t)))
	}
	return 1
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
		size = z.size(ns, common)
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

const maxNumber = math.MaxInt

// plus adds numbers that are not negative. It stops at the greatest number.
func plus(a, b int) int {
	if a > maxNumber-b {
		return maxNumber
	}
	return a + b
}

// number writes a number for a message.
func number(n int) string {
	if n == maxNumber {
		return "more than anybody can count"
	}
	return fmt.Sprint(n)
}

// checkActionWays finds the lineage of every action. It refuses groups of actions that would
// take too many steps.
func (s *Schema) checkActionWays(files schemaFiles, problems *Problems) bool {
	ways := 0
	for _, uid := range slices.SortedFunc(maps.Keys(s.Actions), compareUIDs) {
		a := s.Actions[uid]
		a.Up = LineageOf(uid, &Store{Entities: s.actionEntities})
		for _, above := range append(a.Up.Up, uid) {
			if of, ok := s.actionEntities[above]; ok {
				ways += 1 + of.Parents.Len()
			}
		}
		if ways > maxActionWays {
			file, line, column := files.declarationOf(string(uid.ID))
			problems.Add(file, line, column, "schema_groups",
				fmt.Sprintf("from all actions up to all the groups that they are in there may be %d steps, and with action %s there are more",
					maxActionWays, Quote(string(uid.ID))),
				"let groups be in fewer groups: an action is in what its groups are in")
			return false
		}
	}
	return true
}

// checkJSONNesting bounds how deep the recursion of a parser goes in a JSON text.
func checkJSONNesting(file string, text []byte, problems *Problems) bool {
	dec := jsontext.NewDecoder(bytes.NewBuffer(text))
	for {
		if _, err := dec.ReadToken(); err != nil {
			return true // the parser has a better message
		}
		if dec.StackDepth() > maxNesting {
			line, column := placeOf(string(text), int(dec.InputOffset())-1)
			problems.Add(file, line, column, "schema_nesting",
				fmt.Sprintf("objects and arrays nest more than %d deep", maxNesting),
				"name inner types, and refer to them")
			return false
		}
	}
}
