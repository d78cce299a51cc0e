package approval

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// reconcile holds every open approval against the log: the file may be an older copy, or
// parts of it. What the log knows better is taken from there, and on record. It is done
// before anything else is.
func (s *Store) reconcile(ctx context.Context) error {
	var open []Approval
	err := s.view(func(tx values) (err error) {
		open, err = openOnes(tx, s.memory)
		return err
	})
	if err != nil || len(open) == 0 {
		return err
	}
	if err := Whole(open, s.options.Size()); err != nil {
		return err
	}
	steps, err := s.since(ctx, open)
	if err != nil {
		return err
	}
	for _, a := range open {
		to, behind := a.since(steps[a.ID], s.now(), func(step *Step) bool { return s.sealed(step, a.Digest) })
		if behind {
			m := &move{store: s, from: &a, to: to}
			m.step(Step{Name: StepCaughtUp, At: s.now()})
			if _, err := s.commit(ctx, m); err != nil && !errors.Is(err, ErrUnrecorded) { // until it is on record it counts for nothing
				return err
			}
			a = m.to
		}
		if err := s.settleKnown(ctx, a, steps[a.ID]); err != nil && !errors.Is(err, ErrUnrecorded) {
			return err
		}
	}
	return s.advance(advanceBy)
}

// advanceBy is how many records the log may have grown by at a start before the open
// approvals say again that they know of all of them. advanceAt is how many do so in one
// transaction.
const (
	advanceBy = 100_000
	advanceAt = 1000
)

// advance has the next opening hold less against the log: what became of the open
// approvals until now is in the file. At an orderly end all do: a record that goes after
// that, by redaction or retention, is none that they do not know of.
func (s *Store) advance(by uint64) error {
	var open []Approval
	err := s.view(func(tx values) (err error) {
		open, err = openOnes(tx, s.memory)
		return err
	})
	if err != nil {
		return err
	}
	size := s.options.Size()
	open = slices.DeleteFunc(open, func(a Approval) bool { return a.After+by > size || len(a.Reserved) > 0 }) // the record of a use in doubt may stand before
	for some := range slices.Chunk(open, advanceAt) {
		err := s.update(func(c *change) error {
			for n := range some {
				if err := c.save(&some[n], &some[n]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// settleKnown settles the reservations for decisions that the log has. [Options].Recorded
// may be told by an index, from which anybody can take an id; this is what was signed.
func (s *Store) settleKnown(ctx context.Context, a Approval, steps []Step) error {
	var used []string
	for _, d := range a.Reserved {
		if slices.ContainsFunc(steps, func(step Step) bool { return step.Name == "" && step.Decision == d }) {
			used = append(used, d)
		}
	}
	if len(used) == 0 {
		return nil
	}
	return s.settle(ctx, a, func(string) (bool, error) { return true, nil }, used...)
}

// Whole refuses a log that ends before what the file knows of it. Whatever people say from
// here on would stand where they said something else before, and a copy of the file of then
// would pass for a newer one.
func Whole(open []Approval, size uint64) error {
	for _, a := range open {
		if a.After > size {
			return fmt.Errorf("%w: approval %s is of when the log had %d records, and it has %d; put the right log back, or this file away", ErrShort, a.ID, a.After, size)
		}
	}
	return nil
}

// openOnes are the approvals that wait, or can be used.
func openOnes(tx values, m *memory) (open []Approval, err error) {
	for _, id := range m.liveOnes() {
		a, found, err := read(tx, id)
		if err != nil {
			return nil, err
		}
		if found && a.open() {
			open = append(open, a)
		} else {
			m.isNotLive(id)
		}
	}
	return open, nil
}

// since is what the log has of open approvals that came after what the file says.
func (s *Store) since(ctx context.Context, open []Approval) (map[string][]Step, error) {
	from, ids := From(open)
	return s.options.Steps(ctx, from, ids)
}

// From is where in the log what became of some approvals begins, and which they are.
func From(open []Approval) (from uint64, ids map[string]bool) {
	ids, from = make(map[string]bool, len(open)), open[0].After
	for _, a := range open {
		from, ids[a.ID] = min(from, a.After), true
	}
	return from, ids
}

// Behind says what the log knows of an approval that its file does not, "" for nothing.
// Whether steps have a seal is not asked.
func (a Approval) Behind(steps []Step) Status {
	to, behind := a.since(steps, time.Time{}, func(*Step) bool { return true })
	if !behind {
		return ""
	}
	return to.Status
}

// takes are the steps that only ever take something away. They count whoever wrote them.
var takes = []string{StepDeny, StepDenied, StepCancelled, StepRevoked, StepExpired, StepUsed, StepUsedUp, StepLapsed, StepReopened}

// since is an approval after steps of which the file may not know. Of those that give
// something the ones with a good seal count.
func (a Approval) since(steps []Step, now time.Time, good func(*Step) bool) (to Approval, behind bool) {
	to = a.next()
	version := a.Version
	for _, step := range steps {
		if step.Name == StepGone { // it may have said no: who still wants it asks again
			if step.Approval.After >= a.After && !to.Status.Final() {
				to.end(Expired, now)
				behind = true
			}
			continue
		}
		if step.Name == "" || step.Name == StepUsed {
			behind = to.use(step.Decision, step.Name == StepUsed) || behind
		}
		if step.Name == "" || step.Approval.Version <= a.Version || to.Status.Final() {
			continue
		}
		behind, version = true, max(version, step.Approval.Version)
		if slices.Contains(takes, step.Name) || good(&step) {
			to.take(&step)
		}
	}
	if to.Status == Approved && len(to.Used) >= to.Terms.Uses {
		to.end(UsedUp, now)
	}
	to.Version = version + 1
	return to, behind
}

// use notes a decision that went by an approval, and reports whether that is new. One
// that was reserved for it is settled after that, unless it was before.
func (a *Approval) use(decision string, settled bool) bool {
	reserved := slices.Contains(a.Reserved, decision)
	if decision == "" || slices.Contains(a.Used, decision) || reserved && !settled {
		return false
	}
	a.Used = append(a.Used, decision)
	return true
}

// take does to an approval what a step did.
func (a *Approval) take(step *Step) {
	switch step.Name {
	case StepApprove, StepDeny, StepDelegate:
		kind := map[string]VoteKind{StepApprove: Approve, StepDeny: Deny, StepDelegate: Delegate}[step.Name]
		a.Votes = append(a.Votes, Vote{By: step.By, Caller: step.Caller, Kind: kind, Reason: step.Reason, To: step.To, ValidUntil: step.ValidUntil, At: step.At, From: step.From, Step: step.ID})
	case StepLapsed:
		a.Votes = slices.DeleteFunc(a.Votes, func(v Vote) bool { return v.By == step.By })
	case StepReopened:
		a.Status, a.DecidedAt, a.ExpiresAt, a.Agreed = Pending, time.Time{}, a.FiledAt.Add(a.Terms.Timeout), ""
	case StepApproved:
		a.Status, a.DecidedAt, a.ExpiresAt, a.Agreed = Approved, step.At, step.Approval.ExpiresAt, step.ID
	case StepDenied, StepCancelled, StepExpired, StepRevoked, StepUsedUp:
		if a.Status == Pending {
			a.DecidedAt = step.At
		}
		a.end(ended[step.Name], step.At)
	}
}

var ended = map[string]Status{StepDenied: Denied, StepCancelled: Cancelled, StepExpired: Expired, StepRevoked: Revoked, StepUsedUp: UsedUp}
