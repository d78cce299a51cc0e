package engine

import (
	"math"
	"math/big"

	"github.com/cedar-policy/cedar-go/types"

	"policy-service/pdp/internal/bundle"
)

// sum is factor·value + rest, where the value is a hidden number.
type sum struct{ factor, rest *big.Int }

// errs is the sum of what is no number: it errs, whatever the hidden number is.
var errs = sum{}

// breaks finds the numbers at which a comparison can come to something else: where both sides are
// equal, and where a side, or a part of it, is beyond 64 bits, which errs. It reports false if more
// than this one number is hidden in it, or if it is no sum.
func (h *hiding) breaks(p *place, comparison *bundle.Term) (longs []types.Long, ok bool) {
	r := reckoning{h: h, place: p}
	left, ok1 := r.sumOf(comparison.Args[0])
	right, ok2 := r.sumOf(comparison.Args[1])
	if !ok1 || !ok2 {
		return nil, false
	}
	if left != errs && right != errs {
		r.breakAt(new(big.Int).Sub(left.factor, right.factor), new(big.Int).Sub(right.rest, left.rest))
	}
	return r.longs, true
}

type reckoning struct {
	h     *hiding
	place *place
	longs []types.Long
}

// sumOf is the sum that a term comes to.
func (r *reckoning) sumOf(t *bundle.Term) (s sum, ok bool) {
	if reckons(t) {
		return r.combine(t)
	}
	var value types.Value
	switch t.Op {
	case bundle.OpValue:
		value = t.Value
	case bundle.OpTrue, bundle.OpFalse:
		return errs, true
	case bundle.OpPath:
		if r.h.touches(r.place, use{path: t.Path, how: asValue}) != untouched {
			return sum{big.NewInt(1), new(big.Int)}, r.place.path.Root == t.Path.Root || r.h.one
		}
		for _, other := range r.h.places {
			if other != r.place && !other.unseen && r.h.reaches(other, t.Path) {
				return errs, false
			}
		}
		value, _ = r.h.q.valueAt(t.Path)
	default:
		return errs, false
	}
	if n, ok := value.(types.Long); ok {
		return sum{new(big.Int), big.NewInt(int64(n))}, true
	}
	return errs, true
}

func (r *reckoning) combine(t *bundle.Term) (s sum, ok bool) {
	parts := make([]sum, len(t.Args))
	for n, arg := range t.Args {
		if parts[n], ok = r.sumOf(arg); !ok {
			return errs, false
		}
	}
	for _, part := range parts {
		if part == errs {
			return errs, true
		}
	}
	s = sum{new(big.Int), new(big.Int)}
	switch a := parts[0]; t.Op {
	case bundle.OpAdd:
		s.factor.Add(a.factor, parts[1].factor)
		s.rest.Add(a.rest, parts[1].rest)
	case bundle.OpSubtract:
		s.factor.Sub(a.factor, parts[1].factor)
		s.rest.Sub(a.rest, parts[1].rest)
	case bundle.OpNegate:
		s.factor.Neg(a.factor)
		s.rest.Neg(a.rest)
	default:
		b := parts[1]
		if a.factor.Sign() != 0 && b.factor.Sign() != 0 {
			return errs, false // a square
		}
		s.factor.Add(new(big.Int).Mul(a.factor, b.rest), new(big.Int).Mul(b.factor, a.rest))
		s.rest.Mul(a.rest, b.rest)
	}
	r.breakAt(s.factor, new(big.Int).Sub(big.NewInt(math.MaxInt64), s.rest))
	r.breakAt(s.factor, new(big.Int).Sub(big.NewInt(math.MinInt64), s.rest))
	return s, true
}

// breakAt notes where factor·value is a number, or the whole numbers beside that.
func (r *reckoning) breakAt(factor, number *big.Int) {
	if factor.Sign() == 0 {
		return
	}
	at := new(big.Int).Quo(number, factor)
	if at.IsInt64() {
		r.longs = append(r.longs, types.Long(at.Int64()))
	}
}
