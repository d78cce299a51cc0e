package pdp

import (
	"maps"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
	"go.yaml.in/yaml/v3"

	"policy-service/evaluation"
	"policy-service/obligations"
)

// approvals warns of permits that wait for a person where nobody could ever decide.
// The root's are looked at in its own view: what decides there decides everywhere.
// And of permits that let people decide who were not thought of, or that let nobody.
func (l *linter) approvals() {
	warned := map[*policy]bool{}
	for name, v := range l.b.views {
		deciders := l.deciders(v)
		root := slices.DeleteFunc(slices.Clone(deciders), (*policy).ofTenant)
		waiting, ofRoot, ofTenant := map[*policy]template{}, []template{}, []template{}
		for _, p := range v.policies {
			t, waits := approvalOf(p)
			if !waits || l.never(p) {
				continue
			}
			if p.tenant == v.tenant {
				waiting[p] = t
			}
			if l.b.demandsAsRoot(p) {
				ofRoot = append(ofRoot, t)
			} else {
				ofTenant = append(ofTenant, t)
			}
		}
		for _, p := range deciders {
			counts := p.ofTenant() && len(ofTenant) > 0 || !p.ofTenant() && len(waiting) > 0
			if counts && !warned[p] && wide(p) {
				warned[p] = true
				l.warn(p, "approval_unnamed", "names no action and no resource, so whoever it is for may decide about approvals too", "name the actions it is for, and write a permit for the action "+quote(approvalAction)+" where they are to decide")
			}
			decided := func(t template) bool { return t.decidedBy(p) }
			if p.ofTenant() && l.onlyDecides(p) && slices.ContainsFunc(ofRoot, decided) && !slices.ContainsFunc(ofTenant, decided) {
				l.warn(p, "approval_unheard", "lets nobody decide: each approval that it is for is demanded by a policy or an obligation of the root, and only the root's permits say who decides about those", "have the permit written in the root, or define the obligation in the tenant's own obligations.yaml where the tenant alone demands it")
			}
		}
		for p, t := range waiting {
			by, whose := deciders, "no policy"
			if l.b.demandsAsRoot(p) {
				by, whose = root, "no policy of the root"
			}
			if !slices.ContainsFunc(by, t.decidedBy) {
				l.warn(p, "approval_nobody", "waits for an approval of template "+quote(string(t))+", and in tenant "+quote(name)+" "+whose+" lets anybody give one", "write a permit, with no obligation, for the action "+quote(approvalAction)+" on a resource of type "+string(l.b.config.approvalType)+" and of that template, and declare both where there is a schema")
			}
		}
	}
}

// onlyDecides reports whether a policy is for decisions about approvals and for no others.
func (l *linter) onlyDecides(p *policy) bool {
	action := types.NewEntityUID(l.b.config.actionType, approvalAction)
	return slices.ContainsFunc(p.tests(), func(t scopeTest) bool {
		return t.of == actionVar && t.uids != nil && !slices.ContainsFunc(t.uids, func(uid types.EntityUID) bool { return uid != action })
	})
}

// template is that of an approval; what a request fills in is only known then.
type template string

func (t template) open() bool { return strings.Contains(string(t), "${") }

// templateOf is the template of an obligation that waits for a person.
func templateOf(d *obligations.Definition) (template, bool) {
	text, _ := d.Properties.Get("template")
	return template(text.Text()), d.Type.Name == obligations.ApprovalRequired && text.Kind() == evaluation.String
}

// approvalOf reports for an approval of which template a permit waits. Of several the
// first counts: two are in conflict.
func approvalOf(p *policy) (template, bool) {
	for _, d := range p.obliges {
		if t, ok := templateOf(d); ok && !p.forbids() {
			return t, true
		}
	}
	return "", false
}

// deciders are the permits of a view by which somebody may decide about an approval.
// One that obliges to anything is none: nobody there could do it.
func (l *linter) deciders(v *view) []*policy {
	action := lineageOf(types.NewEntityUID(l.b.config.actionType, approvalAction), v.store)
	return slices.DeleteFunc(slices.Clone(v.policies), func(p *policy) bool {
		return p.forbids() || len(p.obliges) > 0 || !l.decides(p, &action) || l.never(p)
	})
}

// wide reports whether a policy asks nothing of the action nor of the resource.
func wide(p *policy) bool {
	asks := func(t scopeTest) bool { return t.of != principalVar }
	return !slices.ContainsFunc(p.facts.scope, asks) && !slices.ContainsFunc(p.terms(), asksWhat)
}

// asksWhat reports whether a clause looks at the action or the resource.
func asksWhat(t *term) bool {
	switch t.op {
	case opTest:
		return t.test.of != principalVar
	case opPath, opHas:
		return t.path.root == "action" || t.path.root == "resource"
	}
	return slices.ContainsFunc(t.args, asksWhat)
}

// decides reports whether a policy may be for the question who decides.
func (l *linter) decides(p *policy, action *lineage) bool {
	excluded := func(t scopeTest) bool {
		return t.of == actionVar && !action.holds(&t) || t.of == resourceVar && !l.ofApprovals(t)
	}
	return !slices.ContainsFunc(p.tests(), excluded) && slices.ContainsFunc(l.settings(p), func(set *setting) bool {
		return set.types[resourceVar] == l.b.config.approvalType && (set.action == nil || set.action.uid == action.uid)
	})
}

// ofApprovals reports whether an approval can pass a test. It is in no group, unless
// bundle.yaml says so.
func (l *linter) ofApprovals(t scopeTest) bool {
	typ := l.b.config.approvalType
	of := func(uid types.EntityUID) bool { return uid.Type == typ }
	return (t.is == "" || t.is == typ) && (t.uids == nil || slices.ContainsFunc(t.uids, of) || len(l.b.config.parents[typ]) > 0)
}

// decidedBy reports whether a policy does not want another template, as far as its
// text says so.
func (t template) decidedBy(p *policy) bool {
	wanted := choice{term: "resource.template", strings: []string{inOneLine(string(types.String(t).MarshalCedar()))}}
	for _, c := range p.facts.conjuncts {
		if c.unless || t.open() {
			continue
		}
		if c, ok := choiceOf(c); ok && wanted.excludes(c) {
			return false
		}
	}
	return true
}

// inOneLine is a text as a conjunct's is written.
func inOneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// approvalConfig warns of what bundle.yaml says of approvals and cannot mean.
func (l *linter) approvalConfig(text []byte) {
	templates, open := l.templates()
	self := func(name *yaml.Node) {
		if !open && !templates[name.Value] { // no approval is ever asked for by it
			l.problems.warn(configFile, name.Line, name.Column, "unknown_template", "no obligation has the template "+quote(name.Value)+didYouMean(name.Value, maps.Keys(templates)), "correct it, or take it out: people could approve their own requests for whatever is given that name later")
		}
	}
	l.readConfig(text, func(doc *yamlMap) map[string]func(*yaml.Node) {
		known := func(name *yaml.Node) {
			if doc.wireType(&l.b.config, name) == l.b.config.approvalType {
				l.problems.warn(configFile, name.Line, name.Column, "approval_known", "no approval is in the entity store: as long as its type is listed here nobody may decide about any", "take "+quote(name.Value)+" out of known")
			}
		}
		return map[string]func(*yaml.Node){
			"allow_self_approval": func(n *yaml.Node) { doc.list(n, self) },
			"known":               func(n *yaml.Node) { doc.list(n, known) },
		}
	})
}

// templates are those of all obligations; open is set where a request makes one up.
func (l *linter) templates() (known map[string]bool, open bool) {
	known = map[string]bool{}
	for _, v := range l.b.views {
		for _, d := range v.obligations {
			if t, ok := templateOf(d.Definition); ok {
				known[string(t)] = true
				open = open || t.open()
			}
		}
	}
	return known, open
}
