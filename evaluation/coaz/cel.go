package coaz

import (
	"fmt"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/env"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"policy-service/evaluation"
)

// language is CEL as mappings are written in it: the standard library and optional values, over the variables that
// there are and nothing else. Time zones by name are not in it, because they depend on the machine.
type language struct {
	env    *cel.Env
	limits Limits
	size   *types.SizeCalculator
}

func newLanguage(limits Limits, inputs []string) (*language, error) {
	options := []cel.EnvOption{
		cel.StdLib(cel.StdLibSubset(&env.LibrarySubset{ExcludeFunctions: byTimeZone()})),
		cel.OptionalTypes(),
		cel.CustomTypeAdapter(adapter{}),
		cel.CrossTypeNumericComparisons(true),
		cel.DefaultUTCTimeZone(true),
		cel.EnableErrorOnBadPresenceTest(true), // .?x of a string is a mistake, and not an x that is absent
		cel.ParserRecursionLimit(maxNesting),
		cel.ExpressionNodeLimit(allNodes),
		cel.Variable("params", cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable("token", cel.MapType(cel.StringType, cel.DynType)),
	}
	for _, name := range inputs {
		options = append(options, cel.Variable(name, cel.DynType))
	}
	made, err := cel.NewCustomEnv(options...)
	if err != nil {
		return nil, fmt.Errorf("coaz: %w", err)
	}
	size := types.NewSizeCalculator(types.SizeCalculatorMaxDepth(maxNesting), types.SizeCalculatorMaxTraversal(int(limits.Values)))
	return &language{made, limits, size}, nil
}

// byTimeZone are the functions of a timestamp in a time zone, which look the zone up on the machine.
func byTimeZone() []*env.Function {
	zoned := map[string]string{
		overloads.TimeGetFullYear:     overloads.TimestampToYearWithTz,
		overloads.TimeGetMonth:        overloads.TimestampToMonthWithTz,
		overloads.TimeGetDayOfYear:    overloads.TimestampToDayOfYearWithTz,
		overloads.TimeGetDayOfMonth:   overloads.TimestampToDayOfMonthZeroBasedWithTz,
		overloads.TimeGetDate:         overloads.TimestampToDayOfMonthOneBasedWithTz,
		overloads.TimeGetDayOfWeek:    overloads.TimestampToDayOfWeekWithTz,
		overloads.TimeGetHours:        overloads.TimestampToHoursWithTz,
		overloads.TimeGetMinutes:      overloads.TimestampToMinutesWithTz,
		overloads.TimeGetSeconds:      overloads.TimestampToSecondsWithTz,
		overloads.TimeGetMilliseconds: overloads.TimestampToMillisecondsWithTz,
	}
	var functions []*env.Function
	for name, overload := range zoned {
		functions = append(functions, env.NewFunction(name, env.NewOverload(overload, nil, nil)))
	}
	return functions
}

// result is the type that an expression must yield at its place.
type result uint8

const (
	anyResult    result = iota
	stringResult        // a type, an id or a name
	mapResult           // a subject, action, resource or context
)

// expression is a compiled expression in CEL.
type expression struct {
	at       string
	text     string // without the $
	program  cel.Program
	language *language
	copies   *selection  // what it reads, if it does nothing else
	compares []selection // what it reads, if it compares: not what has() alone looks at
}

// expression compiles the text behind a $.
func (c *compiler) expression(l *leaf) (node, *Error) {
	source, language := l.text[1:], c.language
	fail := func(detail string) (node, *Error) { return nil, c.fail(l.at, detail) }
	parsed, issues := language.env.Parse(source)
	if wrong := issues.Errors(); len(wrong) > 0 {
		return fail(found("the expression is no CEL, or nests too deep", wrong))
	}
	var seen inspector
	if seen.inspect(parsed.NativeRep().Expr()); seen.problem != "" {
		return fail(seen.problem)
	}
	if problem := c.account(&seen); problem != "" {
		return fail(problem)
	}
	checked, issues := language.env.Check(parsed)
	if wrong := issues.Errors(); len(wrong) > 0 {
		return fail(found("the types in the expression do not fit", wrong))
	}
	if seen.unoptional(checked) {
		return fail("what is marked as optional in a list or map is no optional value")
	}
	if yields := unwrapped(checked.OutputType()); !l.want.takes(yields) && !(seen.builds && isScalar(yields)) {
		return fail("the expression yields a " + yields.TypeName() + ", which cannot stand here")
	}
	l.reads, l.tested = seen.reads, seen.tested
	program, err := language.program(checked, &seen)
	if err != nil {
		return fail("the expression cannot be planned")
	}
	e := &expression{at: l.at, text: source, program: program, language: language}
	if seen.alone() {
		e.copies = &seen.reads[0]
	}
	if seen.compares {
		for _, s := range seen.reads {
			if !s.tested {
				e.compares = append(e.compares, s)
			}
		}
	}
	return e, nil
}

// account adds the work of an expression to that of the mapping: compiling thousands would take seconds.
func (c *compiler) account(seen *inspector) (problem string) {
	c.nodes += seen.nodes
	c.patterns += seen.patterns
	c.literals += seen.literals
	c.macros += seen.macros
	switch {
	case c.nodes > allNodes:
		return tooMany("parts in all expressions", allNodes)
	case c.macros > allMacros:
		return tooMany("macros in all expressions", allMacros)
	case c.literals > allLiterals:
		return tooMany("lists, maps and optional values in all expressions", allLiterals)
	case c.patterns > allPatterns:
		return tooMany("steps in all patterns", allPatterns)
	}
	return ""
}

// takes reports whether an expression of this type can yield what is wanted: for all but what is known only of its
// value.
func (want result) takes(t *cel.Type) bool {
	switch t.Kind() {
	case types.DynKind, types.AnyKind, types.TypeParamKind:
		return true
	case types.StringKind:
		return want != mapResult
	case types.MapKind:
		return want != stringResult
	case types.IntKind, types.UintKind, types.DoubleKind, types.BoolKind, types.NullTypeKind, types.ListKind:
		return want == anyResult
	}
	return false // bytes, timestamps, durations, types, messages: JSON does not have them
}

// isScalar reports whether a type is one that the checker may be wrong about: it guesses the type of what is in an empty
// list, from the first operation that could have it. What is not checked then is checked when there is a value.
func isScalar(t *cel.Type) bool {
	switch t.Kind() {
	case types.BoolKind, types.BytesKind, types.IntKind, types.UintKind, types.DoubleKind, types.StringKind, types.DurationKind, types.TimestampKind:
		return true
	}
	return false
}

// unwrapped is the type of the value that an optional holds.
func unwrapped(t *cel.Type) *cel.Type {
	if t.Kind() == types.OpaqueKind && t.TypeName() == "optional_type" && len(t.Parameters()) == 1 {
		return t.Parameters()[0]
	}
	return t
}

// optionalHasValue is the library's name of hasValue with a value, which compares.
const optionalHasValue = "optional_hasValue_value"

func (l *language) program(checked *cel.Ast, seen *inspector) (cel.Program, error) {
	if seen.alone() {
		return l.env.Program(checked) // it costs what it is long
	}
	programs := map[string]int{}
	options := []cel.ProgramOption{
		cel.CustomDecoratorV2(orderly),
		cel.CostLimit(l.limits.Cost),
		cel.CostTracking(textCost{}),
		cel.CostTrackerOptions(
			cost.OverloadTracker(overloads.Equals, l.comparisonCost),
			cost.OverloadTracker(overloads.NotEquals, l.comparisonCost),
			cost.OverloadTracker(optionalHasValue, l.comparisonCost),
			cost.OverloadTracker(overloads.InList, l.membershipCost),
			cost.OverloadTracker(overloads.MatchesString, matchingCost(programs)),
			cost.OverloadTracker(overloads.Matches, matchingCost(programs)),
		),
		cel.OptimizeRegex(boundedMatches(programs)),
	}
	if seen.builds {
		options = append(options, cel.MemoryTracking(types.MemoryTrackerSizeCalculator(l.size)), cel.MemoryLimit(l.limits.Values))
	}
	return l.env.Program(checked, options...)
}

// append evaluates the expression. The costs of all expressions of a mapping are added up.
func (e *expression) append(b []byte, r *resolution) ([]byte, bool, *Error) {
	r.vars.op = r.op
	if problem := e.inexact(r); problem != "" {
		return nil, false, e.fail(r, problem)
	}
	value, details, err := e.program.Eval(&r.vars)
	if spent := details.ActualCost(); spent != nil {
		r.spent += *spent
	} else if e.copies != nil {
		r.spent += uint64(len(e.copies.steps) + 1)
	}
	if err == nil && r.spent > e.language.limits.Cost {
		return nil, false, e.fail(r, costExceeded(e.language.limits))
	}
	if err != nil {
		return nil, false, e.failed(r, err)
	}
	if o, ok := value.(*types.Optional); ok {
		if !o.HasValue() {
			return b, false, nil
		}
		value = o.GetValue()
	}
	if n, ok := e.copied(r, value); ok {
		return r.within(append(b, n...), e.at)
	}
	w := resultWriter{limits: e.language.limits.Request, depth: e.language.limits.Request.Depth}
	b, problem := w.append(b, value)
	if problem != "" {
		return nil, false, e.fail(r, problem)
	}
	return r.within(b, e.at)
}

// inexact says why an expression that compares cannot be evaluated: the library would find a number that it cannot hold
// unequal to all others, at any depth. The search costs as going through the values does.
func (e *expression) inexact(r *resolution) (problem string) {
	for _, s := range e.compares {
		if !r.vars.inexact(s.root) {
			continue
		}
		v, _ := s.in(&r.vars)
		if r.spent += uint64(weigh(v)); r.spent > e.language.limits.Cost {
			return costExceeded(e.language.limits)
		}
		if inexactIn(v) {
			return inexact
		}
	}
	return ""
}

// copied is the text of a number that the expression only reads: it is sent as it came, 1.0 as 1.0.
func (e *expression) copied(r *resolution, v ref.Val) (string, bool) {
	switch v.(type) {
	case types.Int, types.Double:
	default:
		return "", false
	}
	if e.copies == nil {
		return "", false
	}
	n, ok := e.copies.in(&r.vars)
	return n.Text(), ok && n.Kind() == evaluation.Number
}

func (e *expression) fail(r *resolution, detail string) *Error {
	err := r.fail(e.at, detail)
	err.Expression = "$" + e.text
	return err
}
