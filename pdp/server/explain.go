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
	// keptThen is how many bundles of then are kept at hand, and largestThen how many bytes of files they may have
	// together. The one in force may have any.
	keptThen    = 3
	largestThen = 32 << 20
)

// explainer explains recorded decisions, and keeps a few bundles for it. One of them is compiled at a time.
type explainer struct {
	inForce func() *pdp.Bundle
	limits  evaluation.Limits
	compile chan struct{} // has room for the request that compiles

	mu   sync.Mutex
	kept []keptBundle // the one that was used last comes last
}

type keptBundle struct {
	*recorder.Then
	bytes int // of files
}

func newExplainer(inForce func() *pdp.Bundle, limits evaluation.Limits) *explainer {
	return &explainer{inForce: inForce, limits: limits, compile: make(chan struct{}, 1)}
}

// explain is [audit.Explain].
func (e *explainer) explain(ctx context.Context, r *decisionlog.Recorded, bundles *decisionlog.Bundles) (any, int, error) {
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
	ctx context.Context, r *decisionlog.Recorded, bundles *decisionlog.Bundles,
) (t *recorder.Then, bytes int, err error) {
	of := func(b *pdp.Bundle) bool {
		return b != nil && b.Digest() == r.Bundle && slices.Contains(b.Tenants(), r.Tenant)
	}
	if t = e.atHand(of); t != nil {
		return t, 0, nil
	}
	select {
	case e.compile <- struct{}{}:
		defer func() { <-e.compile }()
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	if t = e.atHand(of); t != nil { // it was compiled meanwhile
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
	e.keep(t, bytes)
	return t, bytes, nil
}

// atHand finds a bundle that is kept, nil if there is none.
func (e *explainer) atHand(of func(*pdp.Bundle) bool) *recorder.Then {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := slices.IndexFunc(e.kept, func(k keptBundle) bool { return of(k.Bundle) })
	if n < 0 {
		return nil
	}
	k := e.kept[n]
	e.kept = append(slices.Delete(e.kept, n, n+1), k)
	return k.Then
}

// keep has a bundle at hand, and gives up others that there is no room for.
func (e *explainer) keep(t *recorder.Then, bytes int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := bytes
	for _, k := range e.kept {
		all += k.bytes
	}
	for len(e.kept) > 0 && (len(e.kept) == keptThen || all > largestThen) {
		all -= e.kept[0].bytes
		e.kept = slices.Delete(e.kept, 0, 1)
	}
	e.kept = append(e.kept, keptBundle{t, bytes})
}
