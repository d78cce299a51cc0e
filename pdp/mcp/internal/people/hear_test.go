package people_test

import (
	"net/http"
	"slices"
	"sync"
	"testing"

	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
	"policy-service/pdp/mcp/internal/people"
	"policy-service/pdp/mcp/mcptest"
)

// hears is one who hears of all that waits.
type hears struct {
	mu    sync.Mutex
	waits map[string]bool
	times map[string]int // how often each was told to wait
	stop  func()
}

func (o *office) hears(d *people.Desk, c *authzenclient.Client) *hears {
	h := &hears{waits: map[string]bool{}, times: map[string]int{}}
	h.stop = d.Hear(c, func(id string, waits bool) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if !waits {
			delete(h.waits, id)
			return
		}
		h.waits[id] = true
		h.times[id]++
	})
	o.t.Cleanup(h.stop)
	return h
}

// until waits until just these wait, as far as it hears.
func (h *hears) until(t *testing.T, what string, all ...approvals.Standing) {
	t.Helper()
	mcptest.Until(t, what, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.waits) == len(all) && !slices.ContainsFunc(all, func(s approvals.Standing) bool { return !h.waits[s.Approvals()[0]] })
	})
}

func (h *hears) told(s approvals.Standing) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.times[s.Approvals()[0]]
}

// Whoever hears, hears of what waits already, whoever asked for it by this key, of what comes, and of what waits no longer;
// of what is told again while it waits, again. Once nobody hears, nobody watches.
func TestListenDesk(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	d, c, other := o.desk(), o.client(), o.client()
	first, second := o.asks(c, 1), o.asks(other, 2)
	h := o.hears(d, c)
	h.until(t, "what waits already", first, second)
	third := o.asksOf(other, "merge", 3)
	h.until(t, "what comes", first, second, third)
	o.says("deny", first)
	h.until(t, "what is decided", second, third)
	before := h.told(third)
	o.says("approve", third) // one of two
	mcptest.Until(t, "it is told again", func() bool { return h.told(third) > before })
	late := o.hears(d, c)
	late.until(t, "who comes late", second, third)
	o.saysAs("ann", "approve", third)
	h.until(t, "both hear", second)
	late.until(t, "both hear", second)
	h.stop()
	h.stop()
	h.until(t, "nothing waits for who has stopped")
	o.says("approve", second)
	late.until(t, "the other goes on")
	late.stop()
	mcptest.Until(t, "nobody watches", func() bool { _, open, _ := o.count("watch"); return open == 0 })
	fourth := o.asks(c, 4)
	o.hears(d, c).until(t, "who begins again", fourth)
}

// Those who follow single tasks are not disturbed: nobody is looked at again, and each hears what was said while what waits
// was listed.
func TestListenDeskDisturbsNobody(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	d, c := o.desk(), o.client()
	const many = 250 // more than a page
	var asked []approvals.Standing
	var followers []*people.Follower
	for n := range many {
		asked = append(asked, o.asks(c, n))
		followers = append(followers, d.Follow(c, asked[n]))
	}
	o.watched()
	h := o.hears(d, c)
	for n, f := range followers[:20] {
		o.says("approve", asked[n])
		if got := decided(t, f); !got.Approved() {
			t.Errorf("%d: %v", n, got)
		}
		if n == 10 {
			h.stop()
			h = o.hears(d, c)
		}
	}
	h.until(t, "all but those wait", asked[20:]...)
	for _, f := range followers[20:] {
		pending(t, f)
	}
	if looks, _, _ := o.count("look"); looks > many {
		t.Errorf("looked at %d times", looks)
	}
	if _, open, most := o.count("watch"); open > 1 || most > 1 {
		t.Errorf("%d watches at a time", most)
	}
	h.stop()
	o.says("deny", asked[20])
	if got := decided(t, followers[20]); got.Status() != "denied" {
		t.Error(got)
	}
}

// What was asked for just before somebody hears is told once, although it is listed, and a change that is told, too.
func TestListenDeskTellsOnce(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	d, c := o.desk(), o.client()
	asked := []approvals.Standing{o.asks(c, 0)}
	d.Follow(c, asked[0])
	o.watched()
	for n := range 8 {
		asked = append(asked, o.asks(c, 1+n))
	}
	h := o.hears(d, c)
	h.until(t, "what waits", asked...)
	h.until(t, "what comes, after all that changed before", append(asked, o.asks(c, 100))...)
	for n, s := range asked {
		if told := h.told(s); told != 1 {
			t.Errorf("%d is told %d times", n, told)
		}
	}
}

// Where the watch begins anew, or the PDP was away, nothing is missed: what was decided meanwhile waits no longer, and what was
// asked meanwhile waits.
func TestListenDeskAnew(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusGone, http.StatusBadRequest} {
		o := newOffice(t)
		d, c := o.desk(), o.client()
		first, second, third := o.asks(c, 1), o.asks(c, 2), o.asks(c, 3)
		f := d.Follow(c, third)
		h := o.hears(d, c)
		h.until(t, "all wait", first, second, third)
		away := true
		var mu sync.Mutex
		old := "" // the cursor that is refused, with a wait and without
		o.answers(func(w http.ResponseWriter, r *http.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			after := r.URL.Query().Get("after")
			if kindOf(r) != "watch" {
				return false
			}
			if old == "" {
				old = after
			}
			switch {
			case away:
				w.WriteHeader(http.StatusServiceUnavailable)
			case after != "" && after == old:
				w.WriteHeader(status)
			default:
				return false
			}
			return true
		})
		o.cut()
		o.says("approve", first)
		fourth := o.asks(c, 4)
		mu.Lock()
		away = false
		mu.Unlock()
		h.until(t, "what waits now", second, third, fourth)
		o.says("approve", third)
		if got := decided(t, f); !got.Approved() {
			t.Error(got)
		}
		h.until(t, "the rest", second, fourth)
		for _, one := range []approvals.Standing{second, fourth} {
			if got := h.told(one); got != 1 {
				t.Errorf("what is listed anew is told %d times", got)
			}
		}
	}
}

// A PDP that cannot be watched tells nothing, and who follows goes on.
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
	h.until(t, "nothing is heard")
	h.stop()
	d.Close()
}
