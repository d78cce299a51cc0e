// Package filter makes the condition by which an application's own query selects the rows that a decision allows.
//
// A row is selected exactly if the decision about it allows, or the filter is refused with its reason.
package filter

import (
	"context"
	"errors"

	"policy-service/evaluation"
	"policy-service/pdp/internal/engine"
)

// Dialect is the SQL that a condition is written in.
type Dialect string

// The dialects.
const (
	Postgres Dialect = "postgres"
	SQLite   Dialect = "sqlite"
)

// Options say how a condition is written.
type Options struct {
	Dialect Dialect
	Alias   string // of the table in the application's query; "" is the table's own name
	First   int    // the number of the first parameter, 1 unless given
	Explain bool   // the filter says what became of each policy
}

// Rows says which rows a condition selects.
type Rows string

// The conditions by what they select.
const (
	All  Rows = "all"
	Some Rows = "some"
	None Rows = "none"
)

// Filter is a condition that can stand behind WHERE, with its parameters.
type Filter struct {
	Rows       Rows
	SQL        string
	Parts      []any // the condition as texts, and indexes into Parameters
	Parameters []any // each a string, or a []string
	Clock      bool  // a policy read the time
	Reason     evaluation.Reason
	Required   []string  // the types of obligations that rows would owe which are not selected for it
	Policies   []Outcome // with Options.Explain
}

// Outcome is what became of one policy in a filter.
type Outcome struct {
	Policy, Effect, Position string
	Condition                string // when it holds, as SQL; TRUE, FALSE
	Refused                  *Refusal
}

// Refusal is why there is no filter. It is an error.
type Refusal struct {
	Reason                       string // filter_unmapped, filter_unsupported, …
	Policy, Position, Expression string
	Detail, Try                  string
}

func (r *Refusal) Error() string { return r.Detail }

// Make makes the filter of a question whose resource has only a type. The error is a [*Refusal], an [*evaluation.Error], or one
// of the engine.
func Make(ctx context.Context, in *engine.Inquiry, o Options) (*Filter, error) {
	return nil, errors.New("not yet")
}
