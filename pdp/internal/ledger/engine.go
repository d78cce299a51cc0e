package ledger

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// Engine keeps values by their keys. A value has a revision, the number of the transaction that wrote it. Revisions
// only grow.
type Engine interface {
	// Open opens the engine, or begins a new one.
	Open() error
	Close() error
	// Ready opens again what had to be closed after a failure.
	Ready() error
	// View runs a function on one consistent state. An error of the function is that of View. What the function keeps of
	// values must be copied.
	View(read func(State) error) error
	// Write makes a transaction, durably, and returns its revision. If a key has not the revision that the transaction
	// says, nothing happened, and the error is [ErrConflict]. After any other error it may have happened or not, or happen later.
	Write(Transaction) (revision uint64, err error)
	// Erase leaves no byte of what transactions with Erase took away.
	Erase() error
	// Shared reports whether there are other processes that write. Watch calls a function with the keys of each transaction
	// that another one makes, until stop; with nil if it does not know them any more. The function must be quick.
	Shared() bool
	Watch(changed func(keys []string)) (stop func())
}

// Copier is an engine that can hand out all its values as of one moment, in a file that can be opened in place of its own.
type Copier interface {
	Copy() (*os.File, error)
}

// Copy is a [Copier]'s copy of all values, with the changes that were made before the call.
func (l *Ledger[I, S]) Copy() (*os.File, error) {
	engine, can := l.engine.(Copier)
	if !can {
		return nil, fmt.Errorf("%w: the engine makes no copies", ErrInvalid)
	}
	return engine.Copy()
}

// State is one consistent state of an engine.
type State interface {
	// Revision is that of the last transaction.
	Revision() uint64
	// Versions reports whether values have versions.
	Versions() bool
	// Get reads a value. Of a key without one the revision is 0.
	Get(key string) (value []byte, meta Meta, err error)
	// Range goes through the keys from one up to another, which is not among them, until the function returns false. If it
	// goes backward, the last comes first.
	Range(from, to string, backward bool, each func(key string, value []byte, meta Meta) bool) error
	// Since goes through the keys that begin with a prefix c/WHOSE/, and have a later revision, in the order of revisions.
	Since(prefix string, revision uint64, each func(key string, revision uint64) bool) error
}

// Meta is the part of a stored value that an engine gives it.
type Meta struct {
	// Revision is that of the transaction that wrote it.
	Revision uint64
	// Version is 1 for the first value of a key, and one more for each later one, until the key is deleted. Created is the
	// revision of the first. Both are 0 if the engine has no versions: only this process writes to it then.
	Version, Created uint64
}

// PrefixChanges begins the keys that [State.Since] goes through.
const PrefixChanges = "c/"

// Transaction is what [Engine.Write] does, as a whole or not at all.
type Transaction struct {
	// If are the revisions that keys must have, by key; 0 is that of a key without a value.
	If map[string]uint64
	// Puts are the values to be written, by key; nil removes a value.
	Puts  map[string][]byte
	Erase bool // see [Engine.Erase]
	// KeepFor is how long the values are kept at least, by the clock of the engine; 0 is for good. An engine that has no
	// clock of its own keeps them.
	KeepFor time.Duration
}

// KeepFor lets an engine with its own clock remove what the change puts, but not before the least time has passed.
func (c *Change[S]) KeepFor(least time.Duration) { c.t.KeepFor = least }

// A transaction has no more than so many keys, and so many bytes. So it fits in any engine.
const (
	MostKeys  = 64
	MostBytes = 512 << 10
)

var (
	// ErrConflict: another change came in between.
	ErrConflict = errors.New("another change came in between")
	// ErrTooMuch: the transaction is larger than a transaction may be.
	ErrTooMuch = fmt.Errorf("%w: the change is too large", ErrInvalid)
)

// Fits refuses a transaction with too many keys or bytes. Each engine asks it first.
func (t *Transaction) Fits() error {
	keys, bytes := len(t.If), 0
	for key, value := range t.Puts {
		if _, known := t.If[key]; !known {
			keys++
		}
		bytes += len(key) + len(value)
	}
	if keys > MostKeys || bytes > MostBytes {
		return fmt.Errorf("%w: it has %d keys and %d bytes, and %d and %d are the most",
			ErrTooMuch, keys, bytes, MostKeys, MostBytes)
	}
	return nil
}
