package audit

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/decisionlog/export"
)

type mergeCommand struct {
	Files []string  `arg:"" name:"file" placeholder:"FILE" help:"Files that log export wrote, of several decision logs."`
	Out   cli.Given `short:"o" name:"out" placeholder:"FILE" help:"Write to this file instead of standard output. The file appears as a whole or not at all."`
}

// Help ends the command's help.
func (mergeCommand) Help() string {
	return "The file has each line of each export, and so all proofs: log verify verifies each part as the export that it was. " +
		"Records stand in the order of their times. The same exports make the same file, whatever their order.\n\n" +
		"The command refuses a file that does not verify, and two exports of one decision log that are of two histories. It takes no " +
		"key: log verify with --policy says whose the logs are. log report, log approvals and log recheck read the file with " +
		"--export, and take a step that two replicas recorded as one."
}

// toMerge is an export that verifies.
type toMerge struct {
	name string
	in   *os.File
	verify.Report
}

// Run writes the merge, and a summary to standard error.
func (c mergeCommand) Run(s cli.Streams) (err error) {
	var all []toMerge
	defer func() {
		for _, one := range all {
			err = errors.Join(err, one.in.Close())
		}
	}()
	for _, name := range c.Files {
		in, err := os.Open(name)
		if err != nil {
			return fmt.Errorf("cannot merge: %w; give files that log export wrote", err)
		}
		all = append(all, toMerge{name: name, in: in})
		if err := all[len(all)-1].verify(verify.Options{}); err != nil {
			return err
		}
	}
	slices.SortStableFunc(all, func(a, b toMerge) int {
		return cmp.Or(strings.Compare(a.Origin, b.Origin), cmp.Compare(a.Size, b.Size))
	})
	var inputs []export.Input
	for n, one := range all {
		if n > 0 && all[n-1].Origin == one.Origin {
			if err := one.verify(verify.Options{Key: one.Key, Checkpoint: all[n-1].Checkpoint}); err != nil {
				return fmt.Errorf("%w; %s is of the same decision log", err, all[n-1].name)
			}
		}
		inputs = append(inputs, export.Input{Name: one.name, Reader: one.in})
	}
	var records int64
	err = writeOut(s, "merge", string(c.Out), func(w io.Writer) (err error) {
		out := &outcome{Writer: w}
		switch records, err = export.Merge(out, inputs); {
		case out.err != nil:
			return unwritable("merge", "--out", out.err)
		case err != nil:
			return fmt.Errorf("cannot merge: %w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.Tell("merged %s of %s", cli.Plural(int(records), "record"), cli.Plural(len(inputs), "export"))
	return nil
}

// verify verifies an export, and goes back to its beginning.
func (m *toMerge) verify(o verify.Options) error {
	m.Report = verify.Export(m.in, o)
	if p := m.Problem; p != nil {
		line := p.Line
		p.Line = 0
		return fmt.Errorf("cannot merge: %s:%d: %w; %s", m.name, line, p, p.Try)
	}
	if m.Parts != nil {
		return fmt.Errorf("cannot merge: %s is a merge already; give the exports that it was made of", m.name)
	}
	if _, err := m.in.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("cannot merge: %s is read twice, and must be a file: %w", m.name, err)
	}
	return nil
}
