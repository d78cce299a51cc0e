package report

import (
	"fmt"
	"time"

	"policy-service/pdp/decisionlog"
)

// DatedGap is a gap with what is still known of its time: records are in the order
// of their times, so those that are gone lie between their neighbours'.
type DatedGap struct {
	Origin string `json:"origin,omitzero"` // if the report is of several logs
	Gap
	// After is the time of the last record before the gap, Before that of the first
	// one behind it, or of the checkpoint where there is none. Zero is not known.
	After  time.Time `json:"after,omitzero"`
	Before time.Time `json:"before,omitzero"`
}

// gaps joins records without content to gaps, and dates them. A gap is found once the record
// behind it is there.
type gaps struct {
	last  time.Time // of the last record that has content
	open  []DatedGap
	found func(DatedGap)
}

// gone takes in a record without content.
func (g *gaps) gone(l decisionlog.Record) {
	if n := len(g.open); n > 0 && g.open[n-1].Why == l.Gone {
		g.open[n-1].Next++
		return
	}
	g.open = append(g.open, DatedGap{Gap: Gap{First: l.Sequence, Next: l.Sequence + 1, Why: l.Gone}, After: g.last})
}

// reached takes in the time of a record that is there, or of the checkpoint.
func (g *gaps) reached(at time.Time) {
	for _, gap := range g.open {
		gap.Before = at
		g.found(gap)
	}
	g.open, g.last = g.open[:0], at
}

// span is a time: from the first moment on that counts, and before the first that
// no longer does. Zero is without a bound.
type span struct{ from, to time.Time }

func (s span) has(at time.Time) bool {
	return (s.from.IsZero() || !at.Before(s.from)) && (s.to.IsZero() || at.Before(s.to))
}

// mayHave reports whether records of a gap may be of the span, hasAll whether all
// of them are.
func (s span) mayHave(g DatedGap) bool {
	return (s.from.IsZero() || !g.Before.Before(s.from)) && (s.to.IsZero() || g.After.Before(s.to))
}

func (s span) hasAll(g DatedGap) bool {
	return (s.from.IsZero() || !g.After.Before(s.from)) && (s.to.IsZero() || g.Before.Before(s.to))
}

// read is what a record says; nil where there is none for the reader.
func (g *gaps) read(l decisionlog.Record) (*decisionlog.Recorded, error) {
	switch l.Gone {
	case "":
	case decisionlog.WhyFiltered:
		return nil, nil
	default:
		g.gone(l)
		return nil, nil
	}
	r, err := decisionlog.Parse(l.Line)
	if err != nil {
		return nil, fmt.Errorf("record %d: %w", l.Sequence, err)
	}
	g.reached(r.Time)
	return r, nil
}
