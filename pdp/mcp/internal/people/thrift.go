package people

import (
	"runtime"
	"runtime/debug"
	"time"
)

// Who begins to wait has been read, decided about and filed just now. That takes several times the memory which the wait itself
// takes, and a stack that is deeper by far, and what is free of it later lies between what stays. The collector comes when the
// heap has doubled, which is late if thousands wait. So it is called whenever so many have begun that it is worth it, and memory
// is given back once nobody begins any more.
const (
	// fewBegin is how many begin to wait before anything is done, and part how large a part they are of all who wait when the
	// collector is called.
	fewBegin = 64
	part     = 8
	// quiet is how long nobody begins to wait before memory is given back, and restsTimes how much longer than it took it is at
	// least until the next time.
	quiet      = time.Second
	restsTimes = 50
	// halves is how often the collector must come until the stack of who waits is no larger than it has to be.
	halves = 2
)

// thrift keeps small what the many hold who wait. The lock of its desk guards it.
type thrift struct {
	begun    int           // how many began since something was done
	collects bool          // whether the collector works
	idle     bool          // whether nobody began since it was looked
	rests    time.Duration // until memory may be given back again
	next     *time.Timer   // until it is looked, nil if nothing is to be given back
}

// begins notes that one more waits.
func (d *Desk) begins() {
	t := &d.thrift
	t.idle = false
	if t.begun++; t.begun < fewBegin || d.waiting < fewBegin || d.closed {
		return
	}
	if t.next == nil {
		t.next = time.AfterFunc(max(quiet, t.rests), d.giveBack)
	}
	if t.begun >= d.waiting/part && !t.collects {
		t.begun, t.collects = 0, true
		d.running.Go(d.collect)
	}
}

func (d *Desk) collect() {
	runtime.GC()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.thrift.collects = false
}

// giveBack gives memory back if nobody has begun to wait for a while, and looks again later if somebody has.
func (d *Desk) giveBack() {
	d.mu.Lock()
	t := &d.thrift
	idle := t.idle
	t.idle = true
	if t.next = nil; !idle && !d.closed {
		t.next = time.AfterFunc(quiet, d.giveBack)
	}
	d.mu.Unlock()
	if !idle {
		return
	}
	began := time.Now()
	for range halves {
		runtime.GC()
	}
	debug.FreeOSMemory()
	d.mu.Lock()
	defer d.mu.Unlock()
	t.begun, t.rests = 0, restsTimes*time.Since(began)
}

// ends keeps memory from being given back after the desk has closed.
func (t *thrift) ends() {
	if t.next != nil {
		t.next.Stop()
	}
}
