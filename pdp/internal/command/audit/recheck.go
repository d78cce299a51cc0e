package audit

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/replay"
)

type recheckCommand struct {
	sourceFlags
	Span   spanFlags `embed:""`
	Tenant cli.Given `placeholder:"T" help:"Only decisions of this tenant."`
	Strict bool      `help:"Exit with 2 if a record cannot be judged. Without the flag, that is so only if none can."`
	JSON   bool      `name:"json" help:"Print JSON, for programs."`
}

// exitDiffers is the exit code if an answer is not that of its policies.
const exitDiffers = 3

// Help ends the command's help.
func (recheckCommand) Help() string {
	return "Each decision is made again, from its record and by the bundle that made it, and compared with the answer on record. " +
		"Nothing is used or written. log verify proves that records were not changed since; this says that the service answered as " +
		"its policies say.\n\n" +
		"A value that a mask hides is not known: decisions that depend on one are counted, and the value is named. So are those whose " +
		"record or bundle is gone.\n\n" +
		"A file needs the policies: write it with log export --bundles.\n\n" +
		"Exit codes: 0 no decision differs, 2 it could not be done, or nothing could be judged, 3 some differ."
}

// Run rechecks, which reads the whole log once.
func (c recheckCommand) Run(s cli.Streams) error {
	var made replay.Rechecked
	err := c.walk(s, c.Span, c.Tenant, func(o replay.Options) error {
		return c.replayed("recheck the log", true, func(ctx context.Context, log replay.Source) (err error) {
			made, err = replay.Recheck(ctx, log, o)
			return err
		})
	})
	if err != nil {
		return err
	}
	print := func() error { return printRechecked(s, made) }
	if err := s.Answer(c.JSON, made, print, false); err != nil {
		return err
	}
	switch lacks := count(made.Incomplete); {
	case made.Different > 0:
		return cli.ExitCode(exitDiffers)
	case lacks > 0 && (c.Strict || made.Same+made.Hidden == 0):
		s.Tell("policy-service: %s cannot be judged", cli.Plural(int(lacks), "record"))
		return cli.Failed
	}
	return nil
}

// count is how many records cannot be judged.
func count(incomplete map[string]int64) (all int64) {
	for _, n := range incomplete {
		all += n
	}
	return all
}

// replayed is [sourceFlags.replayable] for a function that goes over the records once.
func (a sourceFlags) replayed(what string, bundles bool, f func(context.Context, replay.Source) error) error {
	return a.replayable(what, bundles, func(ctx context.Context, open func() (replay.Source, error)) error {
		from, err := open()
		if err != nil {
			return err
		}
		return f(ctx, from)
	})
}

// walk has f read the chosen records of the log. It shows how far that is, and warns of records that cannot be read now.
func (a sourceFlags) walk(s cli.Streams, span spanFlags, tenant cli.Given, f func(replay.Options) error) error {
	from, to, err := span.times()
	if err != nil {
		return err
	}
	progress := s.Progress("records")
	err = f(replay.Options{From: from, To: to, Tenant: string(tenant), Progress: progress.At})
	progress.End()
	if err != nil {
		return err
	}
	return a.sayPartial(s)
}

// mostPrinted is how many differences are printed.
const mostPrinted = 20

func printRechecked(s cli.Streams, r replay.Rechecked) error {
	table := s.Table()
	row := func(name any, format string, args ...any) { table.Row(name, fmt.Sprintf(format, args...)) }
	row("records", "%d, with %s", r.Records, cli.Plural(int(r.Decisions), "decision"))
	row("same", "%d are what their policies say", r.Same)
	if r.Hidden > 0 {
		row("hidden", "%d depend on a value that a mask hides", r.Hidden)
	}
	for _, one := range r.HiddenBy {
		row("", "%s, read by %s: %d", one.Path, strings.Join(one.Policies, ", "), one.Decisions)
	}
	for _, why := range slices.Sorted(maps.Keys(r.Incomplete)) {
		text := fmt.Sprintf("%d: %s", r.Incomplete[why], replay.Why(why))
		if some := r.Examples[why]; len(some) > 0 {
			text += ", such as " + strings.Join(some, ", ")
		}
		row("not judged", "%s", text)
	}
	if r.Different > 0 {
		row(s.Colour(cli.Red, "different"), "%d", r.Different)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for n, one := range r.Differences {
		if n == mostPrinted {
			s.Print("\nand %d more; --json has them", r.Different-mostPrinted)
			break
		}
		s.Print("\n%s, record %d of %s, tenant %s: %s", one.ID, one.Sequence, one.Time, one.Tenant, one.Part)
		s.Print("  on record      %s", outcomeText(one.Recorded))
		s.Print("  by its policies %s", outcomeText(one.Policies))
	}
	return nil
}

// outcomeText is an outcome in one line.
func outcomeText(o replay.Outcome) string {
	text := o.Answer
	if o.Reason != "" {
		text += ", " + string(o.Reason)
	}
	for _, one := range o.Obligations {
		text += ", " + one.ID
	}
	if len(o.Determining) > 0 {
		text += " by " + strings.Join(o.Determining, ", ")
	}
	return text
}
