// Package requests keeps a request of one person until another takes it, once, and then its result.
//
// Begin with [New] and [Table.File]. [Table.Find] finds an [Entry] by its id. [Entry.Claim] gives it to one caller alone;
// others wait for the result by [Entry.Over] and [Entry.Answer].
//
// An entry goes one way: it is pending, then claimed, then over; or it is pending, and its time is up. Nothing leads back: a
// claimed request may have been executed, even if its claimant failed. Where there is no room for a result, the table still
// knows for as long that the entry is over ([Table.Spent]), so that no later caller takes it for one that was never executed.
// The package has no network and no clock of its own. It knows neither the requests nor the rights of persons.
package requests

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"time"
)

// Options are those of a [Table]. All are needed.
type Options struct {
	// TTL is how long an entry waits, and how long its result is kept.
	TTL time.Duration
	// Most is how many entries wait, and Each how many of one owner. As many results are kept. Four times Most are the entries
	// that are known to be over without their results.
	Most, Each int
	// Bytes bounds the size of all entries. Half of it is for those that wait, and an eighth of that half for one owner. The
	// other half is for results, and a quarter of it for one owner. Neither takes the room of the other.
	Bytes int
	Now   func() time.Time
}

// The errors of [Table.File].
var (
	ErrFull = errors.New("too much waits already")
	ErrOwn  = errors.New("too much of this owner waits already")
)

// Table has entries with requests Q and results A.
type Table[Q, A any] struct {
	o Options

	mu       sync.Mutex // guards the rest, and the rest of entries
	all      map[string]*Entry[Q, A]
	owners   map[string]account
	together account
	kept     int // counts results, so that the oldest is known
	filed    int // counts entries
}

// account counts the entries of an owner, or all, by their states.
type account [gone]pile

// pile is a number of entries, and their size.
type pile struct{ number, bytes int }

// of is the pile of entries in a state. Those that are claimed are among the pending ones.
func (a *account) of(s state) *pile {
	if s == claimed {
		s = pending
	}
	return &a[s]
}

type state uint8

const (
	pending state = iota
	claimed
	over
	spent // over, and its result is not kept
	gone  // its time is up
)

// Entry is one request. [Table.File] makes it.
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
	// elsewhere is set if another process has claimed it. Then its time can be up.
	elsewhere bool
}

// New makes an empty table.
func New[Q, A any](o Options) *Table[Q, A] {
	return &Table[Q, A]{o: o, all: map[string]*Entry[Q, A]{}, owners: map[string]account{}}
}

// File adds a request of an owner, of a size in bytes. Its id must be new.
func (t *Table[Q, A]) File(id, owner string, asked Q, size int) (*Entry[Q, A], error) {
	t.Sweep()
	t.mu.Lock()
	defer t.mu.Unlock()
	half := t.o.Bytes / 2
	own := t.owners[owner][pending]
	if own.number >= t.o.Each || own.bytes+size > half/8 {
		return nil, ErrOwn
	}
	if t.together[pending].number >= t.o.Most || t.together[pending].bytes+size > half {
		return nil, ErrFull
	}
	return t.add(id, owner, asked, size, t.o.Now().Add(t.o.TTL)), nil
}

// Bring adds an entry that another process has filed, if it is not here.
func (t *Table[Q, A]) Bring(id, owner string, asked Q, size int, ends time.Time) (*Entry[Q, A], error) {
	t.Sweep()
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.all[id]
	switch {
	case e != nil && e.state != spent:
		return e, nil
	case t.together[pending].number >= t.o.Most || t.together[pending].bytes+size > t.o.Bytes/2:
		return nil, ErrFull
	case e != nil:
		t.take(e)
	}
	return t.add(id, owner, asked, size, ends), nil
}

func (t *Table[Q, A]) add(id, owner string, asked Q, size int, ends time.Time) *Entry[Q, A] {
	t.filed++
	e := &Entry[Q, A]{ID: id, Owner: owner, Number: t.filed, Asked: asked, table: t, finished: make(chan struct{}), ends: ends, size: size}
	t.put(e)
	return e
}

// Find is the entry of that id, nil if there is none, or none any longer.
func (t *Table[Q, A]) Find(id string) *Entry[Q, A] {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.all[id]
	if e == nil || e.state == spent || !e.lasts() && !t.o.Now().Before(e.ends) {
		return nil
	}
	return e
}

// Pending are the entries with a higher number that wait, in the order in which they were filed.
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

// Spent reports whether the entry of that id is over without a result that is kept, and its owner.
func (t *Table[Q, A]) Spent(id string) (owner string, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.all[id]
	if e == nil || e.state != spent || !t.o.Now().Before(e.ends) {
		return "", false
	}
	return e.Owner, true
}

// Open is how many entries are pending or claimed.
func (t *Table[Q, A]) Open() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.together[pending].number
}

// Sweep drops all entries whose time is up.
func (t *Table[Q, A]) Sweep() {
	now := t.o.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.all {
		if !e.lasts() && !now.Before(e.ends) {
			t.drop(e)
		}
	}
}

// Over is closed when the entry is over, or its time is up.
func (e *Entry[Q, A]) Over() <-chan struct{} { return e.finished }

// Answer is the result. It is not ok if there is none.
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

// Claimed reports whether the entry is claimed and has no result yet. A claim has no time limit.
func (e *Entry[Q, A]) Claimed() bool {
	e.table.mu.Lock()
	defer e.table.mu.Unlock()
	return e.state == claimed
}

// Pending reports whether the entry can be claimed.
func (e *Entry[Q, A]) Pending() bool {
	e.table.mu.Lock()
	defer e.table.mu.Unlock()
	return e.pending()
}

func (e *Entry[Q, A]) pending() bool {
	return e.state == pending && e.table.o.Now().Before(e.ends)
}

// lasts reports whether the entry lasts until it has a result: it is claimed here.
func (e *Entry[Q, A]) lasts() bool { return e.state == claimed && !e.elsewhere }

// Elsewhere says that another process has claimed the entry, and until when its result may come. The returned claim sets the
// result here. Own is set if the entry is claimed here instead.
func (e *Entry[Q, A]) Elsewhere(until time.Time) (c Claim[Q, A], own bool) {
	e.table.mu.Lock()
	defer e.table.mu.Unlock()
	if e.state == pending {
		e.state, e.elsewhere, e.ends = claimed, true, until
	}
	return Claim[Q, A]{e}, e.lasts()
}

// Waits says that no other process has claimed the entry.
func (e *Entry[Q, A]) Waits() {
	e.table.mu.Lock()
	defer e.table.mu.Unlock()
	if e.state == claimed && e.elsewhere {
		e.state, e.elsewhere = pending, false
	}
}

// Lost says that another process has, or may have, claimed the entry before.
func (c Claim[Q, A]) Lost(until time.Time) {
	c.of.table.mu.Lock()
	defer c.of.table.mu.Unlock()
	c.of.elsewhere, c.of.ends = true, until
}

// Claim is the right of one caller to an entry. It must come to an end: by Finish, or by Fail.
type Claim[Q, A any] struct{ of *Entry[Q, A] }

// Claim gives the entry to the first caller. It is not ok for all others.
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

// Finish sets the result, of a size in bytes. Of several ends the first counts.
func (c Claim[Q, A]) Finish(a A, size int) (counts bool) {
	e, t := c.of, c.of.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.state != claimed {
		return false
	}
	t.take(e)
	t.kept++
	e.state, e.answer, e.answered, e.kept = over, a, true, t.kept
	e.ends, e.size = t.o.Now().Add(t.o.TTL), e.size+size
	t.put(e)
	close(e.finished)
	t.makeRoom(e) // callers that wait have the result in any case
	return true
}

// Fail sets the reason why there is no result.
func (c Claim[Q, A]) Fail(why A) (counts bool) { return c.Finish(why, 0) }

// makeRoom drops the oldest result: of the owner of an entry if that has too much, else of the owner with most. Its caller has the lock.
func (t *Table[Q, A]) makeRoom(e *Entry[Q, A]) {
	half := t.o.Bytes / 2
	if e.size > half/4 {
		t.spend(e)
	}
	for {
		own := t.owners[e.Owner][over]
		switch {
		case own.bytes > half/4, own.number > t.o.Each:
			t.spend(t.oldest(e.Owner, over))
		case t.together[over].bytes > half, t.together[over].number > t.o.Most:
			t.spend(t.oldest(t.largest(over), over))
		default:
			return
		}
	}
}

// spend drops the result of an entry, and keeps that it is over. A caller with the entry has its answer.
func (t *Table[Q, A]) spend(e *Entry[Q, A]) {
	t.take(e)
	t.put(&Entry[Q, A]{ID: e.ID, Owner: e.Owner, table: t, state: spent, ends: e.ends, kept: e.kept})
	for t.together[spent].number > 4*t.o.Most {
		t.drop(t.oldest(t.largest(spent), spent))
	}
}

// largest is the owner with most in a state.
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

// oldest is the oldest entry of an owner in a state.
func (t *Table[Q, A]) oldest(owner string, s state) (oldest *Entry[Q, A]) {
	for _, e := range t.all {
		if e.Owner == owner && e.state == s && (oldest == nil || e.kept < oldest.kept) {
			oldest = e
		}
	}
	return oldest
}

// drop removes an entry that is not claimed.
func (t *Table[Q, A]) drop(e *Entry[Q, A]) {
	t.take(e)
	if e.state == pending || e.state == claimed {
		close(e.finished)
	}
	e.state = gone
}

// put adds an entry in its state, and take removes it.
func (t *Table[Q, A]) put(e *Entry[Q, A]) {
	t.all[e.ID] = e
	t.count(e, 1)
}

func (t *Table[Q, A]) take(e *Entry[Q, A]) {
	delete(t.all, e.ID)
	t.count(e, -1)
}

// count counts an entry, or no longer. An owner without entries is forgotten.
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
