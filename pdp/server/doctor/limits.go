package doctor

import (
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

const (
	// minOpen has room for the connections a small service has, and some more.
	minOpen = 4096
	// minFileSize has room for a segment with the largest batch at its end.
	minFileSize = 256 << 20
	// minMemory is below what a bundle of any size and a queue of records take.
	minMemory = 128 << 20
)

// files is about the limits of processes that are started here, as this one was.
func (x *exam) files() {
	x.findings = append(x.findings, fileLimits(limitsOf())...)
}

func fileLimits(open, fileSize int64) []Finding {
	var found []Finding
	if open < minOpen {
		found = append(found, Finding{"files", true, fmt.Sprintf("a process started here may open %d files: with as many connections and segments, connections are refused", open),
			"raise it to " + strconv.Itoa(minOpen) + " or more: ulimit -Hn, LimitNOFILE= of systemd"})
	}
	if fileSize < minFileSize {
		found = append(found, Finding{"files", true, fmt.Sprintf("a file may become %s, and a segment of the log more: that is like a full disk", size(float64(fileSize))), "lift it: ulimit -f unlimited, LimitFSIZE= of systemd"})
	}
	if found == nil {
		found = append(found, Finding{Check: "files", Message: "the limits on open files and their size are high enough for processes started here"})
	}
	return found
}

// memory is about the limit of the control group, and whether Go knows it.
func (x *exam) memory() {
	x.findings = append(x.findings, memoryLimits(ReadGroup(os.DirFS("/")).Memory, debug.SetMemoryLimit(-1)))
}

func memoryLimits(group, goLimit int64) Finding {
	tenth := group / 10
	switch {
	case group == math.MaxInt64:
		return Finding{Check: "memory", Message: "no control group (version 2) limits it"}
	case group < minMemory:
		return Finding{"memory", true, size(float64(group)) + " is all that the control group gives, and is soon too little", "give it at least " + size(minMemory) + ": MemoryMax= of systemd, resources.limits.memory of Kubernetes"}
	case goLimit > group-tenth/2:
		return Finding{"memory", true, size(float64(group)) + " is the limit of the control group, and GOMEMLIMIT is not below it: at a peak the kernel kills the process before it tries to get by with less",
			fmt.Sprintf("set GOMEMLIMIT=%dMiB, nine tenths of it", (group-tenth)>>20)}
	default:
		return Finding{Check: "memory", Message: fmt.Sprintf("the control group gives %s, and GOMEMLIMIT is %s", size(float64(group)), size(float64(goLimit)))}
	}
}

// processors is about the quota of the control group, and whether Go knows it.
func (x *exam) processors() {
	x.findings = append(x.findings, processorLimits(ReadGroup(os.DirFS("/")).Processors, runtime.GOMAXPROCS(0)))
}

func processorLimits(quota float64, threads int) Finding {
	switch {
	case math.IsInf(quota, 1):
		return Finding{Check: "processors", Message: fmt.Sprintf("no control group (version 2) limits them, and GOMAXPROCS is %d", threads)}
	case quota < 1:
		return Finding{"processors", true, fmt.Sprintf("the control group gives %.2g of one: when that is used up, every answer waits for up to a tenth of a second", quota), "give it one at least, or shares in place of a quota: CPUWeight= of systemd, resources.requests without limits.cpu of Kubernetes"}
	case float64(threads) > math.Max(2, math.Ceil(quota)):
		return Finding{"processors", true, fmt.Sprintf("GOMAXPROCS is %d, and the control group gives %.2g: threads that run at once use the quota up, and then all wait", threads, quota), "unset GOMAXPROCS: Go follows the quota by itself"}
	default:
		return Finding{Check: "processors", Message: fmt.Sprintf("the control group gives %.2g, and GOMAXPROCS is %d", quota, threads)}
	}
}

// Group is what the control group of this process gives; what is not limited is infinite.
type Group struct {
	Memory     int64
	Processors float64
}

// ReadGroup reads the limits of this process's control group (version 2) and of those above it, of which the lowest
// counts. root is the directory that proc and sys are in. A group that names a way out of the hierarchy stays in it.
func ReadGroup(root fs.FS) Group {
	g := Group{math.MaxInt64, math.Inf(1)}
	content, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(content)) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "0::/")
		for name = path.Clean("/" + name); ok; name = path.Dir(name) {
			g.lower(root, path.Join("sys/fs/cgroup", name))
			ok = name != "/"
		}
	}
	return g
}

// lower takes the limits of one directory, if they are lower.
func (g *Group) lower(root fs.FS, dir string) {
	memory, _ := fs.ReadFile(root, dir+"/memory.max") // "max" or bytes
	if n, err := strconv.ParseInt(strings.TrimSpace(string(memory)), 10, 64); err == nil {
		g.Memory = min(g.Memory, n)
	}
	quota, _ := fs.ReadFile(root, dir+"/cpu.max") // "max" or microseconds, and of how many
	var used, of float64
	if n, _ := fmt.Sscan(string(quota), &used, &of); n == 2 && of > 0 {
		g.Processors = min(g.Processors, used/of)
	}
}
