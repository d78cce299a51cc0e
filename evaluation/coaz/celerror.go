package coaz

import (
	"errors"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/interpreter"
)

func costExceeded(l Limits) string { return tooMany("units of cost for all expressions", int(l.Cost)) }

// failed is an error of the evaluation, in words of ours: those of the library quote values.
func (e *expression) failed(r *resolution, err error) *Error {
	var cancelled interpreter.EvalCancelledError
	if errors.As(err, &cancelled) {
		if cancelled.Cause == interpreter.MemoryLimitExceeded {
			return e.fail(r, tooMany("values at a time", int(e.language.limits.Values)))
		}
		return e.fail(r, costExceeded(e.language.limits))
	}
	text := err.Error()
	for _, known := range failures {
		if strings.HasPrefix(text, known.begins) {
			return e.fail(r, known.detail)
		}
	}
	return e.fail(r, "the evaluation fails")
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
