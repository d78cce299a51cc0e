package main

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"policy-service/pdp/decisionlog"
	"policy-service/pdp/decisionlog/remote"
)

type logTailCommand struct {
	logAt
	logFilter
	Last   int64  `short:"n" default:"10" placeholder:"N" help:"Begin with the last N records that pass (${default})."`
	After  *int64 `placeholder:"SEQUENCE" help:"Begin after this record instead, -1 for the first one: where an earlier tail left off."`
	Follow bool   `short:"f" help:"Go on with what is recorded from now on, until interrupted."`
	JSON   bool   `name:"json" help:"Print records as they are stored."`
}

// Help ends the command's help.
func (logTailCommand) Help() string {
	return "With --server new records come within a second. With --data beside a running server the sealed segments can be read, and --follow prints a segment when it is sealed. " +
		"Without --follow the last line on standard error is the cursor for --after."
}

// followEvery is how often a followed log is looked at again: segments are sealed by the minute at most.
const followEvery = time.Second

// Run prints records in order.
func (c logTailCommand) Run(s streams) error {
	if err := c.filter().Check(); err != nil {
		return err
	}
	ctx, stop := untilSignal()
	defer stop()
	if err := c.sayPartial(s); err != nil {
		return err
	}
	cursor, err := c.tail(ctx, s)
	if err != nil && ctx.Err() == nil { // being interrupted is how a tail ends
		return c.failed("tail the log", err)
	}
	s.tell("cursor %d: --after %d goes on from here", cursor, cursor)
	return nil
}

func (c logTailCommand) tail(ctx context.Context, s streams) (cursor int64, err error) {
	if c.Server != "" {
		err = c.remote(func(log *remote.Log) error {
			cursor, err = c.tailServer(ctx, log, c.printer(s))
			return err
		})
		return cursor, err
	}
	cursor, err = c.begin(ctx, s)
	if err == nil && c.Follow {
		cursor, err = decisionlog.Tail(ctx, c.Data, decisionlog.TailOptions{After: cursor, Filter: c.filter(), Every: followEvery}, c.printer(s))
	}
	return cursor, err
}

// tailServer asks the server, which has an index, for the last ones.
func (c logTailCommand) tailServer(ctx context.Context, log *remote.Log, print func(int64, []byte) error) (cursor int64, err error) {
	if c.After == nil {
		cursor, err = log.Last(ctx, c.filter(), c.Last, print)
		if err != nil || !c.Follow {
			return cursor, err
		}
	} else {
		cursor = *c.After
	}
	o := decisionlog.TailOptions{After: cursor, Filter: c.filter()}
	if c.Follow {
		o.Every = followEvery
	}
	return log.Tail(ctx, o, print)
}

// begin prints what is there already, and waits for something to be there where it follows.
func (c logTailCommand) begin(ctx context.Context, s streams) (cursor int64, err error) {
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

// first prints what is there already. The last N that pass a filter are only known at the end.
func (c logTailCommand) first(ctx context.Context, s streams) (cursor int64, err error) {
	print := c.printer(s)
	if c.After != nil {
		return decisionlog.Tail(ctx, c.Data, decisionlog.TailOptions{After: *c.After, Filter: c.filter()}, print)
	}
	last := window{size: int(c.Last)}
	cursor, err = decisionlog.Tail(ctx, c.Data, decisionlog.TailOptions{After: -1, Last: c.wholeLast(), Filter: c.filter()}, last.add)
	for _, line := range last.lines {
		if err := print(0, line); err != nil {
			return cursor, err
		}
	}
	return cursor, err
}

// wholeLast spares reading the whole log where nothing is filtered.
func (c logTailCommand) wholeLast() int64 {
	if c.filter().All() {
		return c.Last
	}
	return 0
}

func (c logTailCommand) printer(s streams) func(int64, []byte) error {
	return func(_ int64, line []byte) error {
		if c.JSON {
			_, err := fmt.Fprintf(s.out, "%s\n", line)
			return err
		}
		l, err := parseLogLine(line)
		if err == nil {
			_, err = fmt.Fprintln(s.out, l)
		}
		return err
	}
}

// window holds the last lines of many.
type window struct {
	size  int
	lines [][]byte
}

func (w *window) add(_ int64, line []byte) error {
	if w.size == 0 {
		return nil
	}
	if len(w.lines) == w.size {
		w.lines = w.lines[1:]
	}
	w.lines = append(w.lines, bytes.Clone(line))
	return nil
}
