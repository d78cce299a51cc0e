// Package requests keeps what somebody has requested until somebody else takes it, once, and what came of it.
//
// Begin with [New] and [Table.File]. [Table.Find] finds an [Entry] by its id; of all who want it [Entry.Claim] lets one have it,
// and whoever waits for what comes of it hears of that by [Entry.Over] and [Entry.Answer].
//
// An entry goes one way: it is pending, then claimed, then over; or it is pending, and its time is up. Nothing leads back: what
// was claimed may have been done, whatever became of who did it. Where there is no room for what came of it, the table still knows
// for as long that it is over ([Table.Spent]): whoever comes for it must not believe that nobody has done it. The package has no
// network and no clock of its own, and does not know what is requested, or who may have it.
package requests

import (
	"cmp"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"time"
)

// Options are what a [Table] is made with. All are needed.
type Options struct {
	// TTL is how long an entry waits, and how long what came of it is kept.
	TTL time.Duration
	// Most is how many entries wait, and Each how many of one owner. As many are kept of which something came, and four times
	// Most of which no more is known than that they are over.
	Most, Each int
	// Bytes is how large all that is kept may be: what waits has half of it, of which one owner may have an eighth, and that of
	// which something came the other half, of which one owner may have a quarter. Neither takes the room of the other.
	Bytes int
	Now   func() time.Time
}

// spentTimes is how many times as many entries may be spent as may wait.
const spentTimes = 4

// Why nothing more is taken.
var (
	ErrFull = errors.New("too much waits already")
	ErrOwn  = errors.New("too much of this owner waits already")
)

// Table has entries about Q, of each of which an A comes.
type Table[Q, A any] struct {
	o Options

	mu       sync.Mutex // guards what follows, and what entries have
	all      map[string]*Entry[Q, A]
	owners   map[string]account
	together account
	kept     int // counts what was kept, so that the oldest is known
	filed    int // counts what was filed
}

// account is what an owner has, or all.
type account struct{ open, over, spent pile }

// pile is how many entries there are, and how large they are.
type pile struct{ number, bytes int }

// of is the pile of those of a state.
func (a *account) of(s state) *pile {
	switch s {
	case over:
		return &a.over
	case spent:
		return &a.spent
	default:
		return &a.open
	}
}

type state uint8

const (
	pending state = iota
	claimed
	over
	spent // over, and nothing else of it is kept
	gone  // its time is up
)

// Entry is one thing that was requested. [Table.File] makes it.
type Entry[Q, A any] struct {
	ID, Owner string
	// Number is higher than that of every entry before.
	Number int
	Asked  Q

	table    *Table[Q, A]
	finished chan struct{}
	state    state
	ends     time.Time
	size     int
	answer   A
	answered bool
	kept     int
}

// New makes a table of nothing.
func New[Q, A any](o Options) *Table[Q, A] {
	return &Table[Q, A]{o: o, all: map[string]*Entry[Q, A]{}, owners: map[string]account{}}
}

// File keeps something that somebody requests, of a size in bytes.
func (t *Table[Q, A]) File(owner string, asked Q, size int) (*Entry[Q, A], error) {
	t.Sweep()
	t.mu.Lock()
	defer t.mu.Unlock()
	half := t.o.Bytes / 2
	own := t.owners[owner].open
	if own.number >= t.o.Each || own.bytes+size > half/8 {
		return nil, ErrOwn
	}
	if t.together.open.number >= t.o.Most || t.together.open.bytes+size > half {
		return nil, ErrFull
	}
	t.filed++
	e := &Entry[Q, A]{ID: rand.Text(), Owner: owner, Number: t.filed, Asked: asked, table: t, finished: make(chan struct{}), ends: t.o.Now().Add(t.o.TTL), size: size}
	t.put(e)
	return e, nil
}

// Find is the entry of that id, nil if there is none, or none any longer.
func (t *Table[Q, A]) Find(id string) *Entry[Q, A] {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.all[id]
	if e == nil || e.state == spent || e.state != claimed && !t.o.Now().Before(e.ends) { // what is claimed lasts until something comes of it
		return nil
	}
	return e
}

// Pending are the entries with a higher number that somebody can have, in the order in which they were filed.
func (t *Table[Q, A]) Pending(after int) (all []*Entry[Q, A]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.all {
		if e.Number > after && e.pending() {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b *Entry[Q, A]) int { return cmp.Compare(a.Number, b.Number) })
	return all
}

// Spent reports whether the entry of that id is over, and what came of it is not kept, and whose it is.
func (t *Table[Q, A]) Spent(id string) (owner string, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.all[id]
	if e == nil || e.state != spent || !t.o.Now().Before(e.ends) {
		return "", false
	}
	return e.Owner, true
}

// Open is how many entries wait, or are being done.
func (t *Table[Q, A]) Open() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.together.open.number
}

// Sweep has everything go whose time is up.
func (t *Table[Q, A]) Sweep() {
	now := t.o.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.all {
		if e.state != claimed && !now.Before(e.ends) {
			t.drop(e)
		}
	}
}

// Over is closed once nothing more comes of the entry.
func (e *Entry[Q, A]) Over() <-chan struct{} { return e.finished }

// Answer is what came of it. It is not ok if nothing did.
func (e *Entry[Q, A]) Answer() (a A, ok bool) {
	e.table.mu.Lock()
	defer e.table.mu.Unlock()
	return e.answer, e.answered
}

// Ends is when its time is up.
func (e *Entry[Q, A]) Ends() time.Time {
	e.table.mu.Lock()
	defer e.table.mu.Unlock()
	return e.ends
}

// Claimed reports whether somebody has it, and nothing came of it yet. For that there is no time.
func (e *Entry[Q, A]) Claimed() bool {
	e.table.mu.Lock()
	defer e.table.mu.Unlock()
	return e.state == claimed
}

// Pending reports whether somebody can have it.
func (e *Entry[Q, A]) Pending() bool {
	e.table.mu.Lock()
	defer e.table.mu.Unlock()
	return e.pending()
}

func (e *Entry[Q, A]) pending() bool {
	return e.state == pending && e.table.o.Now().Before(e.ends)
}

// Claim is that somebody has an entry, and nobody else. It must come to an end: by Finish, or by Fail.
type Claim[Q, A any] struct{ of *Entry[Q, A] }

// Claim lets one have the entry, of all who ever want it.
func (e *Entry[Q, A]) Claim() (c Claim[Q, A], ok bool) {
	t := e.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if !e.pending() {
		return c, false
	}
	e.state = claimed
	return Claim[Q, A]{e}, true
}

// Finish is what came of it, of a size in bytes. Of several ends the first counts.
func (c Claim[Q, A]) Finish(a A, size int) {
	e, t := c.of, c.of.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.state != claimed {
		return
	}
	t.take(e)
	t.kept++
	e.state, e.answer, e.answered, e.kept = over, a, true, t.kept
	e.ends, e.size = t.o.Now().Add(t.o.TTL), e.size+size
	t.put(e)
	close(e.finished)
	t.makeRoom(e) // whoever waits has it in any case
}

// Fail is that nothing came of it, and why.
func (c Claim[Q, A]) Fail(why A) { c.Finish(why, 0) }

// makeRoom makes room for what came of an entry by what was kept for longest: of its owner, if that has too much, and else of who
// has most. The caller holds the lock.
func (t *Table[Q, A]) makeRoom(e *Entry[Q, A]) {
	half := t.o.Bytes / 2
	if e.size > half/4 {
		t.spend(e)
	}
	for {
		own := t.owners[e.Owner].over
		switch {
		case own.bytes > half/4, own.number > t.o.Each:
			t.spend(t.oldest(e.Owner, over))
		case t.together.over.bytes > half, t.together.over.number > t.o.Most:
			t.spend(t.oldest(t.largest(over), over))
		default:
			return
		}
	}
}

// spend keeps of an entry no more than that it is over. Whoever has the entry has its answer.
func (t *Table[Q, A]) spend(e *Entry[Q, A]) {
	t.take(e)
	t.put(&Entry[Q, A]{ID: e.ID, Owner: e.Owner, table: t, state: spent, ends: e.ends, kept: e.kept})
	for t.together.spent.number > spentTimes*t.o.Most {
		t.drop(t.oldest(t.largest(spent), spent))
	}
}

// largest is the owner who has most of a state.
func (t *Table[Q, A]) largest(s state) (owner string) {
	most := pile{}
	for one, a := range t.owners {
		p := *a.of(s)
		if c := cmp.Or(cmp.Compare(p.bytes, most.bytes), cmp.Compare(p.number, most.number)); c > 0 || c == 0 && p.number > 0 && one < owner {
			owner, most = one, p
		}
	}
	return owner
}

// oldest is what was kept of an owner for longest, of those of a state.
func (t *Table[Q, A]) oldest(owner string, s state) (oldest *Entry[Q, A]) {
	for _, e := range t.all {
		if e.Owner == owner && e.state == s && (oldest == nil || e.kept < oldest.kept) {
			oldest = e
		}
	}
	return oldest
}

// drop has an entry go that nobody has claimed, or of which something came.
func (t *Table[Q, A]) drop(e *Entry[Q, A]) {
	t.take(e)
	if e.state == pending {
		close(e.finished)
	}
	e.state = gone
}

// put has an entry be in the table, as what it is now, and take has it be there no longer.
func (t *Table[Q, A]) put(e *Entry[Q, A]) {
	t.all[e.ID] = e
	t.count(e, 1)
}

func (t *Table[Q, A]) take(e *Entry[Q, A]) {
	delete(t.all, e.ID)
	t.count(e, -1)
}

// count counts an entry, or no longer. Who has nothing is forgotten.
func (t *Table[Q, A]) count(e *Entry[Q, A], n int) {
	own := t.owners[e.Owner]
	for _, a := range []*account{&own, &t.together} {
		p := a.of(e.state)
		p.number, p.bytes = p.number+n, p.bytes+n*e.size
	}
	if t.owners[e.Owner] = own; own == (account{}) {
		delete(t.owners, e.Owner)
	}
}
