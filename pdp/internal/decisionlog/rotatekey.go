package decisionlog

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/plainfile"
)

// RotateKey signs a new key in, and returns its public half. caller goes on record as the one who
// asked for it, and may be "".
func (l *Log) RotateKey(ctx context.Context, caller string) (public string, err error) {
	err = l.writer.order(ctx, func() (err error) {
		public, err = l.writer.rotateKey(caller)
		return err
	})
	if err != nil {
		return "", err // public is the writer's still
	}
	return public, nil
}

// rotateKey keeps the new key on disk before it is on record, and puts it in
// force after: a crash in between is mended by openKey.
func (w *writer) rotateKey(caller string) (string, error) {
	next, err := segment.NewKey(w.key.Name())
	if err != nil {
		return "", err
	}
	name := filepath.Join(w.data, format.NextKeyFile)
	if err := plainfile.Replace(name, []byte(next.Private+"\n")); err != nil {
		return "", err
	}
	record := w.own(caller, format.EventKeyRotated, map[string]any{"old": w.key.Public, "new": next.Public})
	if err := w.transact(order{calls: []*call{record}, checkpoint: true, nextKey: &next}); err != nil {
		return "", w.fail(err)
	}
	w.key, w.active.Key = next, next.Public
	w.frames.rekey(next.Frames)
	err = errors.Join(segment.Rename(name, filepath.Join(w.data, format.KeyFile)), segment.PublishKey(w.data, next.Public))
	if err != nil {
		return "", fmt.Errorf("the new key is in force, but not yet in its file; it is put there at the next start: %w", err)
	}
	return next.Public, nil
}
