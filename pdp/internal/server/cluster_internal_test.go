package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"policy-service/pdp/internal/cluster"
)

// A start waits for what another replica is to record, for a minute, and for nothing else.
func TestStartWaitsForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		elsewhere := fmt.Errorf("%w, pdp-2", cluster.ErrElsewhere)
		other := errors.New("another error")
		tries := func(ctx context.Context, errs func(try int) error) (n int, err error) {
			err = onceRecorded(ctx, slog.New(slog.DiscardHandler), func() error { n++; return errs(n) })
			return n, err
		}
		if n, err := tries(t.Context(), func(n int) error { return []error{elsewhere, elsewhere, nil}[n-1] }); n != 3 || err != nil {
			t.Errorf("after %d tries: %v", n, err)
		}
		if n, err := tries(t.Context(), func(n int) error { return []error{elsewhere, other}[n-1] }); n != 2 || !errors.Is(err, other) {
			t.Errorf("after %d tries: %v", n, err)
		}
		if n, err := tries(t.Context(), func(int) error { return elsewhere }); n != 61 || !strings.Contains(err.Error(), "pdp-2; restart that replica") {
			t.Errorf("after %d tries: %v", n, err)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if n, err := tries(ended, func(int) error { return elsewhere }); n != 1 || !errors.Is(err, context.Canceled) {
			t.Errorf("after %d tries: %v", n, err)
		}
	})
}
