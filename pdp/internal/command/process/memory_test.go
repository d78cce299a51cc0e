package process

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"testing/fstest"
	"time"
)

func TestContainerMemory(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"no control groups": {nil, 0},
		"version 1":         {map[string]string{"proc/self/cgroup": "5:memory:/x\n", "sys/fs/cgroup/x/memory.max": "7\n"}, 0},
		"in a container":    {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "268435456\n"}, 268435456},
		"no limit":          {map[string]string{"proc/self/cgroup": "0::/a.slice/b.service\n", "sys/fs/cgroup/a.slice/b.service/memory.max": "max\n"}, 0},
		"a limit above":     {map[string]string{"proc/self/cgroup": "0::/a.slice/b.service\n", "sys/fs/cgroup/a.slice/memory.max": "1000\n", "sys/fs/cgroup/a.slice/b.service/memory.max": "max\n"}, 1000},
		"the least counts":  {map[string]string{"proc/self/cgroup": "1:cpu:/z\n0::/a/b\n", "sys/fs/cgroup/a/memory.max": "2000\n", "sys/fs/cgroup/a/b/memory.max": "3000\n"}, 2000},
		"a way out":         {map[string]string{"proc/self/cgroup": "0::/../../etc\n", "etc/memory.max": "1\n"}, 0},
	} {
		root := fstest.MapFS{}
		for file, text := range test.files {
			root[file] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := containerMemory(root); got != test.want {
			t.Errorf("%s: got %d, want %d", name, got, test.want)
		}
	}
}

func TestPercentFor(t *testing.T) {
	for live, want := range map[uint64]int{0: 3200, 4 << 20: 800, 32 << 20: 100, 150 << 20: 100} {
		if got := percentFor(live, 32<<20); got != want {
			t.Errorf("%d: got %d, want %d", live, got, want)
		}
	}
	if busy, calm := roomAfter(time.Second), roomAfter(time.Minute); busy != busyRoom || calm != calmRoom {
		t.Errorf("got %d for a busy process, and %d for a calm one", busy, calm)
	}
}

// GOGC follows the heap from one collection to the next, unless the operator has set it.
func TestLeaveRoom(t *testing.T) {
	gogc := func() uint64 {
		sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	before := debug.SetGCPercent(99)
	defer debug.SetGCPercent(before)
	t.Setenv("GOGC", "99")
	if LeaveRoom(); gogc() != 99 {
		t.Error("GOGC is set, and is changed")
	}
	t.Setenv("GOGC", "")
	runtime.GC()
	small := uint64(percentFor(0, calmRoom))
	if LeaveRoom(); gogc() <= 100 {
		t.Errorf("GOGC is %d while the heap is small, and %d at most", gogc(), small)
	}
	held := make([]byte, 2*busyRoom)
	for gogc() != 100 {
		runtime.GC()
	}
	runtime.KeepAlive(held)
}
