// Package requests keeps what somebody has requested until somebody else takes it, once, and what came of it.
//
// Begin with [New] and [Table.File]. [Table.Find] finds an [Entry] by its id; of all who want it [Entry.Claim] lets one have it,
// and whoever waits for what comes of it hears of that by [Entry.Over] and [Entry.Answer].
//
// An entry goes one way: it is pending, then claimed, then over; or it is pending, and its time is up. Nothing leads back: what
// was claimed may have been done, whatever became of who did it. The package has no network and no clock of its own, and does
// not know what is requested, or who may have it.
package requests

import (
	"crypto/rand"
	"errors"
	"sync"
	"time"
)

// Options are what a [Table] is made with. All are needed but Left.
type Options struct {
	// TTL is how long an entry waits, and how long what came of it is kept.
	TTL time.Duration
	// Most is how many entries wait, and Each how many of one owner. As many are kept of which something came.
	Most, Each int
	// Bytes is how large all that is kept may be. One owner's may be an eighth of it.
	Bytes int
	Now   func() time.Time
	// Left is told once of each entry that is pending no longer.
	Left func(id string)
}

// share is which part of all bytes one owner's may be.
const share = 8

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
	owners   map[string]*account
	together account
	kept     int // counts what was kept, so that the oldest is known
}

// account is what an owner has, or all.
type account struct{ open, over, bytes int }

func (a *account) add(open, over, bytes int) {
	a.open += open
	a.over += over
	a.bytes += bytes
}

type state uint8

const (
	pending state = iota
	claimed
	over
	gone // its time is up, or it has made room
)

// Entry is one thing that was requested. [Table.File] makes it.
type Entry[Q, A any] struct {
	ID, Owner string
	Asked     Q

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
	return &Table[Q, A]{o: o, all: map[string]*Entry[Q, A]{}, owners: map[string]*account{}}
}

// File keeps something that somebody requests, of a size in bytes.
func (t *Table[Q, A]) File(owner string, asked Q, size int) (*Entry[Q, A], error) {
	t.Sweep()
	t.mu.Lock()
	defer t.mu.Unlock()
	own := t.account(owner)
	if own.open >= t.o.Each || own.bytes-t.overOf(owner)+size > t.o.Bytes/share {
		t.forget(owner)
		return nil, ErrOwn
	}
	if t.together.open >= t.o.Most || !t.makeRoom(owner, size) {
		t.forget(owner)
		return nil, ErrFull
	}
	e := &Entry[Q, A]{ID: rand.Text(), Owner: owner, Asked: asked, table: t, finished: make(chan struct{}), ends: t.o.Now().Add(t.o.TTL), size: size}
	t.all[e.ID] = e
	t.add(owner, 1, 0, size)
	return e, nil
}

// Find is the entry of that id, nil if there is none, or none any longer.
func (t *Table[Q, A]) Find(id string) *Entry[Q, A] {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.all[id]
	if e == nil || e.state != claimed && !t.o.Now().Before(e.ends) { // what is claimed lasts until something comes of it
		return nil
	}
	return e
}

// Open is how many entries wait, or are being done.
func (t *Table[Q, A]) Open() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.together.open
}

// Sweep has everything go whose time is up.
func (t *Table[Q, A]) Sweep() {
	now := t.o.Now()
	var left []string
	t.mu.Lock()
	for id, e := range t.all {
		if e.state == claimed || now.Before(e.ends) {
			continue
		}
		if e.state == pending {
			left = append(left, id)
		}
		t.drop(e)
	}
	t.mu.Unlock()
	t.tell(left...)
}

func (t *Table[Q, A]) tell(left ...string) {
	if t.o.Left == nil {
		return
	}
	for _, id := range left {
		t.o.Left(id)
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
	if !e.pending() {
		t.mu.Unlock()
		return c, false
	}
	e.state = claimed
	t.mu.Unlock()
	t.tell(e.ID)
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
	e.state, e.answer, e.answered = over, a, true
	t.kept++
	e.ends, e.kept = t.o.Now().Add(t.o.TTL), t.kept
	t.add(e.Owner, -1, 1, 0)
	close(e.finished)
	// Whoever waits has it in any case. It is kept for who comes later, if there is room for it.
	if size > t.o.Bytes/share || !t.makeRoom(e.Owner, size) || t.all[e.ID] == nil {
		if t.all[e.ID] != nil {
			t.drop(e)
		}
		return
	}
	e.size += size
	t.add(e.Owner, 0, 0, size)
}

// Fail is that nothing came of it, and why.
func (c Claim[Q, A]) Fail(why A) { c.Finish(why, 0) }

// makeRoom makes room for more of an owner's by what was kept for longest: of the owner, if it has too much, and else of who
// has most. The caller holds the lock.
func (t *Table[Q, A]) makeRoom(owner string, size int) (ok bool) {
	for {
		own := t.account(owner)
		of := ""
		switch {
		case own.bytes+size > t.o.Bytes/share, own.over > t.o.Each:
			of = owner
		case t.together.bytes+size > t.o.Bytes, t.together.over > t.o.Most:
			of = t.largest()
		default:
			return true
		}
		oldest := t.oldest(of)
		if oldest == nil {
			return false
		}
		t.drop(oldest)
	}
}

// largest is the owner of whom most is kept.
func (t *Table[Q, A]) largest() (owner string) {
	most := -1
	bytes := map[string]int{}
	for _, e := range t.all {
		if e.state == over {
			bytes[e.Owner] += e.size
		}
	}
	for one, n := range bytes {
		if n > most || n == most && one < owner {
			owner, most = one, n
		}
	}
	return owner
}

// oldest is what was kept of an owner for longest.
func (t *Table[Q, A]) oldest(owner string) (oldest *Entry[Q, A]) {
	for _, e := range t.all {
		if e.Owner == owner && e.state == over && (oldest == nil || e.kept < oldest.kept) {
			oldest = e
		}
	}
	return oldest
}

// overOf is how large what is kept of an owner is, which can make room.
func (t *Table[Q, A]) overOf(owner string) (bytes int) {
	for _, e := range t.all {
		if e.Owner == owner && e.state == over {
			bytes += e.size
		}
	}
	return bytes
}

// drop has an entry go that nobody has claimed, or of which something came.
func (t *Table[Q, A]) drop(e *Entry[Q, A]) {
	delete(t.all, e.ID)
	if e.state == over {
		t.add(e.Owner, 0, -1, -e.size)
	} else {
		t.add(e.Owner, -1, 0, -e.size)
		close(e.finished)
	}
	e.state = gone
	t.forget(e.Owner)
}

func (t *Table[Q, A]) account(owner string) *account {
	a := t.owners[owner]
	if a == nil {
		a = &account{}
		t.owners[owner] = a
	}
	return a
}

func (t *Table[Q, A]) add(owner string, open, over, bytes int) {
	t.account(owner).add(open, over, bytes)
	t.together.add(open, over, bytes)
}

// forget forgets an owner who has nothing.
func (t *Table[Q, A]) forget(owner string) {
	if a := t.owners[owner]; a != nil && *a == (account{}) {
		delete(t.owners, owner)
	}
}
