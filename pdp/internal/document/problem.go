// Package document reads the YAML documents of a bundle strictly, and keeps the problems of a
// bundle: each [Problem] with its place and a remedy. It knows nothing of the meaning of a document.
package document

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one problem with a bundle: its place, a message, and a remedy to try. It never
// quotes a value from a policy or an entity.
type Problem struct {
	Severity Severity `json:"severity"`
	// File is a slash path inside the bundle, or "" for the bundle as a whole.
	File string `json:"file"`
	// Line and Column count from 1. They are 0 if they are unknown.
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Code    string `json:"code"`
	Message string `json:"message"`
	Try     string `json:"try"`
	// Mend is for editors. It may hold a value from the file.
	Mend Mend `json:"-"`
}

// Severity decides if a problem keeps the bundle from loading.
type Severity string

// The severities of a [Problem].
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
)

// String makes the line that people read: file:line:column: message; remedy.
func (p Problem) String() string {
	text := cmp.Or(p.File, "bundle")
	if p.Line > 0 {
		text += fmt.Sprintf(":%d:%d", p.Line, max(p.Column, 1))
	}
	text += ": "
	if p.Severity == SeverityWarning {
		text += "warning: "
	}
	text += p.Message
	if p.Try != "" {
		text += "; " + p.Try
	}
	return text
}

// Problems are all problems with a bundle, found in one pass.
type Problems []Problem

// Error lists the errors among the problems, one line each.
func (ps Problems) Error() string {
	var lines []string
	for _, p := range ps {
		if p.Severity == SeverityError {
			lines = append(lines, p.String())
		}
	}
	return strings.Join(lines, "\n")
}

// Only returns the problems of one severity.
func (ps Problems) Only(severity Severity) Problems {
	return slices.DeleteFunc(slices.Clone(ps), func(p Problem) bool { return p.Severity != severity })
}

// Refuse reports if one of the problems keeps the bundle from loading.
func (ps Problems) Refuse() bool {
	return slices.ContainsFunc(ps, func(p Problem) bool { return p.Severity == SeverityError })
}

// Sorted returns the problems in the order of their places, each once.
func (ps Problems) Sorted() Problems {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(a.File, b.File),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Code, b.Code),
			cmp.Compare(a.Message, b.Message),
		)
	})
	return slices.Compact(ps)
}

// Add notes a problem of severity error. The place is 0:0 if it is unknown. mend is one at most.
func (ps *Problems) Add(file string, line, column int, code, message, try string, mend ...Mend) {
	*ps = append(*ps, Problem{SeverityError, file, line, column, code, message, try, cmp.Or(mend...)})
}

// Warn adds a warning, as Add does.
func (ps *Problems) Warn(file string, line, column int, code, message, try string, mend ...Mend) {
	*ps = append(*ps, Problem{SeverityWarning, file, line, column, code, message, try, cmp.Or(mend...)})
}
