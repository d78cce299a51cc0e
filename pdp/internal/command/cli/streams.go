// Package cli is how a command speaks with the person or the program that runs it: the flags that hold a value
// ([Given]), the lines, tables and JSON that it prints ([Streams]), and how it ends ([ExitCode]).
//
// Nothing that is printed can act on a terminal: every value of a line is made visible by itself, and once, so that no
// value can begin a line that looks like one of ours. A string is taken for foreign words, in which a
// backslash is doubled. A text with such words in quotes is [Quoted], or [Lines]; so is an error, and any value with a
// String of its own. A text that is visible already is [Shown]. The package knows no command.
package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/alecthomas/kong"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// ExitCode ends a command without a further message.
type ExitCode int

// The exit codes that all commands share, but for those from Owing on, which are of eval alone.
const (
	OK         ExitCode = 0
	No         ExitCode = 1 // a deny, a problem, a failed test
	Failed     ExitCode = 2 // it could not do its task
	Owing      ExitCode = 3 // an allow with obligations
	Possible   ExitCode = 4 // no allow, and some values may be permitted
	Impossible ExitCode = 5
)

func (c ExitCode) Error() string { return fmt.Sprintf("exit %d", int(c)) }

// Streams are where a command reads and writes.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// Fail prints the error that ends a command.
func (s Streams) Fail(err error) ExitCode {
	s.Tell("policy-service: %s", Lines(err.Error()))
	return Failed
}

// Print writes a line of output, with its values made visible. A reader that has gone is no error.
func (s Streams) Print(format string, args ...any) {
	_, _ = fmt.Fprintf(s.Out, format+"\n", visibleValues(args)...)
}

// Tell is Print to standard error.
func (s Streams) Tell(format string, args ...any) {
	s.Out = s.Err
	s.Print(format, args...)
}

// PrintJSON writes v as one line, members in a fixed order, durations in nanoseconds. Names of files may hold bytes
// that are not UTF-8; they become U+FFFD. Characters that cannot be seen stand only in strings, and JSON escapes them
// there.
func (s Streams) PrintJSON(v any) error {
	b, err := json.Marshal(v, json.Deterministic(true), jsontext.AllowInvalidUTF8(true), jsonv1.FormatDurationAsNano(true))
	if err != nil {
		return fmt.Errorf("cannot write the answer as JSON: %w; try it without --json", err)
	}
	s.Print("%s", b)
	return nil
}

// Answer prints the result of a command, as JSON or by print, and ends the command: with No if the result is bad.
func (s Streams) Answer(asJSON bool, document any, print func() error, bad bool) error {
	if asJSON {
		print = func() error { return s.PrintJSON(document) }
	}
	if err := print(); err != nil {
		return err
	}
	if bad {
		return No
	}
	return nil
}

// Table is printed when it is flushed, with its cells made visible.
type Table struct{ *tabwriter.Writer }

// Table begins a table.
func (s Streams) Table() Table { return Table{tabwriter.NewWriter(s.Out, 0, 0, 2, ' ', 0)} }

// Row adds a row.
func (t Table) Row(cells ...any) {
	_, _ = fmt.Fprintf(t, strings.Repeat("\t%v", len(cells))[1:]+"\n", visibleValues(cells)...)
}

// Given is a flag that is given with a value or not at all: --tls-cert "$UNSET" must not come to mean plain HTTP.
type Given string

// Decode refuses an empty value.
func (g *Given) Decode(ctx *kong.DecodeContext) error {
	if err := ctx.Scan.PopValueInto("value", (*string)(g)); err != nil {
		return err
	}
	if *g == "" {
		return errors.New("is given without a value; write one, or leave the flag out")
	}
	return nil
}
