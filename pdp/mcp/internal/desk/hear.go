package desk

import (
	"policy-service/evaluation/authzenclient"
	"policy-service/evaluation/authzenclient/approvals"
)

// Hear calls changed whenever approvals of a client of a PDP may wait for people that did not before, or that other people
// may decide about now: also those that other processes asked for by the same credential. While the PDP cannot be watched,
// there are no calls; what changed meanwhile is reported afterwards. Stop ends the calls; it must be called, and more calls
// do nothing.
//
// Changed must neither wait nor call the desk.
func (d *Desk) Hear(pdp *authzenclient.Client, changed func()) (stop func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w := d.watch(pdp)
	w.hearers[&changed] = true
	w.begin()
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(w.hearers, &changed)
		w.end()
	}
}

// report calls the hearers if an approval of these tasks waits. The caller holds the lock.
func (w *watch) report(changes approvals.Changes) {
	for _, waits := range changes.Waiting() {
		if waits {
			for changed := range w.hearers {
				(*changed)()
			}
			return
		}
	}
}
