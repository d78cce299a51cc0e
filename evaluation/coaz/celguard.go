package coaz

import (
	"math"
	"regexp"
	"slices"

	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// orderly replaces the parts of a program that make maps: their order would depend on chance.
func orderly(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	if part, ok := i.(interpreter.InterpretableConstructor); ok && part.Type() == types.MapType {
		return &inOrder{part}, nil
	}
	return i, nil
}

// inOrder makes maps that are gone through in the order of their keys.
type inOrder struct {
	interpreter.InterpretableConstructor
}

// Exec makes the map.
func (o *inOrder) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	made := o.InterpretableConstructor.Exec(frame)
	if m, ok := made.(traits.Mapper); ok {
		return &sorted{m}
	}
	return made
}

// Eval makes the map.
func (o *inOrder) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, o.Exec)
}

// comparisonCost is the cost of comparing: the smaller of the two values.
func (l *language) comparisonCost(args []ref.Val, _ ref.Val) *uint64 {
	return charge(1 + min(l.weight(args[0]), l.weight(args[1])))
}

// membershipCost is the cost of looking for a value in a list: the list.
func (l *language) membershipCost(args []ref.Val, _ ref.Val) *uint64 {
	return charge(1 + l.weight(args[1]))
}

func (l *language) weight(v ref.Val) uint64 { return uint64(l.size.AggregateSize(v)) }

func charge(units uint64) *uint64 { return &units }

// textCost charges a call for the text that it is given, if the library does not: it counts the conversion of a string
// as one step, however long that is.
type textCost struct{}

// CallCost is the cost of a call.
func (textCost) CallCost(_, overload string, args []ref.Val, _ ref.Val) *uint64 {
	if slices.Contains(chargedFor, overload) {
		return nil
	}
	units := uint64(1)
	for _, arg := range args {
		switch text := arg.(type) {
		case types.String:
			units += uint64(len(text) / 10)
		case types.Bytes:
			units += uint64(len(text) / 10)
		}
	}
	return &units
}

// chargedFor are the calls that the library charges for the text they are given.
var chargedFor = func() (ids []string) {
	for _, m := range cost.StandardOverloadModels {
		ids = append(ids, m.ID)
	}
	return ids
}()

const textTooLong = "a text is too long for the pattern that it is matched with"

// boundedMatches compiles the patterns of matches, which are literals, and bounds the work of matching: the length of
// the text times the size of the pattern. It notes the sizes, for the cost.
func boundedMatches(programs map[string]int) *interpreter.RegexOptimization {
	return &interpreter.RegexOptimization{
		Function:   overloads.Matches,
		RegexIndex: 1,
		Factory: func(call interpreter.InterpretableCall, pattern string) (interpreter.InterpretableCall, error) {
			compiled, err := regexp.Compile(pattern)
			if err != nil {
				return nil, err
			}
			size, err := types.RegexProgramSize(pattern)
			if err != nil {
				return nil, err
			}
			programs[pattern] = size
			return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), func(v ...ref.Val) ref.Val {
				text, ok := v[0].(types.String)
				if !ok {
					return types.NoSuchOverloadErr()
				}
				if len(text) > maxMatching/size {
					return types.NewErrFromString(textTooLong)
				}
				return types.Bool(compiled.MatchString(string(text)))
			}), nil
		},
	}
}

// matchingCost is the cost of matching: a unit for each 250 steps that it could take.
func matchingCost(programs map[string]int) cost.FunctionTracker {
	return func(args []ref.Val, _ ref.Val) *uint64 {
		text, _ := args[0].(types.String)
		pattern, _ := args[1].(types.String)
		steps := uint64(len(text)+1) * uint64(programs[string(pattern)]+1)
		return charge(1 + uint64(len(text)/10) + min(steps/250, math.MaxInt32))
	}
}
