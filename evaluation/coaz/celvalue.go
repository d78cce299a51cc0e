package coaz

import (
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"

	"policy-service/evaluation"
)

const evaluationNumber = evaluation.Number

// variables are the values of an expression's variables.
type variables struct {
	op     *Operation
	params ref.Val
	token  ref.Val
}

// ResolveName returns the value of a variable.
func (v *variables) ResolveName(name string) (any, bool) {
	switch name {
	case "params":
		if v.params == nil {
			v.params = celMap(v.op.Params)
		}
		return v.params, true
	case "token":
		if v.token == nil {
			v.token = celMap(v.op.Token)
		}
		return v.token, true
	}
	input, ok := v.op.Inputs.Get(name)
	if !ok {
		return nil, false
	}
	return celValue(input), true
}

// Parent returns nil: there are no other variables.
func (v *variables) Parent() interpreter.Activation { return nil }

func (v *variables) value(name string) (evaluation.Value, bool) {
	switch name {
	case "params":
		return v.op.Params.Value(), true
	case "token":
		return v.op.Token.Value(), true
	}
	return v.op.Inputs.Get(name)
}

// adapter makes CEL's values of ours.
type adapter struct{}

// NativeToValue makes a CEL value of a Go value.
func (adapter) NativeToValue(v any) ref.Val {
	switch v := v.(type) {
	case ref.Val:
		return v
	case evaluation.Value:
		return celValue(v)
	}
	return types.DefaultTypeAdapter.NativeToValue(v)
}

func celValue(v evaluation.Value) ref.Val {
	switch v.Kind() {
	case evaluation.Bool:
		return types.Bool(v.True())
	case evaluation.String:
		return types.String(v.Text())
	case evaluation.Number:
		return celNumber(v)
	case evaluation.Array:
		return &list{value: v}
	case evaluation.Map:
		return celMap(v.Object())
	}
	return types.NullValue
}

// celNumber is the int or double that a number is. It is an int if it is integral, however it is written: 1, 1.0 and
// 1e0 are one number. A number that neither can hold exactly stays what it is, and can only be copied.
func celNumber(v evaluation.Value) ref.Val {
	if n, ok := v.Scaled(0); ok {
		return types.Int(n)
	}
	if f, err := strconv.ParseFloat(v.Text(), 64); err == nil && f != math.Trunc(f) {
		digits, ok := v.AppendCanonical(nil)
		if ok && string(digits) == canonicalDouble(f) {
			return types.Double(f)
		}
	}
	return &number{v}
}

// canonicalDouble is the shortest text that is read as f again, in the form of [evaluation.Value.AppendCanonical]. It is
// for doubles that are not integral.
func canonicalDouble(f float64) string {
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(f, 'e', -1, 64), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	power, _ := strconv.Atoi(exponent)
	return whole + fraction + "e" + strconv.Itoa(power-len(fraction))
}

// number is a number that CEL cannot hold: beyond int64, or of more digits than a double has.
type number struct{ value evaluation.Value }

const inexact = "a number that CEL cannot hold exactly is used for more than a copy"

var numberType = types.NewOpaqueType("json.number")

func (n *number) ConvertToNative(reflect.Type) (any, error) {
	return nil, types.NewErrFromString(inexact).(*types.Err)
}
func (n *number) ConvertToType(ref.Type) ref.Val {
	return types.NewErrFromString(inexact)
}
func (n *number) Equal(ref.Val) ref.Val { return types.NewErrFromString(inexact) }
func (n *number) Type() ref.Type        { return numberType }
func (n *number) Value() any            { return n.value }

// holdsNumber reports whether there is such a number in v, at any depth.
func holdsNumber(v ref.Val) bool {
	switch v := v.(type) {
	case *number:
		return true
	case *types.Optional:
		return v.HasValue() && holdsNumber(v.GetValue())
	case traits.Mapper:
		for it := v.Iterator(); it.HasNext() == types.True; {
			if e, ok := v.Find(it.Next()); ok && holdsNumber(e) {
				return true
			}
		}
	case traits.Lister:
		for it := v.Iterator(); it.HasNext() == types.True; {
			if holdsNumber(it.Next()) {
				return true
			}
		}
	}
	return false
}

// list is an array of JSON, as CEL sees it.
type list struct {
	value evaluation.Value
	made  traits.Lister
	size  uint32
}

// elements makes the values once, when somebody looks at them.
func (l *list) elements() traits.Lister {
	if l.made == nil {
		values := make([]ref.Val, 0, l.value.Len())
		for _, e := range l.value.Elements {
			values = append(values, celValue(e))
		}
		l.made = types.NewRefValList(adapter{}, values)
	}
	return l.made
}

func (l *list) Add(other ref.Val) ref.Val                   { return l.elements().Add(other) }
func (l *list) Contains(v ref.Val) ref.Val                  { return l.elements().Contains(v) }
func (l *list) ConvertToNative(t reflect.Type) (any, error) { return l.elements().ConvertToNative(t) }
func (l *list) ConvertToType(t ref.Type) ref.Val            { return l.elements().ConvertToType(t) }
func (l *list) Equal(other ref.Val) ref.Val                 { return l.elements().Equal(other) }
func (l *list) Get(i ref.Val) ref.Val                       { return l.elements().Get(i) }
func (l *list) Iterator() traits.Iterator                   { return l.elements().Iterator() }
func (l *list) Size() ref.Val                               { return types.Int(l.value.Len()) }
func (l *list) Type() ref.Type                              { return types.ListType }
func (l *list) Value() any                                  { return l.elements().Value() }

// AggregateSize counts what is in the list.
func (l *list) AggregateSize(types.AggregateSizer) uint32 {
	if l.size == 0 {
		l.size = weigh(l.value)
	}
	return l.size
}

// weigh is the size of a value as limits count it: its scalars and containers, and each ten bytes of a string.
func weigh(v evaluation.Value) uint32 {
	total := uint64(1)
	switch v.Kind() {
	case evaluation.String:
		total = textWeight(v.Text())
	case evaluation.Array:
		for _, e := range v.Elements {
			total += uint64(weigh(e))
		}
	case evaluation.Map:
		for name, m := range v.Object().Members {
			total += textWeight(name) + uint64(weigh(m))
		}
	}
	return uint32(min(total, math.MaxUint32))
}

func textWeight(s string) uint64 { return max(1, uint64(len(s)+9)/10) }

// object of JSON, as CEL sees it. What is in it is made when somebody looks at it.
type jsonMap struct {
	object evaluation.Object
	inner  map[string]ref.Val // containers that were looked at
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
	v, ok := m.object.Get(string(name))
	if !ok {
		return nil, false
	}
	made := celValue(v)
	if v.Kind() == evaluation.Array || v.Kind() == evaluation.Map {
		if m.inner == nil {
			m.inner = map[string]ref.Val{}
		}
		m.inner[string(name)] = made
	}
	return made, true
}

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
	for name := range m.object.Members {
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

// Iterator yields the names, sorted.
func (m *jsonMap) Iterator() traits.Iterator {
	names := make([]ref.Val, 0, m.object.Len())
	for name := range m.object.Members {
		names = append(names, types.String(name))
	}
	return types.NewRefValList(adapter{}, names).Iterator()
}

// AggregateSize counts what is in the map.
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

func (m *jsonMap) Size() ref.Val  { return types.Int(m.object.Len()) }
func (m *jsonMap) Type() ref.Type { return types.MapType }
func (m *jsonMap) Value() any     { return m.object }

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

// Equal hides the order of the map from nobody else: the map itself compares.
func (s *sorted) Equal(other ref.Val) ref.Val {
	if o, ok := other.(*sorted); ok {
		return s.Mapper.Equal(o.Mapper)
	}
	return s.Mapper.Equal(other)
}

// AggregateSize counts what is in the map.
func (s *sorted) AggregateSize(sizer types.AggregateSizer) uint32 {
	return sizer.AggregateSize(s.Mapper)
}
