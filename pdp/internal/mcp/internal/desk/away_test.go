package desk_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"policy-service/evaluation/authzenclient/approvals"
	"policy-service/pdp/internal/mcp/internal/desk"
	"policy-service/pdp/pdptest/mcptest"
	"policy-service/pdp/pdptest/written"
)

// From a cursor that is too old no changes can be read: the watch begins anew, and each task is looked at.
func TestDeskCursorIsTooOld(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	d, c := o.desk(), o.client()
	var followers []*desk.Follower
	for n := range 30 {
		followers = append(followers, d.Follow(c, o.asks(c, n)))
	}
	o.watched()
	gone := make(chan struct{})
	o.answers(func(w http.ResponseWriter, r *http.Request) bool { // no more changes are reported
		if kindOf(r) != "watch" || r.URL.Query().Get("after") == "" {
			return false
		}
		select {
		case <-gone:
			return false
		default:
			return refuses("watch", http.StatusBadGateway)(w, r)
		}
	})
	o.cut()
	for n, f := range followers {
		if n%3 == 0 {
			o.says("approve", f.Standing())
		}
	}
	o.clock.Advance(13 * time.Hour)
	close(gone)
	for n, f := range followers {
		if n%3 == 0 {
			decided(t, f, "approved")
		}
	}
	if begun := o.begun(); begun != 2 {
		t.Errorf("it began %d times", begun)
	}
	for n, f := range followers {
		if n%3 != 0 {
			pending(t, f)
			o.says("deny", f.Standing())
			decided(t, f, "denied")
		}
	}
	if _, _, most := o.count("look"); most > 16 {
		t.Errorf("%d looks at a time", most)
	}
}

// A PDP that is away ends no wait. When it is back, at the same address and on the same data, all goes on.
func TestDeskPDPIsAway(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	var log written.Text
	d, c := desk.New(desk.Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), Now: time.Now}), o.client()
	t.Cleanup(d.Close)
	before, after := d.Follow(c, o.asks(c, 1)), d.Follow(c, o.asks(c, 2))
	o.watched()
	for range 2 {
		o.stop()
		asked, _, _ := o.count("watch")
		mcptest.Until(t, "it is asked in vain", func() bool { n, _, _ := o.count("watch"); return n > asked+1 })
		pending(t, before)
		pending(t, after)
		o.start()
	}
	o.says("approve", before.Standing())
	decided(t, before, "approved")
	pending(t, after)
	o.says("deny", after.Standing())
	decided(t, after, "denied")
	text := log.String()
	if strings.Count(text, "does not say") != strings.Count(text, "says again") || !strings.Contains(text, "does not say") || strings.Contains(text, o.key["gateway"]) {
		t.Error(text)
	}
}

// A decision while the watch is cut off is learned afterwards.
func TestDeskCutOff(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(http.ResponseWriter, *http.Request) bool{
		"reset":   func(w http.ResponseWriter, _ *http.Request) bool { panic(http.ErrAbortHandler) },
		"down":    refusesAll(http.StatusServiceUnavailable),
		"denied":  refusesAll(http.StatusForbidden),
		"garbage": saysAll(`{"tasks":[{"task":{"id":1}}],"cursor":"c"}`),
		"nothing": saysAll(``),
		"moved":   refusesAll(http.StatusFound),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			d, c := o.desk(), o.client()
			f := d.Follow(c, o.asks(c, 1))
			o.watched()
			o.answers(cut)
			asked, _, _ := o.count("watch")
			o.cut()
			mcptest.Until(t, "it is asked in vain", func() bool { n, _, _ := o.count("watch"); return n > asked })
			late := d.Follow(c, f.Standing())
			o.says("approve", f.Standing())
			pending(t, f)
			o.answers(nil)
			for _, f := range []*desk.Follower{f, late} {
				decided(t, f, "approved")
			}
		})
	}
}

// A PDP that wants to be left alone is.
func TestDeskRetryAfter(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	var mu sync.Mutex
	var at []time.Time
	o.answers(func(w http.ResponseWriter, r *http.Request) bool {
		if kindOf(r) != "watch" {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		at = append(at, time.Now())
		return len(at) < 3 && refuses("watch", http.StatusServiceUnavailable, "Retry-After", "2")(w, r)
	})
	var log written.Text
	d, c := desk.New(desk.Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), Now: time.Now}), o.client()
	t.Cleanup(d.Close)
	f := d.Follow(c, o.asks(c, 1))
	mcptest.Until(t, "it heard that it is refused", func() bool { return strings.Contains(log.String(), "does not say") })
	f.Stop()
	f = d.Follow(c, f.Standing()) // the next follower leaves it alone as well
	o.says("approve", f.Standing())
	decided(t, f, "approved")
	mu.Lock() // the next watch may just begin
	defer mu.Unlock()
	for n := range 2 {
		if d := at[n+1].Sub(at[n]); d < 2*time.Second {
			t.Errorf("it was left alone for %v", d)
		}
	}
}

// A PDP that cannot be watched is asked about each, and about no more than a few at a time.
func TestDeskWithoutWatch(t *testing.T) {
	t.Parallel()
	// Two are looked at for as long as a PDP may take, 24 for a part of a turn each, and 100 in passing.
	for many, status := range map[int]int{2: http.StatusNotFound, 24: http.StatusNotFound, 100: http.StatusMethodNotAllowed} {
		t.Run(fmt.Sprint(many), func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			o.answers(refuses("watch", status))
			d, c := o.desk(), o.client()
			d.Turn(1600 * time.Millisecond)
			var asked []approvals.Standing
			for n := range many {
				asked = append(asked, o.asks(c, n))
			}
			followers, h := []*desk.Follower(nil), o.hears(d, c)
			for _, s := range asked { // at once: a look at a lone task takes long
				followers = append(followers, d.Follow(c, s))
			}
			looked := 0
			mcptest.Until(t, "each was looked at", func() bool { looked, _, _ = o.count("look"); return looked >= many })
			for _, n := range []int{0, many - 1} {
				pending(t, followers[n])
				o.says([]string{"approve", "deny"}[n%2], followers[n].Standing())
			}
			for _, n := range []int{0, many - 1} {
				decided(t, followers[n], []string{"approved", "denied"}[n%2])
			}
			if _, _, most := o.count("look"); most > 16 || looked > 8*many {
				t.Errorf("%d of %d are looked at at a time, %d until each was", most, many, looked)
			}
			for _, f := range followers {
				f.Stop()
			}
			h.stop()
			mcptest.Until(t, "nobody looks", func() bool { _, open, _ := o.count("look"); return open == 0 })
			if h.Load() > 0 {
				t.Error("a hearer is called, and nothing is reported")
			}
		})
	}
}

// Looks that fail are made again.
func TestDeskLooksAgain(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.answers(refuses("look", http.StatusServiceUnavailable, "Retry-After", "1"))
	d, c := o.desk(), o.client()
	s := o.asks(c, 1)
	o.says("approve", s)
	f := d.Follow(c, s)
	mcptest.Until(t, "it was looked at", func() bool { n, _, _ := o.count("look"); return n > 1 })
	pending(t, f)
	o.answers(nil)
	decided(t, f, "approved")
}

func refusesAll(status int) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		return refuses("watch", status)(w, r) || refuses("look", status)(w, r)
	}
}

func saysAll(body string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if kind := kindOf(r); kind != "watch" && kind != "look" {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, body)
		return true
	}
}
