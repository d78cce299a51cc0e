package pdp

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
	"policy-service/obligations"
)

// Bundle is everything that decides, loaded and checked as one, immutable.
type Bundle struct {
	digest string
	config config
	schema *schemaOf        // nil where there is none
	views  map[string]*view // by tenant, the default one included
	said   Problems         // warnings of bundle.yaml and the schema
	// wireTypes are names that requests can call types by, for who misspelt one
	wireTypes []string
}

// view is the bundle as one tenant sees it: the root and the tenant's own.
type view struct {
	tenant   string
	policies policyList // by id
	byID     map[string]*policy
	index    index
	store    *store
	actions  []string // the candidates of an action search, sorted

	obligations     map[string]definition // what policies can name
	obligationsSaid Problems              // warnings of their files

	own    *own     // what was made of the tenant's files by themselves; the root has none
	said   Problems // warnings of all its files
	review review
}

// policy is one loaded policy.
type policy struct {
	id           string
	cedarID      cedar.PolicyID
	cedar        *cedar.Policy
	tenant       string
	file         string
	line, column int
	position     string // file:line:column
	named        bool   // by @id, not by its place
	reasonUser   string
	obligation   *string // what the annotation says
	obliges      []*obligations.Definition
	facts        facts
}

func (p *policy) forbids() bool { return p.cedar.Effect() == cedar.Forbid }

// ofTenant reports whether a policy is not the root's.
func (p *policy) ofTenant() bool { return p.tenant != evaluation.DefaultTenant }

// Load reads and builds the bundle of a source. All problems are reported at
// once; the bundle is nil where any of them is an error.
func Load(source Source) (*Bundle, Problems) { return build(source.Read()) }

// build makes a bundle of one reading. Everything that can fail happens here,
// before anybody can ask the bundle anything.
func build(files *Files) (*Bundle, Problems) {
	return newLoading(context.Background(), files, inForce{}).build()
}

func (l *loading) build() (*Bundle, Problems) {
	problems := slices.Clone(l.files.problems)
	b := &Bundle{digest: l.files.Digest(), views: map[string]*view{}}
	l.bundle = b
	l.settings()
	if problems = append(problems, b.said...); problems.Refuse() { // the rest would repeat what is wrong already
		l.parseEverything(&problems)
		return nil, problems.sorted().cut()
	}

	root := l.view(evaluation.DefaultTenant, "", nil, &problems)
	b.views[root.tenant] = root
	for _, tenant := range l.files.tenants {
		if l.over() {
			return nil, nil
		}
		b.views[tenant] = l.view(tenant, "tenants/"+tenant+"/", root, &problems)
	}
	if !problems.Refuse() { // a policy that could not be read might be the permit that is missed
		b.refuseTrivial(&problems)
	}
	if problems.Refuse() {
		return nil, problems.sorted().cut()
	}
	for _, v := range l.fresh {
		if l.over() {
			return nil, nil
		}
		v.index = newIndex(v.policies)
		b.findActions(v)
	}
	b.findTypes()
	return b, problems.sorted()
}

// checkParentRules refuses a rule whose parents the schema would refuse in every
// request.
func (b *Bundle) checkParentRules(problems *Problems) {
	if b.schema == nil {
		return
	}
	for typ, rules := range b.config.parents {
		for _, rule := range rules {
			if !b.schema.mayBeBelow(typ, rule.parent) {
				problems.add(configFile, rule.line, rule.column, "parent_type", fmt.Sprintf("the schema does not let %s have parents of type %s", typ, rule.parent), "declare it: entity "+string(typ)+" in ["+string(rule.parent)+"]")
			}
		}
	}
}

// parseEverything adds the errors of the files by themselves, where what they would be
// checked against did not load. Those of an owner that the bundle in force was made of
// have none.
func (l *loading) parseEverything(problems *Problems) {
	var found Problems
	uses := map[string]*usage{}
	for _, name := range l.names {
		if l.over() || l.sameOwner(dirOf(name)) {
			continue
		}
		use := uses[ownerOfFile(name)]
		if use == nil {
			use = usageOf(ownerOfFile(name))
			uses[use.owner] = use
		}
		switch {
		case path.Ext(name) == ".cedar":
			l.policies(name, use, &found)
		case path.Base(path.Dir(name)) == "entities":
			l.entities(name, use, &found)
		case path.Base(name) == obligationsFile:
			l.obligations(name, builtinObligations(), &found)
		}
	}
	*problems = append(*problems, slices.DeleteFunc(found, func(p Problem) bool { return p.Severity != SeverityError })...)
}

func builtinObligations() map[string]definition {
	known := map[string]definition{}
	for _, d := range obligations.Builtin() {
		known[d.Name] = definition{Definition: d}
	}
	return known
}

// names are the loaded files in order of their paths.
func (f *Files) names() []string { return slices.Sorted(maps.Keys(f.content)) }

// schema is the first schema file, by name.
func (f *Files) schema() (first string, text []byte) {
	for name, content := range f.content {
		isSchema := !strings.Contains(name, "/") && (strings.HasSuffix(name, ".cedarschema") || strings.HasSuffix(name, ".cedarschema.json"))
		if isSchema && (first == "" || name < first) {
			first, text = name, content
		}
	}
	return first, text
}

// addPolicy puts a policy into a view. What other loads have of it is not written to.
func (v *view) addPolicy(p *policy, problems *Problems) {
	if other, ok := v.byID[p.id]; ok {
		problems.add(p.file, p.line, p.column, "duplicate_id", "the policy id "+quote(p.id)+" is taken by the policy at "+other.position, "give this policy an @id of its own")
		return
	}
	if p.obligation != nil {
		bound := *p
		p = &bound
		p.oblige(*p.obligation, v.obligations, problems)
	}
	v.byID[p.id] = p
	v.policies = append(v.policies, p)
}

// refuseTrivial refuses a bundle that answers every question alike by accident.
func (b *Bundle) refuseTrivial(problems *Problems) {
	if b.config.allowTrivial {
		return
	}
	permits := false
	for _, tenant := range slices.Sorted(maps.Keys(b.views)) {
		v := b.views[tenant]
		forbids := slices.ContainsFunc(v.policies, (*policy).forbids)
		for _, p := range v.policies {
			permits = permits || !p.forbids()
			if !forbids && !p.forbids() && len(p.facts.scope) == 0 && p.facts.conditions == 0 {
				problems.add(p.file, p.line, p.column, "trivial_permit", "policy "+quote(p.id)+" permits everything to everybody in tenant "+quote(tenant)+", and nothing forbids anything there", "give it a scope or a condition, or set allow_trivial: true in bundle.yaml")
			}
		}
	}
	if !permits {
		problems.add("", 0, 0, "no_permit", "no policy is a permit, so every answer would be a deny", "add one, or set allow_trivial: true in bundle.yaml")
	}
}

// Digest is the bundle's digest: the same on any machine for the same files.
func (b *Bundle) Digest() string { return b.digest }

// Volatile reports whether a member of the context may be otherwise when a question is
// put again, and the question is the same.
func (b *Bundle) Volatile(member string) bool { return slices.Contains(b.config.volatile, member) }

// HasTenant reports whether requests of that tenant can be answered.
func (b *Bundle) HasTenant(name string) bool { _, ok := b.views[name]; return ok }

// LongestApproval is how long the longest approval request can last that this bundle
// asks for: its timeout, and then its valid_for. It is 0 where nobody is asked.
func (b *Bundle) LongestApproval() (longest time.Duration) {
	for _, v := range b.views {
		for _, d := range v.obligations {
			if t, ok := obligations.TermsOf(evaluation.Obligation{Type: d.Type.Name, Properties: d.Properties}); ok {
				longest = max(longest, t.Timeout+t.ValidFor)
			}
		}
	}
	return longest
}

// PolicyInfo is what there is to say of a policy besides its text.
type PolicyInfo struct {
	ID, Effect, Position, Tenant string
}

// Policies lists every policy of the bundle once, by tenant and id.
func (b *Bundle) Policies() []PolicyInfo {
	var all []PolicyInfo
	for _, tenant := range slices.Sorted(maps.Keys(b.views)) {
		for _, p := range b.views[tenant].policies {
			if p.tenant == tenant {
				all = append(all, p.info())
			}
		}
	}
	return all
}

func (p *policy) info() PolicyInfo {
	return PolicyInfo{ID: p.id, Effect: p.effect(), Position: p.position, Tenant: p.tenant}
}

func (p *policy) effect() string {
	if p.forbids() {
		return "forbid"
	}
	return "permit"
}

// findActions lists the actions that schema, entities or policies name.
func (b *Bundle) findActions(v *view) {
	seen := map[string]struct{}{}
	for s := v.store; s != nil; s = s.root {
		for _, id := range s.ids[b.config.actionType] {
			seen[id] = struct{}{}
		}
	}
	for _, p := range v.policies {
		for _, uid := range p.facts.uids {
			if uid.Type == b.config.actionType {
				seen[string(uid.ID)] = struct{}{}
			}
		}
	}
	for id := range seen {
		v.actions = append(v.actions, id)
	}
	slices.Sort(v.actions)
}

// findTypes lists the types that requests can name and that bundle.yaml, the schema or the
// root's entities do, by their wire names.
func (b *Bundle) findTypes() {
	seen := map[string]struct{}{}
	for wire := range b.config.types {
		seen[wire] = struct{}{}
	}
	see := func(typ types.EntityType) {
		if wire, ok := b.config.wireType(typ); ok {
			seen[wire] = struct{}{}
		}
	}
	for typ := range b.config.known {
		see(typ)
	}
	for typ := range b.views[evaluation.DefaultTenant].store.ids {
		see(typ)
	}
	if b.schema != nil {
		for typ := range b.schema.entities {
			see(typ)
		}
	}
	b.wireTypes = slices.Sorted(maps.Keys(seen))
}
