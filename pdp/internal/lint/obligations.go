package lint

import (
	"maps"
	"slices"
	"strings"

	"policy-service/obligations"
	"policy-service/pdp/internal/bundle"
	"policy-service/pdp/internal/document"
	"policy-service/pdp/internal/spelling"
)

// obligations warns of definitions that no answer can ever carry, and of permits that let a
// request avoid an obligation.
func (l *linter) obligations() {
	naming := map[*obligations.Definition][]*bundle.Policy{}
	for _, name := range slices.Sorted(maps.Keys(l.b.Views)) {
		v := l.b.Views[name]
		for _, p := range v.Policies {
			if p.Tenant == v.Tenant {
				l.misspelt(p)
				for _, d := range p.Obliges {
					naming[d] = append(naming[d], p)
				}
			}
		}
	}
	l.unproduced(naming)
	for _, v := range l.b.Views {
		l.overlaps(v)
	}
}

// misspelt warns of an annotation that was meant to be @obligation. Cedar accepts any name, so
// such a policy loads and obliges nobody.
func (l *linter) misspelt(p *bundle.Policy) {
	for key := range p.Cedar.Annotations() {
		name := strings.ToLower(string(key))
		if key != "obligation" && len(name) < 2*len("obligation") && spelling.Distance(name, "obligation") <= 2 {
			written := "@" + string(key)
			l.warnAt(placeOf(written), p, "obligation_misspelt",
				"has the annotation "+written+", which obliges nobody",
				"write @obligation(\"…\"), or give the annotation a name less like it",
				document.Near("@obligation").For(written),
			)
		}
	}
}

// unproduced warns of definitions that no policy names, and of those that only policies name
// which can never apply. A built-in definition stands in no file, so its warning stands at a
// policy that names it.
func (l *linter) unproduced(naming map[*obligations.Definition][]*bundle.Policy) {
	all := map[*obligations.Definition]bundle.Definition{} // each once, in however many views it is
	for _, v := range l.b.Views {
		for _, d := range v.Obligations {
			all[d.Definition] = d
		}
	}
	for _, d := range all {
		l.secrets(d)
		by := naming[d.Definition]
		switch {
		case len(by) == 0 && d.File == "": // every bundle has all of the built-in definitions
		case len(by) == 0:
			l.problems.Warn(d.File, d.Line, d.Column, "obligation_unused",
				"no policy names the obligation "+bundle.Quote(d.Name),
				"name it in an @obligation, or take it out",
			)
		case !slices.ContainsFunc(by, func(p *bundle.Policy) bool { return !l.neverApplies(p) }):
			if d.File == "" {
				d.File, d.Line, d.Column = by[0].File, by[0].Line, by[0].Column
			}
			l.problems.Warn(d.File, d.Line, d.Column, "obligation_never_produced",
				"the obligation "+bundle.Quote(d.Name)+" is named only by policies that can never apply, as "+
					bundle.Quote(by[0].Id)+" at "+by[0].Position,
				"correct their scopes, or name it in a policy that applies",
			)
		}
	}
}

// secrets warns of a text that would show a member whose name says that it is a secret. Below a member, that is an error.
func (l *linter) secrets(d bundle.Definition) {
	var secrets []string
	_, _ = obligations.Fill(d.Properties, func(variable string) (string, bool) {
		if path, ok := obligations.Path(variable); ok && obligations.Secret(path) && !slices.Contains(secrets, variable) {
			secrets = append(secrets, variable)
		}
		return "", true
	})
	for _, variable := range secrets {
		l.problems.Warn(d.File, d.Line, d.Column, "obligation_secret",
			"the obligation "+bundle.Quote(d.Name)+" says "+obligations.Masked+" for "+bundle.Quote("${"+variable+"}")+
				", because the name says that it is a secret",
			"take it out of the text, or have the fact sent under another name",
		)
	}
}

// neverApplies reports whether a policy certainly applies to no request. That is so if its tests of
// one variable exclude each other, if a clause is written out as false, or if no combination
// of types admits the policy.
func (l *linter) neverApplies(p *bundle.Policy) bool {
	tests, action := p.Tests(), l.b.Config.ActionType
	for n, t := range tests {
		namesNone := t.Uids != nil && len(t.Uids) == 0
		// The action of a request is of one type. A group of actions may be of any type.
		impossible := t.Of == bundle.ActionVar && (t.Is != "" && t.Is != action || t.Eq && t.Uids[0].Type != action)
		if namesNone || impossible || slices.ContainsFunc(tests[:n], t.Excludes) {
			return true
		}
	}
	return slices.ContainsFunc(p.Terms(), neverTrue) || len(l.settings(p)) == 0
}
