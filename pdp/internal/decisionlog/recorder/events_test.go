package recorder

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"policy-service/pdp/internal/decisionlog"
)

// A stop while an event is being written: it is on record by then, and is not written
// once more with that of the stop.
func TestAnEventIsOnRecordOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, ctx, names := cutWhileWriting(t)
		e.Soon(Event{Name: "once"})
		e.Run(ctx)
		if err := e.Record(t.Context(), Event{Name: "stop"}); err != nil {
			t.Fatal(err)
		}
		if got := names(); !slices.Equal(got, []string{"once", "stop"}) {
			t.Errorf("on record are %v", got)
		}
	})
}

// A caller whose context ends while its event is being written learns that it is on record, and that what waited is.
func TestACallerThatStopsDoesNotUnrecord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, ctx, names := cutWhileWriting(t)
		e.Soon(Event{Name: "once"})
		if err := e.Record(ctx, Event{Name: "configuration"}); err != nil || ctx.Err() == nil {
			t.Errorf("got %v, and %v of the context", err, ctx.Err())
		}
		if err := e.Record(t.Context(), Event{Name: "stop"}); err != nil {
			t.Fatal(err)
		}
		if got := names(); !slices.Equal(got, []string{"once", "configuration", "stop"}) {
			t.Errorf("on record are %v", got)
		}
	})
}

// cutWhileWriting makes Events, and a context that ends while the first of them are being written. names are those on
// record.
func cutWhileWriting(t *testing.T) (e *Events, ctx context.Context, names func() []string) {
	t.Helper()
	var stop atomic.Pointer[context.CancelFunc]
	l, err := decisionlog.Open(t.TempDir(), decisionlog.Options{On: decisionlog.Hooks{Commit: func(decisionlog.Commit) {
		if cut := stop.Load(); cut != nil {
			(*cut)()
			synctest.Wait() // a call that waits with the context sees its end before that of the writing
		}
	}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	from := l.Size() // what the log says of itself is before
	e = NewEvents(time.Now, slog.New(slog.DiscardHandler))
	e.Log, e.Look = l, func() {}
	ctx, cancel := context.WithCancel(t.Context())
	stop.Store(&cancel)
	return e, ctx, func() (names []string) {
		for r, err := range l.Records(t.Context(), from, l.Size()) {
			if err != nil {
				t.Fatal(err)
			}
			var record struct{ Event string }
			if err := json.Unmarshal(r.Line, &record); err != nil {
				t.Fatal(err)
			}
			names = append(names, record.Event)
		}
		return names
	}
}
