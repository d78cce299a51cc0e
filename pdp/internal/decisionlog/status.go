package decisionlog

import (
	"cmp"
	"sync"
	"time"

	"policy-service/pdp/internal/decisionlog/format"
)

// Status is the condition of a log.
type Status struct {
	Mode  Mode
	OK    bool
	Err   error     // why not
	Since time.Time // when it failed
	Size  uint64    // records
	Bytes int64     // of all segments

	Refused, Dropped uint64 // records, since it was opened
	Queued           int    // calls that wait
	Segments         int
	// Unfilled is how many records the journal has and no segment, and Behind the age of the oldest of them.
	Unfilled int
	Behind   time.Duration
	// Unsigned is how many records the start found that had neither a checkpoint nor a MAC.
	Unsigned uint64
	Recent   int64 // bytes that retention may not drop yet; 0 without a Limit
	Full     bool  // and that is all there may be
}

// Status returns the condition of the log.
func (l *Log) Status() Status {
	w := l.writer
	s := w.state.current()
	s.Mode, s.OK = w.options.Mode, s.Err == nil
	w.frames.addToStatus(l.Size, &s)
	s.Queued += len(w.queue.calls)
	s.Recent, s.Full = w.accounts.usage()
	for _, tail := range l.foundUnsigned {
		s.Unsigned += tail.To - tail.From + 1
	}
	for _, segment := range l.Segments() {
		s.Segments, s.Bytes = s.Segments+1, s.Bytes+segment.Size
	}
	return s
}

// state is what the writer shares with other goroutines.
type state struct {
	mu      sync.Mutex
	status  Status
	lost    loss
	refused uint64 // since it failed
}

// loss is what was dropped and is not yet on record.
type loss struct {
	Count       uint64
	First, Last time.Time
}

func (s *state) current() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

func (s *state) countDropped(n int, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Dropped += uint64(n)
	s.lost = s.lost.plus(loss{uint64(n), at, at})
}

func (s *state) countRefused(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Refused += uint64(n)
	s.refused += uint64(n)
}

func (s *state) setFailed(err error, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status.Err == nil {
		s.status.Since, s.refused = at, 0
	}
	s.status.Err = err
}

// takeLost returns what is to be recorded: later drops go into the
// next record. If it cannot be recorded, giveBackLost takes it back.
func (s *state) takeLost() (lost loss, refused uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lost, s.lost = s.lost, loss{}
	return lost, s.refused
}

func (s *state) giveBackLost(lost loss) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = lost.plus(s.lost)
}

func (s *state) setResumed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Err, s.status.Since, s.refused = nil, time.Time{}, 0
}

// plus returns the sum of both. What waited longest in the queue may be dropped last, so the
// dates are not in the order of the drops.
func (l loss) plus(other loss) loss {
	if l.Count == 0 || other.Count == 0 {
		return cmp.Or(l, other)
	}
	l.Count += other.Count
	if other.First.Before(l.First) {
		l.First = other.First
	}
	if other.Last.After(l.Last) {
		l.Last = other.Last
	}
	return l
}

// addTo adds the members that say what was dropped.
func (l loss) addTo(m map[string]any) map[string]any {
	if l.Count > 0 {
		m["dropped"] = l.Count
		m["dropped_first"] = l.First.UTC().Format(format.TimeLayout)
		m["dropped_last"] = l.Last.UTC().Format(format.TimeLayout)
	}
	return m
}
