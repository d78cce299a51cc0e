package logging

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// window is how long lines that are equal to one that was written are counted, and not written.
	window = time.Minute
	// mostEvents bounds the events that are counted apart at a time.
	mostEvents = 256
)

// repeats counts lines that are equal to one that was written in the last minute.
type repeats struct {
	mu     sync.Mutex
	events map[string]*repeated
	closed bool
}

// repeated is an event, with the lines about it that were not written.
type repeated struct {
	begun time.Time // the window
	more  int
	last  slog.Record // of those
	to    slog.Handler
	ends  *time.Timer
}

// first reports whether a line is written now. Any other is counted.
func (s *repeats) first(event string, r slog.Record, to slog.Handler) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return true
	}
	if e := s.events[event]; e != nil {
		e.more, e.last, e.to = e.more+1, r.Clone(), to
		return false
	}
	if s.events == nil {
		s.events = map[string]*repeated{}
	}
	if len(s.events) >= mostEvents {
		s.forgetOldest()
	}
	e := &repeated{begun: time.Now()}
	e.ends = time.AfterFunc(window, func() { s.end(event, e) })
	s.events[event] = e
	return true
}

// end writes the lines of a window as one line, from which the next window lasts. After a window without any the event is
// forgotten.
func (s *repeats) end(event string, e *repeated) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.events[event] != e {
		return
	}
	if e.more == 0 {
		delete(s.events, event)
		return
	}
	e.write()
	e.begun = time.Now()
	e.ends.Reset(window)
}

// forgetOldest makes room for another event. Nothing is lost: its count is written.
func (s *repeats) forgetOldest() {
	var oldest string
	for event, e := range s.events {
		if oldest == "" || e.begun.Before(s.events[oldest].begun) {
			oldest = event
		}
	}
	s.forget(oldest)
}

func (s *repeats) forget(event string) {
	e := s.events[event]
	e.ends.Stop()
	e.write()
	delete(s.events, event)
}

func (s *repeats) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for event := range s.events {
		s.forget(event)
	}
}

// write writes the last line with the number of those that it stands for.
func (e *repeated) write() {
	if e.more == 0 {
		return
	}
	e.last.AddAttrs(slog.Int("repeated", e.more))
	_ = e.to.Handle(context.Background(), e.last)
	e.more, e.last = 0, slog.Record{}
}
