package pep

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// evaluator evaluates the expressions of one mapping.
type evaluator struct {
	stub   *stub
	params any
	claims object
	sep    bool
}

// errAbsent is an expression that is absent.
var errAbsent = errors.New("absent")

var newEnv = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(cel.Variable("params", cel.DynType), cel.Variable("token", cel.DynType), cel.OptionalTypes())
})

// programs are the expressions that compiled, by their texts.
var programs sync.Map

func (e *evaluator) program(text string) (cel.Program, error) {
	if p, compiled := programs.Load(text); compiled {
		return p.(cel.Program), nil
	}
	env, err := newEnv()
	if err != nil {
		return nil, err
	}
	unchecked := e.stub.wrong["does not check expressions"]
	ast, issues := env.Compile(text)
	if unchecked {
		ast, issues = env.Parse(text)
	}
	if issues.Err() != nil {
		return nil, mappingError("an expression does not compile")
	}
	p, err := env.Program(ast, cel.CostLimit(10_000))
	if err != nil {
		return nil, mappingError("an expression does not compile")
	}
	if !unchecked {
		programs.Store(text, p)
	}
	return p, nil
}

func (e *evaluator) cel(text string) (any, error) {
	program, err := e.program(text)
	if err != nil {
		return nil, err
	}
	params, err := e.native(e.params)
	if err != nil {
		return nil, err
	}
	token, err := e.native(any(e.claims))
	if err != nil {
		return nil, err
	}
	v, _, err := program.Eval(map[string]any{"params": params, "token": token})
	if err != nil {
		return nil, mappingError("an expression of %s fails", strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r < 'A' }), " "))
	}
	if optional, ok := v.(*types.Optional); ok {
		if !optional.HasValue() {
			return nil, errAbsent
		}
		v = optional.GetValue()
	}
	return e.result(v)
}

// native makes of JSON what CEL takes: integers stay integers.
func (e *evaluator) native(v any) (any, error) {
	switch v := v.(type) {
	case object:
		all := map[string]any{}
		for name, inner := range v {
			made, err := e.native(inner)
			if err != nil {
				return nil, err
			}
			all[name] = made
		}
		return all, nil
	case []any:
		all := []any{}
		for _, inner := range v {
			made, err := e.native(inner)
			if err != nil {
				return nil, err
			}
			all = append(all, made)
		}
		return all, nil
	case number:
		if exact := v.exact(); exact != nil && exact.IsInt() && exact.Num().IsInt64() && !e.stub.wrong["reads numbers as floats"] {
			return exact.Num().Int64(), nil
		}
		return strconv.ParseFloat(string(v), 64)
	case nil:
		return types.NullValue, nil
	}
	return v, nil
}

// result is a value of CEL as JSON, if it is one.
func (e *evaluator) result(v ref.Val) (any, error) {
	switch v := v.(type) {
	case types.Int:
		return number(strconv.FormatInt(int64(v), 10)), nil
	case types.Uint:
		return number(strconv.FormatUint(uint64(v), 10)), nil
	case types.Double:
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return nil, mappingError("no number")
		}
		return number(strconv.FormatFloat(float64(v), 'f', -1, 64)), nil
	case types.Bool:
		return bool(v), nil
	case types.String:
		return string(v), nil
	case types.Null:
		return nil, nil
	case types.Timestamp, types.Bytes, types.Duration:
		if e.stub.wrong["makes strings of times"] {
			return "2026-01-02T03:04:05Z", nil
		}
	case traits.Lister:
		all := []any{}
		for i := v.Iterator(); i.HasNext() == types.True; {
			inner, err := e.result(i.Next())
			if err != nil {
				return nil, err
			}
			all = append(all, inner)
		}
		return all, nil
	case traits.Mapper:
		all := object{}
		for i := v.Iterator(); i.HasNext() == types.True; {
			key := i.Next()
			name, ok := key.(types.String)
			if !ok {
				return nil, mappingError("a key that is no string")
			}
			inner, err := e.result(v.Get(key))
			if err != nil {
				return nil, err
			}
			all[string(name)] = inner
		}
		return all, nil
	}
	return nil, mappingError("no JSON value")
}
