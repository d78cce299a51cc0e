package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"policy-service/cmd/policy-service/internal/cli"
	"policy-service/pdp/decisionlog"
	"policy-service/pdp/decisionlog/export"
	"policy-service/pdp/decisionlog/remote"
)

type tailCommand struct {
	logFlags
	Only   filterFlags `embed:""`
	Last   int64       `short:"n" default:"10" placeholder:"N" help:"Begin with the last N records that match the filters. The default is ${default}."`
	After  *int64      `placeholder:"SEQUENCE" help:"Begin after the record with this sequence number instead, -1 for all records. An earlier log tail prints it as its cursor."`
	Follow bool        `short:"f" help:"Go on with new records until you interrupt the command."`
	only   decisionlog.Filter
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
	if c.only, err = c.Only.filter(); err != nil {
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
	s.Tell("cursor %d: --after %d goes on from here", cursor, cursor)
	return nil
}

func (c tailCommand) tail(ctx context.Context, s cli.Streams) (cursor int64, err error) {
	if c.Server != "" {
		err = c.remote(func(log *remote.Log) error {
			cursor, err = c.tailServer(ctx, log, s)
			return err
		})
		return cursor, err
	}
	cursor, err = c.begin(ctx, s)
	if err == nil && c.Follow {
		o := c.options(s)
		o.After, o.Every = cursor, followEvery
		cursor, err = export.Tail(ctx, c.Data, o, c.printer(s))
	}
	return cursor, err
}

// options are the same for a tail of a directory and of a server. With --json an item of a batch is printed as it is
// stored, without the parts that all items of the batch share; so the record of the batch is printed before it.
func (c tailCommand) options(s cli.Streams) export.TailOptions {
	o := export.TailOptions{Filter: c.only}
	if c.JSON {
		o.Inherited = func(id string, batch decisionlog.Record) error { return printBatch(s, id, batch.Line) }
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

// tailServer asks the server, which has an index, for the last ones.
func (c tailCommand) tailServer(ctx context.Context, log *remote.Log, s cli.Streams) (cursor int64, err error) {
	o, print := c.options(s), c.printer(s)
	if c.After == nil {
		o.Last = c.Last
		cursor, err = log.Last(ctx, o, print)
		if err != nil || !c.Follow {
			return cursor, err
		}
	} else {
		cursor = *c.After
	}
	if o.After, o.Last = cursor, 0; c.Follow {
		o.Every = followEvery
	}
	return log.Tail(ctx, o, print)
}

// begin prints the records that are there. If it follows a log without any, it waits for the first.
func (c tailCommand) begin(ctx context.Context, s cli.Streams) (cursor int64, err error) {
	for {
		cursor, err = c.first(ctx, s)
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

// first prints the records that are there already. The last N that pass a filter are only known at the end.
func (c tailCommand) first(ctx context.Context, s cli.Streams) (cursor int64, err error) {
	o := c.options(s)
	if c.After != nil {
		o.After = *c.After
		return export.Tail(ctx, c.Data, o, c.printer(s))
	}
	last := window{size: int(c.Last), whole: c.JSON}
	if o.After, o.Last = -1, c.wholeLast(); last.whole {
		o.Inherited = last.inherited
	}
	cursor, err = export.Tail(ctx, c.Data, o, last.add)
	return cursor, errors.Join(err, last.print(s, c.printer(s)))
}

// wholeLast avoids reading the whole log if nothing is filtered.
func (c tailCommand) wholeLast() int64 {
	if c.only.All() {
		return c.Last
	}
	return 0
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

// window holds the last lines of many. If lines are printed whole, it holds for each the record that it inherits from.
type window struct {
	size  int
	whole bool
	lines []windowLine
	id    string // of the batch that came last, and its record
	batch []byte
}

type windowLine struct{ line, batch []byte }

func (w *window) inherited(id string, batch decisionlog.Record) error {
	w.id, w.batch = id, batch.Line
	return nil
}

func (w *window) add(_ int64, line []byte) error {
	if w.size == 0 {
		return nil
	}
	item, err := decisionlog.Parse(line)
	if err != nil {
		return err
	}
	if len(w.lines) == w.size {
		w.lines = w.lines[1:]
	}
	one := windowLine{line: bytes.Clone(line)}
	if item.Kind == decisionlog.KindBatch {
		w.id, w.batch = item.ID, one.line
	}
	if item.BatchID() == w.id && w.id != "" {
		one.batch = w.batch
	}
	w.lines = append(w.lines, one)
	return nil
}

func (w *window) print(s cli.Streams, print func(int64, []byte) error) error {
	var inherited decisionlog.Inheritance
	for _, one := range w.lines {
		id, err := inherited.Lacks(one.line)
		if err == nil && id != "" && w.whole {
			err = printBatch(s, id, one.batch)
		}
		if err == nil {
			err = print(0, one.line)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
