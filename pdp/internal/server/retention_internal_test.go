package server

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Retention runs at the start, when a segment was sealed, and every hour; after a
// failure ever later, whatever is sealed meanwhile.
func TestRetentionIsTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var at []time.Duration
		wake := make(chan struct{}, 1)
		r := &retention{log: slog.New(slog.DiscardHandler), wake: wake, once: func(context.Context) error {
			at = append(at, time.Since(start))
			if n := len(at); n == 2 || n == 3 || n == 4 {
				if n == 2 {
					wake <- struct{}{}
				}
				return errors.New("the disk is full")
			}
			return nil
		}}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour)
		defer cancel()
		r.run(ctx)
		want := []time.Duration{0, time.Hour, 61 * time.Minute, 63 * time.Minute, 67 * time.Minute, 67 * time.Minute, 127 * time.Minute}
		if !slices.Equal(at, want) {
			t.Errorf("it ran at %v, want %v", at, want)
		}
	})
}
