package coaz

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/interpreter"
)

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

// failures are the errors of evaluations: the beginning of the library's text, and ours.
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

// mistakes are the errors of the parser or the type checker, in the order of their places. The library has them in one
// text, too, which quotes the expression for each of them.
func mistakes(issues *cel.Issues) []*cel.Error {
	return slices.SortedStableFunc(slices.Values(issues.Errors()), func(a, b *cel.Error) int {
		return cmp.Or(cmp.Compare(a.Location.Line(), b.Location.Line()), cmp.Compare(a.Location.Column(), b.Location.Column()))
	})
}

// offsetOf is the byte of the mapping's string at which a mistake is.
func offsetOf(source string, mistake *cel.Error) int {
	at := mistake.Location
	lines := strings.SplitAfter(source, "\n")
	if at.Line() < 1 || at.Column() < 0 || at.Line() > len(lines) {
		return 0
	}
	before := 0
	for _, line := range lines[:at.Line()-1] {
		before += len(line)
	}
	column := 0
	for i := range lines[at.Line()-1] {
		if column == at.Column() {
			return before + i + 1
		}
		column++
	}
	return len(source) + 1
}

// found has the errors in the library's words: they speak of the expression alone, which has not met an argument or a
// claim yet.
func found(what string, all []*cel.Error) string {
	const most = 160
	for _, e := range all {
		if rest, ok := strings.CutPrefix(e.Message, "undeclared reference to '"); ok {
			name, _, _ := strings.Cut(rest, "'")
			return "the expression names " + name + ", which mappings do not have"
		}
	}
	message, _, _ := strings.Cut(all[0].Message, "\n")
	if len(message) > most {
		message = strings.ToValidUTF8(message[:most], "") + "…"
	}
	return what + ": " + message
}
