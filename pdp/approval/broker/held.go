package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/pdp/approval"
	"policy-service/pdp/decisionlog"
	"policy-service/pdp/decisionlog/vouch"
)

// This file reads from the log what an approval is compared with before it counts. The file of approvals alone is no
// reason to allow anything.

// recordedLine is a record of a step or of a decision, as it is read back.
type recordedLine struct {
	ID         string           `json:"id"`
	Now        time.Time        `json:"now"`
	Kind       string           `json:"kind"`
	Tenant     string           `json:"tenant"`
	Caller     string           `json:"caller"`
	Event      string           `json:"event"`
	Decision   bool             `json:"decision"`
	Discharged []evaluation.Met `json:"discharged"`
	Details    recordedStep     `json:"details"`
	line       []byte           // where it is needed
}

// stepsOf reads the steps of a line: a step of an approval, or one without a name for each approval that a decision
// used, or went on from a use of.
func (l *recordedLine) stepsOf() (steps []approval.Step) {
	switch d := l.Details; {
	case l.Kind == decisionlog.KindApproval:
		return []approval.Step{{
			ID:        l.ID,
			At:        l.Now,
			Name:      l.Event,
			Statement: d.Statement,
			Caller:    l.Caller,
			Decision:  d.UsedBy,
			Continues: d.Continues,
			Lost:      d.LostOrigin,
			Seal:      d.Seal,
			Approval: approval.Approval{
				ID:        d.Approval,
				Status:    d.Status,
				Version:   d.Version,
				FiledAt:   d.FiledAt,
				ExpiresAt: d.ExpiresAt,
			},
		}}
	case l.Kind == decisionlog.KindDecision && l.Decision:
		for _, one := range l.Discharged {
			if one.Shares != "" {
				continue
			}
			steps = append(steps, approval.Step{
				ID:        l.ID,
				At:        l.Now,
				Decision:  l.ID,
				Continues: one.Continues,
				Approval:  approval.Approval{ID: one.Approval},
			})
		}
	}
	return steps
}

// readLine reads a line. Of one that is neither a step nor a decision it reads the event alone.
func readLine(line []byte) (l recordedLine, err error) {
	var kind struct {
		Kind  string `json:"kind"`
		Event string `json:"event"`
	}
	err = json.Unmarshal(line, &kind)
	l.Event = kind.Event
	if err == nil && (kind.Kind == decisionlog.KindApproval || kind.Kind == decisionlog.KindDecision) {
		err = json.Unmarshal(line, &l)
	}
	return l, err
}

// attest finds a step by the id of its record, or of that of a decision, if the log vouches for that record.
func (b *Broker) attest(ctx context.Context, id string) (step approval.Step, found bool, err error) {
	record, err := b.options.Log.Attest(ctx, id)
	if errors.Is(err, decisionlog.ErrNotFound) || errors.Is(err, decisionlog.ErrGone) {
		return step, false, nil
	}
	if err != nil {
		return step, false, err
	}
	return attested(record.Line)
}

// attested reads the step of a line that a log vouches for.
func attested(text []byte) (step approval.Step, found bool, err error) {
	line, err := readLine(text)
	if steps := line.stepsOf(); err == nil && len(steps) > 0 {
		return steps[0], true, nil
	}
	return step, false, err
}

// prove is a record of a step or a decision, for processes with another log.
func (b *Broker) prove(ctx context.Context, id string) (p approval.Proof, found bool, err error) {
	p.Line, p.Proof, found, err = vouch.Prove(ctx, b.options.Log, id)
	return p, found, err
}

// attestProof reads the step of a record of another log, if its proof is good.
func (b *Broker) attestProof(p approval.Proof) (step approval.Step, err error) {
	if err = vouch.Verify(p.Line, p.Proof, p.Origin, b.options.KeyOf); err != nil {
		return step, err
	}
	step, found, err := attested(p.Line)
	if err == nil && !found {
		err = errors.New("it is of no step and no decision")
	}
	return step, err
}

// steps reads the steps that the log has of some approvals, as [approval.Options] has it.
func (b *Broker) steps(ctx context.Context, from uint64, ids map[string]bool) (map[string][]approval.Step, error) {
	all, gone := map[string][]approval.Step{}, false
	var last uint64 // the last record that is gone: a store that knows of it knows of those before it
	err := b.options.Log.Naming(ctx, from, ids, func(r decisionlog.Record) error {
		if r.Line == nil {
			last, gone = r.Sequence, true
			return nil
		}
		line, err := readLine(r.Line)
		if err != nil {
			return fmt.Errorf("record %d: %w", r.Sequence, err)
		}
		for _, step := range line.stepsOf() {
			all[step.Approval.ID] = append(all[step.Approval.ID], step)
		}
		return nil
	})
	if gone {
		for id := range ids {
			all[id] = append(all[id], approval.Step{
				Name:     approval.StepGone,
				Approval: approval.Approval{ID: id, After: last},
			})
		}
	}
	return all, err
}
