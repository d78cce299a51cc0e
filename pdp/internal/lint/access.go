package lint

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cedar-policy/cedar-go/types"
	"go.yaml.in/yaml/v3"

	"policy-service/evaluation"
	"policy-service/pdp/internal/access"
	"policy-service/pdp/internal/bundle"
	"policy-service/pdp/internal/document"
)

// access warns of declarations of tool access: of rules that are over, of tools that do not exist,
// and of declarations that are open to everybody. These warnings stand at the
// rule or the word that they are about. The policies that are made from a declaration are checked
// as any others.
func (l *linter) access(now time.Time) {
	for _, v := range l.b.Views {
		l.sessions(v)
		for _, of := range v.Declared {
			d := declaration{l: l, Declaration: of.Declaration, now: now}
			d.open(v.ByID[of.Name+".default"])
			d.rules()
			d.tools(l.toolsOf(v, d.Owner+":"))
		}
	}
}

// sessions warns of declarations beside which no policy by hand permits anything: they are about tools alone, and clients of
// a gateway begin with another question.
func (l *linter) sessions(v *bundle.View) {
	byHand := func(p *bundle.Policy) bool { return p.Access == "" && !p.Forbids() && !aboutApprovals(p) }
	if len(v.Declared) == 0 || slices.ContainsFunc(v.Policies, byHand) {
		return
	}
	l.problems.Warn(v.Declared[0].File, 0, 0, "access_no_session",
		"declarations of access are about tools, and no other policy permits anything: a gateway that asks this bundle refuses initialize, so no client connects",
		`permit what begins a session, as in permit (principal, action in [Action::"initialize", Action::"server/discover", Action::"tools/list"], resource is mcp_server);`)
}

// aboutApprovals reports whether a policy is about decisions of people alone.
func aboutApprovals(p *bundle.Policy) bool {
	return slices.ContainsFunc(p.Tests(), func(t bundle.ScopeTest) bool {
		return t.Of == bundle.ActionVar && len(t.Uids) > 0 && !slices.ContainsFunc(t.Uids, func(u types.EntityUID) bool { return u.ID != "approval.decide" })
	})
}

// rulesOf returns the rules of the declarations that a view has, the root's included, by the ids of
// the policies that are made of them. It is nil if there is no declaration.
func (l *linter) rulesOf(v *bundle.View) (rules map[string]*access.Rule) {
	for _, of := range slices.Concat(v.Declared, l.b.Views[evaluation.DefaultTenant].Declared) {
		if rules == nil {
			rules = map[string]*access.Rule{}
		}
		for n := range of.Rules {
			rules[of.Name+"."+strconv.Itoa(n+1)] = &of.Rules[n]
		}
	}
	return rules
}

// declaration is a declaration that is checked at a point in time.
type declaration struct {
	l *linter
	*access.Declaration
	now time.Time
}

func (d *declaration) warn(at *yaml.Node, code, message, try string, mend ...document.Mend) {
	d.l.problems.Warn(d.File, at.Line, at.Column, code, message, try, mend...)
}

// open warns of a declaration that denies nobody anything. It stands at the word that says so, as the
// policy does that is made of it, if there is one.
func (d *declaration) open(byDefault *bundle.Policy) {
	denies := func(r access.Rule) bool { return r.Denies && !d.over(&r) }
	if byDefault == nil || slices.ContainsFunc(d.Rules, denies) {
		return
	}
	how := ""
	if d.Capability == access.Required {
		how = " with a capability, for which everybody may ask,"
	}
	if d.RequiresApproval() {
		how += " without an approval, unless a rule demands one"
	}
	how = strings.TrimSuffix(how, ",")
	d.l.problems.Warn(d.File, byDefault.Line, byDefault.Column, "access_open",
		"everybody may use every tool of "+bundle.Quote(d.Owner)+how+"; that counts for agents and tools that come later, too",
		"write mode: allowlist, with a rule for each agent that is to use something, if that is not meant",
	)
}

// rules warns of rules that have ended.
func (d *declaration) rules() {
	for n := range d.Rules {
		if d.over(&d.Rules[n]) {
			d.expired(n)
		}
	}
}

// over reports whether a rule has ended. At the very instant that it names it has.
func (d *declaration) over(r *access.Rule) bool {
	return !r.Expires.IsZero() && !d.now.Before(r.Expires)
}

// expired warns of a rule that is over. Not every rule closes something when it ends.
func (d *declaration) expired(n int) {
	r := &d.Rules[n]
	frees := func(other access.Rule) bool {
		return !other.Denies && !other.RequiresApproval && !d.over(&other) && other.Covers(r)
	}
	const still = "give it a later end, or none, if it is still meant; else take it out"
	what, try := "allows nothing any more", "take it out, or give it a later end"
	switch {
	case r.Denies:
		what, try = "denies nothing any more: what it alone denied is open again where the default or another rule allows it", still
	case r.RequiresApproval && (d.Allows || slices.ContainsFunc(d.Rules, frees)):
		what, try = "demands no approval any more: what it alone demanded one for is open without", still
	}
	d.warn(r.At, "access_expired", fmt.Sprintf("rule %d of %s has ended on %s, and %s",
		n+1, bundle.Quote(d.Owner), r.Expires.UTC().Format(time.RFC3339Nano), what), try)
}

// toolsOf returns the names of the tools of an owner that the entities of a view have, sorted. The
// root's declarations are for every tenant, and so for the tools of all of them.
func (l *linter) toolsOf(v *bundle.View, prefix string) []string {
	typ, _ := l.b.Config.EntityType("tool")
	names := map[string]struct{}{}
	add := func(s *bundle.Store) {
		ids := s.Ids[typ]
		at, _ := slices.BinarySearch(ids, prefix)
		for ; at < len(ids) && strings.HasPrefix(ids[at], prefix); at++ {
			names[ids[at][len(prefix):]] = struct{}{}
		}
	}
	for s := v.Store; s != nil; s = s.Root {
		add(s)
	}
	if v.Tenant == evaluation.DefaultTenant {
		for _, other := range l.b.Views {
			add(other.Store)
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// mostUnknown bounds the unknown tools of one declaration that a warning each is about. Each is
// compared with all names that could be meant.
const mostUnknown = 20

// tools warns of names that no tool of the owner has, if any of its tools are known, and of those
// that repeat the owner: a denial of such a name denies nothing.
func (d *declaration) tools(known []string) {
	unknown := 0
	for n := range d.Rules {
		if d.over(&d.Rules[n]) {
			continue
		}
		for _, at := range toolNodes(d.Rules[n].At) {
			name, repeats := strings.CutPrefix(at.Value, d.Owner+":")
			if hasTool(known, at.Value) || len(known) == 0 && (!repeats || name == "") {
				continue
			}
			if unknown++; unknown > mostUnknown {
				continue
			}
			if repeats && name != "" {
				d.repeated(at, name)
			} else {
				d.unknown(at, known)
			}
		}
	}
	if more := unknown - mostUnknown; more > 0 {
		d.warn(d.At, "access_unknown_tool",
			fmt.Sprintf("no tools of %s have %d more of the names that its rules name", bundle.Quote(d.Owner), more),
			"correct those that are told first",
		)
	}
}

// toolNodes are the nodes of the tools that a rule names.
func toolNodes(rule *yaml.Node) []*yaml.Node {
	tools := document.NodeAt(rule, "/tools")
	if tools.Kind == yaml.SequenceNode {
		return tools.Content
	}
	return []*yaml.Node{tools}
}

// hasTool reports whether there is a tool of a name, or one whose name begins so. The names are sorted.
func hasTool(names []string, tool string) bool {
	name, begins := strings.CutSuffix(tool, "*")
	at, found := slices.BinarySearch(names, name)
	return found || begins && at < len(names) && strings.HasPrefix(names[at], name)
}

// repeated warns of a name that is written as the id of a tool is.
func (d *declaration) repeated(at *yaml.Node, name string) {
	d.warn(at, "access_unknown_tool",
		"names of tools are written without their owner: with it this one is about "+bundle.Quote(d.Owner+":"+at.Value),
		"write "+bundle.Quote(name),
	)
}

func (d *declaration) unknown(at *yaml.Node, known []string) {
	what := "is called "
	name, begins := strings.CutSuffix(at.Value, "*")
	if begins {
		what = "has a name that begins with "
	}
	alike := func(yield func(string) bool) {
		for _, other := range known {
			if !begins && !yield(other) {
				return
			}
			for n := len(name); begins && n <= len(name)+1; n++ { // one letter may be missing
				if !yield(other[:min(n, len(other))] + "*") {
					return
				}
			}
		}
	}
	near := bundle.DidYouMean(at.Value, alike)
	d.warn(at, "access_unknown_tool",
		"no tool of "+bundle.Quote(d.Owner)+" in entities/ "+what+bundle.Quote(name)+near.String(),
		"correct it, or list the tool in entities/, with "+bundle.Quote(d.Owner+":")+" before its name",
		near.At(at),
	)
}
