package broker

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/obligations"
	"policy-service/pdp"
	"policy-service/pdp/approval"
	"policy-service/pdp/decisionlog"
	"policy-service/pdp/decisionlog/verify"
)

// This file compares an approval, before it counts, with the log and with the request that people were shown. The
// file of approvals alone is no reason to allow anything.

// recordedLine is a record of a step or of a decision, as it is read back.
type recordedLine struct {
	ID          string           `json:"id"`
	Now         time.Time        `json:"now"`
	Kind        string           `json:"kind"`
	Tenant      string           `json:"tenant"`
	Caller      string           `json:"caller"`
	Event       string           `json:"event"`
	Decision    bool             `json:"decision"`
	Discharged  []evaluation.Met `json:"discharged"`
	Obligations jsontext.Value   `json:"obligations"`
	Request     jsontext.Value   `json:"request"`
	Details     recordedStep     `json:"details"`
	line        []byte           // where it is needed
}

// stepsOf reads the steps of a line: a step of an approval, or one without a name for each approval that a decision
// used, or went on from a use of.
func (l *recordedLine) stepsOf() (steps []approval.Step) {
	switch d := l.Details; {
	case l.Kind == decisionlog.KindApproval:
		return []approval.Step{{
			ID:         l.ID,
			At:         l.Now,
			Name:       l.Event,
			By:         d.By,
			Caller:     l.Caller,
			Reason:     d.Reason,
			To:         d.To,
			From:       d.From,
			Via:        wayOf(d.Via),
			Gateway:    d.Gateway,
			Client:     d.Client,
			ValidUntil: d.ValidUntil,
			Decision:   d.UsedBy,
			Continues:  d.Continues,
			Seal:       d.Seal,
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

// wayOf is the way of a step on record, "" for one of before: the protocol stood there then, and no seal has it.
func wayOf(via evaluation.Via) evaluation.Via {
	if via == "mcp" {
		return ""
	}
	return via
}

// isOf reports whether a line is of one of some approvals or decisions. A line of another kind was not read, and is of
// none, even if an approval came with the id "" of a decision.
func (l *recordedLine) isOf(ids map[string]bool) bool {
	ofOne := func(s approval.Step) bool { return ids[s.Approval.ID] }
	return l.Kind != "" && (ids[l.ID] || slices.ContainsFunc(l.stepsOf(), ofOne))
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
	line, err := readLine(record.Line)
	if steps := line.stepsOf(); err == nil && len(steps) > 0 {
		return steps[0], true, nil
	}
	return step, false, err
}

// stepsIn returns a reader of the steps that a log has of some approvals, by [decisionlog.Log.Approvals] or
// [decisionlog.Reader.Approvals].
func stepsIn(
	read func(context.Context, uint64, map[string]bool, func(decisionlog.Record) error) error,
) func(ctx context.Context, from uint64, ids map[string]bool) (map[string][]approval.Step, error) {
	return func(ctx context.Context, from uint64, ids map[string]bool) (map[string][]approval.Step, error) {
		all, gone := map[string][]approval.Step{}, false
		var last uint64 // the last record that is gone: a store that knows of it knows of those before it
		err := read(ctx, from, ids, func(r decisionlog.Record) error {
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
}

// evidence is the steps in the log of the open approvals of a file of format 1. The log is read once, whole, and verified,
// because nothing keeps others from writing such a file.
type evidence struct {
	steps map[string][]approval.Step
	filed map[string]recordedLine
	asked map[string]recordedLine // decisions that wait, by their ids
}

// readEvidence reads the [evidence] for the file of approvals in a data directory. It is nil if the file is not of
// format 1.
func readEvidence(data string) (*evidence, error) {
	open, is, err := approval.Old(data)
	if err != nil || !is {
		return nil, err
	}
	refuse := func(why string) error {
		return fmt.Errorf("%s has format 1, which nothing keeps others from changing, and %s; "+
			"put the right file back, or move it away to begin without any approval",
			filepath.Join(data, approval.FileName), why)
	}
	e := &evidence{
		steps: map[string][]approval.Step{},
		filed: map[string]recordedLine{},
		asked: map[string]recordedLine{},
	}
	wanted := map[string]bool{}
	for _, a := range open {
		wanted[a.ID], wanted[a.Decision] = true, true
	}
	upgraded, unread := false, error(nil)
	type found struct {
		sequence int64
		line     recordedLine
	}
	var named []found // which count once it is known that a checkpoint covers them
	report := verify.Directory(data, verify.Options{Record: func(sequence int64, line []byte) {
		l, err := readLine(line)
		unread = errors.Join(unread, err)
		upgraded = upgraded || l.Event == decisionlog.EventApprovalsUpgraded
		if l.isOf(wanted) {
			named = append(named, found{sequence, l})
		}
	}})
	switch {
	case upgraded:
		return nil, refuse("the log says that it was upgraded before")
	case !report.Verified() || unread != nil:
		return nil, refuse(fmt.Sprintf("the log, which is to vouch for it, does not verify "+
			"(policy-service log verify %s says why)", data))
	}
	for _, one := range named {
		if one.sequence < report.Size {
			e.take(one.line)
		}
	}
	return e, nil
}

func (e *evidence) take(l recordedLine) {
	if l.Kind == decisionlog.KindDecision {
		e.asked[l.ID] = l
	}
	for _, step := range l.stepsOf() {
		if e.steps[step.Approval.ID] = append(e.steps[step.Approval.ID], step); step.Name == approval.StepFiled {
			e.filed[step.Approval.ID] = l
		}
	}
}

// of has the steps of each approval that is in the file as it is in the log.
func (e *evidence) of(_ context.Context, open []approval.Approval) (map[string][]approval.Step, error) {
	if e == nil {
		return nil, approval.ErrOld
	}
	known := map[string][]approval.Step{}
	for _, a := range open {
		if e.confirms(a) {
			known[a.ID] = e.steps[a.ID]
		}
	}
	return known, nil
}

// confirms reports whether the log has the request of an approval: the request as people were shown it, and the terms in
// the decision that waits.
func (e *evidence) confirms(a approval.Approval) bool {
	l, filed := e.filed[a.ID]
	d := l.Details
	if !filed || l.Tenant != a.Tenant || d.Requester != a.Caller || d.Decision != a.Decision ||
		d.Bundle != a.Bundle || d.Obligation != a.Obligation || d.Asked != a.Asked ||
		!d.FiledAt.Equal(a.FiledAt) || !sameJSON(l.Request, a.Shown) {
		return false
	}
	var shown decisionlog.RecordedNames
	if json.Unmarshal(a.Shown, &shown) != nil ||
		shown.Subject != a.Subject || shown.Resource != a.Resource || shown.Action.Name != a.Action {
		return false
	}
	var owed []struct {
		ID         string         `json:"id"`
		Type       string         `json:"type"`
		Properties jsontext.Value `json:"properties"`
	}
	if json.Unmarshal(e.asked[a.Decision].Obligations, &owed) != nil {
		return false
	}
	for _, o := range owed {
		properties, err := evaluation.ParseObject(o.Properties, evaluation.DefaultLimits())
		t, is := obligations.TermsOf(evaluation.Obligation{ID: o.ID, Type: o.Type, Properties: properties})
		t.Message = a.Terms.Message // masked otherwise, and no part of what is approved
		if err == nil && is && o.ID == a.Obligation && sameTerms(t, a.Terms) {
			return true
		}
	}
	return false
}

func sameTerms(a, b obligations.Terms) bool {
	materials := slices.Equal(a.Material, b.Material)
	a.Material, b.Material = nil, nil
	return materials && fmt.Sprint(a) == fmt.Sprint(b)
}

func sameJSON(a, b jsontext.Value) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	return a.Canonicalize() == nil && b.Canonicalize() == nil && string(a) == string(b)
}

// asShown reports whether a request is the one that people were shown. It compares the two if the approval is from a
// file of format 1, whose binding is in no record; for any other approval the file vouches for that.
func (b *Broker) asShown(ctx context.Context, w pdp.ApprovalRequest, id string) (bool, error) {
	known, found, err := b.Store.Get(ctx, id)
	if err != nil || !found || !known.Upgraded {
		return found, err
	}
	q, err := b.approvalRequest(ctx, w, known.Digest)
	if err != nil {
		return false, err
	}
	if q.Tenant != known.Tenant || q.Caller != known.Caller || q.Obligation != known.Obligation ||
		q.Subject != known.Subject || q.Resource != known.Resource || q.Action != known.Action {
		return false, nil
	}
	asked, err1 := bound(q.Shown, known)
	shown, err2 := bound(known.Shown, known)
	return err1 == nil && err2 == nil && sameJSON(asked, shown), errors.Join(err1, err2)
}

// bound has the parts of a shown request that an approval is bound to.
func bound(request jsontext.Value, a approval.Approval) (jsontext.Value, error) {
	var members map[string]jsontext.Value
	if err := json.Unmarshal(request, &members); err != nil {
		return nil, err
	}
	var context map[string]jsontext.Value
	if c, given := members["context"]; given {
		if err := json.Unmarshal(c, &context); err != nil {
			return nil, err
		}
	}
	out := map[string]any{}
	for _, part := range []string{"subject", "action", "resource"} {
		if slices.Contains(a.Terms.Material, part) {
			out[part] = members[part]
		}
	}
	for name, value := range context {
		whole := slices.Contains(a.Terms.Material, "context") && slices.Contains(a.Members, name)
		if whole || slices.Contains(a.Terms.Material, "context."+name) || evaluation.NamesActors(name) {
			out["context."+name] = value
		}
	}
	return marshal(out)
}
