package process

import (
	"io/fs"
	"log/slog"
	"math"
	"os"
	"runtime/debug"

	"policy-service/pdp/server/doctor"
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

// containerMemory is the limit of the control group that the process is in, or 0 if there is none.
func containerMemory(root fs.FS) int64 {
	if limit := doctor.ReadGroup(root).Memory; limit < math.MaxInt64 {
		return limit
	}
	return 0
}
