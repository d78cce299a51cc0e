package operate

import (
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// memoryShare is the part of a container's memory that the heap may take. The rest is for stacks, for the pages of the
// log's files that the kernel keeps, and for a short peak.
const memoryShare = 0.9

// limitMemory makes the garbage collector work harder before the container's limit is reached, at which the kernel would
// end the process. If GOMEMLIMIT is set, it decides, and the runtime has read it already.
func limitMemory(log *slog.Logger) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if limit := containerMemory(os.DirFS("/")); limit > 0 {
		bytes := int64(float64(limit) * memoryShare)
		debug.SetMemoryLimit(bytes)
		log.Info("memory limit", "bytes", bytes, "container", limit)
	}
}

// containerMemory is the smallest limit of the control groups (version 2) that the process is in, or 0 if there is none.
func containerMemory(root fs.FS) int64 {
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0
	}
	least := int64(math.MaxInt64)
	for line := range strings.Lines(string(groups)) {
		group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::/")
		if !ok {
			continue
		}
		// In a container its own group is the root of what it sees.
		const top = "sys/fs/cgroup"
		for dir := path.Join(top, path.Clean("/"+group)); strings.HasPrefix(dir, top); dir = path.Dir(dir) {
			text, err := fs.ReadFile(root, path.Join(dir, "memory.max"))
			if err != nil {
				continue
			}
			if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil { // else it is "max"
				least = min(least, n)
			}
		}
	}
	if least == math.MaxInt64 {
		return 0
	}
	return least
}

// reserveBytes is heap that is allocated and never touched. The collector runs whenever the heap has doubled. With a
// small bundle the heap is a few megabytes, so the collector would run every hundred requests, which is a fifth of what a
// decision costs. Heap that is never touched takes no memory, but counts as heap.
const reserveBytes = 64 << 20

// reserve is that heap while the service runs. It is nil if GOGC sets how often to collect, or if GOMEMLIMIT leaves too
// little room.
func reserve() []byte {
	if os.Getenv("GOGC") != "" || debug.SetMemoryLimit(-1) < 8*reserveBytes {
		return nil
	}
	return make([]byte, reserveBytes)
}
