package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"policy-service/pdp/approval"
	"policy-service/pdp/approval/broker"
	"policy-service/pdp/decisionlog"
)

// log is whether the decision log can be read, and whether a server writes to it.
func (x *exam) log() {
	if !x.exists {
		return
	}
	reader, err := decisionlog.OpenReader(x.data)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		x.ok("log", "there is none yet; serve begins it")
		return
	case errors.Is(err, fs.ErrPermission):
		x.bites("log", fmt.Sprintf("it cannot be read: %v", err), "do this as the user that serve runs as, or chown the directory")
		return
	case err != nil:
		x.bites("log", fmt.Sprintf("it cannot be read: %v", err), "copy the directory before anything else; then policy-service log verify "+x.data)
		return
	}
	x.reader = reader
	x.newest = newest(reader)
	what := fmt.Sprintf("%d records in %d segments", reader.Size(), len(reader.Segments()))
	if reader.Partial() {
		x.ok("log", "it is locked: a server is running on it. Without the segment it writes to there are "+what)
		return
	}
	x.ok("log", what+", and no server is running on it")
	x.keysOnRecord()
	x.unsignedTails()
	switch left := reader.Unfilled(); {
	case left == nil:
	case left.Damage != "":
		x.bites("log", fmt.Sprintf("no server starts with it: %s", left.Damage), "put the files of the journal back, or a good disk; or copy the directory, and accept the loss with policy-service log recover --accept-loss --data "+x.data)
	default:
		x.ok("log", fmt.Sprintf("a crash left %d records in its journal; serve puts them into the log", left.Records))
	}
}

// unsignedTails are named for as long as they are on record. Nothing can be done about them but to know of them.
func (x *exam) unsignedTails() {
	about := func(r *decisionlog.Recorded) error {
		for _, tail := range r.UnsignedTails() {
			x.ok("log", fmt.Sprintf("records %d to %d may be anybody's: a start found them without a checkpoint and without a MAC (%s)", tail.From, tail.To, tail.Cause))
		}
		return nil
	}
	if err := x.reader.Events(x.ctx, about, decisionlog.EventSegment, decisionlog.EventUnsigned); err != nil {
		x.bites("log", fmt.Sprintf("it cannot be read: %v", err), "policy-service log verify "+x.data)
	}
}

// newest is the last time that a log knows, of a record or a checkpoint.
func newest(r *decisionlog.Reader) time.Time {
	var last time.Time
	if r.Size() > 0 {
		last = recorded(r, r.Size()-1) // zero where its content is gone
	}
	if c, err := r.LastCheckpoint(); err == nil && c.Time.After(last) {
		last = c.Time
	}
	return last
}

// recorded is when a record was made, the zero time where that is not known any more.
func recorded(r *decisionlog.Reader, sequence uint64) time.Time {
	record, err := r.Get(sequence)
	if err != nil {
		return time.Time{}
	}
	line, _ := decisionlog.Parse(record.Line)
	return line.Time
}

// A clock may be so far behind the newest record, and so far ahead of it, before
// something must be wrong.
const (
	behindAtMost = time.Second
	aheadAtMost  = 366 * 24 * time.Hour
)

// clock holds the clock against what is known to have been.
func (x *exam) clock() {
	now := x.now().UTC()
	ahead := now.Sub(x.newest)
	switch {
	case now.Before(x.Built):
		x.bites("clock", fmt.Sprintf("it says %s, and this program is of %s", stamp(now), stamp(x.Built)), "set it, before anything is recorded with that time")
	case x.newest.IsZero():
		x.ok("clock", "it says "+stamp(now)+"; there is no record yet to hold it against")
	case -ahead > behindAtMost:
		x.bites("clock", fmt.Sprintf("it says %s, and the newest record is of %s: until then every record repeats that time, marked clock_behind", stamp(now), stamp(x.newest)),
			"find out whether it is behind now or was ahead then, and set it")
	case ahead > aheadAtMost:
		x.bites("clock", fmt.Sprintf("it says %s, and the newest record is of %s, %d days before: if it is ahead, a retention by age drops everything", stamp(now), stamp(x.newest), int(ahead.Hours())/24),
			"set it, or, if nothing was asked for so long, start the server and see the clock's first record")
	default:
		x.ok("clock", fmt.Sprintf("it says %s, and the newest record is of %s", stamp(now), stamp(x.newest)))
	}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// approvals is whether the approval requests can be read, and how many wait.
func (x *exam) approvals() {
	if !x.exists {
		return
	}
	switch pending, behind, err := broker.Look(x.ctx, x.data, x.reader); {
	case errors.Is(err, fs.ErrNotExist):
		x.ok("approvals", "there are none yet; serve makes their file")
	case errors.Is(err, approval.ErrLocked):
		x.ok("approvals", "their file is locked: a server is running on it")
	case errors.Is(err, fs.ErrPermission):
		x.bites("approvals", fmt.Sprintf("they cannot be read: %v", err), "do this as the user that serve runs as, or chown the directory")
	case err != nil:
		x.bites("approvals", fmt.Sprintf("no server starts with them: %v", err), "copy the directory before anything else")
	case len(behind) > 0:
		for _, id := range slices.Sorted(maps.Keys(behind)) {
			x.bites("approvals", fmt.Sprintf("their file is older than the log: by that, %s is %s", id, behind[id]), "serve goes by the log, and says so there; find out who put an older approvals.db back")
		}
	default:
		x.ok("approvals", fmt.Sprintf("%d wait for a person, and no server is running on their file", pending))
	}
}
