package bundle

import (
	"bytes"
	"context"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/evaluation"
	"policy-service/pdp/internal/source"
)

// Loading is one load on its way to a bundle. If files have not changed since the bundle in
// force, it takes over what that bundle made from them. So a change of the root does not
// wait for tenants whose files are unchanged. It takes over:
//
//   - bundle.yaml and the schema, if both are the same, byte for byte. If one of them
//     differs, the load takes over nothing.
//   - the mappings, if filters.yaml is the same too, and the bundle had tenants before if it has any.
//   - the view of the root, if the root's files are the same.
//   - the view of a tenant, if its files and the root's are the same.
//   - what is made from a tenant's files by themselves, if only these files are the same: the
//     policies, parsed or made from access declarations and checked against the schema, and the
//     entities. How they relate to the root's files is checked again.
//   - the obligations, if the files that define them and the root's are the same. Access
//     declarations are such files.
//
// A load never takes over only a part of what belongs to one owner. It takes over nothing from
// a load that failed. It does not write to what it takes over, because the bundle in force
// answers requests with it.
type Loading struct {
	// Apart has a tenant's error harm that tenant alone. Its files that are in force stay so; where these do
	// not load either, or there are none, the tenant is unavailable. With a MANIFEST the whole bundle is refused.
	Apart bool
	aside map[string]bool // the tenants whose files were set aside

	ctx    context.Context // if it ends, the load ends too and makes no bundle
	files  *source.Files
	before InForce // without a bundle in it, there is nothing to take over
	bundle *Bundle
	Did    Work

	names   []string            // the names of all files, sorted
	inDir   map[string][]string // names by directory, which ends in a slash; the root is ""
	changed map[string]bool     // the directories of owners with a file that changed
	// redeclared are the directories of owners with an access declaration that changed.
	redeclared map[string]bool
	// sameSettings is set if bundle.yaml and the schema have not changed.
	sameSettings bool

	byRoot map[types.EntityUID]struct{} // the entities that the root names
}

// InForce is a bundle that answers requests, with the files that it was made from.
type InForce struct {
	Bundle *Bundle
	Files  *source.Files
}

// NewLoading prepares to make a bundle from files. It may take over parts of the bundle in
// force.
func NewLoading(ctx context.Context, files *source.Files, before InForce) *Loading {
	l := &Loading{ctx: ctx, before: before, aside: map[string]bool{}}
	l.take(files)
	return l
}

// take has these be the files of the load.
func (l *Loading) take(files *source.Files) {
	l.files, l.names = files, files.Names()
	l.inDir, l.changed, l.redeclared = map[string][]string{}, map[string]bool{}, map[string]bool{}
	for _, name := range l.names {
		dir, _ := path.Split(name)
		l.inDir[dir] = append(l.inDir[dir], name)
	}
	if l.before.Bundle == nil {
		return
	}
	for _, files := range []*source.Files{files, l.before.Files} {
		for name := range files.Content {
			if !l.same(name) && name != source.FiltersFile { // of which no view has anything
				l.changed[source.DirOf(name)] = true
				if source.IsAccess(name) {
					l.redeclared[source.DirOf(name)] = true
				}
			}
		}
	}
	l.sameSettings = l.same(source.ConfigFile)
	for _, f := range append(schemaOf(files), schemaOf(l.before.Files)...) {
		l.sameSettings = l.sameSettings && l.same(f.Name)
	}
}

// filesIn are the files of a directory whose names end in ext, sorted.
func (l *Loading) filesIn(dir, ext string) (names []string) {
	for _, name := range l.inDir[dir] {
		if path.Ext(name) == ext {
			names = append(names, name)
		}
	}
	return names
}

// Work counts what a load read anew.
type Work struct{ Settings, Mappings, Views, PolicyFiles, EntityFiles, ObligationFiles, AccessFiles int }

// own is what is made from a tenant's files by themselves.
type own struct {
	policies       []*Policy // not bound to obligations yet
	declared       []*Declared
	policyProblems Problems
	store          *Store // it has no store below it
	places         map[types.EntityUID]entityPlace
	order          []types.EntityUID // the entities in the order of their files
	entityProblems Problems
}

// cancelled reports if the bundle is not wanted any more.
func (l *Loading) cancelled() bool { return l.ctx.Err() != nil }

// settings reads bundle.yaml and the schema.
func (l *Loading) settings() {
	b, before := l.bundle, l.before.Bundle
	if l.sameSettings {
		b.Config, b.Schema, b.problems = before.Config, before.Schema, slices.Clip(before.problems)
		return
	}
	l.Did.Settings++
	b.Config = parseConfig(l.files.Content[source.ConfigFile], &b.problems)
	if files := schemaOf(l.files); len(files) > 0 {
		var found Problems
		b.Schema = ParseSchema(files, &b.Config, &found)
		b.problems = append(b.problems, found...)
	}
	b.checkParentRules(&b.problems)
}

// mappings reads filters.yaml.
func (l *Loading) mappings() {
	if l.sameSettings && l.same(source.FiltersFile) && (len(l.files.Tenants) > 0) == (len(l.before.Files.Tenants) > 0) {
		l.bundle.Mappings = l.before.Bundle.Mappings
		return
	}
	if text, ok := l.files.Content[source.FiltersFile]; ok {
		l.Did.Mappings++
		l.bundle.Mappings = l.bundle.readMappings(text, len(l.files.Tenants) > 0)
	}
}

// same reports if a file has not changed. A file that existed in neither reading has not.
func (l *Loading) same(name string) bool {
	now, is := l.files.Content[name]
	then, was := l.before.Files.Content[name]
	return is == was && bytes.Equal(now, then)
}

// sameOwner reports if no file of an owner has changed. The owner is given by its directory.
func (l *Loading) sameOwner(dir string) bool { return l.before.Bundle != nil && !l.changed[dir] }

func (l *Loading) policies(name string, use *Usage, problems *Problems) []*Policy {
	l.Did.PolicyFiles++
	return ParsePolicies(name, use, l.files.Content[name], problems)
}

func (l *Loading) entities(name string, use *Usage, problems *Problems) []ParsedEntity {
	l.Did.EntityFiles++
	return ParseEntities(name, l.files.Content[name], use, problems)
}

func (l *Loading) obligations(name string, above map[string]Definition, problems *Problems) map[string]Definition {
	l.Did.ObligationFiles++
	return parseObligations(name, l.files.Content[name], above, l.bundle.Config.October, problems)
}

// view makes the view of one tenant from the files below dir and the view of the root.
func (l *Loading) view(tenant, dir string, root *View) *View {
	var before, rootBefore *View
	if l.sameSettings && l.sameOwner(dir) {
		before, rootBefore = l.before.Bundle.Views[tenant], l.before.Bundle.Views[evaluation.DefaultTenant]
	}
	if before != nil && (root == nil || root == rootBefore) {
		return before
	}
	return l.newView(tenant, dir, root, before)
}

// newView makes a view that cannot be taken over as a whole.
func (l *Loading) newView(tenant, dir string, root, before *View) *View {
	l.Did.Views++
	v := &View{Tenant: tenant, ByID: map[string]*Policy{}}
	if root != nil {
		v.Policies = slices.Clone(root.Policies)
		maps.Copy(v.ByID, root.ByID)
	}
	var o *own
	if before != nil && before.own.fits(root) {
		o = before.own
	} else {
		o = l.parseOwn(tenant, dir, root)
	}
	v.Declared = o.declared
	l.define(v, dir, root)
	v.problems = append(v.problems, v.obligationProblems...)
	v.refuseReserved(o, root)
	v.problems = append(v.problems, o.policyProblems...)
	for _, p := range o.policies {
		v.addPolicy(p, l.files.Content[p.File], &v.problems)
	}
	slices.SortFunc(v.Policies, func(a, b *Policy) int { return strings.Compare(a.Id, b.Id) })
	v.problems = append(v.problems, o.entityProblems...)
	v.Store = o.store
	loaded := &entityLoader{
		ctx:      l.ctx,
		own:      o,
		bundle:   l.bundle,
		store:    o.store,
		use:      UsageOf(tenant),
		problems: &v.problems,
	}
	if root != nil {
		v.own, v.Store = o, o.store.above(root.Store)
		loaded.store = v.Store
		v.Demanding = loaded.placeBelowRoot(l.namedBy(root))
	} else {
		loaded.checkTenantParents(v)
	}
	return v
}

// define gives a view the obligations that its policies can name.
func (l *Loading) define(v *View, dir string, root *View) {
	file := dir + source.ObligationsFile
	same := func(file, dir string) bool { return l.same(file) && !l.redeclared[dir] }
	if l.before.Bundle != nil && same(file, dir) && same(source.ObligationsFile, "") {
		sameDraft := l.before.Bundle.Draft() == l.bundle.Draft()
		if before := l.before.Bundle.Views[v.Tenant]; before != nil && sameDraft {
			v.Obligations, v.obligationProblems = before.Obligations, before.obligationProblems
			return
		}
	}
	v.Obligations = builtinObligations()
	if root != nil {
		v.Obligations = root.Obligations
	}
	if _, ok := l.files.Content[file]; ok {
		v.Obligations = l.obligations(file, v.Obligations, &v.obligationProblems)
	}
	v.defineApprovals()
}

// fits reports if the root has none of the tenant's entities. If it has one, the entities are
// read again, because the error is found while they are read.
func (o *own) fits(root *View) bool {
	for uid := range o.places {
		if _, taken := root.Store.Get(uid); taken {
			return false
		}
	}
	return true
}

// parseOwn reads the policies and entities of an owner. It leaves out an entity of a tenant
// that the root has already.
func (l *Loading) parseOwn(tenant, dir string, root *View) *own {
	o := &own{
		store: &Store{
			Entities: map[types.EntityUID]types.Entity{},
			Written:  map[types.EntityUID]types.EntityUIDSet{},
		},
		places: map[types.EntityUID]entityPlace{},
	}
	schema, use := l.bundle.Schema, UsageOf(tenant)
	if root != nil {
		o.store.Root = root.Store
	} else if schema != nil {
		maps.Copy(o.store.Entities, schema.actionEntities)
	}
	for _, name := range l.filesIn(dir, ".cedar") {
		if l.cancelled() {
			return o
		}
		o.policies = append(o.policies, l.policies(name, use, &o.policyProblems)...)
	}
	for _, name := range l.inDir[dir+source.AccessDirectory] {
		if l.cancelled() {
			return o
		}
		if d := l.declaration(name, use, &o.policyProblems); d != nil {
			o.declare(l.bundle.policiesOf(d, use, &o.policyProblems), &o.policyProblems)
		}
	}
	if schema != nil {
		l.check(l.bundle.toCheck(o), use, &o.policyProblems)
	}
	if l.cancelled() {
		return o
	}
	into := &entityLoader{ctx: l.ctx, own: o, bundle: l.bundle, store: o.store, use: use, problems: &o.entityProblems}
	for _, name := range l.filesIn(dir+"entities/", ".json") {
		if l.cancelled() {
			return o
		}
		entities := l.entities(name, use, &o.entityProblems)
		into.text = withoutMark(l.files.Content[name])
		into.load(name, entities)
	}
	o.store.Root = nil // otherwise the old root stays in memory until the tenant's files change
	o.store.prepareSearch()
	if !use.Exceeded {
		into.checkAncestors()
	}
	return o
}

// check holds policies against the schema, each in one or several forms.
func (l *Loading) check(all [][]*Policy, use *Usage, problems *Problems) {
	schema := l.bundle.Schema
	if !schema.mayCheck(slices.Concat(all...), use, problems) {
		return
	}
	for _, forms := range all {
		if l.cancelled() {
			return
		}
		var found Problems
		fits := false // a warning says that a form can never apply, and another form may
		for _, p := range forms {
			var of Problems
			schema.CheckPolicy(p, l.files.Content[p.File], use, &of)
			fits = fits || len(of) == 0
			if found == nil || of.Refuse() && !found.Refuse() {
				found = of
			}
		}
		if !fits || found.Refuse() {
			*problems = append(*problems, found...)
		}
	}
}

// namedBy are the entities that the root names. They are found once for all tenants.
func (l *Loading) namedBy(root *View) map[types.EntityUID]struct{} {
	if l.byRoot == nil {
		l.byRoot = root.named()
	}
	return l.byRoot
}
