package keys

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/internal/ledger"
	"policy-service/pdp/internal/server/auth"
)

// Shared says where the keys of a cluster are.
type Shared struct {
	// Engine has the keys and nothing else. Contact is the last moment at which its watch was known to be current.
	Engine interface {
		ledger.Engine
		Contact() time.Time
	}
	// Key is the key of the approvals. What seals the keys is derived from it.
	Key []byte
	// Stale is how long keys count after the last contact: 30 s unless it is given.
	Stale  time.Duration
	Now    func() time.Time
	Logger *slog.Logger
}

// The errors of keys in a cluster.
var (
	// ErrAway: the keys cannot be read or changed now.
	ErrAway = errors.New("the API keys in etcd cannot be used now")
	// ErrDamaged: a value was not written by a program of the cluster, or was put back.
	ErrDamaged = errors.New("the API keys in etcd are damaged")

	errOvertaken = errors.New("another command changes the keys at the same time; try again")
)

// SharedErrors are the errors of an engine for [Shared].
func SharedErrors() ledger.Errors {
	return ledger.Errors{
		Unavailable: ErrAway, Closed: ErrAway, Locked: ErrAway,
		Damaged: ErrDamaged, NotFound: errors.New("there is no such key"),
	}
}

// A key of a cluster stands under k/ID, and lastEdit changes with each change of any key: two commands at once cannot both
// go by what they read.
//
// A first value of etcd can be put again after the key was deleted (see [ledger]), so it grants nothing: a key is written
// first, and then put in force. A key that is not in force belongs to a command that goes on, or that ended. The next change
// removes it.
const (
	prefixKeys = "k/"
	lastEdit   = "n"
)

type sharedKey struct {
	storedKey
	// Order is where the key stands among all.
	Order   uint64 `json:"order"`
	InForce bool   `json:"in_force"`
}

// What is read of etcd is bounded. A writer to etcd can write as many values as there is room.
const (
	mostKeys    = 100_000
	mostDamaged = 100
	// mostAtOnce is how many keys one transaction writes.
	mostAtOnce = 40
)

// cluster is the [store] of a cluster. Callers are told apart by what was read last; Run reads again whenever the
// engine says that something has changed.
type cluster struct {
	Shared
	values *ledger.Values
	stop   func()
	come   chan struct{} // has room for one

	mu      sync.Mutex
	changes int       // that were heard of
	behind  time.Time // a moment before any that was not read, zero if all were
	read    time.Time // when the last reading began
	damaged string    // the keys that are, as they were last logged
}

// OpenSharedKeys reads the keys of a cluster.
func OpenShared(ctx context.Context, o Shared) (*Keys, error) {
	if o.Stale == 0 {
		o.Stale = 30 * time.Second
	}
	s := &cluster{Shared: o, come: make(chan struct{}, 1), behind: time.Now()}
	s.values = ledger.NewValues(o.Engine, ledger.Form{
		Items:     "the approvals (approvals.key)",
		Key:       ledger.DeriveKey(o.Key, "policy-service API keys"),
		Version:   keyFormat,
		Unmarshal: json.RejectUnknownMembers(true),
		Errors:    SharedErrors(),
	})
	s.stop = s.values.Watch(func([]string) { s.changed() })
	k := newKeys(s, o.Now)
	k.LogTo(o.Logger)
	err := s.values.Open(ctx)
	if err == nil {
		err = k.refresh()
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return k, nil
}

// Close ends the keys of a cluster. Those of a directory need no end.
func (k *Keys) Close() error { return k.store.close() }

func (s *cluster) close() error {
	s.stop()
	return s.values.Close()
}

// Run reads the keys of a cluster whenever they have changed, until its context ends.
func (k *Keys) Run(ctx context.Context) {
	s, shared := k.store.(*cluster)
	if !shared {
		return
	}
	again := time.NewTicker(checkEvery) // after a failure
	defer again.Stop()
	for {
		s.mu.Lock()
		behind := !s.behind.IsZero()
		s.mu.Unlock()
		if behind {
			_ = k.refresh() // until it succeeds, and callers are refused once it takes too long
		}
		select {
		case <-s.come:
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

// refresh reads the keys of a cluster again.
func (k *Keys) refresh() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.store.(*cluster)
	s.mu.Lock()
	changes, began := s.changes, time.Now()
	s.mu.Unlock()
	if err := k.look(k.view.Load()).err; err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.read = began; s.changes == changes {
		s.behind = time.Time{}
	}
	return nil
}

// Shared reports whether the keys are those of a cluster.
func (k *Keys) Shared() bool {
	_, shared := k.store.(*cluster)
	return shared
}

func (s *cluster) place() string { return "etcd" }

func (s *cluster) due(_, _ time.Duration) bool { return false } // see Run

func (s *cluster) keep(*snapshot) error { return nil } // no door is opened for want of keys

func (s *cluster) prover(bool) ([]byte, error) {
	return ledger.DeriveKey(s.Key, "policy-service renewals of API keys"), nil
}

func (s *cluster) changed() {
	s.mu.Lock()
	s.changes++
	if s.behind.IsZero() { // it was made after the last contact, which may be long ago
		s.behind = later(s.Engine.Contact(), s.read)
	}
	s.mu.Unlock()
	select {
	case s.come <- struct{}{}:
	default:
	}
}

// known is an error if the keys that were read are too old to count. The times are the machine's, which nobody sets.
func (s *cluster) known() error {
	contact := s.Engine.Contact()
	s.mu.Lock()
	defer s.mu.Unlock()
	contact = later(contact, s.read)
	if !s.behind.IsZero() && s.behind.Before(contact) {
		contact = s.behind
	}
	if age := time.Since(contact); age > s.Stale {
		return fmt.Errorf("%w: what is known of them is %s old, and keys_stale is %s", ErrAway, age.Round(time.Second), s.Stale)
	}
	return nil
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// look implements [store]. What was read before stays if nothing can be read; see known.
func (s *cluster) look(view *snapshot) (news bool, err error) {
	var all sharedRead
	if err := s.values.View(func(tx *ledger.Tx) { all = readShared(tx) }); err != nil {
		return false, fmt.Errorf("%w: %w", errUnread, err)
	}
	view.stored, view.damaged = all.stored(), len(all.damaged)
	if view.byID, err = indexByID(view.stored); err != nil {
		return false, err
	}
	s.report(all.damaged)
	return true, nil
}

// report logs the damaged keys when others are.
func (s *cluster) report(damaged []string) {
	is := strings.Join(damaged, ", ")
	s.mu.Lock()
	was := s.damaged
	s.damaged = is
	s.mu.Unlock()
	if is != was && is != "" {
		s.Logger.Error("keys are not in force, because their values in etcd are not those that were written; make new keys, and find out which program writes to etcd",
			"ids", is)
	}
}

// sharedRead is what etcd has.
type sharedRead struct {
	keys    []sharedKey // in force, in their order
	inert   []string    // the ids of the others
	damaged []string
	order   uint64 // the last
}

func (r *sharedRead) stored() []storedKey {
	all := make([]storedKey, len(r.keys))
	for n, key := range r.keys {
		all[n] = key.storedKey
	}
	return all
}

// readShared reads all keys. One that is damaged is not in force, and is no reason to refuse the others.
func readShared(tx *ledger.Tx) (r sharedRead) {
	var found []sharedKey
	for from, more := "", true; more; {
		more = false
		one := *tx // its error is that of one value
		for id, read := range one.Scan(prefixKeys, from) {
			var key sharedKey
			if from = ledger.After(id); !read(&key) || key.ID != id || key.check() != nil {
				r.damaged, more = append(r.damaged, id[:min(len(id), auth.MaxKeyID)]), true
				break
			}
			found = append(found, key)
			if len(found) > mostKeys {
				break
			}
		}
		if err := one.Err(); err != nil && !errors.Is(err, ErrDamaged) {
			tx.Fail(err)
			return r
		}
		if len(found) > mostKeys || len(r.damaged) > mostDamaged {
			tx.Fail(fmt.Errorf("%w: there are more than %d, or more than %d that are", ErrDamaged, mostKeys, mostDamaged))
			return r
		}
	}
	slices.SortFunc(found, func(a, b sharedKey) int {
		if a.Order != b.Order {
			return int(min(max(int64(a.Order-b.Order), -1), 1))
		}
		return strings.Compare(a.ID, b.ID)
	})
	first := map[string]string{}
	for _, key := range found {
		r.order = max(r.order, key.Order)
		switch before, renewed := first[key.Name]; {
		case !key.InForce:
			r.inert = append(r.inert, key.ID)
		case renewed && key.Renews != before, !renewed && key.Renews != "":
			r.damaged = append(r.damaged, key.ID) // that which it renews was taken away
		default:
			if !renewed {
				first[key.Name] = key.ID
			}
			r.keys = append(r.keys, key)
		}
	}
	return r
}

// mostEdits is how often an edit begins again because another one came in between.
const mostEdits = 10

// edit implements [store].
func (s *cluster) edit(k *Keys, e edit) (err error) {
	for range mostEdits {
		if err = s.editOnce(e); !errors.Is(err, errOvertaken) {
			break
		}
	}
	if err != nil {
		return err
	}
	return k.refresh()
}

func (s *cluster) editOnce(e edit) error {
	var all sharedRead
	var last string
	err := s.values.View(func(tx *ledger.Tx) {
		all = readShared(tx)
		tx.Get(lastEdit, &last)
	})
	if err != nil {
		return err
	}
	if e.missing != nil && len(all.keys) == 0 {
		return e.missing
	}
	file := document{Keys: all.stored()}
	if err := e.apply(&file); err != nil {
		return err
	}
	var ended, added []sharedKey
	for n, key := range file.Keys {
		switch {
		case n >= len(all.keys):
			added = append(added, sharedKey{storedKey: key, Order: all.order + uint64(n-len(all.keys)+1)})
		case !key.Revoked.Equal(all.keys[n].Revoked):
			is := all.keys[n]
			is.Revoked = key.Revoked
			ended = append(ended, is)
		}
	}
	write := func(keys []sharedKey, inForce bool) error {
		return inTurn(s, &last, keys, func(c *ledger.ValuesChange, key sharedKey) {
			key.InForce = inForce
			key.replace(c)
		})
	}
	if len(added) > 0 { // and keys that were never put in force go
		err = inTurn(s, &last, all.inert, func(c *ledger.ValuesChange, id string) { c.Delete(prefixKeys + id) })
		if err == nil {
			err = write(added, false)
		}
	}
	if err == nil {
		err = write(append(ended, added...), true) // of a renewal that is one transaction, unless more keys end than ever did
	}
	if errors.Is(err, ErrAway) {
		return fmt.Errorf("%w; it is not known whether the change was made: see policy-service keys list, and try again", err)
	}
	return err
}

// inTurn changes keys in transactions of mostAtOnce at most, each of which must follow the last edit.
func inTurn[T any](s *cluster, last *string, all []T, change func(*ledger.ValuesChange, T)) error {
	for some := range slices.Chunk(all, mostAtOnce) {
		next := rand.Text()
		err := s.values.Update(context.Background(), func(c *ledger.ValuesChange) {
			follows(c, *last, next)
			for _, one := range some {
				change(c, one)
			}
		})
		if err != nil {
			return err
		}
		*last = next
	}
	return nil
}

// follows makes a change the next one after another.
func follows(c *ledger.ValuesChange, last, next string) {
	var is string
	if c.Get(lastEdit, &is); is != last && c.Err() == nil {
		c.Fail(errOvertaken)
	}
	c.Put(lastEdit, next)
}

// replace writes a key in the place of the value that there is of it. One in force is never the first value of its key.
func (k sharedKey) replace(c *ledger.ValuesChange) {
	var was sharedKey
	there := c.Get(prefixKeys+k.ID, &was) > 0
	if c.Err() == nil && (there != k.InForce || there && was.SHA256 != k.SHA256) {
		c.Fail(errOvertaken)
	}
	c.Put(prefixKeys+k.ID, k)
}

// Import takes all keys of a directory, also those that ended, and returns how many there are. It is refused if there are
// others already, unless it took all of these before. After an import that ended in the middle, it takes the rest.
func (k *Keys) Import(from *Keys) (all int, err error) {
	if err := from.Err(); err != nil {
		return 0, err
	}
	prover, err := k.store.prover(true)
	if err != nil {
		return 0, err
	}
	stored := from.current().stored
	for _, key := range stored {
		if key.refused {
			return 0, fmt.Errorf("the key %q was revoked, and %s has it in force; see who changed the file, and revoke the key again", key.Name, File)
		}
	}
	err = k.store.edit(k, edit{apply: func(file *document) error {
		there, before := map[string]string{}, len(file.Keys)
		for _, key := range file.Keys {
			there[key.ID] = key.SHA256
		}
		for _, key := range stored {
			if was, is := there[key.ID]; is && was == key.SHA256 {
				delete(there, key.ID)
				continue
			}
			if key.Renews != "" {
				key.Proof = proof(prover, key)
			}
			file.Keys = append(file.Keys, key)
		}
		if len(there) > 0 && len(file.Keys) > before {
			return errors.New("the cluster has API keys of its own already; add those of the directory by policy-service keys add")
		}
		return nil
	}})
	return len(stored), err
}
