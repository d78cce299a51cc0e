package pdp

import (
	"maps"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
)

// coerce gives a stored value, read without a schema, the type the schema
// declares. What cannot be that type stays as it is, for the validator to name.
func coerce(v types.Value, s *shape) types.Value {
	if s == nil {
		return v
	}
	switch v := v.(type) {
	case types.String:
		if s.form >= shapeIP {
			if t, ok := fromText(string(v), s); ok {
				return t
			}
		}
	case types.Set:
		if s.form == shapeSet {
			elements := v.Slice()
			for i := range elements {
				elements[i] = coerce(elements[i], s.element)
			}
			if set, ok := newSet(elements); ok {
				return set
			}
		}
	case types.Record:
		return coerceRecord(v, s)
	}
	return v
}

func coerceRecord(v types.Record, s *shape) types.Value {
	if s.form == shapeRecord {
		members := v.Map()
		coerceMembers(members, s.members)
		return types.NewRecord(members)
	}
	if s.form >= shapeIP {
		if t, ok := implied(v); ok {
			return t
		}
	}
	typ, _ := v.Get("type")
	id, _ := v.Get("id")
	t, ok1 := typ.(types.String)
	i, ok2 := id.(types.String)
	if name, err := types.NewEntityType(string(t)); s.form == shapeEntity && ok1 && ok2 && v.Len() == 2 && err == nil {
		return types.EntityUID{Type: name, ID: i}
	}
	return v
}

func coerceMembers(members types.RecordMap, declared map[string]attributeShape) {
	for _, name := range slices.Collect(maps.Keys(members)) {
		if a, ok := declared[string(name)]; ok {
			members[name] = coerce(members[name], a.shape)
		}
	}
}

// fromText converts a string where the schema says it is one, or what it names.
func fromText(text string, s *shape) (types.Value, bool) {
	var v types.Value
	var err error
	switch s.form {
	case shapeString:
		return types.String(text), true
	case shapeEntity:
		if s.entity == anyEntity {
			return nil, false
		}
		return allowed(types.EntityUID{Type: s.entity, ID: types.String(text)}, s)
	case shapeIP:
		v, err = types.ParseIPAddr(text)
	case shapeDatetime:
		v, err = types.ParseDatetime(text)
	case shapeDuration:
		v, err = types.ParseDuration(text)
	case shapeDecimal:
		if strings.HasPrefix(text, "+") || strings.Contains(text, ".+") || strings.Contains(text, ".-") {
			return nil, false // cedar-go takes a sign where Cedar takes none
		}
		v, err = types.ParseDecimal(text)
	default:
		return nil, false
	}
	return v, err == nil
}

func allowed(uid types.EntityUID, s *shape) (types.Value, bool) {
	if s.enum != nil {
		if _, ok := s.enum[uid]; !ok {
			return nil, false
		}
	}
	return uid, true
}

// missingFrom finds a required member that is not there, of several the first in order.
func missingFrom(members types.RecordMap, declared map[string]attributeShape) (first string, missing bool) {
	for name, a := range declared {
		if _, ok := members[types.String(name)]; !ok && !a.optional && (!missing || name < first) {
			first, missing = name, true
		}
	}
	return first, missing
}
