package approval_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"policy-service/evaluation"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/pdptest/night"
)

// TestModel does random things to a store and to a model of it that is a list, and
// compares them after each: with restarts, with a record that fails, that fails though
// it took what it was given, or that cannot be asked, and with a clock that is set back.
func TestModel(t *testing.T) {
	t.Parallel()
	seeds := uint64(night.Cases(20))
	if os.Getenv(onEtcd) != "" {
		seeds = max(1, seeds/10)
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 0))
			m := &model{T: t, rand: random, stepLog: newRecord(), data: quick(t), present: true, rounds: map[string]string{}, went: map[string]int{}}
			m.open()
			for step := range 600 {
				m.do()
				m.compare(step)
			}
			if m.went["answered"] < 3 || m.went["refused"] < 3 || m.went["in doubt"] < 1 {
				t.Errorf("the model tries too little: %v", m.went)
			}
		})
	}
}

type model struct {
	*testing.T
	*stepLog
	rand    *rand.Rand
	data    string
	s       *approval.Store
	all     []*modelled       // in the order of their ids
	rounds  map[string]string // the decision that each round of a use was answered by
	went    map[string]int    // how often a continuation came to what
	present bool              // ben may still approve
	n       int
	said    string
}

// modelled is an approval as it is to be.
type modelled struct {
	approval.Approval
	outbox []modelStep
	names  []string // of the steps on record
}

type modelStep struct {
	name      string
	tried, is bool // is: on record, whatever was said of it
}

const modelRetain = 5 * time.Hour

func (m *model) open() {
	if m.s != nil {
		must(m, m.s.Close())
	}
	o := m.options()
	o.Retain = modelRetain
	m.s = mustOpen(m, m.data, o)
	for _, a := range m.all {
		for i := range a.outbox {
			a.outbox[i].tried = true
		}
	}
	m.catchUp()
}

func (m *model) catchUp() {
	for _, a := range m.all {
		m.put(a)
	}
	for _, a := range m.all {
		reserved := reservedOf(a)
		if len(reserved) == 0 || !m.put(a) || m.Unknown {
			continue
		}
		m.moves(a)
		for _, d := range reserved {
			m.settle(a, d, m.IDs[d])
		}
		m.put(a)
	}
}

// put puts the steps of an approval on record, and reports whether all are.
func (m *model) put(a *modelled) bool {
	for len(a.outbox) > 0 {
		e := &a.outbox[0]
		if e.tried && m.Unknown {
			return false
		}
		if !e.tried || !e.is {
			e.is = !m.Fails || m.Half
			if e.tried = true; e.is {
				a.names = append(a.names, e.name)
			}
			if m.Fails {
				return false
			}
		}
		a.outbox = a.outbox[1:]
	}
	return true
}

func (a *modelled) step(names ...string) {
	for _, name := range names {
		a.outbox = append(a.outbox, modelStep{name: name})
	}
}

func (m *model) end(a *modelled, status approval.Status, at time.Time) {
	if status != approval.UsedUp && status != approval.Expired {
		m.close(a, always)
	}
	if a.Status == approval.Pending {
		a.DecidedAt = at
	}
	a.Status, a.EndedAt, a.ExpiresAt = status, at, time.Time{}
}

func (m *model) late(a *modelled) bool { return !a.Status.Final() && !m.Now.Before(a.ExpiresAt) }

func (m *model) expire(a *modelled) bool {
	m.moves(a)
	m.end(a, approval.Expired, a.ExpiresAt)
	a.step(approval.StepExpired)
	return m.put(a)
}

func (m *model) settle(a *modelled, d string, used bool) {
	for n := range a.Spendings {
		if s := &a.Spendings[n]; s.Reserved == d {
			if s.Reserved = ""; !used {
				a.step(approval.StepReleased)
				return
			}
			s.Rounds = append(s.Rounds, d)
			a.Continued++
			a.step(approval.StepContinued)
			return
		}
	}
	a.Reserved = slices.DeleteFunc(slices.Clone(a.Reserved), func(r string) bool { return r == d })
	if !used {
		a.Spendings = slices.DeleteFunc(a.Spendings, func(s approval.Spending) bool { return s.Decision == d })
		a.step(approval.StepReleased)
		return
	}
	a.Used = append(a.Used, d)
	a.step(approval.StepUsed)
	if a.Status == approval.Approved && len(a.Used) == a.Terms.Uses {
		m.end(a, approval.UsedUp, m.Now)
		a.step(approval.StepUsedUp)
	}
}

// do does one thing.
func (m *model) do() {
	switch n := m.rand.IntN(50); {
	case n == 0:
		m.said = "restart"
		m.open()
	case n < 4:
		m.said = "work"
		m.s.Work(m.Context())
		m.work()
	case n < 8:
		m.Set(m.rand.IntN(3) == 0, m.rand.IntN(2) == 0, m.rand.IntN(5) == 0)
		m.present = m.rand.IntN(3) > 0
		m.said = fmt.Sprintf("fails %v, half %v, unknown %v, present %v", m.Fails, m.Half, m.Unknown, m.present)
	case n < 13:
		d := []time.Duration{time.Minute, time.Minute, 5 * time.Minute, 10 * time.Minute, time.Hour, -3 * time.Minute}[m.rand.IntN(6)]
		m.said = fmt.Sprint("pass ", d)
		m.Pass(d)
	case n < 19 || len(m.all) == 0:
		m.file()
	case n < 30:
		a := m.all[max(0, len(m.all)-1-m.rand.IntN(5))]
		if used := slices.DeleteFunc(slices.Clone(m.all), func(a *modelled) bool { return len(a.Spendings) == 0 }); len(used) > 0 && m.rand.IntN(4) > 0 {
			a = used[len(used)-1-m.rand.IntN(min(2, len(used)))]
		}
		if m.rand.IntN(4) == 0 {
			m.Set(true, m.rand.IntN(2) == 0, false)
		}
		for range 1 + m.rand.IntN(4) {
			m.goOn(a)
		}
	case n < 33: // often enough that there is something to go on from
		m.Set(false, false, false)
		m.file()
		a := m.all[len(m.all)-1]
		for range 4 {
			m.vote(a)
		}
		m.spend(a)
		m.goOn(a)
	default:
		a := m.all[max(0, len(m.all)-1-m.rand.IntN(5))]
		[]func(*modelled){m.vote, m.vote, m.vote, m.spend, m.spend, m.spendTwo, m.cancel, m.revoke}[m.rand.IntN(8)](a)
	}
}

func (m *model) work() {
	m.catchUp()
	for _, a := range m.all {
		until := goesOnUntil(a)
		switch over := a.Status.Final() && !until.IsZero() && !m.Now.Before(until); {
		case over && m.put(a):
			m.close(a, always)
		case m.late(a) && m.put(a):
			m.expire(a)
		}
	}
	m.all = slices.DeleteFunc(m.all, func(a *modelled) bool {
		idle := len(a.outbox) == 0 && len(reservedOf(a)) == 0 && goesOnUntil(a).IsZero()
		return a.Status.Final() && idle && !a.EndedAt.Add(modelRetain).After(m.Now)
	})
}

func (m *model) want(err error, is error) {
	m.Helper()
	if !errors.Is(err, is) && (is != errState || !errors.As(err, new(*approval.StateError))) {
		m.Fatalf("%s: %v, want %v", m.said, err, is)
	}
}

var errState = errors.New("a state error")

func (m *model) file() {
	name := fmt.Sprint("q", m.rand.IntN(5))
	q := question(name, func(q *approval.ApprovalRequest) {
		q.Terms.Quorum, q.Terms.Uses, q.Terms.Delegable = int(name[1]-'0')%2+1, int(name[1]-'0')%3+1, true
	})
	m.said = "file " + name
	got, err := m.s.File(m.Context(), q)
	for _, a := range m.all {
		if a.Digest != q.Digest || a.Status.Final() {
			continue
		}
		if !m.put(a) || m.late(a) && !m.expire(a) {
			m.want(err, approval.ErrUnrecorded)
			return
		}
		if !a.Status.Final() {
			if m.want(err, nil); got.ID != a.ID {
				m.Fatalf("%s: it is %s, and %s waits", m.said, got.ID, a.ID)
			}
			return
		}
	}
	a := &modelled{Approval: approval.Approval{ApprovalRequest: q, ID: m.newest(), Version: 1, Status: approval.Pending, FiledAt: m.Now, ExpiresAt: m.Now.Add(q.Terms.Timeout)}}
	a.step(approval.StepFiled)
	m.all = append(m.all, a)
	m.done(a, err)
}

// newest is the one that the model does not know.
func (m *model) newest() string {
	page, _, err := m.s.StoredPage("", 1000)
	must(m, err)
	for _, a := range page {
		if !slices.ContainsFunc(m.all, func(known *modelled) bool { return known.ID == a.ID }) {
			return a.ID
		}
	}
	m.Fatalf("%s: nothing was filed", m.said)
	return ""
}

func (m *model) done(a *modelled, err error) {
	m.Helper()
	if m.put(a) {
		m.want(err, nil)
	} else {
		m.want(err, approval.ErrUnrecorded)
	}
}

// in reports whether an approval is in a state, and wants what is said where it is not.
func (m *model) in(a *modelled, status approval.Status, err error) bool {
	m.Helper()
	if !m.put(a) {
		m.want(err, approval.ErrUnrecorded)
		return false
	}
	if a.Status != status || m.late(a) {
		m.want(err, errState)
		return false
	}
	return true
}

func person(name string) string { return strings.TrimRight(name, "2") }

func samePerson(a, b string) bool { return person(a) == person(b) }

func (m *model) vote(a *modelled) {
	people := []string{"mia", "mia2", "ben", "eva", "kai"}
	v := approval.Vote{Statement: approval.Statement{By: people[m.rand.IntN(5)]}, Kind: []approval.VoteKind{approval.Approve, approval.Approve, approval.Approve, approval.Deny, approval.Delegate}[m.rand.IntN(5)]}
	if v.Kind == approval.Delegate {
		v.To = people[m.rand.IntN(5)]
	}
	if v.Kind == approval.Approve && m.rand.IntN(3) == 0 {
		v.ValidUntil = m.Now.Add(4 * time.Minute)
	}
	m.said = fmt.Sprintf("%s: %s by %s to %s", a.ID, v.Kind, v.By, v.To)
	_, err := m.s.Decide(m.Context(), a.ID, 0, v, func(v approval.Vote) bool { return v.By != "ben" || m.present }, samePerson)
	if !m.in(a, approval.Pending, err) {
		return
	}
	passed := func(v approval.Vote) bool { return !v.ValidUntil.IsZero() && !m.Now.Before(v.ValidUntil) }
	voted := func(name string) bool {
		return slices.ContainsFunc(a.Votes, func(v approval.Vote) bool { return samePerson(v.By, name) && !passed(v) })
	}
	switch {
	case voted(v.By):
		m.want(err, approval.ErrVoted)
		return
	case v.Kind == approval.Delegate && (samePerson(v.By, v.To) || voted(v.To)):
		m.want(err, approval.ErrNotDelegable)
		return
	}
	until := m.Now.Add(a.Terms.ValidFor)
	v.At = m.Now
	m.moves(a)
	before := len(a.Votes)
	a.Votes = slices.DeleteFunc(a.Votes, passed)
	for range before - len(a.Votes) {
		a.step(approval.StepLapsed)
	}
	a.Votes = append(a.Votes, v)
	a.step(string(v.Kind))
	var counting []approval.Vote // and those that approve nothing
	approving, lapse := 0, 0
	for i, v := range a.Votes {
		if v.Kind == approval.Approve && i != len(a.Votes)-1 && v.By == "ben" && !m.present {
			lapse++
			continue
		}
		counting = append(counting, v)
		if v.Kind == approval.Approve {
			if approving++; !v.ValidUntil.IsZero() && v.ValidUntil.Before(until) {
				until = v.ValidUntil
			}
		}
	}
	if v.Kind == approval.Deny {
		m.end(a, approval.Denied, m.Now)
		a.step(approval.StepDenied)
	}
	if v.Kind == approval.Approve && approving >= a.Terms.Quorum {
		for a.Votes = counting; lapse > 0; lapse-- {
			a.step(approval.StepLapsed)
		}
		a.Status, a.DecidedAt, a.ExpiresAt = approval.Approved, m.Now, until
		a.step(approval.StepApproved)
	}
	m.done(a, err)
}

func (m *model) spend(a *modelled) {
	m.n++
	d := fmt.Sprint("d", m.n)
	m.said = a.ID + ": spend for " + d
	called := false
	spent, err := spend(m.Context(), m.s, a.ID, a.Digest, d, func(ctx context.Context) error {
		called = true
		return m.vouchFor(d, a.ID, evaluation.Continuation{})(ctx)
	})
	if !m.put(a) {
		m.want(err, approval.ErrUnrecorded)
		return
	}
	if a.Status != approval.Approved || m.late(a) || len(a.Used)+len(a.Reserved) >= a.Terms.Uses {
		if m.want(err, nil); spent || called {
			m.Fatalf("%s: it was spent", m.said)
		}
		return
	}
	m.takes(a, d)
	m.recorded(a, d, err, spent && called)
}

// takes reserves a use.
func (m *model) takes(a *modelled, d string) {
	m.moves(a)
	a.Reserved, a.Spendings = append(a.Reserved, d), append(a.Spendings, approval.Spending{Decision: d, At: m.Now})
}

// recorded is what came of a decision for which something was reserved, and reports whether it was answered.
func (m *model) recorded(a *modelled, d string, err error, answered bool) bool {
	m.Helper()
	if m.Fails {
		if err == nil || answered {
			m.Fatalf("%s: it was answered by what is not on record", m.said)
		}
		return false
	}
	if m.want(err, nil); !answered {
		m.Fatalf("%s: it was not answered", m.said)
	}
	m.moves(a)
	m.settle(a, d, true)
	m.put(a)
	return true
}

// spendTwo takes a use for each of two decisions, which are recorded one after the other.
func (m *model) spendTwo(a *modelled) {
	m.n += 2
	ds := []string{fmt.Sprint("d", m.n-1), fmt.Sprint("d", m.n)}
	m.said = fmt.Sprint(a.ID, ": spend for ", ds)
	use, err := m.s.Reserve(m.Context(), a.ID, a.Digest, ds[0])
	if !m.put(a) {
		m.want(err, approval.ErrUnrecorded)
		return
	}
	m.want(err, nil)
	left := a.Terms.Uses - len(a.Used) - len(a.Reserved)
	if is := a.Status == approval.Approved && !m.late(a) && left > 0; is != (use != nil) {
		m.Fatalf("%s: reserved %v", m.said, use != nil)
	}
	if use == nil {
		return
	}
	m.takes(a, ds[0])
	got, err := m.s.ReserveAgain(use, ds[1])
	if m.want(err, nil); got != (left > 1) {
		m.Fatalf("%s: one more is reserved: %v", m.said, got)
	}
	if got {
		m.takes(a, ds[1])
	} else {
		ds = ds[:1]
	}
	for _, d := range ds {
		if m.vouchFor(d, a.ID, evaluation.Continuation{})(m.Context()) != nil {
			use.InDoubt()
			return
		}
	}
	must(m, use.Spent(m.Context()))
	m.s.Settled(a.ID)
	m.moves(a)
	for _, d := range ds {
		m.settle(a, d, true)
	}
	m.put(a)
}

func (m *model) cancel(a *modelled) {
	m.said = a.ID + ": cancel"
	_, err := m.s.Cancel(m.Context(), a.ID, 0, "alice", "key:gateway", "")
	if m.in(a, approval.Pending, err) {
		m.ends(a, approval.Cancelled, err)
	}
}

func (m *model) revoke(a *modelled) {
	m.said = a.ID + ": revoke"
	_, err := m.s.Revoke(m.Context(), a.ID, 0, by("mia"))
	if m.in(a, approval.Approved, err) {
		m.ends(a, approval.Revoked, err)
	}
}

func (m *model) ends(a *modelled, status approval.Status, err error) {
	m.Helper()
	m.moves(a)
	m.end(a, status, m.Now)
	a.step(string(status))
	m.done(a, err)
}

// compare looks at everything that can be seen.
func (m *model) compare(step int) {
	m.Helper()
	var pending []string
	stored, live := 0, map[[32]byte]string{}
	for i, a := range m.all {
		want := a.Approval
		if m.late(a) {
			if a.Status == approval.Pending {
				want.DecidedAt = want.ExpiresAt
			}
			want.Status, want.EndedAt, want.ExpiresAt = approval.Expired, want.ExpiresAt, time.Time{}
		}
		want.Unrecorded = slices.ContainsFunc(a.outbox, func(e modelStep) bool {
			return e.name != approval.StepUsed && e.name != approval.StepReleased && e.name != approval.StepContinued
		})
		if young := i >= len(m.all)-8; young || step%25 == 0 {
			if got, found, _ := m.s.Stored(a.ID); !found || !equate(got, want) {
				m.Fatalf("%d, %s: found %v %s", step, m.said, found, cmp.Diff(want, got, cmpopts.EquateEmpty()))
			}
		}
		if !slices.Equal(m.stepLog.names(a.ID), a.names) {
			m.Fatalf("%d, %s: on record of %s is %v, want %v", step, m.said, a.ID, m.stepLog.names(a.ID), a.names)
		}
		if want.Status == approval.Pending {
			pending = append(pending, a.ID)
		}
		if a.Status == approval.Pending {
			stored++
		}
		if want.Status == approval.Approved && !want.Unrecorded && len(a.Used)+len(a.Reserved) < a.Terms.Uses {
			live[a.Digest] = a.ID
		}
		if allowed := slices.DeleteFunc(slices.Concat(a.Used, a.Reserved), func(d string) bool { return !m.IDs[d] }); len(allowed) > a.Terms.Uses {
			m.Fatalf("%d, %s: %s has %d uses, and on record are %v", step, m.said, a.ID, a.Terms.Uses, allowed)
		}
	}
	for i := range 5 {
		d := digest(fmt.Sprint("q", i))
		if a, is, _ := m.s.Live(d, ""); is != (live[d] != "") || a.ID != live[d] {
			m.Fatalf("%d, %s: live is %q, want %q", step, m.said, a.ID, live[d])
		}
	}
	page, next, err := m.s.StoredPage(approval.Pending, 1000)
	ids := make([]string, len(page))
	for i, a := range page {
		ids[i] = a.ID
	}
	if err != nil || next != "" || !slices.Equal(ids, pending) || m.s.Pending() != stored {
		m.Fatalf("%d, %s: pending are %v, %d of them; want %v, %d: %v", step, m.said, ids, m.s.Pending(), pending, stored, err)
	}
}

// equate is fast, where cmp.Equal is not.
func equate(a, b approval.Approval) bool {
	for _, one := range []*approval.Approval{&a, &b} {
		one.Votes = slices.Clone(one.Votes)
		one.After, one.Revision, one.Agreed = 0, 0, "" // where its records are is not the model's to know
		for n := range one.Votes {
			one.Votes[n].Step = ""
		}
		one.Votes, one.Used, one.Reserved = slices.Concat(one.Votes), slices.Concat(one.Used), slices.Concat(one.Reserved) // nil where empty
		one.Spendings = slices.Clone(slices.Concat(one.Spendings))
		for n := range one.Spendings {
			one.Spendings[n].Rounds = slices.Concat(one.Spendings[n].Rounds)
		}
	}
	return reflect.DeepEqual(a, b)
}
