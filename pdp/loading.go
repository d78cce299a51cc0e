package pdp

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
type loading struct {
	ctx    context.Context // where it ends, so does the load, and what is made is no bundle
	files  *Files
	before inForce // without a bundle there is nothing to take over
	bundle *Bundle
	did    work

	names   []string            // of all files, sorted
	inDir   map[string][]string // and by directory, with a slash, that of the root ""
	changed map[string]bool     // owners of whom a file is not as it was
	// sameSettings is whether bundle.yaml and the schema are as they were.
	sameSettings bool

	fresh  []*view                      // those that the bundle in force has not got
	byRoot map[types.EntityUID]struct{} // the entities that the root names
}

// inForce is a bundle that answers requests, and the files that it was made of.
type inForce struct {
	bundle *Bundle
	files  *Files
}

func newLoading(ctx context.Context, files *Files, before inForce) *loading {
	l := &loading{ctx: ctx, files: files, before: before, names: files.names(), inDir: map[string][]string{}, changed: map[string]bool{}}
	for _, name := range l.names {
		dir, _ := path.Split(name)
		l.inDir[dir] = append(l.inDir[dir], name)
	}
	if before.bundle == nil {
		return l
	}
	for _, files := range []*Files{files, before.files} {
		for name := range files.content {
			if !l.same(name) {
				l.changed[dirOf(name)] = true
			}
		}
	}
	schema, _ := files.schema()
	other, _ := before.files.schema()
	l.sameSettings = schema == other && l.same(schema) && l.same(configFile)
	return l
}

// in are the files of a directory whose names end in ext, sorted.
func (l *loading) in(dir, ext string) (names []string) {
	for _, name := range l.inDir[dir] {
		if path.Ext(name) == ext {
			names = append(names, name)
		}
	}
	return names
}

// work counts what a load read anew.
type work struct{ settings, policyFiles, entityFiles, obligationFiles int }

// own is what is made of a tenant's files by themselves.
type own struct {
	policies     []*policy // not bound to obligations yet
	policiesSaid Problems
	store        *store // above no other
	places       map[types.EntityUID]entityPlace
	order        []types.EntityUID // in which the entities stand in their files
	entitiesSaid Problems
}

// over reports whether nobody waits for the bundle any more.
func (l *loading) over() bool { return l.ctx.Err() != nil }

// settings reads bundle.yaml and the schema.
func (l *loading) settings() {
	b, before := l.bundle, l.before.bundle
	if l.sameSettings {
		b.config, b.schema, b.said = before.config, before.schema, before.said
		return
	}
	l.did.settings++
	b.config = parseConfig(l.files.content[configFile], &b.said)
	if name, text := l.files.schema(); name != "" {
		var found Problems
		b.schema = parseSchema(name, text, &b.config, &found)
		b.said = append(b.said, found...)
	}
	b.checkParentRules(&b.said)
}

// same reports whether a file is as it was, or was not there and is not.
func (l *loading) same(name string) bool {
	now, is := l.files.content[name]
	then, was := l.before.files.content[name]
	return is == was && bytes.Equal(now, then)
}

// sameOwner reports whether all files of an owner are as they were, by its directory.
func (l *loading) sameOwner(dir string) bool { return l.before.bundle != nil && !l.changed[dir] }

// dirOf is the directory of whose file it is: a tenant's, with a slash, or "".
func dirOf(name string) string {
	rest, below := strings.CutPrefix(name, "tenants/")
	if !below {
		return ""
	}
	tenant, _, _ := strings.Cut(rest, "/")
	return "tenants/" + tenant + "/"
}

func (l *loading) policies(name string, use *usage, problems *Problems) []*policy {
	l.did.policyFiles++
	return parsePolicies(name, use, l.files.content[name], problems)
}

func (l *loading) entities(name string, use *usage, problems *Problems) []parsedEntity {
	l.did.entityFiles++
	return parseEntities(name, l.files.content[name], use, problems)
}

func (l *loading) obligations(name string, above map[string]definition, problems *Problems) map[string]definition {
	l.did.obligationFiles++
	return parseObligations(name, l.files.content[name], above, problems)
}

// view is what the files below dir come to on top of what the root has.
func (l *loading) view(tenant, dir string, root *view, problems *Problems) *view {
	var before, rootBefore *view
	if l.sameSettings && l.sameOwner(dir) {
		before, rootBefore = l.before.bundle.views[tenant], l.before.bundle.views[evaluation.DefaultTenant]
	}
	v := before
	if v == nil || root != nil && root != rootBefore {
		v = l.newView(tenant, dir, root, before)
		l.fresh = append(l.fresh, v)
	}
	*problems = append(*problems, v.said...)
	return v
}

func (l *loading) newView(tenant, dir string, root, before *view) *view {
	v := &view{tenant: tenant, byID: map[string]*policy{}}
	if root != nil {
		v.policies = slices.Clone(root.policies)
		maps.Copy(v.byID, root.byID)
	}
	l.define(v, dir, root)
	v.said = append(v.said, v.obligationsSaid...)
	var o *own
	if before != nil && before.own.fits(root) {
		o = before.own
	} else {
		o = l.parseOwn(tenant, dir, root)
	}
	v.said = append(v.said, o.policiesSaid...)
	for _, p := range o.policies {
		v.addPolicy(p, &v.said)
	}
	slices.SortFunc(v.policies, func(a, b *policy) int { return strings.Compare(a.id, b.id) })
	v.said = append(v.said, o.entitiesSaid...)
	v.store = o.store
	loaded := &entityLoader{bundle: l.bundle, view: v, use: usageOf(tenant), problems: &v.said, places: o.places, order: o.order}
	if root != nil {
		v.own, v.store = o, o.store.on(root.store)
		loaded.refuseRootParents(l.namedBy(root))
	}
	loaded.checkPersons()
	return v
}

// define gives a view the obligations that its policies can name.
func (l *loading) define(v *view, dir string, root *view) {
	file := dir + obligationsFile
	if l.before.bundle != nil && l.same(file) && l.same(obligationsFile) {
		if before := l.before.bundle.views[v.tenant]; before != nil {
			v.obligations, v.obligationsSaid = before.obligations, before.obligationsSaid
			return
		}
	}
	v.obligations = builtinObligations()
	if root != nil {
		v.obligations = root.obligations
	}
	if _, ok := l.files.content[file]; ok {
		v.obligations = l.obligations(file, v.obligations, &v.obligationsSaid)
	}
}

// fits reports whether the root has none of a tenant's entities: otherwise the error is
// found where they are read.
func (o *own) fits(root *view) bool {
	for uid := range o.places {
		if _, taken := root.store.Get(uid); taken {
			return false
		}
	}
	return true
}

// parseOwn reads an owner's policies and entities. The entities are those of a tenant only
// where the root has not got them.
func (l *loading) parseOwn(tenant, dir string, root *view) *own {
	o := &own{store: &store{
		entities: map[types.EntityUID]types.Entity{},
		written:  map[types.EntityUID]types.EntityUIDSet{},
	}}
	schema, use := l.bundle.schema, usageOf(tenant)
	if root != nil {
		o.store.root = root.store
	} else if schema != nil {
		for uid, a := range schema.actions {
			o.store.entities[uid] = a.entity
		}
	}
	for _, name := range l.in(dir, ".cedar") {
		if l.over() {
			return o
		}
		o.policies = append(o.policies, l.policies(name, use, &o.policiesSaid)...)
	}
	if schema != nil && schema.mayCheck(o.policies, use, &o.policiesSaid) {
		for _, p := range o.policies {
			if l.over() {
				return o
			}
			schema.checkPolicy(p, &o.policiesSaid)
		}
	}
	into := &entityLoader{bundle: l.bundle, view: &view{store: o.store}, use: use, problems: &o.entitiesSaid, places: map[types.EntityUID]entityPlace{}}
	for _, name := range l.in(dir+"entities/", ".json") {
		if l.over() {
			return o
		}
		for some := range slices.Chunk(l.entities(name, use, &o.entitiesSaid), 1000) {
			if !l.over() {
				into.load(name, some)
			}
		}
	}
	o.places, o.order = into.places, into.order
	o.store.root = nil // or it would be kept as long as the tenant's files stay as they are
	o.store.prepareSearch()
	if !use.over {
		into.checkAncestors()
	}
	return o
}

// namedBy are the entities that the root names, for all tenants.
func (l *loading) namedBy(root *view) map[types.EntityUID]struct{} {
	if l.byRoot == nil {
		l.byRoot = root.named()
	}
	return l.byRoot
}
