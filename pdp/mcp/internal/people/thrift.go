package people

import (
	"runtime/debug"
	"time"
)

// Who begins to wait has been read, decided about and filed just now: that takes several times the memory which the wait itself
// takes, and a stack that is twice as deep. The collector sees to it when the heap has doubled, and not sooner because thousands
// do nothing from then on. So it is called after many have begun to wait, but it never has more than a small part of the time.
const (
	// fewBegin is how many begin to wait, and how many must wait at all, before memory is given back.
	fewBegin = 64
	// restsAtLeast is how long it is until then, and restsTimes how much longer than it took the last time.
	restsAtLeast = time.Second
	restsTimes   = 50
)

// thrift gives memory back while many wait. The lock of its desk guards it.
type thrift struct {
	begun int           // how many began since the last time
	rests time.Duration // until the next time
	next  *time.Timer   // nil if nothing is to be done
}

// begins notes that one more waits. Memory is given back a bit later.
func (d *Desk) begins() {
	t := &d.thrift
	if t.begun++; t.begun < fewBegin || d.waiting < fewBegin || t.next != nil || d.closed {
		return
	}
	t.next = time.AfterFunc(max(t.rests, restsAtLeast), d.giveBack)
}

// giveBack gives memory back, and once more a while later if somebody has begun to wait since: the last who begin are few.
func (d *Desk) giveBack() {
	t := &d.thrift
	d.mu.Lock()
	before := t.begun
	d.mu.Unlock()
	began := time.Now()
	debug.FreeOSMemory()
	took := time.Since(began)
	d.mu.Lock()
	defer d.mu.Unlock()
	t.rests = restsTimes * took
	if t.begun -= before; t.begun == 0 || d.closed {
		t.next = nil
		return
	}
	t.next = time.AfterFunc(max(t.rests, restsAtLeast), d.giveBack)
}

// ends keeps memory from being given back after the desk has closed.
func (t *thrift) ends() {
	if t.next != nil {
		t.next.Stop()
	}
}
