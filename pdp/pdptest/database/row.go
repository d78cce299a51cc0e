package database

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

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
	Entity  string // of an entity or a set of entities: their type, for who needs to know
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

// Question is R(row): the question about a row.
type Question struct {
	Key  any    // of Table.Key
	ID   string // of the resource
	Body []byte // the body of an AuthZEN evaluation
	// Denied is why the row is denied without a question, or "": it is of another tenant, or the request would be malformed.
	Denied string
}

// Reads returns the statements that read all rows of a table.
func (db *DB) Reads(t *Table) []Ask {
	plus := ""
	if db.sqlite {
		plus = "+" // of a bare column the driver guesses values from the declared type
	}
	list := func(columns ...string) string {
		var all []string
		for _, c := range columns {
			all = append(all, plus+`"`+c+`"`)
		}
		return strings.Join(all, ", ")
	}
	columns := []string{cmp.Or(t.Key, t.ID.Column), cmp.Or(t.Tenant, t.ID.Column), t.ID.Column}
	var asks []Ask
	for _, f := range t.Fields {
		if f.Rows == nil {
			columns = append(columns, f.Column)
			continue
		}
		asks = append(asks, Ask{SQL: "SELECT " + list(f.Rows.Key, f.Rows.Value) + " FROM " + f.Rows.Table})
	}
	return append([]Ask{{SQL: "SELECT " + list(columns...) + " FROM " + t.Name}}, asks...)
}

// Questions makes the questions about all rows of a table. About has all but the id and the properties of the resource.
func (db *DB) Questions(t *Table, about map[string]any, tenant string) []Question {
	db.t.Helper()
	questions, err := t.Questions(about, tenant, db.All(db.Reads(t)...))
	if err != nil {
		db.t.Fatal(err)
	}
	return questions
}

// Questions makes the questions about all rows of what the statements of [DB.Reads] returned.
func (t *Table) Questions(about map[string]any, tenant string, read []Answer) ([]Question, error) {
	for _, a := range read {
		if a.Err != nil {
			return nil, a.Err
		}
	}
	var questions []Question
	for _, row := range read[0].Rows {
		q := Question{Key: row[0]}
		properties, err := t.properties(row[2], row[3:], read[1:])
		if err == nil {
			q.ID, err = t.id(row[2])
		}
		switch {
		case t.Tenant != "" && row[1] != any(tenant):
			q.Denied = fmt.Sprintf("it is of the tenant %v", row[1])
		case err != nil:
			q.Denied = "malformed: " + err.Error()
		default:
			body := maps.Clone(about)
			resource, _ := about["resource"].(map[string]any)
			resource = maps.Clone(resource)
			resource["id"], resource["properties"] = q.ID, properties
			body["resource"] = resource
			if q.Body, err = json.Marshal(body); err != nil {
				return nil, err
			}
		}
		questions = append(questions, q)
	}
	return questions, nil
}

func (t *Table) id(v any) (string, error) {
	if v == nil {
		return "", errors.New("no id")
	}
	id, err := valueIn(t.ID.Type, v)
	return fmt.Sprint(id), err
}

// properties makes the attributes of a row. id is its id as it was read, and sets are the rows of the other tables.
func (t *Table) properties(id any, columns []any, sets []Answer) (map[string]any, error) {
	all := map[string]any{}
	for _, f := range t.Fields {
		var value any
		if f.Rows == nil {
			if value, columns = columns[0], columns[1:]; value == nil {
				continue
			}
			var err error
			if value, err = f.value(f.Type, value); err != nil {
				return nil, fmt.Errorf("%s: %w", f.Column, err)
			}
		} else {
			elements := []any{}
			for _, row := range sets[0].Rows {
				if row[0] == nil || !reflect.DeepEqual(row[0], id) {
					continue
				}
				var element any
				if row[1] != nil {
					var err error
					if element, err = f.value(f.Rows.Type, row[1]); err != nil {
						return nil, fmt.Errorf("%s of %s: %w", f.Rows.Value, f.Rows.Table, err)
					}
				}
				elements = append(elements, element)
			}
			value, sets = elements, sets[1:]
		}
		record := all
		for _, name := range f.Path[:len(f.Path)-1] {
			below, _ := record[name].(map[string]any)
			if below == nil {
				below = map[string]any{}
				record[name] = below
			}
			record = below
		}
		record[f.Path[len(f.Path)-1]] = value
	}
	// The outer ones first: in a record that is left out, none is required.
	for _, path := range slices.SortedFunc(slices.Values(t.RequiredRecords), func(a, b []string) int { return len(a) - len(b) }) {
		record, last := all, len(path)-1
		for _, name := range path[:last] {
			record, _ = record[name].(map[string]any)
		}
		if record != nil && record[path[last]] == nil {
			record[path[last]] = map[string]any{}
		}
	}
	return all, nil
}

// value returns a value of the field as JSON has it. Ids of entities are texts, whatever the type of the column.
func (f *Field) value(typ string, v any) (any, error) {
	value, err := valueIn(typ, v)
	if n, is := value.(int64); is && (f.Kind == "entity" || f.Element == "entity") {
		value = strconv.FormatInt(n, 10)
	}
	return value, err
}

// valueIn returns a value that was read from a column of a type as JSON has it. A value that the type does not have is malformed.
func valueIn(typ string, v any) (any, error) {
	switch typ {
	case "text", "uuid", "":
		if text, is := v.(string); is {
			if strings.Contains(text, "\x00") || !utf8.ValidString(text) {
				return nil, fmt.Errorf("U+0000 or no UTF-8 in %q", text)
			}
			return text, nil
		}
	case "bigint":
		if n, is := v.(int64); is {
			return n, nil
		}
	case "boolean":
		switch v {
		case true, int64(1):
			return true, nil
		case false, int64(0):
			return false, nil
		}
	case "timestamptz", "millis":
		at, is := v.(time.Time)
		if n, milliseconds := v.(int64); typ == "millis" {
			at, is = time.UnixMilli(n).UTC(), milliseconds
		}
		if is && at.Year() >= 1 && at.Year() <= 9999 {
			return at.Format("2006-01-02T15:04:05.000Z"), nil
		}
	case "text[]", "uuid[]":
		if array, is := v.(Array); is {
			return nested(array.Dims, array.Elements), nil
		}
	}
	return nil, fmt.Errorf("%T %v is no %s", v, v, typ)
}

// nested returns an array as JSON has it.
func nested(dims []int, elements []*string) []any {
	all := []any{}
	if len(dims) == 0 {
		return all
	}
	size := len(elements) / dims[0]
	for part := range slices.Chunk(elements, size) {
		if len(dims) > 1 {
			all = append(all, nested(dims[1:], part))
		} else if part[0] == nil {
			all = append(all, nil)
		} else {
			all = append(all, *part[0])
		}
	}
	return all
}
