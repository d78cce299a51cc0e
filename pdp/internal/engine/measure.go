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

// PolicyCost is the share that one policy has in the time that decisions take.
type PolicyCost struct {
	bundle.PolicyInfo
	// Requests is the number of requests for which the policy was evaluated. The index rules
	// the policy out for the other requests.
	Requests int
	// Total is the time that its evaluation takes for all these requests together.
	Total time.Duration
}

// Costs measures every policy that is evaluated for any of the inquiries.
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

// round visits every policy of every inquiry once. A round after the first may end early.
func (m *costing) round(ctx context.Context, asked []Inquiry) error {
	next := 0
	for i := range asked {
		if !m.first && ctx.Err() != nil {
			return nil
		}
		in := asked[i] // a copy, so that nothing is kept for the next round
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
			m.visit(next, p, timeEvaluation(p, q))
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

// timeEvaluation returns the duration of one evaluation. A single evaluation is too short for the clock,
// so several follow each other in one call of cedar-go.
func timeEvaluation(p *bundle.Policy, q *Question) time.Duration {
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
