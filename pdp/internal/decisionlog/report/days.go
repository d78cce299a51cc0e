package report

import (
	"context"
	"time"

	"policy-service/pdp/internal/decisionlog/segment"
)

const day = 24 * time.Hour

// dayOf counts days (UTC) as Unix time counts seconds.
func dayOf(t time.Time) int64 { return t.Unix() / int64(day/time.Second) }

func startOf(day int64) time.Time { return time.Unix(day*24*60*60, 0).UTC() }

// countDays finds the days without decisions, and facts about each: how many checkpoints were signed on it, as far as
// that is known.
func (p *reporting) countDays(signed map[int64]int64, began, ended time.Time) {
	days := &p.report.Days
	from, to, some := p.known(began, ended)
	if !some {
		return
	}
	days.First, days.Last = startOf(from).Format(time.DateOnly), startOf(to).Format(time.DateOnly)
	gone := p.daysOfGaps(from, to)
	for d := from; d <= to; d++ {
		if p.days[d] {
			days.WithDecisions++
			continue
		}
		quiet := QuietDay{Day: startOf(d).Format(time.DateOnly), Proved: signed[d] > 0}
		if p.report.Tenants == nil {
			quiet.Checkpoints, quiet.Gone = signed[d], gone[d]
		}
		days.Quiet = append(days.Quiet, quiet)
	}
}

// heartbeats counts the checkpoints of each day: they are made every minute, also
// in silence. began is when the first one was.
func heartbeats(ctx context.Context, s *segment.Snapshot, last segment.Checkpoint) (signed map[int64]int64, began time.Time, err error) {
	signed = map[int64]int64{}
	for c, err := range s.Checkpoints(ctx, 0, last.Size) {
		if err != nil {
			return nil, began, err
		}
		if began.IsZero() {
			began = c.Time
		}
		if !c.Time.After(last.Time) {
			signed[dayOf(c.Time)]++
		}
	}
	return signed, began, nil
}

// known are the days of the span on which the log was there: from its first record
// or checkpoint that is there, to the checkpoint that it was read up to.
func (p *reporting) known(began, ended time.Time) (from, to int64, some bool) {
	if !p.first.IsZero() && p.first.Before(began) {
		began = p.first
	}
	if p.span.from.After(began) {
		began = p.span.from
	}
	if !p.span.to.IsZero() && !p.span.to.After(ended) {
		ended = p.span.to.Add(-1) // the first moment that no longer counts may be the first of a day
	}
	return dayOf(began), dayOf(ended), !ended.Before(began)
}

// daysOfGaps are the days on which there may have been records that are gone.
func (p *reporting) daysOfGaps(from, to int64) map[int64]bool {
	gone := map[int64]bool{}
	for _, gap := range p.service.Gaps {
		begin := from
		if !gap.After.IsZero() {
			begin = max(from, dayOf(gap.After))
		}
		for d := begin; d <= min(to, dayOf(gap.Before)); d++ {
			gone[d] = true
		}
	}
	return gone
}
