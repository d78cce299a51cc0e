package people

import (
	"runtime"
	"runtime/debug"
	"time"
)

// Who begins to wait has been read, decided about and filed just now. That takes several times the memory which the wait itself
// takes, and a stack that is deeper by far, and what is free of it later lies between what stays. The collector comes when the
// heap has doubled, which is late if thousands wait. So it is called while many begin, and memory is given back once few do. Both
// have a small part of the time.
const (
	// fewBegin is how many begin to wait before anything is done, and part how large a part of all who wait they must be.
	fewBegin = 64
	part     = 16
	// collectRests and giveBackRests are how much longer than it took it is until the same is done again. On a machine
	// that has other things to do that is long: so memory is given back before if half of those who wait began since.
	collectRests  = 10
	giveBackRests = 50
	// lull is how long few must begin to wait, twice, before memory is given back.
	lull = time.Second
)

// thrift keeps small what the many hold who wait. The lock of its desk guards it.
type thrift struct {
	begun int         // how many began since something was done
	fresh int         // how many began since it was looked
	owing int         // how many began since memory was given back
	quiet bool        // whether they were few the last time
	works bool        // whether something is being done
	next  *time.Timer // until it is looked, nil if nothing is to be given back

	// Until when there is a rest from each.
	collected, gaveBack time.Time
}

// many is how many must begin.
func (d *Desk) many() int { return max(fewBegin, d.waiting/part) }

// begins notes that one more waits.
func (d *Desk) begins() {
	t := &d.thrift
	t.begun++
	t.fresh++
	t.owing++
	if d.waiting < fewBegin || t.begun < fewBegin || d.closed {
		return
	}
	if t.next == nil {
		t.next = time.AfterFunc(lull, d.look)
	}
	if t.begun >= d.many() && !t.works && time.Now().After(t.collected) {
		t.works = true
		d.running.Go(d.collect)
	}
}

// collect calls the collector.
func (d *Desk) collect() {
	began := time.Now()
	runtime.GC()
	d.done(&d.thrift.collected, collectRests*time.Since(began))
}

func (d *Desk) done(until *time.Time, rests time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.thrift.works, d.thrift.begun = false, 0
	*until = time.Now().Add(rests)
}

// look gives memory back if few have begun to wait for a while, and looks again later if not.
func (d *Desk) look() {
	if !d.idles() {
		return
	}
	began := time.Now()
	for range 2 { // each time a stack is halved that is larger than it has to be
		runtime.GC()
	}
	debug.FreeOSMemory()
	d.done(&d.thrift.gaveBack, giveBackRests*time.Since(began))
}

// idles reports whether memory is to be given back now.
func (d *Desk) idles() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := &d.thrift
	before := t.quiet
	t.quiet, t.fresh = t.fresh < d.many(), 0
	t.next = nil
	switch {
	case d.closed:
		return false
	case before && t.quiet && !t.works && (time.Now().After(t.gaveBack) || t.owing >= d.waiting/2):
		t.works, t.quiet, t.owing = true, false, 0
		return true
	}
	t.next = time.AfterFunc(lull, d.look)
	return false
}

// ends keeps memory from being given back after the desk has closed.
func (t *thrift) ends() {
	if t.next != nil {
		t.next.Stop()
	}
}
