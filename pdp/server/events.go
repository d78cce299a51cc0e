package server

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"policy-service/pdp/decisionlog"
	"policy-service/pdp/server/door"
)

// event is something administrative that goes on record: what happened, and to what.
// Its details hold no secret.
type event struct {
	name    string
	details any
}

// events puts administrative events on record. What need not be on record before
// anything else happens waits until the log can be written.
type events struct {
	server *Server
	wake   chan struct{}
	notice func() // looks at what other processes change

	mu      sync.Mutex
	waiting []decisionlog.Entry
}

const (
	// maxWaiting bounds what waits while the log cannot be written.
	maxWaiting = 1000
	// noticeEvery is how soon a change by another process is noticed and recorded, and
	// how often what waits is tried again.
	noticeEvery = time.Second
)

func newEvents(s *Server) *events { return &events{server: s, wake: make(chan struct{}, 1)} }

// now returns when the events are durable, and all that waited before them.
func (e *events) now(ctx context.Context, all ...event) error {
	e.mu.Lock()
	defer e.mu.Unlock() // held over the write: events keep their order
	entries := append([]decisionlog.Entry{}, e.waiting...)
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
	if _, err := e.server.decisions.Append(ctx, entries); err != nil {
		return err
	}
	e.waiting = nil
	return nil
}

// soon puts an event on record a moment later, or when the log can be written.
func (e *events) soon(one event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	entry, err := e.entry(one)
	if err != nil || len(e.waiting) == maxWaiting {
		e.server.log.Error("an administrative event is lost to the decision log", "event", one.name, "error", err)
		return
	}
	e.waiting = append(e.waiting, entry)
	e.wakeUp()
}

func (e *events) wakeUp() {
	select {
	case e.wake <- struct{}{}:
	default: // somebody woke it before
	}
}

func (e *events) entry(one event) (decisionlog.Entry, error) {
	entry := decisionlog.Entry{ID: uuid.Must(uuid.NewV7()).String(), Kind: decisionlog.KindAdmin, Now: e.server.now(), Event: one.name}
	if one.details == nil {
		return entry, nil
	}
	text, err := door.Marshal(one.details)
	if err != nil {
		return entry, fmt.Errorf("the event %s has no JSON form: %w", one.name, err)
	}
	entry.Details = jsontext.Value(text)
	return entry, nil
}

// begin puts on record what there is before anybody asks: what comes later is a change.
func (e *events) begin() {
	e.notice = e.server.noticing()
	e.look()
}

// look records what changed, and what waits. It never lets go half way: of a record that
// is still on its way nobody can say that it must be written again.
func (e *events) look() {
	e.notice()
	_ = e.now(context.Background()) // what cannot be written waits on
}

// run notices what other processes change, and writes what waits.
func (e *events) run(ctx context.Context) {
	tick := time.NewTicker(noticeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-e.wake:
		}
		e.look()
	}
}

// startDetails say which program began.
func startDetails() map[string]any {
	return map[string]any{"version": version(), "pid": os.Getpid()}
}

// version is that of the program: its revision where it was built from one.
func version() string {
	version := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				version = setting.Value
			}
		}
	}
	return version
}
