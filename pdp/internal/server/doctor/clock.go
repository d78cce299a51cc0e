package doctor

import (
	"context"
	"time"

	"policy-service/pdp/internal/finding"
)

// The clock may be so far behind the newest record, and so far ahead of it, before something must be wrong.
const (
	behindAtMost = time.Second
	aheadAtMost  = 366 * 24 * time.Hour
)

// clock is the clock beside the log.
type clock struct {
	log *decisionLog
	now time.Time
}

// Findings compares the clock with the newest record.
func (c clock) Findings(context.Context) (found finding.List) {
	ahead := c.now.Sub(c.log.newest)
	at, last := c.now.UTC().Format(time.RFC3339), c.log.newest.UTC().Format(time.RFC3339)
	switch {
	case c.log.newest.IsZero():
		found.OK("clock", "it says %s; there is no record yet to hold it against", at)
	case -ahead > behindAtMost:
		found.Bites("clock", "find out whether it is behind now or was ahead then, and set it",
			"it says %s, and the newest record is of %s: until then every record repeats that time, marked clock_behind", at, last)
	case ahead > aheadAtMost:
		found.Bites("clock", "set it, or, if nothing was asked for so long, start the server and see the clock's first record",
			"it says %s, and the newest record is of %s, %d days before: if it is ahead, a retention by age drops everything", at, last, int(ahead.Hours())/24)
	default:
		found.OK("clock", "it says %s, and the newest record is of %s", at, last)
	}
	return found
}
