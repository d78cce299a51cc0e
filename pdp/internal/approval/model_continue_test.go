package approval_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp/internal/approval"
)

// This file has what the model knows of the rounds that go on from a use.

// moves has a change begin: what nothing goes on from any more by now is closed.
func (m *model) moves(a *modelled) {
	a.Version++
	m.close(a, func(s approval.Spending) bool { return s.At.IsZero() || !m.Now.Before(s.At.Add(15*time.Minute)) })
}

func (m *model) close(a *modelled, which func(approval.Spending) bool) {
	var left []approval.Spending
	for _, s := range a.Spendings {
		if which(s) {
			s.At = time.Time{}
		}
		if !s.At.IsZero() || s.Reserved != "" {
			s.Rounds = slices.Clone(s.Rounds)
			left = append(left, s)
		}
	}
	a.Spendings = left
}

func always(approval.Spending) bool { return true }

// goesOnUntil is when nothing goes on from any use any more.
func goesOnUntil(a *modelled) (last time.Time) {
	for _, s := range a.Spendings {
		if end := s.At.Add(15 * time.Minute); !s.At.IsZero() && end.After(last) {
			last = end
		}
	}
	return last
}

// goOn asks for a round of a use: as a rule for the next one.
func (m *model) goOn(a *modelled) {
	m.n++
	d, c := fmt.Sprint("d", m.n), evaluation.Continuation{Decision: "nobody's", Round: 1}
	if len(a.Used) > 0 && m.rand.IntN(10) > 0 {
		c.Decision = a.Used[m.rand.IntN(len(a.Used))]
	} else if reserved := reservedOf(a); len(reserved) > 0 {
		c.Decision = reserved[0]
	}
	use := approval.Spending{}
	if n := slices.IndexFunc(a.Spendings, func(s approval.Spending) bool { return s.Decision == c.Decision }); n >= 0 {
		use = a.Spendings[n]
	}
	c.Round = max(1, len(use.Rounds)+[]int{1, 1, 1, 1, 1, 0, 2}[m.rand.IntN(7)])
	digest := a.Digest
	if m.rand.IntN(10) == 0 {
		digest[0]++
	}
	m.said = fmt.Sprintf("%s: go on from %s, round %d, with %s", a.ID, c.Decision, c.Round, d)
	until, can, _ := m.s.Continuable(a.ID, digest, c)
	called := false
	answered, err := goOn(m.Context(), m.s, a.ID, digest, c, d, func(ctx context.Context) error { called = true; return m.vouchFor(d, a.ID, c)(ctx) })
	if !m.put(a) {
		m.want(err, approval.ErrUnrecorded)
		return
	}
	status := a.Status
	if m.late(a) {
		status = approval.Expired
	}
	may := digest == a.Digest && slices.Contains([]approval.Status{approval.Approved, approval.UsedUp, approval.Expired}, status) &&
		slices.Contains(a.Used, c.Decision) && !use.At.IsZero() && m.Now.Before(use.At.Add(15*time.Minute)) &&
		use.Reserved == "" && c.Round == len(use.Rounds)+1 && c.Round <= 10
	if can && (!may || !until.Equal(use.At.Add(15*time.Minute))) {
		m.Fatalf("%s: it can go on until %v", m.said, until)
	}
	if !may {
		m.went["refused"]++
		if m.want(err, nil); answered || called {
			m.Fatalf("%s: it was answered", m.said)
		}
		return
	}
	m.moves(a)
	for n := range a.Spendings {
		if a.Spendings[n].Decision == c.Decision {
			a.Spendings[n].Reserved = d
		}
	}
	if !m.recorded(a, d, err, answered && called) {
		m.went["in doubt"]++
		return
	}
	m.went["answered"]++
	round := fmt.Sprint(a.ID, c)
	if before := m.rounds[round]; before != "" {
		m.Fatalf("%s: the round was answered before, with %s", m.said, before)
	}
	m.rounds[round] = d
}

// reservedOf are the decisions that are to use an approval, or to go on from a use.
func reservedOf(a *modelled) (all []string) {
	all = slices.Clone(a.Reserved)
	for _, s := range a.Spendings {
		if s.Reserved != "" {
			all = append(all, s.Reserved)
		}
	}
	return all
}
