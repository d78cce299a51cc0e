package decisionlog

import (
	"fmt"
	"time"

	"policy-service/pdp/boltfile"
)

// fail is what happens after an error of writing. Until [Log.recover] has gone
// well everything is refused: a file whose sync failed can say one thing from
// the page cache and hold another on disk.
func (l *Log) fail(err error) {
	l.w.failed, l.w.tried = err, time.Now()
	l.letGo()
	l.state.fail(err, l.options.Now())
	l.options.On.State(err)
}

// letGo closes what the writer has open, whatever state it is in.
func (l *Log) letGo() {
	l.dropNext()
	if s := l.w.active; s != nil {
		_ = s.close() // it failed already
		boltfile.DropCache(s.path)
	}
	l.w.active = nil
}

// recover opens the log again, as a new process would, and writes a record: only
// then is it known that the disk takes what it is given.
func (l *Log) recover() {
	if err := l.reopen(); err != nil {
		l.fail(err)
		return
	}
	l.w.failed = nil
	l.state.resume()
	l.options.On.State(nil)
}

func (l *Log) reopen() error {
	size, status, segments := l.Size(), l.state.now(), len(l.all())
	if err := l.openAgain(); err != nil {
		return err
	}
	if len(l.all()) != segments { // what failed was the beginning of one, and it is there
		l.limit(l.w.keep)
	}
	if now := l.Size(); now < size {
		return fmt.Errorf("%w: it had %d records and has %d", ErrDamaged, size, now)
	}
	lost, refused := l.state.take()
	about := lost.details(map[string]any{
		"failed_at":  status.Since.UTC().Format(TimeLayout),
		"resumed_at": l.options.Now().UTC().Format(TimeLayout),
		"error":      classify(status.Err),
		"refused":    refused,
	})
	if err := l.transact([]*call{l.own(EventResumed, about)}, order{checkpoint: true}); err != nil {
		l.state.giveBack(lost)
		return err
	}
	return nil
}

// openAgain keeps readers from opening what the writer wants alone.
func (l *Log) openAgain() error {
	l.opening.Lock()
	defer l.opening.Unlock()
	for _, s := range l.all() {
		_ = s.close()
	}
	_, err := l.openTail()
	return err
}

// finish ends the log in good order, or, where it failed, gives it one more try.
func (l *Log) finish() error {
	if l.w.failed != nil {
		l.recover()
	}
	if err := l.unavailable(); err != nil {
		return err
	}
	l.dropNext()
	if err := l.digests.finish(); err != nil {
		return err
	}
	lost, _ := l.state.take() // dropped when nothing was written any more
	err := l.transact(l.told(lost), order{checkpoint: true, clean: true})
	l.letGo()
	return err
}
