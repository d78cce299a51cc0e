package decisionlog

import (
	"context"
	"errors"
	"fmt"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
)

// ErrNotRedactable is returned for a record that says what was done to the log:
// without it the rest could not be verified.
var ErrNotRedactable = errors.New("an administrative record cannot be redacted")

// Redact removes the content of a record and its salt, so that no file of the log
// holds their bytes. Its leaf hash stays, and reveals nothing of what was hashed,
// because the salt is gone. That it happened, and why, is on record for good: the
// reason must not repeat what was removed. Copies, backups and exports made before
// still hold it, and so may a disk's unused blocks. caller, who may be "", goes on record as the one who asked
// for it.
func (l *Log) Redact(ctx context.Context, caller, id, reason string) error {
	_, err := l.redactAll(ctx, caller, reason, false, id)
	return err
}

// RedactAll redacts several records, as [Log.Redact] does, and returns how many. It skips records whose content is already
// gone. Records of one segment that follow each other in ids go together, because each removal writes the segment anew.
func (l *Log) RedactAll(ctx context.Context, caller, reason string, ids ...string) (done int, err error) {
	return l.redactAll(ctx, caller, reason, true, ids...)
}

// redactedAtOnce bounds how many records one removal puts on record together.
const redactedAtOnce = 500

func (l *Log) redactAll(ctx context.Context, caller, reason string, passGone bool, ids ...string) (done int, err error) {
	if reason == "" {
		return 0, errors.New("a redaction needs a reason: it stays on record in the content's place")
	}
	l.removals.Lock()
	defer l.removals.Unlock()
	if err := l.removals.finishLeft(ctx); err != nil {
		return 0, err
	}
	var group []redacted // which go together
	run := func() error {
		if len(group) == 0 {
			return nil
		}
		err := l.redaction(caller, reason, group).run(ctx)
		if err == nil {
			done += len(group)
		}
		group = nil
		return err
	}
	for _, id := range ids {
		one, err := l.findRedactable(ctx, id)
		if passGone && errors.Is(err, segment.ErrGone) {
			continue
		}
		if err == nil && len(group) > 0 {
			first := group[0]
			if one.segment.Number != first.segment.Number || one.tenant != first.tenant || len(group) >= redactedAtOnce {
				err = run()
			}
		}
		if err != nil {
			return done, err
		}
		group = append(group, one)
	}
	return done, run()
}

// redacted is a record to be redacted.
type redacted struct {
	segment    segment.Info
	sequence   uint64
	id, tenant string
}

// findRedactable finds a record to be redacted, and seals its segment if it is active.
func (l *Log) findRedactable(ctx context.Context, id string) (redacted, error) {
	rec, err := l.ByID(id)
	if err != nil {
		return redacted{}, err
	}
	s, err := record.Parse(rec.Line)
	if err != nil {
		return redacted{}, err
	}
	if s.Kind == format.KindAdmin {
		return redacted{}, ErrNotRedactable
	}
	segment, err := l.sealSegmentOf(ctx, rec.Sequence)
	return redacted{segment, rec.Sequence, id, s.Tenant}, err
}

// redaction returns the removal of records of one segment and tenant.
func (l *Log) redaction(caller, reason string, group []redacted) *removal {
	details := func(files []SegmentFile) (all []any) {
		for _, one := range group {
			all = append(all, struct {
				Sequence uint64      `json:"sequence"`
				ID       string      `json:"id"`
				Reason   string      `json:"reason"`
				File     SegmentFile `json:"file"`
			}{one.sequence, one.id, reason, files[0]})
		}
		return all
	}
	return &removal{
		log: l, event: format.EventRedacted, segments: []segment.Info{group[0].segment}, keep: withoutLines(group),
		details: details, tenant: group[0].tenant, caller: caller,
	}
}

// sealSegmentOf returns the segment of a record, and seals it first if it is active.
func (l *Log) sealSegmentOf(ctx context.Context, sequence uint64) (segment.Info, error) {
	for range 2 {
		for _, segment := range l.Segments() {
			if segment.Sealed && segment.First <= sequence && sequence-segment.First < segment.Records {
				return segment, nil
			}
		}
		if err := l.Rotate(ctx); err != nil {
			return segment.Info{}, err
		}
	}
	return segment.Info{}, fmt.Errorf("%w: record %d is in no segment", record.ErrDamaged, sequence)
}

// withoutLines keeps all of a segment but the lines of some records.
func withoutLines(group []redacted) keeping {
	gone := map[string]bool{}
	for _, one := range group {
		gone[string(segment.EncodeNumber(one.sequence))] = true
	}
	return func(bucket, key, value []byte) []byte {
		if string(bucket) == format.BucketRecords && gone[string(key)] {
			return nil
		}
		return value
	}
}

// Redact removes the content of a record of the log in a data directory on which no
// server is running.
func Redact(ctx context.Context, data, id, reason string, o Options) error {
	l, err := Open(data, o)
	if err != nil {
		return err
	}
	return errors.Join(l.Redact(ctx, "", id, reason), l.Close())
}
