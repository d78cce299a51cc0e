package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/recorder"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/server/audit"
)

// largestThen is how many bytes of files a bundle of then may have. The one in force may have any.
const largestThen = 32 << 20

// explainer explains recorded decisions, and keeps the last bundle for it. One is compiled at a time.
type explainer struct {
	inForce func() *pdp.Bundle
	limits  evaluation.Limits
	compile chan struct{} // has room for the request that compiles
	last    atomic.Pointer[recorder.Then]
}

func newExplainer(inForce func() *pdp.Bundle, limits evaluation.Limits) *explainer {
	return &explainer{inForce: inForce, limits: limits, compile: make(chan struct{}, 1)}
}

// explain is [audit.Explain].
func (e *explainer) explain(ctx context.Context, r *record.Recorded, bundles *segment.Bundles) (any, int, error) {
	then, bytes, err := e.then(ctx, r, bundles)
	if err != nil {
		return nil, bytes, err
	}
	if err := ctx.Err(); err != nil { // the bundle is at hand the next time
		return nil, bytes, err
	}
	explained, err := then.Explain(ctx, r, e.limits)
	if bad := (*evaluation.Error)(nil); errors.As(err, &bad) || errors.Is(err, pdp.ErrUnknownTenant) || errors.Is(err, pdp.ErrTenantUnavailable) {
		err = audit.ErrOtherwise
	}
	return explained, bytes, err
}

// then finds the bundle that decided, or compiles it. Waiting for others that compile ends with ctx.
func (e *explainer) then(
	ctx context.Context, r *record.Recorded, bundles *segment.Bundles,
) (t *recorder.Then, bytes int, err error) {
	of := func(b *pdp.Bundle) bool {
		return b != nil && b.Digest() == r.Bundle && slices.Contains(b.Tenants(), r.Tenant)
	}
	atHand := func() bool {
		t = e.last.Load()
		return t != nil && of(t.Bundle)
	}
	if atHand() {
		return t, 0, nil
	}
	select {
	case e.compile <- struct{}{}:
		defer func() { <-e.compile }()
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	if atHand() { // it was compiled meanwhile
		return t, 0, nil
	}
	files, err := bundles.Files(r.Bundle)
	if err != nil {
		return nil, 0, err
	}
	for _, content := range files {
		bytes += len(content)
	}
	b := e.inForce()
	if !of(b) {
		if bytes > largestThen {
			return nil, 0, audit.ErrNotAlone
		}
		if b, err = recorder.Compile(files, r.Tenant); err != nil {
			return nil, bytes, fmt.Errorf("%w: %w", audit.ErrOtherwise, err)
		}
	}
	t = recorder.ThenOf(b, files)
	e.last.Store(t)
	return t, bytes, nil
}
