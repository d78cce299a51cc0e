package bundle

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
	"go.yaml.in/yaml/v3"

	"policy-service/evaluation"
	"policy-service/pdp/internal/document"
	"policy-service/pdp/internal/source"
)

// A tenant's entities stand below the tenant's own alone: through a parent that the root names, a
// tenant would take part in what the root's policies decide. If that is meant, because the root has
// the roles and each tenant its people, bundle.yaml names the parents: tenants: {parents: […]}.

// EntityList are the types and the single entities that a list in bundle.yaml names, with their places.
type EntityList struct {
	Types map[types.EntityType]entityPlace
	UIDs  map[types.EntityUID]entityPlace
}

// Place is where the list names an entity, or its type.
func (l *EntityList) place(uid types.EntityUID) (entityPlace, bool) {
	if at, ok := l.UIDs[uid]; ok {
		return at, true
	}
	at, ok := l.Types[uid.Type]
	return at, ok
}

// Has reports if the list names an entity, or its type.
func (l *EntityList) Has(uid types.EntityUID) bool {
	_, ok := l.place(uid)
	return ok
}

// readTenants reads the key tenants.
func (c *Config) readTenants(m *document.Map, n *yaml.Node) {
	tenants := document.Map{File: m.File, Problems: m.Problems, Known: map[string]func(*yaml.Node){
		"parents":   func(n *yaml.Node) { c.TenantParents = c.entityList(m, n) },
		"approvers": func(n *yaml.Node) { c.TenantApprovers = c.entityList(m, n) },
	}}
	tenants.Read(n)
	outside := func(at entityPlace, what any) {
		m.Problems.Add(at.file, at.line, at.column, "tenant_approver",
			fmt.Sprintf("approvers names %s, and parents of tenants does not, so no entity of a tenant is below it", what),
			"name it under parents, too, or take it out")
	}
	for uid, at := range c.TenantApprovers.UIDs {
		if !c.TenantParents.Has(uid) {
			outside(at, uid)
		}
	}
	for typ, at := range c.TenantApprovers.Types {
		if _, ok := c.TenantParents.Types[typ]; !ok {
			outside(at, typ)
		}
	}
}

// entityList reads a list of types, as Role, and of entities, as Role::"admin". Types are named as
// requests name them.
func (c *Config) entityList(m *document.Map, n *yaml.Node) EntityList {
	l := EntityList{map[types.EntityType]entityPlace{}, map[types.EntityUID]entityPlace{}}
	m.List(n, func(item *yaml.Node) {
		at := entityPlace{m.File, item.Line, item.Column}
		typ, text, _ := strings.Cut(item.Value, `::"`)
		if id, err := strconv.Unquote(`"` + text); err == nil {
			of := *item
			of.Value = typ
			l.UIDs[types.NewEntityUID(c.TypeIn(m, &of), types.String(id))] = at
			return
		}
		l.Types[c.TypeIn(m, item)] = at
	})
	return l
}

// checkTenantParents refuses lists that open more of the root than they name: below an entity of a
// list is below each of its parents. It warns of a single entity that the root does not name.
func (l *entityLoader) checkTenantParents(root *View) {
	c := &l.bundle.Config
	if len(c.TenantParents.Types)+len(c.TenantParents.UIDs) == 0 {
		return
	}
	named := root.named()
	for key, list := range map[string]*EntityList{"parents": &c.TenantParents, "approvers": &c.TenantApprovers} {
		above := map[entityPlace][2]types.EntityUID{} // one of each place, always the same
		for uid, e := range root.Store.Entities {
			at, ok := list.place(uid)
			if !ok {
				continue
			}
			for parent := range e.Parents.All() {
				first, seen := above[at]
				one := [2]types.EntityUID{uid, parent}
				if !list.Has(parent) && (!seen || slices.CompareFunc(one[:], first[:], compareUIDs) < 0) {
					above[at] = one
				}
			}
		}
		for at, one := range above {
			l.bad(at, "tenant_parent_above",
				fmt.Sprintf("%s stands below %s, so what tenants place below it is below that too, and tenants: %s does not name that",
					one[0], one[1], key),
				"name it there too, or name fewer entities")
		}
	}
	ids := map[types.EntityType][]string{}
	for uid := range named {
		ids[uid.Type] = append(ids[uid.Type], string(uid.ID))
	}
	for uid, at := range c.TenantParents.UIDs {
		if _, ok := named[uid]; !ok {
			near := DidYouMean(string(uid.ID), slices.Values(ids[uid.Type]))
			l.problems.Warn(at.file, at.line, at.column, "tenant_parent_unnamed",
				fmt.Sprintf("the root of the bundle does not name %s%s", uid, near),
				"correct the id, or take it out: tenants may place their entities there anyhow", MendID(uid.String(), near))
		}
	}
}

// placeBelowRoot refuses a tenant's entity that has a parent which the root names, unless
// bundle.yaml lets tenants place theirs there. An entity that the root names without defining it
// takes part in the root's policies too. That is only a warning, because the root may mean it so;
// but such an entity, with all that the root has below it, must not come below another one of the
// root. The result is the store without the parents that count only where the root demands nothing,
// or nil.
func (l *entityLoader) placeBelowRoot(named map[types.EntityUID]struct{}) *Store {
	c := &l.bundle.Config
	var below []types.EntityUID // the entities with a parent that the root names
	without := map[types.EntityUID]types.Entity{}
	for uid, at := range l.own.places { // problems are sorted later
		e := l.store.Entities[uid]
		if _, ok := named[uid]; ok {
			l.problems.Warn(at.file, at.line, at.column, "root_entity",
				fmt.Sprintf("the root of the bundle names %s and does not define it, so what this tenant says of it counts in the root's policies, its forbids too",
					uid),
				"define it in the root, or see that no policy there relies on its attributes")
		}
		var counts []types.EntityUID
		for parent := range e.Parents.All() {
			_, ofRoot := named[parent]
			switch {
			case ofRoot && !c.TenantParents.Has(parent):
				l.refuseParent(uid, parent, at)
				continue
			case ofRoot:
				below = append(below, uid)
			}
			if !ofRoot || c.TenantApprovers.Has(parent) {
				counts = append(counts, parent)
			}
		}
		if len(counts) < e.Parents.Len() {
			e.Parents = types.NewEntityUIDSet(counts...)
			without[uid] = e
		}
	}
	walked := map[types.EntityUID]struct{}{}
	for len(below) > 0 {
		uid := below[len(below)-1]
		below = below[:len(below)-1]
		if _, seen := walked[uid]; seen {
			continue
		}
		walked[uid] = struct{}{}
		if _, ok := named[uid]; ok {
			l.bad(l.own.places[uid], "root_parent",
				fmt.Sprintf("%s, which the root of the bundle names, would come below an entity of the root", uid),
				"define it in the root, which alone says what its own entities are below")
		}
		below = append(below, l.store.Children[uid]...)
	}
	if len(without) == 0 {
		return nil
	}
	return &Store{Entities: without, Root: l.store}
}

// refuseParent refuses a parent of a tenant's entity, and names the key that would let it.
func (l *entityLoader) refuseParent(uid, parent types.EntityUID, at entityPlace) {
	try := "a tenant's entities may only stand below the tenant's own; move the entity to the root if it belongs there"
	if typ, ok := l.bundle.Config.WireType(parent.Type); ok {
		name := strings.ReplaceAll(typ+"::"+Quote(string(parent.ID)), "'", "''")
		try += ", or let all tenants place theirs below that: tenants: {parents: ['" + name + "']} in " + source.ConfigFile
	}
	l.bad(at, "root_parent", fmt.Sprintf("%s takes %s as a parent, which the root of the bundle names", uid, parent), try)
}

// OpenPolicy is a policy of the root in which entities that tenants define take part, through a
// parent that bundle.yaml lets them have.
type OpenPolicy struct {
	PolicyInfo
	// Parents are these parents. There are none if no policy says which, as in principal in resource.owners.
	Parents []string `json:"parents"`
}

// OpenToTenants lists the policies of the root that tenants' own entities come under by
// tenants: {parents: […]}, by id.
func (b *Bundle) OpenToTenants() (all []OpenPolicy) {
	if list := &b.Config.TenantParents; len(list.Types)+len(list.UIDs) > 0 {
		for _, p := range b.Views[evaluation.DefaultTenant].Policies {
			groups, any := p.groups()
			open := OpenPolicy{PolicyInfo: p.Info(), Parents: []string{}}
			for _, uid := range groups {
				if list.Has(uid) {
					open.Parents = append(open.Parents, uid.String())
				}
			}
			slices.Sort(open.Parents)
			if open.Parents = slices.Compact(open.Parents); any || len(open.Parents) > 0 {
				all = append(all, open)
			}
		}
	}
	return all
}

// groups are the entities that the policy asks for with in. any is set if it asks for others too,
// which a request or the store names.
func (p *Policy) groups() (uids []types.EntityUID, any bool) {
	asks := func(t *ScopeTest) {
		if !t.Eq {
			uids = append(uids, t.Uids...)
		}
	}
	for n := range p.Facts.Scope {
		asks(&p.Facts.Scope[n])
	}
	var walk func(*Term)
	walk = func(t *Term) {
		switch last := len(t.Args) - 1; {
		case t.Op == OpTest:
			asks(&t.Test)
		case t.Op == OpIn && t.Args[last].Op == OpValue:
			uids = appendUIDs(uids, t.Args[last].Value)
		case t.Op == OpIn:
			any = true
		}
		for _, arg := range t.Args {
			walk(arg)
		}
	}
	for _, t := range p.Terms() {
		walk(t)
	}
	return uids, any
}
