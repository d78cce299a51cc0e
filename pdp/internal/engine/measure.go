package engine

import (
	"cmp"
	"context"
	"iter"
	"maps"
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
	least := map[visit]time.Duration{}
	for first := true; first || ctx.Err() == nil; first = false {
		for n, in := range asked { // in is a copy, so that nothing is kept for the next round
			if !first && ctx.Err() != nil {
				break // a round after the first may end early
			}
			v, err := in.view()
			if err != nil {
				return nil, err
			}
			q, err := in.Question(v)
			if err != nil {
				return nil, err
			}
			if q.Reason != "" {
				continue // no policy is asked
			}
			given, _ := PoliciesFor(v, q, new(bundle.Scratch))
			for _, p := range given {
				at, took := visit{n, p}, timeEvaluation(p, q)
				if before, again := least[at]; again {
					took = min(took, before)
				}
				least[at] = took
			}
		}
	}
	sums := map[*bundle.Policy]PolicyCost{}
	for at, took := range least {
		c := sums[at.policy]
		sums[at.policy] = PolicyCost{PolicyInfo: at.policy.Info(), Requests: c.Requests + 1, Total: c.Total + took}
	}
	return slices.SortedFunc(maps.Values(sums), func(a, b PolicyCost) int {
		return cmp.Or(cmp.Compare(b.Total, a.Total), strings.Compare(a.Tenant, b.Tenant), strings.Compare(a.ID, b.ID))
	}), nil
}

// visit is the evaluation of one policy for one inquiry.
type visit struct {
	inquiry int
	policy  *bundle.Policy
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
