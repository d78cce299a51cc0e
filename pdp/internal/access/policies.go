package access

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/ast"
	"github.com/cedar-policy/cedar-go/types"
	"go.yaml.in/yaml/v3"

	"policy-service/pdp/internal/document"
)

// maxEscaped bounds the ids in one list that cannot be printed as they are. In policies written by
// hand longer lists of such ids are refused.
const maxEscaped = 32

// Policies makes the policies of the declaration, in a fixed order: the default, the rules, the
// guard, and what there is about capabilities. The name is the beginning of their ids, and the name of their obligation. A word that
// has no meaning in the bundle is a problem at its place.
func (d *Declaration) Policies(name string, in Names, problems *document.Problems) []Policy {
	m := maker{d: d, name: name, in: in, problems: problems}
	before := len(*problems)
	m.tool = m.typ("tool", d.At)
	for i, at := range d.SubjectsAt {
		m.typ(d.Subjects[i], at)
	}
	if len(in.Actions) == 0 {
		m.bad(d.At, "access_action", "the schema declares no action that tools are called by", "declare the action tool.invoke")
	}
	for i := range d.Rules {
		m.rules = append(m.rules, m.terms(&d.Rules[i]))
	}
	if len(*problems) > before {
		return nil
	}
	if d.Allows {
		m.add("default", d.defaultAt, m.begin("default").Permit().ResourceIs(m.tool).When(m.begins("")))
	}
	for i, t := range m.rules {
		m.rule(strconv.Itoa(i+1), &d.Rules[i], t)
	}
	if !d.Allows {
		m.guard()
	}
	switch {
	case d.Capability == Required && d.Allows:
		m.demand()
	case d.Capability == Observe:
		m.observe()
	}
	return m.made
}

// maker makes the policies of one declaration.
type maker struct {
	d        *Declaration
	name     string
	in       Names
	problems *document.Problems
	tool     types.EntityType
	rules    []terms // of the declaration's rules
	made     []Policy
}

func (m *maker) bad(n *yaml.Node, code, message, try string) {
	m.problems.Add(m.d.File, n.Line, n.Column, code, message, try)
}

// typ is Cedar's type for a wire type.
func (m *maker) typ(wire string, at *yaml.Node) types.EntityType {
	typ, ok := m.in.Type(wire)
	if !ok {
		m.bad(at, "access_type", fmt.Sprintf("%q is no type of an entity here", wire),
			"write the name that requests use, and let the schema declare the type, if there is one")
	}
	return typ
}

// terms are the subjects, tools and time of a rule, in Cedar's words.
type terms struct {
	agents []types.EntityUID   // these entities, if there are any
	in     types.EntityUID     // else everybody in this one, if there is one
	tools  [][]types.EntityUID // exact tools, in lists that policies may hold
	begins []string            // beginnings of names
	until  time.Time
}

// terms translates a rule into Cedar's words.
func (m *maker) terms(r *Rule) terms {
	t := terms{in: r.Agent.In, until: r.Expires}
	if wire, id := r.entities(); id != "" {
		for _, w := range wire {
			t.agents = append(t.agents, types.NewEntityUID(m.typ(w, r.Agent.At), types.String(id)))
		}
	}
	wanted := make(map[Tool]bool, len(r.least))
	for _, tool := range r.least {
		wanted[tool] = true
	}
	var tools []types.EntityUID
	for _, tool := range r.Tools { // in their order in the file, so that authors find them
		switch {
		case !wanted[tool]:
		case tool.Prefix:
			t.begins = append(t.begins, tool.Name)
		default:
			tools = append(tools, types.NewEntityUID(m.tool, types.String(m.d.Owner+":"+tool.Name)))
		}
		delete(wanted, tool)
	}
	t.tools = listsOf(tools)
	return t
}

// listsOf makes lists that policies written by hand may hold.
func listsOf(uids []types.EntityUID) (lists [][]types.EntityUID) {
	escaped := 0
	for _, uid := range uids {
		if bytes.ContainsRune(uid.MarshalCedar(), '\\') {
			escaped++
		}
		if len(lists) == 0 || escaped > maxEscaped {
			lists, escaped = append(lists, nil), min(escaped, 1)
		}
		last := len(lists) - 1
		lists[last] = append(lists[last], uid)
	}
	return lists
}

// add completes a policy with the actions.
func (m *maker) add(id string, at *yaml.Node, p *ast.Policy) {
	if len(m.in.Actions) == 1 { // in, and not ==: a schema may have an action of its own for each tool, below it
		p = p.ActionIn(m.in.Actions[0])
	} else {
		p = p.ActionInSet(m.in.Actions...)
	}
	m.made = append(m.made, Policy{ID: m.id(id), Cedar: cedar.NewPolicyFromAST(p), At: at})
}

func (m *maker) id(id string) string { return m.name + "." + id }

// begin begins a policy, with its name.
func (m *maker) begin(id string) *ast.Annotations {
	return ast.Annotation("id", types.String(m.id(id)))
}

// rule makes the policy of a rule.
func (m *maker) rule(id string, r *Rule, t terms) {
	begun := m.begin(id)
	var p *ast.Policy
	switch {
	case r.Denies:
		p = begun.Annotation("reason_user", types.String(m.d.Owner+" has closed this tool to you.")).Forbid()
	case r.RequiresApproval:
		p = begun.Annotation("obligation", types.String(m.name)).Permit()
	default:
		p = begun.Permit()
	}
	var tests []ast.Node // first that of a tool, because the index looks at the first test
	all := len(t.begins) + len(t.tools)
	switch {
	case all == 1 && len(t.begins) == 1:
		p, tests = p.ResourceIs(m.tool), []ast.Node{m.begins(t.begins[0])}
	case all == 1 && len(t.tools[0]) == 1:
		p = p.ResourceEq(t.tools[0][0])
	case all == 1:
		p, tests = p.ResourceIs(m.tool), []ast.Node{ast.Resource().In(setOf(t.tools[0])), m.isTool(t)}
	default:
		p, tests = p.ResourceIs(m.tool), []ast.Node{m.begins(""), m.isTool(t)}
	}
	switch {
	case len(t.agents) == 1:
		p = p.PrincipalEq(t.agents[0])
	case len(t.agents) > 1:
		tests = append(tests, t.isAgent())
	case t.in != types.EntityUID{}:
		p = p.PrincipalIn(t.in)
	}
	tests = append(tests, t.notOver()...)
	if !m.d.Allows { // else one policy demands it of all calls
		tests = append(tests, m.held()...)
	}
	if len(tests) > 0 {
		p = p.When(allOf(tests))
	}
	m.add(id, r.At, p)
	made := &m.made[len(m.made)-1]
	made.Obligation, made.Until = r.RequiresApproval, r.Expires
}

// guard makes the policy that denies all that no rule allows, also beside permits of other files.
func (m *maker) guard() {
	but, everything := m.opened()
	held := m.held()
	reason := m.d.Owner + " has not opened this tool to you."
	switch {
	case everything && held == nil:
		return // it would never apply
	case held != nil:
		reason = m.d.Owner + " has not opened this tool to you, or not without a capability."
	}
	p := m.begin("guard").Annotation("reason_user", types.String(reason)).Forbid().ResourceIs(m.tool).When(m.begins(""))
	switch {
	case everything:
		p = p.Unless(allOf(held))
	case len(but) > 0:
		p = p.Unless(allOf(append([]ast.Node{anyOf(but)}, held...)))
	}
	m.add("guard", m.d.defaultAt, p)
}

// opened are the tests of what the rules allow. There are none if a rule allows everything to everybody.
func (m *maker) opened() (tests []ast.Node, everything bool) {
	for i, t := range m.rules {
		if m.d.Rules[i].Denies {
			continue
		}
		var of []ast.Node
		switch {
		case len(t.agents) > 0:
			of = append(of, t.isAgent())
		case t.in != types.EntityUID{}:
			of = append(of, ast.Principal().In(ast.Value(t.in)))
		}
		if !slices.Contains(t.begins, "") {
			of = append(of, m.isTool(t))
		}
		if of = append(of, t.notOver()...); len(of) == 0 {
			return nil, true
		}
		tests = append(tests, allOf(of))
	}
	return tests, false
}

// demand makes the policy that denies calls without a capability where no guard does.
func (m *maker) demand() {
	held := m.held()
	if held == nil {
		return
	}
	m.add("capability", m.d.capabilityAt, m.begin("capability").
		Annotation("reason_user", types.String(m.d.Owner+" opens this tool only to holders of a capability.")).
		Forbid().ResourceIs(m.tool).When(m.begins("")).Unless(allOf(held)))
}

// observe makes a policy that permits, once more, the calls without a capability that the declaration
// allows. So its id is on record with each call that would be denied if a capability were required.
// It repeats what the rules allow, because by itself no policy should permit more than they do.
func (m *maker) observe() {
	tests := []ast.Node{m.begins("")}
	if !m.d.Allows {
		switch but, everything := m.opened(); {
		case everything:
		case len(but) == 0:
			return // nothing is allowed
		default:
			tests = append(tests, anyOf(but))
		}
	}
	if calls, grants := m.actions(); calls {
		if grants {
			tests = append(tests, ast.Action().NotEqual(ast.Value(m.in.Grant)))
		}
		tests = append(tests, ast.Not(capabilityHeld()))
		m.add("observe", m.d.capabilityAt, m.begin("observe").Permit().ResourceIs(m.tool).When(allOf(tests)))
	}
}

// held tests if there is a capability, where one is required. The test is of all actions but one, and
// not of tool.invoke: a schema may have an action of its own for each tool.
func (m *maker) held() []ast.Node {
	switch calls, grants := m.actions(); {
	case m.d.Capability != Required || !calls:
		return nil
	case grants:
		return []ast.Node{ast.Action().Equal(ast.Value(m.in.Grant)).Or(capabilityHeld())}
	}
	return []ast.Node{capabilityHeld()}
}

// actions report if the declaration is about calls, and if it is about capabilities to be asked for.
func (m *maker) actions() (calls, grants bool) {
	grants = slices.Contains(m.in.Actions, m.in.Grant)
	return !grants || len(m.in.Actions) > 1, grants
}

func capabilityHeld() ast.Node {
	return ast.Context().Access("pdp").Access("capability").Access("held")
}

// isTool tests if the tool is one of the rule's. No test is made with in, which would hold for
// entities below a tool, too.
func (m *maker) isTool(t terms) ast.Node {
	var tests []ast.Node
	for _, name := range t.begins {
		tests = append(tests, m.begins(name))
	}
	for _, list := range t.tools {
		if len(list) == 1 {
			tests = append(tests, ast.Resource().Equal(ast.Value(list[0])))
		} else {
			tests = append(tests, setOf(list).Contains(ast.Resource()))
		}
	}
	return anyOf(tests)
}

// begins tests if the tool is one of the owner's whose names begin so.
func (m *maker) begins(name string) ast.Node {
	return ast.Context().Access("pdp").Access("resource").Access("id").Like(m.d.pattern(name))
}

// pattern matches the ids of the owner's tools whose names begin so.
func (d *Declaration) pattern(name string) types.Pattern {
	return types.NewPattern(d.Owner+":"+name, types.Wildcard{})
}

// isAgent tests if the agent is one that the rule names. A set of them would not do, because a
// schema admits no set of several types.
func (t *terms) isAgent() ast.Node {
	var tests []ast.Node
	for _, uid := range t.agents {
		tests = append(tests, ast.Principal().Equal(ast.Value(uid)))
	}
	return anyOf(tests)
}

// notOver tests if the rule is not over. At the very instant it is.
func (t *terms) notOver() []ast.Node {
	if t.until.IsZero() {
		return nil
	}
	form := "2006-01-02T15:04:05Z"
	if t.until.Nanosecond() != 0 {
		form = "2006-01-02T15:04:05.000Z"
	}
	now := ast.Context().Access("pdp").Access("now")
	return []ast.Node{now.LessThan(ast.DatetimeExtensionCall(ast.String(t.until.Format(form))))}
}

func setOf(uids []types.EntityUID) ast.Node {
	nodes := make([]ast.Node, len(uids))
	for i, uid := range uids {
		nodes[i] = ast.Value(uid)
	}
	return ast.Set(nodes...)
}

// allOf joins tests, one at least, from left to right, as a parser would: the policy is the same
// as the one in its text.
func allOf(tests []ast.Node) ast.Node {
	all := tests[0]
	for _, t := range tests[1:] {
		all = all.And(t)
	}
	return all
}

// anyOf joins tests to a tree that is as flat as can be, because every level is a call.
func anyOf(tests []ast.Node) ast.Node {
	if len(tests) == 1 {
		return tests[0]
	}
	half := (len(tests) + 1) / 2
	return anyOf(tests[:half]).Or(anyOf(tests[half:]))
}
