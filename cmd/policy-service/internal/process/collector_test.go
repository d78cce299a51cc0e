package process

import (
	"math"
	"runtime"
	"runtime/metrics"
	"testing"
	"time"
)

func TestPercentFor(t *testing.T) {
	for _, test := range []struct {
		what         string
		marked, room uint64
		want         int
	}{
		{"a process that allocates nothing", 5 << 20, 0, 100},
		{"less room than the heap takes", 5 << 20, 3 << 20, 100},
		{"a small heap", 4 << 20, 64 << 20, 1600},
		{"a great heap", 150 << 20, 64 << 20, 100},
		{"no heap at all", 0, 0, 100},
	} {
		if got := percentFor(test.marked, test.room); got != test.want {
			t.Errorf("%s: got %d, want %d", test.what, got, test.want)
		}
	}
}

func TestRoomOf(t *testing.T) {
	for limit, want := range map[int64]uint64{math.MaxInt64: 64 << 20, 512 << 20: 64 << 20, 128 << 20: 16 << 20, 0: 0, -1: 0} {
		if got := roomOf(limit); got != want {
			t.Errorf("a limit of %d leaves %d, want %d", limit, got, want)
		}
	}
}

// TestLeave: a load that comes and goes finds nearly the room that it had, and a calm process has what it needs.
func TestLeave(t *testing.T) {
	at := time.Now()
	before := reading{at: at}
	for _, test := range []struct {
		what      string
		left      uint64
		after     time.Duration
		allocated uint64
		want      uint64
	}{
		{"the first cycle of a busy process", 0, time.Second, 40 << 20, 40 << 20},
		{"more is allocated", 32 << 20, time.Second, 40 << 20, 40 << 20},
		{"less is allocated", 64 << 20, 2 * time.Second, 80 << 20, 62 << 20},
		{"much is allocated", 64 << 20, time.Second, 1 << 30, roomBytes},
		{"little is allocated", 64 << 20, calmTime, calmBytes / 2, calmBytes / 2 / 5},
	} {
		c := Collector{room: roomBytes, left: test.left, last: before}
		if got := c.leave(reading{at: at.Add(test.after), allocated: test.allocated}); got != test.want {
			t.Errorf("%s: got %d, want %d", test.what, got, test.want)
		}
	}
}

// TestCollector: each of many cycles is heard of, and sets how much is allocated before the next: more in a busy process,
// as usual in a calm one. Stop leaves what Go does by itself.
func TestCollector(t *testing.T) {
	t.Setenv("GOGC", "")
	c := StartCollector()
	defer c.Stop()
	for range 20 {
		await(t, "room in a busy process", func() bool {
			c.pretend(time.Second, 1<<30)
			runtime.GC()
			return gogc() > 2*usualPercent
		})
		await(t, "no room in a calm process", func() bool {
			c.pretend(time.Hour, 0)
			runtime.GC()
			return gogc() == usualPercent
		})
	}
	await(t, "room", func() bool {
		c.pretend(time.Second, 1<<30)
		runtime.GC()
		return gogc() > usualPercent
	})
	c.Stop()
	if got := gogc(); got != usualPercent {
		t.Errorf("after Stop, GOGC is %d", got)
	}
	c.cycled() // a cycle that was on its way
	if got := gogc(); got != usualPercent {
		t.Errorf("after Stop and a cycle, GOGC is %d", got)
	}
}

// TestCollectorLooks: a process that is calm collects once, if there is anything to give back.
func TestCollectorLooks(t *testing.T) {
	at := time.Now()
	before := reading{at: at, allocated: 1 << 30}
	for _, test := range []struct {
		what        string
		after       time.Duration
		allocated   uint64
		percent     int
		calm, worth bool
	}{
		{"nothing was allocated", calmTime, 0, usualPercent, true, false},
		{"room is left over", calmTime, 0, 5 * usualPercent, true, true},
		{"there is garbage", calmTime, worthBytes, usualPercent, true, true},
		{"requests go on", calmTime, calmBytes, usualPercent, false, true},
		{"requests have just begun", time.Second, calmBytes / 2, usualPercent, false, true},
	} {
		c := Collector{percent: test.percent, last: before, looked: before}
		now := reading{at: at.Add(test.after), allocated: before.allocated + test.allocated}
		if calm, worth := c.look(now); calm != test.calm || worth != test.worth {
			t.Errorf("%s: got %v, %v, want %v, %v", test.what, calm, worth, test.calm, test.worth)
		}
		if calm, _ := c.look(reading{at: now.at.Add(calmTime), allocated: now.allocated}); !calm {
			t.Errorf("%s, and nothing after that: the process is not calm", test.what)
		}
	}
}

// TestCollectorRests: room that is left over goes when the process is calm.
func TestCollectorRests(t *testing.T) {
	t.Setenv("GOGC", "")
	c := StartCollector()
	defer c.Stop()
	await(t, "room", func() bool {
		c.pretend(time.Second, 1<<30)
		runtime.GC()
		return gogc() > 2*usualPercent
	})
	await(t, "no room after a rest", func() bool {
		c.pretend(time.Hour, 0)
		c.rest()
		return gogc() == usualPercent
	})
}

// TestCollectorLoaded: bundles that come into force at once are followed by one cycle.
//
// It takes a second: that long the bundle before may be in use.
func TestCollectorLoaded(t *testing.T) {
	t.Setenv("GOGC", "")
	c := StartCollector()
	defer c.Stop()
	before := forced()
	c.Loaded()
	c.Loaded()
	await(t, "a cycle after a load", func() bool { return forced() != before })
	if got := forced() - before; got != 1 {
		t.Errorf("%d cycles, want 1", got)
	}
}

// TestGOGC: what the operator sets counts.
func TestGOGC(t *testing.T) {
	t.Setenv("GOGC", "100")
	c := StartCollector()
	if c != nil {
		t.Fatal("GOGC is set, and a Collector runs")
	}
	c.Loaded()
	c.Stop()
}

// pretend has the last cycle be so long ago, and so much allocated since.
func (c *Collector) pretend(ago time.Duration, allocated uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := read()
	c.last = reading{at: now.at.Add(-ago), allocated: now.allocated - allocated}
	c.looked = c.last
}

func gogc() int { return int(number("/gc/gogc:percent")) }

func forced() uint64 { return number("/gc/cycles/forced:gc-cycles") }

func number(name string) uint64 {
	sample := []metrics.Sample{{Name: name}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !so(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("there is not yet %s", what)
		}
	}
}
