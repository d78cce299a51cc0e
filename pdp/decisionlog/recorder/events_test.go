package recorder

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/pdp/decisionlog"
)

// A stop while an event is being written: it is on record by then, and is not written
// once more with that of the stop.
func TestAnEventIsOnRecordOnce(t *testing.T) {
	var stop atomic.Pointer[context.CancelFunc]
	l, err := decisionlog.Open(t.TempDir(), decisionlog.Options{On: decisionlog.Hooks{Commit: func(decisionlog.Commit) {
		if cut := stop.Load(); cut != nil {
			(*cut)()
		}
	}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	e := NewEvents(time.Now, slog.New(slog.DiscardHandler))
	e.Log, e.Look = l, func() {}
	ctx, cancel := context.WithCancel(t.Context())
	stop.Store(&cancel)
	e.Soon(Event{Name: "once"})
	e.Run(ctx)
	if err := e.Record(t.Context(), Event{Name: "stop"}); err != nil {
		t.Fatal(err)
	}
	times := 0
	for r, err := range l.Records(t.Context(), 0, l.Size()) {
		if err != nil {
			t.Fatal(err)
		}
		times += strings.Count(string(r.Line), `"event":"once"`)
	}
	if times != 1 {
		t.Errorf("it is on record %d times", times)
	}
}
