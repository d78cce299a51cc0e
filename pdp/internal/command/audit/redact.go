package audit

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/remote"
)

type redactCommand struct {
	logFlags `set:"permission=log.admin"`
	ID       string    `arg:"" optional:"" help:"The id of the record, such as the value of X-Decision-Id."`
	Approval cli.Given `placeholder:"ID" help:"With --server, in place of a record: the id of an approval request. What was asked and said of it goes, and its records."`
	End      bool      `help:"With --approval: cancel or revoke the approval request first, if it waits or can be used."`
	Yes      bool      `help:"Ask nothing. Without the flag, a terminal is asked first."`
	Reason   cli.Given `required:"" placeholder:"R" help:"The reason, for the record of the redaction. It must not contain what you redact."`
}

// Help ends the command's help.
func (redactCommand) Help() string {
	return "The command removes the content of the record from the data directory for good. The hash of the record " +
		"stays, and the redaction is itself a record. " +
		"Copies, backups and exports that were made before still hold the content.\n\n" +
		"The record of a batch holds what its items inherit. To remove that, redact the record of the batch, by the " +
		"id of the batch.\n\n" +
		"The words of an approval request stand in several records, and in the file of the approval requests. " +
		"--approval removes them everywhere. What the approval is bound to stays, as a digest.\n\n" +
		"If a server is running, use --server. With --data, no server may be running."
}

// Validate refuses flags that choose nothing, or two things, for redaction.
func (c redactCommand) Validate() error {
	switch {
	case (c.ID == "") == (c.Approval == ""):
		return errors.New("give the id of a record, or --approval ID")
	case c.Approval != "" && c.Server == "":
		return errors.New("the server redacts an approval request; start it, and give --server")
	case c.End && c.Approval == "":
		return errors.New("--end is for --approval; leave it out")
	}
	return c.logFlags.Validate()
}

// Run redacts a record, or an approval request.
func (c redactCommand) Run(s cli.Streams) error {
	ctx, stop := cli.UntilSignal()
	defer stop()
	if !c.Yes && s.Interactive() {
		if err := s.Confirm(ctx, "Remove the content of "+cmp.Or(c.ID, "approval request "+string(c.Approval))+" for good?"); err != nil {
			return err
		}
	}
	if c.Approval != "" {
		return c.approval(ctx, s)
	}
	// An error is ignored here: if the record cannot be read, the command says nothing of a batch. Most errors also
	// come from the redaction below; one that does not, such as that of a key that may redact and not read, must not
	// stop it.
	shown, _ := c.show("", c.ID)
	if err := c.redact(ctx); err != nil {
		return c.failed("redact the record", err)
	}
	of := shown.Record
	for _, id := range of.Approvals() {
		s.Tell("approval request %s and its other records have the same words, and stay; log redact --approval %s "+
			"removes them", id, cli.Shell(id))
	}
	if of.Answer() == record.Waiting || of.Reason == "approval_required" {
		s.Tell("if people were asked, the approval request has the same words, and stays; log redact --approval ID removes it")
	}
	if of.Batch.Line != nil {
		batch, err := record.Parse(of.Batch.Line)
		if err != nil {
			return err
		}
		s.Tell("what it inherits (%s) stands in the record of its batch and stays; log redact %s removes it for all "+
			"items of the batch", strings.Join(of.Inherits, ", "), cli.Shell(batch.ID))
	}
	return nil
}

func (c redactCommand) redact(ctx context.Context) error {
	if c.Server != "" {
		return c.remote(func(log *remote.Log) error { return log.Redact(ctx, c.ID, string(c.Reason)) })
	}
	if err := c.exists(); err != nil {
		return err
	}
	return decisionlog.Redact(ctx, c.Data, c.ID, string(c.Reason), decisionlog.Options{})
}

func (c redactCommand) approval(ctx context.Context, s cli.Streams) error {
	var done remote.Redacted
	err := c.remote(func(log *remote.Log) (err error) {
		done, err = log.RedactApproval(ctx, string(c.Approval), string(c.Reason), c.End)
		return err
	})
	if err != nil {
		return c.failed("redact the approval request", err)
	}
	s.Print("approval request %s is redacted, with %s", c.Approval, cli.Plural(done.Records, "record"))
	for _, id := range done.Batches {
		s.Tell("what a decision inherits stands in the record of its batch and stays; log redact %s removes it for all "+
			"items of the batch", cli.Shell(id))
	}
	s.Tell("the words may also stand in: %s", strings.Join(done.Elsewhere, "; "))
	return nil
}
