package arguments

import (
	"errors"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// graph is a schema with all schemas that it leads to.
type graph struct {
	root       *jsonschema.Schema
	byLocation map[string]*jsonschema.Schema
	looksBack  bool
}

// role is how one schema leads to another.
type role uint8

const (
	samePlace role = iota
	below          // to members or elements
	probe          // to a value that may or may not fit
)

var (
	errDynamic = errors.New("inputSchema has $dynamicRef or $recursiveRef; refer by $ref")
	errLoops   = errors.New("inputSchema refers to itself without going into a value, or forks too often: no value could be checked")
)

// newGraph compiles a schema. A schema that no value could be checked against is an error.
func newGraph(plain any) (*graph, error) {
	root, err := readByLibrary(plain)
	if err != nil {
		return nil, err
	}
	g := &graph{root: root, byLocation: map[string]*jsonschema.Schema{root.Location: root}}
	m := meter{left: mostSteps}
	for todo := []*jsonschema.Schema{root}; len(todo) > 0; {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if !strings.HasPrefix(s.Location, documentName+"#") {
			return nil, outside(s.Location)
		}
		if s.DynamicRef != nil || s.RecursiveRef != nil {
			return nil, errDynamic
		}
		s.Format = nil
		g.looksBack = g.looksBack || s.UnevaluatedProperties != nil || s.UnevaluatedItems != nil
		replaceWithin(s, func(_ role, next *jsonschema.Schema) *jsonschema.Schema {
			if g.byLocation[next.Location] == nil {
				g.byLocation[next.Location] = next
				todo = append(todo, next)
			}
			return next
		})
	}
	for _, s := range g.byLocation {
		if m.visit(s, nil, 0); m.left < 0 {
			return nil, errLoops
		}
	}
	return g, nil
}

// replaceWithin puts with(s) in the place of each schema s that a schema leads to directly.
func replaceWithin(s *jsonschema.Schema, with func(role, *jsonschema.Schema) *jsonschema.Schema) {
	each := func(r role, all ...**jsonschema.Schema) {
		for _, at := range all {
			if *at != nil {
				*at = with(r, *at)
			}
		}
	}
	list := func(r role, all []*jsonschema.Schema) {
		for n := range all {
			each(r, &all[n])
		}
	}
	each(samePlace, &s.Ref, &s.Then, &s.Else)
	list(samePlace, s.AllOf)
	list(samePlace, s.AnyOf)
	list(samePlace, s.OneOf)
	each(probe, &s.Not, &s.If, &s.Contains, &s.PropertyNames)
	each(below, &s.UnevaluatedProperties, &s.UnevaluatedItems, &s.Items2020)
	list(below, s.PrefixItems)
	for _, at := range []*any{&s.Items, &s.AdditionalItems, &s.AdditionalProperties} { // of several types before 2020-12
		switch v := (*at).(type) {
		case *jsonschema.Schema:
			*at = with(below, v)
		case []*jsonschema.Schema:
			list(below, v)
		}
	}
	for name, v := range s.Properties {
		s.Properties[name] = with(below, v)
	}
	for pattern, v := range s.PatternProperties {
		s.PatternProperties[pattern] = with(below, v)
	}
	for name, v := range s.DependentSchemas {
		s.DependentSchemas[name] = with(samePlace, v)
	}
	for name, v := range s.Dependencies {
		if v, ok := v.(*jsonschema.Schema); ok {
			s.Dependencies[name] = with(samePlace, v)
		}
	}
}

// close changes the schemas of g so that they refuse members which no schema lists, and returns its root. Where a value
// may or may not fit (not, if, contains, propertyNames) it puts the schemas of the open graph: to close those would
// allow what is excluded.
func (g *graph) close(open *graph) *jsonschema.Schema {
	for _, s := range g.byLocation {
		replaceWithin(s, func(r role, next *jsonschema.Schema) *jsonschema.Schema {
			switch {
			case r == probe:
				return open.byLocation[next.Location]
			case r == below && lists(next):
				return closed(next)
			}
			return next
		})
	}
	return closed(g.root)
}

// closed is a schema for the same values without further members.
func closed(s *jsonschema.Schema) *jsonschema.Schema {
	never := &jsonschema.Schema{Bool: new(bool), Location: s.Location + unevaluated}
	return &jsonschema.Schema{DraftVersion: 2020, Location: s.Location, AllOf: []*jsonschema.Schema{s}, UnevaluatedProperties: never}
}

// unevaluated ends the location of the schema of unlisted members.
const unevaluated = "/unevaluatedProperties"

// lists reports whether a schema lists members for the value that it is applied to.
func lists(s *jsonschema.Schema) bool {
	found := s.Properties != nil || s.PatternProperties != nil
	replaceWithin(s, func(r role, next *jsonschema.Schema) *jsonschema.Schema {
		found = found || r == samePlace && lists(next)
		return next
	})
	return found
}
