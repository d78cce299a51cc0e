package process

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	// roomBytes is the most that is allocated before the next cycle of the collector, unless the heap itself is greater.
	roomBytes = 64 << 20
	// roomTime is how long the room lasts, at the rate at which the process allocates.
	roomTime = time.Second
	// usualPercent is what Go sets by itself: the next cycle comes when the heap has doubled.
	usualPercent = 100

	// A process is calm if it allocates less than calmBytes in calmTime. Probes and scrapes allocate less.
	calmBytes = 8 << 20
	calmTime  = 5 * time.Second
	// worthBytes of garbage are worth a cycle.
	worthBytes = 4 << 20

	// inUse is how long the bundle before may be in use after another one came into force.
	inUse = time.Second
)

// Collector says when the garbage collector runs. By itself it runs whenever the heap has doubled. With a small bundle
// the heap is a few megabytes, so it would run every hundred requests, which is a fifth of what a decision costs. So
// after each cycle a Collector leaves room for what the process allocates in a second. When the process becomes
// calm, it collects once more and gives what is free back to the system, which nothing else would do: without
// allocations there is no cycle.
type Collector struct {
	room uint64

	mu      sync.Mutex
	stopped bool
	percent int
	left    uint64      // the room since the last cycle
	last    reading     // at the last cycle
	looked  reading     // when rest looked last
	resting *time.Timer // calls rest
	loaded  *time.Timer // nil if no bundle came into force lately
}

// StartCollector starts a Collector. It is nil, and does nothing, if GOGC says when to collect. GOMEMLIMIT, or the limit
// of [LimitMemory], holds as without it, and a small limit leaves less room.
func StartCollector() *Collector {
	if os.Getenv("GOGC") != "" {
		return nil
	}
	c := &Collector{room: roomOf(debug.SetMemoryLimit(-1)), percent: usualPercent, last: read()}
	c.looked = c.last
	c.resting = time.AfterFunc(calmTime, c.rest)
	c.follow()
	return c
}

// roomOf is the room that a memory limit leaves.
func roomOf(limit int64) uint64 { return min(roomBytes, uint64(max(limit, 0))/8) }

// follow has the next cycle of the collector call cycled: nothing holds what follow makes, so the cycle finds it.
func (c *Collector) follow() {
	type found struct{ _ *found }
	runtime.AddCleanup(new(found), (*Collector).cycled, c)
}

// cycled sets the room until the next cycle.
func (c *Collector) cycled() {
	now := read()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return
	}
	c.follow()
	c.left = c.leave(now)
	percent := percentFor(now.marked, c.left)
	c.last, c.looked = now, now
	// To set it stops the process for a moment, so a small change is not worth it. A greater one is: whenever the heap is
	// to be a tenth smaller than before, Go gives pages back to the system, and takes them again a moment later.
	if c.percent < percent*15/16 || c.percent > percent*17/16 {
		c.percent = percent
		debug.SetGCPercent(percent)
	}
	c.resting.Reset(calmTime)
}

// leave is the room until the next cycle: what the process allocates in a second. Unless it is calm, the room becomes
// smaller by little at a time, so that a load that comes and goes finds it again.
func (c *Collector) leave(now reading) uint64 {
	room := min(c.room, now.rateSince(c.last, roomTime))
	if now.rateSince(c.last, calmTime) < calmBytes {
		return room
	}
	return max(room, c.left/32*31)
}

// percentFor is what GOGC must be to leave room for so many bytes, if a cycle marks so many. The heap may always double.
func percentFor(marked, room uint64) int {
	return max(usualPercent, int(100*room/max(marked, 1)))
}

// rest collects if the process is calm. It is called some time after the last cycle.
func (c *Collector) rest() {
	c.mu.Lock()
	calm, worth := c.look(read())
	if !c.stopped && !calm {
		c.resting.Reset(calmTime)
	}
	collect := !c.stopped && calm && worth
	c.mu.Unlock()
	if collect {
		debug.FreeOSMemory()
	}
}

// look reports if the process is calm, and if a cycle is worth its while.
func (c *Collector) look(now reading) (calm, worth bool) {
	calm = now.rateSince(c.looked, calmTime) < calmBytes
	worth = now.allocated-c.last.allocated >= worthBytes || c.percent > usualPercent
	c.looked = now
	return calm, worth
}

// Loaded gives back what a bundle took that is no longer in force, and what it took to load the one that is. By itself
// the collector would come when the heap is twice as great as with both.
func (c *Collector) Loaded() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped || c.loaded != nil {
		return
	}
	c.loaded = time.AfterFunc(inUse, func() {
		c.mu.Lock()
		c.loaded = nil
		c.mu.Unlock()
		debug.FreeOSMemory()
	})
}

// Stop leaves the garbage collector as it was.
func (c *Collector) Stop() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	c.resting.Stop()
	if c.loaded != nil {
		c.loaded.Stop()
	}
	debug.SetGCPercent(usualPercent)
}

// reading is what a Collector sees of the process.
type reading struct {
	at        time.Time
	marked    uint64 // by the last cycle: what GOGC is a percentage of
	allocated uint64 // since the process began
}

func read() reading {
	samples := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"},
		{Name: "/gc/scan/stack:bytes"},
		{Name: "/gc/scan/globals:bytes"},
		{Name: "/gc/heap/allocs:bytes"},
	}
	metrics.Read(samples)
	return reading{
		at:        time.Now(),
		marked:    samples[0].Value.Uint64() + samples[1].Value.Uint64() + samples[2].Value.Uint64(),
		allocated: samples[3].Value.Uint64(),
	}
}

// rateSince is how much was allocated since another reading, for so long a time.
func (r reading) rateSince(before reading, of time.Duration) uint64 {
	passed := max(r.at.Sub(before.at), time.Microsecond)
	return uint64(float64(r.allocated-before.allocated) / passed.Seconds() * of.Seconds())
}
