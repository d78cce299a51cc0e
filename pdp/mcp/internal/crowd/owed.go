package crowd

import (
	"errors"
	"math"
	"slices"
	"time"
)

// If nobody knows whom news concern, they are owed: it goes on to others meanwhile, and asks again until they are over.

// Later is an error of [News.Say] that says how long nobody is to be asked again, at least.
type Later struct {
	Err   error
	After time.Duration
}

// Error implements error.
func (l *Later) Error() string { return l.Err.Error() }

// Unwrap is what went wrong.
func (l *Later) Unwrap() error { return l.Err }

const (
	// mostOwed is how much is owed to a stream before it comes to nothing else that stands.
	mostOwed = 1024
	// tryAgain is how long it is until somebody is asked about again, the first time. It doubles, up to tryAtLast.
	tryAgain  = 500 * time.Millisecond
	tryAtLast = 30 * time.Second
	// tries is how often somebody is asked about what does not stand.
	tries = 3
)

// forever is how long it is until something is owed if nothing is.
const forever = time.Duration(math.MaxInt64)

// debt are news that are owed.
type debt struct {
	news   *posted
	failed int
	again  time.Time
}

// debt is where news are among what is owed, less than 0 if they are not. The caller holds the crowd's lock, as that of
// every method here but owes.
func (s *Seat) debt(p *posted) int {
	return slices.IndexFunc(s.owed, func(d debt) bool { return d.news == p })
}

// owes has news asked about again, for that failed.
func (s *Seat) owes(p *posted, why error) {
	s.crowd.mu.Lock()
	defer s.crowd.mu.Unlock()
	d := debt{news: p}
	if n := s.debt(p); n >= 0 {
		d = s.owed[n]
	}
	s.leaves(p)
	d.failed++
	pause := min(s.crowd.first<<min(d.failed-1, 16), tryAtLast)
	if later := (*Later)(nil); errors.As(why, &later) {
		pause = max(pause, later.After)
	}
	d.again = time.Now().Add(pause)
	if p.ID == "" && (d.failed >= tries || len(s.owed) >= mostOwed) {
		s.crowd.o.Dropped(Unknown)
		return
	}
	s.owed = append(s.owed, d)
}

// nextOwed is what of it is to be asked about now, or if nothing is, how long it is until something is.
func (s *Seat) nextOwed(now time.Time) (p *posted, pause time.Duration) {
	s.owed = slices.DeleteFunc(s.owed, s.isOver)
	pause = forever
	for _, d := range s.owed {
		left := d.again.Sub(now)
		if _, known := s.crowd.answers.get(s.crowd.about(s, d.news)); known || left <= 0 {
			return d.news, 0
		}
		pause = min(pause, left)
	}
	if s.owed = slices.Clip(s.owed); len(s.owed) == 0 {
		s.owed = nil
	}
	return nil, pause
}

// isOver reports whether what is owed was withdrawn. What took its place is told in its turn.
func (s *Seat) isOver(d debt) bool {
	if d.news.over && s.room.standing[d.news.ID] == nil {
		s.crowd.o.Dropped(Unknown)
	}
	return d.news.over
}
