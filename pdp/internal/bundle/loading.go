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
)

// loading is one load on its way to a bundle. It takes over from the bundle in force what
// its files still say, so that an edit of the root does not wait for what tenants have
// that is as it was:
//
//   - bundle.yaml and the schema, where both are the same, byte for byte. Where one is not,
//     nothing is taken over.
//   - the view of all tenants, where the root's files are the same.
//   - the view of a tenant, where its files and the root's are the same.
//   - what is made of a tenant's files by themselves, where only those are the same: its
//     policies, parsed and held to the schema, and its entities. What they are to the root's
//     is looked at anew.
//   - the obligations that are defined, where their files and the root's are the same.
//
// It never takes over a part of what belongs to one owner, and nothing of a load that
// failed. What it takes over it does not write to: requests are being answered by it.
type Loading struct {
	ctx    context.Context // where it ends, so does the load, and what is made is no bundle
	files  *Files
	before InForce // without a bundle there is nothing to take over
	bundle *Bundle
	Did    Work

	names   []string            // of all files, sorted
	inDir   map[string][]string // and by directory, with a slash, that of the root ""
	changed map[string]bool     // owners of whom a file is not as it was
	// sameSettings is whether bundle.yaml and the schema are as they were.
	sameSettings bool

	Fresh  []*View                      // those that the bundle in force has not got
	byRoot map[types.EntityUID]struct{} // the entities that the root names
}

// InForce is a bundle that answers requests, and the files that it was made of.
type InForce struct {
	Bundle *Bundle
	Files  *Files
}

// NewLoading prepares to make a bundle of files. It may take over parts of the bundle in force.
func NewLoading(ctx context.Context, files *Files, before InForce) *Loading {
	l := &Loading{ctx: ctx, files: files, before: before, names: files.names(), inDir: map[string][]string{}, changed: map[string]bool{}}
	for _, name := range l.names {
		dir, _ := path.Split(name)
		l.inDir[dir] = append(l.inDir[dir], name)
	}
	if before.Bundle == nil {
		return l
	}
	for _, files := range []*Files{files, before.Files} {
		for name := range files.Content {
			if !l.same(name) {
				l.changed[dirOf(name)] = true
			}
		}
	}
	schema, _ := files.schema()
	other, _ := before.Files.schema()
	l.sameSettings = schema == other && l.same(schema) && l.same(ConfigFile)
	return l
}

// in are the files of a directory whose names end in ext, sorted.
func (l *Loading) filesIn(dir, ext string) (names []string) {
	for _, name := range l.inDir[dir] {
		if path.Ext(name) == ext {
			names = append(names, name)
		}
	}
	return names
}

// Work counts what a load read anew.
type Work struct{ Settings, PolicyFiles, EntityFiles, ObligationFiles int }

// own is what is made of a tenant's files by themselves.
type own struct {
	policies       []*Policy // not bound to obligations yet
	policyProblems Problems
	store          *Store // above no other
	places         map[types.EntityUID]entityPlace
	order          []types.EntityUID // in which the entities stand in their files
	entityProblems Problems
}

// over reports whether nobody waits for the bundle any more.
func (l *Loading) cancelled() bool { return l.ctx.Err() != nil }

// settings reads bundle.yaml and the schema.
func (l *Loading) settings() {
	b, before := l.bundle, l.before.Bundle
	if l.sameSettings {
		b.Config, b.Schema, b.problems = before.Config, before.Schema, before.problems
		return
	}
	l.Did.Settings++
	b.Config = parseConfig(l.files.Content[ConfigFile], &b.problems)
	if name, text := l.files.schema(); name != "" {
		var found Problems
		b.Schema = ParseSchema(name, text, &b.Config, &found)
		b.problems = append(b.problems, found...)
	}
	b.checkParentRules(&b.problems)
}

// same reports whether a file is as it was, or was not there and is not.
func (l *Loading) same(name string) bool {
	now, is := l.files.Content[name]
	then, was := l.before.Files.Content[name]
	return is == was && bytes.Equal(now, then)
}

// sameOwner reports whether all files of an owner are as they were, by its directory.
func (l *Loading) sameOwner(dir string) bool { return l.before.Bundle != nil && !l.changed[dir] }

// dirOf is the directory of whose file it is: a tenant's, with a slash, or "".
func dirOf(name string) string {
	rest, below := strings.CutPrefix(name, "tenants/")
	if !below {
		return ""
	}
	tenant, _, _ := strings.Cut(rest, "/")
	return "tenants/" + tenant + "/"
}

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
	return parseObligations(name, l.files.Content[name], above, problems)
}

// view is what the files below dir come to on top of what the root has.
func (l *Loading) view(tenant, dir string, root *View, problems *Problems) *View {
	var before, rootBefore *View
	if l.sameSettings && l.sameOwner(dir) {
		before, rootBefore = l.before.Bundle.Views[tenant], l.before.Bundle.Views[evaluation.DefaultTenant]
	}
	v := before
	if v == nil || root != nil && root != rootBefore {
		v = l.newView(tenant, dir, root, before)
		l.Fresh = append(l.Fresh, v)
	}
	*problems = append(*problems, v.problems...)
	return v
}

func (l *Loading) newView(tenant, dir string, root, before *View) *View {
	v := &View{Tenant: tenant, ByID: map[string]*Policy{}}
	if root != nil {
		v.Policies = slices.Clone(root.Policies)
		maps.Copy(v.ByID, root.ByID)
	}
	l.define(v, dir, root)
	v.problems = append(v.problems, v.obligationProblems...)
	var o *own
	if before != nil && before.own.fits(root) {
		o = before.own
	} else {
		o = l.parseOwn(tenant, dir, root)
	}
	v.problems = append(v.problems, o.policyProblems...)
	for _, p := range o.policies {
		v.addPolicy(p, &v.problems)
	}
	slices.SortFunc(v.Policies, func(a, b *Policy) int { return strings.Compare(a.Id, b.Id) })
	v.problems = append(v.problems, o.entityProblems...)
	v.Store = o.store
	loaded := &entityLoader{bundle: l.bundle, view: v, use: UsageOf(tenant), problems: &v.problems, places: o.places, order: o.order}
	if root != nil {
		v.own, v.Store = o, o.store.above(root.Store)
		loaded.refuseRootParents(l.namedBy(root))
	}
	loaded.checkPersons()
	return v
}

// define gives a view the obligations that its policies can name.
func (l *Loading) define(v *View, dir string, root *View) {
	file := dir + obligationsFile
	if l.before.Bundle != nil && l.same(file) && l.same(obligationsFile) {
		if before := l.before.Bundle.Views[v.Tenant]; before != nil {
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
}

// fits reports whether the root has none of a tenant's entities: otherwise the error is
// found where they are read.
func (o *own) fits(root *View) bool {
	for uid := range o.places {
		if _, taken := root.Store.Get(uid); taken {
			return false
		}
	}
	return true
}

// parseOwn reads an owner's policies and entities. The entities are those of a tenant only
// where the root has not got them.
func (l *Loading) parseOwn(tenant, dir string, root *View) *own {
	o := &own{store: &Store{
		Entities: map[types.EntityUID]types.Entity{},
		Written:  map[types.EntityUID]types.EntityUIDSet{},
	}}
	schema, use := l.bundle.Schema, UsageOf(tenant)
	if root != nil {
		o.store.Root = root.Store
	} else if schema != nil {
		for uid, a := range schema.Actions {
			o.store.Entities[uid] = a.Entity
		}
	}
	for _, name := range l.filesIn(dir, ".cedar") {
		if l.cancelled() {
			return o
		}
		o.policies = append(o.policies, l.policies(name, use, &o.policyProblems)...)
	}
	if schema != nil && schema.mayCheck(o.policies, use, &o.policyProblems) {
		for _, p := range o.policies {
			if l.cancelled() {
				return o
			}
			schema.CheckPolicy(p, &o.policyProblems)
		}
	}
	into := &entityLoader{bundle: l.bundle, view: &View{Store: o.store}, use: use, problems: &o.entityProblems, places: map[types.EntityUID]entityPlace{}}
	for _, name := range l.filesIn(dir+"entities/", ".json") {
		if l.cancelled() {
			return o
		}
		for some := range slices.Chunk(l.entities(name, use, &o.entityProblems), 1000) {
			if !l.cancelled() {
				into.load(name, some)
			}
		}
	}
	o.places, o.order = into.places, into.order
	o.store.Root = nil // or it would be kept as long as the tenant's files stay as they are
	o.store.prepareSearch()
	if !use.exceeded {
		into.checkAncestors()
	}
	return o
}

// namedBy are the entities that the root names, for all tenants.
func (l *Loading) namedBy(root *View) map[types.EntityUID]struct{} {
	if l.byRoot == nil {
		l.byRoot = root.named()
	}
	return l.byRoot
}
