package when

import (
	"errors"
	"time"
)

// Span is what is at or after From and before To. Since is another way to say From, for which the future makes no sense.
type Span struct{ From, To, Since Time }

// The errors of [Span.At]. Each begins with the name that flags and parameters have, so that a caller puts the prefix
// of its names before it.
var (
	ErrTwice  = errors.New("since says the same as from; leave one of the two out")
	ErrFuture = errors.New("since is in the future; give a time that has passed")
)

// At are the bounds, if it is now that now. Zero is without a bound. Nothing says yet that one is before the other.
func (s Span) At(now time.Time) (from, to time.Time, err error) {
	from, to = s.From.At(now), s.To.At(now)
	if s.Since.IsZero() {
		return from, to, nil
	}
	if !s.From.IsZero() {
		return from, to, ErrTwice
	}
	if from = s.Since.At(now); from.After(now) {
		return from, to, ErrFuture
	}
	return from, to, nil
}

// Moves reports whether the bounds depend on the time of now.
func (s Span) Moves() bool { return s.From.aged || s.To.aged || s.Since.aged }
