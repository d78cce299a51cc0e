package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/decisionlog/c2sp"
	"policy-service/pdp/internal/decisionlog/export"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/remote"
	"policy-service/pdp/internal/decisionlog/segment"
)

type verifyCommand struct {
	Path       string    `arg:"" optional:"" placeholder:"DIR|FILE" help:"A data directory, the output of log export, log merge, log prove or log consistency, or a file whose name ends in .tlog-proof. - is standard input. Give this or --server."`
	Server     string    `placeholder:"URL" help:"The URL of a running server, whose decision log is exported and verified."`
	Credential cli.Given `placeholder:"FILE" help:"With --server: the file with an API key or a token that has the permission log.read. Without the flag, the key itself in $$POLICY_SERVICE_KEY is used."`
	CA         cli.Given `name:"ca" placeholder:"FILE" help:"With --server: the root certificates to trust instead of the system's, in PEM."`
	Key        cli.Given `placeholder:"FILE" help:"The public key of the decision log, as log key prints it. Without the flag, the key comes from the decision log itself."`
	Policy     cli.Given `placeholder:"FILE" help:"A policy in the format c2sp.org/tlog-policy, instead of --key: the keys of decision logs to trust, and the witnesses of whom a quorum must have cosigned."`
	Line       cli.Given `placeholder:"FILE" help:"The record that a .tlog-proof is of, as it was hashed: without a newline. Without the flag, it is the file of the same name without .tlog-proof."`
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
		"With --policy, a quorum of witnesses must have cosigned a checkpoint. The command says which records that covers. " +
		"A checkpoint of another history that the server keeps as evidence is 6 or 5.\n\n" +
		"A merge of exports is verified part by part, each log by its key: give all keys, as one file to --key, or as one " +
		"policy. A log whose key is not there is refused with 9, and a key without a log is named.\n\n" +
		"Exit codes: 0 verified, 2 usage, 3 altered, 4 missing, 5 truncated, 6 forked, 7 time reversed, 8 " +
		"unreadable, 9 other key, 11 unwitnessed (no quorum); with --strict also 10 unsigned, and for a data directory 11 if " +
		"a witness says that it knows another history."
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
		if err := printReport(s, cmp.Or(c.Path, c.Server), report); err != nil || journal == nil {
			return err
		}
		s.Print("  %s %s", s.Colour(cli.Yellow, "not read:"), unfilled(journal))
		return nil
	}
	document := struct {
		verify.Report
		Journal *segment.Unfilled `json:"journal_only,omitzero"`
	}{report, journal}
	if err := s.Answer(c.JSON, document, print, false); err != nil || report.Verified() {
		return err
	}
	return cli.ExitCode(report.Code)
}

// Validate refuses flags that would be ignored.
func (c verifyCommand) Validate() error {
	switch {
	case (c.Path == "") == (c.Server == ""):
		return errors.New("give a data directory or a file to verify, or --server, and not both")
	case c.Key != "" && c.Policy != "":
		return errors.New("--policy names the keys to trust; leave out --key")
	case c.Line != "" && !c.ofLine():
		return errors.New("--line is for a file whose name ends in " + c2sp.ProofSuffix + "; leave it out")
	}
	return logFlags{Server: c.Server, Credential: c.Credential, CA: c.CA}.Validate()
}

// ofLine reports whether a proof is to be verified that is of a line in another file.
func (c verifyCommand) ofLine() bool { return strings.HasSuffix(c.Path, c2sp.ProofSuffix) }

// options are the keys and checkpoints that verify may trust, because the auditor has them from elsewhere.
func (c verifyCommand) options(s cli.Streams) (o verify.Options, err error) {
	o.Strict = c.Strict
	if c.Policy != "" {
		text, err := cli.Read(string(c.Policy), s.In, c2sp.MaxPolicyBytes)
		if err == nil {
			o.Policy, err = verify.ParsePolicy(text)
		}
		if err != nil {
			return o, fmt.Errorf("cannot read the policy %s: %w; try what policy-service log key --policy printed", c.Policy, err)
		}
	}
	if o.Key, err = s.LogKey(c.Key); err == nil {
		o.Checkpoint, err = s.LogCheckpoint(c.Checkpoint)
	}
	return o, err
}

func (c verifyCommand) verify(s cli.Streams, o verify.Options) (verify.Report, error) {
	switch {
	case c.Server != "":
		return c.verifyServer(o)
	case c.ofLine():
		return c.verifyProof(s, o)
	case c.Path == "-":
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

// verifyProof verifies one line. Neither file is read further than it may be long.
func (c verifyCommand) verifyProof(s cli.Streams, o verify.Options) (r verify.Report, err error) {
	proof, err := cli.Read(c.Path, s.In, c2sp.MaxProofBytes)
	if err != nil {
		return r, fmt.Errorf("cannot read what to verify: %w; try what log prove -o wrote", err)
	}
	name := cmp.Or(string(c.Line), strings.TrimSuffix(c.Path, c2sp.ProofSuffix))
	line, err := cli.Read(name, s.In, format.MaxLine)
	if err != nil {
		return r, fmt.Errorf("cannot read the record that the proof is of: %w; give it as --line", err)
	}
	return verify.Proof(line, proof, o), nil
}

// verifyServer verifies an export while it comes. While content is being removed, an export ends before the checkpoint that is
// served: then it is asked for once more.
func (c verifyCommand) verifyServer(o verify.Options) (r verify.Report, err error) {
	ctx, stop := cli.UntilSignal()
	defer stop()
	from := logFlags{Server: c.Server, Credential: c.Credential, CA: c.CA}
	err = from.remote(func(log *remote.Log) (err error) {
		if r, err = verifyExport(ctx, log, o); err == nil && r.Code == verify.Truncated {
			r, err = verifyExport(ctx, log, o)
		}
		return err
	})
	if err != nil {
		err = from.failed("verify", err)
	}
	return r, err
}

func verifyExport(ctx context.Context, log *remote.Log, o verify.Options) (verify.Report, error) {
	served, err := log.Checkpoint(ctx)
	if err != nil {
		return verify.Report{}, err
	}
	o.Served = string(served)
	ctx, end := context.WithCancel(ctx)
	defer end()
	in, out := io.Pipe()
	defer func() { _ = in.Close() }()
	exported := make(chan error, 1)
	go func() {
		_, err := log.Export(ctx, out, export.Options{})
		exported <- err
		_ = out.CloseWithError(err)
	}()
	r := verify.Export(in, o)
	select {
	case err = <-exported:
	default: // something is wrong, and the rest is not waited for
	}
	return r, err
}

// unfilled are the records that only the journal of a verified directory has. Package verify knows no journal: nothing
// signs its records.
func (c verifyCommand) unfilled(r verify.Report) *segment.Unfilled {
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
	origin := r.Origin
	if r.Parts != nil {
		origin = "a merge of " + cli.Plural(len(r.Parts), "export")
	}
	if r.Verified() {
		s.Print("%s %s: %s", s.Colour(cli.Green, "verified"), path, origin)
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
