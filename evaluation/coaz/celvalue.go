package coaz

import (
	"math"
	"reflect"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"

	"policy-service/evaluation"
)

// variables are the values of an expression's variables.
type variables struct {
	op      *Operation
	made    map[string]ref.Val
	numbers map[string]bool // by name, whether a variable holds a number that CEL cannot
}

// inexact reports whether a variable holds a number that CEL cannot hold, at any depth. It is looked for once.
func (v *variables) inexact(name string) bool {
	is, known := v.numbers[name]
	if !known {
		value, _ := v.value(name)
		is = inexactIn(value)
		if v.numbers == nil {
			v.numbers = map[string]bool{}
		}
		v.numbers[name] = is
	}
	return is
}

// ResolveName returns the value of a variable.
func (v *variables) ResolveName(name string) (any, bool) {
	if made, ok := v.made[name]; ok {
		return made, true
	}
	value, ok := v.value(name)
	if !ok {
		return nil, false
	}
	if v.made == nil {
		v.made = map[string]ref.Val{}
	}
	v.made[name] = celValue(value)
	return v.made[name], true
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
	return v.op.Inputs.Lookup(name)
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

// list is an array of JSON, as CEL sees it.
type list struct {
	value evaluation.Value
	made  traits.Lister
	size  uint32
}

// elements makes the values once, at the first use.
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
func (l *list) IsZeroValue() bool                           { return l.value.Len() == 0 }
func (l *list) Size() ref.Val                               { return types.Int(l.value.Len()) }
func (l *list) Type() ref.Type                              { return types.ListType }
func (l *list) Value() any                                  { return l.elements().Value() }

// AggregateSize counts the elements.
func (l *list) AggregateSize(types.AggregateSizer) uint32 {
	if l.size == 0 {
		l.size = weigh(l.value)
	}
	return l.size
}

// weigh is the size of a value as limits count it: its scalars and containers, and each ten bytes of a string or
// number.
func weigh(v evaluation.Value) uint32 {
	total := uint64(1)
	switch v.Kind() {
	case evaluation.String, evaluation.Number:
		total = textWeight(v.Text())
	case evaluation.Array:
		for _, e := range v.Elements {
			total += uint64(weigh(e))
		}
	case evaluation.Map:
		for name, m := range v.Object().All {
			total += textWeight(name) + uint64(weigh(m))
		}
	}
	return uint32(min(total, math.MaxUint32))
}

func textWeight(s string) uint64 { return max(1, uint64(len(s)+9)/10) }
