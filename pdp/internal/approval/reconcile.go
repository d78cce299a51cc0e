package approval

import (
	"context"
	"errors"
	"slices"
	"time"

	"policy-service/pdp/internal/ledger"
)

// CatchUp implements [ledger.Rules]. It takes from the log later steps of an
// open approval, and puts that on record.
//
// It settles the reservations of decisions that the log has. [Options].Recorded may go by an
// index, from which an id can be taken away; the steps are signed by the log.
func (r rules) CatchUp(ctx context.Context, a Approval, steps []Step) error {
	now := r.now()
	if a.Origin != r.options.Origin { // so the length of this log then is not known
		a.After = 0
	}
	to, behind := a.since(steps, a.Written.Last(r.options.Origin, a.Version), now, func(step *Step) bool { return r.proof.sealed(step, a.Digest) })
	m := &move{store: r.Store, now: now, from: a, to: to}
	if !behind {
		m.to = a.next()
		m.to.Version = a.Version
	}
	named, err := m.nameOrigins(ctx)
	switch {
	case err == nil && behind:
		m.step(Step{Name: StepCaughtUp})
		if _, err = r.commit(ctx, m); errors.Is(err, ErrUnrecorded) { // until it is on record it counts for nothing
			err = nil
		}
	case err == nil && named:
		_, err = r.make(ctx, m)
	}
	if err == nil && named {
		err = r.ledger.Prove(ctx, m.to)
	}
	if err != nil {
		return err
	}
	if behind || named {
		a = m.to
	}
	var outcomes []ledger.Outcome
	for _, d := range a.reserved() {
		if slices.ContainsFunc(steps, func(step Step) bool { return step.Name == "" && step.Decision == d }) {
			outcomes = append(outcomes, ledger.Outcome{Decision: d, Used: true})
		}
	}
	return r.ledger.SettleAll(ctx, a, outcomes)
}

// nameOrigins notes the origin of the records that an approval counts by and are in the log here, where it is not known: the
// approval was written before there were others, or taken from the log.
func (m *move) nameOrigins(ctx context.Context) (named bool, err error) {
	if m.store.options.Origin == "" {
		return false, nil
	}
	for _, record := range m.to.countsBy() {
		if m.to.Origins[record] != "" {
			continue
		}
		_, found, err := m.store.options.Attest(ctx, record)
		if err != nil {
			return false, err
		}
		if found {
			m.here(record)
			named = true
		}
	}
	return named, nil
}

// takes are the steps that only ever take something away. They count without a good seal, too.
var takes = []string{
	StepDeny, StepDenied, StepCancelled, StepRevoked, StepExpired,
	StepUsed, StepUsedUp, StepContinued, StepLapsed, StepReopened,
}

// since is an approval after steps of which the file may not know: it knows those up to a version. A step that gives
// something counts only if its seal is good, and if it is later than all that is known: what another log has may have
// taken that away since.
func (a Approval) since(steps []Step, known int, now time.Time, good func(*Step) bool) (to Approval, behind bool) {
	to = a.next()
	version := a.Version
	for _, step := range steps {
		if step.Name == StepGone { // it may have been a no: a program that still wants it asks again
			if step.Approval.After >= a.After && to.Standing().Open {
				to.giveUp(now)
				behind = true
			}
			continue
		}
		switch {
		case step.Name == StepContinued, step.Name == "" && step.Continues.Round > 0:
			behind = to.goOn(&step) || behind
		case step.Name == StepUsed, step.Name == "":
			behind = to.use(&step) || behind
		}
		if step.Name == "" || step.Approval.Version <= known || to.Status.Final() {
			continue
		}
		behind, version = true, max(version, step.Approval.Version)
		if slices.Contains(takes, step.Name) || step.Approval.Version > a.Version && good(&step) {
			to.take(&step)
		}
	}
	if to.Status == Approved && len(to.Used) >= to.Terms.Uses {
		to.end(UsedUp, now)
	}
	to.Version = version + 1
	return to, behind
}

// giveUp ends an approval whose later steps are lost, and closes its uses.
func (a *Approval) giveUp(now time.Time) {
	if a.open() {
		a.end(Expired, now)
	}
	a.close(every)
}

// use notes a decision that used an approval, and reports whether that is new. If the use was
// reserved, it is settled later, unless the step says that it is.
func (a *Approval) use(step *Step) bool {
	decision := step.Decision
	reserved := slices.Contains(a.Reserved, decision)
	if decision == "" || slices.Contains(a.Used, decision) || reserved && step.Name == "" {
		return false
	}
	a.Used = append(a.Used, decision)
	a.Reserved = slices.DeleteFunc(a.Reserved, func(d string) bool { return d == decision })
	a.spend(decision, step.At)
	return true
}

// take applies a step to an approval.
func (a *Approval) take(step *Step) {
	switch step.Name {
	case StepApprove, StepDeny, StepDelegate:
		a.Votes = append(a.Votes, Vote{
			Statement: step.Statement,
			Caller:    step.Caller,
			Kind:      VoteKind(step.Name),
			At:        step.At,
			Step:      step.ID,
		})
	case StepLapsed:
		a.Votes = slices.DeleteFunc(a.Votes, func(v Vote) bool { return v.By == step.By })
	case StepReopened:
		a.reopen()
	case StepApproved:
		a.Status, a.DecidedAt, a.ExpiresAt, a.Agreed = Approved, step.At, step.Approval.ExpiresAt, step.ID
	case StepDenied, StepCancelled, StepExpired, StepRevoked, StepUsedUp:
		a.end(Status(step.Name), step.At)
	}
}
