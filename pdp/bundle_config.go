package pdp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
	"go.yaml.in/yaml/v3"
)

// config is bundle.yaml: every switch that changes an answer.
type config struct {
	namespace         types.EntityType // "" or a path
	actionType        types.EntityType
	approvalType      types.EntityType
	types             map[string]types.EntityType // wire names that are listed
	mapped            map[types.EntityType]bool   // what they become
	attributes        map[types.EntityType]attributeMode
	parents           map[types.EntityType][]parentRule
	known             map[types.EntityType]bool
	volatile          []string // members of the context that no approval is bound to
	allowSelfApproval []string // templates

	evaluateUnknown    bool // unknown_entities: evaluate
	rejectUnknown      bool // unknown_properties: reject
	ignoreForbidErrors bool // forbid_errors: ignore
	allowUndeclared    bool // undeclared_obligations: allow
	allowTrivial       bool
}

// parentRule says that an attribute's values are ids of parents of a type.
type parentRule struct {
	attribute    string
	parent       types.EntityType
	line, column int
}

// entityType maps a type's wire name to Cedar's. It fails for a name that is no
// type, that is reserved, or that stands on the right-hand side of types: and
// would thereby be a second wire name for one type.
func (c *config) entityType(wire string) (types.EntityType, bool) {
	typ, listed := c.types[wire]
	if !listed {
		if typ = types.EntityType(wire); c.mapped[typ] {
			return "", false
		}
	}
	if !legalType(typ) {
		return "", false
	}
	return c.qualify(typ), true
}

// parentsFrom reports whether an attribute gives parents.
func (c *config) parentsFrom(typ types.EntityType, attribute string) bool {
	return slices.ContainsFunc(c.parents[typ], func(r parentRule) bool { return r.attribute == attribute })
}

func (c *config) qualify(typ types.EntityType) types.EntityType {
	if c.namespace == "" {
		return typ
	}
	return c.namespace + "::" + typ
}

// wireType is the name by which requests mean a type of Cedar's, the way back of
// entityType.
func (c *config) wireType(typ types.EntityType) (string, bool) {
	wire := string(typ)
	if c.namespace != "" {
		rest, ok := strings.CutPrefix(wire, string(c.namespace)+"::")
		if !ok {
			return "", false
		}
		wire = rest
	}
	for name, mapped := range c.types {
		if string(mapped) == wire {
			wire = name
			break
		}
	}
	back, ok := c.entityType(wire)
	return wire, ok && back == typ
}

// legalType reports whether a request may name entities of the type.
func legalType(typ types.EntityType) bool {
	if typ == "Action" || strings.HasSuffix(string(typ), "::Action") {
		return false
	}
	for part := range strings.SplitSeq(string(typ), "::") {
		if part == "__cedar" {
			return false
		}
	}
	_, err := types.NewEntityType(string(typ))
	return err == nil
}

const configFile = "bundle.yaml"

func parseConfig(text []byte, problems *Problems) config {
	c := config{actionType: "Action", approvalType: approvalType}
	if text == nil {
		return c
	}
	root, ok := yamlDocument(configFile, text, problems)
	if !ok {
		return c
	}
	byKey := map[string]func(*yaml.Node){}
	doc := yamlMap{file: configFile, problems: problems, known: byKey}
	var attributes, parents, known *yaml.Node
	byKey["namespace"] = func(n *yaml.Node) { c.namespace = types.EntityType(doc.path(n)) }
	byKey["types"] = func(n *yaml.Node) { c.types, c.mapped = doc.typeNames(n) }
	byKey["volatile"] = func(n *yaml.Node) { c.volatile = doc.names(n) }
	byKey["allow_self_approval"] = func(n *yaml.Node) { c.allowSelfApproval = doc.names(n) }
	byKey["attributes"] = func(n *yaml.Node) { attributes = n }
	byKey["parents"] = func(n *yaml.Node) { parents = n }
	byKey["known"] = func(n *yaml.Node) { known = n }
	byKey["unknown_entities"] = func(n *yaml.Node) { c.evaluateUnknown = doc.oneOf(n, "deny", "evaluate") == "evaluate" }
	byKey["unknown_properties"] = func(n *yaml.Node) { c.rejectUnknown = doc.oneOf(n, "drop", "reject") == "reject" }
	byKey["forbid_errors"] = func(n *yaml.Node) { c.ignoreForbidErrors = doc.oneOf(n, "deny", "ignore") == "ignore" }
	byKey["undeclared_obligations"] = func(n *yaml.Node) { c.allowUndeclared = doc.oneOf(n, "deny", "allow") == "allow" }
	byKey["allow_trivial"] = func(n *yaml.Node) { c.allowTrivial = doc.oneOf(n, "false", "true") == "true" }
	doc.read(root)

	// What names types comes after what says how type names are read.
	c.actionType, c.approvalType = c.qualify("Action"), c.qualify(approvalType)
	c.attributes = map[types.EntityType]attributeMode{}
	doc.each(attributes, func(name, value *yaml.Node) {
		modes := map[string]attributeMode{"fill": fill, "store": stored, "request": request}
		c.attributes[doc.wireType(&c, name)] = modes[doc.oneOf(value, "fill", "store", "request")]
	})
	c.parents = map[types.EntityType][]parentRule{}
	doc.each(parents, func(name, rules *yaml.Node) {
		typ := doc.wireType(&c, name)
		doc.each(rules, func(attribute, parent *yaml.Node) {
			c.parents[typ] = append(c.parents[typ], parentRule{attribute.Value, c.qualify(types.EntityType(doc.path(parent))), parent.Line, parent.Column})
		})
		slices.SortFunc(c.parents[typ], func(a, b parentRule) int { return strings.Compare(a.attribute, b.attribute) })
	})
	c.known = map[types.EntityType]bool{}
	doc.list(known, func(name *yaml.Node) { c.known[doc.wireType(&c, name)] = true })
	return c
}

func (m *yamlMap) path(n *yaml.Node) string {
	if m.text(n) && !legalType(types.EntityType(n.Value)) {
		m.bad(n, "type_name", "this is no name of a Cedar type that requests may use", "write identifiers joined by ::, not ending in Action")
	}
	return n.Value
}

func (m *yamlMap) typeNames(n *yaml.Node) (map[string]types.EntityType, map[types.EntityType]bool) {
	names, mapped := map[string]types.EntityType{}, map[types.EntityType]bool{}
	m.each(n, func(wire, cedar *yaml.Node) {
		typ := types.EntityType(m.path(cedar))
		if mapped[typ] {
			m.bad(cedar, "types_not_injective", fmt.Sprintf("two wire names become the type %s", typ), "give each wire name a type of its own")
		}
		names[wire.Value], mapped[typ] = typ, true
	})
	return names, mapped
}

// wireType reads the wire name of a type and returns Cedar's name.
func (m *yamlMap) wireType(c *config, n *yaml.Node) types.EntityType {
	typ, ok := c.entityType(n.Value)
	if m.text(n) && !ok {
		m.bad(n, "type_name", "this is no wire name of a type", "use the name that requests send, as types: lists it")
	}
	return typ
}

var yamlLine = regexp.MustCompile(`line (\d+)`)

// yamlMap reads one YAML mapping strictly: unknown and repeated keys, and
// values of the wrong form, are problems with their place.
type yamlMap struct {
	file     string
	problems *Problems
	known    map[string]func(*yaml.Node)
}

func yamlDocument(file string, text []byte, problems *Problems) (*yaml.Node, bool) {
	var doc, more yaml.Node
	documents := yaml.NewDecoder(bytes.NewReader(text))
	err := documents.Decode(&doc)
	if err == nil {
		// The reader stops at a line of three hyphens, and what follows would
		// be passed over in silence.
		if err = documents.Decode(&more); err == nil {
			problems.add(file, more.Line, 1, "yaml_documents", "a second document begins here, and would not be read", "put everything into one")
			return nil, false
		}
	}
	if !errors.Is(err, io.EOF) {
		line := 0
		if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
			_, _ = fmt.Sscan(m[1], &line)
		}
		problems.add(file, line, 1, "yaml_syntax", "this is not YAML", "check indentation and quotes near this line")
		return nil, false
	}
	if len(doc.Content) == 0 {
		problems.add(file, 1, 1, "yaml_empty", "the document is empty", "write a value or remove the file")
		return nil, false
	}
	return doc.Content[0], true
}

func (m *yamlMap) bad(n *yaml.Node, code, message, try string) bool {
	m.problems.add(m.file, n.Line, n.Column, code, message, try)
	return false
}

func (m *yamlMap) read(n *yaml.Node) {
	m.each(n, func(key, value *yaml.Node) {
		if set, ok := m.known[key.Value]; ok {
			set(value)
			return
		}
		m.bad(key, "unknown_key", fmt.Sprintf("unknown key %q", key.Value), "use one of "+strings.Join(slices.Sorted(maps.Keys(m.known)), ", "))
	})
}

func (m *yamlMap) each(n *yaml.Node, do func(key, value *yaml.Node)) {
	if n == nil {
		return
	}
	if n.Kind != yaml.MappingNode {
		m.bad(n, "yaml_form", "this must be a mapping", "write key: value lines")
		return
	}
	seen := map[string]bool{}
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch {
		case key.Kind != yaml.ScalarNode || value.Kind == yaml.AliasNode || key.Tag == "!!merge":
			m.bad(key, "yaml_form", "aliases, merges and complex keys are not read here", "write the value out")
		case seen[key.Value]:
			m.bad(key, "duplicate_key", fmt.Sprintf("the key %q occurs twice", key.Value), "keep one")
		default:
			seen[key.Value] = true
			do(key, value)
		}
	}
}

func (m *yamlMap) list(n *yaml.Node, do func(*yaml.Node)) {
	if n == nil {
		return
	}
	if n.Kind != yaml.SequenceNode {
		m.bad(n, "yaml_form", "this must be a list", "write - item lines")
		return
	}
	for _, item := range n.Content {
		do(item)
	}
}

// names reads a list of strings.
func (m *yamlMap) names(n *yaml.Node) (names []string) {
	m.list(n, func(item *yaml.Node) {
		if m.text(item) {
			names = append(names, item.Value)
		}
	})
	return names
}

func (m *yamlMap) text(n *yaml.Node) bool {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" || n.Value == "" {
		return m.bad(n, "yaml_form", "this must be a name", "write it as a string")
	}
	return true
}

func (m *yamlMap) oneOf(n *yaml.Node, values ...string) string {
	if n.Kind != yaml.ScalarNode || !slices.Contains(values, n.Value) {
		m.bad(n, "yaml_value", "this must be one of "+strings.Join(values, ", "), "")
	}
	return n.Value
}

// listedTypes are the types that bundle.yaml or the PDP treats in a way of their
// own, and "" for all others.
func (c *config) listedTypes() []types.EntityType {
	listed := []types.EntityType{"", c.approvalType}
	for typ := range c.attributes {
		listed = append(listed, typ)
	}
	for typ := range c.parents {
		listed = append(listed, typ)
	}
	for typ := range c.known {
		listed = append(listed, typ)
	}
	slices.Sort(listed)
	return slices.Compact(listed)
}
