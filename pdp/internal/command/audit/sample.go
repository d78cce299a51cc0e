package audit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/decisionlog/report"
)

type sampleCommand struct {
	logFlags
	N    int       `name:"n" default:"25" placeholder:"N" help:"How many decisions to choose. The default is ${default}."`
	Seed cli.Given `required:"" placeholder:"S" help:"The text that the choice depends on. The auditor should choose it, after the newest checkpoint was made."`
	Span spanFlags `embed:""`
	Out  cli.Given `short:"o" name:"out" required:"" placeholder:"DIR" help:"Write the sample into this new directory. The directory appears as a whole or not at all."`
}

// Help ends the command's help.
func (sampleCommand) Help() string {
	return "The same seed and the same time choose the same decisions for everybody. The sample holds each decision " +
		"with its proof, its receipts and the policies that were in force, " +
		"and a README.md that says how to check all of it with nothing but the public key of the decision log."
}

// Run writes the sample.
func (c sampleCommand) Run(s cli.Streams) error {
	from, to, err := c.Span.times()
	if err != nil {
		return err
	}
	o := report.SampleOptions{N: c.N, Seed: string(c.Seed), From: from, To: to}
	if err := o.Check(); err != nil {
		return err
	}
	if err := isNew(string(c.Out), "--out"); err != nil { // before the log is read: that may take a while
		return err
	}
	sample, err := find(c.logFlags, "make a sample", func(log auditLog, ctx context.Context) (report.Sample, error) {
		return log.Sample(ctx, o)
	})
	if err != nil {
		return err
	}
	if err := writeNew(string(c.Out), sample.Files); err != nil {
		return unwritable("sample", "--out", err)
	}
	sum := sample.Summary
	s.Print("chose %d of %s; %s says how to check them", len(sum.Chosen), cli.Plural(int(sum.Population), "decision"),
		filepath.Join(string(c.Out), "README.md"))
	for _, line := range unread(sum.Unread) {
		s.Tell("%s", line)
	}
	return nil
}

// isNew refuses a directory that is not empty: with other files beside it a sample would be another sample, and a bundle
// another bundle.
func isNew(dir, flag string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("cannot write into %s: %w; try another %s", dir, err, flag)
	case len(entries) > 0:
		return fmt.Errorf("%s holds something already; try another %s, which does not exist", dir, flag)
	}
	return nil
}

// writeNew writes a directory, which appears only when all of it is written.
func writeNew(dir string, files map[string][]byte) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	draft, err := os.MkdirTemp(filepath.Dir(dir), "."+filepath.Base(dir)+".*") // 0700: records are not for everybody
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(draft) }() // gone already if all went well
	if err := writeBundle(draft, files); err != nil {
		return err
	}
	if info, err := os.Lstat(dir); err == nil && info.IsDir() {
		if err := os.Remove(dir); err != nil { // only an empty one can be
			return err
		}
	}
	return os.Rename(draft, dir)
}
