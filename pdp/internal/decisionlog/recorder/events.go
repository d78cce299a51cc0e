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

// Event is an administrative event that goes on record: its name and its details, which hold no secret.
type Event struct {
	Name    string
	Details any
	// Keys is the number of the API keys, of an event about them.
	Keys uint64
}

// Events puts administrative events on record, in their order. An event that need not be on record before anything else
// happens waits until the log can be written. Make it with [NewEvents]; Log is set before the first event.
type Events struct {
	Log Log
	// Look is called by [Events.Run] now and then. It records changes of other processes.
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
	// lookEvery is how soon a change by another process is recorded, and how often waiting events are tried again.
	lookEvery = time.Second
)

// NewEvents makes Events that read the time from now, and tell the logger of an event that is lost.
func NewEvents(now func() time.Time, logger *slog.Logger) *Events {
	return &Events{now: now, logger: logger, wake: make(chan struct{}, 1)}
}

// Record returns when the events are durable, and all that waited before them. It does not stop when ctx ends: it is
// unknown of a record that is on its way if it must be written again.
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

// Soon puts an event on record a moment later, or when the log can be written.
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

// Wake has waiting events tried again now.
func (e *Events) Wake() {
	select {
	case e.wake <- struct{}{}:
	default: // it is awake
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

// CatchUp looks for changes by other processes, and records them with the waiting events.
func (e *Events) CatchUp() {
	e.Look()
	_ = e.Record(context.Background()) // events that cannot be written wait on
}

// Run calls [Events.CatchUp] every second, and when an event comes, until ctx ends.
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
