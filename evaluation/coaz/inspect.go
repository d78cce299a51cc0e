package coaz

import (
	"cmp"
	"regexp/syntax"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"policy-service/evaluation"
)

// selection is a chain of members and indices that an expression reads, from a variable on.
type selection struct {
	root   string
	steps  []step
	alone  bool // the expression does nothing else
	tested bool // has() looks for a member of it, and it has no other use
}

// step is one member, or one element if name is "".
type step struct {
	name     string
	index    int64
	isIndex  bool
	optional bool
}

// is reports whether a selection is this member of this variable.
func (s selection) is(root, name string) bool {
	return s.root == root && len(s.steps) == 1 && s.steps[0].name == name && !s.steps[0].isIndex
}

// in returns the value that is selected, if there is one.
func (s selection) in(vars *variables) (evaluation.Value, bool) {
	v, ok := vars.value(s.root)
	for _, step := range s.steps {
		if !ok {
			break
		}
		v, ok = step.in(v)
	}
	return v, ok
}

// in returns the member or element of v. A negative index counts from the end.
func (s step) in(v evaluation.Value) (evaluation.Value, bool) {
	if !s.isIndex {
		return v.Object().Lookup(s.name)
	}
	at := s.index
	if at < 0 {
		at += int64(v.Len())
	}
	for i, e := range v.Elements {
		if int64(i) == at {
			return e, true
		}
	}
	return evaluation.Value{}, false
}

// inspector looks through an expression before its types are checked, for what it reads, and for what the checker or
// the evaluation must not be given.
type inspector struct {
	reads     []selection
	tested    []selection // by has()
	optionals []int64     // elements and entries that must be optional values
	builds    bool        // lists, maps or text, so that values can become larger than what was sent
	compares  bool        // values with each other
	inspected

	problem string
}

// inspected counts the parts that make work.
type inspected struct {
	nodes    int
	macros   int
	literals int // of lists and maps
	patterns int // steps
}

// scope holds the names that are no variables of ours, because a macro took them.
type scope []string

func (i *inspector) refuse(problem string) { i.problem = cmp.Or(i.problem, problem) }

// inspect looks through a whole expression.
func (i *inspector) inspect(e ast.Expr) {
	ast.PreOrderVisit(e, ast.NewExprVisitor(func(ast.Expr) { i.nodes++ }))
	i.walk(e, nil)
	if s, ok := selectionOf(e, nil); ok && len(i.reads) == 1 && len(i.tested) == 0 && s.root != "" {
		i.reads[0].alone = true
	}
}

// alone reports whether the expression only reads something.
func (i *inspector) alone() bool { return len(i.reads) == 1 && i.reads[0].alone }

func (i *inspector) walk(e ast.Expr, s scope) {
	if read, ok := selectionOf(e, s); ok {
		i.reads = append(i.reads, read)
		return
	}
	switch e.Kind() {
	case ast.SelectKind:
		i.selected(e, s)
	case ast.CallKind:
		i.call(e, s)
	case ast.ListKind:
		i.builds = true
		i.literal()
		for n, element := range e.AsList().Elements() {
			if e.AsList().IsOptional(int32(n)) {
				i.optionals = append(i.optionals, element.ID())
			}
			i.walk(element, s)
		}
	case ast.MapKind:
		i.entries(e, s)
	case ast.ComprehensionKind:
		i.comprehension(e, s)
	case ast.StructKind:
		i.refuse("messages have no form in JSON")
	}
}

func (i *inspector) selected(e ast.Expr, s scope) {
	operand := e.AsSelect().Operand()
	i.walk(operand, s)
	if on, ok := selectionOf(operand, s); ok && e.AsSelect().IsTestOnly() {
		i.reads[len(i.reads)-1].tested = true
		on.steps = append(on.steps, step{name: e.AsSelect().FieldName()})
		i.tested = append(i.tested, on)
	}
}

func (i *inspector) call(e ast.Expr, s scope) {
	call := e.AsCall()
	parts := call.Args()
	if call.IsMemberFunction() {
		parts = append([]ast.Expr{call.Target()}, parts...)
	}
	switch strings.TrimPrefix(call.FunctionName(), ".") { // .matches(…) is matches(…)
	case operators.Add:
		i.builds = true
	case operators.Equals, operators.NotEquals, operators.In, operators.OldIn:
		i.compares = true
	case "hasValue":
		i.compares = i.compares || len(parts) == 2
	case overloads.Matches:
		if len(parts) == 2 {
			i.pattern(parts[1])
		}
	case "of", "ofNonZeroValue":
		i.literal()
	}
	for _, part := range parts {
		i.walk(part, s)
	}
}

func (i *inspector) literal() {
	if i.literals++; i.literals > maxLiterals {
		i.refuse(tooMany("lists, maps and optional values in one expression", maxLiterals))
	}
}

// pattern checks a regular expression, which is compiled with the mapping and so must be known then.
func (i *inspector) pattern(e ast.Expr) {
	if e.Kind() != ast.LiteralKind {
		i.refuse("the pattern of matches is not a literal")
		return
	}
	text, ok := e.AsLiteral().(types.String)
	if !ok {
		return // the type checker says so
	}
	parsed, err := syntax.Parse(string(text), syntax.Perl)
	if err != nil {
		i.refuse("the pattern of matches is no regular expression that RE2 has")
		return
	}
	steps := stepsOf(parsed)
	if i.patterns += steps; steps > maxPattern {
		i.refuse(tooMany("steps in a pattern", maxPattern))
	}
}

// stepsOf is how many instructions matching a pattern takes, or more than maxPattern. The compiler would find out by
// making them all.
func stepsOf(re *syntax.Regexp) int {
	n := 1 + len(re.Rune)
	if re.Op == syntax.OpCharClass {
		n = 1
	}
	for _, sub := range re.Sub {
		n += stepsOf(sub)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min, re.Max, 1)
	}
	return min(n, maxPattern+1)
}

func (i *inspector) entries(e ast.Expr, s scope) {
	i.builds = true
	i.literal()
	keys := map[ref.Val]bool{}
	for _, entry := range e.AsMap().Entries() {
		pair := entry.AsMapEntry()
		// A key of any type makes the types of nested maps grow exponentially; JSON has but one type of key.
		if !isKey(pair.Key()) {
			i.refuse("the key of a map is not a literal string, integer or bool")
			return
		}
		if key := pair.Key().AsLiteral(); keys[key] {
			i.refuse("a map has a key twice")
		} else {
			keys[key] = true
		}
		if pair.IsOptional() {
			i.optionals = append(i.optionals, pair.Value().ID())
		}
		i.walk(pair.Value(), s)
	}
}

func isKey(e ast.Expr) bool {
	if e.Kind() != ast.LiteralKind {
		return false
	}
	switch e.AsLiteral().(type) {
	case types.String, types.Int, types.Uint, types.Bool:
		return true
	}
	return false
}

func (i *inspector) comprehension(e ast.Expr, s scope) {
	i.builds = true
	if i.macros++; i.macros > maxMacros {
		i.refuse(tooMany("macros in one expression", maxMacros))
	}
	c := e.AsComprehension()
	i.walk(c.IterRange(), s)
	i.walk(c.AccuInit(), s)
	inner := append(slices.Clone(s), c.IterVar(), c.IterVar2(), c.AccuVar())
	i.walk(c.LoopCondition(), inner)
	i.walk(c.LoopStep(), inner)
	i.walk(c.Result(), inner)
}

// selectionOf reads an expression as a selection, if it is one: of a variable that no macro hides, by names and
// indices that are literals.
func selectionOf(e ast.Expr, s scope) (selection, bool) {
	switch e.Kind() {
	case ast.IdentKind:
		name := strings.TrimPrefix(e.AsIdent(), ".")
		// A leading dot goes past what macros hide.
		return selection{root: name}, name != e.AsIdent() || !slices.Contains(s, name)
	case ast.SelectKind:
		on, ok := selectionOf(e.AsSelect().Operand(), s)
		on.steps = append(on.steps, step{name: e.AsSelect().FieldName()})
		return on, ok && !e.AsSelect().IsTestOnly()
	case ast.CallKind:
		return selectionByCall(e, s)
	}
	return selection{}, false
}

func selectionByCall(e ast.Expr, s scope) (selection, bool) {
	call := e.AsCall()
	var next step
	switch call.FunctionName() {
	case operators.Index:
	case operators.OptIndex, operators.OptSelect:
		next.optional = true
	default:
		return selection{}, false
	}
	if len(call.Args()) != 2 || call.Args()[1].Kind() != ast.LiteralKind {
		return selection{}, false
	}
	switch by := call.Args()[1].AsLiteral().(type) {
	case types.String:
		next.name = string(by)
	case types.Int:
		next.index, next.isIndex = int64(by), true
	default:
		return selection{}, false
	}
	on, ok := selectionOf(call.Args()[0], s)
	on.steps = append(on.steps, next)
	return on, ok
}

// unoptional is an element or entry that is marked as optional, and is none by its type: it fails whatever is sent.
func (i *inspector) unoptional(checked *cel.Ast) bool {
	return slices.ContainsFunc(i.optionals, func(id int64) bool {
		t := checked.NativeRep().GetType(id)
		return unwrapped(t) == t
	})
}
