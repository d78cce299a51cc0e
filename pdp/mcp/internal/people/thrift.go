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
	// fewBegin is how many begin to wait before anything is done, and part how large a part those must be of all who wait that
	// have begun meanwhile, to be many.
	fewBegin = 64
	part     = 16
	// soon is how long it is until then, and collectRests and giveBackRests how much longer than that took it is until the next
	// time.
	soon          = 500 * time.Millisecond
	collectRests  = 10
	giveBackRests = 50
	// halves is how often the collector must come until the stack of who waits is no larger than it has to be.
	halves = 2
)

// thrift keeps small what the many hold who wait. The lock of its desk guards it.
type thrift struct {
	begun int           // how many began since something was done
	rests time.Duration // until something may be done again
	next  *time.Timer   // nil if nothing is to be done
}

// begins notes that one more waits.
func (d *Desk) begins() {
	t := &d.thrift
	if t.begun++; t.begun >= fewBegin && d.waiting >= fewBegin && t.next == nil && !d.closed {
		t.next = time.AfterFunc(max(soon, t.rests), d.tidy)
	}
}

// tidy has the collector work if many have begun to wait, and gives memory back if few have.
func (d *Desk) tidy() {
	t := &d.thrift
	d.mu.Lock()
	many := t.begun >= max(fewBegin, d.waiting/part)
	t.begun = 0
	d.mu.Unlock()
	began, rests := time.Now(), time.Duration(collectRests)
	runtime.GC()
	if !many {
		rests = giveBackRests
		for range halves - 1 {
			runtime.GC()
		}
		debug.FreeOSMemory()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	t.rests = rests * time.Since(began)
	if t.next = nil; !d.closed && (many || t.begun > 0) {
		t.next = time.AfterFunc(max(soon, t.rests), d.tidy)
	}
}

// ends keeps memory from being given back after the desk has closed.
func (t *thrift) ends() {
	if t.next != nil {
		t.next.Stop()
	}
}
