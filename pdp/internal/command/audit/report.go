package audit

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/decisionlog/export"
	"policy-service/pdp/internal/decisionlog/report"
)

type reportCommand struct {
	sourceFlags
	Span spanFlags `embed:""`
	By   countedBy `placeholder:"NAME" help:"Print how many decisions there were of each policy, or for each subject: policy or subject."`
	Top  *int      `placeholder:"N" help:"With --by: print the N with the most decisions. The default is 20."`
	Only answer    `name:"decision" placeholder:"ANSWER" help:"With --by: count only decisions with this answer: allow, waiting, deny, possible or impossible."`
	JSON bool      `name:"json" help:"Print JSON, for programs."`
}

// countedBy is a property that decisions are counted by, or "".
type countedBy string

// UnmarshalText refuses every other word.
func (b *countedBy) UnmarshalText(text []byte) error {
	switch *b = countedBy(text); *b {
	case report.ByPolicy, report.BySubject:
		return nil
	}
	return fmt.Errorf("%q is nothing that decisions are counted by; write policy or subject", text)
}

// Help ends the command's help.
func (reportCommand) Help() string {
	return "The command reads the whole decision log once. It does not check signatures: policy-service log verify " +
		"does."
}

// Run prints the report.
func (c reportCommand) Run(s cli.Streams) error {
	from, to, err := c.Span.times()
	if err != nil {
		return err
	}
	o := report.Options{From: from, To: to, By: string(c.By), Top: report.TopUsual, Decision: string(c.Only)}
	if c.Top != nil {
		o.Top = *c.Top
	}
	if c.Only != "" && c.By == "" {
		return fmt.Errorf("--decision: %w", report.ErrTopOf)
	}
	if err := o.Check(); err != nil || c.Top != nil && c.By == "" {
		return fmt.Errorf("--top: %w", cmp.Or(err, report.ErrTop))
	}
	var made report.Report
	if c.Export != "" {
		err = c.readFile("report", func(r *export.Reader) (err error) { made, err = report.OfExport(r, o); return err })
	} else {
		made, err = find(c.logFlags, "report", func(log auditLog, ctx context.Context) (report.Report, error) {
			return log.Report(ctx, o)
		})
	}
	if err != nil {
		return err
	}
	if c.JSON {
		return s.PrintJSON(made)
	}
	if made.Top != nil {
		return printTop(s, *made.Top)
	}
	return printAuditReport(s, made)
}

// printTop prints the names with the most decisions.
func printTop(s cli.Streams, top report.Top) error {
	t := s.Table()
	heads, ofTenant := []any{"DECISIONS", "ALLOW", "WAITING", "DENY", "ERRORS"}, top.By == report.BySubject
	if ofTenant {
		heads = append(heads, "TENANT")
	}
	t.Row(append(heads, strings.ToUpper(top.By))...)
	for _, r := range top.Rows {
		row := []any{r.Decisions, r.Allowed, r.Waiting, r.Denied, r.Errors}
		if ofTenant {
			row = append(row, r.Tenant)
		}
		t.Row(append(row, cmp.Or(r.Name, "(no policy)"))...)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if top.Missed > 0 {
		s.Tell("there were too many to count each: a row may lack up to %d decisions, and no other has more than that", top.Missed)
	} else if top.Others > 0 {
		s.Tell("and %d more; --top prints more", top.Others)
	}
	return nil
}

// reportTable prints rows of a name and a text.
type reportTable struct{ cli.Table }

func (t reportTable) row(name, format string, args ...any) {
	t.Row(name, fmt.Sprintf(format, args...))
}

// none says that there was nothing of something: in a report that is an answer, too.
func (t reportTable) none(name string, n int) {
	if n == 0 {
		t.row(name, "none")
	}
}

func printAuditReport(s cli.Streams, r report.Report) error {
	t := reportTable{s.Table()}
	if r.Logs == nil {
		t.row("log", "%s", r.Origin)
	}
	for _, one := range r.Logs {
		t.row("log", "%s, %s", one.Origin, cli.Plural(int(one.Size), "record"))
	}
	t.row("from", "%s", cli.TimeOr(r.From, "the beginning"))
	t.row("to", "%s", cli.TimeOr(r.To, "the checkpoint"))
	t.population(r)
	t.decisions(r)
	t.approvals(r.Approvals)
	t.capabilities(r.Capabilities)
	t.bundles(r.Bundles)
	t.days(r)
	t.none("tool drift", len(r.ToolDrift))
	if len(r.ToolDrift) > 0 {
		t.row("tool drift", "%s", cli.Counts("", r.ToolDrift, ""))
	}
	t.none("redactions", len(r.Redactions))
	for _, one := range r.Redactions {
		t.row("redaction", "%s: record %d, by %s: %s", recordedAt(one.At), one.Of,
			cmp.Or(one.Caller, "somebody with the data directory"), one.Reason)
	}
	t.none("clock behind", len(r.ClockBehind))
	for _, one := range r.ClockBehind {
		t.row("clock behind", "%s: %s with the time of the one before", recordedAt(one.First),
			cli.Plural(int(one.Records), "record"))
	}
	if r.Service == nil {
		t.row("tenants", "%s only: gaps, starts, refused bundles, retention, losses and keys are of all tenants "+
			"together, and not here", strings.Join(r.Tenants, ", "))
	} else {
		t.service(r.Service)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, one := range append(r.Logs, report.Log{Checkpoint: r.Checkpoint}) {
		if one.Checkpoint != "" {
			s.Print("\n%s", cli.Lines(strings.TrimSuffix(one.Checkpoint, "\n")))
		}
	}
	return nil
}

func (t reportTable) population(r report.Report) {
	p := r.Population
	t.row("records", "%d of the %d that the checkpoint below covers%s", p.Records, r.Size,
		cli.Counts(": ", p.Kinds, ""))
	if r.Again > 0 {
		t.row("twice", "%s in two logs, or in two exports of one, counted once", cli.Plural(int(r.Again), "record"))
	}
	if r.LeftOut > 0 {
		t.row("not here", "%s that the filter of the export left out", cli.Plural(int(r.LeftOut), "record"))
	}
	if p.Records > 0 {
		t.row("first, last", "%s, %s", cli.Time(p.First), cli.Time(p.Last))
	}
	t.row("decisions", "%s", answersOf(p.Allowed, p.Waiting, p.Denied, p.Possible, p.Impossible))
	for _, one := range r.Withdrawn {
		t.row("withdrawn", "%s: decision %s, whose use of %s went to others, so it was never answered and is no allow", recordedAt(one.At), one.Decision, cmp.Or(one.Approval, one.Capability))
	}
	for _, one := range r.Unsettled {
		t.row("unsettled", "%s: decision %s uses %s, and no record says that the use counts: it is in doubt, or another decision had the same use", recordedAt(one.At), one.Decision, cmp.Or(one.Approval, one.Capability))
	}
}

func (t reportTable) decisions(r report.Report) {
	t.none("denies", len(r.Denies))
	for _, reason := range slices.Sorted(maps.Keys(r.Denies)) {
		t.row("denies", "%d %s", r.Denies[reason], reason)
	}
	t.none("errors", len(r.Errors))
	for _, e := range r.Errors {
		t.row("errors", "%d of %s%s", e.Errors, e.Policy, cli.Counts(": ", e.Kinds, ""))
	}
	t.none("obligations", len(r.Obligations))
	for _, name := range slices.Sorted(maps.Keys(r.Obligations)) {
		t.row("obligations", "%s: %s", name, owed(r.Obligations[name]))
	}
}

// owed counts the outcomes of obligations.
func owed(o report.Obligations) string {
	text := fmt.Sprintf("%d owed, %d discharged, %d failed, %d never reported", o.Owed, o.Discharged, o.Failed,
		o.Unreported)
	if o.GivenUp > 0 {
		text += fmt.Sprintf(" (%d of them were too many to wait for)", o.GivenUp)
	}
	return text
}

// approvals has a row for each form of an approval request, as @approval of a policy names them.
func (t reportTable) approvals(all map[string]approval.Tally) {
	t.none("approvals", len(all))
	for _, form := range slices.Sorted(maps.Keys(all)) {
		a := all[form]
		took := ""
		if a.Median != nil && a.Longest != nil {
			took = fmt.Sprintf("; people took %s at the median, %s at most", seconds(*a.Median), seconds(*a.Longest))
		}
		if a.Continued > 0 {
			took = fmt.Sprintf(", %d continued", a.Continued) + took
		}
		t.row("approvals", "%s: %d filed, %d approved, %d denied, %d expired, %d cancelled, %d used%s", form, a.Filed,
			a.Approved, a.Denied, a.Expired, a.Cancelled, a.Used, took)
	}
}

func (t reportTable) capabilities(c report.Capabilities) {
	t.none("capabilities", len(c.Steps)+int(c.Calls)+len(c.Refused))
	for _, text := range []string{cli.Counts("", c.Steps, ""), calls(c.Calls), cli.Counts("refused: ", c.Refused, "")} {
		if text != "" {
			t.row("capabilities", "%s", text)
		}
	}
}

func calls(n int64) string {
	if n == 0 {
		return ""
	}
	return "good for " + cli.Plural(int(n), "call")
}

// seconds is a duration for people.
func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Second)
}

func (t reportTable) bundles(all []report.BundleInForce) {
	t.none("bundles", len(all))
	for _, b := range all {
		made := cli.Plural(int(b.Decisions), "decision")
		if b.Decisions > 0 {
			made += fmt.Sprintf(" from %s to %s", cli.Time(b.First), cli.Time(b.Last))
		}
		t.row("bundle", "%s, loaded %s, %s%s", b.Digest, cli.TimeOr(b.Loaded, "by no record that is here"), made, ofLog(b.Origin))
	}
}

func (t reportTable) days(r report.Report) {
	if r.Days.First == "" {
		t.row("days", "none on which the log was there")
		return
	}
	t.row("days", "%s to %s (UTC), %d with decisions, %d without", r.Days.First, r.Days.Last, r.Days.WithDecisions,
		len(r.Days.Quiet))
	for _, day := range r.Days.Quiet {
		proof := "nothing proves this day: no checkpoint was signed on it, either"
		switch {
		case day.Checkpoints > 0:
			proof = cli.Plural(int(day.Checkpoints), "checkpoint") + " signed on it"
		case r.Days.Unsaid:
			proof = "an export does not have the checkpoints that were signed on it"
		case day.Proved:
			proof = "checkpoints were signed on it"
		}
		if day.Gone {
			proof += "; but records are gone that may be of it"
		}
		t.row("no decision", "%s: %s", day.Day, proof)
	}
}

func (t reportTable) service(r *report.Service) {
	t.none("gaps", len(r.Gaps))
	for _, gap := range r.Gaps {
		t.row("gap", "%d to %d%s %s, between %s and %s", gap.First, gap.Next-1, ofLog(gap.Origin), gap.Why,
			cli.TimeOr(gap.After, "the beginning"), cli.Time(gap.Before))
	}
	t.none("refused bundles", len(r.Refused))
	for _, one := range r.Refused {
		first := ""
		if len(one.Problems) > 0 {
			first = ", the first " + one.Problems[0]
		}
		of := ""
		if len(one.Tenants) > 0 {
			of = " of " + strings.Join(one.Tenants, ", ")
		}
		t.row("refused bundle", "%s%s: %s%s", recordedAt(one.At), of, cli.Plural(int(one.Count), "problem"), first)
	}
	t.none("runs", len(r.Runs))
	for _, one := range r.Runs {
		t.row("run", "%s: %s", recordedAt(one.At), strings.ReplaceAll(one.Event, "_", " "))
	}
	t.none("retention", len(r.Retention))
	for _, one := range r.Retention {
		t.row("retention", "%s: nothing below record %d is kept, for its %s", recordedAt(one.At), one.Below, one.Reason)
	}
	t.losses(r.Losses)
	t.none("unsigned tails", len(r.UnsignedTails))
	for _, one := range r.UnsignedTails {
		t.row("unsigned tail", "%s: records %d to %d may be anybody's: they had no checkpoint and no MAC (%s)", recordedAt(one.At), one.From, one.To, one.Cause)
	}
	if o := r.OutsideStart; o != nil {
		t.row("outside a start", "%s, the first at %s: no start of the service is on record before, or a stop or a crash is",
			cli.Plural(int(o.Decisions), "decision"), recordedAt(o.First))
	}
	t.none("new keys", len(r.Keys))
	for _, one := range r.Keys {
		t.row("new key", "%s: %s", recordedAt(one.At), one.New)
	}
	for _, line := range unread(r.Unread) {
		t.row("not here", "%s", line)
	}
}

func (t reportTable) losses(all []report.Loss) {
	t.none("losses", len(all))
	for _, one := range all {
		text := recordedAt(one.At) + ":"
		if one.Dropped > 0 {
			text += fmt.Sprintf(" %s dropped, from %s to %s;", cli.Plural(int(one.Dropped), "record"),
				cli.Time(one.First), cli.Time(one.Last))
		}
		if !one.Failed.IsZero() {
			text += fmt.Sprintf(" %s refused from %s to %s, %s;", cli.Plural(int(one.Refused), "record"),
				cli.Time(one.Failed), cli.Time(one.Resumed), strings.ReplaceAll(one.Error, "_", " "))
		}
		if d := one.Damage; d != nil {
			lost := "it is unknown how many records"
			if d.Lost != nil {
				lost = cli.Plural(int(*d.Lost), "record")
			}
			text += fmt.Sprintf(" %s lost with a damaged journal, %s at byte %d;", lost, d.File, d.Offset)
		}
		t.row("loss", "%s", strings.TrimRight(text, ";:"))
	}
}

// recordedAt is the time of a record, and which.
func recordedAt(m report.Instant) string {
	return fmt.Sprintf("%s, record %d%s", cli.Time(m.Time), m.Sequence, ofLog(m.Origin))
}

// ofLog names the log, if there are several.
func ofLog(origin string) string {
	if origin == "" {
		return ""
	}
	return " of " + origin
}
