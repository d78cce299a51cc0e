package audit

import (
	"context"
	"fmt"
	"time"

	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/decisionlog/export"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/remote"
)

type tailCommand struct {
	logFlags
	Only   filterFlags `embed:""`
	Last   int64       `short:"n" default:"10" placeholder:"N" help:"Begin with the last N records that match the filters. The default is ${default}."`
	After  *int64      `placeholder:"SEQUENCE" help:"Begin after the record with this sequence number instead, -1 for all records. An earlier log tail prints it as its cursor."`
	Follow bool        `short:"f" help:"Go on with new records until you interrupt the command."`
	only   record.Filter
	JSON   bool `name:"json" help:"Print records as they are stored, one JSON line each. The record of a batch is printed before its items, which inherit from it."`
}

// Help ends the command's help.
func (tailCommand) Help() string {
	return "With --server, new records appear within a second. With --data while a server is running, the command " +
		"reads only the sealed segments, and --follow prints a segment when it is sealed.\n\n" +
		"The last line on standard error is the cursor for --after."
}

// followEvery is how often a followed log is looked at again: segments are sealed by the minute at most.
const followEvery = time.Second

// Run prints records in order.
func (c tailCommand) Run(s cli.Streams) (err error) {
	if c.only, err = c.Only.filter(s); err != nil {
		return err
	}
	ctx, stop := cli.UntilSignal()
	defer stop()
	if err := c.sayPartial(s); err != nil {
		return err
	}
	cursor, err := c.tail(ctx, s)
	if err != nil && ctx.Err() == nil { // being interrupted is how a tail ends
		return c.failed("tail the log", err)
	}
	if cursor < 0 {
		s.Tell("cursor -1: there is no record yet; --after -1 begins with the first")
		return nil
	}
	s.Tell("cursor %d: --after %d goes on from here", cursor, cursor)
	return nil
}

// tailed is a log of a directory or of a server, which has an index for the last ones.
type tailed interface {
	Last(context.Context, export.TailOptions, func(sequence int64, line []byte) error) (cursor int64, err error)
	Tail(context.Context, export.TailOptions, func(sequence int64, line []byte) error) (cursor int64, err error)
}

// tailedHere is the log of a data directory.
type tailedHere string

func (d tailedHere) Last(ctx context.Context, o export.TailOptions, yield func(int64, []byte) error) (int64, error) {
	return export.Last(ctx, string(d), o, yield)
}

func (d tailedHere) Tail(ctx context.Context, o export.TailOptions, yield func(int64, []byte) error) (int64, error) {
	return export.Tail(ctx, string(d), o, yield)
}

// tail waits for the first record if it follows a log of a directory without any.
func (c tailCommand) tail(ctx context.Context, s cli.Streams) (cursor int64, err error) {
	if c.Server != "" {
		err = c.remote(func(log *remote.Log) error {
			cursor, err = c.print(ctx, log, s)
			return err
		})
		return cursor, err
	}
	for {
		cursor, err = c.print(ctx, tailedHere(c.Data), s)
		if err == nil || !c.nothingYet(err) {
			return cursor, err
		}
		if !c.Follow {
			return -1, nil
		}
		select {
		case <-ctx.Done():
			return -1, ctx.Err()
		case <-time.After(followEvery):
		}
	}
}

func (c tailCommand) print(ctx context.Context, log tailed, s cli.Streams) (cursor int64, err error) {
	o, print := c.options(s), c.printer(s)
	if c.After != nil {
		o.After = *c.After
	} else if o.After, err = log.Last(ctx, o, print); err != nil || !c.Follow {
		return o.After, err
	}
	if c.Follow {
		o.Every = followEvery
	}
	return log.Tail(ctx, o, print)
}

// options are the same for a tail of a directory and of a server. With --json an item of a batch is printed as it is
// stored, without the parts that all items of the batch share; so the record of the batch is printed before it.
func (c tailCommand) options(s cli.Streams) export.TailOptions {
	o := export.TailOptions{Last: c.Last, Filter: c.only}
	if c.JSON {
		o.Inherited = func(id string, batch record.Record) error { return printBatch(s, id, batch.Line) }
	}
	return o
}

func printBatch(s cli.Streams, id string, line []byte) error {
	if line == nil {
		s.Tell("the record of the batch %s is not there any more, nor is what its items inherit from it", id)
		return nil
	}
	_, err := fmt.Fprintf(s.Out, "%s\n", line)
	return err
}

func (c tailCommand) printer(s cli.Streams) func(int64, []byte) error {
	return func(_ int64, line []byte) error {
		if c.JSON {
			_, err := fmt.Fprintf(s.Out, "%s\n", line)
			return err
		}
		lines, err := recordLines(line, c.only)
		for _, l := range lines {
			if err == nil {
				_, err = fmt.Fprintln(s.Out, l)
			}
		}
		return err
	}
}
