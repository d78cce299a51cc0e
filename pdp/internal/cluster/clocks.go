package cluster

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// ErrClock: the clock here may be wrong.
var ErrClock = errors.New("the clock here differs from those of the other replicas by more than capabilities.clock_skew, or may")

// clocks is what this member knows of the other members' clocks.
type clocks struct {
	mu sync.Mutex // guards what follows
	// runs says that this process watches the others, and takes proofs once its clock is right.
	runs bool
	// listed says that the others include all members that ran when the entry of this process first said that it runs. So of two
	// that start together, the later one counts the other.
	listed bool
	others map[string]*otherClock
	// agreed is the setting of the clock here when more than half of the members last agreed, or it was alone at first; settled says
	// that there is one. shown is the latest reading of a clock that was right, as far as that is known here.
	agreed  time.Duration
	settled bool
	shown   time.Time
	met     chan struct{} // has a value if there is a new member, which waits for a message
}

// otherClock is the clock of another member. By both bounds it may be anywhere in between: the delay of messages is in them.
type otherClock struct {
	starts        bool // it takes no proofs yet, and does not count
	heard         bool
	ahead, behind time.Duration // this clock is by at most so much, when the member was heard
	setting       time.Duration // of the clock here, then
}

// setting changes exactly if somebody sets the clock here.
func (c *Cluster) setting() time.Duration {
	return time.Duration(c.options.Now().UnixNano()) - c.options.Elapsed()
}

// list notes the members that are there, of which some may not have been heard yet.
func (c *Cluster) list(members []entry) {
	c.clocks.mu.Lock()
	others := map[string]*otherClock{}
	for _, m := range members {
		if others[m.Origin] = c.clocks.others[m.Origin]; others[m.Origin] == nil {
			others[m.Origin] = new(otherClock)
		}
		others[m.Origin].starts = m.Starts
	}
	delete(others, c.Origin())
	c.mu.Lock()
	for _, one := range c.mark.Origins {
		if last := one.Shown.Add(sayEvery); !c.clocks.listed && one.Lost == nil && c.clocks.shown.Before(last) {
			c.clocks.shown = last
		}
	}
	c.mu.Unlock()
	c.clocks.listed = c.clocks.listed || slices.ContainsFunc(members, c.isRunning)
	c.clocks.others = others
	c.clocks.mu.Unlock()
	_ = c.Clock() // which notes that they agree
}

// isRunning reports whether an entry is that of this process, and says that it runs.
func (c *Cluster) isRunning(e entry) bool { return e.Run == c.run && !e.Starts }

// hearOwn notes the entry of this process, after all that were written before it.
func (c *Cluster) hearOwn(e entry) {
	if !c.isRunning(e) {
		return
	}
	c.clocks.mu.Lock()
	c.clocks.listed = true
	c.clocks.mu.Unlock()
	_ = c.Clock()
}

// hear notes the clock of another member, nil if the member is gone.
func (c *Cluster) hear(origin string, m *entry, now time.Time) {
	c.clocks.mu.Lock()
	before, known := c.clocks.others[origin]
	if m == nil {
		delete(c.clocks.others, origin)
	} else {
		behind, heard := m.Ahead[c.Origin()]
		if !known || !before.heard {
			select {
			case c.clocks.met <- struct{}{}:
			default:
			}
		}
		c.clocks.others[origin] = &otherClock{m.Starts, heard, now.Sub(m.Clock), time.Duration(behind), c.setting()}
	}
	c.clocks.mu.Unlock()
	_ = c.Clock()
}

// Shown returns the latest reading of a clock that was right, as far as that is known here.
func (c *Cluster) Shown() time.Time {
	c.clocks.mu.Lock()
	defer c.clocks.mu.Unlock()
	return c.clocks.shown
}

// Clock returns [ErrClock] unless the clock here is as right as can be known. It is if it agrees with those of more than half of
// the running members, this one included. A member that is alone, or with which exactly half agree, such as one of two that
// differ, is right if nobody has set its clock since more than half last agreed. So a member that is wrong never stops the others.
//
// Clocks agree that may differ by [Options.ClockSkew] and cannot differ by more than twice that.
func (c *Cluster) Clock() error {
	now, setting, skew := c.options.Now(), c.setting(), c.options.ClockSkew
	k := &c.clocks
	k.mu.Lock()
	defer k.mu.Unlock()
	within := func(d time.Duration) bool { return -skew <= d && d <= 2*skew }
	members, agree := 1, 1
	for _, o := range k.others {
		if o.starts {
			continue
		}
		members++
		if set := setting - o.setting; o.heard && within(o.ahead+set) && within(o.behind-set) {
			agree++
		}
	}
	most := k.listed && 2*agree > members
	if most && (members > 1 || !k.settled) {
		k.agreed, k.settled = setting, true
	}
	if unset := k.settled && (setting-k.agreed).Abs() <= skew; !unset || !most && 2*agree < members {
		return fmt.Errorf("%w; %d of %d agree; see to time synchronization on this machine, or restart it if it is alone", ErrClock, agree, members)
	}
	if k.shown.Before(now) {
		k.shown = now.Round(0)
	}
	return nil
}
