package pdp

import (
	"iter"
	"maps"
	"slices"

	"github.com/cedar-policy/cedar-go/types"
)

// String is a declared type as Cedar's schemas write it, a record without its members.
func (s *shape) String() string {
	switch s.form {
	case shapeSet:
		return "Set<" + s.element.String() + ">"
	case shapeEntity:
		if s.entity == anyEntity {
			return "an entity"
		}
		return string(s.entity)
	}
	return formNames[s.form]
}

var formNames = map[shapeForm]string{
	shapeBool: "Bool", shapeLong: "Long", shapeString: "String", shapeRecord: "a record",
	shapeIP: "ipaddr", shapeDecimal: "decimal", shapeDatetime: "datetime", shapeDuration: "duration",
}

// byName yields what is in a map, in the order of the names.
func byName[K ~string, V any](declared map[K]V) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for _, name := range slices.Sorted(maps.Keys(declared)) {
			if !yield(name, declared[name]) {
				return
			}
		}
	}
}

// anyEntity is the type of a reference to whatever is named.
const anyEntity types.EntityType = ""
