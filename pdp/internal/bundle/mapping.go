package bundle

import "github.com/cedar-policy/cedar-go/types"

// A Mapping says in which columns an application keeps the entities of one type. Each is a row of a table or view. filters.yaml
// of the root has the mappings, and a filter is the condition for such rows.
type Mapping struct {
	Type       types.EntityType
	Wire       string   // what requests call the type
	Table      []string // its name, or that of its schema and its own
	Tenant     Column   // says whose row it is; without a name where the bundle has no tenants
	ID         Column
	Actions    []string // what filters are asked about
	Attributes map[string]*Mapped
	// Strict promises that each column is as the mapping has it, that an array has one dimension, that a set has at most
	// [MostElements] elements and that no id is NULL. Conditions then do not check it.
	Strict bool
}

// Column is a column of a table.
type Column struct {
	Name    string
	Type    ColumnType
	NotNull bool // the database refuses NULL there
}

// ColumnType is how a database keeps the values of a column.
type ColumnType string

// The types of columns. Millis is an integer of milliseconds since 1970. SQLite has neither timestamptz nor arrays.
const (
	TextColumn        ColumnType = "text"
	UUIDColumn        ColumnType = "uuid"
	BigintColumn      ColumnType = "bigint"
	BooleanColumn     ColumnType = "boolean"
	TimestamptzColumn ColumnType = "timestamptz"
	MillisColumn      ColumnType = "millis"
	TextsColumn       ColumnType = "text[]"
	UUIDsColumn       ColumnType = "uuid[]"
)

// Mapped says where the value of an attribute is, or of a member of a record: in a column, in rows of another table, or, of a
// record, where its members are.
type Mapped struct {
	AttributeShape
	Column  Column
	Rows    *MappedRows
	Members map[string]*Mapped
	// NoNullElement is set if the database refuses NULL as an element of the set.
	NoNullElement bool
}

// MappedRows are the elements of a set as rows of another table.
type MappedRows struct {
	Table []string
	Key   string // the column with the id of the row that has the set
	Value Column
}
