package decisionlog

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
)

// Retention says how long records are kept. The zero value keeps all.
type Retention struct {
	// Age is how old the newest record of a segment may be.
	Age time.Duration
	// Bytes bounds the content of all segments together on disk: the pages
	// in use, not the reserve of their files. The hashes of a record, some 100
	// bytes, do not count: they stay when it goes, so a limit on them would be
	// reached one day whatever is dropped.
	Bytes int64
	// LeastAge is how old the newest record of a segment is before Bytes has it dropped,
	// and so for how long a record counts toward the share of its caller. Zero
	// is that it may go at once, and no caller is bounded.
	LeastAge time.Duration
	// Share is the part of Bytes that one caller may fill within that time.
	Share float64
	// SharePerson is the part of Bytes that a person may fill for whom a caller asks that relays many. Zero is Share.
	SharePerson float64
}

// Retired is the result of one run of retention.
type Retired struct {
	Segments []SegmentFile
	// Records lost their content, Freed bytes of disk were given back.
	Records uint64
	Freed   int64
}

// Retain drops the content of whole sealed segments, oldest first, as far as the
// retention asks for it. Only a segment's hashes are left, a tenth of it
// or less, so that proofs and checkpoints stay valid; the ids of
// its records are gone too. Writers
// wait for one record and the renames, not for the copies. Whatever the retention is, Retain
// first finishes each removal that is on record and failed after that.
func (l *Log) Retain(ctx context.Context, keep Retention, now time.Time) (Retired, error) {
	l.removals.Lock()
	defer l.removals.Unlock()
	if err := l.removals.finishLeft(ctx); err != nil || keep == (Retention{}) {
		return Retired{}, err
	}
	segments, reason, err := l.removals.findExpired(keep, now)
	if err != nil || len(segments) == 0 {
		return Retired{}, err
	}
	r := l.retirement(segments, reason)
	if err := r.run(ctx); err != nil {
		return Retired{}, err
	}
	done := Retired{Segments: r.files}
	for i, file := range r.files {
		done.Records += file.Records
		done.Freed += segments[i].Size - file.Size
	}
	return done, nil
}

// retirement returns the removal of the content of whole segments.
func (l *Log) retirement(segments []segment.Info, reason string) *removal {
	details := func(files []SegmentFile) []any {
		last := files[len(files)-1]
		return []any{struct {
			Below  uint64        `json:"below"`
			Reason string        `json:"reason"`
			Files  []SegmentFile `json:"files"`
		}{last.First + last.Records, reason, files}}
	}
	return &removal{log: l, event: format.EventRetired, segments: segments, keep: hashesOnly, details: details}
}

// hashBytes is the size of a record's hashes in a file, slightly above the average:
// two hashes, the key, and the overhead of bbolt.
const hashBytes = 100

// contentBytes returns the size of records, without their hashes, in the pages in use.
func contentBytes(used int64, records uint64) int64 {
	return max(0, used-hashBytes*int64(records))
}

// contentSize returns the size that retention can free of a segment. It does not go by the size of
// the file, which grows ahead of its use: each run ends a segment, and if that
// counted with its whole file, the runs' own segments would crowd out records.
func (r *removals) contentSize(s segment.Info) (int64, error) {
	if known, ok := r.contents[s.Number]; ok {
		return known, nil
	}
	segment, err := r.log.FindFile(s.First)
	if err != nil {
		return 0, err
	}
	var used int64
	err = r.log.View(segment, func(tx *bbolt.Tx) error { used = tx.Size(); return nil })
	used = contentBytes(used, s.Records)
	if err == nil && s.Sealed {
		r.contents[s.Number] = used
	}
	return used, err
}

// findExpired returns the segments to be retired: the oldest ones that still hold
// records, without a gap, so that everything a retired record vouches for is retired
// before it. Segments with nothing but the log's records of its own segments and retirements wait
// until others go: retired alone they would make another such segment, and so on for ever,
// also in silence.
func (r *removals) findExpired(keep Retention, now time.Time) (out []segment.Info, reason string, err error) {
	segments, err := r.unretired()
	if err != nil {
		return nil, "", err
	}
	contents, total := make([]int64, len(segments)), int64(0)
	for i, segment := range segments {
		if contents[i], err = r.contentSize(segment); err != nil {
			return nil, "", err
		}
		total += contents[i]
	}
	for i, segment := range segments[:max(0, len(segments)-1)] {
		sealed, err := begunAt(r.log.Reader, segments[i+1].First)
		if err != nil {
			return nil, "", err
		}
		old := keep.Age > 0 && sealed.Add(keep.Age).Before(now)
		over := keep.Bytes > 0 && total > keep.Bytes && (keep.LeastAge == 0 || sealed.Add(keep.LeastAge).Before(now))
		if !segment.Sealed || !old && !over {
			break
		}
		if reason = "size"; old {
			reason = "age"
		}
		out, total = append(out, segment), total-contents[i]
	}
	for _, segment := range out {
		idle, err := onlyUpkeep(r.log.Reader, segment.First, segment.Records)
		if err != nil {
			return nil, "", err
		}
		if !idle {
			return out, reason, nil
		}
	}
	return nil, "", nil
}

// unretired returns the segments from the oldest one on that still holds records.
func (r *removals) unretired() ([]segment.Info, error) {
	segments := r.log.Segments()
	for len(segments) > 1 {
		if segments[0].Number > r.retired {
			gone, err := r.log.IsRetired(segments[0].First)
			if err != nil {
				return nil, err
			}
			if !gone {
				break
			}
			r.retired = segments[0].Number
		}
		segments = segments[1:]
	}
	return segments, nil
}

// upkeepMost bounds the records of a segment that has nothing but upkeep. After a
// crash it has some more than the usual two.
const upkeepMost = 16

// onlyUpkeep reports whether records of a segment are only the log's own
// upkeep: seals, openings and retirements.
func onlyUpkeep(r *segment.Reader, first, records uint64) (bool, error) {
	if records > upkeepMost {
		return false, nil
	}
	some, err := r.ReadSome(first, first+records)
	if err != nil {
		return false, err
	}
	for _, rec := range some {
		s, err := record.Parse(rec.Line)
		if err != nil || s.Kind != format.KindAdmin {
			return false, nil
		}
		switch s.Event {
		case format.EventCreated, format.EventSegment, format.EventRetired:
		default:
			return false, nil
		}
	}
	return uint64(len(some)) == records, nil
}

// begunAt returns when a segment was begun, by its first record, which is the log's own and cannot
// be redacted, and is younger than all of the segment before.
func begunAt(r *segment.Reader, first uint64) (time.Time, error) {
	rec, err := r.Get(first)
	if err != nil {
		return time.Time{}, err
	}
	s, err := record.Parse(rec.Line)
	if err != nil {
		return time.Time{}, fmt.Errorf("record %d: %w", first, err)
	}
	return s.Time, nil
}

// hashesOnly keeps the hashes of a segment, for proofs.
func hashesOnly(bucket, _, value []byte) []byte {
	if name := string(bucket); name == format.BucketRecords || name == format.BucketIDs || name == format.BucketCharges {
		return nil
	}
	return value
}
