package ledger

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"go.etcd.io/bbolt"

	"policy-service/pdp/boltfile"
	"policy-service/pdp/plainfile"
)

// The buckets that every ledger has. A time in a key is eight bytes of nanoseconds since 1970, big-endian.
const (
	BucketMeta = "meta" // KeyFormat → the number of the format
	KeyFormat  = "format"
	keyErase   = "erase" // → true, if the file is to be written anew

	BucketDue      = "due"      // Ends, id → true, of each open item
	bucketEnded    = "ended"    // Ends, id → true, of each item that ended
	bucketReserved = "reserved" // id → true, of each item with a reservation that is not settled
	bucketOutbox   = "outbox"   // number → a step that may not be on record yet, in the order of steps
)

// Form is what a ledger's file is.
type Form struct {
	Path string
	// Key seals values. A value that was not written with it counts for nothing.
	Key []byte
	// Version is the number of the format. A program refuses a number that it does not know.
	Version int
	// Buckets are the owner's buckets, and Items is the one of them that has the items, by their ids.
	Buckets []string
	Items   string
	// Marshal and Unmarshal are how values are written.
	Marshal   json.Options
	Unmarshal json.Options
	Errors    Errors
}

// Errors are the owner's errors, in the words of its users.
type Errors struct {
	// Unavailable: nothing can be written now, or not even read.
	Unavailable error
	Closed      error
	// Locked: another process has the file.
	Locked   error
	Damaged  error
	NotFound error
}

// The errors that need no words of the owner.
var (
	// ErrUnrecorded: the change is not on record yet, and counts for nothing until it is.
	ErrUnrecorded = errors.New("the step is not on record yet")
	// ErrShort: the log is shorter than the file says.
	ErrShort = errors.New("the log was cut, or an older copy of it put in its place")
	// ErrInvalid: the change can never be made, whenever it is tried.
	ErrInvalid = errors.New("not valid")
)

func (f *Form) buckets() []string {
	return append([]string{BucketMeta, BucketDue, bucketEnded, bucketReserved, bucketOutbox}, f.Buckets...)
}

func (f *Form) guard(do func() error) error { return boltfile.Guard(f.Errors.Damaged, do) }

func (f *Form) view(db *bbolt.DB, read func(*Tx)) error {
	return f.guard(func() error { return db.View(f.in(read)) })
}

// connect opens the file with bbolt.
func (f *Form) connect(use boltfile.Use, wait time.Duration) (*bbolt.DB, error) {
	db, err := boltfile.Open(f.Path, f.Errors.Damaged, use, bbolt.Options{Timeout: wait})
	if errors.Is(err, boltfile.ErrLocked) {
		err = f.Errors.Locked
	}
	return db, err
}

// Examine reads a file as it is, and changes nothing. It does not read an empty file, and does not wait for another
// process that has the file.
func Examine(f Form, read func(*Tx)) error {
	info, err := os.Stat(f.Path)
	if err != nil || info.Size() == 0 {
		return err
	}
	db, err := f.connect(boltfile.ToExamine, 100*time.Millisecond)
	if err == nil {
		err = errors.Join(f.view(db, read), boltfile.Close(db, f.Errors.Damaged))
	}
	return f.opening(err)
}

func (f *Form) opening(err error) error {
	if err != nil {
		err = fmt.Errorf("opening the %s: %s: %w", f.Items, f.Path, err)
	}
	return err
}

// Format is the number of the file's format, and 0 of a file that nothing is in yet: a crash may have left it so. If
// this program does not know how to read the file, the transaction fails.
func (tx *Tx) Format() (number int) {
	known := tx.form
	if name, _ := tx.bolt.Cursor().First(); name == nil {
		return 0
	}
	for _, name := range known.buckets() {
		if tx.bolt.Bucket([]byte(name)) == nil {
			tx.Fail(fmt.Errorf("%w: it has no bucket %s", known.Errors.Damaged, name))
			return 0
		}
	}
	if !tx.Get(BucketMeta, []byte(KeyFormat), &number) {
		tx.err = fmt.Errorf("%w: it does not say what its format is: %w", known.Errors.Damaged, tx.err)
	} else if number != known.Version {
		tx.Fail(fmt.Errorf("its format is version %d, and this program knows version %d only: use the program that wrote it",
			number, known.Version))
	}
	return number
}

// file is the open file.
type file struct {
	form Form
	// load reads the part of the file that is kept in memory.
	load func(*Tx)

	writing   sync.Mutex // one transaction at a time; guards what follows
	committed int        // the number of the last transaction

	mu          sync.RWMutex // held for reading while db is in use
	db          *bbolt.DB    // nil if it could not be opened again, and unavailable says why
	unavailable error
}

// open opens the file, checks it, and has it loaded. The writer alone opens and closes.
func (f *file) open() error {
	db, err := f.form.connect(boltfile.ToWrite, 2*time.Second) // the process that has it may be ending
	if err != nil {
		return err
	}
	if err = os.Chmod(f.form.Path, 0o600); err == nil {
		err = f.prepare(db)
	}
	if err == nil {
		err = f.form.view(db, func(tx *Tx) {
			if tx.bolt.ID() < f.committed {
				tx.Fail(fmt.Errorf("%w: it has lost what was written to it", f.form.Errors.Damaged))
				return
			}
			f.committed = tx.bolt.ID()
			f.load(tx)
		})
	}
	if err != nil {
		_ = boltfile.Close(db, f.form.Errors.Damaged)
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.db, f.unavailable = db, nil
	return nil
}

// prepare makes the buckets of a new file. Otherwise it writes nothing, so that a file can be read while the disk is full.
func (f *file) prepare(db *bbolt.DB) error {
	number := 0
	err := f.form.view(db, func(tx *Tx) { number = tx.Format() })
	if err != nil || number == f.form.Version {
		return err
	}
	err = f.form.guard(func() error { return db.Update(f.form.in((*Tx).begin)) })
	return errors.Join(err, plainfile.SyncDir(filepath.Dir(f.form.Path)))
}

// letGo closes the file, whatever state it is in, once no reader is left. From then on the reason is the error.
func (f *file) letGo(reason error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	db := f.db
	f.db, f.unavailable = nil, reason
	if db == nil {
		return nil
	}
	return boltfile.Close(db, f.form.Errors.Damaged)
}

func (f *file) close() error {
	f.writing.Lock()
	defer f.writing.Unlock()
	return f.letGo(f.form.Errors.Closed)
}

// view runs a function in a transaction that reads, with what is in memory as it is then or later.
func (f *file) view(read func(*Tx)) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.db == nil {
		return f.unavailable
	}
	return f.form.view(f.db, read)
}

// update runs write in a transaction, and committed when that is durable. An error of write is the caller's, and
// nothing happened. After any other error the file is closed, opened and read again: a file whose sync failed can say
// one thing from the page cache and hold another on disk.
func (f *file) update(write func(*Tx), committed func()) error {
	f.writing.Lock()
	defer f.writing.Unlock()
	if err := f.usable(); err != nil {
		return err
	}
	var refused error
	err := f.form.guard(func() error {
		tx, err := f.db.Begin(true)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // nothing if it was committed
		if refused = f.form.in(write)(tx); refused != nil {
			return nil
		}
		id := tx.ID()
		if err := tx.Commit(); err != nil {
			return err
		}
		f.committed = id
		committed()
		return nil
	})
	if err == nil {
		return refused
	}
	err = fmt.Errorf("%w: %s: %w", f.form.Errors.Unavailable, f.form.Path, err)
	_ = f.letGo(err) // it failed already
	boltfile.DropCache(f.form.Path)
	_ = f.usable() // or the next one opens it
	return err
}

// NewSuffix ends the name of a file that is to take the place of a ledger's.
const NewSuffix = ".new"

// erase writes the file anew if [Change.Erase] asked for that: bbolt keeps the bytes of what is gone in pages that it
// calls free, and only a file that they were never written to is without them. After a crash either file is there,
// whole, and the old one still says that it is to be written anew.
func (f *file) erase() error {
	f.writing.Lock()
	defer f.writing.Unlock()
	if err := f.usable(); err != nil {
		return err
	}
	wanted := false
	err := f.form.view(f.db, func(tx *Tx) { tx.Get(BucketMeta, []byte(keyErase), &wanted) })
	if err != nil || !wanted {
		return err
	}
	if err := f.form.guard(f.replace); err != nil {
		return fmt.Errorf("%w: %s cannot be written anew, and has what was to go: %w", f.form.Errors.Unavailable, f.form.Path, err)
	}
	return nil
}

// replace puts a copy in the place of the file. The copy is locked before it has the file's name.
func (f *file) replace() (err error) {
	name := f.form.Path + NewSuffix
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	db, err := boltfile.Open(name, f.form.Errors.Damaged, boltfile.ToWrite,
		bbolt.Options{NoSync: true, PageSize: f.db.Info().PageSize})
	if err != nil {
		return err
	}
	if err = bbolt.Compact(db, f.db, 1<<20); err == nil {
		err = db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte(BucketMeta)).Delete([]byte(keyErase)) })
	}
	if err == nil {
		err = db.Sync()
	}
	if db.NoSync = false; err == nil {
		err = os.Rename(name, f.form.Path)
	}
	if err != nil {
		return errors.Join(err, boltfile.Close(db, f.form.Errors.Damaged), os.Remove(name))
	}
	f.mu.Lock()
	old := f.db
	f.db = db
	f.mu.Unlock()
	return errors.Join(
		f.form.view(db, func(tx *Tx) { f.committed = tx.bolt.ID() }),
		boltfile.Close(old, f.form.Errors.Damaged),
		plainfile.SyncDir(filepath.Dir(f.form.Path)))
}

// ready opens the file again if that did not go well before.
func (f *file) ready() error {
	f.mu.RLock()
	open := f.db != nil
	f.mu.RUnlock()
	if open {
		return nil
	}
	f.writing.Lock()
	defer f.writing.Unlock()
	return f.usable()
}

// usable opens the file again if it was closed after a failure. It returns the error with which everything is refused
// if that does not go well. What Close closed stays closed.
func (f *file) usable() error {
	if f.db != nil || errors.Is(f.unavailable, f.form.Errors.Closed) {
		return f.unavailable
	}
	err := f.open()
	if err != nil {
		err = fmt.Errorf("%w: %s: %w", f.form.Errors.Unavailable, f.form.Path, err)
		_ = f.letGo(err)
	}
	return err
}
