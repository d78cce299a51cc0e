package report

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
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
func (g *gaps) gone(l record.Record) {
	if n := len(g.open); n > 0 && g.open[n-1].Why == l.Gone && g.open[n-1].Next == l.Sequence {
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

// exportGaps are the gaps of one export of a log.
type exportGaps struct {
	gaps
	last segment.Checkpoint
	all  []DatedGap
}

func newExportGaps(last segment.Checkpoint) *exportGaps {
	g := &exportGaps{last: last}
	g.found = func(one DatedGap) { g.all = append(g.all, one) }
	return g
}

// inEach are the records that are gone in each of several exports of one log, the longest of which comes last. One that
// is behind the end of an export counts as gone there.
func inEach(exports []*exportGaps) (all []DatedGap) {
	for n, one := range exports {
		one.reached(one.last.Time)
		if n > 0 {
			all = inBoth(append(all, DatedGap{Gap: Gap{First: exports[n-1].last.Size, Next: math.MaxUint64}}), one.all)
		} else {
			all = one.all
		}
	}
	return all
}

func inBoth(older, newer []DatedGap) (all []DatedGap) {
	for len(older) > 0 && len(newer) > 0 {
		o, one := older[0], newer[0]
		if o.Next <= one.Next {
			older = older[1:]
		} else {
			newer = newer[1:]
		}
		one.First, one.Next, one.Why = max(o.First, one.First), min(o.Next, one.Next), cmp.Or(o.Why, one.Why)
		if o.After.After(one.After) {
			one.After = o.After
		}
		if !o.Before.IsZero() && o.Before.Before(one.Before) {
			one.Before = o.Before
		}
		if one.First < one.Next {
			all = append(all, one)
		}
	}
	return all
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
func (g *gaps) read(l record.Record) (*record.Recorded, error) {
	switch l.Gone {
	case "":
	case format.WhyFiltered:
		return nil, nil
	default:
		g.gone(l)
		return nil, nil
	}
	r, err := record.Parse(l.Line)
	if err != nil {
		return nil, fmt.Errorf("record %d: %w", l.Sequence, err)
	}
	g.reached(r.Time)
	return r, nil
}
