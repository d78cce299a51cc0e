package decisionlog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/mod/sumdb/note"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/plainfile"
)

// Checkpoint signs a checkpoint of all records now, and returns it.
func (l *Log) Checkpoint(ctx context.Context) (signed []byte, err error) {
	return l.writer.newestCheckpoint(ctx, func(*tail) bool { return false })
}

// newestCheckpoint returns the newest checkpoint if willDo accepts it, and otherwise makes one. The writer has
// the newest checkpoint in memory: it was checked when the log was opened, or made since.
func (w *writer) newestCheckpoint(ctx context.Context, willDo func(*tail) bool) (signed []byte, err error) {
	err = w.runHeld(ctx, func() error {
		if !willDo(&w.tail) {
			if err := w.transact(transaction{checkpoint: true}); err != nil {
				return w.fail(err)
			}
		}
		signed = w.tail.Note
		return nil
	})
	if err != nil {
		return nil, err // signed is the writer's still
	}
	return signed, nil
}

// checkpointDue reports whether so much was written since the last checkpoint, or that is so long ago, that the tree must be signed.
func (w *writer) checkpointDue(t *tail) bool {
	c := &w.options.Checkpoints
	return t.Edge.Size-t.Checkpointed >= uint64(c.Records) || t.UnsignedBytes >= c.Bytes || time.Since(t.checkpointedAt) >= c.Every
}

// signCheckpoint signs the tree as it will be after this transaction. nextKey, unless nil, signs too, and is the key of all
// later checkpoints.
func (w *writer) signCheckpoint(b buckets, next *tail, now time.Time, nextKey *segment.Key) (err error) {
	c := segment.Checkpoint{Origin: w.key.Name(), Size: next.Edge.Size}
	c.Time, _ = next.nextTime(now)
	if c.Root, err = next.Edge.Root(); err != nil {
		return err
	}
	signers := []note.Signer{w.key.Signer}
	if nextKey != nil {
		c.NextKey = nextKey.Public
		signers = append(signers, nextKey.Signer)
		if err := b.meta.Put([]byte(format.MetaKey), []byte(nextKey.Public)); err != nil {
			return err
		}
	}
	if err := c.Sign(signers...); err != nil {
		return err
	}
	next.Note, next.Checkpointed, next.checkpointedAt, next.UnsignedBytes = c.Note, c.Size, time.Now(), 0
	return b.checkpoints.Put(c.Key(), c.Note)
}

// putHead writes the head of a segment at the end of a transaction. While the log is in doubt the segment has no head: nothing
// may vouch for unsigned records before a record names them.
func (w *writer) putHead(meta *bbolt.Bucket, s *active, next *tail, o transaction) error {
	if next.doubt != "" {
		return meta.Delete([]byte(format.MetaHead))
	}
	by := &w.key
	if o.nextKey != nil {
		by = o.nextKey
	}
	head, err := by.ComputeHead(s.Number, next.Edge, meta)
	if err != nil {
		return err
	}
	return meta.Put([]byte(format.MetaHead), head)
}

// keepCheckpoint writes the newest checkpoint to a file beside the segments. It does not sync, and may fail: a start that finds
// an older checkpoint, or no file, accepts a shorter log.
func keepCheckpoint(data string, signed []byte) {
	name := filepath.Join(data, format.CheckpointFile)
	_ = os.Remove(name + ".new") // it may be a pipe, which would hold up the writer
	f, err := os.OpenFile(name+".new", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return
	}
	_, err = f.Write(signed)
	if errors.Join(err, f.Close()) == nil {
		_ = os.Rename(name+".new", name)
	}
}

// KeepWitnessed writes a checkpoint for [segment.Reader.Witnessed].
func (l *Log) KeepWitnessed(signed []byte) error {
	return plainfile.Replace(filepath.Join(l.data, format.WitnessedFile), signed)
}

// RotateKey signs a new key in, and returns its public half. caller, who may be "", goes on record as the one who
// asked for it.
func (l *Log) RotateKey(ctx context.Context, caller string) (public string, err error) {
	err = l.writer.runHeld(ctx, func() (err error) {
		public, err = l.writer.rotateKey(caller)
		return err
	})
	if err != nil {
		return "", err // public is the writer's still
	}
	return public, nil
}

// rotateKey writes the new key to disk before it is on record, and puts it in
// force after: segment.OpenKey finishes the change if a crash comes in between.
func (w *writer) rotateKey(caller string) (string, error) {
	next, err := segment.NewKey(w.key.Name())
	if err != nil {
		return "", err
	}
	if err := next.WriteNext(w.data); err != nil {
		return "", err
	}
	record := w.ownRecord(caller, format.EventKeyRotated, map[string]any{"old": w.key.Public, "new": next.Public})
	if err := w.transact(transaction{calls: []*call{record}, checkpoint: true, nextKey: &next}); err != nil {
		return "", w.fail(err)
	}
	w.key, w.active.Key = next, next.Public
	w.frames.rekey(next.FramesKey)
	err = errors.Join(plainfile.Rename(filepath.Join(w.data, format.NextKeyFile), filepath.Join(w.data, format.KeyFile)), segment.PublishKey(w.data, next.Public))
	if err != nil {
		return "", fmt.Errorf("the new key is in force, but not yet in its file; it is put there at the next start: %w", err)
	}
	return next.Public, nil
}
