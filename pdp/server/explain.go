package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/decisionlog"
	"policy-service/pdp/decisionlog/recorder"
	"policy-service/pdp/server/audit"
)

const (
	// keptThen is how many bundles of then are kept at hand.
	keptThen = 3
	// largestThen is how many bytes of files such a bundle may have. The one in force may have any.
	largestThen = 32 << 20
)

// explainer explains recorded decisions, and keeps a few bundles for it. One of them is compiled at a time.
type explainer struct {
	inForce func() *pdp.Bundle
	limits  evaluation.Limits

	mu   sync.Mutex
	kept []*recorder.Then // the one that was used last comes last
}

// explain is [audit.Explain].
func (e *explainer) explain(ctx context.Context, r *decisionlog.Recorded, bundles *decisionlog.Bundles) (any, int, error) {
	then, bytes, err := e.then(r, bundles)
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

// then finds the bundle that decided, or compiles it.
func (e *explainer) then(r *decisionlog.Recorded, bundles *decisionlog.Bundles) (t *recorder.Then, bytes int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	of := func(b *pdp.Bundle) bool {
		return b != nil && b.Digest() == r.Bundle && slices.Contains(b.Tenants(), r.Tenant)
	}
	if n := slices.IndexFunc(e.kept, func(t *recorder.Then) bool { return of(t.Bundle) }); n >= 0 {
		t = e.kept[n]
		e.kept = append(slices.Delete(e.kept, n, n+1), t)
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
	if t = recorder.ThenOf(b, files); len(e.kept) == keptThen {
		e.kept = slices.Delete(e.kept, 0, 1)
	}
	e.kept = append(e.kept, t)
	return t, bytes, nil
}
