package capability_test

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"policy-service/pdp/internal/capability"
	"policy-service/pdp/internal/ledger"
	"policy-service/pdp/internal/ledger/ledgertest"
)

// TestWithdrawn: what another process with the same name has given back is not answered, and the log says so once: a use, a use
// of a capability that was handed on and of that which it was made from, a grant, and a renewal.
func TestWithdrawn(t *testing.T) {
	t.Parallel()
	for name, reserve := range map[string]func(s *capability.Store, root, child capability.Capability) (*capability.Reservation, error){
		"a use": func(s *capability.Store, root, _ capability.Capability) (*capability.Reservation, error) {
			return s.Reserve(t.Context(), root.ID, "d")
		},
		"a use below": func(s *capability.Store, _, child capability.Capability) (*capability.Reservation, error) {
			return s.Reserve(t.Context(), child.ID, "d")
		},
		"a grant": func(s *capability.Store, _, _ capability.Capability) (*capability.Reservation, error) {
			return s.Grant(t.Context(), asked(s, start, "c"), "d")
		},
		"a renewal": func(s *capability.Store, root, _ capability.Capability) (*capability.Reservation, error) {
			return s.Renew(t.Context(), root.ID, asked(s, start, "a", uses(2), deep(1), func(n *capability.New) { n.Token.ID = root.ID }), "d")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &ledgertest.Cluster{Below: capability.Engine(quick(t)), Lost: capability.ErrUnavailable}
			var proofs ledgertest.Proofs[capability.Step]
			twin := func(r *record) *capability.Store {
				o := r.options()
				o.Engine, o.Origin = c.Process(), "place"
				o.Prove, o.Verify = proofs.Prove(o.Origin, r.Attest), proofs.Verify
				return mustOpen(t, "", o)
			}
			r := newRecord()
			here := twin(r)
			root := r.mustGrant(t, here, asked(here, start, "a", uses(2), deep(1)))
			child := r.mustGrant(t, here, asked(here, start, "b", uses(2), handedOn(root)))
			other := r.copy()
			other.N += 1_000_000 // ids differ
			there := twin(other)
			reserved, err := reserve(here, root, child)
			must(t, err)
			there.Work(t.Context()) // its log does not have the decision
			must(t, r.Decide("d"))
			if err := reserved.Spent(t.Context()); !errors.Is(err, capability.ErrWithdrawn) {
				t.Errorf("it is answered: %v", err)
			}
			for range 2 {
				here.Work(t.Context())
			}
			decisions := map[string]bool{}
			for _, w := range r.Withdrawn {
				decisions[w.Decision] = true
			}
			if len(decisions) != 1 || !decisions["d"] || len(other.Withdrawn) > 0 {
				t.Errorf("on record as withdrawn are %v here, and %v there", r.Withdrawn, other.Withdrawn)
			}
			for _, id := range []string{root.ID, child.ID} {
				if got := r.mustGet(t, here, id); got.Used > 0 || len(got.Reserved) > 0 || got.Renewals > 0 {
					t.Errorf("it is %+v", got)
				}
			}
			if is := reserved.Item().ID; !slices.Contains([]string{root.ID, child.ID}, is) {
				if got := r.mustGet(t, here, is); got.State != capability.Released {
					t.Errorf("what was to be granted is %s", got.State)
				}
			}
			must(t, other.use(t.Context(), there, child.ID, "e"))
		})
	}
}

// TestSettledByALostAnswer: a use whose settling was made, and whose answer was lost, stays answered when the capability has
// forgotten the decision.
func TestSettledByALostAnswer(t *testing.T) {
	t.Parallel()
	r := newRecord()
	engine := &deaf{Engine: capability.Engine(quick(t))}
	o := r.options()
	o.Engine = engine
	s := mustOpen(t, "", o)
	c := r.mustGrant(t, s, asked(s, start, "a", uses(50)))
	use, err := s.Reserve(t.Context(), c.ID, "d")
	must(t, err)
	must(t, r.Decide("d"))
	engine.deaf.Store(true)
	must(t, use.Spent(t.Context()))
	engine.deaf.Store(false)
	for n := range 40 {
		must(t, r.use(t.Context(), s, c.ID, fmt.Sprint("e", n)))
	}
	s.Work(t.Context())
	if got := r.mustGet(t, s, c.ID); got.Used != 41 || len(r.Withdrawn) > 0 {
		t.Errorf("it is %+v, and withdrawn are %v", got, r.Withdrawn)
	}
}

// deaf is an engine that makes transactions, and does not hear that they were made.
type deaf struct {
	ledger.Engine
	deaf atomic.Bool
}

// Write implements [ledger.Engine].
func (e *deaf) Write(t ledger.Transaction) (uint64, error) {
	revision, err := e.Engine.Write(t)
	if e.deaf.Load() {
		return 0, capability.ErrUnavailable
	}
	return revision, err
}
