package broker

import (
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/vouch"
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
func stepsOf(line []byte) (steps []approval.Step, err error) {
	l, err := readLine(line)
	if err != nil {
		return nil, err
	}
	switch d := l.Details; {
	case l.Kind == format.KindApproval:
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
		}}, nil
	case l.Kind == format.KindDecision && l.Decision:
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
	return steps, nil
}

// readLine reads a line. Of one that is neither a step nor a decision it reads the event alone.
func readLine(line []byte) (l recordedLine, err error) {
	var kind struct {
		Kind  string `json:"kind"`
		Event string `json:"event"`
	}
	err = json.Unmarshal(line, &kind)
	l.Event = kind.Event
	if err == nil && (kind.Kind == format.KindApproval || kind.Kind == format.KindDecision) {
		err = json.Unmarshal(line, &l)
	}
	return l, err
}

// steps are those that the log has, as [approval.Options] has them.
func (b *Broker) steps() vouch.Steps[approval.Step] {
	return vouch.Steps[approval.Step]{
		Log:   b.options.Log,
		KeyOf: b.options.KeyOf,
		Of:    stepsOf,
		Item:  func(s approval.Step) string { return s.Approval.ID },
		Gone: func(id string, last uint64) approval.Step {
			return approval.Step{Name: approval.StepGone, Approval: approval.Approval{ID: id, After: last}}
		},
		None: "it is of no step and no decision",
	}
}
