package approval

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"

	"policy-service/pdp/boltfile"
	"policy-service/pdp/keyedmutex"
)

// Store keeps approvals in a file. [Store.File] asks for one, [Store.Decide] is what a
// person says, and [Store.Reserve] takes a use of what was approved.
//
// Every change is one transaction, in which stands also what goes on record of it; it
// counts when it is there ([Store.record]). [Store.Run] does what time does, and what
// could not be done when it was due.
type Store struct {
	path     string
	upgraded *Upgraded // nil where the file was of this format, or new
	begun    bool      // by this opening
	options  Options
	key      []byte                        // of values in the file
	seals    []byte                        // the key of steps on record
	locks    keyedmutex.Mutex              // by id; whoever changes an approval holds its lock until the change is on record
	grown    atomic.Pointer[chan struct{}] // closed at the next change
	wake     chan struct{}                 // has room for one: Run has something to look at
	listeners

	writing   sync.Mutex // one transaction at a time; guards what follows
	rates     rates      // of subjects
	asking    rates      // of callers
	committed int        // the number of the last transaction
	closed    bool

	mu          sync.RWMutex // held for reading while db is in use
	db          *bbolt.DB    // nil where it could not be opened again, and unavailable says why
	memory      *memory
	unavailable error
}

// Open opens the store in a data directory, or creates it. What was in doubt when the
// last process ended is settled as far as it can be now; [Store.Run] does the rest.
func Open(data string, o Options) (*Store, error) {
	if o.Record == nil || o.Recorded == nil || o.Attest == nil || o.Steps == nil || o.Size == nil {
		return nil, errors.New("opening the approvals: there is no log to hold them against: set Record, Recorded, Attest, Steps and Size")
	}
	if len(o.Key) != 32 {
		return nil, errors.New("opening the approvals: their key is not 32 bytes long: set Key")
	}
	s := &Store{path: filepath.Join(data, FileName), options: o.withDefaults(), wake: make(chan struct{}, 1)}
	s.key, s.seals = keyOf(o.Key, keyUse), keyOf(o.Key, sealUse)
	s.rates, s.asking = newRates(s.options.Limits.NewPerMinutePerSubject), newRates(s.options.Limits.NewPerMinutePerCaller)
	grown := make(chan struct{})
	s.grown.Store(&grown)
	err := os.MkdirAll(data, 0o700)
	if err == nil {
		err = s.openDisk()
	}
	if err == nil {
		if err = s.reconcile(context.Background()); err != nil {
			err = errors.Join(err, s.letGo())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("opening the approvals: %s: %w", s.path, err)
	}
	if err := s.catchUp(context.Background()); err != nil {
		s.options.OnError(err)
	}
	return s, nil
}

// Look reads what is in a data directory as [Open] would, and changes nothing: how many
// wait for a person, and the open ones; or why Open would fail. Of a file of format 1
// it says [ErrOld].
func Look(data string, key []byte) (pending int, open []Approval, err error) {
	path := filepath.Join(data, FileName)
	if info, err := os.Stat(path); err != nil || info.Size() == 0 {
		return 0, nil, err
	}
	pending, open, err = look(path, key)
	if errors.Is(err, boltfile.ErrLocked) {
		err = ErrLocked
	}
	if err != nil {
		return 0, nil, fmt.Errorf("opening the approvals: %s: %w", path, err)
	}
	return pending, open, nil
}

// Close ends the store. What is not on record yet is put there after the next Open.
func (s *Store) Close() error {
	_ = s.strike()   // or it is looked up once more
	_ = s.advance(1) // or more of the log is
	s.writing.Lock()
	defer s.writing.Unlock()
	s.closed = true
	err := s.letGo()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unavailable = ErrClosed
	return err
}

// Changed is closed at the next change of anything.
func (s *Store) Changed() <-chan struct{} { return *s.grown.Load() }

func (s *Store) changed() {
	next := make(chan struct{})
	close(*s.grown.Swap(&next))
}

// Pending is how many wait for a person.
func (s *Store) Pending() int {
	m := s.remembered()
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pending
}

func (s *Store) remembered() *memory {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.memory
}

// now is the time as it is stored.
func (s *Store) now() time.Time { return s.options.Now().Round(0).UTC() }

// lock locks a name: the id of an approval, or the digest of a question that is being filed.
func (s *Store) lock(ctx context.Context, name string) (release func(), err error) {
	if release, err = s.locks.Lock(ctx, name); err != nil {
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return release, err
}

// locked is an approval as it is, which nobody changes before release, and with all
// its steps on record.
func (s *Store) locked(ctx context.Context, id string) (a Approval, release func(), err error) {
	if release, err = s.lock(ctx, id); err != nil {
		return a, nil, err
	}
	if err = s.ready(ctx); err == nil {
		a, err = s.read(id)
	}
	if err == nil && a.open() && !s.remembered().isLive(id) {
		err = fmt.Errorf("%w: approval %s is open, and not listed so: it was never held against the log", ErrDamaged, id)
	}
	if err == nil {
		err = s.record(ctx, id)
	}
	if err != nil {
		release()
		return Approval{}, nil, err
	}
	return a, release, nil
}

func (s *Store) read(id string) (a Approval, err error) {
	err = s.view(func(tx values) error {
		one, found, err := read(tx, id)
		if err == nil && !found {
			err = ErrNotFound
		}
		a = one
		return err
	})
	return a, err
}

// commit makes a change, and puts its steps on record: it counts when this returns nil.
func (s *Store) commit(ctx context.Context, m *move) (Approval, error) {
	err := s.update(m.write)
	if err == nil {
		s.poke()
		err = s.record(ctx, m.to.ID)
	}
	if err != nil {
		return Approval{}, err
	}
	return m.to, nil
}

// poke has Run look for what is due next.
func (s *Store) poke() {
	select {
	case s.wake <- struct{}{}:
	default: // it will look anyway
	}
}
