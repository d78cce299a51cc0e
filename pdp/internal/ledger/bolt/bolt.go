// Package bolt is the engine of a ledger that one process has: a file of bbolt.
package bolt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"policy-service/pdp/internal/boltfile"
	"policy-service/pdp/internal/ledger"
	"policy-service/pdp/internal/plainfile"
)

// The buckets. A number is eight bytes, big-endian.
const (
	BucketValues  = "values"  // key → the revision, and the value. Its sequence is the last revision.
	bucketChanged = "changed" // of each key that [ledger.State.Since] goes through: the prefix, revision, and the rest → the key
	bucketMeta    = "meta"    // keyErase → 1, if the file is to be written anew
)

var keyErase = []byte("erase")

// Options say where the file is, and which errors its readers know.
type Options struct {
	Path   string
	Errors ledger.Errors
}

// Engine is a [ledger.Engine].
type Engine struct {
	Options

	queue     queue
	copying   sync.Mutex // one copy at a time
	writing   sync.Mutex // one transaction at a time; guards what follows
	committed uint64     // the last revision

	mu          sync.RWMutex // held for reading while db is in use
	db          *bbolt.DB    // nil if it could not be opened again, and unavailable says why
	unavailable error
}

// New makes an engine, which is to be opened.
func New(o Options) *Engine { return &Engine{Options: o} }

// Examine reads a file as it is, and changes nothing. It does not read an empty file, and does not wait for another
// process that has the file.
func Examine(o Options, read func(ledger.State) error) error {
	return o.examine(boltfile.ToExamine, read)
}

// Look does as [Examine], without the lock of the file, so that a server can open the file meanwhile. Then the error is the one
// of a file that another process has, whatever was read.
func Look(o Options, read func(ledger.State) error) error {
	before, err := boltfile.Ask(o.Path)
	if err != nil && !errors.Is(err, boltfile.ErrLocked) {
		return err
	}
	err = o.examine(boltfile.ToExamine|boltfile.Unlocked, read)
	if now, _ := boltfile.Ask(o.Path); !boltfile.Unchanged(before, now) {
		return o.Errors.Locked
	}
	return err
}

func (o *Options) examine(use boltfile.Use, read func(ledger.State) error) error {
	info, err := os.Stat(o.Path)
	if err != nil || info.Size() == 0 {
		return err
	}
	db, err := o.connect(use, 100*time.Millisecond)
	if err == nil {
		err = errors.Join(o.view(db, func(tx *bbolt.Tx) error {
			if isNew, err := o.known(tx); err != nil || isNew {
				return err
			}
			return read(state{tx.Bucket([]byte(BucketValues)), tx})
		}), boltfile.Close(db, o.Errors.Damaged))
	}
	return err
}

func (o *Options) guard(do func() error) error { return boltfile.Guard(o.Errors.Damaged, do) }

func (o *Options) view(db *bbolt.DB, read func(*bbolt.Tx) error) error {
	return o.guard(func() error { return db.View(read) })
}

// connect opens the file with bbolt.
func (o *Options) connect(use boltfile.Use, wait time.Duration) (*bbolt.DB, error) {
	db, err := boltfile.Open(o.Path, o.Errors.Damaged, use, bbolt.Options{Timeout: wait})
	if errors.Is(err, boltfile.ErrLocked) {
		err = o.Errors.Locked
	}
	return db, err
}

// known refuses a file of another program, or of another format. One that nothing is in yet is new: a crash may have left
// it so.
func (o *Options) known(tx *bbolt.Tx) (isNew bool, err error) {
	if name, _ := tx.Cursor().First(); name == nil {
		return true, nil
	}
	for _, name := range []string{BucketValues, bucketChanged, bucketMeta} {
		if tx.Bucket([]byte(name)) == nil {
			return false, fmt.Errorf("%w: it has no bucket %s; a file of an earlier version is read by the program that wrote it",
				o.Errors.Damaged, name)
		}
	}
	return false, nil
}

// Open implements [ledger.Engine].
func (e *Engine) Open() error {
	e.writing.Lock()
	defer e.writing.Unlock()
	return e.open()
}

// open opens the file and checks it. The writer alone opens and closes.
func (e *Engine) open() error {
	db, err := e.connect(boltfile.ToWrite, 2*time.Second) // the process that has it may be ending
	if err != nil {
		return err
	}
	if err = os.Chmod(e.Path, 0o600); err == nil {
		err = errors.Join(plainfile.Remove(e.Path+CopySuffix), e.prepare(db))
	}
	if err == nil {
		err = e.view(db, func(tx *bbolt.Tx) error {
			last := tx.Bucket([]byte(BucketValues)).Sequence()
			if last < e.committed {
				return fmt.Errorf("%w: it has lost what was written to it", e.Errors.Damaged)
			}
			e.committed = last
			return nil
		})
	}
	if err != nil {
		_ = boltfile.Close(db, e.Errors.Damaged)
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.db, e.unavailable = db, nil
	return nil
}

// prepare makes the buckets of a new file. Otherwise it writes nothing, so that a file can be read while the disk is full.
func (e *Engine) prepare(db *bbolt.DB) error {
	isNew := false
	err := e.view(db, func(tx *bbolt.Tx) (err error) {
		isNew, err = e.known(tx)
		return err
	})
	if err != nil || !isNew {
		return err
	}
	err = e.guard(func() error {
		return db.Update(func(tx *bbolt.Tx) (err error) {
			for _, name := range []string{BucketValues, bucketChanged, bucketMeta} {
				_, made := tx.CreateBucket([]byte(name))
				err = errors.Join(err, made)
			}
			return err
		})
	})
	return errors.Join(err, plainfile.SyncDir(filepath.Dir(e.Path)))
}

// letGo closes the file, whatever state it is in, once no reader is left. From then on the reason is the error.
func (e *Engine) letGo(reason error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	db := e.db
	e.db, e.unavailable = nil, reason
	if db == nil {
		return nil
	}
	return boltfile.Close(db, e.Errors.Damaged)
}

// Close implements [ledger.Engine].
func (e *Engine) Close() error {
	e.writing.Lock()
	defer e.writing.Unlock()
	return e.letGo(e.Errors.Closed)
}

// Shared implements [ledger.Engine]: the file is locked.
func (e *Engine) Shared() bool { return false }

// Watch implements [ledger.Engine].
func (e *Engine) Watch(func([]string)) (stop func()) { return func() {} }

// View implements [ledger.Engine].
func (e *Engine) View(read func(ledger.State) error) error {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.db == nil {
		return e.unavailable
	}
	return e.view(e.db, func(tx *bbolt.Tx) error { return read(state{tx.Bucket([]byte(BucketValues)), tx}) })
}

// Write implements [ledger.Engine]. After an error, unless it refused the transaction, it closes the file, opens and reads
// it again: a file whose sync failed can say one thing from the page cache and hold another on disk.
func (e *Engine) Write(t ledger.Transaction) (revision uint64, err error) {
	if err := t.Fits(); err != nil {
		return 0, err
	}
	w := &write{Transaction: t, err: e.Errors.Unavailable} // until it is written, also after a panic of another caller
	e.queue.add(w)
	e.writing.Lock()
	defer e.writing.Unlock()
	if !w.done {
		e.writeTogether(e.queue.take())
	}
	return w.revision, w.err
}

// write is a transaction that waits, and then what became of it.
type write struct {
	ledger.Transaction
	done     bool
	conflict bool
	revision uint64
	err      error
}

// queue has the transactions that wait: whichever of their callers writes first writes all of them.
type queue struct {
	mu      sync.Mutex
	waiting []*write
}

func (q *queue) add(w *write) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, w)
}

func (q *queue) take() (all []*write) {
	q.mu.Lock()
	defer q.mu.Unlock()
	all, q.waiting = q.waiting, nil
	return all
}

// writeTogether writes transactions one after the other in one of the file's, so that they wait for the disk once. If the
// file fails, all of them do.
func (e *Engine) writeTogether(all []*write) {
	err := e.usable()
	if err == nil {
		if err = e.guard(func() error { return e.commit(all) }); err != nil {
			err = fmt.Errorf("%w: %s: %w", e.Errors.Unavailable, e.Path, err)
			_ = e.letGo(err) // it failed already
			boltfile.DropCache(e.Path)
			_ = e.usable() // or the next one opens it
		}
	}
	for _, w := range all {
		if w.done, w.err = true, err; err == nil && w.conflict {
			w.err = ledger.ErrConflict
		}
		if w.err != nil {
			w.revision = 0
		}
	}
}

func (e *Engine) commit(all []*write) error {
	tx, err := e.db.Begin(true)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // nothing if it was committed
	s := state{tx.Bucket([]byte(BucketValues)), tx}
	last := uint64(0)
	for _, w := range all {
		if w.conflict = !s.holds(w.If); w.conflict || len(w.Puts) == 0 {
			continue
		}
		if w.revision, err = s.apply(w.Transaction); err != nil {
			return err
		}
		last = w.revision
	}
	if last == 0 {
		return nil
	}
	if err = tx.Commit(); err == nil {
		e.committed = last
	}
	return err
}

// holds reports whether keys have the revisions that a transaction is to find.
func (s state) holds(all map[string]uint64) bool {
	for key, is := range all {
		if s.revision(key) != is {
			return false
		}
	}
	return true
}

// NewSuffix ends the name of a file that is to take the place of a ledger's.
const NewSuffix = ".new"

// Erase implements [ledger.Engine]. It writes the file anew: bbolt keeps the bytes of what is gone in pages that it
// calls free, and only a file that they were never written to is without them. After a crash either file is there,
// whole, and the old one still says that it is to be written anew.
func (e *Engine) Erase() error {
	e.writing.Lock()
	defer e.writing.Unlock()
	if err := e.usable(); err != nil {
		return err
	}
	wanted := false
	err := e.view(e.db, func(tx *bbolt.Tx) error {
		wanted = tx.Bucket([]byte(bucketMeta)).Get(keyErase) != nil
		return nil
	})
	if err != nil || !wanted {
		return err
	}
	if err := e.guard(e.replace); err != nil {
		return fmt.Errorf("%w: %s cannot be written anew, and has what was to go: %w", e.Errors.Unavailable, e.Path, err)
	}
	return nil
}

// replace puts a copy in the place of the file. The copy is locked before it has the file's name.
func (e *Engine) replace() (err error) {
	name := e.Path + NewSuffix
	if err := plainfile.Remove(name); err != nil {
		return err
	}
	db, err := boltfile.Open(name, e.Errors.Damaged, boltfile.ToWrite,
		bbolt.Options{NoSync: true, PageSize: e.db.Info().PageSize})
	if err != nil {
		return err
	}
	if err = bbolt.Compact(db, e.db, 1<<20); err == nil {
		err = db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte(bucketMeta)).Delete(keyErase) })
	}
	if err == nil {
		err = db.Sync()
	}
	if db.NoSync = false; err == nil {
		err = os.Rename(name, e.Path)
	}
	if err != nil {
		return errors.Join(err, boltfile.Close(db, e.Errors.Damaged), os.Remove(name))
	}
	e.mu.Lock()
	old := e.db
	e.db = db
	e.mu.Unlock()
	return errors.Join(boltfile.Close(old, e.Errors.Damaged), plainfile.SyncDir(filepath.Dir(e.Path)))
}

// CopySuffix ends the name that a copy of the file has while it is made. A crash leaves it to the next opening.
const CopySuffix = ".copy"

// Copy implements [ledger.Copier]: the copy is made by one read transaction, beside the file, and has no name afterwards.
// Writes go on, but for one that must enlarge the memory map: that waits until the copy is made, which takes as long as the
// disk needs to write it. The copy has no page that bbolt calls free.
func (e *Engine) Copy() (copied *os.File, err error) {
	e.copying.Lock()
	defer e.copying.Unlock()
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.db == nil {
		return nil, e.unavailable
	}
	name := e.Path + CopySuffix
	if err := plainfile.Remove(name); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, plainfile.Remove(name)) }()
	options := bbolt.Options{NoSync: true}
	err = e.guard(func() error {
		return e.db.View(func(tx *bbolt.Tx) error { // outside of a transaction a writer may be mapping the file anew
			options.PageSize = tx.DB().Info().PageSize
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	db, err := boltfile.Open(name, e.Errors.Damaged, boltfile.ToWrite, options)
	if err != nil {
		return nil, err
	}
	err = e.guard(func() error { return bbolt.Compact(db, e.db, 1<<20) })
	if err = errors.Join(err, boltfile.Close(db, e.Errors.Damaged)); err != nil {
		return nil, err
	}
	return plainfile.Open(name)
}

// Ready implements [ledger.Engine].
func (e *Engine) Ready() error {
	e.mu.RLock()
	open := e.db != nil
	e.mu.RUnlock()
	if open {
		return nil
	}
	e.writing.Lock()
	defer e.writing.Unlock()
	return e.usable()
}

// usable opens the file again if it was closed after a failure. It returns the error with which everything is refused
// if that does not go well. What Close closed stays closed.
func (e *Engine) usable() error {
	if e.db != nil || errors.Is(e.unavailable, e.Errors.Closed) {
		return e.unavailable
	}
	err := e.open()
	if err != nil {
		err = fmt.Errorf("%w: %s: %w", e.Errors.Unavailable, e.Path, err)
		_ = e.letGo(err)
	}
	return err
}

// state is a [ledger.State].
type state struct {
	values *bbolt.Bucket
	tx     *bbolt.Tx
}

const numberBytes = 8

// split separates the revision from the value. What is too short for that has no value, and counts for nothing.
func split(stored []byte) (value []byte, revision uint64) {
	if len(stored) < numberBytes {
		return nil, 1
	}
	return stored[numberBytes:], binary.BigEndian.Uint64(stored)
}

// Revision implements [ledger.State].
func (s state) Revision() uint64 { return s.values.Sequence() }

// Versions implements [ledger.State].
func (s state) Versions() bool { return false }

// Get implements [ledger.State].
func (s state) Get(key string) (value []byte, meta ledger.Meta, err error) {
	if stored := s.values.Get([]byte(key)); stored != nil {
		value, meta.Revision = split(stored)
	}
	return value, meta, nil
}

func (s state) revision(key string) uint64 {
	_, meta, _ := s.Get(key)
	return meta.Revision
}

// Range implements [ledger.State].
func (s state) Range(from, to string, backward bool, each func(key string, value []byte, meta ledger.Meta) bool) error {
	c := s.values.Cursor()
	begin, next := func() ([]byte, []byte) { return c.Seek([]byte(from)) }, c.Next
	if backward {
		begin, next = func() ([]byte, []byte) {
			if key, _ := c.Seek([]byte(to)); key == nil {
				return c.Last()
			}
			return c.Prev()
		}, c.Prev
	}
	for key, stored := begin(); key != nil && string(key) >= from && string(key) < to; key, stored = next() {
		if value, revision := split(stored); !each(string(key), value, ledger.Meta{Revision: revision}) {
			break
		}
	}
	return nil
}

// Since implements [ledger.State].
func (s state) Since(prefix string, revision uint64, each func(key string, revision uint64) bool) error {
	c := s.tx.Bucket([]byte(bucketChanged)).Cursor()
	of := []byte(prefix)
	for at, key := c.Seek(number(of, revision+1)); bytes.HasPrefix(at, of); at, key = c.Next() {
		if len(at) < len(of)+numberBytes || !each(string(key), binary.BigEndian.Uint64(at[len(of):])) {
			break
		}
	}
	return nil
}

func number(before []byte, n uint64) []byte {
	return binary.BigEndian.AppendUint64(bytes.Clone(before), n)
}

// changedKey is the key under which Since finds another.
func changedKey(key string, revision uint64) []byte {
	rest := strings.LastIndexByte(key, '/') + 1
	return append(number([]byte(key[:rest]), revision), key[rest:]...)
}

// apply writes what a transaction says.
func (s state) apply(t ledger.Transaction) (revision uint64, err error) {
	revision, err = s.values.NextSequence()
	changed := s.tx.Bucket([]byte(bucketChanged))
	for key, value := range t.Puts {
		name := []byte(key)
		if strings.HasPrefix(key, ledger.PrefixChanges) {
			if was := s.revision(key); was > 0 {
				err = errors.Join(err, changed.Delete(changedKey(key, was)))
			}
			if value != nil {
				err = errors.Join(err, changed.Put(changedKey(key, revision), name))
			}
		}
		if value == nil {
			err = errors.Join(err, s.values.Delete(name))
		} else {
			err = errors.Join(err, s.values.Put(name, append(number(nil, revision), value...)))
		}
	}
	if t.Erase {
		err = errors.Join(err, s.tx.Bucket([]byte(bucketMeta)).Put(keyErase, []byte{1}))
	}
	return revision, err
}
