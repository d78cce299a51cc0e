package capability_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"policy-service/evaluation"
	token "policy-service/evaluation/capability"
	"policy-service/pdp/internal/capability"
	"policy-service/pdp/internal/ledger/ledgertest"
	"policy-service/pdp/pdptest/etcdtest"
	"policy-service/pdp/pdptest/night"
)

// TestModel does random things to a store and to a model of it that is a list, and compares them after each: with restarts,
// with a record that fails, that fails though it took what it was given, or that cannot be asked, with a clock that is set
// back, and with changes that are made again because another came in between.
func TestModel(t *testing.T) {
	t.Parallel()
	seeds := uint64(night.Cases(30))
	if os.Getenv(onEtcd) != "" {
		seeds = max(1, seeds/10)
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			m := &model{T: t, record: newRecord(), rand: rand.New(rand.NewPCG(seed, 0)), data: quick(t), asks: map[string]string{}, went: map[string]int{}}
			m.open()
			for step := range 500 {
				m.do()
				m.compare(step)
			}
			for _, what := range []string{"granted", "released", "renewed", "not renewed", "used", "used up", "full", "granted before", "refused", "handed on", "used by a child", "refused for an ancestor"} {
				if m.went[what]++; m.went[what] == 1 && seed == 0 {
					t.Errorf("the model tries too little: never %s: %v", what, m.went)
				}
			}
		})
	}
}

const (
	modelRetain = 2 * time.Hour
	modelLimit  = 4
)

type model struct {
	*testing.T
	*record
	rand *rand.Rand
	data string
	s    *capability.Store
	all  []*modelled
	asks map[string]string // of an approval, the id that it granted
	went map[string]int
	d    int
	said string
}

// modelled is a capability as it is to be.
type modelled struct {
	capability.Capability
	above  []*modelled // the parent first
	token  token.Token
	next   *capability.New
	outbox []modelStep
	names  []string        // of the steps on record
	by     map[string]bool // decisions that use what was made from it
}

type modelStep struct {
	name      string
	tried, is bool // is: on record, whatever was said of it
}

func (m *model) open() {
	if m.s != nil {
		must(m, m.s.Close())
	}
	o := m.options()
	o.Retain, o.Limits.MaxLivePerHolder = modelRetain, modelLimit
	one := ledgertest.Cluster{Below: capability.Engine(m.data), Conflicts: 3, Alone: true, Seed: m.rand.Uint64()}
	if os.Getenv(onEtcd) != "" {
		one.Below = etcdtest.Engine(m, m.data, capability.Known)
	}
	o.Engine = one.Process()
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
		reserved := slices.Clone(a.Reserved)
		if len(reserved) == 0 || !m.put(a) || m.Unknown {
			continue
		}
		a.Version++
		for _, r := range reserved {
			m.settle(a, r.Decision, m.IDs[r.Decision])
		}
		m.put(a)
	}
}

// put puts the steps of a capability on record, and reports whether all are.
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

func (a *modelled) step(name string) { a.outbox = append(a.outbox, modelStep{name: name}) }

func (a *modelled) end(as capability.State, at time.Time) { a.State, a.EndedAt = as, at }

func (m *model) late(a *modelled) bool { return !a.State.Final() && !m.Now.Before(a.Expires) }

// forget removes what an approval granted, if that is it.
func (m *model) forget(a *modelled, approval string) {
	if m.asks[approval] == a.ID {
		delete(m.asks, approval)
	}
}

func (m *model) settle(a *modelled, d string, used bool) {
	grants, next := a.Granting == d, a.next
	a.Reserved = slices.DeleteFunc(slices.Clone(a.Reserved), func(r capability.Reserved) bool { return r.Decision == d })
	if !used {
		if grants && a.State == capability.Asked {
			a.end(capability.Released, m.Now)
			m.forget(a, a.Approval)
			m.went["released"]++
		} else if grants && next != nil {
			m.went["not renewed"]++
			if next.Approval != a.Approval {
				m.forget(a, next.Approval)
			}
		}
		a.step(capability.StepReleased)
	}
	if used && grants {
		a.Decision = d
		switch {
		case next == nil:
			if a.State == capability.Asked {
				a.State = capability.Active
				m.went["granted"]++
			}
			a.step(capability.StepGranted)
		case a.State.Final():
			if next.Approval != a.Approval {
				m.forget(a, next.Approval)
			}
			a.step(capability.StepRenewed)
		default:
			a.token, a.MaxDepth = next.Token, next.Token.MaxDepth
			if next.Approval != a.Approval {
				m.forget(a, a.Approval)
			}
			a.Approval, a.Bundle, a.Begins, a.Expires, a.MaxUses = next.Approval, next.Bundle, next.Token.NotBefore, next.Token.Expires, next.Token.MaxUses
			a.Renewals++
			m.went["renewed"]++
			a.step(capability.StepRenewed)
		}
	}
	if grants {
		a.Granting, a.next = "", nil
		return
	}
	if used {
		a.Used++
		a.Recent = append(slices.Clone(a.Recent), d)
		a.Recent = a.Recent[max(0, len(a.Recent)-32):]
		a.step(capability.StepUsed)
		m.went["used"]++
		if a.by[d] {
			m.went["used by a child"]++
		}
		if a.MaxUses > 0 && a.Used >= a.MaxUses && !a.State.Final() {
			a.end(capability.UsedUp, m.Now)
			a.step(capability.StepUsedUp)
			m.went["used up"]++
		}
	}
}

// do does one thing.
func (m *model) do() {
	var a *modelled
	if len(m.all) > 0 {
		a = m.all[max(0, len(m.all)-1-m.rand.IntN(6))]
	}
	switch n := m.rand.IntN(60); {
	case n == 0:
		m.said = "restart"
		m.open()
	case n < 4:
		m.said = "work"
		m.s.Work(m.Context())
		m.work()
	case n < 8:
		m.Set(m.rand.IntN(3) == 0, m.rand.IntN(2) == 0, m.rand.IntN(5) == 0)
		m.said = fmt.Sprintf("fails %v, half %v, unknown %v", m.Fails, m.Half, m.Unknown)
	case n < 12:
		d := []time.Duration{time.Minute, 10 * time.Minute, time.Hour, -3 * time.Minute}[m.rand.IntN(4)]
		m.said = fmt.Sprint("pass ", d)
		m.Pass(d)
	case n < 22 || a == nil:
		m.grant()
	case n < 40:
		m.spend(a)
	case n < 46:
		if m.rand.IntN(3) == 0 { // as it is asked
			m.Set(true, m.rand.IntN(2) == 0, false)
		}
		m.renew(a)
	case n < 48:
		m.change(a, capability.Revoked, capability.StepRevoked)
	case n < 50:
		m.change(a, capability.Returned, capability.StepReturned)
	case n < 55:
		m.change(a, capability.Suspended, capability.StepSuspended)
	default:
		m.change(a, capability.Active, capability.StepResumed)
	}
}

func (m *model) work() {
	m.catchUp()
	for _, a := range m.all {
		if m.late(a) && m.put(a) {
			a.Version++
			a.end(capability.Expired, a.Expires)
			a.step(capability.StepExpired)
			m.put(a)
		}
	}
	m.all = slices.DeleteFunc(m.all, func(a *modelled) bool {
		over := a.State.Final() && len(a.outbox) == 0 && len(a.Reserved) == 0 && !a.EndedAt.Add(modelRetain).After(m.Now)
		if over {
			m.forget(a, a.Approval)
		}
		return over
	})
}

func (m *model) want(err, is error) {
	m.Helper()
	if !errors.Is(err, is) {
		m.Fatalf("%s: %v, want %v", m.said, err, is)
	}
}

// asked is a random capability.
func (m *model) asked() capability.New {
	return asked(m.s, m.Now, fmt.Sprint("agent-", m.rand.IntN(2)), uses(m.rand.IntN(4)), func(n *capability.New) {
		n.Ask = "ask"
		n.Approval = []string{"", "", "p", "q", "r"}[m.rand.IntN(5)]
		n.Bundle = fmt.Sprint("h1:", m.rand.IntN(100))
		n.Token.Expires = m.Now.Truncate(time.Second).Add(time.Duration(1+m.rand.IntN(90)) * time.Minute)
		n.Token.MaxDepth = m.rand.IntN(3)
	})
}

// handOn makes of what is asked for a narrower one of another capability. It reports false if that cannot be.
func (m *model) handOn(n *capability.New, of *modelled) bool {
	t, p := &n.Token, of.token
	if len(of.above) >= of.MaxDepth {
		return false
	}
	t.Parent, t.Depth, t.MaxDepth, t.Grantor = of.ID, len(of.above)+1, of.MaxDepth, &p.Holder
	t.Layers = append(slices.Clone(p.Layers), t.Layers...)
	if t.NotBefore.Before(p.NotBefore) {
		t.NotBefore = p.NotBefore
	}
	if t.Expires.After(p.Expires) {
		t.Expires = p.Expires
	}
	if p.MaxUses > 0 {
		t.MaxUses = 1 + m.rand.IntN(p.MaxUses)
	}
	return t.NotBefore.Before(t.Expires) && m.Now.Before(t.Expires)
}

// stopped reports whether what was made from some capabilities is refused because of one of them, and wants to be told so.
func (m *model) stopped(depth int, above []*modelled, offered error, locks bool) bool {
	m.Helper()
	for _, a := range above {
		if slices.ContainsFunc(a.outbox, waits) && !m.put(a) {
			m.want(offered, capability.ErrUnrecorded)
			return true
		}
		want := m.code(a)
		for _, e := range a.outbox {
			if want == "" && (e.name == capability.StepGranted || e.name == capability.StepRenewed) {
				want = map[bool]token.Code{false: token.Revoked}[e.is]
			}
		}
		if want == token.BadSignature || want == "" && depth > a.MaxDepth {
			want = token.Revoked
		}
		if want == "" && locks && a.MaxUses > 0 && !m.put(a) {
			m.want(offered, capability.ErrUnrecorded)
			return true
		}
		if want != "" {
			m.went["refused for an ancestor"]++
			wantCode(m, m.said, offered, want)
			return true
		}
	}
	return false
}

// refusedParent reports whether a capability cannot be handed on, and wants to be told so.
func (m *model) refusedParent(a *modelled, err error) bool {
	m.Helper()
	if want := m.code(a); want == token.BadSignature && (!slices.ContainsFunc(a.outbox, waits) || m.put(a)) {
		wantCode(m, m.said, err, want)
		return true
	}
	return m.stopped(0, []*modelled{a}, err, false)
}

// waits reports whether a capability counts for nothing until a step is on record.
func waits(e modelStep) bool {
	return !slices.Contains([]string{capability.StepGranted, capability.StepUsed, capability.StepUsedUp, capability.StepRenewed, capability.StepReleased}, e.name)
}

// taken reports whether an approval has granted another that is open, and else notes what it grants.
func (m *model) taken(approval, id string) bool {
	other := m.asks[approval]
	if approval != "" && slices.ContainsFunc(m.all, func(a *modelled) bool { return a.ID == other && other != id && !a.State.Final() }) {
		m.went["granted before"]++
		return true
	}
	return false
}

func (m *model) note(approval, id string) {
	if approval != "" {
		m.asks[approval] = id
	}
}

func (m *model) grant() {
	n := m.asked()
	m.d++
	d := fmt.Sprint("d", m.d)
	m.said = "grant " + n.Token.ID
	var above []*modelled
	child := n
	if len(m.all) > 0 && m.rand.IntN(2) == 0 {
		if of := m.all[max(0, len(m.all)-1-m.rand.IntN(6))]; m.handOn(&child, of) {
			n = child
			above = append([]*modelled{of}, of.above...)
			m.said += " of " + of.ID
		}
	}
	r, err := m.s.Grant(m.Context(), n, d)
	if len(above) > 0 && (m.refusedParent(above[0], err) || m.stopped(n.Token.Depth-1, above[1:], err, false) || m.stopped(n.Token.Depth, above, err, true)) {
		return
	}
	pays := func(a *modelled) evaluation.Ref {
		if len(a.above) > 0 {
			return a.Grantor
		}
		return a.Holder
	}
	payer := n.Token.Holder
	if len(above) > 0 {
		payer = above[0].Holder
	}
	live := 0
	for _, a := range m.all {
		if pays(a) == payer && !a.State.Final() {
			live++
		}
	}
	if m.taken(n.Approval, n.Token.ID) {
		m.want(err, capability.ErrGranted)
		return
	}
	if limit := (*capability.LimitError)(nil); live >= modelLimit {
		if m.went["full"]++; !errors.As(err, &limit) {
			m.Fatalf("%s: %v, and the holder has %d", m.said, err, live)
		}
		return
	}
	m.want(err, nil)
	m.note(n.Approval, n.Token.ID)
	made := &modelled{above: above, token: n.Token, by: map[string]bool{}, Capability: capability.Capability{
		ID: n.Token.ID, Tenant: n.Tenant, Holder: n.Token.Holder, Bundle: n.Bundle, MaxUses: n.Token.MaxUses, Begins: n.Token.NotBefore, Expires: n.Token.Expires, State: capability.Asked,
		Granting: d, Reserved: []capability.Reserved{{Decision: d}}, Version: 1, Words: capability.Words{Approval: n.Approval},
		MaxDepth: n.Token.MaxDepth,
	}}
	for _, a := range above {
		made.Ancestors, made.Grantor = append(made.Ancestors, a.ID), above[0].Holder
		m.went["handed on"]++
	}
	m.all = append(m.all, made)
	m.recorded(made, nil, r, d)
}

// recorded has a decision recorded for which something was reserved, and what was reserved settled, of ancestors, too.
func (m *model) recorded(a *modelled, above []*modelled, r *capability.Reservation, d string) {
	if m.Decide(d) != nil {
		r.InDoubt()
		return
	}
	must(m, r.Spent(m.Context()))
	for _, one := range append([]*modelled{a}, above...) {
		m.s.Settled(one.ID)
	}
	for _, one := range append([]*modelled{a}, above...) {
		one.Version++
		m.settle(one, d, true)
		m.put(one)
	}
}

// code is why a capability cannot be used.
func (m *model) code(a *modelled) token.Code {
	taken := a.Used + len(a.Reserved)
	if a.Granting != "" {
		taken--
	}
	switch {
	case m.late(a):
		return token.Expired
	case a.State == capability.Active && a.MaxUses > 0 && taken >= a.MaxUses:
		return token.UsedUp
	}
	return map[capability.State]token.Code{
		capability.Active: "", capability.Asked: token.BadSignature, capability.Released: token.BadSignature, capability.Suspended: token.Suspended,
		capability.UsedUp: token.UsedUp, capability.Expired: token.Expired, capability.Revoked: token.Revoked, capability.Returned: token.Revoked,
	}[a.State]
}

// refused reports whether a capability cannot be used, and wants to be told so.
func (m *model) refused(a *modelled, err error) bool {
	m.Helper()
	if !m.put(a) {
		m.want(err, capability.ErrUnrecorded)
		return true
	}
	want := m.code(a)
	if want != "" {
		m.went["refused"]++
		wantCode(m, m.said, err, want)
	}
	return want != ""
}

// spend uses a capability once, and its ancestors.
func (m *model) spend(a *modelled) {
	m.d++
	d := fmt.Sprint("d", m.d)
	m.said = fmt.Sprint(a.ID, ": use for ", d)
	r, err := m.s.Reserve(m.Context(), a.ID, d)
	if m.refused(a, err) || m.stopped(len(a.above), a.above, err, true) {
		return
	}
	m.want(err, nil)
	take := func(of *modelled, by string) {
		of.Version++
		of.Reserved = append(slices.Clone(of.Reserved), capability.Reserved{Decision: d, By: by})
	}
	take(a, "")
	var counted []*modelled
	for _, of := range a.above {
		if of.MaxUses > 0 {
			take(of, a.ID)
			of.by[d] = true
			counted = append(counted, of)
		}
	}
	slices.Reverse(counted) // as they are settled
	m.recorded(a, counted, r, d)
}

func (m *model) renew(a *modelled) {
	if len(a.above) > 0 { // it is handed on anew
		return
	}
	n := m.asked()
	m.d++
	d := fmt.Sprint("d", m.d)
	n.Token.ID, n.Token.Holder, n.Token.Key = a.ID, a.Holder, holderKey(a.Holder.ID)
	m.said = fmt.Sprint("renew ", a.ID)
	r, err := m.s.Renew(m.Context(), a.ID, n, d)
	if m.refused(a, err) {
		return
	}
	taken := a.Used + len(a.Reserved)
	if a.Granting != "" {
		taken--
	}
	switch {
	case a.MaxUses > 0 && (n.Token.MaxUses <= taken || n.Token.MaxUses > a.MaxUses), a.Renewals == capability.MostRenewals:
		m.want(err, capability.ErrInvalid)
		return
	case a.Granting != "":
		m.want(err, capability.ErrUnavailable)
		return
	case n.Approval != a.Approval && m.taken(n.Approval, a.ID):
		m.want(err, capability.ErrGranted)
		return
	}
	m.want(err, nil)
	if n.Approval != a.Approval {
		m.note(n.Approval, a.ID)
	}
	a.Version++
	a.Granting, a.next, a.Reserved = d, &n, append(slices.Clone(a.Reserved), capability.Reserved{Decision: d})
	m.recorded(a, nil, r, d)
}

// change revokes, returns, suspends or resumes a capability.
func (m *model) change(a *modelled, to capability.State, step string) {
	m.said = fmt.Sprint(a.ID, ": ", step)
	var err error
	from := []capability.State{capability.Asked, capability.Active, capability.Suspended}
	switch to {
	case capability.Revoked:
		_, err = m.s.Revoke(m.Context(), a.ID, "mia", "")
	case capability.Returned:
		_, err = m.s.Return(m.Context(), a.ID, "agent", "")
	case capability.Suspended:
		from = from[1:2]
		_, err = m.s.Suspend(m.Context(), a.ID, "h1:s")
	case capability.Active:
		from = from[2:]
		_, err = m.s.Resume(m.Context(), a.ID, "h1:s")
	}
	if state := (*capability.StateError)(nil); m.put(a) && (m.late(a) || !slices.Contains(from, a.State)) {
		if !errors.As(err, &state) {
			m.Fatalf("%s: %v, and it is %s", m.said, err, a.State)
		}
		return
	}
	if len(a.outbox) == 0 {
		a.Version++
		if a.State = to; to.Final() {
			a.end(to, m.Now)
		} else {
			a.Bundle = "h1:s"
		}
		a.step(step)
		m.put(a)
	}
	if len(a.outbox) > 0 {
		m.want(err, capability.ErrUnrecorded)
	} else {
		m.want(err, nil)
	}
}

// compare looks at everything that can be seen.
func (m *model) compare(step int) {
	m.Helper()
	live := 0
	for i, a := range m.all {
		if !a.State.Final() {
			live++
		}
		want := a.Capability
		if m.late(a) {
			want.State, want.EndedAt = capability.Expired, want.Expires
		}
		want.Unrecorded = slices.ContainsFunc(a.outbox, waits)
		if young := i >= len(m.all)-8; young || step%25 == 0 {
			got, found, err := m.s.Stored(a.ID)
			got.Caller, got.JKT, got.Audience, got.Digest, got.Claims, got.Grant, got.Ask, got.Granted = "", "", "", "", nil, nil, "", ""
			if diff := cmp.Diff(want, got, placed); !found || err != nil || diff != "" {
				m.Fatalf("%d, %s: found %s %v, %v %s; %v", step, m.said, a.ID, found, err, diff, a.outbox)
			}
		}
		if got := m.record.names(a.ID); !slices.Equal(got, a.names) {
			m.Fatalf("%d, %s: on record of %s is %v, want %v", step, m.said, a.ID, got, a.names)
		}
	}
	if mustLive(m.T, m.s) != live {
		m.Fatalf("%d, %s: %d are live, want %d", step, m.said, mustLive(m.T, m.s), live)
	}
	for approval, id := range m.asks {
		if slices.ContainsFunc(m.all, func(a *modelled) bool { return a.ID == id && len(a.outbox) > 0 }) {
			continue // to find it would put that on record
		}
		if got, found, err := m.s.Granted(m.Context(), "acme", approval, "ask"); !found || got.ID != id || err != nil {
			m.Fatalf("%d, %s: %s has granted %s, %v; want %s", step, m.said, approval, got.ID, err, id)
		}
	}
}
