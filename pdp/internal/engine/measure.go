package engine

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/cedar-policy/cedar-go"

	"policy-service/pdp/internal/bundle"
)

// PolicyCost is what one policy takes of the time in which requests are decided.
type PolicyCost struct {
	bundle.PolicyInfo
	// Requests is to how many of the requests the policy was put; the index spares
	// it the others.
	Requests int
	// Total is what evaluating it takes over all of them.
	Total time.Duration
}

// Costs says what each policy takes that any of the inquiries is put to.
func Costs(ctx context.Context, asked []Inquiry) ([]PolicyCost, error) {
	var m costing
	for m.first = true; m.first || ctx.Err() == nil; m.first = false {
		if err := m.round(ctx, asked); err != nil {
			return nil, err
		}
	}
	return m.sum(), nil
}

// costing measures, round after round.
type costing struct {
	first  bool
	visits []visit // every policy under every inquiry, in the order of a round
}

type visit struct {
	policy *bundle.Policy
	least  time.Duration
}

// round visits all once; after the first one it may end early.
func (m *costing) round(ctx context.Context, asked []Inquiry) error {
	next := 0
	for i := range asked {
		if !m.first && ctx.Err() != nil {
			return nil
		}
		in := asked[i] // a copy, which keeps nothing for the next round
		v, err := in.view()
		if err != nil {
			return err
		}
		q, err := in.Question(v)
		if err != nil {
			return err
		}
		if q.Reason != "" {
			continue // no policy is asked
		}
		given, _ := PoliciesFor(v, q, new(bundle.Scratch))
		for _, p := range given {
			m.visit(next, p, timed(p, q))
			next++
		}
	}
	return nil
}

func (m *costing) visit(n int, p *bundle.Policy, took time.Duration) {
	if m.first {
		m.visits = append(m.visits, visit{p, took})
	}
	m.visits[n].least = min(m.visits[n].least, took)
}

func (m *costing) sum() []PolicyCost {
	sums := map[*bundle.Policy]*PolicyCost{}
	for _, v := range m.visits {
		p := v.policy
		if sums[p] == nil {
			sums[p] = &PolicyCost{PolicyInfo: p.Info()}
		}
		sums[p].Requests++
		sums[p].Total += v.least
	}
	all := make([]PolicyCost, 0, len(sums))
	for _, c := range sums {
		all = append(all, *c)
	}
	slices.SortFunc(all, func(a, b PolicyCost) int {
		return cmp.Or(cmp.Compare(b.Total, a.Total), strings.Compare(a.Tenant, b.Tenant), strings.Compare(a.ID, b.ID))
	})
	return all
}

// timed is what one evaluation takes. A single one is too short for the clock, so
// a few follow each other in one call of cedar-go.
func timed(p *bundle.Policy, q *Question) time.Duration {
	start := time.Now()
	cedar.Authorize(repeated{p}, q.Entities, q.request())
	return time.Since(start) / repetitions
}

const repetitions = 16

// repeated yields one policy several times.
type repeated struct{ *bundle.Policy }

// All implements cedar.PolicyIterator.
func (r repeated) All() iter.Seq2[cedar.PolicyID, *cedar.Policy] {
	return func(yield func(cedar.PolicyID, *cedar.Policy) bool) {
		for range repetitions {
			if !yield(r.CedarID, r.Cedar) {
				return
			}
		}
	}
}
