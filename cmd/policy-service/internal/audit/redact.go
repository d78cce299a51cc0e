package audit

import (
	"context"
	"strings"

	"policy-service/cmd/policy-service/internal/cli"
	"policy-service/pdp/decisionlog"
	"policy-service/pdp/decisionlog/remote"
)

type redactCommand struct {
	logFlags `set:"permission=log.admin"`
	ID       string    `arg:"" help:"The id of the record, such as the value of X-Decision-Id."`
	Reason   cli.Given `required:"" placeholder:"R" help:"The reason, for the record of the redaction. It must not contain what you redact."`
}

// Help ends the command's help.
func (redactCommand) Help() string {
	return "The command removes the content of the record from the data directory for good. The hash of the record " +
		"stays, and the redaction is itself a record. " +
		"Copies, backups and exports that were made before still hold the content.\n\n" +
		"The record of a batch holds what its items inherit. To remove that, redact the record of the batch, by the " +
		"id of the batch.\n\n" +
		"If a server is running, use --server. With --data, no server may be running."
}

// Run redacts a record.
func (c redactCommand) Run(s cli.Streams) error {
	ctx, stop := cli.UntilSignal()
	defer stop()
	// An error is ignored here: if the record cannot be read, the command says nothing of a batch. Most errors also
	// come from the redaction below; one that does not, such as that of a key that may redact and not read, must not
	// stop it.
	shown, _ := c.show("", c.ID)
	if err := c.redact(ctx); err != nil {
		return c.failed("redact the record", err)
	}
	if stays := shown.Record; stays.Batch.Line != nil {
		batch, err := decisionlog.Parse(stays.Batch.Line)
		if err != nil {
			return err
		}
		s.Tell("what it inherits (%s) stands in the record of its batch and stays; log redact %s removes it for all "+
			"items of the batch", strings.Join(stays.Inherits, ", "), cli.Shell(batch.ID))
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
