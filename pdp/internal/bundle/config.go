package bundle

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
	"go.yaml.in/yaml/v3"

	"policy-service/evaluation"
	"policy-service/pdp/internal/access"
	"policy-service/pdp/internal/document"
	"policy-service/pdp/internal/source"
)

// Config is bundle.yaml: every switch that changes an answer.
type Config struct {
	namespace         types.EntityType // "" or a path
	ActionType        types.EntityType
	ApprovalType      types.EntityType
	Types             map[string]types.EntityType // by the wire names that types: lists
	mapped            map[types.EntityType]bool   // the types that wire names become
	Attributes        map[types.EntityType]AttributeMode
	Parents           map[types.EntityType][]parentRule
	Known             map[types.EntityType]bool
	volatile          []string // members of the context that no approval is bound to
	AllowSelfApproval []string // templates
	// TenantParents are the entities that tenants' own entities may have as parents though the root names them. Where
	// the root demands an approval, or grants a capability, only those that are TenantApprovers too count as parents.
	TenantParents, TenantApprovers EntityList
	// Capability is that of the tool access declarations that do not say it, also of tenants.
	Capability access.Capability

	EvaluateUnknown    bool // unknown_entities: evaluate
	RejectUnknown      bool // unknown_properties: reject
	IgnoreForbidErrors bool // forbid_errors: ignore
	AllowUndeclared    bool // undeclared_obligations: allow
	October            bool // obligations: october
	AllowTrivial       bool
}

// parentRule says that the values of an attribute are the ids of parents, and which type the
// parents have.
type parentRule struct {
	Attribute    string
	Parent       types.EntityType
	line, column int
}

// EntityType maps the wire name of a type to Cedar's name. It fails for a name that is no type
// or is reserved. It also fails for a name on the right-hand side of types:, which would be a
// second wire name for one type.
func (c *Config) EntityType(wire string) (types.EntityType, bool) {
	typ, listed := c.Types[wire]
	if !listed {
		if typ = types.EntityType(wire); c.mapped[typ] {
			return "", false
		}
	}
	if !legalType(typ) {
		return "", false
	}
	return c.Qualify(typ), true
}

// ParentsFrom reports if an attribute gives parents to entities of a type.
func (c *Config) ParentsFrom(typ types.EntityType, attribute string) bool {
	return slices.ContainsFunc(c.Parents[typ], func(r parentRule) bool { return r.Attribute == attribute })
}

// Qualify puts a type into the namespace of the bundle, if the bundle has one.
func (c *Config) Qualify(typ types.EntityType) types.EntityType {
	if c.namespace == "" {
		return typ
	}
	return c.namespace + "::" + typ
}

// WireType is the name that requests use for a type of Cedar. It is the inverse of EntityType.
func (c *Config) WireType(typ types.EntityType) (string, bool) {
	wire := string(typ)
	if c.namespace != "" {
		rest, ok := strings.CutPrefix(wire, string(c.namespace)+"::")
		if !ok {
			return "", false
		}
		wire = rest
	}
	for name, mapped := range c.Types {
		if string(mapped) == wire {
			wire = name
			break
		}
	}
	back, ok := c.EntityType(wire)
	return wire, ok && back == typ
}

// Ref is how requests name an entity of a type of Cedar.
func (c *Config) Ref(typ, id string) (evaluation.Ref, bool) {
	wire, known := c.WireType(types.EntityType(typ))
	return evaluation.Ref{Type: wire, ID: id}, known
}

// legalType reports if a request may name entities of the type.
func legalType(typ types.EntityType) bool {
	for part := range strings.SplitSeq(string(typ), "::") {
		if part == "__cedar" {
			return false
		}
	}
	_, err := types.NewEntityType(string(typ))
	return err == nil && !IsActionType(typ)
}

// IsActionType reports if entities of the type are actions.
func IsActionType(typ types.EntityType) bool {
	return typ == "Action" || strings.HasSuffix(string(typ), "::Action")
}

func parseConfig(text []byte, problems *Problems) Config {
	c := Config{ActionType: "Action", ApprovalType: approvalType}
	if text == nil {
		return c
	}
	root, ok := document.Read(source.ConfigFile, text, problems)
	if !ok {
		return c
	}
	byKey := map[string]func(*yaml.Node){}
	doc := document.Map{File: source.ConfigFile, Problems: problems, Known: byKey}
	var attributes, parents, known, tenants *yaml.Node
	byKey["namespace"] = func(n *yaml.Node) { c.namespace = types.EntityType(pathOfType(&doc, n)) }
	byKey["types"] = func(n *yaml.Node) { c.Types, c.mapped = typeNames(&doc, n) }
	byKey["volatile"] = func(n *yaml.Node) { c.volatile = doc.Names(n) }
	byKey["allow_self_approval"] = func(n *yaml.Node) { c.AllowSelfApproval = doc.Names(n) }
	byKey["attributes"] = func(n *yaml.Node) { attributes = n }
	byKey["parents"] = func(n *yaml.Node) { parents = n }
	byKey["known"] = func(n *yaml.Node) { known = n }
	byKey["tenants"] = func(n *yaml.Node) { tenants = n }
	either := func(off, on string, to *bool) func(*yaml.Node) {
		return func(n *yaml.Node) { *to = doc.OneOf(n, off, on) == on }
	}
	byKey["unknown_entities"] = either("deny", "evaluate", &c.EvaluateUnknown)
	byKey["unknown_properties"] = either("drop", "reject", &c.RejectUnknown)
	byKey["forbid_errors"] = either("deny", "ignore", &c.IgnoreForbidErrors)
	byKey["undeclared_obligations"] = either("deny", "allow", &c.AllowUndeclared)
	byKey["obligations"] = either("july", "october", &c.October)
	byKey["allow_trivial"] = either("false", "true", &c.AllowTrivial)
	byKey["access"] = func(n *yaml.Node) {
		m := document.Map{File: doc.File, Problems: problems}
		m.Known = map[string]func(*yaml.Node){"capability": func(n *yaml.Node) { c.Capability = access.ReadCapability(&m, n) }}
		m.Read(n)
	}
	doc.Read(root)

	// Keys that name types are read after the keys that say how names of types are read.
	c.ActionType, c.ApprovalType = c.Qualify("Action"), c.Qualify(approvalType)
	c.Attributes = map[types.EntityType]AttributeMode{}
	doc.Each(attributes, func(name, value *yaml.Node) {
		modes := map[string]AttributeMode{"fill": Fill, "store": Stored, "request": Request}
		c.Attributes[c.TypeIn(&doc, name)] = modes[doc.OneOf(value, "fill", "store", "request")]
	})
	c.Parents = map[types.EntityType][]parentRule{}
	doc.Each(parents, func(name, rules *yaml.Node) {
		typ := c.TypeIn(&doc, name)
		doc.Each(rules, func(attribute, parent *yaml.Node) {
			c.Parents[typ] = append(c.Parents[typ], parentRule{
				Attribute: attribute.Value,
				Parent:    c.Qualify(types.EntityType(pathOfType(&doc, parent))),
				line:      parent.Line,
				column:    parent.Column,
			})
		})
		slices.SortFunc(c.Parents[typ], func(a, b parentRule) int { return strings.Compare(a.Attribute, b.Attribute) })
	})
	c.Known = map[types.EntityType]bool{}
	doc.List(known, func(name *yaml.Node) { c.Known[c.TypeIn(&doc, name)] = true })
	c.readTenants(&doc, tenants)
	return c
}

// pathOfType reads the name of a type, which may be a path of identifiers.
func pathOfType(m *document.Map, n *yaml.Node) string {
	if m.Text(n) && !legalType(types.EntityType(n.Value)) {
		m.Bad(n, "type_name", "this is no name of a Cedar type that requests may use",
			"write identifiers joined by ::, not ending in Action")
	}
	return n.Value
}

// typeNames reads types: as a map from wire names to types, with the set of these types.
func typeNames(m *document.Map, n *yaml.Node) (map[string]types.EntityType, map[types.EntityType]bool) {
	names, mapped := map[string]types.EntityType{}, map[types.EntityType]bool{}
	m.Each(n, func(wire, cedar *yaml.Node) {
		typ := types.EntityType(pathOfType(m, cedar))
		if mapped[typ] {
			m.Bad(cedar, "types_not_injective", fmt.Sprintf("two wire names become the type %s", typ),
				"give each wire name a type of its own")
		}
		names[wire.Value], mapped[typ] = typ, true
	})
	return names, mapped
}

// likeWireName suggests a wire name that bundle.yaml lists: that of the type of this name, or one that is near.
func (c *Config) likeWireName(name string) document.Near {
	for _, wire := range slices.Sorted(maps.Keys(c.Types)) {
		if string(c.Types[wire]) == name {
			return document.Near(wire)
		}
	}
	return DidYouMean(name, maps.Keys(c.Types))
}

// TypeIn reads the wire name of a type in a document and returns Cedar's name.
func (c *Config) TypeIn(m *document.Map, n *yaml.Node) types.EntityType {
	typ, ok := c.EntityType(n.Value)
	if m.Text(n) && !ok {
		near := c.likeWireName(n.Value)
		m.Bad(n, "type_name", "this is no wire name of a type"+near.String(), "use the name that requests send, as types: lists it", near.At(n))
	}
	return typ
}

// ListedTypes are the types that bundle.yaml or the PDP treats in a special way, and "" for
// all other types.
func (c *Config) ListedTypes() []types.EntityType {
	listed := []types.EntityType{"", c.ApprovalType}
	listed = slices.AppendSeq(listed, maps.Keys(c.Attributes))
	listed = slices.AppendSeq(listed, maps.Keys(c.Parents))
	listed = slices.AppendSeq(listed, maps.Keys(c.Known))
	slices.Sort(listed)
	return slices.Compact(listed)
}
