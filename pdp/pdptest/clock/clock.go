// Package clock makes no promise: it is for the tests of this module alone. It has a [Clock] for tests, which stands
// still until they move it.
package clock

import (
	"sync/atomic"
	"time"
)

// Clock is a clock that tests move. It may be read and moved side by side.
type Clock struct{ at, passed atomic.Int64 }

// New is a clock that shows noon of some day.
func New() *Clock { return At(time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)) }

// At is a clock that shows a time.
func At(now time.Time) *Clock {
	c := new(Clock)
	c.at.Store(now.UnixNano())
	return c
}

// Now is what the clock shows.
func (c *Clock) Now() time.Time { return time.Unix(0, c.at.Load()).UTC() }

// Advance moves the clock and the elapsed time forward.
func (c *Clock) Advance(d time.Duration) {
	c.passed.Add(int64(d))
	c.at.Add(int64(d))
}

// Set moves the hands by so much, and no time passes.
func (c *Clock) Set(d time.Duration) { c.at.Add(int64(d)) }

// Elapsed returns the time that has passed, whatever the clock was set to.
func (c *Clock) Elapsed() time.Duration { return time.Duration(c.passed.Load()) }
