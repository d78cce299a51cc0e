package process

import (
	"io/fs"
	"log/slog"
	"os"
	"path"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"
)

// memoryShare is the part of a container's memory that the heap may take. The rest is for stacks, for the pages of the
// log's files that the kernel keeps, and for a short peak.
const memoryShare = 0.9

// LimitMemory makes the garbage collector work harder before the container's limit is reached, at which the kernel
// would end the process. If GOMEMLIMIT is set, it decides, and the runtime has read it already.
func LimitMemory(log *slog.Logger) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if limit := containerMemory(os.DirFS("/")); limit > 0 {
		bytes := int64(float64(limit) * memoryShare)
		debug.SetMemoryLimit(bytes)
		log.Info("memory limit", "bytes", bytes, "container", limit)
	}
}

// containerMemory is the lowest limit of the control group (version 2) that the process is in and of those above it, or 0
// if there is none. root is the directory that proc and sys are in. A group that names a way out of the hierarchy stays
// in it.
func containerMemory(root fs.FS) (limit int64) {
	content, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(content)) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "0::/")
		for name = path.Clean("/" + name); ok; name = path.Dir(name) {
			memory, _ := fs.ReadFile(root, path.Join("sys/fs/cgroup", name, "memory.max")) // "max" or bytes
			if n, err := strconv.ParseInt(strings.TrimSpace(string(memory)), 10, 64); err == nil && (limit == 0 || n < limit) {
				limit = n
			}
			ok = name != "/"
		}
	}
	return limit
}

// So much is allocated before the next garbage collection, unless more than that lives. By itself Go collects when the heap
// has doubled: with a small bundle that is every hundred requests. A process that becomes calm is collected after two minutes
// at the latest, and has the small room from then on. Go gives back the rest with the collection after that.
const (
	busyRoom = 64 << 20
	calmRoom = 16 << 20
	// A process is calm if its last garbage collection was longer ago.
	busyTime = 10 * time.Second
)

// LeaveRoom sets GOGC by the heap that lives, now and after each garbage collection: a bundle or requests may have made it
// grow. If GOGC is set, it decides.
func LeaveRoom() { leaveRoom(calmRoom) }

func leaveRoom(room uint64) {
	if os.Getenv("GOGC") != "" {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	debug.SetGCPercent(percentFor(live[0].Value.Uint64(), room))
	cycle := new(*int) // not reachable from here on
	runtime.AddCleanup(cycle, func(begun time.Time) { leaveRoom(roomAfter(time.Since(begun))) }, time.Now())
}

// roomAfter is the room of a process that needed so long to fill it.
func roomAfter(cycle time.Duration) uint64 {
	if cycle > busyTime {
		return calmRoom
	}
	return busyRoom
}

// percentFor is the GOGC that leaves room. The heap may always double.
func percentFor(live, room uint64) int { return max(100, int(100*room/max(live, 1<<20))) }
