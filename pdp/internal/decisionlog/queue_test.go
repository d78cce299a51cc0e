package decisionlog

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/internal/decisionlog/record"
)

// One caller's records wait behind its own: however many of them are to be written, another
// caller's is written after no more of them than half a transaction holds.
func TestOneCallersRecordsWaitBehindItself(t *testing.T) {
	t.Parallel()
	const many, size = 40, 1 << 20
	l := mustOpen(t, memory(t), Options{})
	held, release := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		_ = l.writer.runHeld(t.Context(), func() error { close(held); <-release; return nil })
	})
	<-held
	large := entryOf("", true)
	large.Caller = "key:loud"
	large.Request = &record.Request{Subject: jsontext.Value(`{"type":"a","id":"b"}`), Context: jsontext.Value(fmt.Sprintf(`{"note":%q}`, strings.Repeat("x", size-1000)))}
	for range many {
		all.Go(func() {
			if err := l.Append(t.Context(), []record.Entry{large}); err != nil {
				t.Error(err)
			}
		})
	}
	waiting := func() int {
		l.writer.queue.mu.Lock()
		defer l.writer.queue.mu.Unlock()
		if s := l.writer.queue.callers["key:loud"]; s != nil {
			return s.users
		}
		return 0
	}
	until(t, "all are counted", func() bool { return waiting() == many })
	queued(t, l, callerBytes/size) // those that find a place have it
	gone, leave := context.WithCancel(t.Context())
	leave()
	if err := l.Append(gone, []record.Entry{large}); err == nil { // who has gone has none of it
		t.Error("somebody who has gone is written")
	}
	before := l.Size()
	// A call that is small enough for a frame of the journal does not come through the queue.
	other := entryOf("other", true)
	other.Caller = "key:calm"
	other.Request = &record.Request{Subject: jsontext.Value(`{"type":"a","id":"b"}`), Context: jsontext.Value(fmt.Sprintf(`{"note":%q}`, strings.Repeat("x", callBytes)))}
	at := make(chan uint64, 1)
	all.Go(func() {
		if err := l.Append(t.Context(), []record.Entry{other}); err != nil {
			t.Error(err)
		}
		at <- sequenceOf(t, l, "other")
	})
	queued(t, l, callerBytes/size+1) // it comes after them
	close(release)
	if first := <-at; first-before > callerBytes/size {
		t.Errorf("%d records of another caller are written before", first-before)
	}
	all.Wait()
	if len(l.writer.queue.callers) != 0 {
		t.Errorf("%d callers are left", len(l.writer.queue.callers))
	}
}

// Where nobody waits to be on record, one caller's records are dropped for their number
// before anybody else's are.
func TestOneCallerHasNobodyElsesRecordsDropped(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	l := mustOpen(t, memory(t), Options{Mode: BestEffort, QueueBytes: 16 * size})
	held, release := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		_ = l.writer.runHeld(t.Context(), func() error { close(held); <-release; return nil })
	})
	<-held
	put := func(caller string, bytes int) (dropped uint64) {
		t.Helper()
		before := l.Status().Dropped
		e := entryOf("", true)
		e.Caller = caller
		e.Request = &record.Request{Subject: jsontext.Value(`{"type":"a","id":"b"}`), Context: jsontext.Value(fmt.Sprintf(`{"note":%q}`, strings.Repeat("x", bytes)))}
		if err := l.Append(t.Context(), []record.Entry{e}); err != nil {
			t.Error(err)
		}
		return l.Status().Dropped - before
	}
	var dropped uint64
	for range 40 {
		dropped += put("key:loud", size-1000)
	}
	if dropped != 40-16/queueShares {
		t.Errorf("%d of 40 are dropped", dropped)
	}
	if put("key:calm", size/2) != 0 || put("key:calm", 100) != 0 {
		t.Error("another caller's are dropped, too")
	}
	close(release)
	all.Wait()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if len(l.writer.queue.callers) != 0 {
		t.Errorf("%d callers are left", len(l.writer.queue.callers))
	}
}
