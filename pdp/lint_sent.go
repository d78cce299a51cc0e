package pdp

import (
	"slices"

	"github.com/cedar-policy/cedar-go/types"
)

// setting is a combination of types that a policy can meet. Where there is a
// schema these are its environments; where there is none, "" stands for every
// type that neither the policy's types nor bundle.yaml tell apart.
type setting struct {
	types  [variables]types.EntityType
	action *lineage                  // nil: any
	member map[string]attributeShape // of the context
}

// settings are those that the policy's scope and leading tests admit.
func (l *linter) settings(p *policy) []*setting {
	var all []*setting
	if s := l.b.schema; s != nil {
		for env := range s.environments(p) {
			uid := env.action.entity.UID
			up := lineageOf(uid, s.actionEntities())
			all = append(all, &setting{types: [variables]types.EntityType{env.principal, uid.Type, env.resource}, action: &up, member: env.action.context})
		}
	} else {
		for _, principal := range l.listed {
			for _, resource := range l.listed {
				all = append(all, &setting{types: [variables]types.EntityType{principal, l.b.config.actionType, resource}})
			}
		}
	}
	return slices.DeleteFunc(all, func(set *setting) bool {
		fails := func(t scopeTest) bool { return l.truth(set, t) == no }
		return slices.ContainsFunc(p.facts.scope, fails) || slices.ContainsFunc(p.facts.leading, fails)
	})
}

// truth says what a test comes to by the types alone, err where they do not
// settle it.
func (l *linter) truth(set *setting, t scopeTest) termOutcome {
	typ := set.types[t.of]
	switch {
	case t.of == actionVar && set.action != nil:
		if set.action.holds(&t) {
			return yes
		}
		return no
	case typ == "":
		if t.is != "" && slices.Contains(l.listed, t.is) || t.eq && slices.Contains(l.listed, t.uids[0].Type) {
			return no
		}
	case t.is != "" && t.is != typ, t.eq && t.uids[0].Type != typ:
		return no
	case t.is == typ && t.uids == nil:
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
func (l *linter) optional(p *policy, set *setting, path attributePath) bool {
	if path.protocol() {
		return false // never there, which is another warning
	}
	if path.root == "context" {
		return path.names[0] != "pdp" && (path.names[0] != "action" || len(path.names) > 1) && l.undemanded(set.member, path.names)
	}
	typ, ok := set.typeOf(path.root)
	if !ok || l.fixed(p, typ, path.names[0]) || l.ofApproval(typ, path) {
		return false
	}
	if len(path.names) == 1 && l.b.config.known[typ] && l.everyHas(p, typ, path.names[0]) {
		return false
	}
	return l.givesParents(typ, path) || l.waived(typ, path) || l.undemanded(l.b.schema.attributes(typ), path.names)
}

// undemanded reports whether no schema requires the path. What a schema does not
// declare does not count when it is sent, so leaving it out changes nothing.
func (l *linter) undemanded(attributes map[string]attributeShape, names []string) bool {
	if l.b.schema == nil {
		return true
	}
	optional, declared := l.b.schema.leavesOut(attributes, names)
	return optional && declared
}

// waived reports whether the schema requires the attribute, and bundle.yaml does not
// require it of entities that are in no store.
func (l *linter) waived(typ types.EntityType, path attributePath) bool {
	c := &l.b.config
	if !c.evaluateUnknown || len(path.names) != 1 || c.known[typ] || c.parentsFrom(typ, path.names[0]) {
		return false
	}
	if _, ok := approvalAttributes[path.names[0]]; ok && typ == c.approvalType {
		return false // the PDP says what they are
	}
	a, declared := l.b.schema.attributes(typ)[path.names[0]]
	return declared && !a.optional
}

// ensured says how an author sees to it that an attribute is there.
func (l *linter) ensured(path attributePath) string {
	if l.b.schema != nil && l.b.config.evaluateUnknown && path.root != "context" {
		return "list the type under known in bundle.yaml"
	}
	return "have a schema require it"
}

// givesParents reports whether the attribute gives parents, which it does
// whether the schema declares it or not.
func (l *linter) givesParents(typ types.EntityType, path attributePath) bool {
	if a, declared := l.b.schema.attributes(typ)[path.names[0]]; declared && !a.optional {
		return false
	}
	return len(path.names) == 1 && l.b.config.parentsFrom(typ, path.names[0])
}

// ofApproval reports whether the path is an attribute that every approval has.
func (l *linter) ofApproval(typ types.EntityType, path attributePath) bool {
	_, ok := approvalAttributes[path.names[0]]
	return ok && len(path.names) == 1 && l.b.schema == nil && typ == l.b.config.approvalType
}

func (set *setting) typeOf(root string) (types.EntityType, bool) {
	switch root {
	case "principal":
		return set.types[principalVar], true
	case "resource":
		return set.types[resourceVar], true
	}
	return "", false
}

// fixed reports whether no request has a say in an attribute.
func (l *linter) fixed(p *policy, typ types.EntityType, name string) bool {
	c := &l.b.config
	return c.known[typ] && (c.attributes[typ] == stored || c.attributes[typ] == fill && l.everyHas(p, typ, name))
}
