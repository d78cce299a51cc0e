package pdp

import (
	"context"

	"policy-service/evaluation"
	"policy-service/pdp/internal/bundle"
	"policy-service/pdp/internal/engine"
)

// decideBy is the answer of a bundle to one call, without a PDP around it.
func decideBy(ctx context.Context, b *Bundle, call Call) (d evaluation.Decision, err error) {
	in := inquire(b, &call)
	var w engine.Verdict
	err = in.Decide(ctx, &w, &d)
	return d, err
}

// questionOf is what a bundle makes of one call, with all that no policy can see.
func questionOf(b *Bundle, v *bundle.View, call Call) (*engine.Question, error) {
	in := inquire(b, &call)
	return in.Question(seeingAll(v))
}

// seeingAll is a view as if its policies could see everything.
func seeingAll(v *bundle.View) *bundle.View {
	all := *v
	all.Seen = nil
	return &all
}
