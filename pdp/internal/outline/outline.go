// Package outline lists the names that policies of one tenant can use: types with their attributes, entities, actions and
// obligations. Editors suggest them; begin with [Of].
//
// The package decides nothing and warns of nothing. It reads a bundle that is loaded, and shows no value of an attribute.
package outline

import (
	"cmp"
	"maps"
	"slices"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/pdp/internal/bundle"
)

// Outline has the names that policies can use. All lists are sorted by name.
type Outline struct {
	bundle *bundle.Bundle
	view   *bundle.View
}

// Attribute is an attribute of an entity, or a member of a context or of a record.
type Attribute struct {
	Name     string
	Type     string // as a schema writes it
	Optional bool
	Stored   int // how many entities of the bundle have it, if no schema declares it
	Members  []Attribute
}

// Obligation is a definition that policies can name.
type Obligation struct {
	Name, Type string
	File       string // "" if it is built in
	Line       int
	Column     int
}

// Of is the outline of a tenant's view. It is nil if there is no such tenant.
func Of(b *bundle.Bundle, tenant string) *Outline {
	if v, ok := b.Views[tenant]; ok {
		return &Outline{b, v}
	}
	return nil
}

// Types are the types of entities, as policies write them.
func (o *Outline) Types() (all []string) {
	for _, wire := range o.bundle.TypeNames {
		if typ, ok := o.bundle.Config.EntityType(wire); ok {
			all = append(all, string(typ))
		}
	}
	for s := o.view.Store; s != nil; s = s.Root {
		for typ := range s.Ids {
			if !bundle.IsActionType(typ) {
				all = append(all, string(typ))
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// ActionType is the type of all actions.
func (o *Outline) ActionType() string { return string(o.bundle.Config.ActionType) }

// IDs are the ids of the entities of a type: of actions, all that are named anywhere.
func (o *Outline) IDs(typ string) (all []string) {
	if typ == o.ActionType() {
		return slices.Clone(o.view.Actions)
	}
	for s := o.view.Store; s != nil; s = s.Root {
		all = append(all, s.Ids[types.EntityType(typ)]...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Parents are the parents of an entity of the bundle, as policies write them.
func (o *Outline) Parents(typ, id string) (all []string, known bool) {
	e, known := o.view.Store.Get(types.NewEntityUID(types.EntityType(typ), types.String(id)))
	for parent := range e.Parents.All() {
		all = append(all, parent.String())
	}
	slices.Sort(all)
	return all, known
}

// EntityIn is the place of an entity in the text of a file of entities. The line is 0 if it is not there.
func (o *Outline) EntityIn(file string, text []byte, typ, id string) (line, column int) {
	uid := types.NewEntityUID(types.EntityType(typ), types.String(id))
	for _, e := range bundle.EntitiesIn(file, text) {
		if e.UID == uid {
			return e.Line, e.Column
		}
	}
	return 0, 0
}

// Attributes are those of the entities of a type.
func (o *Outline) Attributes(typ string) []Attribute {
	if o.bundle.Schema != nil {
		return declared(o.bundle.Schema.Attributes(types.EntityType(typ)))
	}
	found := map[string]*Attribute{}
	for s := o.view.Store; s != nil; s = s.Root {
		for _, id := range s.Ids[types.EntityType(typ)] {
			e := s.Entities[types.NewEntityUID(types.EntityType(typ), types.String(id))]
			for name, value := range e.Attributes.All() {
				a := found[string(name)]
				if a == nil {
					a = &Attribute{Name: string(name), Type: bundle.TypeOf(value), Optional: true}
					found[a.Name] = a
				}
				a.Stored++
			}
		}
	}
	return sorted(found)
}

// Context are the members of the context of an action, or of all actions if it is "". Members that the PDP adds are among them.
func (o *Outline) Context(action string) []Attribute {
	s := o.bundle.Schema
	switch {
	case s == nil:
		return declared(bundle.SuppliedContext())
	case action != "":
		return declared(s.ContextOf(types.NewEntityUID(o.bundle.Config.ActionType, types.String(action))))
	}
	found := map[string]*Attribute{}
	byID := func(a, b types.EntityUID) int { return cmp.Compare(a.String(), b.String()) }
	for _, uid := range slices.SortedFunc(maps.Keys(s.Actions), byID) { // so that the type of a member is always that of the same action
		for _, a := range declared(s.ContextOf(uid)) {
			found[a.Name] = &a
		}
	}
	return sorted(found)
}

// Obligations are the definitions that policies can name.
func (o *Outline) Obligations() (all []Obligation) {
	for name, d := range bundle.ByName(o.view.Obligations) {
		all = append(all, Obligation{Name: name, Type: d.Type.Name, File: d.File, Line: d.Line, Column: d.Column})
	}
	return all
}

// Policies are the policies that the tenant's requests are decided by.
func (o *Outline) Policies() (all []bundle.PolicyInfo) {
	for _, p := range o.view.Policies {
		all = append(all, p.Info())
	}
	return all
}

func declared(of map[string]bundle.AttributeShape) (all []Attribute) {
	for name, a := range bundle.ByName(of) {
		all = append(all, Attribute{Name: name, Type: a.Shape.String(), Optional: a.Optional, Members: declared(a.Shape.Members)})
	}
	return all
}

func sorted(found map[string]*Attribute) []Attribute {
	all := make([]Attribute, 0, len(found))
	for _, a := range found {
		all = append(all, *a)
	}
	slices.SortFunc(all, func(a, b Attribute) int { return cmp.Compare(a.Name, b.Name) })
	return all
}
