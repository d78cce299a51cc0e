package requests_test

import (
	"crypto/rand"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/pdp/internal/mcp/internal/requests"
	"policy-service/pdp/pdptest/mcptest"
)

// desk is a table with a clock.
type desk struct {
	*requests.Table[string, string]
	ahead atomic.Int64
}

var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newDesk(change func(*requests.Options)) *desk {
	d := &desk{}
	o := requests.Options{TTL: time.Minute, Most: 4, Each: 2, Bytes: 8 << 10, Now: func() time.Time { return began.Add(time.Duration(d.ahead.Load())) }}
	if change != nil {
		change(&o)
	}
	d.Table = requests.New[string, string](o)
	return d
}

func (d *desk) advance(by time.Duration) { d.ahead.Add(int64(by)) }

func (d *desk) has(id string) bool { return d.Find(id) != nil }

func file(t testing.TB, d *desk, owner string, size int) *requests.Entry[string, string] {
	t.Helper()
	e, err := d.File(rand.Text(), owner, "what "+owner+" wants", size)
	mcptest.Must(t, err)
	return e
}

func isOver(e *requests.Entry[string, string]) bool {
	select {
	case <-e.Over():
		return true
	default:
		return false
	}
}

// An entry goes one way, and its result stays.
func TestTable(t *testing.T) {
	d := newDesk(nil)
	e := file(t, d, "ann", 10)
	if d.Find(e.ID) != e || !e.Pending() || e.Claimed() || isOver(e) || d.Find("another") != nil || d.Open() != 1 {
		t.Fatal("it is not pending")
	}
	c, ok := e.Claim()
	if _, again := e.Claim(); !ok || again || !e.Claimed() || e.Pending() || isOver(e) || d.Find(e.ID) != e {
		t.Fatal("it is not claimed once")
	}
	d.advance(time.Hour) // a claim has no time limit
	d.Sweep()
	if d.Find(e.ID) != e {
		t.Fatal("what is claimed is gone")
	}
	c.Finish("done", 4)
	c.Finish("done again", 4)
	c.Fail("or not")
	if a, ok := e.Answer(); !ok || a != "done" || !isOver(e) || e.Claimed() || d.Find(e.ID) != e || d.Open() != 0 {
		t.Fatalf("%q, %t", a, ok)
	}
	if _, again := e.Claim(); again {
		t.Fatal("it is claimed after it was done")
	}
	d.advance(59 * time.Second)
	if d.Find(e.ID) == nil {
		t.Error("what came of it is gone too early")
	}
	d.advance(time.Second)
	if d.Find(e.ID) != nil {
		t.Error("what came of it is still there")
	}
}

// An entry that has waited for too long cannot be claimed, swept or not. Callers that wait hear of its end once it is swept.
func TestTableExpires(t *testing.T) {
	d := newDesk(nil)
	e := file(t, d, "ann", 10)
	d.advance(time.Minute)
	if _, ok := e.Claim(); ok || d.Find(e.ID) != nil || e.Pending() {
		t.Error("it can be had")
	}
	d.Sweep()
	if _, ok := e.Answer(); ok || !isOver(e) || d.Open() != 0 {
		t.Error("nobody is told")
	}
}

// Those are pending that can be had, after a number, in the order in which they were filed.
func TestTablePending(t *testing.T) {
	d := newDesk(nil)
	first, second, third := file(t, d, "ann", 1), file(t, d, "ben", 1), file(t, d, "ann", 1)
	pending := func(after int, want ...*requests.Entry[string, string]) {
		t.Helper()
		if got := d.Pending(after); !slices.Equal(got, want) {
			t.Errorf("after %d there are %v, want %v", after, got, want)
		}
	}
	pending(0, first, second, third)
	pending(first.Number, second, third)
	c, _ := second.Claim()
	pending(0, first, third)
	c.Finish("done", 1)
	d.advance(time.Minute)
	pending(0)
	last := file(t, d, "ann", 1)
	pending(third.Number, last)
}

// Each bound holds by itself, and old results make room for new ones.
func TestTableBounds(t *testing.T) {
	d := newDesk(nil)
	done := func(e *requests.Entry[string, string], size int) {
		c, _ := e.Claim()
		c.Finish("done", size)
	}
	refused := func(owner string, size int, want error) {
		t.Helper()
		if _, err := d.File(rand.Text(), owner, "more", size); !errors.Is(err, want) {
			t.Errorf("%s: %v, and it should be %v", owner, err, want)
		}
	}
	a1 := file(t, d, "ann", 0)
	a2 := file(t, d, "ann", 0)
	refused("ann", 0, requests.ErrOwn)
	refused("bob", 1<<9+1, requests.ErrOwn) // an eighth of half
	b1, c1 := file(t, d, "bob", 0), file(t, d, "cid", 0)
	refused("dan", 0, requests.ErrFull)
	if _, ok := a1.Claim(); !ok {
		t.Fatal()
	}
	refused("dan", 0, requests.ErrFull) // a claimed entry counts
	done(a2, 1<<10)
	a3 := file(t, d, "ann", 0)
	done(a3, 1<<10) // takes the place of the other
	if d.has(a2.ID) || !d.has(a3.ID) {
		t.Error("the oldest has not made room")
	}
	if a, ok := a2.Answer(); !ok || a != "done" {
		t.Error("who waits does not hear of what has made room")
	}
	done(b1, 1<<10+1) // is too large to be kept
	if a, ok := b1.Answer(); !ok || a != "done" || d.has(b1.ID) {
		t.Error("what is too large is kept, or not told")
	}
	done(c1, 1<<10)
	for n := range 12 { // the owner with most makes room
		e := file(t, d, "of "+strconv.Itoa(n), 0)
		done(e, 512)
	}
	if d.has(a3.ID) || d.has(c1.ID) {
		t.Error("others made room for those of whom most is kept")
	}
}

// Many want one entry at the same moment.
func TestTableRace(t *testing.T) {
	for range 200 {
		d := newDesk(nil)
		e := file(t, d, "ann", 0)
		var won atomic.Int64
		var all sync.WaitGroup
		begin := make(chan struct{})
		for range 64 {
			all.Go(func() {
				<-begin
				if c, ok := e.Claim(); ok {
					won.Add(1)
					c.Finish("done", 1)
				}
			})
		}
		all.Go(func() { // what else goes on meanwhile
			<-begin
			d.Sweep()
			d.Open()
			d.Find(e.ID)
		})
		all.Go(func() {
			<-e.Over()
			e.Answer()
		})
		close(begin)
		all.Wait()
		if won.Load() != 1 {
			t.Fatalf("%d have it", won.Load())
		}
	}
}

func finish(t testing.TB, e *requests.Entry[string, string], size int) {
	t.Helper()
	c, ok := e.Claim()
	if !ok {
		t.Fatal("it is claimed already")
	}
	c.Finish("done", size)
}

// spent fails unless an entry is known to be over, with its owner and without its result, and has its answer for callers.
func (d *desk) spent(t testing.TB, e *requests.Entry[string, string]) {
	t.Helper()
	owner, ok := d.Spent(e.ID)
	if a, answered := e.Answer(); !ok || owner != e.Owner || d.has(e.ID) || !isOver(e) || !answered || a != "done" {
		t.Errorf("%s of %s: spent is %q, %t; there is %t; the answer is %q, %t", e.ID, e.Owner, owner, ok, d.has(e.ID), a, answered)
	}
}

// An entry whose result has no room is known to be over until its time is up. One that is kept, waits, or never was is not.
func TestTableSpent(t *testing.T) {
	d := newDesk(func(o *requests.Options) { o.Each = 1 })
	large := file(t, d, "ann", 0)
	finish(t, large, 1<<10+1) // more than an owner may have
	d.spent(t, large)
	first := file(t, d, "ann", 0)
	finish(t, first, 10)
	second := file(t, d, "ann", 0)
	finish(t, second, 10)
	d.spent(t, first) // has made room
	waits, ends := file(t, d, "ben", 0), file(t, d, "cid", 0)
	for name, id := range map[string]string{"what is kept": second.ID, "what waits": waits.ID, "what never was": "x"} {
		if _, ok := d.Spent(id); ok {
			t.Errorf("%s is spent", name)
		}
	}
	d.advance(time.Minute - time.Nanosecond)
	d.Sweep()
	d.spent(t, first)
	d.advance(time.Nanosecond)
	if _, ok := d.Spent(first.ID); ok {
		t.Error("it is spent for longer than its time")
	}
	d.Sweep()
	if _, ok := d.Spent(ends.ID); ok || !isOver(ends) {
		t.Error("what nobody has done is spent")
	}
}

// Four times as many entries are spent as may wait. The owner with most of them loses the oldest first.
func TestTableSpentIsBounded(t *testing.T) {
	d := newDesk(func(o *requests.Options) { o.Each = 1 })
	spend := func(owner string) *requests.Entry[string, string] {
		e := file(t, d, owner, 0)
		finish(t, e, 1<<10+1)
		return e
	}
	bens := spend("ben")
	var anns []*requests.Entry[string, string]
	for range 18 { // 16 are kept, of which one is Ben's
		anns = append(anns, spend("ann"))
	}
	d.spent(t, bens)
	for n, e := range anns {
		if _, ok := d.Spent(e.ID); ok != (n >= 3) {
			t.Errorf("of 18 the number %d is spent: %t", n, ok)
		}
	}
}

// Entries that wait leave room for results, and results leave room for new entries.
func TestTableHalves(t *testing.T) {
	d := newDesk(func(o *requests.Options) { o.Most, o.Each = 100, 100 })
	done := file(t, d, "zoe", 512)
	var err error
	waits := 0
	for n := 0; err == nil; n++ {
		if _, err = d.File(rand.Text(), "owner "+strconv.Itoa(n/2), "what", 256); err == nil {
			waits++
		}
	}
	if !errors.Is(err, requests.ErrFull) || waits != 14 { // with 512 bytes of zoe's it is half
		t.Errorf("%d wait, then %v", waits, err)
	}
	finish(t, done, 512) // a quarter of the other half
	if !d.has(done.ID) {
		t.Error("what waits has the room of what came of something")
	}
	for n := range 3 {
		e := file(t, d, "done "+strconv.Itoa(n), 512)
		finish(t, e, 512)
	}
	if _, err = d.File(rand.Text(), "yan", "what", 512); err != nil {
		t.Errorf("what came of something has the room of what waits: %v", err)
	}
	if !d.has(done.ID) {
		t.Error("what fits is not kept")
	}
}

// An entry that another process has claimed is claimed by none here, until it has a result, or its time is up, or the other
// process has not claimed it after all. One that is claimed here is no other's.
func TestClaimedElsewhere(t *testing.T) {
	t.Parallel()
	d := newDesk(nil)
	e, err := d.Bring("id", "ann", "what ann wants", 10, began.Add(time.Minute))
	if err != nil || e.ID != "id" || !e.Pending() {
		t.Fatalf("%+v, %v", e, err)
	}
	if again, err := d.Bring("id", "ann", "", 10, began); again != e || err != nil {
		t.Errorf("brought again: %+v, %v", again, err)
	}
	if _, own := e.Elsewhere(began.Add(2 * time.Minute)); own {
		t.Error("it is claimed here")
	}
	if _, ok := e.Claim(); ok || !e.Claimed() {
		t.Error("it can be claimed")
	}
	e.Waits()
	c, ok := e.Claim()
	if !ok {
		t.Error("it cannot be claimed")
	}
	if e.Waits(); e.Pending() {
		t.Error("what is claimed here waits")
	}
	if _, own := e.Elsewhere(began); !own {
		t.Error("it is claimed elsewhere")
	}
	d.advance(time.Hour)
	if d.Sweep(); !d.has("id") {
		t.Error("it is gone while it is claimed here")
	}
	c.Lost(began.Add(2 * time.Hour))
	if !c.Finish("done", 10) || c.Finish("again", 10) {
		t.Error("of two results the first counts")
	}
	if a, ok := e.Answer(); a != "done" || !ok {
		t.Errorf("%q, %t", a, ok)
	}

	gone, err := d.Bring("gone", "ann", "what ann wants", 10, began.Add(2*time.Hour))
	mcptest.Must(t, err)
	gone.Elsewhere(began.Add(2 * time.Hour))
	d.advance(time.Hour)
	if d.Sweep(); d.has("gone") || d.Open() != 0 {
		t.Error("its time is up, and it is there")
	}
	<-gone.Over()
	for n := range 4 {
		if _, err := d.Bring(strconv.Itoa(n), "ann", "", 10, began.Add(24*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Bring("one more", "bob", "", 10, began.Add(24*time.Hour)); !errors.Is(err, requests.ErrFull) {
		t.Errorf("full: %v", err)
	}
}
