package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/decisionlog/export"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/remote"
	"policy-service/pdp/internal/plainfile"
	"policy-service/pdp/internal/replay"
)

// ReplayCommand is policy-service replay.
type ReplayCommand struct {
	sourceFlags
	Candidate    string    `required:"" placeholder:"DIR" help:"The directory of policies that is to be merged."`
	Base         string    `default:"in-force" placeholder:"BASE" help:"What it is compared with: in-force, the last bundle that the log says was loaded; recorded, the answers as they were given; or a directory of policies. The default is ${default}."`
	PoliciesOnly bool      `help:"Take the entities and the schema of the base: what would the policies of the candidate change by themselves?"`
	Span         spanFlags `embed:""`
	Tenant       cli.Given `placeholder:"T" help:"Only decisions of this tenant."`
	MaxWidened   bound     `default:"0" placeholder:"N" help:"How many decisions may go from deny to allow: a number, or any. The default is ${default}."`
	MaxWeaker    bound     `default:"0" placeholder:"N" help:"How many allows may lose an obligation, or have an approval that asks for less. The default is ${default}."`
	MaxNarrowed  bound     `default:"0" placeholder:"N" help:"How many decisions may go from allow to deny. The default is ${default}."`
	MaxLost      bound     `default:"0" placeholder:"N" help:"How many votes on approval requests may be lost, because their people could not cast them. The default is ${default}."`
	MaxUnknown   bound     `default:"any" placeholder:"N" help:"How many decisions may depend on values that masks hide. The default is ${default}."`
	Records      cli.Given `placeholder:"FILE" help:"Write every decision that changes, or is not known, into this file: one line of JSON each."`
	All          bool      `help:"Print all groups, and not only the first 20."`
	Markdown     bool      `xor:"form" help:"Print Markdown, for a comment on a pull request."`
	JSON         bool      `name:"json" xor:"form" help:"Print JSON, for programs."`
}

// Help ends the command's help.
func (ReplayCommand) Help() string {
	return "Each recorded question is asked again of the candidate, as it was asked then: at its time, with its obligations and approvals. " +
		"Nothing is used or written.\n\n" +
		"widened is what was denied and would be allowed, weaker an allow that would lose an obligation or need less approval, narrowed " +
		"what was allowed and would be denied, or an approval that would no longer count, stronger an allow that would owe more, lost a vote " +
		"on an approval request that its person could not cast.\n\n" +
		"A value that a mask hides is never guessed: a decision that depends on one is unknown, and the value is named.\n\n" +
		"Exit codes: 0 within the bounds, 1 more than one of them allows, 2 it could not be done, such as when the candidate does not load or no record can be judged."
}

// bound is how many there may be, nil for any number.
type bound struct{ most *int64 }

// UnmarshalText reads a number, or any.
func (b *bound) UnmarshalText(text []byte) error {
	if b.most = nil; string(text) == "any" {
		return nil
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || n < 0 {
		return fmt.Errorf("%q is neither a number nor any", text)
	}
	b.most = &n
	return nil
}

func (b bound) allows(n int64) bool { return b.most == nil || n <= *b.most }

// The words that --base takes besides a directory.
const (
	baseInForce  = "in-force"
	baseRecorded = "recorded"
)

// replayed is the outcome of the command.
type replayed struct {
	Base      sideJSON         `json:"base"`
	Candidate sideJSON         `json:"candidate"`
	Changes   replay.Structure `json:"changes"`
	replay.Compared
}

// changed is how many decisions change.
func (r replayed) changed() (all int64) {
	for _, n := range r.Changed {
		all += n
	}
	return all
}

type sideJSON struct {
	Digest string `json:"digest,omitzero"`
	Source string `json:"source"`
}

// Run replays, and ends with 1 if more changes than may.
func (c ReplayCommand) Run(s cli.Streams) error {
	candidate, err := readSide(c.Candidate, "--candidate")
	if err != nil {
		return err
	}
	var made replayed
	err = c.walk(s, c.Span, c.Tenant, func(o replay.Options) error {
		return c.records(func(each func(*replay.Change)) error {
			return c.replayable("replay the log", true, func(ctx context.Context, open func() (replay.Source, error)) (err error) {
				made, err = c.compare(ctx, open, candidate, o, each)
				return err
			})
		})
	})
	if err != nil {
		return err
	}
	print := func() error { return c.print(s, made) }
	if c.Markdown {
		print = func() error { return c.markdown(s, made) }
	}
	if err := s.Answer(c.JSON, made, print, false); err != nil {
		return err
	}
	return c.judge(s, made)
}

// judge says whether there are more changes than there may be.
func (c ReplayCommand) judge(s cli.Streams, made replayed) error {
	if lacks := count(made.Incomplete); lacks > 0 && made.Same+made.Unknown+made.changed() == 0 {
		s.Tell("policy-service: nothing was compared: %s cannot be judged", cli.Plural(int(lacks), "record"))
		return cli.Failed
	}
	var over []string
	for _, one := range []struct {
		most       bound
		n          int64
		of         string
		flag, what string
	}{
		{c.MaxWidened, made.Changed[replay.Widened], "decision", "--max-widened", "widened"},
		{c.MaxWeaker, made.Changed[replay.Weaker], "decision", "--max-weaker", "weaker"},
		{c.MaxNarrowed, made.Changed[replay.Narrowed], "decision", "--max-narrowed", "narrowed"},
		{c.MaxLost, made.Votes.Lost, "vote", "--max-lost", "lost"}, {c.MaxUnknown, made.Unknown, "decision", "--max-unknown", "unknown"},
	} {
		if !one.most.allows(one.n) {
			over = append(over, fmt.Sprintf("%s %s, and %s allows %d", areOf(one.n, one.of), one.what, one.flag, *one.most.most))
		}
	}
	if len(over) == 0 {
		return nil
	}
	s.Tell("policy-service: %s; look at them, then allow them", strings.Join(over, "; "))
	return cli.No
}

func areOf(n int64, one string) string {
	verb := "are"
	if n == 1 {
		verb = "is"
	}
	return cli.Plural(int(n), one) + " " + verb
}

func readSide(dir, flag string) (*replay.Side, error) {
	side, err := replay.ReadSide(pdp.Dir(dir))
	if err != nil {
		return nil, fmt.Errorf("the policies in %s do not load: %s; see policy-service check %s, or give another %s",
			dir, strings.ReplaceAll(err.Error(), "\n", "; "), cli.Shell(dir), flag)
	}
	return side, nil
}

func (c ReplayCommand) compare(
	ctx context.Context, open func() (replay.Source, error), candidate *replay.Side, o replay.Options, each func(*replay.Change),
) (made replayed, err error) {
	made.Candidate = sideJSON{candidate.Bundle.Digest(), "directory"}
	from, err := open()
	if err != nil {
		return made, err
	}
	var base *replay.Side
	switch c.Base {
	case baseRecorded:
		made.Base = sideJSON{"", baseRecorded}
	case baseInForce:
		if base, err = replay.InForce(ctx, from); err == nil {
			made.Base = sideJSON{base.Bundle.Digest(), baseInForce}
			from, err = open()
		}
	default:
		if base, err = readSide(c.Base, "--base"); err == nil {
			made.Base = sideJSON{base.Bundle.Digest(), "directory"}
		}
	}
	if err != nil {
		return made, err
	}
	made.Changes = replay.Structure{Policies: []replay.PolicyChange{}, Files: []replay.FileChange{}, Entities: replay.EntityChanges{Named: []string{}}}
	if c.PoliciesOnly {
		if base == nil {
			return made, errors.New("--policies-only takes entities from the base, and --base recorded has none; leave one of the two out")
		}
		if candidate, err = candidate.With(base); err != nil {
			return made, err
		}
	}
	if base != nil {
		made.Changes = replay.Differ(base, candidate)
	}
	if made.Compared, err = replay.Compare(ctx, from, base, candidate, o, each); err == nil {
		err = made.Causes(ctx, base, candidate, made.Changes, evaluation.DefaultLimits())
	}
	return made, err
}

// records calls f with a function that writes each change into the file of --records.
func (c ReplayCommand) records(f func(func(*replay.Change)) error) error {
	if c.Records == "" {
		return f(nil)
	}
	var failed error
	err := plainfile.Stream(string(c.Records), func(w io.Writer) error {
		var wrong error
		failed = f(func(one *replay.Change) {
			change := changeJSON{
				ID: one.Recorded.ID, Sequence: one.Recorded.Sequence, Time: one.Recorded.Time.UTC().Format(format.TimeLayout),
				Tenant: one.Recorded.Tenant, Class: one.Class,
			}
			switch u := one.Unknown; {
			case one.Vote != nil:
				change.By, change.Template = one.Vote.By, one.Vote.Template
			case u == nil:
				change.From, change.To = &one.Was, &one.Is
			default:
				change.DependsOn = &record.Dependence{Paths: u.Paths, Policies: u.Policies}
			}
			line, err := json.Marshal(change)
			if err == nil && wrong == nil {
				_, wrong = w.Write(append(line, '\n'))
			}
		})
		return errors.Join(failed, wrong)
	})
	if err != nil && failed == nil {
		return unwritable("records", "--records", err)
	}
	return err
}

type changeJSON struct {
	ID        string             `json:"id"`
	Sequence  uint64             `json:"sequence"`
	Time      string             `json:"time"`
	Tenant    string             `json:"tenant"`
	Class     replay.Class       `json:"class"`
	From      *replay.Outcome    `json:"from,omitzero"`
	To        *replay.Outcome    `json:"to,omitzero"`
	DependsOn *record.Dependence `json:"depends_on,omitzero"`
	By        string             `json:"by,omitzero"` // of a vote
	Template  string             `json:"template,omitzero"`
}

// replayable calls f with a way to open the records, which it may do more than once, and with the bundles beside them if they are
// needed: of a directory, of a file, or of an export that a server makes.
func (a sourceFlags) replayable(what string, bundles bool, f func(context.Context, func() (replay.Source, error)) error) error {
	if a.Export != "" {
		ctx, stop := cli.UntilSignal()
		defer stop()
		return a.fromFile(ctx, what, string(a.Export), f)
	}
	return a.read(what, func(ctx context.Context, log auditLog) error {
		if here, is := log.(logHere); is {
			if here.Head.Live {
				cli.StepAside()
			}
			return f(ctx, func() (replay.Source, error) { return replay.OfLog(here.Snapshot), nil })
		}
		kept, err := os.CreateTemp("", "policy-service-export-*") // for its owner alone
		if err != nil {
			return err
		}
		defer func() { _, _ = kept.Close(), os.Remove(kept.Name()) }()
		if _, err := log.(*remote.Log).Export(ctx, kept, export.Options{Bundles: bundles}); err != nil {
			return err
		}
		return a.fromFile(ctx, what, kept.Name(), f)
	})
}

func (a sourceFlags) fromFile(ctx context.Context, what, name string, f func(context.Context, func() (replay.Source, error)) error) error {
	var opened []*os.File
	defer func() {
		for _, in := range opened {
			_ = in.Close()
		}
	}()
	open := func() (*export.Reader, error) {
		in, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		opened = append(opened, in)
		return export.NewReader(in)
	}
	err := f(ctx, func() (replay.Source, error) {
		r, err := open()
		if err != nil {
			return nil, err
		}
		return replay.OfExport(r, open)
	})
	if errors.Is(err, replay.ErrNoBundle) {
		return fmt.Errorf("cannot %s: %w; write the file with log export --bundles, or give --base", what, err)
	}
	if err != nil {
		return fmt.Errorf("cannot %s: %s: %w", what, name, err)
	}
	return nil
}

// mostGroups is how many groups are printed without --all.
const mostGroups = 20

func (c ReplayCommand) print(s cli.Streams, r replayed) error {
	table := s.Table()
	row := func(name any, format string, args ...any) { table.Row(name, fmt.Sprintf(format, args...)) }
	row("base", "%s", strings.TrimSpace(r.Base.Source+" "+r.Base.Digest))
	row("candidate", "%s", r.Candidate.Digest)
	if r.Base.Source != baseRecorded {
		row("changes", "%s", changesText(r.Changes))
	}
	comparedRows(row, r.Compared)
	if err := table.Flush(); err != nil {
		return err
	}
	printGroups(s, r.Groups, c.All)
	printLost(s, r.Votes, c.All)
	return nil
}

// comparedRows count the answers that change.
func comparedRows(row func(any, string, ...any), r replay.Compared) {
	row("records", "%d, with %s, %s", r.Records, cli.Plural(int(r.Decisions), "decision"), cli.Plural(int(r.Distinct), "different question"))
	row("same", "%d", r.Same)
	for _, class := range replay.Classes {
		if n := r.Changed[class]; n > 0 {
			row(string(class), "%d", n)
		}
	}
	if r.Unknown > 0 {
		row("unknown", "%d depend on a value that a mask hides", r.Unknown)
	}
	for _, one := range r.HiddenBy {
		row("", "%s, read by %s: %d", one.Path, strings.Join(one.Policies, ", "), one.Decisions)
	}
	if v := r.Votes; v.Cast > 0 {
		text := fmt.Sprintf("%d, %d of them lost", v.Cast, v.Lost)
		if v.Unknown > 0 {
			text += fmt.Sprintf(", %d not judged", v.Unknown)
		}
		row("votes", "%s", text)
	}
	notJudged(row, r.Incomplete)
}

func notJudged(row func(any, string, ...any), incomplete map[string]int64) {
	for _, why := range slices.Sorted(maps.Keys(incomplete)) {
		row("not judged", "%d: %s", incomplete[why], replay.Why(why))
	}
}

// printGroups prints changes by their causes.
func printGroups(s cli.Streams, groups []*replay.Group, all bool) {
	listed, more := first(groups, all)
	for n, g := range listed {
		printGroup(s, n+1, g)
	}
	if more > 0 {
		s.Print("\nand %s more; --all has them", cli.Plural(more, "group"))
	}
}

// first are those that are printed, and how many are not.
func first[T any](of []T, all bool) (listed []T, more int) {
	if n := min(mostGroups, len(of)); !all {
		return of[:n], len(of) - n
	}
	return of, 0
}

func printGroup(s cli.Streams, n int, g *replay.Group) {
	s.Print("\n%d  %s  %s", n, string(g.Class), cli.Plural(int(g.Decisions), "decision"))
	printChange(s, g.From, g.To, g.Cause)
	s.Print("   subjects  %s", countsText(g.Subjects))
	s.Print("   resources %s", countsText(g.Resources))
	s.Print("   actions   %s", countsText(g.Actions))
	s.Print("   tenants   %s", countsText(g.Tenants))
	s.Print("   time      %s to %s", g.First, g.Last)
	s.Print("   such as   %s", strings.Join(g.Examples, ", "))
}

// printLost prints the votes that their people could not cast.
func printLost(s cli.Streams, votes replay.Votes, all bool) {
	listed, more := first(votes.By, all)
	for _, l := range listed {
		s.Print("\nlost  %s", lostText(l))
		for _, cause := range l.Cause {
			s.Print("   because   %s", causeText(cause))
		}
		s.Print("   time      %s to %s", l.First, l.Last)
		s.Print("   such as   %s", strings.Join(l.Examples, ", "))
	}
	if more > 0 {
		s.Print("\nand lost votes of %s more; --all has them", cli.Plural(more, "group"))
	}
}

func lostText(l *replay.LostVotes) string {
	text := fmt.Sprintf("%s of %s about %s in tenant %s", cli.Plural(int(l.Votes), "vote"), l.By, l.Template, l.Tenant)
	if l.Own {
		text += ", who would decide about their own request"
	}
	return text
}

func printChange(s cli.Streams, from, to replay.Outcome, because []replay.Cause) {
	s.Print("   from      %s", outcomeText(from))
	s.Print("   to        %s", outcomeText(to))
	for _, cause := range because {
		s.Print("   because   %s", causeText(cause))
	}
}

func causeText(c replay.Cause) string {
	text := cmp.Or(c.Policy, "the obligation "+c.Obligation) + " " + string(c.Does)
	if c.Clause != "" {
		text += ": " + c.Clause
	}
	where := c.Position
	if c.Change != "" {
		where += ", " + c.Change
	}
	return text + " (" + where + ")"
}

func countsText(all []replay.Count) string {
	var texts []string
	for _, one := range all {
		texts = append(texts, fmt.Sprintf("%s %d", one.Name, one.Decisions))
	}
	return strings.Join(texts, ", ")
}

func changesText(s replay.Structure) string {
	count := map[string]int{}
	for _, one := range s.Policies {
		count[one.Change]++
	}
	var texts []string
	for _, change := range []string{replay.Added, replay.Edited, replay.Removed, replay.Moved, replay.Reworded} {
		if n := count[change]; n > 0 {
			what := "policies"
			if n == 1 {
				what = "policy"
			}
			texts = append(texts, fmt.Sprintf("%d %s %s", n, what, change))
		}
	}
	for _, one := range s.Files {
		texts = append(texts, one.Path+" "+one.Change)
	}
	if e := s.Entities; e.Added+e.Removed+e.Changed > 0 {
		texts = append(texts, fmt.Sprintf("entities: %d added, %d removed, %d changed", e.Added, e.Removed, e.Changed))
	}
	if len(texts) == 0 {
		return "none"
	}
	return strings.Join(texts, "; ")
}
