package people

import (
	"context"
	"maps"
	"time"

	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
)

// mostHeard is how many waiting approvals are known for one client of a PDP.
const mostHeard = 1 << 16

// hearing has the hearers of all waiting approvals. The lock of the desk guards it.
type hearing struct {
	hearers map[*func(approval string, waits bool)]bool
	// known are the waiting approvals, as reported.
	known map[string]bool

	// due is set while a list is to be read, from behind page on, and listed has the approvals that it showed so far. late is
	// set until all earlier changes have been reported: otherwise they would be reported again after the list.
	due    bool
	late   bool
	page   string
	listed map[string]bool
}

// Hear reports all approvals of a client of a PDP that wait for people, also those that other processes asked for by the same
// credential: first each that waits now, then each that begins to wait, is reported again while it waits, or stops waiting.
// While the PDP cannot be watched, there are no reports. Stop reports that the known approvals wait no longer, and ends the
// reports; it must be called, and more calls do nothing.
//
// Hear must neither wait nor call the desk.
func (d *Desk) Hear(pdp *authzenclient.Client, hear func(approval string, waits bool)) (stop func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w := d.watch(pdp)
	if len(w.hearing.hearers) == 0 {
		w.hearing = hearing{hearers: map[*func(string, bool)]bool{}, known: map[string]bool{}}
		w.list()
	}
	w.hearing.hearers[&hear] = true
	for id := range w.hearing.known {
		hear(id, true)
	}
	w.begin()
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if !w.hearing.hearers[&hear] {
			return
		}
		delete(w.hearing.hearers, &hear)
		for id := range w.hearing.known {
			hear(id, false)
		}
		if len(w.hearing.hearers) == 0 {
			w.hearing = hearing{}
			w.end()
		}
	}
}

// list makes the next question one for a new list. The caller holds the lock, as with every method here.
func (w *watch) list() {
	w.hearing.due, w.hearing.page, w.hearing.listed = true, "", map[string]bool{}
	w.hearing.late = w.cursor != "" && w.waiting > 0
	w.interrupt()
}

// tell reports to all hearers whether an approval waits.
func (w *watch) tell(id string, waits bool) {
	h := &w.hearing
	switch {
	case len(h.hearers) == 0:
		return
	case !waits && !h.known[id], waits && !h.known[id] && len(h.known) >= mostHeard:
		return
	case !waits:
		delete(h.known, id)
		delete(h.listed, id)
	case h.due && !h.late && h.known[id]: // the hearers know that it waits
		h.listed[id] = true
		return
	default:
		h.known[id] = true
		if h.due && !h.late {
			h.listed[id] = true
		}
	}
	for one := range h.hearers {
		(*one)(id, waits)
	}
}

// lists takes a page of the list. After the last page, known approvals that the list has not do not wait any longer.
func (w *watch) lists(r *round, q question, changes approvals.Changes) {
	w.desk.mu.Lock()
	defer w.desk.mu.Unlock()
	h := &w.hearing
	if w.round != r || !h.due || h.page != q.after {
		return
	}
	w.answers()
	for id, waits := range changes.Waiting() {
		w.tell(id, waits)
	}
	if h.page = changes.Cursor(); changes.More() {
		return
	}
	for id := range maps.Clone(h.known) {
		if !h.listed[id] {
			w.tell(id, false)
		}
	}
	if w.cursor == "" || w.waiting == 0 { // no follower waits for earlier changes
		w.cursor, w.settled = h.page, true
		w.oweAll()
		w.staff()
	}
	h.due, h.page, h.listed = false, "", nil
}

// question is the next question to the PDP.
type question struct {
	ctx   context.Context
	after string
	lists bool
	wait  time.Duration
}

// question returns the next question, which lasts until done is called, or [watch.interrupt].
func (w *watch) question(r *round) (q question, done func()) {
	w.desk.mu.Lock()
	defer w.desk.mu.Unlock()
	q = question{after: w.cursor, lists: w.hearing.due && !w.hearing.late}
	switch {
	case q.lists:
		q.after = w.hearing.page
	case !w.hearing.due:
		q.wait = longest
	}
	q.ctx, done = context.WithCancel(r.ctx)
	if w.round == r { // one that is over may come once more
		w.interrupts = done
	}
	return q, done
}

// interrupt ends the present question to the PDP: another one comes first.
func (w *watch) interrupt() {
	if w.interrupts != nil {
		w.interrupts()
	}
}
