package pdp

import (
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

	obligations map[string]definition // what policies can name
	review      review
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
	problems := slices.Clone(files.problems)
	b := &Bundle{digest: files.Digest(), views: map[string]*view{}}
	b.config = parseConfig(files.content[configFile], &problems)
	if name, text := files.schema(); name != "" {
		var found Problems
		b.schema = parseSchema(name, text, &b.config, &found)
		problems = append(problems, found...)
	}
	b.checkParentRules(&problems)
	if problems.Refuse() { // the rest would repeat what is wrong already
		parseEverything(files, &problems)
		return nil, problems.sorted()
	}

	root := b.loadView(evaluation.DefaultTenant, "", files, nil, &problems)
	b.views[root.tenant] = root
	for _, tenant := range files.tenants {
		b.views[tenant] = b.loadView(tenant, "tenants/"+tenant+"/", files, root, &problems)
	}
	if !problems.Refuse() { // a policy that could not be read might be the permit that is missed
		b.refuseTrivial(&problems)
	}
	if problems.Refuse() {
		return nil, problems.sorted()
	}
	for _, v := range b.views {
		v.index = newIndex(v.policies)
	}
	for _, v := range b.views {
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

// parseEverything adds what is wrong with the files by themselves, where what
// they would be checked against did not load.
func parseEverything(files *Files, problems *Problems) {
	uses := map[string]*usage{}
	for _, name := range files.names() {
		owner := ownerOfFile(name)
		use := uses[owner]
		if use == nil {
			use = usageOf(owner)
			uses[owner] = use
		}
		switch {
		case path.Ext(name) == ".cedar":
			parsePolicies(name, use, files.content[name], problems)
		case path.Base(path.Dir(name)) == "entities":
			parseEntities(name, files.content[name], use, problems)
		case path.Base(name) == "obligations.yaml":
			parseObligations(name, files.content[name], builtinObligations(), problems)
		}
	}
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

func (f *Files) schema() (string, []byte) {
	for _, name := range f.names() {
		if !strings.Contains(name, "/") && (strings.HasSuffix(name, ".cedarschema") || strings.HasSuffix(name, ".cedarschema.json")) {
			return name, f.content[name]
		}
	}
	return "", nil
}

// in yields the files of a directory whose names end in ext.
func (f *Files) in(dir, ext string) []string {
	return slices.DeleteFunc(f.names(), func(name string) bool {
		rest, ok := strings.CutPrefix(name, dir)
		return !ok || strings.Contains(rest, "/") || path.Ext(rest) != ext
	})
}

// loadView loads the files below dir on top of what the root view has.
func (b *Bundle) loadView(tenant, dir string, files *Files, root *view, problems *Problems) *view {
	v := &view{tenant: tenant, byID: map[string]*policy{}, store: &store{
		entities: map[types.EntityUID]types.Entity{},
		written:  map[types.EntityUID]types.EntityUIDSet{},
	}}
	if root != nil {
		v.store.root = root.store
		v.policies = slices.Clone(root.policies)
		maps.Copy(v.byID, root.byID)
	} else if b.schema != nil {
		for uid, a := range b.schema.actions {
			v.store.entities[uid] = a.entity
		}
	}
	use := usageOf(tenant)
	v.obligations = builtinObligations()
	if root != nil {
		v.obligations = root.obligations
	}
	if text, ok := files.content[dir+"obligations.yaml"]; ok {
		v.obligations = parseObligations(dir+"obligations.yaml", text, v.obligations, problems)
	}
	var own []*policy
	for _, name := range files.in(dir, ".cedar") {
		own = append(own, parsePolicies(name, use, files.content[name], problems)...)
	}
	for _, p := range own {
		b.addPolicy(v, p, problems)
	}
	if b.schema != nil && b.schema.mayCheck(own, use, problems) {
		for _, p := range own {
			b.schema.checkPolicy(p, problems)
		}
	}
	slices.SortFunc(v.policies, func(a, b *policy) int { return strings.Compare(a.id, b.id) })
	loaded := &entityLoader{bundle: b, view: v, use: use, problems: problems}
	for _, name := range files.in(dir+"entities/", ".json") {
		loaded.load(name, files.content[name])
	}
	if root != nil {
		loaded.refuseRootParents(root)
	}
	loaded.checkGraphs()
	return v
}

func (b *Bundle) addPolicy(v *view, p *policy, problems *Problems) {
	if other, ok := v.byID[p.id]; ok {
		problems.add(p.file, p.line, p.column, "duplicate_id", "the policy id "+quote(p.id)+" is taken by the policy at "+other.position, "give this policy an @id of its own")
		return
	}
	v.byID[p.id] = p
	v.policies = append(v.policies, p)
	if p.obligation != nil {
		p.oblige(*p.obligation, v.obligations, problems)
	}
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

// LongestApproval is how long the longest request for approval can last that this bundle
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
