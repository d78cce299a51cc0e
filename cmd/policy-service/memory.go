package main

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

// memoryShare is the part of a container's memory that the heap may take. The rest is
// for stacks, for what the kernel keeps of the log's files, and for a moment of more.
const memoryShare = 0.9

// limitMemory has the garbage collector work harder before a container's limit is
// reached, where the kernel would end the process. GOMEMLIMIT, where it is set, says
// more, and was heard by the runtime already.
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

// containerMemory is the least limit of the control groups (version 2) that the process
// is in, 0 where there is none.
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
		for dir := path.Join("sys/fs/cgroup", path.Clean("/"+group)); strings.HasPrefix(dir, "sys/fs/cgroup"); dir = path.Dir(dir) {
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
