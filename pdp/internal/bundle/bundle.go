// Package bundle makes a [Bundle] of the files of a bundle: policies, schema, entities,
// obligations and settings, loaded and checked as one. [Load] is the way in.
//
// source.go and confined.go read the files, layout.go says which there are, and loading.go
// makes a bundle of them, of which it takes over what did not change since the bundle before.
// What authors write is parsed in policies.go, schema.go, entities.go, obligations.go and
// config.go; bounds.go and the files beside it refuse what would take too long. A [View] is
// the bundle as one tenant sees it, with a [Store] of entities and an [Index] of policies.
//
// Everything that can fail happens here, before the bundle answers anybody. The package puts
// no question to the policies: that is package engine's.
package bundle

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
	Config Config
	Schema *Schema          // nil: there is no schema
	Views  map[string]*View // by tenant, the default one included
	// problems are the warnings of bundle.yaml and the schema
	problems Problems
	// TypeNames are the names of types in requests. They are suggested if a name is misspelt.
	TypeNames []string
}

// View is the bundle as one tenant sees it: the root and the tenant's own.
type View struct {
	Tenant   string
	Policies PolicyList // by id
	ByID     map[string]*Policy
	Index    Index
	Store    *Store
	Actions  []string // the candidates of an action search, sorted

	Obligations        map[string]Definition // what policies can name
	obligationProblems Problems              // warnings of the files that define them

	own      *own     // what was made of the tenant's files by themselves; the root has none
	problems Problems // warnings of all files of the view
	Review   Review
}

// Policy is one loaded policy.
type Policy struct {
	Id           string
	CedarID      cedar.PolicyID
	Cedar        *cedar.Policy
	Tenant       string
	File         string
	Line, Column int
	Position     string // file:line:column
	Named        bool   // by @id, not by its place
	ReasonUser   string
	Obligation   *string // what the annotation says
	Obliges      []*obligations.Definition
	Facts        Facts
}

// Forbids reports whether the policy is a forbid.
func (p *Policy) Forbids() bool { return p.Cedar.Effect() == cedar.Forbid }

// OfTenant reports whether a policy is not the root's.
func (p *Policy) OfTenant() bool { return p.Tenant != evaluation.DefaultTenant }

// Load reads and builds the bundle of a source. All problems are reported at
// once; the bundle is nil where any of them is an error.
func Load(source Source) (*Bundle, Problems) { return Build(source.Read()) }

// Build makes a bundle of one reading. Everything that can fail happens here,
// before anybody can ask the bundle anything.
func Build(files *Files) (*Bundle, Problems) {
	return NewLoading(context.Background(), files, InForce{}).Build()
}

func (l *Loading) Build() (*Bundle, Problems) {
	problems := slices.Clone(l.files.Problems)
	b := &Bundle{digest: l.files.Digest(), Views: map[string]*View{}}
	l.bundle = b
	l.settings()
	if problems = append(problems, b.problems...); problems.Refuse() { // the rest would repeat what is wrong already
		l.parseEverything(&problems)
		return nil, problems.Sorted().cut()
	}

	root := l.view(evaluation.DefaultTenant, "", nil, &problems)
	b.Views[root.Tenant] = root
	for _, tenant := range l.files.Tenants {
		if l.cancelled() {
			return nil, nil
		}
		b.Views[tenant] = l.view(tenant, "tenants/"+tenant+"/", root, &problems)
	}
	if !problems.Refuse() { // a policy that could not be read might be the permit that is missed
		b.refuseTrivial(&problems)
	}
	if problems.Refuse() {
		return nil, problems.Sorted().cut()
	}
	for _, v := range l.Fresh {
		if l.cancelled() {
			return nil, nil
		}
		v.Index = NewIndex(v.Policies)
		b.findActions(v)
	}
	b.findTypes()
	return b, problems.Sorted()
}

// checkParentRules refuses a rule whose parents the schema would refuse in every
// request.
func (b *Bundle) checkParentRules(problems *Problems) {
	if b.Schema == nil {
		return
	}
	for typ, rules := range b.Config.Parents {
		for _, rule := range rules {
			if !b.Schema.mayBeBelow(typ, rule.Parent) {
				problems.Add(ConfigFile, rule.line, rule.column, "parent_type", fmt.Sprintf("the schema does not let %s have parents of type %s", typ, rule.Parent), "declare it: entity "+string(typ)+" in ["+string(rule.Parent)+"]")
			}
		}
	}
}

// parseEverything adds the errors of the files by themselves, where what they would be
// checked against did not load. Those of an owner that the bundle in force was made of
// have none.
func (l *Loading) parseEverything(problems *Problems) {
	var found Problems
	uses := map[string]*Usage{}
	for _, name := range l.names {
		if l.cancelled() || l.sameOwner(dirOf(name)) {
			continue
		}
		use := uses[ownerOfFile(name)]
		if use == nil {
			use = UsageOf(ownerOfFile(name))
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

func builtinObligations() map[string]Definition {
	known := map[string]Definition{}
	for _, d := range obligations.Builtin() {
		known[d.Name] = Definition{Definition: d}
	}
	return known
}

// names are the loaded files in order of their paths.
func (f *Files) names() []string { return slices.Sorted(maps.Keys(f.Content)) }

// schema is the first schema file, by name.
func (f *Files) schema() (first string, text []byte) {
	for name, content := range f.Content {
		isSchema := !strings.Contains(name, "/") && (strings.HasSuffix(name, ".cedarschema") || strings.HasSuffix(name, ".cedarschema.json"))
		if isSchema && (first == "" || name < first) {
			first, text = name, content
		}
	}
	return first, text
}

// addPolicy puts a policy into a view. What other loads have of it is not written to.
func (v *View) addPolicy(p *Policy, problems *Problems) {
	if other, ok := v.ByID[p.Id]; ok {
		problems.Add(p.File, p.Line, p.Column, "duplicate_id", "the policy id "+Quote(p.Id)+" is taken by the policy at "+other.Position, "give this policy an @id of its own")
		return
	}
	if p.Obligation != nil {
		bound := *p
		p = &bound
		p.resolveObligations(*p.Obligation, v.Obligations, problems)
	}
	v.ByID[p.Id] = p
	v.Policies = append(v.Policies, p)
}

// refuseTrivial refuses a bundle that answers every question alike by accident.
func (b *Bundle) refuseTrivial(problems *Problems) {
	if b.Config.allowTrivial {
		return
	}
	permits := false
	for _, tenant := range slices.Sorted(maps.Keys(b.Views)) {
		v := b.Views[tenant]
		forbids := slices.ContainsFunc(v.Policies, (*Policy).Forbids)
		for _, p := range v.Policies {
			permits = permits || !p.Forbids()
			if !forbids && !p.Forbids() && len(p.Facts.Scope) == 0 && p.Facts.conditions == 0 {
				problems.Add(p.File, p.Line, p.Column, "trivial_permit", "policy "+Quote(p.Id)+" permits everything to everybody in tenant "+Quote(tenant)+", and nothing forbids anything there", "give it a scope or a condition, or set allow_trivial: true in bundle.yaml")
			}
		}
	}
	if !permits {
		problems.Add("", 0, 0, "no_permit", "no policy is a permit, so every answer would be a deny", "add one, or set allow_trivial: true in bundle.yaml")
	}
}

// Digest is the bundle's digest: the same on any machine for the same files.
func (b *Bundle) Digest() string { return b.digest }

// Volatile reports whether a member of the context may be otherwise when a question is
// put again, and the question is the same.
func (b *Bundle) Volatile(member string) bool { return slices.Contains(b.Config.volatile, member) }

// HasTenant reports whether requests of that tenant can be answered.
func (b *Bundle) HasTenant(name string) bool { _, ok := b.Views[name]; return ok }

// LongestApproval is how long the longest approval request can last that this bundle
// asks for: its timeout, and then its valid_for. It is 0 where nobody is asked.
func (b *Bundle) LongestApproval() (longest time.Duration) {
	for _, v := range b.Views {
		for _, d := range v.Obligations {
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
	for _, tenant := range slices.Sorted(maps.Keys(b.Views)) {
		for _, p := range b.Views[tenant].Policies {
			if p.Tenant == tenant {
				all = append(all, p.Info())
			}
		}
	}
	return all
}

// Info is what there is to say about the policy.
func (p *Policy) Info() PolicyInfo {
	return PolicyInfo{ID: p.Id, Effect: p.Effect(), Position: p.Position, Tenant: p.Tenant}
}

// Effect is permit or forbid.
func (p *Policy) Effect() string {
	if p.Forbids() {
		return "forbid"
	}
	return "permit"
}

// findActions lists the actions that schema, entities or policies name.
func (b *Bundle) findActions(v *View) {
	seen := map[string]struct{}{}
	for s := v.Store; s != nil; s = s.Root {
		for _, id := range s.Ids[b.Config.ActionType] {
			seen[id] = struct{}{}
		}
	}
	for _, p := range v.Policies {
		for _, uid := range p.Facts.Uids {
			if uid.Type == b.Config.ActionType {
				seen[string(uid.ID)] = struct{}{}
			}
		}
	}
	for id := range seen {
		v.Actions = append(v.Actions, id)
	}
	slices.Sort(v.Actions)
}

// findTypes lists the types that requests can name and that bundle.yaml, the schema or the
// root's entities do, by their wire names.
func (b *Bundle) findTypes() {
	seen := map[string]struct{}{}
	for wire := range b.Config.Types {
		seen[wire] = struct{}{}
	}
	see := func(typ types.EntityType) {
		if wire, ok := b.Config.WireType(typ); ok {
			seen[wire] = struct{}{}
		}
	}
	for typ := range b.Config.Known {
		see(typ)
	}
	for typ := range b.Views[evaluation.DefaultTenant].Store.Ids {
		see(typ)
	}
	if b.Schema != nil {
		for typ := range b.Schema.Entities {
			see(typ)
		}
	}
	b.TypeNames = slices.Sorted(maps.Keys(seen))
}
