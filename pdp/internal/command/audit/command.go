// Package audit has the commands of auditors, policy-service log. They read, export, prove and verify the decision log,
// in a data directory or of a running server. redact, recover and key rotate change the log, and each change is itself a record.
//
// Here are the flags and the output: packages decisionlog, remote, report and verify do the work, and verify shares
// nothing with the writer of the log. Read command.go first: it has the flags and errors that all commands share.
package audit

import (
	"context"
	"encoding"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"time"

	"policy-service/pdp/internal/command/cli"
	"policy-service/pdp/internal/command/connection"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/export"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/remote"
	"policy-service/pdp/internal/decisionlog/report"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/httpclient"
	"policy-service/pdp/internal/when"
)

// Command is policy-service log.
type Command struct {
	Export      exportCommand      `cmd:"" help:"Write out records, for other programs or as evidence."`
	Merge       mergeCommand       `cmd:"" help:"Join exports of several decision logs, such as those of the replicas of a cluster, into one file."`
	Recheck     recheckCommand     `cmd:"" help:"Make each recorded decision again by its own policies, and compare the answers."`
	Verify      verifyCommand      `cmd:"" help:"Check whether records were altered, removed, reordered or added later."`
	Tail        tailCommand        `cmd:"" help:"Print the newest records, and with --follow each new one."`
	Approvals   approvalsCommand   `cmd:"" help:"Print approval requests: what was asked, who said what about it, when and why, and which decisions used it."`
	Show        showCommand        `cmd:"" help:"Show one record, with the policies as they were then."`
	Prove       proveCommand       `cmd:"" help:"Print the proof that a record is in the decision log. log verify checks it without the decision log."`
	Checkpoint  checkpointCommand  `cmd:"" help:"Print the newest checkpoint, for you to keep elsewhere."`
	Consistency consistencyCommand `cmd:"" help:"Prove that today's decision log continues a checkpoint that you kept."`
	Sample      sampleCommand      `cmd:"" help:"Choose decisions by a seed, each with its proof and its policies, for an auditor to check."`
	Report      reportCommand      `cmd:"" help:"Print what an auditor asks first: counts, gaps, days without decisions, denies, errors, bundles, losses."`
	Redact      redactCommand      `cmd:"" help:"Remove the content of a record for good. The proof that the record was there stays."`
	Recover     recoverCommand     `cmd:"" help:"Go on after damage to the journal, without the records that it lost."`
	Stats       statsCommand       `cmd:"" help:"Count the records, and the bytes that they take on disk."`
	Key         keyCommand         `cmd:"" help:"Print or rotate the key that signs checkpoints."`
}

// logFlags say which log is meant: that of a data directory, or that of a running server.
type logFlags struct {
	Data       string    `required:"" xor:"log" placeholder:"DIR" help:"The data directory of the server. Give this or --server."`
	Server     string    `required:"" xor:"log" asks:"server" placeholder:"URL" help:"The URL of a running server. It must be https, or http on this machine, or unix:PATH for its socket. Give this or --data. Without both, $$POLICY_SERVICE_SERVER is used."`
	Credential cli.Given `placeholder:"FILE" help:"With --server: the file with an API key or a token that has the permission ${permission}. Without the flag, the key itself in $$POLICY_SERVICE_KEY is used."`
	CA         cli.Given `name:"ca" placeholder:"FILE" help:"With --server: the root certificates to trust instead of the system's, in PEM."`
}

// sourceFlags say which records are meant: those of a log, or of a file.
type sourceFlags struct {
	logFlags
	Export cli.Given `required:"" xor:"log" placeholder:"FILE" help:"A file that log export or log merge wrote, in place of --data or --server."`
}

// readFile calls f with a reader of the file.
func (a sourceFlags) readFile(what string, f func(*export.Reader) error) error {
	in, err := os.Open(string(a.Export))
	if err != nil {
		return fmt.Errorf("cannot %s: %w; give what log export or log merge wrote", what, err)
	}
	defer func() { _ = in.Close() }()
	r, err := export.NewReader(in)
	if err == nil {
		err = f(r)
	}
	if err != nil {
		return fmt.Errorf("cannot %s: %s: %w; try policy-service log verify %s", what, a.Export, err, cli.Shell(string(a.Export)))
	}
	return nil
}

// auditLog is a log as these commands read it, in a directory or behind a server.
type auditLog interface {
	Export(context.Context, io.Writer, export.Options) (export.Result, error)
	Show(ctx context.Context, id string) (segment.Shown, error)
	Prove(ctx context.Context, w io.Writer, id string) error
	Proof(ctx context.Context, id string) ([]byte, error)
	Checkpoint(context.Context) ([]byte, error)
	Consistency(ctx context.Context, w io.Writer, old []byte) error
	Stats(context.Context) (report.Statistics, error)
	Sample(context.Context, report.SampleOptions) (report.Sample, error)
	Report(context.Context, report.Options) (report.Report, error)
}

// read calls f with the log. An error says that the task could not be done.
func (a logFlags) read(what string, f func(context.Context, auditLog) error) (err error) {
	ctx, stop := cli.UntilSignal()
	defer stop()
	if a.Server != "" {
		err = a.remote(func(log *remote.Log) error { return f(ctx, log) })
	} else {
		err = segment.Read(a.Data, func(s *segment.Snapshot) error {
			return f(ctx, logHere{export.Log{Snapshot: s}})
		})
	}
	if err != nil {
		return a.failed(what, err)
	}
	return nil
}

// find is [logFlags.read] for a value that f finds in the log.
func find[T any](a logFlags, what string, f func(auditLog, context.Context) (T, error)) (found T, err error) {
	err = a.read(what, func(ctx context.Context, log auditLog) (err error) {
		found, err = f(log, ctx)
		return err
	})
	return found, err
}

// show finds a record by its id.
func (a logFlags) show(what, id string) (segment.Shown, error) {
	return find(a, what, func(log auditLog, ctx context.Context) (segment.Shown, error) {
		return log.Show(ctx, id)
	})
}

// logHere is the log of a data directory.
type logHere struct{ export.Log }

// Proof is the text of the proof of a record.
func (l logHere) Proof(_ context.Context, id string) ([]byte, error) {
	r, err := l.Find(id)
	if err != nil && !errors.Is(err, segment.ErrGone) {
		return nil, err
	}
	p, err := l.Log.Proof(r, id)
	return p.Text(), err
}

// Stats counts the records.
func (l logHere) Stats(ctx context.Context) (report.Statistics, error) {
	return report.Count(ctx, l.Snapshot)
}

// Sample chooses decisions.
func (l logHere) Sample(ctx context.Context, o report.SampleOptions) (report.Sample, error) {
	return report.Choose(ctx, l.Snapshot, o)
}

// Report answers the first questions of an auditor.
func (l logHere) Report(ctx context.Context, o report.Options) (report.Report, error) {
	return report.Make(ctx, l.Snapshot, o)
}

// filterFlags choose records. A record must pass each flag that is given.
type filterFlags struct {
	Span       spanFlags `embed:""`
	Tenant     cli.Given `placeholder:"T" help:"Only records of this tenant."`
	Decision   answer    `placeholder:"ANSWER" help:"Only records with this answer: allow, waiting, deny, possible or impossible. An allow that waits for approval is waiting, and not allow. The last two are answers to options.unknown."`
	Subject    cli.Given `placeholder:"ID" help:"Only records with this subject: an id, or TYPE/ID."`
	Resource   cli.Given `placeholder:"ID" help:"Only records with this resource: an id, or TYPE/ID."`
	Action     cli.Given `placeholder:"NAME" help:"Only records with this action."`
	Policy     cli.Given `placeholder:"ID" help:"Only decisions that this policy determined, in which it had an error, or in which a reason denied what it allowed."`
	Approval   cli.Given `placeholder:"ID" help:"Only records of this approval request: its steps, and the decisions that used it."`
	Capability cli.Given `placeholder:"ID" help:"Only records of this capability: its steps, the decisions that granted it, and those on calls that showed it."`
	Event      cli.Given `placeholder:"NAME" help:"Only records that say that this happened, such as tool_drift or bundle_refused."`
	Text       cli.Given `placeholder:"WORD" help:"Only records with this text in them, whatever the case of its letters: a word, or a few in quotes. Without --from or --since, only records of the last 90 days."`
}

// spanFlags say of which time the records are. Each takes a time, a day or an age.
type spanFlags struct {
	From  when.Time `placeholder:"TIME" help:"Only records at or after this time: 2026-11-20T15:04:05Z, 2026-11-20 (midnight UTC), or an age such as 90s, 24h or 7d."`
	To    when.Time `placeholder:"TIME" help:"Only records before this time. A day alone is not in it: it means the midnight with which the day begins."`
	Since when.Time `placeholder:"TIME" help:"The same as --from, in place of it."`
}

// times are the bounds. A command asks for them once: an age means another time a moment later.
func (f spanFlags) times() (from, to time.Time, err error) {
	if from, to, err = (when.Span{From: f.From, To: f.To, Since: f.Since}).At(time.Now()); err != nil {
		return from, to, fmt.Errorf("--%w", err)
	}
	return from, to, record.Filter{From: from, To: to}.Check()
}

// answer is one decision, or "" for all.
type answer string

var _ encoding.TextUnmarshaler = (*answer)(nil)

// UnmarshalText refuses every other word.
func (d *answer) UnmarshalText(text []byte) error {
	switch *d = answer(text); *d {
	case record.Allow, record.Waiting, record.Deny, record.Possible, record.Impossible:
		return nil
	}
	return fmt.Errorf("%q is no decision; write allow, waiting, deny, possible or impossible", text)
}

// answersOf are numbers of answers. Possible and impossible are named if there are any.
func answersOf(allowed, waiting, denied, possible, impossible int64) string {
	text := fmt.Sprintf("%d allow, %d waiting, %d deny", allowed, waiting, denied)
	if possible+impossible > 0 {
		text += fmt.Sprintf(", %d possible, %d impossible", possible, impossible)
	}
	return text
}

// filter is the same as the log has it. A command asks for it once, as for [spanFlags.times]. It says on standard error
// from when on a text is sought if no flag does.
func (f filterFlags) filter(s cli.Streams) (record.Filter, error) {
	from, to, err := f.Span.times()
	if err != nil {
		return record.Filter{}, err
	}
	only := record.Filter{
		From:       from,
		To:         to,
		Tenant:     string(f.Tenant),
		Decision:   string(f.Decision),
		Subject:    string(f.Subject),
		Resource:   string(f.Resource),
		Action:     string(f.Action),
		Policy:     string(f.Policy),
		Approval:   string(f.Approval),
		Capability: string(f.Capability),
		Event:      string(f.Event),
		Text:       string(f.Text),
	}
	if err := only.Check(); err != nil {
		return only, err
	}
	only, bounded := only.Bounded(time.Now())
	if bounded {
		s.Tell("--text looks at the records of %d days, from %s on; --since says how far back", record.TextDays,
			cli.Time(only.From))
	}
	return only, nil
}

// failed says in one line that a task could not be done, and what to try.
func (a logFlags) failed(what string, err error) error {
	if a.nothingYet(err) {
		return fmt.Errorf("cannot %s: a server is running on %s and has sealed no segment yet; ask it with --server, "+
			"or stop it", what, a.Data)
	}
	return fmt.Errorf("cannot %s: %s; %s", what, strings.ReplaceAll(err.Error(), "\n", ": "), a.try(err))
}

func (a logFlags) try(err error) string {
	switch {
	case errors.Is(err, report.ErrNoPopulation):
		return "try another --from and --to, and policy-service log stats " + a.where() + " for what there is"
	case a.Server != "":
		return a.tryServer(err)
	}
	return a.tryData(err)
}

// nothingYet reports whether something is not found because the log has only the segment that the server still writes.
func (a logFlags) nothingYet(err error) bool {
	if a.Server != "" || !errors.Is(err, segment.ErrNotFound) {
		return false
	}
	missing, size, err := a.missing()
	return err == nil && missing.Live && size == 0
}

// missing are the records of a directory that cannot be read now, beside how many that can.
func (a logFlags) missing() (u segment.Unread, size uint64, err error) {
	reader, err := segment.OpenReader(a.Data)
	if err != nil {
		return u, 0, err
	}
	u, size = segment.Unread{Live: reader.Partial(), Unfilled: reader.Unfilled()}, reader.Size()
	return u, size, reader.Close()
}

// ofMany is for an id that people take for that of a record.
const ofMany = ", with --approval ID or --capability ID for the records of one"

func (a logFlags) tryData(err error) string {
	switch {
	case errors.Is(err, context.Canceled):
		return "it was interrupted, run it again"
	case errors.Is(err, fs.ErrNotExist):
		return "give the data directory of the server as --data; the decision log is there once the server has run"
	case errors.Is(err, fs.ErrPermission):
		return "run it as the user that serve runs as"
	case errors.Is(err, segment.ErrLocked):
		return "stop the server that runs on " + a.Data + ", or ask it with --server, and try again"
	case errors.Is(err, decisionlog.ErrLost):
		return "copy the directory; then policy-service log recover --accept-loss --data " + cli.Shell(a.Data) +
			" goes on without these records"
	case errors.Is(err, decisionlog.ErrNoLoss):
		return "there is no loss to accept; start the server"
	case errors.Is(err, segment.ErrNotFound):
		if missing, _, err := a.missing(); err == nil && missing.Unfilled != nil {
			return unfilled(missing.Unfilled)
		}
		return "try policy-service log tail --data " + cli.Shell(a.Data) + ofMany + "; use --server for what a running " +
			"server recorded since it sealed its last segment"
	case errors.Is(err, segment.ErrGone):
		return "policy-service log stats --data " + cli.Shell(a.Data) + " says what is gone and why; an earlier " +
			"export may hold it"
	case errors.Is(err, decisionlog.ErrNotRedactable):
		return "such a record says what was done to the decision log"
	case errors.Is(err, segment.ErrUnavailable):
		return "see to the disk, and try again"
	}
	return "try policy-service log verify " + cli.Shell(a.Data)
}

// exists refuses a directory without a log: opening it for writing would make one.
func (a logFlags) exists() error {
	_, err := segment.VerifierKeys(a.Data)
	return err
}

// partly names the records that cannot be read while a server runs on the directory.
const partly = "a server is running on this directory: what it recorded since it sealed its last segment cannot be " +
	"read here; --server reads all of it"

// unread names the records that cannot be read, in lines.
func unread(u segment.Unread) (lines []string) {
	if u.Live {
		lines = append(lines, partly)
	}
	if u.Uncovered > 0 {
		lines = append(lines, fmt.Sprintf("%s after the last checkpoint, left by a crash, not here: the next start of the "+
			"server signs for them", cli.Plural(int(u.Uncovered), "record")))
	}
	if text := unfilled(u.Unfilled); text != "" {
		lines = append(lines, text)
	}
	return lines
}

// sayPartial warns of records that cannot be read now.
func (a logFlags) sayPartial(s cli.Streams) error {
	if a.Data == "" {
		return nil
	}
	missing, _, err := a.missing()
	if err != nil {
		return a.failed("read the log", err)
	}
	for _, line := range unread(missing) {
		s.Tell("%s", line)
	}
	return nil
}

// Validate refuses flags that would be ignored.
func (a logFlags) Validate() error {
	if a.Server == "" && (a.Credential != "" || a.CA != "") {
		return errors.New("--credential and --ca are for --server; leave them out")
	}
	return nil
}

// remote calls f with the log of the server.
func (a logFlags) remote(f func(*remote.Log) error) error {
	options, err := connection.Options(a.Credential, a.CA)
	if err != nil {
		return err
	}
	log, err := remote.New(a.Server, options)
	if err != nil {
		return err
	}
	defer log.Close()
	return f(log)
}

// where names the log on a command line.
func (a logFlags) where() string {
	if a.Server != "" {
		return "--server " + cli.Shell(a.Server)
	}
	return "--data " + cli.Shell(a.Data)
}

// tryServer is advice about an error of a server's log.
func (a logFlags) tryServer(err error) string {
	switch status := httpclient.StatusOf(err); {
	case errors.Is(err, segment.ErrChanged), errors.Is(err, remote.ErrOtherExport):
		return "run it again, for an export of today"
	case status == http.StatusNotFound || status == http.StatusGone:
		return "try policy-service log tail --server " + cli.Shell(a.Server) + ofMany
	}
	return connection.Try(err)
}
