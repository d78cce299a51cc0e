// Package when reads how people write times: [ParseTime] a time, a day or an age, [ParseDuration] a length of time with
// days in it, and [Span] the part of the past that two of them bound. Commands, routes and the configuration read them
// here, so that 7d is the same everywhere.
//
// The package has no clock: the caller gives the time, once for all times of one question.
package when

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Time is a time as it was written. The zero Time is none.
type Time struct {
	at   time.Time
	age  time.Duration // before a now that is not known yet
	aged bool
}

// ErrNoTime is returned for a text that is no time.
var ErrNoTime = errors.New("is no time; write a day such as 2026-11-20, a time such as 2026-11-20T15:04:05Z, or an age such as 90s, 24h or 7d")

// ParseTime reads a time of RFC 3339; a day, which means midnight UTC at its begin; or an age, which is counted back
// from now.
func ParseTime(text string) (Time, error) {
	if m, err := ParseMoment(text); err == nil {
		return Time{at: m.Time}, nil
	}
	age, err := ParseDuration(text)
	if err != nil || text[0] < '0' || text[0] > '9' { // a sign would point into the future, or say nothing
		return Time{}, ErrNoTime
	}
	return Time{age: age, aged: true}, nil
}

// UnmarshalText is [ParseTime].
func (t *Time) UnmarshalText(text []byte) (err error) {
	if *t, err = ParseTime(string(text)); err != nil {
		err = fmt.Errorf("%q %w", text, err)
	}
	return err
}

// IsZero reports whether there is no time.
func (t Time) IsZero() bool { return !t.aged && t.at.IsZero() }

// At is the moment, if it is now that now.
func (t Time) At(now time.Time) time.Time {
	if t.aged {
		return now.Add(-t.age).UTC()
	}
	return t.at
}

// Moment is a time for which no age can stand, because it need not be in the past.
type Moment struct{ time.Time }

// errNoMoment is ErrNoTime without ages.
var errNoMoment = errors.New("is no time; write a day such as 2026-11-20, or a time such as 2026-11-20T15:04:05Z")

// ParseMoment reads a time of RFC 3339, or a day, which means midnight UTC at its begin.
func ParseMoment(text string) (Moment, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		at, err = time.Parse(time.DateOnly, text)
	}
	if err != nil {
		return Moment{}, errNoMoment
	}
	return Moment{at.UTC()}, nil
}

// UnmarshalText is [ParseMoment].
func (m *Moment) UnmarshalText(text []byte) (err error) {
	if *m, err = ParseMoment(string(text)); err != nil {
		err = fmt.Errorf("%q %w", text, err)
	}
	return err
}

// ParseDuration reads a duration as Go writes it, with days before it or without.
func ParseDuration(text string) (time.Duration, error) {
	days, rest, found := strings.Cut(text, "d")
	if !found {
		return time.ParseDuration(text)
	}
	const day, most = 24 * time.Hour, uint64(math.MaxInt64 / (24 * time.Hour))
	n, err := strconv.ParseUint(days, 10, 64)
	if err != nil || n > most {
		return 0, fmt.Errorf("%q is no number of days", days)
	}
	if rest == "" {
		return time.Duration(n) * day, nil
	}
	d, err := time.ParseDuration(rest)
	if sum := time.Duration(n)*day + d; err == nil && rest[0] != '-' && rest[0] != '+' && sum >= d {
		return sum, nil
	}
	return 0, fmt.Errorf("%q is no duration", text)
}
