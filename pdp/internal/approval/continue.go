package approval

import (
	"context"
	"slices"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp/internal/ledger"
)

// A call that used an approval may have to come again: the called tool asks for input. The decision about it goes
// on from the decision that used the approval, as the next round of that. A round is reserved and settled as a use is,
// so that it is answered once. It uses nothing up. The terms say how many rounds a use has, and within which time: from the
// reading of the clock with which the use was reserved to that with which the round is.

// Spending is a use of an approval, as long as a decision may go on from it.
type Spending struct {
	// Decision used the approval, or is to, as long as it is among the approval's Reserved.
	Decision string `json:"decision"`
	// At is when the use was reserved. It is zero if nothing goes on from the use any more.
	At time.Time `json:"at,omitzero"`
	// Rounds are the decisions that went on from it, the first round first. One is "" if the log does not say which it was.
	Rounds []string `json:"rounds,omitzero"`
	// Reserved is the decision that is to be the next round, and may be on record or not.
	Reserved string `json:"reserved,omitzero"`
}

// until is when nothing goes on from a use of the approval any more.
func (a *Approval) until(s *Spending) time.Time {
	if s.At.IsZero() {
		return time.Time{}
	}
	return s.At.Add(a.Terms.RoundsWithin)
}

// spend notes a use from which decisions may go on.
func (a *Approval) spend(decision string, at time.Time) {
	if a.Terms.Rounds > 0 && a.spending(decision) == nil {
		a.Spendings = append(a.Spendings, Spending{Decision: decision, At: at})
	}
}

// spending is the use by a decision, nil if nothing is known of it any more.
func (a *Approval) spending(decision string) *Spending {
	for n := range a.Spendings {
		if a.Spendings[n].Decision == decision {
			return &a.Spendings[n]
		}
	}
	return nil
}

// InDoubt reports whether it is unknown yet if a decision used an approval, or if another one was the next round after
// that: it may be on record or not.
func (a *Approval) InDoubt(use string) bool {
	s := a.spending(use)
	return slices.Contains(a.Reserved, use) || s != nil && s.Reserved != ""
}

// nextRound reports whether a round is the one that comes next in a use, is one of those that were promised, and is in time.
func (a *Approval) nextRound(s *Spending, round int, now time.Time) bool {
	return now.Before(a.until(s)) && s.Reserved == "" && round == len(s.Rounds)+1 && round <= a.Terms.Rounds
}

// continues reports whether a decision can go on now from a use of an approval, for a request with this digest.
func (a *Approval) continues(now time.Time, digest [32]byte, c evaluation.Continuation) bool {
	s := a.spending(c.Decision) // none is open if the approval was taken back, or if people are asked again
	return a.Digest == digest && slices.Contains(a.Used, c.Decision) && s != nil && a.nextRound(s, c.Round, now)
}

// continuesUntil is when nothing goes on from any use any more. It is zero if nothing does.
func (a *Approval) continuesUntil() (last time.Time) {
	for n := range a.Spendings {
		if until := a.until(&a.Spendings[n]); until.After(last) {
			last = until
		}
	}
	return last
}

// close ends those uses from which nothing is to go on, and forgets them unless a round of theirs is in doubt.
func (a *Approval) close(which func(*Spending) bool) {
	var left []Spending
	for _, s := range a.Spendings {
		if which(&s) {
			s.At = time.Time{}
		}
		if !s.At.IsZero() || s.Reserved != "" {
			left = append(left, s)
		}
	}
	a.Spendings = left
}

func every(*Spending) bool { return true }

// over are the uses from which nothing goes on at a time.
func (a *Approval) over(now time.Time) func(*Spending) bool {
	return func(s *Spending) bool { return !now.Before(a.until(s)) }
}

// Continuable reports whether a decision can go on now from a use of the approval with an id, and until when.
func (s *Store) Continuable(
	id string, digest [32]byte, c evaluation.Continuation,
) (until time.Time, is bool, err error) {
	now := s.later()
	err = s.ledger.View(func(tx *ledger.Tx) {
		a, found := readState(tx, id)
		if found && a.continues(now, digest, c) && s.counts(tx, &a) {
			until, is = a.until(a.spending(c.Decision)), true
		}
	})
	if err != nil {
		return time.Time{}, false, err
	}
	return until, is, nil
}

// Continue takes the next round of a use for a decision, durably, as [Store.Reserve] takes a use. Nil and no error: it is
// not the next round, or too late, or the votes do not count any more, or the log does not vouch for the use. That a use
// was settled is no proof of it: a program that can write to the log's index can have a use in doubt settled, which takes it.
func (s *Store) Continue(
	ctx context.Context, id string, digest [32]byte, c evaluation.Continuation, decision string,
) (*Reservation, error) {
	return s.reserve(ctx, id, decision, claim{
		may:   func(a *Approval, _ time.Time) bool { return a.continues(s.later(), digest, c) },
		take:  func(m *move) { m.to.spending(c.Decision).Reserved = decision; m.reservedHere(decision) },
		after: c.Decision,
	})
}

// settleRound notes the outcome of a round that was reserved for a decision, and reports whether there is one.
func (m *move) settleRound(decision string, used bool) (is bool) {
	for n := range m.to.Spendings {
		s := &m.to.Spendings[n]
		if s.Reserved != decision {
			continue
		}
		step := Step{
			Name:      StepReleased,
			Decision:  decision,
			Continues: evaluation.Continuation{Decision: s.Decision, Round: len(s.Rounds) + 1},
		}
		if s.Reserved = ""; used {
			step.Name, s.Rounds = StepContinued, append(s.Rounds, decision)
			m.to.Continued++
		}
		m.step(step)
		return true
	}
	return false
}

// goOn notes a decision that went on from a use, and reports whether that is new. If the round was reserved, it is
// settled later, unless the step says that it is.
func (a *Approval) goOn(step *Step) bool {
	s := a.spending(step.Continues.Decision)
	if s == nil || step.Decision == "" || slices.Contains(s.Rounds, step.Decision) {
		return false
	}
	if s.Reserved == step.Decision {
		if step.Name == "" {
			return false
		}
		s.Reserved = ""
	}
	if missing := step.Continues.Round - 1 - len(s.Rounds); missing > 0 {
		s.Rounds = append(s.Rounds, make([]string, missing)...)
	}
	s.Rounds = append(s.Rounds, step.Decision)
	a.Continued++
	return true
}
