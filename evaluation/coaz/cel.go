package coaz

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/env"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
)

// language is CEL as mappings are written in it: the standard library and optional values, over the variables that
// there are and nothing else. What depends on the machine is not in it: the time zones by name.
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
		cel.ParserExpressionSizeLimit(limits.Expression),
		cel.ParserRecursionLimit(maxNesting),
		cel.ExpressionNodeLimit(maxNodes),
		cel.RegexProgramSizeLimit(maxProgram),
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

// result is what an expression must yield at its place.
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
	offsets  map[int64]int // of the parts, in bytes of the mapping's string
	language *language
	copies   *selection // what it reads, if it does nothing else
}

// expression compiles what stands behind a $.
func (c *compiler) expression(text, at string, want result) (node, []selection, *Error) {
	l, source := c.language, text[1:]
	fail := func(offset int, detail string) *Error {
		err := c.fail(at, detail)
		err.Offset = offset
		return err
	}
	parsed, issues := l.env.Parse(source)
	if err := issues.Err(); err != nil {
		return nil, nil, fail(offsetOf(source, issues), "the expression is no CEL, or beyond a limit")
	}
	offsets := offsetsIn(source, parsed.NativeRep())
	var seen inspector
	if seen.inspect(parsed.NativeRep().Expr()); seen.problem != "" {
		return nil, nil, fail(offsets[seen.where], seen.problem)
	}
	checked, issues := l.env.Check(parsed)
	if err := issues.Err(); err != nil {
		return nil, nil, fail(offsetOf(source, issues), checkDetail(issues))
	}
	if seen.unoptional(checked) {
		return nil, nil, fail(0, "what is marked as optional in a list or map is no optional value")
	}
	if yields := unwrapped(checked.OutputType()); !want.takes(yields) {
		return nil, nil, fail(0, "the expression yields a "+yields.TypeName()+", which cannot stand here")
	}
	for n := range seen.reads {
		seen.reads[n].offset = offsets[seen.reads[n].id]
	}
	program, err := l.program(checked, &seen)
	if err != nil {
		return nil, nil, fail(0, "the expression cannot be planned: a regular expression in it is wrong or too large")
	}
	e := &expression{at: at, text: source, program: program, offsets: offsets, language: l}
	if len(seen.reads) == 1 && seen.reads[0].alone {
		e.copies = &seen.reads[0]
	}
	return e, seen.reads, nil
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

// unwrapped is the type of the value that an optional holds.
func unwrapped(t *cel.Type) *cel.Type {
	if t.Kind() == types.OpaqueKind && t.TypeName() == "optional_type" && len(t.Parameters()) == 1 {
		return t.Parameters()[0]
	}
	return t
}

func (l *language) program(checked *cel.Ast, seen *inspector) (cel.Program, error) {
	programs := map[string]int{}
	options := []cel.ProgramOption{
		cel.CustomDecoratorV2(exactly),
		cel.CostLimit(l.limits.Cost),
		cel.CostTracking(textCost{}),
		cel.CostTrackerOptions(
			cost.OverloadTracker(overloads.Equals, l.comparisonCost),
			cost.OverloadTracker(overloads.NotEquals, l.comparisonCost),
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

// append evaluates the expression. What all expressions of a mapping cost counts together.
func (e *expression) append(b []byte, r *resolution) ([]byte, bool, *Error) {
	r.vars.op = r.op
	value, details, err := e.program.Eval(&r.vars)
	if spent := details.ActualCost(); spent != nil {
		r.spent += *spent
	}
	if err == nil && r.spent > e.language.limits.Cost {
		return nil, false, e.fail(r, 0, costExceeded(e.language.limits))
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
		return append(b, n...), true, nil
	}
	w := resultWriter{limit: len(b) + e.language.limits.Request.Body, depth: e.language.limits.Request.Depth}
	b, problem := w.append(b, value)
	if problem != "" {
		return nil, false, e.fail(r, 0, problem)
	}
	return b, true, nil
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
	return n.Text(), ok && n.Kind() == evaluationNumber
}

func (e *expression) fail(r *resolution, offset int, detail string) *Error {
	err := r.fail(e.at, detail)
	err.Expression, err.Offset = "$"+e.text, offset
	return err
}

func costExceeded(l Limits) string { return tooMany("units of cost for all expressions", int(l.Cost)) }

// failed is an error of the evaluation, in words of ours: those of the library quote values.
func (e *expression) failed(r *resolution, err error) *Error {
	var cancelled interpreter.EvalCancelledError
	if errors.As(err, &cancelled) {
		if cancelled.Cause == interpreter.MemoryLimitExceeded {
			return e.fail(r, 0, tooMany("values at a time", int(e.language.limits.Values)))
		}
		return e.fail(r, 0, costExceeded(e.language.limits))
	}
	offset := 0
	var celErr *types.Err
	if errors.As(err, &celErr) {
		offset = e.offsets[celErr.NodeID()]
	}
	text := err.Error()
	for _, known := range failures {
		if strings.HasPrefix(text, known.begins) {
			return e.fail(r, offset, known.detail)
		}
	}
	return e.fail(r, offset, "the evaluation fails")
}

// failures are what evaluations fail with: how the library's text begins, and what we say.
var failures = []struct{ begins, detail string }{
	{"no such key", "a member that is read is missing"},
	{"no such attribute", "a variable that is read has no value"},
	{"index out of bounds", "an index is out of range"},
	{"index '", "an index is out of range"},
	{"no such overload", "a value has a type that the operation does not take"},
	{"unsupported index type", "a value has a type that cannot be an index"},
	{"unsupported key type", "a value has a type that cannot be the name of a member"},
	{"division by zero", "division by zero"},
	{"modulus by zero", "division by zero"},
	{"integer overflow", "a number is out of range"},
	{"unsigned integer overflow", "a number is out of range"},
	{"optional.none()", "the value of an optional that has none is read"},
	{inexact, inexact},
	{textTooLong, textTooLong},
}

// offsetsIn are the bytes at which the parts of an expression begin in the mapping's string, which begins with a $.
func offsetsIn(source string, tree *ast.AST) map[int64]int {
	starts := make([]int, 0, len(source)+1) // of the characters, in which the library counts
	for i := range source {
		starts = append(starts, i+1)
	}
	starts = append(starts, len(source)+1)
	offsets := map[int64]int{}
	for id, where := range tree.SourceInfo().OffsetRanges() {
		if n := int(where.Start); 0 <= n && n < len(starts) {
			offsets[id] = starts[n]
		}
	}
	return offsets
}

// offsetOf is the byte of the mapping's string at which the first mistake is.
func offsetOf(source string, issues *cel.Issues) int {
	errs := slices.Clone(issues.Errors())
	if len(errs) == 0 {
		return 0
	}
	first := errs[0].Location
	for _, e := range errs[1:] {
		if l := e.Location; l.Line() < first.Line() || l.Line() == first.Line() && l.Column() < first.Column() {
			first = l
		}
	}
	if first.Line() < 1 || first.Column() < 0 {
		return 0
	}
	lines := strings.SplitAfter(source, "\n")
	if first.Line() > len(lines) {
		return 0
	}
	before := 0
	for _, line := range lines[:first.Line()-1] {
		before += len(line)
	}
	for i := range lines[first.Line()-1] {
		if first.Column() == 0 || i > 0 && len([]rune(lines[first.Line()-1][:i])) == first.Column() {
			return before + i + 1
		}
	}
	return len(source)
}

// checkDetail says what the type checker found, without the library's text: it quotes the expression.
func checkDetail(issues *cel.Issues) string {
	for _, e := range issues.Errors() {
		if strings.HasPrefix(e.Message, "undeclared reference") {
			return "the expression names a variable or function that mappings do not have"
		}
	}
	return "the types in the expression do not fit"
}
