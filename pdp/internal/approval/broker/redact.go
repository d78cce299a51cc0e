package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/server/auth"
)

// A redaction of an approval request is on record as a step of it, [approval.StepRedacted], before the content of any
// record goes. So a start completes a redaction that a crash interrupted, and repeats one that an older file of approvals undid.

// Redaction is the wish that the words of an approval request are removed for good, wherever it is kept here.
type Redaction struct {
	Approval string
	// Reason stays on record.
	Reason string
	// End cancels or revokes an approval that waits or can be used.
	End bool
}

// Redacted is the result of a redaction, and where the same words may stand all the same.
type Redacted struct {
	Approval string `json:"approval"`
	// Records is how many records have lost their content now.
	Records int `json:"records"`
	// Batches are the records from which decisions of batches inherit. Other items inherit it, too, so they stay.
	Batches   []string `json:"batches,omitempty"`
	Elsewhere []string `json:"elsewhere"`
}

// ErrHalf: the redaction is on record, and the content of some records of the approval request is still there.
var ErrHalf = errors.New("not all records of the approval request could be redacted; ask for it again")

const unfinished = "a redaction of an approval request is not complete; ask for it again, or restart"

// elsewhere is where the words may stand that no redaction reaches.
var elsewhere = []string{
	"exports, samples and backups that were made before",
	"sinks of the decision log, webhooks and callbacks that were sent to",
	"programs that asked, and what people were shown",
	"records of decisions about the same request that did not use the approval",
	"unused blocks of the disk",
}

// Redact removes the words of an approval request: in the file of approvals, in messages that other systems
// are yet to receive, and in all its records, with those of the decisions that waited for it and used it. It can be asked for again
// after an error; the next start completes it, too. For a caller that does not serve its tenant there is no such approval
// request. One that was forgotten has its records.
func (b *Broker) Redact(ctx context.Context, caller auth.Caller, r Redaction) (done Redacted, err error) {
	ctx = context.WithoutCancel(ctx) // the caller may go away
	a, found, err := b.Store.Get(ctx, r.Approval)
	switch {
	case err != nil:
		return done, err
	case !found:
		err = b.redactForgotten(ctx, caller, r)
	case !caller.Serves(a.Tenant):
		err = approval.ErrNotFound
	default:
		err = b.redactKept(ctx, caller.Name, b.unsecret(ctx, r.Reason, a), r)
	}
	if err != nil {
		return done, err
	}
	if done, err = b.redactRecords(ctx, caller.Name, r); err != nil {
		b.options.Logger.Error(unfinished, "error", err)
		err = fmt.Errorf("%w: %w", ErrHalf, err)
	}
	return done, err
}

// redactKept redacts an approval request in the file of approvals, and its messages to other systems, which get it
// again as it is now.
func (b *Broker) redactKept(ctx context.Context, caller, reason string, r Redaction) error {
	err := b.Store.Redact(ctx, r.Approval, caller, reason, r.End)
	if err != nil {
		return err
	}
	tasks, err := b.Store.TasksOf(r.Approval)
	of := []string{r.Approval}
	for _, t := range tasks {
		of = append(of, t.Items...) // each goes out with the others
	}
	for _, id := range of {
		b.teller.stop(id)
	}
	return err
}

// redactForgotten puts on record that an approval request is redacted of which the log alone knows.
func (b *Broker) redactForgotten(ctx context.Context, caller auth.Caller, r Redaction) error {
	lines, err := b.recordsOf(ctx, r.Approval)
	if err != nil {
		return fmt.Errorf("%w: %w", approval.ErrUnavailable, err)
	}
	is := func(l recordedLine) bool { return l.Kind == format.KindApproval && caller.Serves(l.Tenant) }
	n := slices.IndexFunc(lines, is)
	if n < 0 {
		return approval.ErrNotFound
	}
	if slices.ContainsFunc(lines, func(l recordedLine) bool { return l.Event == approval.StepRedacted }) {
		return nil
	}
	of := lines[n]
	var said [][]byte
	for _, l := range lines {
		said = append(said, l.line)
	}
	now := b.options.Store.Now()
	err = b.record(ctx, approval.Step{
		ID:        uuid.Must(uuid.NewV7()).String(),
		At:        now,
		Name:      approval.StepRedacted,
		Caller:    caller.Name,
		Statement: approval.Statement{Reason: b.options.Mask(ctx).After(r.Reason, said...)},
		Approval: approval.Approval{
			ApprovalRequest: approval.ApprovalRequest{
				Tenant:   of.Tenant,
				Caller:   of.Details.Requester,
				Decision: of.Details.Decision,
			},
			ID:         r.Approval,
			Status:     of.Details.Status,
			Version:    of.Details.Version,
			FiledAt:    of.Details.FiledAt,
			RedactedAt: now,
		},
	})
	if err != nil {
		err = fmt.Errorf("%w: %w", approval.ErrUnrecorded, err)
	}
	return err
}

// recordsOf are the records of the steps of an approval request, and of the decisions that waited for it, used it and went
// on from its uses.
func (b *Broker) recordsOf(ctx context.Context, id string) (lines []recordedLine, err error) {
	if id == "" { // any record would pass
		return nil, nil
	}
	waited := ""
	q := decisionlog.Query{Filter: record.Filter{Approval: id}, Limit: 1000}
	for more := true; more; {
		page, err := b.options.Log.Query(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, line := range page.Lines {
			l, err := readLine(line)
			if err != nil {
				return nil, err
			}
			if l.Kind == format.KindApproval {
				waited = l.Details.Decision
			}
			if l.Kind == format.KindApproval || l.Kind == format.KindDecision {
				l.line = line
				lines = append(lines, l)
			}
		}
		q.Cursor, more = page.Next, page.More
	}
	if waited == "" {
		return lines, nil
	}
	record, err := b.options.Log.ByID(waited)
	if errors.Is(err, segment.ErrGone) || errors.Is(err, segment.ErrNotFound) {
		return lines, nil
	}
	if err != nil {
		return nil, err
	}
	l, err := readLine(record.Line)
	if l.Kind == format.KindDecision && l.Tenant == lines[0].Tenant {
		l.line = record.Line
		lines = slices.Insert(lines, 0, l)
	}
	return lines, err
}

// redactRecords removes the content of all records of an approval request, but of those that say that it was redacted, and
// why.
func (b *Broker) redactRecords(ctx context.Context, caller string, r Redaction) (done Redacted, err error) {
	lines, err := b.recordsOf(ctx, r.Approval)
	if err != nil {
		return done, err
	}
	done = Redacted{Approval: r.Approval, Elsewhere: elsewhere}
	if b.options.Store.Origin != "" {
		done.Elsewhere = append([]string{"the logs of the other replicas, until it is asked for at each"}, elsewhere...)
	}
	var ids []string
	for _, l := range lines {
		if l.Event == approval.StepRedacted {
			r.Reason = l.Details.Reason
			continue
		}
		ids = append(ids, l.ID)
		if l.Kind != format.KindDecision {
			continue
		}
		decided, err := b.options.Log.Recorded(l.line)
		if err != nil {
			return done, err
		}
		if decided.Batch.Line == nil {
			continue
		}
		batch, err := record.Parse(decided.Batch.Line)
		if err != nil {
			return done, err
		}
		if !slices.Contains(done.Batches, batch.ID) {
			done.Batches = append(done.Batches, batch.ID)
		}
	}
	done.Records, err = b.options.Log.RedactAll(ctx, caller, r.Reason, ids...)
	return done, err
}

// Redo completes each redaction that is on record.
func (b *Broker) Redo(ctx context.Context) {
	q := decisionlog.Query{
		Filter: record.Filter{Kind: format.KindApproval, Event: approval.StepRedacted},
		Limit:  1000,
	}
	var err error
	for more := true; more && ctx.Err() == nil; {
		page, failed := b.options.Log.Query(ctx, q)
		err = errors.Join(err, failed)
		for _, line := range page.Lines {
			err = errors.Join(err, b.redo(ctx, line))
		}
		q.Cursor, more = page.Next, page.More
	}
	if err != nil && ctx.Err() == nil {
		b.options.Logger.Error(unfinished, "error", err)
	}
}

func (b *Broker) redo(ctx context.Context, line []byte) error {
	l, err := readLine(line)
	if err != nil {
		return err
	}
	r := Redaction{Approval: l.Details.Approval, Reason: l.Details.Reason, End: true}
	err = b.redactKept(ctx, l.Caller, r.Reason, r)
	if err == nil || errors.Is(err, approval.ErrNotFound) {
		_, err = b.redactRecords(ctx, l.Caller, r)
	}
	if err != nil {
		err = fmt.Errorf("approval request %s: %w", r.Approval, err)
	}
	return err
}
