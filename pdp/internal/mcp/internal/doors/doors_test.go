package doors_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"policy-service/pdp/internal/mcp/internal/doors"
)

// Close waits for what runs in the background, Served for requests, but no longer than it is told. Afterwards nothing begins.
func TestDoors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		d := doors.New(slog.New(slog.NewTextHandler(&log, nil)))
		ran := false
		d.Background(func() {
			<-d.Context.Done()
			ran = true
		})
		d.Background(func() { panic("planned") })
		request, leave, ok := d.Enter(t.Context())
		stream, stop := d.Until(t.Context())
		defer stop()
		d.Drain()
		synctest.Wait()
		if !ok || stream.Err() == nil || request.Err() != nil {
			t.Errorf("after Drain: %v, the stream %v, the request %v", ok, stream.Err(), request.Err())
		}
		d.Close()
		synctest.Wait()
		if !ran || request.Err() != context.Canceled || !strings.Contains(log.String(), "planned") {
			t.Errorf("after Close: the background ran: %v, the request %v, the log %s", ran, request.Err(), log.String())
		}
		begun := time.Now()
		if d.Served(time.Minute); time.Since(begun) != time.Minute {
			t.Errorf("a request that does not end is waited for %v", time.Since(begun))
		}
		time.AfterFunc(time.Second, leave)
		if d.Served(time.Minute); time.Since(begun) != time.Minute+time.Second {
			t.Errorf("a request that ends is waited for %v", time.Since(begun)-time.Minute)
		}
		if _, _, ok := d.Enter(t.Context()); ok || d.Background(func() { t.Error("it runs") }) {
			t.Error("something begins after Close")
		}
	})
}
