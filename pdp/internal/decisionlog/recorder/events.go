package recorder

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
)

// Event is an administrative event.
type Event struct {
	Name    string
	Details any    // must hold no secret
	Keys    uint64 // in an event about API keys, how many keys there are
}

// Events puts administrative events on record, in their order. [Events.Record] waits for the log, and [Events.Soon] does
// not. Make it with [NewEvents], and set Log before the first event.
type Events struct {
	Log Log
	// Look records changes that other processes made. [Events.CatchUp] calls it.
	Look func()

	now    func() time.Time
	logger *slog.Logger
	wake   chan struct{}

	mu      sync.Mutex
	waiting []record.Entry
}

const (
	// maxWaiting limits the events that wait while the log cannot be written.
	maxWaiting = 1000
	// lookEvery bounds how long changes by other processes, and waiting events, stay off the record.
	lookEvery = time.Second
)

// NewEvents returns Events that read the time from now, and log an event that is lost.
func NewEvents(now func() time.Time, logger *slog.Logger) *Events {
	return &Events{now: now, logger: logger, wake: make(chan struct{}, 1)}
}

// Record returns when the events, and all events that waited, are durable. It does not stop when ctx ends: nobody would
// know then whether the events must be written again.
func (e *Events) Record(ctx context.Context, all ...Event) error {
	e.mu.Lock()
	defer e.mu.Unlock() // held over the write, so that events keep their order
	entries := append([]record.Entry{}, e.waiting...)
	for _, one := range all {
		entry, err := e.entry(one)
		if err != nil {
			return err
		}
		entries = append(entries, entry)
	}
	if len(entries) == 0 {
		return nil
	}
	if err := e.Log.Append(context.WithoutCancel(ctx), entries); err != nil {
		return err
	}
	e.waiting = nil
	return nil
}

// Soon lets an event wait for [Events.Run], which records it when the log can be written.
func (e *Events) Soon(one Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	entry, err := e.entry(one)
	if err != nil || len(e.waiting) == maxWaiting {
		e.logger.Error("an administrative event is lost to the decision log", "event", one.Name, "error", err)
		return
	}
	e.waiting = append(e.waiting, entry)
	e.Wake()
}

// Wake makes [Events.Run] record waiting events now.
func (e *Events) Wake() {
	select {
	case e.wake <- struct{}{}:
	default: // already awake
	}
}

func (e *Events) entry(one Event) (record.Entry, error) {
	entry := record.Entry{
		ID:    uuid.Must(uuid.NewV7()).String(),
		Kind:  format.KindAdmin,
		Now:   e.now(),
		Event: one.Name,
		Keys:  one.Keys,
	}
	if one.Details == nil {
		return entry, nil
	}
	var err error
	if entry.Details, err = marshal(one.Details); err != nil {
		return entry, fmt.Errorf("the event %s has no JSON form: %w", one.Name, err)
	}
	return entry, nil
}

// CatchUp records changes by other processes, and the waiting events.
func (e *Events) CatchUp() {
	e.Look()
	_ = e.Record(context.Background()) // events that cannot be written keep waiting
}

// Run calls [Events.CatchUp] every second, and after each event, until ctx ends.
func (e *Events) Run(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-e.wake:
		}
		e.CatchUp()
	}
}
