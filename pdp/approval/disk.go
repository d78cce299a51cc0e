package approval

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"

	"policy-service/pdp/boltfile"
)

// How long Open and Look wait for another process: the one may be ending, the other is no
// reason to wait.
const (
	lockTimeout = 2 * time.Second
	lookTimeout = 100 * time.Millisecond
)

func guard(f func() error) error { return boltfile.Guard(ErrDamaged, f) }

// syncDir has a new file be found after a power cut.
func syncDir(path string) error {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// openDisk opens the file, checks it, and reads what is kept in memory of it. The
// writer alone opens and closes.
func (s *Store) openDisk() error {
	db, err := boltfile.Open(s.path, ErrDamaged, boltfile.ToWrite, bbolt.Options{Timeout: lockTimeout})
	if errors.Is(err, boltfile.ErrLocked) {
		return ErrLocked
	}
	if err != nil {
		return err
	}
	var m *memory
	err = guard(func() error {
		if err := os.Chmod(s.path, 0o600); err != nil {
			return err
		}
		if err := s.prepare(db); err != nil {
			return err
		}
		return db.View(func(bare *bbolt.Tx) (err error) {
			tx := s.values(bare)
			if tx.ID() < s.committed {
				return fmt.Errorf("%w: it has lost what was written to it", ErrDamaged)
			}
			s.committed = tx.ID()
			m, err = remember(tx)
			return err
		})
	})
	if err != nil {
		_ = boltfile.Close(db, ErrDamaged)
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.db, s.memory = db, m
	return nil
}

// look reads what openDisk would: how many are pending, and the open ones.
func look(path string, key []byte) (pending int, open []Approval, err error) {
	db, err := boltfile.Open(path, ErrDamaged, boltfile.ToExamine, bbolt.Options{Timeout: lookTimeout})
	if err != nil {
		return 0, nil, err
	}
	err = guard(func() error {
		return db.View(func(bare *bbolt.Tx) error {
			tx := values{bare, keyOf(key, keyUse)}
			isNew, err := begun(tx)
			if err != nil || isNew {
				return err
			}
			m, err := remember(tx)
			if err != nil {
				return err
			}
			pending = m.pending
			open, err = openOnes(tx, m)
			return err
		})
	})
	return pending, open, errors.Join(err, boltfile.Close(db, ErrDamaged))
}

// prepare makes the buckets of a new file, and otherwise writes nothing: a file can be
// read also where the disk is full.
func (s *Store) prepare(db *bbolt.DB) error {
	isNew := false
	err := db.View(func(tx *bbolt.Tx) (err error) {
		isNew, err = begun(s.values(tx))
		return err
	})
	if errors.Is(err, ErrOld) {
		return s.upgrade(db)
	}
	if err != nil || !isNew {
		return err
	}
	s.begun = true
	return errors.Join(db.Update(func(tx *bbolt.Tx) error { return create(s.values(tx)) }), syncDir(db.Path()))
}

func (s *Store) values(tx *bbolt.Tx) values { return values{tx, s.key} }

// begun says whether a file is new: of a crash it may have been left without a bucket.
func begun(tx values) (isNew bool, err error) {
	if name, _ := tx.Cursor().First(); name == nil {
		return true, nil
	}
	return false, checkFormat(tx)
}

// letGo closes the file, whatever state it is in, once nobody reads it.
func (s *Store) letGo() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.db == nil {
		return nil
	}
	db := s.db
	s.db = nil
	return boltfile.Close(db, ErrDamaged)
}

// view runs f in a read transaction, with what is in memory as it is then or later.
// What f keeps of it must be copied.
func (s *Store) view(f func(values) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.db == nil {
		return s.unavailable
	}
	return guard(func() error { return s.db.View(func(tx *bbolt.Tx) error { return f(s.values(tx)) }) })
}

// update runs f in a transaction, and returns when that is durable. An error of f is
// the caller's, and nothing happened. After any other one the file is closed, opened
// and read again: one whose sync failed can say one thing from the page cache and hold
// another on disk.
func (s *Store) update(f func(*change) error) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := s.usable(); err != nil {
		return err
	}
	c := &change{silent: s.options.Silent, size: s.options.Size()}
	var refused error
	err := guard(func() (err error) {
		refused, err = s.transact(c, f)
		return err
	})
	if err != nil {
		return s.fail(err)
	}
	if refused == nil {
		s.changed()
		if len(c.outbox) == 0 { // else it counts when that is on record, and is news then
			for _, a := range c.saved {
				s.news(a.Tenant, a.ID)
			}
		}
	}
	return refused
}

// transact is one transaction. Where f refuses, or what it writes cannot be, there is
// none; after an error nobody knows whether there was.
func (s *Store) transact(c *change, f func(*change) error) (refused, err error) {
	tx, err := s.db.Begin(true)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }() // nothing where it was committed
	c.tx = s.values(tx)
	struck := s.memory.toStrike()
	for _, n := range struck {
		if err := remove(c.tx, bucketOutbox, numberKey(n)); err != nil {
			return err, nil
		}
	}
	if err := f(c); err != nil {
		return err, nil
	}
	s.memory.expect(c.outbox) // before anybody can see what they are steps to
	id := tx.ID()
	if err := tx.Commit(); err != nil {
		return nil, err
	}
	s.committed = id
	s.memory.apply(c, len(struck))
	return nil, nil
}

// ready opens the file again where that did not go well before: whoever only reads does
// not, as there are many of them.
func (s *Store) ready(context.Context) error {
	s.mu.RLock()
	open := s.db != nil
	s.mu.RUnlock()
	if open {
		return nil
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.usable()
}

// usable opens the file again where it could not be opened after a failure.
func (s *Store) usable() error {
	if s.db != nil || s.closed {
		return s.unavailable
	}
	s.reopen()
	return s.unavailable
}

// fail is what happens after an error of writing.
func (s *Store) fail(err error) error {
	_ = s.letGo() // it failed already
	boltfile.DropCache(s.path)
	s.reopen() // or the next one does
	return fmt.Errorf("%w: %s: %w", ErrUnavailable, s.path, err)
}

// reopen opens the file again; where that does not go well everything is refused.
func (s *Store) reopen() {
	err := s.openDisk()
	if err != nil {
		err = fmt.Errorf("%w: %s: %w", ErrUnavailable, s.path, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unavailable = err
}
