package lint

import (
	"maps"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
	"go.yaml.in/yaml/v3"

	"policy-service/evaluation"
	"policy-service/obligations"
	"policy-service/pdp/internal/bundle"
	"policy-service/pdp/internal/document"
	"policy-service/pdp/internal/source"
)

// approvals warns of permits that wait for an approval that no policy lets a person give. The
// root's permits are checked in the root's own view, because a permit that decides there
// decides everywhere. approvals also warns of permits that let more people decide than the
// author thought of, and of permits for approvers that let no person decide.
func (l *linter) approvals() {
	warned := map[*bundle.Policy]bool{}
	for name, v := range l.b.Views {
		deciders := l.deciders(v)
		root := slices.DeleteFunc(slices.Clone(deciders), (*bundle.Policy).OfTenant)
		waiting, ofRoot, ofTenant := map[*bundle.Policy]template{}, []template{}, []template{}
		for _, p := range v.Policies {
			t, waits := approvalOf(p)
			if !waits || l.neverApplies(p) {
				continue
			}
			if p.Tenant == v.Tenant {
				waiting[p] = t
			}
			if l.b.DemandsAsRoot(p) {
				ofRoot = append(ofRoot, t)
			} else {
				ofTenant = append(ofTenant, t)
			}
		}
		for _, p := range deciders {
			counts := p.OfTenant() && len(ofTenant) > 0 || !p.OfTenant() && len(waiting) > 0
			if counts && !warned[p] && testsOnlyPrincipal(p) {
				warned[p] = true
				l.warn(p, "approval_unnamed",
					"names no action and no resource, so whoever it is for may decide about approvals too",
					"name the actions it is for, and write a permit for the action "+
						bundle.Quote(bundle.ApprovalAction)+" where they are to decide",
				)
			}
			decided := func(t template) bool { return t.decidedBy(p) }
			onlyRoots := slices.ContainsFunc(ofRoot, decided) && !slices.ContainsFunc(ofTenant, decided)
			if p.OfTenant() && l.onlyDecides(p) && onlyRoots {
				l.warn(p, "approval_unheard",
					"lets nobody decide: each approval that it is for is demanded by a policy or an obligation "+
						"of the root, and only the root's permits say who decides about those",
					"have the permit written in the root, or define the obligation in the tenant's own "+
						"obligations.yaml where the tenant alone demands it",
				)
			}
		}
		for p, t := range waiting {
			by, whose := deciders, "no policy"
			if l.b.DemandsAsRoot(p) {
				by, whose = root, "no policy of the root"
			}
			if !slices.ContainsFunc(by, t.decidedBy) {
				l.waiting(v, p, "waits for an approval of template "+bundle.Quote(string(t))+
					", and in tenant "+bundle.Quote(name)+" "+whose+" lets anybody give one",
					"write a permit, with no obligation, for the action "+bundle.Quote(bundle.ApprovalAction)+
						" on a resource of type "+string(l.b.Config.ApprovalType)+
						" and of that template, and declare both where there is a schema",
				)
			}
		}
	}
}

// waiting warns of a permit that waits in vain. What is wrong with one rule of a declaration of
// tool access is wrong with each, so that warning stands where the declaration says how it asks.
func (l *linter) waiting(v *bundle.View, p *bundle.Policy, message, try string) {
	const code = "approval_nobody"
	if p.Access == "" {
		l.warn(p, code, message, try)
		return
	}
	d := v.Obligations[p.Obliges[0].Name]
	l.problems.Warn(d.File, d.Line, d.Column, code, "the declaration of "+bundle.Quote(p.Access)+" "+message, try)
}

// onlyDecides reports whether a policy is for decisions about approvals alone.
func (l *linter) onlyDecides(p *bundle.Policy) bool {
	action := types.NewEntityUID(l.b.Config.ActionType, bundle.ApprovalAction)
	return slices.ContainsFunc(p.Tests(), func(t bundle.ScopeTest) bool {
		another := func(uid types.EntityUID) bool { return uid != action }
		return t.Of == bundle.ActionVar && t.Uids != nil && !slices.ContainsFunc(t.Uids, another)
	})
}

// template is the template of an approval. It is open if a request fills in a part of it, and
// then only the request tells the whole name.
type template string

func (t template) open() bool { return strings.Contains(string(t), "${") }

// templateOf returns the template of an obligation, if the obligation demands an approval.
func templateOf(d *obligations.Definition) (template, bool) {
	text, _ := d.Properties.Get("template")
	return template(text.Text()), d.Type.Name == obligations.ApprovalRequired && text.Kind() == evaluation.String
}

// approvalOf returns the template of the approval that a permit waits for, if it waits for one.
// If there are several, it is the first: that they are in conflict is found elsewhere.
func approvalOf(p *bundle.Policy) (template, bool) {
	for _, d := range p.Obliges {
		if t, ok := templateOf(d); ok && !p.Forbids() {
			return t, true
		}
	}
	return "", false
}

// deciders returns the permits of a view that let a person decide about an approval. It leaves
// out permits with obligations, because nobody there could discharge an obligation.
func (l *linter) deciders(v *bundle.View) []*bundle.Policy {
	action := bundle.LineageOf(types.NewEntityUID(l.b.Config.ActionType, bundle.ApprovalAction), v.Store)
	return slices.DeleteFunc(slices.Clone(v.Policies), func(p *bundle.Policy) bool {
		return p.Forbids() || len(p.Obliges) > 0 || !l.decides(p, &action) || l.neverApplies(p)
	})
}

// testsOnlyPrincipal reports whether a policy tests neither the action nor the resource.
func testsOnlyPrincipal(p *bundle.Policy) bool {
	tests := func(t bundle.ScopeTest) bool { return t.Of != bundle.PrincipalVar }
	return !slices.ContainsFunc(p.Facts.Scope, tests) && !slices.ContainsFunc(p.Terms(), looksAtWhat)
}

// looksAtWhat reports whether a clause looks at the action or the resource.
func looksAtWhat(t *bundle.Term) bool {
	switch t.Op {
	case bundle.OpTest:
		return t.Test.Of != bundle.PrincipalVar
	case bundle.OpPath, bundle.OpHas:
		return t.Path.Root == "action" || t.Path.Root == "resource"
	}
	return slices.ContainsFunc(t.Args, looksAtWhat)
}

// decides reports whether a policy may apply to the question who may decide about an approval.
func (l *linter) decides(p *bundle.Policy, action *bundle.Lineage) bool {
	excluded := func(t bundle.ScopeTest) bool {
		return t.Of == bundle.ActionVar && !action.Holds(&t) || t.Of == bundle.ResourceVar && !l.ofApprovals(t)
	}
	return !slices.ContainsFunc(p.Tests(), excluded) && slices.ContainsFunc(l.settings(p), func(set *setting) bool {
		return set.types[bundle.ResourceVar] == l.b.Config.ApprovalType &&
			(set.action == nil || set.action.Uid == action.Uid)
	})
}

// ofApprovals reports whether an approval can pass a test. An approval is in no group, unless
// bundle.yaml says so.
func (l *linter) ofApprovals(t bundle.ScopeTest) bool {
	typ := l.b.Config.ApprovalType
	of := func(uid types.EntityUID) bool { return uid.Type == typ }
	return (t.Is == "" || t.Is == typ) &&
		(t.Uids == nil || slices.ContainsFunc(t.Uids, of) || len(l.b.Config.Parents[typ]) > 0)
}

// decidedBy reports whether a policy can be for approvals of the template. It is false only if
// the text of the policy wants another template.
func (t template) decidedBy(p *bundle.Policy) bool {
	wanted := choice{
		term: "resource.template",
		// with single spaces, as the text of a conjunct is
		strings: []string{strings.Join(strings.Fields(string(types.String(t).MarshalCedar())), " ")},
	}
	for _, c := range p.Facts.Conjuncts {
		if c.Unless || t.open() {
			continue
		}
		if c, ok := choiceOf(c); ok && wanted.excludes(c) {
			return false
		}
	}
	return true
}

// approvalConfig warns of settings for approvals in bundle.yaml that cannot be meant.
func (l *linter) approvalConfig(text []byte) {
	templates, open := l.templates()
	self := func(name *yaml.Node) {
		if !open && !templates[name.Value] { // no approval request ever has it
			near := bundle.DidYouMean(name.Value, maps.Keys(templates))
			l.problems.Warn(source.ConfigFile, name.Line, name.Column, "unknown_template",
				"no obligation has the template "+bundle.Quote(name.Value)+near.String(),
				"correct it, or take it out: "+
					"people could approve their own requests for whatever is given that name later",
				near.At(name),
			)
		}
	}
	l.readConfig(text, func(doc *document.Map) map[string]func(*yaml.Node) {
		known := func(name *yaml.Node) {
			if l.b.Config.TypeIn(doc, name) == l.b.Config.ApprovalType {
				l.problems.Warn(source.ConfigFile, name.Line, name.Column, "approval_known",
					"no approval is in the entity store: as long as its type is listed here nobody may decide about any",
					"take "+bundle.Quote(name.Value)+" out of known",
				)
			}
		}
		return map[string]func(*yaml.Node){
			"allow_self_approval": func(n *yaml.Node) { doc.List(n, self) },
			"known":               func(n *yaml.Node) { doc.List(n, known) },
		}
	})
}

// templates returns the templates of all obligations. open is set if a request fills in a part
// of one of them.
func (l *linter) templates() (known map[string]bool, open bool) {
	known = map[string]bool{}
	for _, v := range l.b.Views {
		for _, d := range v.Obligations {
			if t, ok := templateOf(d.Definition); ok {
				known[string(t)] = true
				open = open || t.open()
			}
		}
	}
	return known, open
}
