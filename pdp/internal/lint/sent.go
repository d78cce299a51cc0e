package lint

import (
	"slices"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/pdp/internal/bundle"
)

// setting is a combination of types that a policy can meet. Where there is a
// schema these are its environments; where there is none, "" stands for every
// type that neither the policy's types nor bundle.yaml tell apart.
type setting struct {
	types  [bundle.Variables]types.EntityType
	action *bundle.Lineage                  // nil: any
	member map[string]bundle.AttributeShape // of the context
}

// settings are those that the policy's scope and leading tests admit.
func (l *linter) settings(p *bundle.Policy) []*setting {
	var all []*setting
	if s := l.b.Schema; s != nil {
		for env := range s.Environments(p) {
			uid := env.Action.Entity.UID
			up := bundle.LineageOf(uid, s.ActionEntities())
			all = append(all, &setting{types: [bundle.Variables]types.EntityType{env.Principal, uid.Type, env.Resource}, action: &up, member: env.Action.Context})
		}
	} else {
		for _, principal := range l.listed {
			for _, resource := range l.listed {
				all = append(all, &setting{types: [bundle.Variables]types.EntityType{principal, l.b.Config.ActionType, resource}})
			}
		}
	}
	return slices.DeleteFunc(all, func(set *setting) bool {
		fails := func(t bundle.ScopeTest) bool { return l.truth(set, t) == no }
		return slices.ContainsFunc(p.Facts.Scope, fails) || slices.ContainsFunc(p.Facts.Leading, fails)
	})
}

// truth says what a test comes to by the types alone, err where they do not
// settle it.
func (l *linter) truth(set *setting, t bundle.ScopeTest) termOutcome {
	typ := set.types[t.Of]
	switch {
	case t.Of == bundle.ActionVar && set.action != nil:
		if set.action.Holds(&t) {
			return yes
		}
		return no
	case typ == "":
		if t.Is != "" && slices.Contains(l.listed, t.Is) || t.Eq && slices.Contains(l.listed, t.Uids[0].Type) {
			return no
		}
	case t.Is != "" && t.Is != typ, t.Eq && t.Uids[0].Type != typ:
		return no
	case t.Is == typ && t.Uids == nil:
		return yes
	}
	return err
}

// optional reports whether a caller can leave out what stands at the path, and
// the request still is evaluated. Members that the PDP adds, and those that the
// schema requires, cannot be left out. An attribute of an entity can, unless
//   - the type is known, so that the entity is stored, and takes nothing from
//     requests (store), or
//   - the type is known and every stored entity of it has the attribute: without
//     a sent value the stored one counts. That holds for what stands below the
//     attribute only where a sent value never hides the stored one.
//
// An entity of a type that is not known may be in no store, whatever the mode,
// and then is what was sent. An approval is what the PDP itself says of it.
func (l *linter) optional(p *bundle.Policy, set *setting, path bundle.AttributePath) bool {
	if path.Protocol() {
		return false // never there, which is another warning
	}
	if path.Root == "context" {
		return path.Names[0] != "pdp" && (path.Names[0] != "action" || len(path.Names) > 1) && l.undemanded(set.member, path.Names)
	}
	typ, ok := set.typeOf(path.Root)
	if !ok || l.fixed(p, typ, path.Names[0]) || l.ofApproval(typ, path) {
		return false
	}
	if len(path.Names) == 1 && l.b.Config.Known[typ] && l.everyHas(p, typ, path.Names[0]) {
		return false
	}
	return l.givesParents(typ, path) || l.waived(typ, path) || l.undemanded(l.b.Schema.Attributes(typ), path.Names)
}

// undemanded reports whether no schema requires the path. What a schema does not
// declare does not count when it is sent, so leaving it out changes nothing.
func (l *linter) undemanded(attributes map[string]bundle.AttributeShape, names []string) bool {
	if l.b.Schema == nil {
		return true
	}
	optional, declared := l.b.Schema.LeavesOut(attributes, names)
	return optional && declared
}

// waived reports whether the schema requires the attribute, and bundle.yaml does not
// require it of entities that are in no store.
func (l *linter) waived(typ types.EntityType, path bundle.AttributePath) bool {
	c := &l.b.Config
	if !c.EvaluateUnknown || len(path.Names) != 1 || c.Known[typ] || c.ParentsFrom(typ, path.Names[0]) {
		return false
	}
	if _, ok := bundle.ApprovalAttributes[path.Names[0]]; ok && typ == c.ApprovalType {
		return false // the PDP says what they are
	}
	a, declared := l.b.Schema.Attributes(typ)[path.Names[0]]
	return declared && !a.Optional
}

// ensured says how an author sees to it that an attribute is there.
func (l *linter) ensured(path bundle.AttributePath) string {
	if l.b.Schema != nil && l.b.Config.EvaluateUnknown && path.Root != "context" {
		return "list the type under known in bundle.yaml"
	}
	return "have a schema require it"
}

// givesParents reports whether the attribute gives parents, which it does
// whether the schema declares it or not.
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

// fixed reports whether no request has a say in an attribute.
func (l *linter) fixed(p *bundle.Policy, typ types.EntityType, name string) bool {
	c := &l.b.Config
	return c.Known[typ] && (c.Attributes[typ] == bundle.Stored || c.Attributes[typ] == bundle.Fill && l.everyHas(p, typ, name))
}
