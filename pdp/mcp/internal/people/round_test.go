package people

import (
	"context"
	"testing"
)

// A round that is over, and asks once more, does not keep the next one from being interrupted.
func TestListenDeskRounds(t *testing.T) {
	t.Parallel()
	d := New(Options{})
	defer d.Close()
	w := d.watch(nil)
	begins := func() *round {
		r := &round{}
		r.ctx, r.end = context.WithCancel(t.Context())
		w.round = r
		return r
	}
	before, now := begins(), begins()
	q, done := w.question(now)
	defer done()
	late, gone := w.question(before)
	defer gone()
	w.interrupt()
	if q.ctx.Err() == nil || late.ctx.Err() != nil {
		t.Errorf("what is asked now has %v, and what was asked before %v", q.ctx.Err(), late.ctx.Err())
	}
	w.round = nil
}
