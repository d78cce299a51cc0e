// Package keys keeps the API keys of a data directory, or of a cluster. Start with [Open] and [OpenShared].
//
// A data directory has its keys in a file ([File]), and the marks of revocations in another ([MarksFile]). Older copies of both
// can be put back, so the records of the keys in the decision log count before them: see [Keys.FollowLog]. Only hashes are
// stored: a key is returned once, by [Keys.Add] or [Keys.Renew].
package keys

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"policy-service/pdp/internal/server/auth"
)

// Keys are the API keys of a data directory, or of a cluster. What another process changes there
// counts a moment later. All methods may be called at once.
type Keys struct {
	store store
	now   func() time.Time
	log   atomic.Pointer[slog.Logger]

	mu sync.Mutex // is held while the store is looked at
	// known is what the decision log says, nil if there is none to follow; record puts changes there. refused are the keys
	// of the store that are not in force by that, with the digests that it has of them.
	known   OnRecord
	record  func(uint64, []Event) error
	refused map[string]string
	damage  error       // of the log, as Follow was told
	named   atomic.Bool // the log names keys, or is damaged
	view    atomic.Pointer[snapshot]
}

// A look at the file is due after checkEvery, and awaited after checkAtMost:
// between the two, one request looks and the others do not wait for it. After
// checkWrong it is due for a key that matches none.
const (
	checkEvery  = 250 * time.Millisecond
	checkAtMost = 750 * time.Millisecond
	checkWrong  = 10 * time.Millisecond
)

// snapshot is what the store had at a moment.
type snapshot struct {
	at     time.Time
	info   fs.FileInfo // of the file, nil while there was never one
	byID   map[string]*key
	stored []storedKey
	// number is that of the file, and marks are beside it. older says that the file is older than they are; odd, that it was
	// when it was read last.
	number     uint64
	marks      marks
	odd, older bool
	// damaged is how many keys of a cluster are not in force because their values are not as they were written.
	damaged int
	err     error // not nil: nobody knows which keys are good
}

type key struct {
	hash    [sha256.Size]byte
	caller  auth.Caller
	info    Info
	refused bool // it is not in force, even if its file says so
}

// Open reads the keys of a data directory, which need not exist yet.
func Open(dir string) (*Keys, error) { return OpenAt(dir, time.Now) }

func OpenAt(dir string, now func() time.Time) (*Keys, error) {
	k := newKeys(directory(dir), now)
	if err := k.Err(); err != nil {
		return nil, err
	}
	return k, nil
}

func newKeys(store store, now func() time.Time) *Keys {
	k := &Keys{store: store, now: now}
	k.LogTo(slog.New(slog.DiscardHandler))
	k.view.Store(&snapshot{})
	return k
}

// LogTo says where to log that the file has become unreadable, or readable again.
func (k *Keys) LogTo(log *slog.Logger) { k.log.Store(log) }

// Err says why no key can be told from another, if that is so.
func (k *Keys) Err() error {
	if err := k.current().err; err != nil {
		return err
	}
	if s, shared := k.store.(*cluster); shared {
		return s.known()
	}
	return nil
}

// Damage says why the keys of a directory are not as they were left, although it is known which are in force. It is nil if
// they are.
func (k *Keys) Damage() error {
	view := k.current()
	k.mu.Lock()
	defer k.mu.Unlock()
	if view.older {
		return errors.Join(k.damage, fmt.Errorf("%s is of change %d of the keys, and %s of change %d: an older file was put back, or a command was killed; "+
			"what is marked as revoked stays revoked, and the next change of a key writes both again", File, view.number, MarksFile, view.marks.number))
	}
	return k.damage
}

// Number returns the number of the change that wrote the marks; in a cluster it is 0.
func (k *Keys) Number() uint64 { return k.current().marks.number }

// errUnread: the store could not be read.
var errUnread = errors.New("the API keys cannot be read")

// Configured reports whether a key was ever added, be it revoked by now. It
// holds as well where the file has become unreadable, or is gone and the log names keys: that must not open a door.
func (k *Keys) Configured() bool {
	view := k.current()
	return k.named.Load() || view.info != nil || view.err != nil || k.Shared() && len(view.stored)+view.damaged > 0
}

// Find implements [auth.KeyHolders].
func (k *Keys) Find(id string, hash [sha256.Size]byte) (auth.Caller, error) {
	found, now := k.match(id, hash), k.now()
	switch {
	case found == nil || found.refused:
		return auth.Caller{}, auth.ErrUnauthenticated
	case !found.info.Ended(now):
		return found.caller, nil
	}
	info := found.info
	info.Expires = time.Time{}
	if info.Ended(now) {
		return auth.Caller{}, auth.ErrUnauthenticated
	}
	return auth.Caller{}, auth.ErrExpired
}

// Holds implements [auth.KeyHolders].
func (k *Keys) Holds(tenant, name string, p auth.Permission) bool {
	err := k.Err()
	if err != nil && k.Shared() { // a vote that lapses is lost, so etcd is asked
		err = k.refresh()
	}
	view := k.current()
	return err == nil && slices.ContainsFunc(view.stored, func(s storedKey) bool {
		return s.Name == name && !s.refused && !s.Ended(k.now()) && s.Lets(tenant, p)
	})
}

// Approvers implements [auth.KeyHolders]. While it is not known which keys are in force, there are none.
func (k *Keys) Approvers(tenant string) (all []auth.Caller) {
	view := k.current()
	if view.err != nil {
		return nil
	}
	for _, s := range view.stored {
		if found := view.byID[s.ID]; !found.refused && !s.Ended(k.now()) && s.Lets(tenant, auth.Approve) && s.Principal != (auth.Principal{}) {
			all = append(all, found.caller)
		}
	}
	slices.SortFunc(all, func(a, b auth.Caller) int { return cmp.Compare(a.Name, b.Name) })
	return slices.CompactFunc(all, func(a, b auth.Caller) bool { return a.Name == b.Name }) // one that is renewed has two secrets
}

// match is the key of an id and a hash, in force or not, or nil. An unknown id costs the same work as a wrong key, so that
// the time taken says nothing about ids. What matches no key may be one that a command has just added.
func (k *Keys) match(id string, hash [sha256.Size]byte) *key {
	if found := k.matchIn(k.current(), id, hash); found != nil {
		return found
	}
	return k.matchIn(k.newest(), id, hash)
}

func (k *Keys) matchIn(view *snapshot, id string, hash [sha256.Size]byte) *key {
	found, known := view.byID[id]
	if known = known && (!k.Shared() || k.Err() == nil); !known {
		found = &nobody
	}
	if equal := subtle.ConstantTimeCompare(hash[:], found.hash[:]) == 1; !equal || !known {
		return nil
	}
	return found
}

var nobody key

// current is the view of at most a moment ago.
func (k *Keys) current() *snapshot {
	view := k.view.Load()
	if !k.stale(view, checkEvery) {
		return view
	}
	if !k.mu.TryLock() {
		if age := k.now().Sub(view.at); 0 <= age && age < checkAtMost {
			return view
		}
		k.mu.Lock()
	}
	defer k.mu.Unlock()
	if view = k.view.Load(); k.stale(view, checkEvery) {
		view = k.look(view)
	}
	return view
}

// newest is the view of now, but for a few milliseconds: many wrong keys are no reason to look each time.
func (k *Keys) newest() *snapshot {
	k.mu.Lock()
	defer k.mu.Unlock()
	view := k.view.Load()
	if k.stale(view, checkWrong) {
		view = k.look(view)
	}
	return view
}

// stale holds as well where the clock went backwards.
func (k *Keys) stale(view *snapshot, every time.Duration) bool {
	return k.store.due(k.now().Sub(view.at), every)
}

// look reads the store where it is not what it was in the view before.
func (k *Keys) look(before *snapshot) *snapshot {
	view := &snapshot{}
	*view = *before
	view.at = k.now() // before looking: what changes meanwhile is seen next time
	news, err := k.store.look(view)
	if errors.Is(err, errUnread) { // what was read before counts on
		view.err = err
		return view
	}
	if err == nil && news {
		if err = k.vouch(view); err != nil {
			err = fmt.Errorf("nobody knows which of the API keys in %s count: %w; see to the disk of the data directory", k.store.place(), err)
		}
	}
	if err != nil {
		view.byID = nil
	}
	view.err = err
	k.report(before.err, err)
	k.view.Store(view)
	return view
}

// report logs changes, not states: a broken file is one line, not one a request.
func (k *Keys) report(before, now error) {
	switch log := k.log.Load(); {
	case now != nil && (before == nil || before.Error() != now.Error()):
		log.Error("every caller is refused until the API keys can be read", "error", now)
	case now == nil && before != nil:
		log.Info("the API keys can be read again")
	}
}
