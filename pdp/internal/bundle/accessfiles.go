package bundle

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
	"go.yaml.in/yaml/v3"

	"policy-service/evaluation"
	"policy-service/obligations"
	"policy-service/pdp/internal/access"
	"policy-service/pdp/internal/document"
	"policy-service/pdp/internal/source"
)

// What declarations are about: the wire type of tools, and the actions.
const (
	toolType       = "tool"
	toolInvoke     = "tool.invoke"
	GrantAction    = "capability.grant"
	DelegateAction = evaluation.DelegateAction
)

// Grants reports whether an action is that of a question whether a capability may be made.
func Grants(action string) bool { return action == GrantAction || action == DelegateAction }

// Declared is a tool access declaration, with the policies that are made from it.
type Declared struct {
	*access.Declaration
	// Name is the beginning of the policies' ids, and the name of the obligation: access.OWNER at the
	// root, and access.TENANT/OWNER in a tenant.
	Name     string
	Policies []*Policy // in the order in which they are made, and not bound to obligations
}

// declaration reads an access declaration. It is nil if the file has an error.
func (l *Loading) declaration(name string, use *Usage, problems *Problems) *access.Declaration {
	if use.Exceeded {
		return nil
	}
	l.Did.AccessFiles++
	d, ok := access.Read(name, l.files.Content[name], problems)
	if !ok {
		return nil
	}
	return d
}

// declare adds what a declaration is made into. An owner of tools declares once on each level.
func (o *own) declare(d *Declared, problems *Problems) {
	for _, other := range o.declared {
		if other.Owner == d.Owner {
			problems.Add(d.File, d.At.Line, d.At.Column, "access_owner_twice",
				fmt.Sprintf("the tools of %s are declared already, at %s:%d:%d", Quote(d.Owner), other.File, other.At.Line, other.At.Column),
				"write the rules of both into one file")
			return
		}
	}
	o.declared = append(o.declared, d)
	o.policies = append(o.policies, d.Policies...)
}

// policiesOf makes the policies of a declaration of one owner of files. From here on they are
// policies as any others.
func (b *Bundle) policiesOf(d *access.Declaration, use *Usage, problems *Problems) *Declared {
	d.Capability = cmp.Or(d.Capability, b.Config.Capability)
	made := newDeclared(d, use.Owner)
	if b.lacks(d, problems) {
		return made
	}
	grant := types.NewEntityUID(b.Config.ActionType, GrantAction)
	made.make(access.Names{Type: b.declaredType, Actions: b.accessActions(), Grant: grant}, use, problems)
	return made
}

func newDeclared(d *access.Declaration, tenant string) *Declared {
	name := access.ReservedPrefix + d.Owner
	if tenant != evaluation.DefaultTenant {
		name = access.ReservedPrefix + tenant + "/" + d.Owner
	}
	return &Declared{Declaration: d, Name: name}
}

// make makes the policies. Each is held to the bounds of a text in Cedar's syntax, because an
// author could have written it.
func (d *Declared) make(names access.Names, use *Usage, problems *Problems) {
	for _, m := range d.Declaration.Policies(d.Name, names, problems) {
		at := entityPlace{d.File, m.At.Line, m.At.Column}
		var found Problems
		if ok := checkText(d.File, m.Cedar.MarshalCedar(), use, &found); !ok {
			for i := range found {
				found[i].Line, found[i].Column = at.line, at.column
			}
			*problems = append(*problems, found...)
			return
		}
		p := newPolicy(m.Cedar, m.ID, use.Owner, at)
		p.Access, p.Until = d.Owner, m.Until
		d.Policies = append(d.Policies, p)
	}
}

// Repeats reports if the policy permits nothing but what others of the same declaration permit: it is there
// to be on record.
func (p *Policy) Repeats() bool { return Observes(p.Id) }

// Observes reports if a policy by this id is one that [Policy.Repeats]. No author can give such an id.
func Observes(id string) bool {
	return strings.HasPrefix(id, access.ReservedPrefix) && strings.HasSuffix(id, ".observe")
}

// declaredType is the type of Cedar that a wire type stands for, if the schema declares it.
func (b *Bundle) declaredType(wire string) (types.EntityType, bool) {
	typ, ok := b.Config.EntityType(wire)
	return typ, ok && (b.Schema == nil || b.Schema.Declares(typ))
}

// accessActions are the actions that declarations are about, as far as the schema declares them.
func (b *Bundle) accessActions() (actions []types.EntityUID) {
	for _, name := range []types.String{toolInvoke, GrantAction} {
		uid := types.NewEntityUID(b.Config.ActionType, name)
		if b.Schema == nil || b.Schema.Actions[uid] != nil {
			actions = append(actions, uid)
		}
	}
	return actions
}

// lacks says once for a whole declaration what the bundle has to declare for its policies.
func (b *Bundle) lacks(d *access.Declaration, problems *Problems) bool {
	bad := func(what, try string) bool {
		problems.Add(d.File, d.At.Line, d.At.Column, "access_schema", what, try)
		return true
	}
	tool, ok := b.declaredType(toolType)
	if !ok {
		return bad("the schema declares no entity type for the wire type tool, whose access this file declares",
			"declare entity Tool in the schema, and write types: {tool: Tool} into "+source.ConfigFile)
	}
	if b.Schema == nil {
		return false
	}
	about := b.Schema.below(b.accessActions(), tool)
	if len(about) == 0 {
		return bad(fmt.Sprintf("the schema declares no action %q on resources of type %s, which this file is about", toolInvoke, tool),
			fmt.Sprintf("declare it: action %q appliesTo { principal: [Agent], resource: [%s] }", toolInvoke, tool))
	}
	for _, a := range about {
		if a.Context["pdp"].Shape.Members[resourceMember].Shape == nil {
			return bad(fmt.Sprintf("the schema declares the context.pdp of action %q without the member %s, which tells one owner's tools from another's",
				string(a.Up.Uid.ID), resourceMember), "declare pdp as "+pdpDeclared+", or leave it out: it is added")
		}
	}
	if !slices.ContainsFunc(d.Rules, func(r access.Rule) bool { return r.Agent.Name != "" }) {
		return false
	}
	for _, wire := range d.Subjects {
		const try = "list the types of your agents under subjects:, as requests name them, or declare the type in the schema"
		typ, ok := b.declaredType(wire)
		if !ok {
			return bad(fmt.Sprintf("the schema declares no entity type for %q, which names of agents stand for here", wire), try)
		}
		if !slices.ContainsFunc(about, func(a *actionShape) bool { return slices.Contains(a.Principals, typ) }) {
			return bad(fmt.Sprintf("the schema lets no principal of type %s do %q, and names of agents stand for that type here", typ, toolInvoke), try)
		}
	}
	return false
}

// toCheck are the policies that are held against the schema. Those that are made from declarations
// read nothing of a context but context.pdp, which is the same for all actions that they are about.
// So each has a form for one action of those that take the same principals and resources, because
// a schema may have an action of its own for each tool.
func (b *Bundle) toCheck(o *own) (all [][]*Policy) {
	different := map[string]types.EntityUID{}
	if tool, _ := b.declaredType(toolType); len(o.declared) > 0 {
		for _, a := range b.Schema.below(b.accessActions(), tool) {
			takes := fmt.Sprint(a.Principals, a.Resources)
			if _, known := different[takes]; !known {
				different[takes] = a.Up.Uid
			}
		}
	}
	for _, p := range o.policies {
		forms := []*Policy{p}
		if p.Access != "" {
			forms = nil
			for _, action := range ByName(different) {
				forms = append(forms, p.only(action))
			}
		}
		all = append(all, forms)
	}
	return all
}

// below are the actions on resources of a type that are one of the given ones or below it, in the
// order of their names.
func (s *Schema) below(given []types.EntityUID, resource types.EntityType) (all []*actionShape) {
	for _, a := range s.Actions {
		if slices.Contains(a.Resources, resource) && slices.ContainsFunc(given, a.Up.In) {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(a, b *actionShape) int { return compareUIDs(a.Up.Uid, b.Up.Uid) })
	return all
}

// defineApprovals adds the obligations that the view's declarations define.
func (v *View) defineApprovals() {
	known := maps.Clone(v.Obligations)
	for _, d := range v.Declared {
		definition, ok := approvalOf(d.Declaration, d.Name, &v.obligationProblems)
		if _, taken := known[d.Name]; ok && !taken { // what takes it is refused
			known[d.Name] = definition
		}
	}
	if len(known) > len(v.Obligations) {
		v.Obligations = known
	}
}

// approvalOf is the obligation that a declaration defines, if one of its rules demands it.
func approvalOf(d *access.Declaration, name string, problems *Problems) (Definition, bool) {
	at := cmp.Or(d.Approval, d.At)
	if d.Approval == nil && !d.RequiresApproval() {
		return Definition{}, false
	}
	typ, _ := obligations.Lookup(obligations.ApprovalRequired)
	r := obligationReader{Map: document.Map{File: d.File, Problems: problems}}
	definition := Definition{&obligations.Definition{Name: name, Type: typ, On: typ.On}, d.File, at.Line, at.Column}
	definition.Properties = r.properties(approvalProperties(d), typ)
	return definition, d.RequiresApproval()
}

// approvalProperties are the properties of a declaration's obligation: those of the file, over what
// holds if the file does not say it.
func approvalProperties(d *access.Declaration) *yaml.Node {
	all := &yaml.Node{Kind: yaml.MappingNode, Line: d.At.Line, Column: d.At.Column}
	if d.Approval != nil {
		if d.Approval.Kind != yaml.MappingNode {
			return d.Approval // what is wrong with it is told
		}
		all.Line, all.Column, all.Content = d.Approval.Line, d.Approval.Column, slices.Clone(d.Approval.Content)
	}
	for _, member := range [][2]string{
		{"template", d.Owner},
		{"message", "${principal.id} wants to use ${resource.id}."},
	} {
		name := func(n *yaml.Node) bool { return n.Value == member[0] }
		if !slices.ContainsFunc(membersOf(all), name) {
			for _, text := range member {
				all.Content = append(all.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text, Line: all.Line, Column: all.Column})
			}
		}
	}
	return all
}

// membersOf are the names of the members of a mapping.
func membersOf(n *yaml.Node) (keys []*yaml.Node) {
	for i := 0; i < len(n.Content); i += 2 {
		keys = append(keys, n.Content[i])
	}
	return keys
}

// refuseReserved refuses what is written by hand and has a name that only what is made from
// declarations may have, if the view has a declaration. So a record that names such a policy
// cannot mean another one. The fault of a tenant that declares below a root that does not is at
// the tenant.
func (v *View) refuseReserved(o *own, root *View) {
	const what, try = "%s %s has a name that is kept for what is made from the files in access/", "use another name"
	reserved := func(name string) bool { return strings.HasPrefix(name, access.ReservedPrefix) }
	named := func(p *Policy) bool { return p.Named && reserved(p.Id) } // the policies of access.cedar are called access.cedar#0
	byHand := func(d Definition) bool {
		return d.Definition != nil && reserved(d.Name) && !source.IsAccess(d.File)
	}
	above := root != nil && len(root.Declared) > 0
	if len(o.declared) == 0 && !above {
		return
	}
	for _, p := range o.policies {
		if p.Access == "" && named(p) {
			v.problems.Add(p.File, p.Line, p.Column, "access_reserved", fmt.Sprintf(what, "policy", Quote(p.Id)), try)
		}
	}
	for name, d := range v.Obligations {
		if byHand(d) && (root == nil || root.Obligations[name].Definition != d.Definition) {
			v.problems.Add(d.File, d.Line, d.Column, "access_reserved", fmt.Sprintf(what, "obligation", Quote(name)), try)
		}
	}
	if root == nil || above {
		return
	}
	var theirs []string
	for _, p := range root.Policies {
		if named(p) {
			theirs = append(theirs, "policy "+Quote(p.Id))
		}
	}
	for name, d := range ByName(root.Obligations) {
		if byHand(d) {
			theirs = append(theirs, "obligation "+Quote(name))
		}
	}
	if len(theirs) > 0 {
		first := o.declared[0]
		v.problems.Add(first.File, first.At.Line, first.At.Column, "access_reserved",
			"there can be no declaration here, because the root of the bundle has the "+theirs[0]+", a name that is kept for what is made from declarations",
			"rename it in the root")
	}
}

// AccessPolicies is what one tool access declaration is made into, as an author could have written
// it.
type AccessPolicies struct {
	Tenant      string // default for the root
	Owner, File string
	Cedar       string // the policies, with their ids
	Obligations string // for obligations.yaml; "" if the policies demand no approval
}

// Access lists what is made from the tool access declarations of the bundle, by tenant and owner.
func (b *Bundle) Access() (all []AccessPolicies) {
	for tenant, v := range ByName(b.Views) {
		for _, d := range v.Declared {
			all = append(all, AccessPolicies{tenant, d.Owner, d.File, d.cedar(), d.obligations()})
		}
	}
	slices.SortFunc(all, func(a, b AccessPolicies) int {
		return cmp.Or(strings.Compare(a.Tenant, b.Tenant), strings.Compare(a.Owner, b.Owner))
	})
	return all
}

func (d *Declared) cedar() string {
	var texts []string
	for _, p := range d.Policies {
		texts = append(texts, string(p.Cedar.MarshalCedar())+"\n")
	}
	return strings.Join(texts, "\n")
}

// obligations are the lines of obligations.yaml that define what the policies demand.
func (d *Declared) obligations() string {
	if !d.RequiresApproval() {
		return ""
	}
	pair := func(name string, value *yaml.Node) []*yaml.Node {
		return []*yaml.Node{{Kind: yaml.ScalarNode, Tag: "!!str", Value: name}, value}
	}
	definition := &yaml.Node{Kind: yaml.MappingNode, Content: append(
		pair("type", &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: obligations.ApprovalRequired}),
		pair("properties", bare(approvalProperties(d.Declaration)))...)}
	var text bytes.Buffer
	to := yaml.NewEncoder(&text)
	to.SetIndent(2)
	// What was read as YAML can be written as YAML, to a place that takes everything.
	_ = to.Encode(&yaml.Node{Kind: yaml.MappingNode, Content: pair(d.Name, definition)})
	_ = to.Close()
	return text.String()
}

// bare is a node without comments and anchors, each member on a line.
func bare(n *yaml.Node) *yaml.Node {
	plain := &yaml.Node{Kind: n.Kind, Tag: n.Tag, Value: n.Value}
	if n.Kind == yaml.ScalarNode {
		plain.Style = n.Style
	}
	for _, child := range n.Content {
		plain.Content = append(plain.Content, bare(child))
	}
	return plain
}

// ReadAccess lists what is wrong with one tool access declaration by itself. If a bundle is known,
// a load says more.
func ReadAccess(file string, text []byte) (problems Problems) {
	d, ok := access.Read(file, text, &problems)
	if ok {
		use := UsageOf(source.OwnerOf(file))
		made := newDeclared(d, use.Owner)
		_, _ = approvalOf(d, made.Name, &problems)
		// Which types there are, the bundle says.
		anyType := func(string) (types.EntityType, bool) { return "Any", true }
		made.make(access.Names{Type: anyType, Actions: []types.EntityUID{types.NewEntityUID("Action", toolInvoke)}}, use, &problems)
	}
	return cut(problems.Sorted())
}
