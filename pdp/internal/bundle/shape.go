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
	ShapeBool: "Bool", ShapeLong: "Long", ShapeString: "String", ShapeRecord: "a record",
	shapeIP: "ipaddr", ShapeDecimal: "decimal", shapeDatetime: "datetime", shapeDuration: "duration",
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
