package doctor

import (
	"errors"
	"io/fs"
	"time"

	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/approval/broker"
	"policy-service/pdp/internal/capability"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/server/listener"
)

const asServe = "do this as the user that serve runs as, or chown the directory"

// log looks whether the decision log can be read, and whether a server writes to it.
func (x *exam) log() {
	if !x.exists {
		return
	}
	reader, err := segment.OpenUnlocked(x.data)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		x.OK("log", "there is none yet; serve begins it")
		return
	case errors.Is(err, fs.ErrPermission):
		x.Bites("log", asServe, "it cannot be read: %v", err)
		return
	case err != nil:
		x.Bites("log", "copy the directory before anything else; then policy-service log verify "+x.data, "it cannot be read: %v", err)
		return
	}
	x.reader = reader
	x.newest = newest(reader)
	x.keysOnRecord()
	if reader.Partial() {
		x.OK("log", "it is locked: a server is running on it. Without the segment it writes to there are %d records in %d segments", reader.Size(), len(reader.Segments()))
		return
	}
	x.OK("log", "%d records in %d segments, and no server is running on it", reader.Size(), len(reader.Segments()))
	x.unsignedTails()
	switch left := reader.Unfilled(); {
	case left == nil:
	case left.Damage != "":
		x.Bites("log", "put the files of the journal back, or a good disk; or copy the directory, and accept the loss with policy-service log recover --accept-loss --data "+x.data,
			"no server starts with it: %s", left.Damage)
	default:
		x.OK("log", "a crash left %d records in its journal; serve puts them into the log", left.Records)
	}
}

// unsignedTails names them for as long as they are on record. There is no remedy, only the knowledge.
func (x *exam) unsignedTails() {
	about := func(r *record.Recorded) error {
		for _, tail := range r.UnsignedTails() {
			x.OK("log", "records %d to %d may be anybody's: a start found them without a checkpoint and without a MAC (%s)", tail.From, tail.To, tail.Cause)
		}
		return nil
	}
	if err := x.reader.Events(x.ctx, about, format.EventSegment, format.EventUnsigned); err != nil {
		x.Bites("log", "policy-service log verify "+x.data, "it cannot be read: %v", err)
	}
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

// clock compares the clock with the log.
func (x *exam) clock() {
	now := x.now().UTC()
	ahead := now.Sub(x.newest)
	at, last := now.Format(time.RFC3339), x.newest.UTC().Format(time.RFC3339)
	switch {
	case x.newest.IsZero():
		x.OK("clock", "it says %s; there is no record yet to hold it against", at)
	case -ahead > behindAtMost:
		x.Bites("clock", "find out whether it is behind now or was ahead then, and set it",
			"it says %s, and the newest record is of %s: until then every record repeats that time, marked clock_behind", at, last)
	case ahead > aheadAtMost:
		x.Bites("clock", "set it, or, if nothing was asked for so long, start the server and see the clock's first record",
			"it says %s, and the newest record is of %s, %d days before: if it is ahead, a retention by age drops everything", at, last, int(ahead.Hours())/24)
	default:
		x.OK("clock", "it says %s, and the newest record is of %s", at, last)
	}
}

// approvals looks whether the approval requests can be read, and how many wait.
func (x *exam) approvals() {
	if !x.exists {
		return
	}
	switch pending, err := broker.Look(x.data, x.reader); {
	case errors.Is(err, fs.ErrNotExist):
		x.OK("approvals", "there are none yet; serve makes their file")
	case errors.Is(err, approval.ErrLocked):
		x.OK("approvals", "their file is locked: a server is running on it")
	case errors.Is(err, fs.ErrPermission):
		x.Bites("approvals", asServe, "they cannot be read: %v", err)
	case err != nil:
		x.Bites("approvals", "copy the directory before anything else", "no server starts with them: %v", err)
	default:
		x.OK("approvals", "%d wait for a person, and no server is running on their file", pending)
	}
}

// capabilities looks whether the capabilities can be read, and whether their tokens could be signed.
func (x *exam) capabilities() {
	if !x.exists {
		return
	}
	key, err := broker.Key.Read(x.data)
	if err != nil || key == nil {
		return // [exam.keys] and [exam.approvals] have it
	}
	var size func() uint64
	if x.reader != nil && !x.reader.Partial() {
		size = x.reader.Size
	}
	const check = "capabilities"
	live, err := capability.Look(x.data, key, size)
	switch unsigned := x.Config.PublicURL == "" && !listener.IsLoopback(x.Config.Listen); {
	case errors.Is(err, fs.ErrNotExist):
		x.OK(check, "there are none yet; serve makes their file")
	case errors.Is(err, capability.ErrLocked):
		x.OK(check, "their file is locked: a server is running on it")
	case errors.Is(err, fs.ErrPermission):
		x.Bites(check, asServe, "they cannot be read: %v", err)
	case err != nil:
		x.Bites(check, "copy the directory before anything else", "requests that show one are answered with 503: %v", err)
	case unsigned && live > 0:
		x.Bites(check, "set public_url, to what it was when they were granted", "%d are live, and their tokens do not count: without public_url the service does not know its own URL", live)
	case unsigned:
		x.OK(check, "none is granted: tokens are signed once public_url is set")
	default:
		x.OK(check, "%d are live, and no server is running on their file", live)
	}
}
