package decisionlog

import "policy-service/pdp/internal/decisionlog/segment"

// Snapshot is the log as of its newest checkpoint.
func (l *Log) Snapshot() (*segment.Snapshot, error) {
	last, err := l.CheckpointTo(l.Size())
	if err != nil {
		return nil, err
	}
	return l.SnapshotTo(last)
}

// Settled is a snapshot that [Log.At] can give again, the very same, until some of its
// content is removed. It ends before every removal that is under way, because a record
// that is being removed can be there in one read and gone in the next.
func (l *Log) Settled() (*segment.Snapshot, error) {
	last, err := l.CheckpointTo(l.Size())
	if err != nil {
		return nil, err
	}
	// In this order: if a removal began before the checkpoint was read, its new file is
	// still here, or the removal is done.
	before, err := l.RemovalsBegan()
	if err != nil {
		return nil, err
	}
	if before < last.Size {
		if last, err = l.CheckpointTo(before); err != nil {
			return nil, err
		}
	}
	return l.Watched(last)
}

// At is the log as it was at a moment. It returns [segment.ErrNotFound] if there was no such
// moment. If content was removed since, reading the snapshot fails with [segment.ErrChanged].
func (l *Log) At(m segment.Moment) (*segment.Snapshot, error) {
	if m.Size == 0 {
		return nil, segment.ErrNotFound
	}
	c, err := l.CheckpointAt(m)
	if err != nil {
		return nil, err
	}
	return l.Watched(c)
}
