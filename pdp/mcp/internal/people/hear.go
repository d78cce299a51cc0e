package people

import (
	"context"
	"maps"
	"time"

	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
)

// mostHeard is how many approvals are known to wait, at one client of a PDP.
const mostHeard = 1 << 16

// hearing is who hears of all that waits. The lock of the desk guards it.
type hearing struct {
	hearers map[*hearer]bool
	// known are the approvals that wait, as far as was told.
	known map[string]bool

	// due is set while what waits is to be listed, from behind page on, and listed are those that were until now. late is set
	// until what changed before has been told: it would be told of again after it was listed.
	due    bool
	late   bool
	page   string
	listed map[string]bool
}

// hearer is one who hears.
type hearer struct {
	hear func(approval string, waits bool)
}

// Hear hears of all that waits for people at a client of a PDP, whoever asked for it by the same credential: of each approval
// what waits now, and from then on what begins to wait, what is told of again while it waits, and what does not wait any
// longer. While the PDP cannot be watched, nothing is heard. After stop what was heard to wait does not any longer, and nothing
// more is heard; it must be called, and more calls do nothing.
//
// What hear is given to do must neither wait nor call the desk.
func (d *Desk) Hear(pdp *authzenclient.Client, hear func(approval string, waits bool)) (stop func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w := d.watch(pdp)
	h := &hearer{hear}
	if len(w.hearing.hearers) == 0 {
		w.hearing = hearing{hearers: map[*hearer]bool{}, known: map[string]bool{}}
		w.list()
	}
	w.hearing.hearers[h] = true
	for id := range w.hearing.known {
		hear(id, true)
	}
	w.begin()
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if !w.hearing.hearers[h] {
			return
		}
		delete(w.hearing.hearers, h)
		for id := range w.hearing.known {
			hear(id, false)
		}
		if len(w.hearing.hearers) == 0 {
			w.hearing = hearing{}
			w.end()
		}
	}
}

// list has what waits be listed anew, before anything else is asked. The caller holds the lock, as that of every method here.
func (w *watch) list() {
	w.hearing.due, w.hearing.page, w.hearing.listed = true, "", map[string]bool{}
	w.hearing.late = w.cursor != "" && w.waiting > 0
	w.interrupt()
}

// tell tells who hears what has become of an approval.
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
	case h.due && !h.late && h.known[id]: // it is no news that it waits
		h.listed[id] = true
		return
	default:
		h.known[id] = true
		if h.due && !h.late {
			h.listed[id] = true
		}
	}
	for one := range h.hearers {
		one.hear(id, waits)
	}
}

// lists takes a page of what waits. What is not in the last one, and was known to wait, does not any longer.
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
	if w.cursor == "" || w.waiting == 0 { // nobody has to know what happened before
		w.cursor, w.settled = h.page, true
		w.oweAll()
		w.staff()
	}
	h.due, h.page, h.listed = false, "", nil
}

// question is what the PDP is asked next.
type question struct {
	ctx   context.Context
	after string
	lists bool
	wait  time.Duration
}

// question is what to ask, until done is called: [watch.interrupt] ends it before.
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

// interrupt ends what the PDP is asked now: there is something else to ask.
func (w *watch) interrupt() {
	if w.interrupts != nil {
		w.interrupts()
	}
}
