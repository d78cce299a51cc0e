// Package bundle makes a [Bundle] from the files of a bundle: policies, schema, entities,
// obligations and settings, loaded and checked together. Begin at [Load].
//
// Package source reads the files. loading.go makes a bundle from them. It takes over the parts that have not changed since
// the bundle in force. The texts of authors are parsed in policies.go, schema.go, entities.go,
// obligations.go, config.go and mappings.go. accessfiles.go makes policies from tool access declarations. bounds.go and the files beside it refuse what would take too
// long. A [View] is the bundle as one tenant sees it, with a [Store] of entities and an
// [Index] of policies.
//
// Everything that can fail happens here, before the bundle answers its first request. The
// package evaluates no policy for a request: package engine does.
package bundle

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
	"policy-service/obligations"
	"policy-service/pdp/internal/document"
	"policy-service/pdp/internal/source"
)

// Bundle is everything that decides, loaded and checked together. It is immutable.
type Bundle struct {
	digest      string
	Config      Config
	Schema      *Schema          // nil: there is no schema
	Views       map[string]*View // by tenant, the default one included
	unavailable []string         // sorted
	// problems are the warnings of bundle.yaml and the schema
	problems Problems
	// TypeNames are the names of types in requests. They are suggested if a name is misspelt.
	TypeNames []string
	// Mappings are the types whose entities are rows of an application's database.
	Mappings map[types.EntityType]*Mapping
}

// The problems of a bundle are those of its documents.
type (
	Problem  = document.Problem
	Problems = document.Problems
	Severity = document.Severity
)

// The severities of a [Problem].
const (
	SeverityError   = document.SeverityError
	SeverityWarning = document.SeverityWarning
)

// View is the bundle as one tenant sees it: the root's part and the tenant's own.
type View struct {
	Tenant   string
	Policies PolicyList // by id
	ByID     map[string]*Policy
	Index    Index
	Store    *Store
	// Demanding is the store without the parents that count only where the root demands nothing: see
	// [Config.TenantApprovers]. It is nil if no entity has such a parent.
	Demanding *Store
	Actions   []string // the candidates of an action search, sorted
	// Seen is what the policies can see. Nothing else is converted for them. With a schema everything is converted, because
	// all of it has to fit.
	Seen *Sight
	// SeesWho is set if a policy can see context.pdp.subject or context.pdp.resource, and SeesAllPDP if one can see any
	// member that is not among the first four. Nothing else would miss them: see [FirstPDPMembers].
	SeesWho, SeesAllPDP bool
	// SeesCapability is set if a policy can see context.pdp.capability.
	SeesCapability bool

	Obligations        map[string]Definition // what policies can name
	obligationProblems Problems              // warnings of the files that define them
	// Declared are the tool access declarations in the files of this view alone, by owner.
	Declared []*Declared

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
	Position     string    // file:line:column
	Named        bool      // the policy has an @id; otherwise its id is its place
	Access       string    // the owner whose access declaration it is made from; "" if it is written by hand
	Until        time.Time // when the rule expires that it is made from, zero for never
	ReasonUser   string
	Obligation   *string // the text of the annotation @obligation
	Obliges      []*obligations.Definition
	Facts        Facts
	terms        *lazyTerms
}

// Forbids reports if the policy is a forbid.
func (p *Policy) Forbids() bool { return p.Cedar.Effect() == cedar.Forbid }

// OfTenant reports if a policy belongs to a tenant, not to the root.
func (p *Policy) OfTenant() bool { return p.Tenant != evaluation.DefaultTenant }

// Load reads and builds the bundle of a source. It reports all problems at once. If any of
// them is an error, the bundle is nil.
func Load(from source.Source) (*Bundle, Problems) { return Build(from.Read()) }

// Build makes a bundle from one reading. Everything that can fail happens here, before the
// bundle can be asked anything.
func Build(files *source.Files) (*Bundle, Problems) {
	made, problems := NewLoading(context.Background(), files, InForce{}).Build()
	return made.Bundle, problems
}

// Build makes the bundle, and returns it with the files that it was made from. If any problem is an error, or the context
// of the load ended, the bundle is nil; where tenants are kept apart, only if the error is not of a tenant.
func (l *Loading) Build() (InForce, Problems) {
	b := &Bundle{Views: map[string]*View{}}
	l.bundle = b
	l.settings()
	if found := append(slices.Clone(l.files.Problems), b.problems...); l.refuse(found) {
		// The rest would repeat what is wrong already.
		l.parseEverything(&found)
		return InForce{}, cut(found.Sorted())
	}
	l.mappings()
	root := l.view(evaluation.DefaultTenant, "", nil)
	b.Views[root.Tenant] = root
	var refused Problems
	problems := l.tenants(root)
	for !l.cancelled() && problems.Refuse() && !l.refuse(problems) {
		refused = append(refused, l.setAside(problems)...)
		problems = l.tenants(root)
	}
	switch {
	case l.cancelled():
		return InForce{}, nil
	case problems.Refuse():
		return InForce{}, cut(append(problems, refused...).Sorted())
	}
	b.digest, b.unavailable = l.files.Digest(), l.files.Unavailable
	for _, tenant := range slices.Concat([]string{root.Tenant}, l.files.Tenants) {
		v := b.Views[tenant]
		if before := l.before.Bundle; before != nil && before.Views[tenant] == v {
			continue
		}
		if l.cancelled() {
			return InForce{}, nil
		}
		v.Index = NewIndex(v.Policies)
		b.findActions(v)
		if v == root {
			v.findSeen(nil)
		} else {
			v.findSeen(root)
		}
	}
	b.findTypes()
	return InForce{b, l.files}, cut(append(problems, refused...).Sorted())
}

// tenants makes the views that are missing, and returns all problems.
func (l *Loading) tenants(root *View) Problems {
	b := l.bundle
	problems := slices.Concat(l.files.Problems, b.problems, root.problems)
	for _, tenant := range l.files.Tenants {
		if l.cancelled() {
			return nil
		}
		if b.Views[tenant] == nil {
			b.Views[tenant] = l.view(tenant, "tenants/"+tenant+"/", root)
		}
		problems = append(problems, b.Views[tenant].problems...)
	}
	// Only if all policies were read: one that was not may be the permit that seems to be missing.
	if !problems.Refuse() {
		b.refuseTrivial(len(l.files.Unavailable) == 0, &problems)
	}
	return problems
}

// refuse reports if problems refuse the whole load.
func (l *Loading) refuse(problems Problems) bool {
	return slices.ContainsFunc(problems, func(p Problem) bool {
		return p.Severity == SeverityError && (!l.Apart || l.files.Manifest || l.files.Owner(p.File) == "")
	})
}

// setAside has the tenants with an error go on with their files that are in force. If these have an error, or there are none, it makes
// them unavailable. It returns the errors of the tenants that were not set aside before.
func (l *Loading) setAside(problems Problems) (refused Problems) {
	var back, out []string
	seen := map[string]bool{}
	for _, p := range problems.Only(SeverityError) {
		tenant := l.files.Owner(p.File)
		if !l.aside[tenant] {
			refused = append(refused, p)
		}
		if seen[tenant] {
			continue
		}
		seen[tenant] = true
		if l.before.Bundle != nil && !l.aside[tenant] && l.before.Bundle.Views[tenant] != nil {
			back = append(back, tenant)
		} else {
			out = append(out, tenant)
		}
		delete(l.bundle.Views, tenant)
	}
	maps.Copy(l.aside, seen)
	l.take(l.files.Holding(back, l.before.Files).Without(out))
	return refused
}

// MostErrors is how many errors of one owner are reported. One small file can hold tens of
// thousands of errors, and each is a line of the log.
const MostErrors = 100

// cut keeps the first errors of each owner, and one more that says that there are more.
func cut(ps Problems) Problems {
	errors := map[string]int{}
	var kept Problems
	for _, p := range ps {
		owner := source.OwnerOf(p.File)
		if p.Severity == SeverityError {
			if errors[owner]++; errors[owner] > MostErrors+1 {
				continue
			}
			if errors[owner] > MostErrors {
				p.Code = "many_errors"
				p.Message = fmt.Sprintf("%s has more errors than the %d that are told, from here on",
					source.OwnerName(owner), MostErrors)
				p.Try = "mend those, then try again"
			}
		}
		kept = append(kept, p)
	}
	return kept
}

// checkParentRules refuses a rule of bundle.yaml if the schema would refuse its parents in
// every request.
func (b *Bundle) checkParentRules(problems *Problems) {
	if b.Schema == nil {
		return
	}
	for typ, rules := range b.Config.Parents {
		for _, rule := range rules {
			if !slices.Contains(b.Schema.entities[typ].parents, rule.Parent) {
				near := b.likeParent(typ, rule.Parent)
				wire, _ := b.Config.WireType(types.EntityType(near))
				was, _ := b.Config.WireType(rule.Parent)
				problems.Add(source.ConfigFile, rule.line, rule.column, "parent_type",
					fmt.Sprintf("the schema does not let %s have parents of type %s%s", typ, rule.Parent, near),
					"declare it: entity "+string(typ)+" in ["+string(rule.Parent)+"]", document.Near(wire).For(was))
			}
		}
	}
}

// likeParent suggests what may be wrong with a rule about parents: the type of the children, or that of the parents.
func (b *Bundle) likeParent(typ, parent types.EntityType) document.Near {
	if !b.Schema.Declares(typ) {
		return b.Schema.LikeType(typ)
	}
	return DidYouMean(string(parent), slices.Values(textsOf(b.Schema.entities[typ].parents)))
}

// parseEverything adds the errors that the files have by themselves, if bundle.yaml or the
// schema, which they would be checked against, did not load. It skips an owner whose files are
// those of the bundle in force, because these have no errors.
func (l *Loading) parseEverything(problems *Problems) {
	var found Problems
	uses := map[string]*Usage{}
	for _, name := range l.names {
		if l.cancelled() || l.sameOwner(source.DirOf(name)) {
			continue
		}
		use := uses[source.OwnerOf(name)]
		if use == nil {
			use = UsageOf(source.OwnerOf(name))
			uses[use.Owner] = use
		}
		switch {
		case path.Ext(name) == ".cedar":
			l.policies(name, use, &found)
		case path.Base(path.Dir(name)) == "entities":
			l.entities(name, use, &found)
		case source.IsAccess(name):
			l.declaration(name, use, &found)
		case path.Base(name) == source.ObligationsFile:
			l.obligations(name, builtinObligations(), &found)
		case name == source.FiltersFile:
			document.Read(name, l.files.Content[name], &found)
		}
	}
	*problems = append(*problems, found.Only(SeverityError)...)
}

// builtinObligations are the obligations that every bundle has.
func builtinObligations() map[string]Definition {
	known := map[string]Definition{}
	for _, d := range obligations.Builtin() {
		known[d.Name] = Definition{Definition: d}
	}
	return known
}

// schemaOf are the files of the schema. There are none if the bundle has no schema.
func schemaOf(of *source.Files) (files []SchemaFile) {
	for name, content := range of.Content {
		if source.IsSchema(name) {
			files = append(files, SchemaFile{Name: name, Text: content})
		}
	}
	return files
}

// addPolicy puts a policy into a view. It does not write to the policy itself, which other
// loads may share. The text is that of the policy's file, if it has one.
func (v *View) addPolicy(p *Policy, text []byte, problems *Problems) {
	if other, ok := v.ByID[p.Id]; ok {
		problems.Add(p.File, p.Line, p.Column, "duplicate_id",
			"the policy id "+Quote(p.Id)+" is taken by the policy at "+other.Position,
			"give this policy an @id of its own")
		return
	}
	if p.Obligation != nil {
		bound := *p
		p = &bound
		p.resolveObligations(*p.Obligation, text, v.Obligations, problems)
	}
	v.ByID[p.Id] = p
	v.Policies = append(v.Policies, p)
}

// refuseTrivial refuses a bundle that would, by accident, give every request the same answer. If it is not whole, a permit may be
// missing.
func (b *Bundle) refuseTrivial(whole bool, problems *Problems) {
	if b.Config.AllowTrivial {
		return
	}
	permits := false
	for _, tenant := range slices.Sorted(maps.Keys(b.Views)) {
		v := b.Views[tenant]
		forbids := slices.ContainsFunc(v.Policies, (*Policy).Forbids)
		for _, p := range v.Policies {
			permits = permits || !p.Forbids()
			if !forbids && !p.Forbids() && len(p.Facts.Scope) == 0 && p.Facts.conditions == 0 {
				problems.Add(p.File, p.Line, p.Column, "trivial_permit",
					"policy "+Quote(p.Id)+" permits everything to everybody in tenant "+Quote(tenant)+", and nothing forbids anything there",
					"give it a scope or a condition, or set allow_trivial: true in bundle.yaml")
			}
		}
	}
	if !permits && whole {
		problems.Add("", 0, 0, "no_permit", "no policy is a permit, so every answer would be a deny",
			"add one, or set allow_trivial: true in bundle.yaml")
	}
}

// Digest is the bundle's digest: the same on any machine for the same files.
func (b *Bundle) Digest() string { return b.digest }

// Volatile reports if a member of the context may change when a request is repeated, while the
// request still counts as the same.
func (b *Bundle) Volatile(member string) bool { return slices.Contains(b.Config.volatile, member) }

// HasTenant reports if there is a tenant, even an unavailable one.
func (b *Bundle) HasTenant(name string) bool { return b.Views[name] != nil || b.IsUnavailable(name) }

// IsUnavailable reports if a tenant is there and its files do not load, so that nothing can be decided about it.
func (b *Bundle) IsUnavailable(name string) bool {
	_, is := slices.BinarySearch(b.unavailable, name)
	return is
}

// Unavailable are the tenants that are there and whose files do not load, sorted.
func (b *Bundle) Unavailable() []string { return slices.Clone(b.unavailable) }

// Tenants are the names of the tenants whose requests the bundle can answer, sorted.
func (b *Bundle) Tenants() []string { return slices.Sorted(maps.Keys(b.Views)) }

// LongestApproval is how long the longest approval request that this bundle asks for can last:
// its timeout, then its valid_for, and then its rounds_within if it has rounds. It is 0 if the bundle asks for no approval.
func (b *Bundle) LongestApproval() (longest time.Duration) {
	for _, v := range b.Views {
		for _, d := range v.Obligations {
			if t, ok := obligations.TermsOf(evaluation.Obligation{Type: d.Type.Name, Properties: d.Properties}); ok {
				longest = max(longest, t.Timeout+t.ValidFor+t.RoundsWithin)
			}
		}
	}
	return longest
}

// PolicyInfo describes a policy without its text.
type PolicyInfo struct {
	ID       string `json:"id"`
	Effect   string `json:"effect"`
	Position string `json:"position"`
	Tenant   string `json:"tenant"`
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

// Info describes the policy.
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

// findActions lists the actions that the schema, the entities or the policies name.
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
	v.Actions = slices.Sorted(maps.Keys(seen))
}

// findTypes lists, by their wire names, the types that requests can name and that bundle.yaml,
// the schema or the root's entities name.
func (b *Bundle) findTypes() {
	named := slices.Collect(maps.Keys(b.Config.Known))
	named = slices.AppendSeq(named, maps.Keys(b.Views[evaluation.DefaultTenant].Store.Ids))
	if b.Schema != nil {
		named = slices.AppendSeq(named, maps.Keys(b.Schema.entities))
	}
	b.TypeNames = slices.Collect(maps.Keys(b.Config.Types))
	for _, typ := range named {
		if wire, ok := b.Config.WireType(typ); ok {
			b.TypeNames = append(b.TypeNames, wire)
		}
	}
	slices.Sort(b.TypeNames)
	b.TypeNames = slices.Compact(b.TypeNames)
}
