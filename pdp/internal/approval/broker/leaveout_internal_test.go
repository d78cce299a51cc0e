package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"policy-service/pdp"
	"policy-service/pdp/internal/approval"
)

// One approval request that fails is logged and left out of a list, and an error of all ends the list.
func TestOneErrorEndsNoList(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	b := &Broker{options: Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}}
	over, end := context.WithCancel(t.Context())
	end()
	for name, test := range map[string]struct {
		ctx  context.Context
		err  error
		ends bool
	}{
		"damaged":         {t.Context(), approval.ErrDamaged, false},
		"another":         {t.Context(), errors.New("a vote of nobody"), false},
		"another, late":   {over, errors.New("a vote of nobody"), true},
		"late":            {t.Context(), context.DeadlineExceeded, true},
		"gone":            {t.Context(), context.Canceled, true},
		"no bundle":       {t.Context(), pdp.ErrNoBundle, true},
		"no tenant":       {t.Context(), pdp.ErrTenantUnavailable, true},
		"not on record":   {t.Context(), approval.ErrUnrecorded, true},
		"the disk":        {t.Context(), fmt.Errorf("%w: %w", approval.ErrUnavailable, approval.ErrDamaged), true},
		"closed":          {t.Context(), approval.ErrClosed, true},
		"a log that lost": {t.Context(), approval.ErrShort, true},
	} {
		log.Reset()
		err := b.leaveOut(test.ctx, fmt.Errorf("reading: %w", test.err), "approval", "a7")
		if errors.Is(err, test.err) != test.ends || strings.Contains(log.String(), "approval=a7") == test.ends {
			t.Errorf("%s: got %v, and the log has %q", name, err, log.String())
		}
	}
}
