package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/decisionlog/export"
	"policy-service/pdp/internal/plainfile"
)

type exportCommand struct {
	logFlags
	Only    filterFlags `embed:""`
	Format  string      `enum:"ndjson,csv" default:"ndjson" placeholder:"FORMAT" help:"The format: ndjson, which log verify reads, or csv, which spreadsheets read. The default is ${default}."`
	Proofs  bool        `help:"Write a proof after every record, so that you can hand on each record alone."`
	Bundles bool        `help:"Write the policies too, so that log recheck and replay can ask them elsewhere. They are those of all tenants."`
	BOM     bool        `name:"bom" help:"Begin a csv with a byte order mark, so that Excel reads its letters as UTF-8."`
	Out     cli.Given   `short:"o" name:"out" placeholder:"FILE" help:"Write to this file instead of standard output. The file appears as a whole or not at all."`
}

// Help ends the command's help.
func (exportCommand) Help() string {
	return "Without a filter, an export proves that it is complete up to its checkpoint. With a filter, it holds a " +
		"hash for each record that it leaves out, and proves that its records are in the decision log.\n\n" +
		"With --server, an export holds all records that your credential may read, and continues by itself, after " +
		"the last whole record, if the connection breaks. With --data while a server is running, it holds only the " +
		"sealed segments."
}

// Run writes the export, and a summary to standard error.
func (c exportCommand) Run(s cli.Streams) error {
	if c.Proofs && c.Format == "csv" {
		return errors.New("a csv holds no proofs; leave out --proofs, or try --format ndjson")
	}
	if c.Bundles && c.Format == "csv" {
		return errors.New("a csv holds no policies; leave out --bundles, or try --format ndjson")
	}
	if c.BOM && c.Format != "csv" {
		return errors.New("--bom is for --format csv; leave it out")
	}
	filter, err := c.Only.filter(s)
	if err != nil {
		return err
	}
	var done export.Result
	err = writeOut(s, "export", string(c.Out), func(w io.Writer) error {
		out := &outcome{Writer: w}
		err := c.read("export", func(ctx context.Context, log auditLog) (err error) {
			done, err = log.Export(ctx, out, export.Options{
				Format:  c.Format,
				Filter:  filter,
				Proofs:  c.Proofs,
				Bundles: c.Bundles,
				BOM:     c.BOM,
			})
			return err
		})
		if out.err != nil {
			return unwritable("export", "--out", out.err)
		}
		return err
	})
	if err != nil {
		return err
	}
	s.Tell("%s", exported(done, c.Only != filterFlags{}))
	return nil
}

// outcome distinguishes a full disk from a log that cannot be read.
type outcome struct {
	io.Writer
	err error
}

func (o *outcome) Write(b []byte) (int, error) {
	n, err := o.Writer.Write(b)
	o.err = err
	return n, err
}

// writeOut gives an export to standard output or to a file. A file appears when it is whole: half an export looks like
// a log that was cut.
func writeOut(s cli.Streams, what, name string, export func(io.Writer) error) error {
	if name == "" || name == "-" {
		return export(s.Out)
	}
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		return exportInto(what, name, export) // a pipe or a device must not be replaced
	}
	var failed error
	err := plainfile.Stream(name, func(w io.Writer) error { // for its owner alone: records are not for everybody
		failed = export(w)
		return failed
	})
	if err != nil && failed == nil {
		err = unwritable(what, "--out", err)
	}
	return err
}

func exportInto(what, name string, export func(io.Writer) error) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return unwritable(what, "--out", err)
	}
	return errors.Join(export(f), f.Close())
}

func unwritable(what, flag string, err error) error {
	return fmt.Errorf("cannot write the %s: %w; try another %s", what, err, flag)
}

// exported is a line about the records of an export, and further lines about missing ones.
func exported(e export.Result, filtered bool) string {
	skipped := "left out by the filter"
	if !filtered {
		skipped = "that this credential may not read"
	}
	text := fmt.Sprintf("exported %s of %d", cli.Plural(int(e.Records), "record"), e.Size)
	for _, less := range []struct {
		count int64
		why   string
	}{{e.Skipped, skipped}, {e.Retired, "dropped by retention"}, {e.Redacted, "redacted"}} {
		if less.count > 0 {
			text += fmt.Sprintf(", %d %s", less.count, less.why)
		}
	}
	return strings.Join(append([]string{text}, unread(e.Unread)...), "\n")
}
