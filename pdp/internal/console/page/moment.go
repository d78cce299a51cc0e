package page

import (
	"fmt"
	"strings"
	"time"
)

// Moment is a time, beside the time at which the page was made. The zero Moment is none.
type Moment struct{ at, now time.Time }

// MomentOf is a time, as it is seen at the time now.
func MomentOf(at, now time.Time) Moment {
	if at.IsZero() {
		return Moment{}
	}
	return Moment{at.UTC(), now.UTC()}
}

// None reports if there is no time.
func (m Moment) None() bool { return m.at.IsZero() }

// Exact is the time for programs.
func (m Moment) Exact() string { return m.at.Format(time.RFC3339) }

// Shown is the time for people. The day is left out if it is that of the page.
func (m Moment) Shown() string {
	if m.at.Format(time.DateOnly) == m.now.Format(time.DateOnly) {
		return m.at.Format("15:04 UTC")
	}
	return m.at.Format("2006-01-02 15:04 UTC")
}

// Precise is Shown with the second.
func (m Moment) Precise() string {
	return strings.TrimSuffix(m.Shown(), " UTC") + m.at.Format(":05 UTC")
}

// Left is how long it is until then, in words.
func (m Moment) Left() string {
	if !m.at.After(m.now) {
		return "time is up"
	}
	return Span(m.at.Sub(m.now)) + " left"
}

// Ago is how long ago it was, in words.
func (m Moment) Ago() string {
	if m.now.Sub(m.at) < time.Minute {
		return "just now"
	}
	return Span(m.now.Sub(m.at)) + " ago"
}

// Span is a length of time in words: two units of it, rounded down.
func Span(d time.Duration) string {
	units := []struct {
		length time.Duration
		name   string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}}
	for n, u := range units[:len(units)-1] {
		if d < u.length {
			continue
		}
		whole, smaller := d/u.length, units[n+1]
		rest := d % u.length / smaller.length
		if rest == 0 || u.length == time.Minute {
			return fmt.Sprintf("%d %s", whole, u.name)
		}
		return fmt.Sprintf("%d %s %d %s", whole, u.name, rest, smaller.name)
	}
	return fmt.Sprintf("%d s", max(0, d/time.Second))
}
