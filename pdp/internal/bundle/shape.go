package bundle

import (
	"iter"
	"maps"
	"slices"

	"github.com/cedar-policy/cedar-go/types"
)

// String is a declared type as Cedar's schemas write it. A record is written without its
// members.
func (s *Shape) String() string {
	switch s.Form {
	case ShapeSet:
		return "Set<" + s.Element.String() + ">"
	case ShapeEntity:
		if s.Entity == AnyEntity {
			return "an entity"
		}
		return string(s.Entity)
	}
	return formNames[s.Form]
}

var formNames = map[shapeForm]string{
	ShapeBool: "Bool", ShapeLong: "Long", ShapeString: "String", ShapeSet: "Set", ShapeRecord: "a record",
	shapeIP: "ipaddr", ShapeDecimal: "decimal", ShapeDatetime: "datetime", shapeDuration: "duration",
}

// TypeOf is the type of a value, as a schema writes it.
func TypeOf(v types.Value) string {
	if uid, ok := v.(types.EntityUID); ok {
		return string(uid.Type)
	}
	return formNames[formOf(v)]
}

// formOf is the form of the types that a value can have.
func formOf(v types.Value) shapeForm {
	switch v.(type) {
	case types.Boolean:
		return ShapeBool
	case types.Long:
		return ShapeLong
	case types.String:
		return ShapeString
	case types.Set:
		return ShapeSet
	case types.Record:
		return ShapeRecord
	case types.EntityUID:
		return ShapeEntity
	case types.Decimal:
		return ShapeDecimal
	case types.Datetime:
		return ShapeDatetime
	case types.Duration:
		return shapeDuration
	}
	return shapeIP
}

// IDs are the ids that a reference can have if its type is enumerated.
func (s *Shape) IDs() iter.Seq[string] {
	return func(yield func(string) bool) {
		for uid := range s.Enum {
			if !yield(string(uid.ID)) {
				return
			}
		}
	}
}

// InJSON says how a request writes a value of the type. It is empty for a reference, which has the name of a type in it.
func (s *Shape) InJSON() string { return formsInJSON[s.Form] }

var formsInJSON = map[shapeForm]string{
	ShapeBool: "true or false", ShapeLong: "an integer", ShapeString: "a string", ShapeSet: "an array", ShapeRecord: "an object",
	shapeIP:       `a string such as "10.0.0.1" or "10.0.0.0/8"`,
	ShapeDecimal:  `a number, or a string such as "750.50"`,
	ShapeDatetime: `a string such as "2026-01-31" or "2026-01-31T09:30:00Z"`,
	shapeDuration: `a string such as "1h30m"`,
}

// ByName yields the entries of a map, in the order of their names.
func ByName[K ~string, V any](declared map[K]V) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for _, name := range slices.Sorted(maps.Keys(declared)) {
			if !yield(name, declared[name]) {
				return
			}
		}
	}
}

// AnyEntity is the type of a reference to an entity of any type.
const AnyEntity types.EntityType = ""
