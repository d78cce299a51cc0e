package desk_test

import (
	"net/http"
	"sync/atomic"
	"testing"

	"policy-service/evaluation/authzenclient"
	"policy-service/pdp/mcp/internal/desk"
	"policy-service/pdp/mcp/mcptest"
)

// hears counts the calls of a hearer.
type hears struct {
	atomic.Int64
	stop func()
}

func (o *office) hears(d *desk.Desk, c *authzenclient.Client) *hears {
	h := &hears{}
	h.stop = d.Hear(c, func() { h.Add(1) })
	o.t.Cleanup(h.stop)
	return h
}

// after waits until the hearer was called after something was done.
func (h *hears) after(t *testing.T, what string, do func()) {
	t.Helper()
	before := h.Load()
	do()
	mcptest.Until(t, what, func() bool { return h.Load() > before })
}

// A hearer is called for all that waits, also for what another process asked for by the same key, and again when other people may
// decide. Once there is no hearer, there is no watch.
func TestListenDesk(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	d, c, other := o.desk(), o.client(), o.client()
	first := o.asks(c, 1)
	h := o.hears(d, c)
	mcptest.Until(t, "what waits already", func() bool { return h.Load() > 0 })
	third := o.asksOf(other, "merge", 3)
	h.after(t, "what another client asks", func() { o.asks(other, 2) })
	h.after(t, "the first of two votes", func() { o.says("approve", third) })
	late := o.hears(d, c)
	late.after(t, "a hearer that comes late", func() { o.asks(c, 4) })
	h.stop()
	h.stop()
	stopped := h.Load()
	late.after(t, "the other goes on", func() { o.asks(c, 5) })
	if h.Load() != stopped {
		t.Error("it is called after its stop")
	}
	late.stop()
	mcptest.Until(t, "there is no watch", func() bool { _, open, _ := o.count("watch"); return open == 0 })
	again := o.hears(d, c)
	again.after(t, "a hearer that begins again", func() { o.asks(c, 6) })
	o.says("deny", first)
}

// Hearers share the watch with those who follow single tasks, and disturb none of them.
func TestListenDeskDisturbsNobody(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	d, c := o.desk(), o.client()
	asked := o.asks(c, 1)
	f := d.Follow(c, asked)
	o.watched()
	h := o.hears(d, c)
	h.after(t, "it hears by the watch that is there", func() { o.asks(c, 2) })
	pending(t, f)
	h.stop()
	o.says("approve", asked)
	if got := decided(t, f); !got.Approved() {
		t.Error(got)
	}
	if looks, _, _ := o.count("look"); looks > 1 {
		t.Errorf("looked at %d times", looks)
	}
	if _, open, most := o.count("watch"); open > 1 || most > 1 {
		t.Errorf("%d watches at a time", most)
	}
}

// Where the watch begins anew, or the PDP was away, a hearer is called afterwards.
func TestListenDeskAnew(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusGone, http.StatusBadRequest} {
		o := newOffice(t)
		d, c := o.desk(), o.client()
		f := d.Follow(c, o.asks(c, 1))
		h := o.hears(d, c)
		h.after(t, "what is new", func() { o.asks(c, 2) })
		var away atomic.Bool
		away.Store(true)
		var old atomic.Value // the cursor that is refused
		o.answers(func(w http.ResponseWriter, r *http.Request) bool {
			after := r.URL.Query().Get("after")
			if kindOf(r) != "watch" {
				return false
			}
			old.CompareAndSwap(nil, after)
			switch {
			case away.Load():
				w.WriteHeader(http.StatusServiceUnavailable)
			case after != "" && after == old.Load():
				w.WriteHeader(status)
			default:
				return false
			}
			return true
		})
		o.cut()
		fourth := o.asks(c, 4)
		h.after(t, "what came meanwhile", func() { away.Store(false) })
		g := d.Follow(c, fourth)
		o.says("approve", fourth)
		if got := decided(t, g); !got.Approved() {
			t.Error(got)
		}
		pending(t, f)
	}
}

// A PDP that cannot be watched reports nothing, and followers go on.
func TestListenDeskWithoutWatch(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.answers(func(w http.ResponseWriter, r *http.Request) bool {
		if kindOf(r) == "watch" {
			w.WriteHeader(http.StatusNotFound)
			return true
		}
		return false
	})
	d, c := o.desk(), o.client()
	asked := o.asks(c, 1)
	h, f := o.hears(d, c), d.Follow(c, asked)
	o.says("approve", asked)
	if got := decided(t, f); !got.Approved() {
		t.Error(got)
	}
	if h.Load() > 0 {
		t.Error("it is called")
	}
	h.stop()
	d.Close()
}
