package audit

import (
	"fmt"
	"os"
	"strings"

	"policy-service/cmd/policy-service/internal/cli"
	"policy-service/pdp/decisionlog"
	"policy-service/pdp/decisionlog/verify"
)

type verifyCommand struct {
	Path       string    `arg:"" placeholder:"DIR|FILE" help:"A data directory, or the output of log export, log prove or log consistency. - is standard input."`
	Key        cli.Given `placeholder:"FILE" help:"The public key of the decision log, as log key prints it. Without the flag, the key comes from the decision log itself."`
	Checkpoint cli.Given `placeholder:"FILE" help:"A checkpoint of this decision log that you kept elsewhere."`
	Strict     bool      `help:"Exit with 10 if nothing proves that the service wrote all of it: an unsigned tail, records after the last checkpoint, decisions outside of a start or by a bundle that was never loaded."`
	JSON       bool      `name:"json" help:"Print JSON, for programs."`
}

// Help ends the command's help.
func (verifyCommand) Help() string {
	return "Only a checkpoint that you kept elsewhere (--checkpoint) shows that the end was cut off, that the whole " +
		"directory was replaced by an older copy, or that the decision log was signed anew.\n\n" +
		"In a data directory the command also compares each sealed file with its digest, which is on record. If a " +
		"digest is not on record yet, as after a crash, the command names the file, and that is no failure. Nor is it one " +
		"that a crash left records in the journal: the command says how many.\n\n" +
		"Exit codes: 0 verified, 2 usage, 3 altered, 4 missing, 5 truncated, 6 forked, 7 time reversed, 8 " +
		"unreadable, 9 other key; with --strict also 10 unsigned."
}

// Run prints the findings, then the proofs that they give, then the attacks that they cannot exclude.
func (c verifyCommand) Run(s cli.Streams) error {
	options, err := c.options(s)
	if err != nil {
		return err
	}
	report, err := c.verify(s, options)
	if err == nil {
		err = c.unanswered(report)
	}
	if err != nil {
		return err
	}
	journal := c.unfilled(report)
	print := func() error {
		if err := printReport(s, c.Path, report); err != nil || journal == nil {
			return err
		}
		s.Print("  %s %s", s.Colour(cli.Yellow, "not read:"), unfilled(journal))
		return nil
	}
	document := struct {
		verify.Report
		Journal *decisionlog.Unfilled `json:"journal_only,omitzero"`
	}{report, journal}
	if err := s.Answer(c.JSON, document, print, false); err != nil || report.Verified() {
		return err
	}
	return cli.ExitCode(report.Code)
}

// options are the keys and checkpoints that verify may trust, because the auditor has them from elsewhere.
func (c verifyCommand) options(s cli.Streams) (o verify.Options, err error) {
	o.Strict = c.Strict
	if o.Key, err = s.LogKey(c.Key); err == nil {
		o.Checkpoint, err = s.LogCheckpoint(c.Checkpoint)
	}
	return o, err
}

func (c verifyCommand) verify(s cli.Streams, o verify.Options) (verify.Report, error) {
	if c.Path == "-" {
		return verify.Export(s.In, o), nil
	}
	info, err := os.Stat(c.Path)
	if err != nil {
		return verify.Report{}, fmt.Errorf("cannot read what to verify: %w; try a data directory, or a file that log "+
			"export, prove or consistency printed", err)
	}
	if info.IsDir() {
		return verify.Directory(c.Path, o), nil
	}
	f, err := os.Open(c.Path)
	if err != nil {
		return verify.Report{}, fmt.Errorf("cannot read what to verify: %w; try it as a user who may", err)
	}
	defer func() { _ = f.Close() }()
	return verify.Export(f, o), nil
}

// unfilled are the records that only the journal of a verified directory has. Package verify knows no journal: nothing
// signs its records.
func (c verifyCommand) unfilled(r verify.Report) *decisionlog.Unfilled {
	if info, err := os.Stat(c.Path); err != nil || !info.IsDir() || r.Live || !r.Verified() {
		return nil
	}
	missing, _, _ := logFlags{Data: c.Path}.missing()
	return missing.Unfilled
}

// unanswered is why nothing was verified, though nothing is wrong with any log: a slip of the pen, or a server that
// holds all there is. It must not look like a finding.
func (c verifyCommand) unanswered(r verify.Report) error {
	switch {
	case r.Code == verify.Usage:
		return fmt.Errorf("cannot verify: %s; see policy-service log verify --help", r.Problem)
	case r.Live && r.Read == 0 && !r.Verified():
		return fmt.Errorf("cannot verify: a server is running on %s and has sealed no segment yet; verify what log "+
			"export --server URL writes, or stop it", c.Path)
	}
	return nil
}

func printReport(s cli.Streams, path string, r verify.Report) error {
	if r.Verified() {
		s.Print("%s %s: %s", s.Colour(cli.Green, "verified"), path, r.Origin)
	} else {
		s.Print("%s %s", s.Colour(cli.Red, strings.ReplaceAll(r.Code.String(), "_", " ")), r.Problem)
		s.Print("    try: %s", r.Problem.Try)
	}
	for _, line := range r.Proved {
		s.Print("  %s", line)
	}
	for _, line := range r.NotExcluded {
		s.Print("  %s %s", s.Colour(cli.Yellow, "not excluded:"), line)
	}
	return nil
}
