package access

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cedar-policy/cedar-go/types"
	"go.yaml.in/yaml/v3"

	"policy-service/pdp/internal/document"
)

// The bounds of a declaration.
const (
	maxRules    = 1_000
	maxTools    = 1_000 // of a rule
	maxSubjects = 32
	maxID       = 1_024 // bytes of the name of an agent or a tool
	maxLiteral  = 8_192 // bytes of an entity as policies write it: an id may have to be escaped
	// maxPattern and maxChain are the bounds of policies written by hand. A policy that is printed
	// from a declaration can take its place.
	maxPattern = 512
	maxChain   = 16
)

var (
	legalOwner = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
	timeForm   = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,3})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)
)

// Read reads one declaration. Problems have their places; with an error there is no declaration.
func Read(file string, text []byte, problems *document.Problems) (*Declaration, bool) {
	var found document.Problems
	defer func() { *problems = append(*problems, found...) }()
	root, ok := document.Read(file, text, &found)
	if !ok {
		return nil, false
	}
	r := reader{
		Map: document.Map{File: file, Problems: &found},
		d:   &Declaration{File: file, At: root, Subjects: []string{"agent"}},
	}
	r.declaration(root)
	if found.Refuse() {
		return nil, false
	}
	return r.d, true
}

// reader reads one file.
type reader struct {
	document.Map
	d *Declaration
}

// read reads a mapping, and returns the values of the keys, each by its place in keys.
func (r *reader) read(n *yaml.Node, keys ...string) []*yaml.Node {
	values := make([]*yaml.Node, len(keys))
	m := document.Map{File: r.File, Problems: r.Problems, Known: map[string]func(*yaml.Node){}}
	for i, key := range keys {
		m.Known[key] = func(n *yaml.Node) { values[i] = n }
	}
	m.Read(n)
	return values
}

// text is a text that is not empty. A number or a date is none: in YAML 1.0 and 1.00 are the same.
func (r *reader) text(n *yaml.Node) (string, bool) { return r.textOf(n, maxID) }

func (r *reader) textOf(n *yaml.Node, most int) (string, bool) {
	switch {
	case n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null":
		return "", r.Bad(n, "yaml_form", "this must be a text", "write one name")
	case n.ShortTag() != "!!str":
		return "", r.Bad(n, "yaml_form", "this must be a text", "write it in quotes")
	case n.Value == "":
		return "", r.Bad(n, "yaml_form", "the text is empty", "write a name, or leave the key out")
	case len(n.Value) > most:
		return "", r.Bad(n, "access_bound", fmt.Sprintf("the text has more than %d bytes", most), "write a shorter one")
	}
	return n.Value, true
}

// yes reads true or false.
func (r *reader) yes(n *yaml.Node) bool {
	if n == nil {
		return false
	}
	said, ok := document.Bool(n)
	if !ok {
		return r.Bad(n, "yaml_form", "this must be true or false", "write it without quotes and tags")
	}
	return said
}

func (r *reader) declaration(root *yaml.Node) {
	v := r.read(root, "owner", "mode", "default", "capability", "subjects", "approval", "rules")
	owner, mode, otherwise, capability, subjects, approval, rules := v[0], v[1], v[2], v[3], v[4], v[5], v[6]
	if root.Kind != yaml.MappingNode {
		return
	}
	r.owner(owner)
	r.mode(root, mode, otherwise)
	if r.d.capabilityAt = r.d.defaultAt; capability != nil {
		r.d.Capability, r.d.capabilityAt = ReadCapability(&r.Map, capability), capability
	}
	if subjects != nil {
		r.subjects(subjects)
	}
	if r.d.Approval = approval; approval != nil && approval.Kind != yaml.MappingNode {
		r.Bad(approval, "yaml_form", "approval must be a mapping", "write the properties of approval_required, name: value")
	}
	if rules != nil && len(rules.Content) > maxRules {
		r.Bad(rules, "access_bound", fmt.Sprintf("there are more than %d rules", maxRules),
			"name more tools in one rule, or agents by an entity that they are in")
		return
	}
	r.List(rules, r.rule)
	if !r.Problems.Refuse() {
		r.compare()
	}
}

// ReadCapability reads if calls need a capability.
func ReadCapability(m *document.Map, n *yaml.Node) Capability {
	return Capability(m.OneOf(n, string(None), string(Observe), string(Required)))
}

// owner reads whose tools the declaration is about.
func (r *reader) owner(n *yaml.Node) {
	if n == nil {
		base := path.Base(r.File)
		r.d.Owner = strings.TrimSuffix(base, path.Ext(base))
		if !legalOwner.MatchString(r.d.Owner) {
			r.Bad(r.d.At, "access_owner", "the name of the file is no name of an owner",
				"add owner: with letters, digits, dots, underscores and hyphens, 128 at most")
		}
		return
	}
	r.d.At = n
	var ok bool
	if r.d.Owner, ok = r.text(n); ok && !legalOwner.MatchString(r.d.Owner) {
		r.Bad(n, "access_owner", "this is no name of an owner",
			"use letters, digits, dots, underscores and hyphens, 128 at most, a letter or a digit first")
	}
}

// mode reads the mode, and the default for agents that no rule names.
func (r *reader) mode(root, mode, otherwise *yaml.Node) {
	if mode == nil {
		r.Bad(root, "missing_key", "the declaration has no mode", "add mode: allowlist, denylist, open or hybrid")
	} else {
		r.d.Mode = Mode(r.OneOf(mode, string(Allowlist), string(Denylist), string(Open), string(Hybrid)))
	}
	r.d.Allows, r.d.defaultAt = r.d.Mode == Denylist || r.d.Mode == Open, mode
	if otherwise == nil {
		if r.d.Mode == Hybrid {
			r.Bad(mode, "missing_key", "hybrid has no default", "add default: allow or deny")
		}
		return
	}
	r.d.defaultAt = otherwise
	allows := map[string]bool{"allow": true, "deny": false}
	switch said, ok := allows[r.OneOf(otherwise, "allow", "deny")]; {
	case !ok:
	case r.d.Mode == Hybrid:
		r.d.Allows = said
	case (r.d.Mode == Allowlist || r.d.Allows) && said != r.d.Allows:
		r.Bad(otherwise, "access_default", fmt.Sprintf("%s has another default", r.d.Mode),
			"leave default out, or write mode: hybrid, which has both")
	}
}

// subjects reads the types that bare names stand for.
func (r *reader) subjects(n *yaml.Node) {
	r.d.Subjects = nil
	if n.Kind == yaml.SequenceNode && (len(n.Content) == 0 || len(n.Content) > maxSubjects) {
		r.Bad(n, "access_subjects", fmt.Sprintf("there must be 1 to %d types", maxSubjects), "write [agent]")
		return
	}
	r.List(n, func(n *yaml.Node) {
		name, ok := r.text(n)
		switch {
		case !ok:
		case slices.Contains(r.d.Subjects, name):
			r.Bad(n, "access_subjects", "the type is named twice", "name it once")
		default:
			r.d.Subjects, r.d.SubjectsAt = append(r.d.Subjects, name), append(r.d.SubjectsAt, n)
		}
	})
}

func (r *reader) rule(n *yaml.Node) {
	v := r.read(n, "agent", "tools", "expires", "requires_approval", "effect")
	agent, tools, expires, approval, effect := v[0], v[1], v[2], v[3], v[4]
	if n.Kind != yaml.MappingNode {
		return
	}
	rule := Rule{At: n, subjects: r.d.Subjects, RequiresApproval: r.yes(approval), Denies: r.d.Mode == Denylist}
	if agent == nil {
		r.Bad(n, "missing_key", "the rule has no agent", `add agent: with a name, {type, id}, {in: …} or "*"`)
	} else {
		rule.Agent = r.agent(agent)
	}
	if tools == nil {
		r.Bad(n, "missing_key", "the rule has no tools", `add tools: with a list of names, or "*"`)
	} else {
		rule.Tools = r.tools(tools)
	}
	if expires != nil {
		rule.Expires = r.instant(expires)
	}
	switch {
	case effect != nil && r.d.Mode == Hybrid:
		rule.Denies = r.OneOf(effect, "allow", "deny") == "deny"
	case effect != nil && r.d.Mode != "":
		r.Bad(effect, "access_effect", fmt.Sprintf("in %s the mode says what a rule does", r.d.Mode),
			"leave effect out, or write mode: hybrid")
	case effect == nil && r.d.Mode == Hybrid:
		r.Bad(n, "missing_key", "the rule has no effect", "add effect: allow or deny")
	}
	switch {
	case rule.RequiresApproval && r.d.Mode == Denylist:
		r.Bad(approval, "access_approval", "rules of denylist deny, and nobody can approve a denial",
			"write mode: hybrid, with effect: allow on this rule")
	case rule.RequiresApproval && rule.Denies:
		r.Bad(approval, "access_approval", "the rule denies, and nobody can approve a denial",
			"write effect: allow, or leave requires_approval out")
	case !rule.RequiresApproval && r.d.Mode == Open:
		r.Bad(n, "access_open_rule", "the rule does nothing: open allows everything",
			"add requires_approval: true, or write another mode")
	}
	rule.least = least(rule.Tools)
	r.d.Rules = append(r.d.Rules, rule)
}

// agent reads whom a rule is about.
func (r *reader) agent(n *yaml.Node) Agent {
	a := Agent{At: n}
	if n.Kind != yaml.MappingNode {
		name, ok := r.text(n)
		switch a.All = name == "*"; {
		case !ok || a.All:
		case strings.Contains(name, "*"): // as the name of one agent it would let a denial miss all that it seems to mean
			r.Bad(n, "access_agent", "a star is everybody, and is no part of a name",
				`write {in: 'Role::"release"'} for many, or {type: agent, id: NAME} for an id that has a star`)
		default:
			a.Name = name
		}
		return a
	}
	v := r.read(n, "type", "id", "in")
	typ, id, in := v[0], v[1], v[2]
	switch {
	case in != nil && typ == nil && id == nil:
		a.In = r.entity(in)
	case in == nil && typ != nil && id != nil:
		a.At = typ
		a.Type, _ = r.text(typ)
		a.ID, _ = r.text(id)
	default:
		r.Bad(n, "access_agent", "this is neither one entity nor everybody in one",
			`write {type: agent, id: NAME} or {in: 'Role::"release"'}`)
	}
	return a
}

// entity reads an entity as policies write it.
func (r *reader) entity(n *yaml.Node) (uid types.EntityUID) {
	text, ok := r.textOf(n, maxLiteral)
	if !ok {
		return uid
	}
	err := uid.UnmarshalCedar([]byte(text))
	if err == nil {
		_, err = types.NewEntityType(string(uid.Type))
	}
	switch {
	case err != nil || strings.Count(string(uid.Type), "::")+1 > maxChain:
		r.Bad(n, "access_agent", "this is no entity", `write it as policies do: 'Role::"release"'`)
	case len(uid.ID) > maxID:
		r.Bad(n, "access_bound", fmt.Sprintf("the id has more than %d bytes", maxID), "write a shorter one")
	}
	return uid
}

// tools reads a name, or a list of names.
func (r *reader) tools(n *yaml.Node) (tools []Tool) {
	items := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		items = n.Content
	}
	switch {
	case len(items) == 0:
		r.Bad(n, "access_no_tools", "the list of tools is empty", `name tools, write "*" for all, or remove the rule`)
	case len(items) > maxTools:
		r.Bad(n, "access_bound", fmt.Sprintf("there are more than %d tools in one rule", maxTools),
			"write beginnings of names, or several rules")
		items = nil
	}
	for _, item := range items {
		name, ok := r.text(item)
		if !ok {
			continue
		}
		t := Tool{Name: name}
		t.Name, t.Prefix = strings.CutSuffix(name, "*")
		switch {
		case strings.Contains(t.Name, "*"):
			r.Bad(item, "access_glob", "a star stands for the end of a name, and nowhere else",
				"write names, and beginnings of names with a star at the end")
		case t.Prefix && len(r.d.pattern(t.Name).MarshalCedar()) > maxPattern:
			r.Bad(item, "access_glob", fmt.Sprintf("owner and beginning make a pattern of more than %d bytes", maxPattern),
				"write a shorter beginning")
		}
		tools = append(tools, t)
	}
	return tools
}

// instant reads a point in time.
func (r *reader) instant(n *yaml.Node) time.Time {
	const try = "write it like 2030-01-31T12:00:00Z"
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" && n.ShortTag() != "!!timestamp" || !timeForm.MatchString(n.Value) {
		r.Bad(n, "access_expires", "this is no time with a zone, to the millisecond at most", try)
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, n.Value)
	t = t.UTC()
	if err != nil || t.Year() < 1970 || t.Year() > 9999 {
		r.Bad(n, "access_expires", "there is no such time in 1970 to 9999", try)
	}
	return t
}

// compare finds rules that cannot count beside others.
func (r *reader) compare() {
	known := map[string]*Rule{}
	for i := range r.d.Rules {
		rule := &r.d.Rules[i]
		if first, ok := known[rule.key()]; ok {
			r.Bad(rule.At, "access_equal_rules", fmt.Sprintf("the rule is equal to that of line %d", first.At.Line),
				"remove one of them")
			continue
		}
		known[rule.key()] = rule
	}
	if r.d.Mode != Hybrid {
		return
	}
	var denials []*Rule
	for i := range r.d.Rules {
		if rule := &r.d.Rules[i]; rule.Denies {
			denials = append(denials, rule)
		}
	}
	for i := range r.d.Rules {
		rule := &r.d.Rules[i]
		if rule.Denies {
			continue
		}
		above := slices.IndexFunc(denials, func(by *Rule) bool { return by.Covers(rule) })
		if above >= 0 {
			r.Bad(rule.At, "access_shadowed",
				fmt.Sprintf("the rule can never count: that of line %d denies all of it", denials[above].At.Line),
				"remove it, or let the other deny less")
		}
	}
}

// key is equal for rules with equal meaning.
func (r *Rule) key() string {
	var b strings.Builder
	wire, id := r.entities()
	wire = slices.Sorted(slices.Values(wire))
	fmt.Fprintf(&b, "%t %q %q %q %d %t %t", r.Agent.All, r.Agent.In.String(), wire, id, r.Expires.UnixMilli(),
		r.RequiresApproval, r.Denies)
	for _, t := range r.least {
		b.WriteString(" " + strconv.Quote(t.Name) + strconv.FormatBool(t.Prefix))
	}
	return b.String()
}
