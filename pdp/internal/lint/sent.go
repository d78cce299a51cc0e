package lint

import (
	"slices"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/pdp/internal/bundle"
)

// setting is a combination of types with which a policy can be evaluated. If there is a
// schema, the settings are its environments. If there is none, the type "" stands for every
// type that bundle.yaml does not list.
type setting struct {
	types  [bundle.Variables]types.EntityType
	action *bundle.Lineage                  // nil stands for any action
	member map[string]bundle.AttributeShape // the members of the context
}

// settings returns the settings that the policy's scope and leading tests admit.
func (l *linter) settings(p *bundle.Policy) []*setting {
	var all []*setting
	if s := l.b.Schema; s != nil {
		for env := range s.Environments(p) {
			up := &env.Action.Up
			all = append(all, &setting{
				types:  [bundle.Variables]types.EntityType{env.Principal, up.Uid.Type, env.Resource},
				action: up,
				member: env.Action.Context,
			})
		}
	} else {
		for _, principal := range l.listed {
			for _, resource := range l.listed {
				all = append(all, &setting{
					types: [bundle.Variables]types.EntityType{principal, l.b.Config.ActionType, resource},
				})
			}
		}
	}
	return slices.DeleteFunc(all, func(set *setting) bool {
		fails := func(t bundle.ScopeTest) bool { return l.truth(set, t) == outcomeFalse }
		return slices.ContainsFunc(p.Facts.Scope, fails) || slices.ContainsFunc(p.Facts.Leading, fails)
	})
}

// truth returns the outcome of a test by the types alone, or outcomeError if they do not
// settle it.
func (l *linter) truth(set *setting, t bundle.ScopeTest) termOutcome {
	typ := set.types[t.Of]
	switch {
	case t.Of == bundle.ActionVar && set.action != nil:
		if set.action.Holds(&t) {
			return outcomeTrue
		}
		return outcomeFalse
	case typ == "":
		if t.Is != "" && slices.Contains(l.listed, t.Is) || t.Eq && slices.Contains(l.listed, t.Uids[0].Type) {
			return outcomeFalse
		}
	case t.Is != "" && t.Is != typ, t.Eq && t.Uids[0].Type != typ:
		return outcomeFalse
	case t.Is == typ && t.Uids == nil:
		return outcomeTrue
	}
	return outcomeError
}

// optional reports whether a caller can leave out the attribute at the path in a request that
// is still evaluated. A caller cannot leave out members that the PDP adds, and members that the
// schema requires. A caller can leave out an attribute of an entity, unless
//   - the type is listed under known, so that the entity is stored, and its mode is store, so
//     that it takes nothing from requests, or
//   - the type is listed under known and every stored entity of the type has the attribute. If
//     no value is sent, the stored one counts. For members below the attribute that holds only
//     if a sent value never hides the stored one.
//
// An entity of a type that is not listed under known may be in no store, whatever the mode.
// Then it has only what was sent. The attributes of an approval come from the PDP itself.
func (l *linter) optional(p *bundle.Policy, set *setting, path bundle.AttributePath) bool {
	if path.Protocol() {
		return false // it is never there, and another warning says so
	}
	if l.b.Config.OfVote(p, path) {
		return false // the PDP says it of every vote
	}
	if path.Root == "context" {
		return path.Names[0] != "pdp" && (path.Names[0] != "action" || len(path.Names) > 1) &&
			l.notRequired(set.member, path.Names)
	}
	typ, ok := set.typeOf(path.Root)
	if !ok || l.fixed(p, typ, path.Names[0]) || l.ofApproval(typ, path) {
		return false
	}
	if len(path.Names) == 1 && l.b.Config.Known[typ] && l.everyHas(p, typ, path.Names[0]) {
		return false
	}
	return l.givesParents(typ, path) || l.waived(typ, path) || l.notRequired(l.b.Schema.Attributes(typ), path.Names)
}

// notRequired reports whether no schema requires the path. It is false for a path that the
// schema does not declare: such a value does not count when it is sent, so leaving it out
// changes nothing.
func (l *linter) notRequired(attributes map[string]bundle.AttributeShape, names []string) bool {
	if l.b.Schema == nil {
		return true
	}
	optional, declared := l.b.Schema.LeavesOut(attributes, names)
	return optional && declared
}

// waived reports whether the schema requires the attribute, but bundle.yaml does not require
// it for entities that are in no store.
func (l *linter) waived(typ types.EntityType, path bundle.AttributePath) bool {
	c := &l.b.Config
	if !c.EvaluateUnknown || len(path.Names) != 1 || c.Known[typ] || c.ParentsFrom(typ, path.Names[0]) {
		return false
	}
	if _, ok := bundle.ApprovalAttributes[path.Names[0]]; ok && typ == c.ApprovalType {
		return false // the PDP gives an approval these attributes
	}
	a, declared := l.b.Schema.Attributes(typ)[path.Names[0]]
	return declared && !a.Optional
}

// howToEnsure tells the author a way to make sure that an attribute is there.
func (l *linter) howToEnsure(path bundle.AttributePath) string {
	if l.b.Schema != nil && l.b.Config.EvaluateUnknown && path.Root != "context" {
		return "list the type under known in bundle.yaml"
	}
	return "have a schema require it"
}

// givesParents reports whether the attribute gives parents and can be left out. An attribute
// gives parents even if the schema does not declare it.
func (l *linter) givesParents(typ types.EntityType, path bundle.AttributePath) bool {
	if a, declared := l.b.Schema.Attributes(typ)[path.Names[0]]; declared && !a.Optional {
		return false
	}
	return len(path.Names) == 1 && l.b.Config.ParentsFrom(typ, path.Names[0])
}

// ofApproval reports whether the path is an attribute that every approval has.
func (l *linter) ofApproval(typ types.EntityType, path bundle.AttributePath) bool {
	_, ok := bundle.ApprovalAttributes[path.Names[0]]
	return ok && len(path.Names) == 1 && l.b.Schema == nil && typ == l.b.Config.ApprovalType
}

func (set *setting) typeOf(root string) (types.EntityType, bool) {
	switch root {
	case "principal":
		return set.types[bundle.PrincipalVar], true
	case "resource":
		return set.types[bundle.ResourceVar], true
	}
	return "", false
}

// fixed reports whether no request can change the value of an attribute.
func (l *linter) fixed(p *bundle.Policy, typ types.EntityType, name string) bool {
	c := &l.b.Config
	return c.Known[typ] &&
		(c.Attributes[typ] == bundle.Stored || c.Attributes[typ] == bundle.Fill && l.everyHas(p, typ, name))
}
