package requests_test

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"policy-service/pdp/mcp/internal/requests"
)

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
		if _, err = d.File("owner "+strconv.Itoa(n/2), "what", 256); err == nil {
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
	if _, err = d.File("yan", "what", 512); err != nil {
		t.Errorf("what came of something has the room of what waits: %v", err)
	}
	if !d.has(done.ID) {
		t.Error("what fits is not kept")
	}
}
