package coaz

import (
	"reflect"
	"slices"
	"strings"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"policy-service/evaluation"
)

// jsonMap is an object of JSON, as CEL sees it. What is in it is made when somebody looks at it, and once: a step of
// an expression costs little, and must not go through all that was sent each time it is taken.
type jsonMap struct {
	object evaluation.Object
	inner  map[string]ref.Val // containers and long numbers that were looked at
	names  traits.Lister
	size   uint32
}

func celMap(o evaluation.Object) *jsonMap { return &jsonMap{object: o} }

// Find returns the member of a name.
func (m *jsonMap) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return nil, false
	}
	if v, ok := m.inner[string(name)]; ok {
		return v, true
	}
	v, ok := m.object.Lookup(string(name))
	if !ok {
		return nil, false
	}
	made := celValue(v)
	if v.Kind() == evaluation.Array || v.Kind() == evaluation.Map || v.Kind() == evaluation.Number && len(v.Text()) > longNumber {
		if m.inner == nil {
			m.inner = map[string]ref.Val{}
		}
		m.inner[string(name)] = made
	}
	return made, true
}

// longNumber is the length of a number that is not read twice.
const longNumber = 32

// Get returns the member of a name, or an error.
func (m *jsonMap) Get(key ref.Val) ref.Val {
	if v, ok := m.Find(key); ok {
		return v
	}
	return types.NewErrFromString("no such key")
}

// Contains reports whether there is a member of a name.
func (m *jsonMap) Contains(key ref.Val) ref.Val {
	_, ok := m.Find(key)
	return types.Bool(ok)
}

// Equal reports whether another map has equal members.
func (m *jsonMap) Equal(other ref.Val) ref.Val {
	o, ok := other.(traits.Mapper)
	if !ok || o.Size() != m.Size() {
		return types.False
	}
	for name := range m.object.All {
		mine, _ := m.Find(types.String(name))
		theirs, ok := o.Find(types.String(name))
		if !ok {
			return types.False
		}
		if same := types.Equal(mine, theirs); same != types.True {
			return same
		}
	}
	return types.True
}

// sizeOf is the number of members, those that are null among them.
func sizeOf(o evaluation.Object) (n int) {
	for range o.All {
		n++
	}
	return n
}

// Iterator yields the names, sorted.
func (m *jsonMap) Iterator() traits.Iterator {
	return m.sorted().Iterator()
}

func (m *jsonMap) sorted() traits.Lister {
	if m.names == nil {
		names := make([]ref.Val, 0, sizeOf(m.object))
		for name := range m.object.All {
			names = append(names, types.String(name))
		}
		m.names = types.NewRefValList(adapter{}, names)
	}
	return m.names
}

// AggregateSize counts the members.
func (m *jsonMap) AggregateSize(types.AggregateSizer) uint32 {
	if m.size == 0 {
		m.size = weigh(m.object.Value())
	}
	return m.size
}

func (m *jsonMap) ConvertToNative(reflect.Type) (any, error) {
	return nil, types.NewErrFromString("no such conversion").(*types.Err)
}

func (m *jsonMap) ConvertToType(t ref.Type) ref.Val {
	switch t {
	case types.MapType:
		return m
	case types.TypeType:
		return types.MapType
	}
	return types.NewErrFromString("no such overload")
}

func (m *jsonMap) Size() ref.Val     { return m.sorted().Size() }
func (m *jsonMap) IsZeroValue() bool { return m.Size() == types.IntZero }
func (m *jsonMap) Type() ref.Type    { return types.MapType }
func (m *jsonMap) Value() any        { return m.object }

// sorted is a map that an expression made. The library goes through it in another order each time.
type sorted struct{ traits.Mapper }

// Iterator yields the keys, sorted.
func (s *sorted) Iterator() traits.Iterator {
	var keys []ref.Val
	for it := s.Mapper.Iterator(); it.HasNext() == types.True; {
		keys = append(keys, it.Next())
	}
	slices.SortFunc(keys, func(a, b ref.Val) int {
		if c := strings.Compare(a.Type().TypeName(), b.Type().TypeName()); c != 0 {
			return c
		}
		comparer, ok := a.(traits.Comparer)
		if !ok {
			return 0
		}
		order, _ := comparer.Compare(b).(types.Int)
		return int(order)
	})
	return types.NewRefValList(adapter{}, keys).Iterator()
}

// Equal leaves the comparison to the map itself.
func (s *sorted) Equal(other ref.Val) ref.Val {
	if o, ok := other.(*sorted); ok {
		return s.Mapper.Equal(o.Mapper)
	}
	return s.Mapper.Equal(other)
}

// IsZeroValue reports whether the map is empty.
func (s *sorted) IsZeroValue() bool { return s.Size() == types.IntZero }

// AggregateSize counts the members.
func (s *sorted) AggregateSize(sizer types.AggregateSizer) uint32 {
	return sizer.AggregateSize(s.Mapper)
}
