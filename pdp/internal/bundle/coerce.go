package bundle

import (
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
)

// coerce gives a stored value, which was read without a schema, the type that the schema
// declares. If the value cannot have that type it stays as it is, and the validator will name
// it.
func coerce(v types.Value, s *Shape) types.Value {
	if s == nil {
		return v
	}
	switch v := v.(type) {
	case types.String:
		if s.Form >= shapeIP {
			if t, ok := FromText(string(v), s); ok {
				return t
			}
		}
	case types.Set:
		if s.Form == ShapeSet {
			elements := v.Slice()
			for i := range elements {
				elements[i] = coerce(elements[i], s.Element)
			}
			if set, ok := NewSet(elements); ok {
				return set
			}
		}
	case types.Record:
		return coerceRecord(v, s)
	}
	return v
}

func coerceRecord(v types.Record, s *Shape) types.Value {
	if s.Form == ShapeRecord {
		members := v.Map()
		coerceMembers(members, s.Members)
		return types.NewRecord(members)
	}
	if s.Form >= shapeIP {
		if t, ok := impliedExtension(v); ok {
			return t
		}
	}
	typ, _ := v.Get("type")
	id, _ := v.Get("id")
	t, ok1 := typ.(types.String)
	i, ok2 := id.(types.String)
	if name, err := types.NewEntityType(string(t)); s.Form == ShapeEntity && ok1 && ok2 && v.Len() == 2 && err == nil {
		return types.EntityUID{Type: name, ID: i}
	}
	return v
}

func coerceMembers(members types.RecordMap, declared map[string]AttributeShape) {
	for _, name := range slices.Collect(maps.Keys(members)) {
		if a, ok := declared[string(name)]; ok {
			members[name] = coerce(members[name], a.Shape)
		}
	}
}

// FromText converts a string to the type that the schema declares.
func FromText(text string, s *Shape) (types.Value, bool) {
	var v types.Value
	var err error
	switch s.Form {
	case ShapeString:
		return types.String(text), true
	case ShapeEntity:
		if s.Entity == AnyEntity {
			return nil, false
		}
		return Allowed(types.EntityUID{Type: s.Entity, ID: types.String(text)}, s)
	case shapeIP:
		v, err = types.ParseIPAddr(text)
	case ShapeDatetime:
		v, err = types.ParseDatetime(text)
	case shapeDuration:
		v, err = types.ParseDuration(text)
	case ShapeDecimal:
		if strings.HasPrefix(text, "+") || strings.Contains(text, ".+") || strings.Contains(text, ".-") {
			return nil, false // cedar-go accepts a sign that Cedar refuses
		}
		v, err = types.ParseDecimal(text)
	default:
		return nil, false
	}
	return v, err == nil
}

// Allowed is an entity of a type, if the type has an entity with that id.
func Allowed(uid types.EntityUID, s *Shape) (types.Value, bool) {
	_, listed := s.Enum[uid]
	return uid, listed || s.Enum == nil
}

// MissingFrom finds a required member that is missing. If several are missing, it is the first
// in order.
func MissingFrom(members types.RecordMap, declared map[string]AttributeShape) (first string, missing bool) {
	for name, a := range declared {
		if _, ok := members[types.String(name)]; !ok && !a.Optional && (!missing || name < first) {
			first, missing = name, true
		}
	}
	return first, missing
}

// cedar-go's Set puts an element at the place that its hash says, or at the next free place.
// The hash has no secret and is easy to invert. So the sender of a request can choose a few
// thousand elements that cost millions of steps, once when the set is made and again each time
// a policy looks into it. We refuse such a set as a value that we do not have, as we refuse a
// number beyond int64.

const (
	// FewElements cost little, however much they collide.
	FewElements = 16
	// stepsPerElement is far more than elements need if they were not chosen to collide.
	stepsPerElement = 2
)

// NewSet makes a Set from elements that a request sends. It fails if the elements were chosen
// to collide.
func NewSet(elements []types.Value) (types.Value, bool) {
	if len(elements) > FewElements && collide(elements) {
		return nil, false
	}
	return types.NewSet(elements...), true
}

// collide reports if making a Set from the elements takes too many steps. It does not check
// elements that contain sets: honest sets collide, because the hash of a set is a sum, and
// [MostNested] bounds arrays that hold others.
func collide(elements []types.Value) bool {
	steps := 0
	places := make(map[uint64]types.Value, len(elements))
	for _, e := range elements {
		place, ok := hashOf(e)
		if !ok {
			return false
		}
		for {
			taken, ok := places[place]
			if !ok {
				places[place] = e
				break
			}
			if e.Equal(taken) {
				break
			}
			if steps++; steps > stepsPerElement*len(elements) {
				return true
			}
			place++
		}
	}
	return false
}

// hashOf is cedar-go's hash of a value, which cedar-go does not export. A test checks that the
// two agree. hashOf fails for a value that contains a set.
func hashOf(v types.Value) (uint64, bool) {
	switch v := v.(type) {
	case types.Long:
		return uint64(v), true
	case types.Boolean:
		if v {
			return 1, true
		}
		return 0, true
	case types.String:
		return fnv1(fnvStart, string(v)), true
	case types.EntityUID:
		return fnv1(fnv1(fnvStart, string(v.Type)), string(v.ID)), true
	case types.IPAddr:
		text, err := netip.Prefix(v).MarshalBinary()
		return fnv1(fnvStart, string(text)), err == nil
	case types.Datetime:
		return uint64(v.Milliseconds()), true
	case types.Duration:
		return uint64(v.ToMilliseconds()), true
	case types.Decimal:
		return hashOfDecimal(v)
	case types.Record:
		return hashOfRecord(v)
	}
	return 0, false
}

func hashOfRecord(r types.Record) (uint64, bool) {
	if r.Len() == 0 {
		return 0, true
	}
	h := uint64(fnvStart)
	for _, name := range slices.Sorted(maps.Keys(maps.Collect(r.All()))) {
		value, _ := r.Get(name)
		inner, ok := hashOf(value)
		if !ok {
			return 0, false
		}
		var text [8]byte
		binary.LittleEndian.PutUint64(text[:], inner)
		h = fnv1(fnv1(h, string(name)), string(text[:]))
	}
	return h, true
}

// hashOfDecimal hashes a decimal as its number of ten-thousandths. cedar-go gives that number
// exactly only as a text with at most four digits after the point.
func hashOfDecimal(d types.Decimal) (uint64, bool) {
	whole, fraction, _ := strings.Cut(d.String(), ".")
	n, err := strconv.ParseInt(whole+(fraction + "0000")[:4], 10, 64)
	return uint64(n), err == nil
}

// fnvStart and the prime in fnv1 are the constants of FNV-1 with 64 bits.
const fnvStart = 14695981039346656037

func fnv1(h uint64, text string) uint64 {
	for i := range len(text) {
		h = h*1099511628211 ^ uint64(text[i])
	}
	return h
}
