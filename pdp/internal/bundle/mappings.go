package bundle

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
	"go.yaml.in/yaml/v3"

	"policy-service/evaluation"
	"policy-service/pdp/internal/document"
	"policy-service/pdp/internal/source"
)

// Unfiltered reports whether no filter is made for an action. A decision about it hangs on more than its policies, such as who
// the requester is.
func Unfiltered(action string) bool {
	return action == ApprovalAction || action == "tool.fulfil" || strings.HasPrefix(action, "capability.")
}

// columnTypes lists the types of columns for a declared type. Other types are in no column.
var columnTypes = map[shapeForm][]ColumnType{
	ShapeBool:     {BooleanColumn},
	ShapeLong:     {BigintColumn},
	ShapeString:   {TextColumn, UUIDColumn},
	ShapeEntity:   {TextColumn, UUIDColumn, BigintColumn},
	ShapeDatetime: {TimestamptzColumn, MillisColumn},
}

// mappingReader reads filters.yaml.
type mappingReader struct {
	document.Map
	config  *Config
	schema  *Schema
	tenants bool // the bundle has tenants
}

// readMappings reads filters.yaml, and checks it against bundle.yaml and the schema.
func (b *Bundle) readMappings(text []byte, tenants bool) map[types.EntityType]*Mapping {
	root, ok := document.Read(source.FiltersFile, text, &b.problems)
	if !ok {
		return nil
	}
	r := mappingReader{document.Map{File: source.FiltersFile, Problems: &b.problems}, &b.Config, b.Schema, tenants}
	if b.Schema == nil {
		r.Bad(root, "filter_schema", "a schema must declare the types of what is in columns, and the bundle has none",
			"add one, or remove filters.yaml")
		return nil
	}
	mappings := map[types.EntityType]*Mapping{}
	r.Each(root, func(wire, value *yaml.Node) {
		if m := r.mapping(wire, value); m != nil {
			mappings[m.Type] = m
		}
	})
	return mappings
}

// mapping reads the mapping of one type. It returns nil if there can be none.
func (r *mappingReader) mapping(wire, value *yaml.Node) *Mapping {
	m := &Mapping{Type: r.config.TypeIn(&r.Map, wire), Wire: wire.Value, Attributes: map[string]*Mapped{}}
	switch {
	case m.Type == "":
		return nil
	case m.Type == r.config.ApprovalType:
		r.Bad(wire, "filter_type", "approvals are kept by the service, and in no table", "take it out")
		return nil
	case !r.schema.Declares(m.Type):
		like, _ := r.config.WireType(types.EntityType(r.near(string(m.Type), slices.Values(textsOf(slices.Collect(maps.Keys(r.schema.entities)))))))
		near := document.Near(like)
		r.Bad(wire, "filter_type", "the schema does not declare the type "+Quote(wire.Value)+near.String(), "declare it, or correct its name", near.At(wire))
		return nil
	case r.config.Known[m.Type]:
		r.Bad(wire, "filter_type", "known: in bundle.yaml lists this type, so each row would be denied that is no stored entity",
			"take it out of known:, or do not map it")
		return nil
	case value.Kind != yaml.MappingNode:
		r.Bad(value, "yaml_form", "this must be a mapping", "write key: value lines")
		return nil
	}
	parts := r.parts(value, "table", "tenant", "id", "actions", "columns", "not_null", "strict")
	for _, name := range []string{"table", "id", "actions"} {
		r.need(value, parts, name)
	}
	if r.tenants {
		r.need(value, parts, "tenant")
	}
	m.Table = r.names(parts["table"], "table")
	if n := parts["tenant"]; n != nil {
		m.Tenant = Column{Type: TextColumn}
		m.Tenant.Name = r.column(n)
	}
	if n := parts["id"]; n != nil {
		id := r.parts(n, "column", "type")
		r.need(n, id, "column")
		m.ID = Column{Name: r.column(id["column"]), Type: r.columnType(n, id["type"], "an id", columnTypes[ShapeEntity])}
	}
	r.List(parts["actions"], func(n *yaml.Node) { r.action(m, n) })
	if list := parts["actions"]; list != nil && list.Kind == yaml.SequenceNode && len(list.Content) == 0 {
		r.Bad(list, "filter_action", "the list is empty", "list the actions that filters are asked about")
	}
	r.Each(parts["columns"], func(name, n *yaml.Node) { r.attribute(m, name, n) })
	at := document.KeyAt(value, "columns")
	r.require(at, m, r.schema.Attributes(m.Type), m.Attributes, "")
	r.checkParents(at, parts["columns"], m)
	r.List(parts["not_null"], func(n *yaml.Node) { r.notNull(m, n) })
	if n := parts["strict"]; n != nil {
		m.Strict = r.OneOf(n, "false", "true") == "true"
	}
	return m
}

// parts reads a mapping with some keys. A name alone is that of a column.
func (r *mappingReader) parts(n *yaml.Node, keys ...string) map[string]*yaml.Node {
	parts := map[string]*yaml.Node{}
	if n.Kind == yaml.ScalarNode {
		parts["column"] = n
		return parts
	}
	m := document.Map{File: r.File, Problems: r.Problems, Known: map[string]func(*yaml.Node){}}
	for _, key := range keys {
		m.Known[key] = func(n *yaml.Node) { parts[key] = n }
	}
	m.Read(n)
	return parts
}

// need refuses a mapping at a place that lacks a key.
func (r *mappingReader) need(n *yaml.Node, parts map[string]*yaml.Node, key string) {
	if parts[key] == nil && n.Kind == yaml.MappingNode {
		r.Bad(n, "missing_key", "there is no "+key+": here", "add "+key+": "+map[string]string{
			"table":   "with the name of the table or view",
			"tenant":  "with the column that says whose row it is, as the bundle has tenants",
			"id":      "with the column of the entity's id",
			"actions": "with the actions that filters are asked about",
			"column":  "with the name of the column",
			"key":     "with the column that has the id of the row that the set belongs to",
			"value":   "with the column of the elements",
		}[key])
	}
}

// names reads the name of a table or column, with that of a schema before a table's. It returns nil if it is none.
func (r *mappingReader) names(n *yaml.Node, of string) []string {
	if n == nil || !r.Text(n) {
		return nil
	}
	most := map[string]int{"table": 2, "column": 1}[of]
	names := strings.SplitN(n.Value, ".", most+1)
	for _, name := range names {
		if len(names) > most || !evaluation.IsSQLName(name) {
			try := "use a letter or underscore, then at most 62 letters, digits and underscores, and nothing that begins with _pf"
			if of == "table" {
				try += "; before it may stand the name of its schema and a dot"
			}
			r.Bad(n, "filter_name", "this is no name of a "+of+" that a filter can have", try)
			return nil
		}
	}
	return names
}

func (r *mappingReader) column(n *yaml.Node) string {
	return strings.Join(r.names(n, "column"), "")
}

// columnType reads the type of a column, text if there is none. The value is what the column must hold.
func (r *mappingReader) columnType(at, n *yaml.Node, value string, allowed []ColumnType) ColumnType {
	typ := TextColumn
	if n != nil {
		at, typ = n, ColumnType(n.Value)
	}
	if slices.Contains(allowed, typ) {
		return typ
	}
	what := "this is no type of a column for " + value
	if n == nil {
		what = "a column is of type text unless it has another type:, and that cannot hold " + value
	}
	r.Bad(at, "filter_column", what, "use type: "+strings.Join(textsOf(allowed), " or "))
	return typ
}

// near suggests the candidate nearest to a name, unless there are many problems already.
func (r *mappingReader) near(name string, candidates iter.Seq[string]) (near document.Near) {
	if len(*r.Problems) < maxSuggestions {
		near = DidYouMean(name, candidates)
	}
	return near
}

// action reads the name of an action that filters are asked about.
func (r *mappingReader) action(m *Mapping, n *yaml.Node) {
	if !r.Text(n) {
		return
	}
	shape := r.schema.Actions[types.NewEntityUID(r.config.ActionType, types.String(n.Value))]
	switch {
	case Unfiltered(n.Value):
		r.Bad(n, "filter_action", "there are no filters for this action: its decisions need more than policies and a row", "take it out")
	case shape == nil:
		near := r.near(n.Value, func(yield func(string) bool) {
			for uid := range r.schema.Actions {
				if !yield(string(uid.ID)) {
					return
				}
			}
		})
		r.Bad(n, "filter_action", "the schema declares no action "+Quote(n.Value)+near.String(), "declare it, or correct its name", near.At(n))
	case !slices.Contains(shape.Resources, m.Type):
		r.Bad(n, "filter_action", fmt.Sprintf("the schema applies the action to no resource of type %s", m.Type),
			"add the type to the resources of the action, or take the action out")
	default:
		m.Actions = append(m.Actions, n.Value)
	}
}

// attribute reads where an attribute, or a member of a record, has its value.
func (r *mappingReader) attribute(m *Mapping, name, n *yaml.Node) {
	declared, mapped, names := r.schema.Attributes(m.Type), m.Attributes, strings.Split(name.Value, ".")
	for i, part := range names {
		a, ok := declared[part]
		switch {
		case part == "__entity" || part == "__extn":
			r.Bad(name, "filter_attribute", "no request has a member of this name, so none can be made of a row", "leave it out")
			return
		case !ok:
			near := r.near(part, maps.Keys(declared))
			before := strings.Join(append(slices.Clone(names[:i]), ""), ".")
			r.Bad(name, "filter_attribute", fmt.Sprintf("the schema declares no %s of %s%s", Quote(before+part), m.Type, near),
				"declare it, or correct its name", near.In(before, part, strings.TrimPrefix(name.Value, before+part)))
			return
		case i == len(names)-1:
			mapped[part] = r.mapped(name, n, a)
			return
		case a.Shape.Form != ShapeRecord:
			r.Bad(name, "filter_attribute", fmt.Sprintf("%s is declared as %s, which has no members", Quote(part), a.Shape), "leave out what stands behind its name")
			return
		case mapped[part] == nil:
			mapped[part] = &Mapped{AttributeShape: a, Members: map[string]*Mapped{}}
		}
		declared, mapped = a.Shape.Members, mapped[part].Members
	}
}

// mapped reads where a value of a declared type is.
func (r *mappingReader) mapped(name, n *yaml.Node, a AttributeShape) *Mapped {
	m := &Mapped{AttributeShape: a}
	if a.Shape.Form == ShapeRecord {
		r.Bad(name, "filter_attribute", "this is a record, and a column holds none", "map its members, as "+name.Value+".NAME")
		return m
	}
	inColumn, value := columnTypes[a.Shape.Form], "a value that is declared as "+a.Shape.String()
	var inRows []ColumnType
	if a.Shape.Form == ShapeSet {
		switch element := a.Shape.Element.Form; element {
		case ShapeString, ShapeEntity:
			inColumn, inRows = []ColumnType{TextsColumn, UUIDsColumn}, columnTypes[element]
		case ShapeLong:
			inRows = columnTypes[element]
		}
	}
	parts := r.parts(n, "column", "table", "key", "value", "type")
	switch {
	case inColumn == nil && inRows == nil:
		r.Bad(name, "filter_attribute", value+" can be in no column", "leave it out, and declare it as optional")
	case parts["table"] == nil && parts["key"] == nil && parts["value"] == nil:
		r.need(n, parts, "column")
		if inColumn == nil {
			r.Bad(n, "filter_column", value+" is in rows of another table alone", "write {table: …, key: …, value: …, type: bigint}")
			break
		}
		m.Column = Column{Name: r.column(parts["column"]), Type: r.columnType(n, parts["type"], value, inColumn)}
	case parts["column"] != nil:
		r.Bad(n, "filter_column", "this is both a column of the row and rows of another table", "write column:, or table:, key: and value:")
	case inRows == nil:
		r.Bad(n, "filter_column", value+" is no set, and rows of another table are one", "write the name of its column")
	default:
		for _, key := range []string{"table", "key", "value"} {
			r.need(n, parts, key)
		}
		m.Rows = &MappedRows{
			Table: r.names(parts["table"], "table"),
			Key:   r.column(parts["key"]),
			Value: Column{Name: r.column(parts["value"]), Type: r.columnType(n, parts["type"], "an element that is declared as "+a.Shape.Element.String(), inRows)},
		}
	}
	return m
}

// require refuses a mapping without what the schema requires. What it lacks, no row would have, so each would be denied.
func (r *mappingReader) require(at *yaml.Node, m *Mapping, declared map[string]AttributeShape, mapped map[string]*Mapped, before string) {
	for name, a := range ByName(declared) {
		switch of := mapped[name]; {
		case of == nil && !a.Optional:
			r.Bad(at, "filter_required", fmt.Sprintf("the schema requires %s of %s, and it is not mapped", Quote(before+name), m.Type),
				"add it to columns:, or declare it as optional")
		case of != nil && of.Members != nil:
			r.require(at, m, a.Shape.Members, of.Members, before+name+".")
		}
	}
}

// checkParents refuses a mapping without the attributes by which bundle.yaml gives parents. A policy about what is below them
// would not find the row there.
func (r *mappingReader) checkParents(at, columns *yaml.Node, m *Mapping) {
	for _, rule := range r.config.Parents[m.Type] {
		a, declared := r.schema.Attributes(m.Type)[rule.Attribute]
		of := m.Attributes[rule.Attribute]
		if of == nil && declared && !a.Optional {
			continue // which is refused already
		}
		if of == nil {
			r.Bad(at, "filter_parents", fmt.Sprintf("bundle.yaml gives %s parents by %s, and it is not mapped", m.Type, Quote(rule.Attribute)),
				"add it to columns:, or take it out of parents:")
			continue
		}
		typ := of.Column.Type
		if of.Rows != nil {
			typ = of.Rows.Value.Type
		}
		if !slices.Contains([]ColumnType{TextColumn, UUIDColumn, TextsColumn, UUIDsColumn}, typ) && (typ != "" || of.Members != nil) {
			r.Bad(document.KeyAt(columns, rule.Attribute), "filter_parents", "bundle.yaml gives parents by this attribute, and ids of parents are texts",
				"map it to a column or rows of text or uuid")
		}
	}
}

// notNull reads a promise: that the column of an attribute is never NULL or, with [] behind its name, that no element is.
func (r *mappingReader) notNull(m *Mapping, n *yaml.Node) {
	if !r.Text(n) {
		return
	}
	name, ofElements := strings.CutSuffix(n.Value, "[]")
	of := &Mapped{Members: m.Attributes}
	for part := range strings.SplitSeq(name, ".") {
		if of = of.Members[part]; of == nil {
			r.Bad(n, "filter_not_null", "columns: has no "+Quote(name), "add it there, or take it out here")
			return
		}
	}
	switch {
	case ofElements && of.Shape.Form != ShapeSet:
		r.Bad(n, "filter_not_null", "this is no set, and only a set has elements", "leave out the []")
	case ofElements:
		of.NoNullElement = true
	case of.Members != nil:
		r.Bad(n, "filter_not_null", "this is a record, and has no column", "list its members, as "+name+".NAME")
	case of.Rows != nil:
		r.Bad(n, "filter_not_null", "a set in rows of another table is never NULL", "leave it out, or write "+name+"[] for its elements")
	default:
		of.Column.NotNull = true
	}
}
