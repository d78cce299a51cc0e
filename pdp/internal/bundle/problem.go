package bundle

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing wrong with a bundle, as facts: where it is, what it is,
// and what to try. It never quotes a value from a policy or an entity.
type Problem struct {
	Severity Severity `json:"severity"`
	// File is the slash path inside the bundle; "" is the bundle as a whole.
	File string `json:"file"`
	// Line and Column count from 1; 0 is unknown.
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Code    string `json:"code"`
	Message string `json:"message"`
	Try     string `json:"try"`
}

// Severity is whether a problem keeps the bundle from loading.
type Severity string

// The severities of a [Problem].
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
)

// String makes the line people read: file:line:column: what; and what to try.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(cmp.Or(p.File, "bundle"))
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", p.Line, max(p.Column, 1))
	}
	b.WriteString(": ")
	if p.Severity == SeverityWarning {
		b.WriteString("warning: ")
	}
	b.WriteString(p.Message)
	if p.Try != "" {
		b.WriteString("; ")
		b.WriteString(p.Try)
	}
	return b.String()
}

// Problems is everything wrong with a bundle, found in one pass.
type Problems []Problem

// Error lists the errors among the problems, a line each.
func (ps Problems) Error() string {
	var lines []string
	for _, p := range ps {
		if p.Severity == SeverityError {
			lines = append(lines, p.String())
		}
	}
	return strings.Join(lines, "\n")
}

// Refuse reports whether any of the problems keeps a bundle from loading.
func (ps Problems) Refuse() bool {
	return slices.ContainsFunc(ps, func(p Problem) bool { return p.Severity == SeverityError })
}

// Sorted are the problems in the order of their places, each once.
func (ps Problems) Sorted() Problems {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(ps)
}

// MostErrors is how many errors of one owner are told of: one small file can hold tens of
// thousands, and each is a line of the log.
const MostErrors = 100

// cut leaves the first errors of each owner; the one after them says that there are more.
func (ps Problems) cut() Problems {
	errors := map[string]int{}
	var kept Problems
	for _, p := range ps {
		owner := ownerOfFile(p.File)
		if p.Severity == SeverityError {
			if errors[owner]++; errors[owner] > MostErrors+1 {
				continue
			}
			if errors[owner] > MostErrors {
				p.Code, p.Message, p.Try = "many_errors", fmt.Sprintf("%s has more errors than the %d that are told, from here on", UsageOf(owner).ownerName(), MostErrors), "mend those, then try again"
			}
		}
		kept = append(kept, p)
	}
	return kept
}

// Add notes a problem of severity error; at 0:0 where no place is known.
func (ps *Problems) Add(file string, line, column int, code, message, try string) {
	*ps = append(*ps, Problem{SeverityError, file, line, column, code, message, try})
}

// Warn adds a warning.
func (ps *Problems) Warn(file string, line, column int, code, message, try string) {
	*ps = append(*ps, Problem{SeverityWarning, file, line, column, code, message, try})
}
