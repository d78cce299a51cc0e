package decisionlog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"policy-service/pdp/plainfile"
)

// RotateKey signs a new key in, and returns its public half.
func (l *Log) RotateKey(ctx context.Context) (public string, err error) {
	return l.RotateKeyAs(ctx, "")
}

// RotateKeyAs is RotateKey with the name of who asks for it on record.
func (l *Log) RotateKeyAs(ctx context.Context, caller string) (public string, err error) {
	err = l.order(ctx, func() (err error) {
		public, err = l.rotateKey(caller)
		return err
	})
	if err != nil {
		return "", err // public is the writer's still
	}
	return public, nil
}

// rotateKey keeps the new key on disk before it is on record, and puts it in
// force after: a crash in between is mended by openKey.
func (l *Log) rotateKey(caller string) (string, error) {
	next, err := newKey(l.w.key.Name())
	if err != nil {
		return "", err
	}
	name := filepath.Join(l.data, NextKeyFile)
	if err := writeFile(name, next.private+"\n"); err != nil {
		return "", err
	}
	said := l.ownFor(caller, EventKeyRotated, map[string]any{"old": l.w.key.public, "new": next.public})
	if err := l.transact([]*call{said}, order{checkpoint: true, nextKey: &next}); err != nil {
		l.fail(err)
		return "", l.unavailable()
	}
	l.w.key, l.w.active.key = next, next.public
	if err := errors.Join(rename(name, filepath.Join(l.data, KeyFile)), publish(l.data, next.public)); err != nil {
		return "", fmt.Errorf("the new key is in force, but not yet in its file; it is put there at the next start: %w", err)
	}
	return next.public, nil
}

// Replace puts a file in the place of a sealed segment. It must hold the same
// meta and hashes, and be durable, and its digest on record. tmp is a name in
// the log's directory.
func (l *Log) Replace(ctx context.Context, number uint64, tmp string) error {
	// The old file is given back to the disk when nobody holds it any more, which
	// takes milliseconds: held here, that is not the writer's.
	old, err := plainfile.Open(segmentPath(l.data, number))
	if err != nil {
		return err
	}
	if err := l.order(ctx, func() error { return l.putInPlace(number, tmp) }); err != nil {
		return errors.Join(err, old.Close())
	}
	return errors.Join(old.Close(), syncDir(filepath.Join(l.data, LogDir)))
}

// putInPlace is the writer's part of Replace.
func (l *Log) putInPlace(number uint64, tmp string) error {
	for _, s := range l.all() {
		if s.number != number {
			continue
		}
		if s == l.w.active {
			return fmt.Errorf("segment %d is written to: rotate first", number)
		}
		start := time.Now()
		defer func() { l.options.On.Replace(number, time.Since(start)) }()
		l.opening.Lock() // so that nobody opens the old one meanwhile
		defer l.opening.Unlock()
		return errors.Join(s.close(), os.Rename(filepath.Join(l.data, LogDir, filepath.Base(tmp)), s.path))
	}
	return fmt.Errorf("segment %d: %w", number, ErrNotFound)
}

// Flush returns when what was handed over before is on record, also what nobody
// waited for in best effort.
func (l *Log) Flush(ctx context.Context) error {
	return l.order(ctx, func() error { return nil })
}
