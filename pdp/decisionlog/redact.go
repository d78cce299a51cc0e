package decisionlog

import (
	"context"
	"errors"
	"fmt"
)

// ErrNotRedactable is returned for a record that says what was done to the log:
// without it the rest could not be verified.
var ErrNotRedactable = errors.New("an administrative record cannot be redacted")

// Redact removes the content of a record and its salt, so that no file of the log
// holds their bytes. Its leaf hash stays, and says nothing of what was hashed,
// because the salt is gone. That it happened, and why, is on record for good: the
// reason must not repeat what was to go. Copies, backups and exports made before
// still hold it, and so may a disk's unused blocks. caller goes on record as the one who asked
// for it, and may be "".
func (l *Log) Redact(ctx context.Context, caller, id, reason string) error {
	_, err := l.redact(ctx, caller, reason, false, id)
	return err
}

// RedactAll is [Log.Redact] of several records, and returns of how many. It passes over those whose content is gone
// already. Records of one segment that follow each other in ids go together: to remove one, the segment is written anew.
func (l *Log) RedactAll(ctx context.Context, caller, reason string, ids ...string) (done int, err error) {
	return l.redact(ctx, caller, reason, true, ids...)
}

// redactedAtOnce bounds how many records one removal puts on record together.
const redactedAtOnce = 500

func (l *Log) redact(ctx context.Context, caller, reason string, passGone bool, ids ...string) (done int, err error) {
	if reason == "" {
		return 0, errors.New("a redaction needs a reason: it stays on record in the content's place")
	}
	l.removals.Lock()
	defer l.removals.Unlock()
	if err := l.removals.finishAll(ctx); err != nil {
		return 0, err
	}
	var now *removal
	var segment Segment
	var gone []uint64
	run := func() error {
		if now == nil {
			return nil
		}
		err := now.run(ctx, []Segment{segment}, without(gone...))
		if err == nil {
			done += len(gone)
		}
		now, gone = nil, nil
		return err
	}
	for _, id := range ids {
		r, of, sequence, err := l.redaction(ctx, id, reason)
		if passGone && errors.Is(err, ErrGone) {
			continue
		}
		if err != nil {
			return done, err
		}
		r.caller = caller
		switch {
		case now == nil:
			now, segment = r, of
		case of.Number == segment.Number && r.tenant == now.tenant && len(gone) < redactedAtOnce:
			before := now.details
			now.details = func(files []SegmentFile) []any { return append(before(files), r.details(files)...) }
		default:
			if err := run(); err != nil {
				return done, err
			}
			now, segment = r, of
		}
		gone = append(gone, sequence)
	}
	return done, run()
}

// redaction finds what is to go, in a sealed segment, and prepares the rest.
func (l *Log) redaction(ctx context.Context, id, reason string) (*removal, Segment, uint64, error) {
	record, err := l.ByID(id)
	if err != nil {
		return nil, Segment{}, 0, err
	}
	s, err := Parse(record.Line)
	if err != nil {
		return nil, Segment{}, 0, err
	}
	if s.Kind == KindAdmin {
		return nil, Segment{}, 0, ErrNotRedactable
	}
	segment, err := l.sealed(ctx, record.Sequence)
	r := &removal{log: l, event: EventRedacted, tenant: s.Tenant, details: func(files []SegmentFile) []any {
		return []any{struct {
			Sequence uint64      `json:"sequence"`
			ID       string      `json:"id"`
			Reason   string      `json:"reason"`
			File     SegmentFile `json:"file"`
		}{record.Sequence, id, reason, files[0]}}
	}}
	return r, segment, record.Sequence, err
}

// sealed returns the segment of a record, and seals it first if it is active.
func (l *Log) sealed(ctx context.Context, sequence uint64) (Segment, error) {
	for range 2 {
		for _, segment := range l.Segments() {
			if segment.Sealed && segment.First <= sequence && sequence-segment.First < segment.Records {
				return segment, nil
			}
		}
		if err := l.Rotate(ctx); err != nil {
			return Segment{}, err
		}
	}
	return Segment{}, fmt.Errorf("%w: record %d is in no segment", ErrDamaged, sequence)
}

// without keeps all of a segment but some records' lines.
func without(sequences ...uint64) keeping {
	gone := map[string]bool{}
	for _, sequence := range sequences {
		gone[string(number(sequence))] = true
	}
	return func(bucket, key, value []byte) []byte {
		if string(bucket) == BucketRecords && gone[string(key)] {
			return nil
		}
		return value
	}
}

// Redact removes the content of a record of the log in a data directory that no
// server is running on.
func Redact(ctx context.Context, data, id, reason string, o Options) error {
	l, err := Open(data, o)
	if err != nil {
		return err
	}
	return errors.Join(l.Redact(ctx, "", id, reason), l.Close())
}
