package audit

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"policy-service/evaluation"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/replay"
)

// DiffCommand is policy-service diff.
type DiffCommand struct {
	Log    diffLog   `embed:""`
	A      string    `arg:"" help:"A directory of policies, such as what is in force."`
	B      string    `arg:"" help:"The directory that is compared with it."`
	Span   spanFlags `embed:""`
	Tenant cli.Given `placeholder:"T" help:"Only recorded decisions of this tenant."`
	All    bool      `help:"Print all groups, and not only the first 20."`
	JSON   bool      `name:"json" help:"Print JSON, for programs."`
}

// diffLog are the flags of a log, which need not be given.
type diffLog struct {
	Data       string    `xor:"log" placeholder:"DIR" help:"The data directory of a server. Its recorded questions are asked of both, too."`
	Server     string    `xor:"log" placeholder:"URL" help:"The URL of a running server, in place of --data. It must be https, or http on this machine, or unix:PATH for its socket."`
	Export     cli.Given `xor:"log" placeholder:"FILE" help:"A file that log export or log merge wrote, in place of --data."`
	Credential cli.Given `placeholder:"FILE" help:"With --server: the file with an API key or a token that has the permission ${permission}. Without the flag, the key itself in $$POLICY_SERVICE_KEY is used."`
	CA         cli.Given `name:"ca" placeholder:"FILE" help:"With --server: the root certificates to trust instead of the system's, in PEM."`
}

func (l diffLog) source() sourceFlags {
	return sourceFlags{logFlags{Data: l.Data, Server: l.Server, Credential: l.Credential, CA: l.CA}, l.Export}
}

func (l diffLog) given() bool { return l.Data != "" || l.Server != "" || l.Export != "" }

// Validate refuses flags that would be ignored.
func (c DiffCommand) Validate() error {
	if !c.Log.given() && (c.Span != spanFlags{} || c.Tenant != "") {
		return errors.New("--from, --to, --since and --tenant choose recorded decisions; give --data, --server or --export, too")
	}
	return c.Log.source().Validate()
}

// Help ends the command's help.
func (DiffCommand) Help() string {
	return "First it says which policies, files and entities differ. Moved and reworded policies have the same meaning. Then it asks both " +
		"the questions of the tests of A and of B, whatever they expect, and with --data, --server or --export the recorded questions, " +
		"as policy-service replay does. It shows differences, and does not prove that there are no others.\n\n" +
		"Exit codes: 0 no decision differs, 1 one differs, or may because it depends on a value that a mask hides, 2 it could not be done."
}

// compared is the outcome of the command.
type compared struct {
	A       sideJSON         `json:"a"`
	B       sideJSON         `json:"b"`
	Changes replay.Structure `json:"changes"`
	Tests   replay.Tested    `json:"tests"`
	Log     *replay.Compared `json:"log,omitzero"`
}

// Run compares, and ends with 1 if a decision differs.
func (c DiffCommand) Run(s cli.Streams) error {
	a, err := readSide(c.A, "directory")
	if err != nil {
		return err
	}
	b, err := readSide(c.B, "directory")
	if err != nil {
		return err
	}
	made := compared{A: sideJSON{a.Bundle.Digest(), c.A}, B: sideJSON{b.Bundle.Digest(), c.B}, Changes: replay.Differ(a, b)}
	testsA, err := testsIn(s, c.A)
	if err != nil {
		return err
	}
	testsB, err := testsIn(s, c.B)
	if err == nil {
		made.Tests, err = replay.CompareTests(context.Background(), a, b, testsA, testsB)
	}
	if err == nil && c.Log.given() {
		err = c.Log.source().walk(s, c.Span, c.Tenant, func(o replay.Options) (err error) {
			made.Log, err = c.byLog(a, b, made.Changes, o)
			return err
		})
	}
	if err != nil {
		return err
	}
	return s.Answer(c.JSON, made, func() error { return c.print(s, made) }, made.differs())
}

func (c DiffCommand) byLog(a, b *replay.Side, changes replay.Structure, o replay.Options) (*replay.Compared, error) {
	var made replay.Compared
	err := c.Log.source().replayable("compare by the log", true, func(ctx context.Context, open func() (replay.Source, error)) error {
		from, err := open()
		if err != nil {
			return err
		}
		if made, err = replay.Compare(ctx, from, a, b, o, nil); err != nil {
			return err
		}
		return made.Causes(ctx, a, b, changes, evaluation.DefaultLimits())
	})
	return &made, err
}

func (d compared) differs() bool {
	return len(d.Tests.Changes) > 0 || d.Log != nil && (len(d.Log.Groups) > 0 || d.Log.Unknown > 0 || d.Log.Votes.Lost > 0)
}

// whoseTest says in words whose test it is.
var whoseTest = map[string]string{replay.OfBase: "of A", replay.OfCandidate: "of B", replay.OfBoth: "of both"}

func (c DiffCommand) print(s cli.Streams, d compared) error {
	table := s.Table()
	row := func(name any, format string, args ...any) { table.Row(name, fmt.Sprintf(format, args...)) }
	row("A", "%s %s", d.A.Digest, d.A.Source)
	row("B", "%s %s", d.B.Digest, d.B.Source)
	row("changes", "%s", changesText(d.Changes))
	for _, one := range d.Changes.Policies {
		tenant := ""
		if one.Tenant != evaluation.DefaultTenant {
			tenant = " of tenant " + one.Tenant
		}
		row("  "+one.Change, "%s%s (%s)", one.ID, tenant, one.Position)
	}
	if named := d.Changes.Entities.Named; len(named) > 0 {
		row("  entities", "%s", strings.Join(named, ", "))
	}
	row("tests", "%s, %d of them with the same answer", cli.Plural(d.Tests.Questions, "question"), d.Tests.Same)
	for _, class := range replay.Classes {
		if n := d.Tests.Changed[class]; n > 0 {
			row("  "+string(class), "%d", n)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, one := range d.Tests.Changes {
		s.Print("\n%s  %s, %s: %s", string(one.Class), one.Position, whoseTest[one.Of], one.Name)
		printChange(s, one.From, one.To, one.Cause)
	}
	if d.Log == nil {
		return nil
	}
	s.Print("\nby the log")
	table = s.Table()
	comparedRows(row, *d.Log)
	if err := table.Flush(); err != nil {
		return err
	}
	printGroups(s, d.Log.Groups, c.All)
	printLost(s, d.Log.Votes, c.All)
	return nil
}
