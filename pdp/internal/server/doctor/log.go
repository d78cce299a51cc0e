package doctor

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/finding"
)

const asServe = "do this as the user that serve runs as, or chown the directory"

// decisionLog is the log of a data directory.
type decisionLog struct {
	data   directory
	reader *segment.Reader // nil if there is none, or it cannot be read
	err    error
	newest time.Time // the last time that the log knows; zero if it knows none
}

func openLog(data directory) *decisionLog {
	l := &decisionLog{data: data}
	if !data.exists() {
		return l
	}
	if l.reader, l.err = segment.OpenUnlocked(data.path); l.err == nil {
		l.newest = newest(l.reader)
	}
	return l
}

func (l *decisionLog) close() {
	if l.reader != nil {
		_ = l.reader.Close()
	}
}

// running reports whether a server runs on the log.
func (l *decisionLog) running() bool { return l.reader != nil && l.reader.Partial() }

// Findings looks whether the log can be read, and whether a server writes to it.
func (l *decisionLog) Findings(ctx context.Context) (found finding.List) {
	const check = "log"
	switch {
	case !l.data.exists():
		return nil
	case errors.Is(l.err, fs.ErrNotExist):
		found.OK(check, "there is none yet; serve begins it")
		return found
	case errors.Is(l.err, fs.ErrPermission):
		found.Bites(check, asServe, "it cannot be read: %v", l.err)
		return found
	case l.err != nil:
		found.Bites(check, "copy the directory before anything else; then policy-service log verify "+l.data.path, "it cannot be read: %v", l.err)
		return found
	}
	if l.running() {
		found.OK(check, "it is locked: a server is running on it. Without the segment it writes to there are %d records in %d segments", l.reader.Size(), len(l.reader.Segments()))
		return found
	}
	found.OK(check, "%d records in %d segments, and no server is running on it", l.reader.Size(), len(l.reader.Segments()))
	// Unsigned tails are named for as long as they are on record. There is no remedy, only the knowledge.
	err := l.reader.Events(ctx, func(r *record.Recorded) error {
		for _, tail := range r.UnsignedTails() {
			found.OK(check, "records %d to %d may be anybody's: a start found them without a checkpoint and without a MAC (%s)", tail.From, tail.To, tail.Cause)
		}
		return nil
	}, format.EventSegment, format.EventUnsigned)
	if err != nil {
		found.Bites(check, "policy-service log verify "+l.data.path, "it cannot be read: %v", err)
	}
	switch left := l.reader.Unfilled(); {
	case left == nil:
	case left.Damage != "":
		found.Bites(check, "put the files of the journal back, or a good disk; or copy the directory, and accept the loss with policy-service log recover --accept-loss --data "+l.data.path,
			"no server starts with it: %s", left.Damage)
	default:
		found.OK(check, "a crash left %d records in its journal; serve puts them into the log", left.Records)
	}
	return found
}

// newest is the last time that a log knows, of a record or a checkpoint.
func newest(r *segment.Reader) (last time.Time) {
	if r.Size() > 0 {
		if rec, err := r.Get(r.Size() - 1); err == nil { // else retention took its content
			line, _ := record.Parse(rec.Line)
			last = line.Time
		}
	}
	if c, err := r.LastCheckpoint(); err == nil && c.Time.After(last) {
		last = c.Time
	}
	return last
}

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
