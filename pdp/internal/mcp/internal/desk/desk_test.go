package desk_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
	"policy-service/pdp/internal/mcp/internal/desk"
	"policy-service/pdp/pdptest/mcptest"
)

// However a task ends, its followers hear.
func TestDeskHears(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	d, c := o.desk(), o.client()
	for n, test := range []struct {
		what, status string
		happens      func(approvals.Standing)
	}{
		{"approve", "approved", func(s approvals.Standing) { o.says("approve", s) }},
		{"deny", "denied", func(s approvals.Standing) { o.says("deny", s) }},
		{"cancel", "cancelled", func(s approvals.Standing) { o.must(approvals.Cancel(t.Context(), c, s.Task())) }},
		{"expiry", "expired", func(approvals.Standing) { o.clock.Advance(askedFor) }},
	} {
		s, other := o.asks(c, n), o.asks(c, n+100)
		f, stays := d.Follow(c, s), d.Follow(c, other)
		o.watched()
		pending(t, f)
		test.happens(s)
		if got := decided(t, f, test.status); (got.Err() == nil) != got.Approved() {
			t.Errorf("%s: %v, %v", test.what, got, got.Err())
		}
		if test.what != "expiry" {
			pending(t, stays)
		}
		if f.Stop(); f.Standing().Status() != test.status {
			t.Errorf("stopped: %v", f.Standing())
		}
		stays.Stop()
	}
	if d.Waiting() != 0 {
		t.Errorf("%d wait", d.Waiting())
	}
}

// No decision between a question and its wait is lost, and earlier decisions are not reported.
func TestDeskMissesNothing(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	d, c := o.desk(), o.client()
	for round, watched := range []bool{false, true, false} { // a first watch, one that runs, one that goes on
		var stays *desk.Follower
		before, after := o.asks(c, 2*round), o.asks(c, 2*round+1)
		if watched {
			stays = d.Follow(c, o.asks(c, 1000+round))
			last := d.Follow(c, o.asks(c, 2000+round))
			o.watched()
			o.says("approve", before)
			o.says("approve", last.Standing())
			decided(t, last, "approved") // so all of it was reported
			last.Stop()
		} else {
			o.says("approve", before)
		}
		f, g := d.Follow(c, before), d.Follow(c, after)
		decided(t, f, "approved")
		o.says("deny", after)
		decided(t, g, "denied")
		again := d.Follow(c, f.Standing())
		if decided(t, again, "approved"); again.Alone() {
			t.Errorf("%d: it is alone", round)
		}
		for _, f := range []*desk.Follower{f, g, again, stays} {
			if f != nil {
				f.Stop()
			}
		}
	}
}

// No task is looked at before the watch has begun: a decision in between would be missed by both.
func TestDeskBegins(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	begins, goes := make(chan struct{}), make(chan struct{})
	var once sync.Once
	o.answers(func(w http.ResponseWriter, r *http.Request) bool {
		if kindOf(r) == "watch" {
			once.Do(func() { close(begins); <-goes })
		}
		return false
	})
	d, c := o.desk(), o.client()
	f := d.Follow(c, o.asks(c, 1))
	<-begins
	o.says("approve", f.Standing())
	if n, _, _ := o.count("look"); n > 0 {
		t.Errorf("%d looks before the watch", n)
	}
	close(goes)
	decided(t, f, "approved")
}

// Equal calls have one task, and one call that was asked about twice has two: all followers hear.
func TestDeskTogether(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	d, c := o.desk(), o.client()
	s, twice, two := o.asks(c, 1), o.asks(c, 1), o.asksOf(c, "push", 1)
	if s.Task().ID() != twice.Task().ID() || s.Task().ID() == two.Task().ID() || s.Approvals()[0] != two.Approvals()[0] {
		t.Fatal(s, twice, two)
	}
	one, equal, other := d.Follow(c, s), d.Follow(c, twice), d.Follow(c, two)
	if one.Alone() || equal.Alone() || !other.Alone() || d.Waiting() != 3 {
		t.Errorf("alone: %t, %t, %t, of %d", one.Alone(), equal.Alone(), other.Alone(), d.Waiting())
	}
	if equal.Stop(); !one.Alone() || equal.Alone() {
		t.Errorf("left alone: %t, %t", one.Alone(), equal.Alone())
	}
	equal.Stop()
	if equal = d.Follow(c, twice); one.Alone() {
		t.Error("nobody else follows")
	}
	o.says("approve", s)
	for _, f := range []*desk.Follower{one, equal, other} {
		decided(t, f, "approved")
	}
	if one.Stop(); !equal.Alone() || !other.Alone() {
		t.Error("there are more")
	}
	if equal.Stop(); !one.Alone() || !equal.Alone() {
		t.Error("there are still some")
	}
}

// Votes before the last one change a task, and it still waits.
func TestDeskQuorum(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	d, c := o.desk(), o.client()
	f := d.Follow(c, o.asksOf(c, "merge", 1, approvals.JoinEqual()))
	o.watched()
	o.says("approve", f.Standing())
	pending(t, f)
	o.saysAs("ann", "approve", f.Standing())
	decided(t, f, "approved")
}

// Three hundred wait by one watch, and are looked at a few at a time. When they have gone nothing is asked any more.
func TestDeskMany(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	d, c := o.desk(), o.client()
	const many = 300
	var followers []*desk.Follower
	for n := range many {
		followers = append(followers, d.Follow(c, o.asks(c, n)))
	}
	if d.Waiting() != many {
		t.Errorf("%d wait", d.Waiting())
	}
	for n := 0; n < many; n += 5 {
		o.says([]string{"approve", "deny"}[n%2], followers[n].Standing())
	}
	for n, f := range followers {
		if n%5 != 0 {
			pending(t, f)
		} else {
			decided(t, f, []string{"approved", "denied"}[n%2])
		}
	}
	if asked, _, most := o.count("watch"); most != 1 {
		t.Errorf("there were %d watches at a time, %d in all", most, asked)
	}
	if asked, _, most := o.count("look"); most > 16 || asked > many {
		t.Errorf("%d looks at a time, %d in all", most, asked)
	}
	for _, f := range followers {
		f.Stop()
		f.Stop()
	}
	if d.Waiting() != 0 {
		t.Errorf("%d wait", d.Waiting())
	}
	mcptest.Until(t, "nobody watches", func() bool { _, open, _ := o.count("watch"); return open == 0 })
	asked, _, _ := o.count("watch")
	looks, _, _ := o.count("look")
	t.Logf("%d watches one after the other, %d looks", asked, looks)
	f := d.Follow(c, o.asks(c, many)) // and it begins again
	o.says("approve", f.Standing())
	decided(t, f, "approved")
}

// With the last follower the watch ends, also one that the PDP does not answer.
func TestDeskEnds(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	held, gone := make(chan struct{}, 1), make(chan struct{}, 1)
	o.answers(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("wait") == "" {
			return false
		}
		held <- struct{}{}
		<-r.Context().Done()
		gone <- struct{}{}
		return true
	})
	d, c := o.desk(), o.client(authzenclient.WithTimeout(time.Hour))
	for n, ends := range []func(*desk.Follower){
		(*desk.Follower).Stop,
		func(*desk.Follower) { d.Close() },
	} {
		f, other := d.Follow(c, o.asks(c, n)), d.Follow(c, o.asks(c, n))
		<-held
		other.Stop()
		select {
		case <-gone:
			t.Error("the watch has ended, and one waits")
		default:
		}
		ends(f)
		select {
		case <-gone:
		case <-time.After(patience):
			t.Fatal("the watch has not ended")
		}
		f.Stop()
	}
}

// Each client of the PDP has a watch of its own, which hears nothing of the other's.
func TestDeskClients(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	d, one, two := o.desk(), o.client(), o.client(authzenclient.WithTenant("acme"))
	f, g := d.Follow(one, o.asks(one, 1)), d.Follow(two, o.asks(two, 1))
	mcptest.Until(t, "both are watched", func() bool { _, open, _ := o.count("watch"); return open == 2 })
	o.says("approve", f.Standing())
	decided(t, f, "approved")
	pending(t, g)
	o.says("deny", g.Standing())
	decided(t, g, "denied")
}

// Followers that come and go while others are decided disturb no others.
func TestDeskComeAndGo(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	d, c := o.desk(), o.client()
	var standings []approvals.Standing
	const tasks, visitors = 40, 8
	for n := range tasks {
		standings = append(standings, o.asks(c, n))
	}
	var all sync.WaitGroup
	for visitor := range visitors {
		all.Go(func() {
			for n, s := range standings {
				f := d.Follow(c, s)
				if (n+visitor)%3 == 0 {
					f.Stop()
					continue
				}
				if visitor == n%visitors {
					o.says("approve", s)
				}
				select {
				case <-f.Decided():
					if !f.Standing().Approved() {
						t.Error(f.Standing())
					}
				case <-time.After(patience):
					t.Error("it is not decided")
				}
				f.Stop()
			}
		})
	}
	all.Go(func() { // those whose visitor has gone at once
		for n, s := range standings {
			if (n+n%visitors)%3 == 0 {
				o.says("approve", s)
			}
		}
	})
	all.Wait()
	if d.Waiting() != 0 {
		t.Errorf("%d wait", d.Waiting())
	}
	if _, _, most := o.count("look"); most > 32 { // of a round that has ended, and of the next
		t.Errorf("%d looks at a time", most)
	}
}

// After Close no decision is heard, and nothing is asked.
func TestDeskCloses(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	d, c := desk.New(desk.Options{Logger: slog.New(slog.DiscardHandler), Now: time.Now}), o.client()
	f := d.Follow(c, o.asks(c, 1))
	o.watched()
	d.Close()
	d.Close()
	mcptest.Until(t, "nobody watches", func() bool { _, open, _ := o.count("watch"); return open == 0 })
	watches, _, _ := o.count("watch")
	looks, _, _ := o.count("look")
	late := d.Follow(c, o.asks(c, 2))
	for _, f := range []*desk.Follower{f, late} {
		o.says("approve", f.Standing())
		if pending(t, f); !f.Alone() {
			t.Error("there is somebody else")
		}
		f.Stop()
	}
	s, err := approvals.Look(t.Context(), c, f.Standing().Task())
	o.must(err)
	decided(t, d.Follow(c, s), "approved")
	if n, _, _ := o.count("watch"); n != watches || d.Waiting() != 0 {
		t.Errorf("%d watches, of which %d before; %d wait", n, watches, d.Waiting())
	}
	if n, _, _ := o.count("look"); n != looks+1 {
		t.Errorf("%d looks, of which %d before", n, looks)
	}
}

// refuses answers questions of a kind with a status.
func refuses(kind string, status int, headers ...string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if kindOf(r) != kind {
			return false
		}
		for n := 0; n+1 < len(headers); n += 2 {
			w.Header().Set(headers[n], headers[n+1])
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = fmt.Fprint(w, `{}`)
		return true
	}
}

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
	third := o.asksOf(other, "merge", 3, approvals.JoinEqual())
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
	decided(t, f, "approved")
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
		decided(t, g, "approved")
		pending(t, f)
	}
}
