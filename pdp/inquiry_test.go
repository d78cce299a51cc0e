package pdp

import (
	"context"

	"policy-service/evaluation"
)

// decideBy is the answer of a bundle to one call, without a PDP around it.
func decideBy(ctx context.Context, b *Bundle, call Call) (d evaluation.Decision, err error) {
	in := inquire(b, &call)
	w, err := in.judge(ctx)
	if err != nil {
		return d, err
	}
	return w.answer(ctx, &in)
}

// questionOf is what a bundle makes of one call.
func questionOf(b *Bundle, v *view, call Call) (*question, error) {
	in := inquire(b, &call)
	return in.question(v)
}
