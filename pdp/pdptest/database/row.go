package database

// Table is a table or view of which each row is a question about a resource, as a mapping of filters.yaml makes it.
type Table struct {
	Name   string // as SQL has it behind FROM
	Key    string // a column that tells rows apart, mapped or not; "" is the column of the id
	Tenant string // the column that says whose row it is; "" for none
	ID     Field  // of which Column and Type count
	Fields []Field
	// RequiredRecords are the paths of records that the schema requires: they are there without a member, too.
	RequiredRecords [][]string
}

// Field is an attribute of the resource, or a member of a record in it.
type Field struct {
	Path    []string
	Kind    string // bool, long, string, datetime, entity, set
	Element string // of a set: string, long, entity
	Column  string // "" if Rows has the values
	Type    string // of the column, as in filters.yaml: text, uuid, bigint, boolean, timestamptz, millis, text[], uuid[]
	Rows    *Rows
}

// Rows are the elements of a set as rows of another table.
type Rows struct {
	Table string // as SQL has it behind FROM
	Key   string // the column with the id of the row that has the set
	Value string
	Type  string // of the values: text, uuid, bigint
}
