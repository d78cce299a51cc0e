package doctor

import (
	"math"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"policy-service/pdp/server"
)

// What depends on the machine is told apart here by numbers, so that it is told apart on every machine.

func bitesWith(t *testing.T, f Finding, want string) {
	t.Helper()
	if f.Bites != (want != "") || !strings.Contains(f.Message, want) || f.Bites != (f.Try != "") {
		t.Errorf("%+v, want %q", f, want)
	}
}

func TestMemoryLimits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		group, goLimit int64
		want           string
	}{
		{math.MaxInt64, math.MaxInt64, ""},
		{1 << 30, 900 << 20, ""},
		{1 << 30, math.MaxInt64, "GOMEMLIMIT is not below it"},
		{1 << 30, 1 << 30, "GOMEMLIMIT is not below it"},
		{64 << 20, 32 << 20, "is soon too little"},
	} {
		bitesWith(t, memoryLimits(c.group, c.goLimit), c.want)
	}
	if try := memoryLimits(1<<30, math.MaxInt64).Try; try != "set GOMEMLIMIT=921MiB, nine tenths of it" {
		t.Error(try)
	}
}

func TestProcessorLimits(t *testing.T) {
	for _, c := range []struct {
		quota   float64
		threads int
		want    string
	}{
		{math.Inf(1), 64, ""},
		{4, 4, ""},
		{1, 2, ""}, // Go never goes below two by itself
		{1.5, 2, ""},
		{2, 8, "GOMAXPROCS is 8, and the control group gives 2"},
		{0.5, 2, "gives 0.5 of one"},
	} {
		bitesWith(t, processorLimits(c.quota, c.threads), c.want)
	}
}

func TestFileLimits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		open, size int64
		want       string
	}{
		{unlimited, unlimited, ""},
		{4096, 256 << 20, ""},
		{1024, unlimited, "may open 1024 files"},
		{unlimited, 10 << 20, "a file may become 10 MiB"},
	} {
		bitesWith(t, fileLimits(c.open, c.size)[0], c.want)
	}
}

// TestReadGroup reads the files of the kernel as it writes them, of the lowest limit in the hierarchy.
func TestReadGroup(t *testing.T) {
	t.Parallel()
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	none := Group{math.MaxInt64, math.Inf(1)}
	for name, c := range map[string]struct {
		files fstest.MapFS
		want  Group
	}{
		"no control groups": {fstest.MapFS{}, none},
		"version 1":         {fstest.MapFS{"proc/self/cgroup": file("4:memory:/a\n0::/\n"), "sys/fs/cgroup/memory/memory.limit_in_bytes": file("1\n")}, none},
		"in a container":    {fstest.MapFS{"proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/memory.max": file("1048576\n"), "sys/fs/cgroup/cpu.max": file("150000 100000\n")}, Group{1 << 20, 1.5}},
		"without limits":    {fstest.MapFS{"proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/memory.max": file("max\n"), "sys/fs/cgroup/cpu.max": file("max 100000\n")}, none},
		"in a slice": {fstest.MapFS{
			"proc/self/cgroup":                                file("0::/system.slice/x.service\n"),
			"sys/fs/cgroup/system.slice/cpu.max":              file("50000 100000\n"),
			"sys/fs/cgroup/system.slice/memory.max":           file("2097152\n"),
			"sys/fs/cgroup/system.slice/x.service/memory.max": file("1048576\n"),
			"sys/fs/cgroup/system.slice/x.service/cpu.max":    file("max 100000\n"),
		}, Group{1 << 20, 0.5}},
	} {
		if got := ReadGroup(c.files); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if g := ReadGroup(os.DirFS("/")); g.Memory <= 0 || g.Processors <= 0 {
		t.Errorf("of this machine: %v", g)
	}
}

func TestSpace(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	for _, c := range []struct {
		free, used int64
		daily      float64
		keep       server.RetainConfig
		want       string
	}{
		{free: 10 * gib},
		{free: 100 << 20, want: "100 MiB are free: when it is full, nothing is answered"},
		{free: 150 << 20, want: "150 MiB are free: when it is full"}, // of which the journal takes some
		{free: 100 * gib, daily: gib},
		{free: 10 * gib, daily: gib, want: "at 1 GiB a day it is full in 10 days"},
		{free: 10 * gib, daily: gib, keep: server.RetainConfig{Bytes: 5 * gib}},
		{free: 10 * gib, used: 9 * gib, daily: gib, keep: server.RetainConfig{Bytes: 15 * gib}},
		{free: 10 * gib, daily: gib, keep: server.RetainConfig{Bytes: 15 * gib}, want: "the log wants 15 GiB more before anything of it is dropped: decision_log.retain.bytes is 15 GiB"},
		{free: 10 * gib, daily: gib, keep: server.RetainConfig{Age: 5 * 24 * time.Hour}},
		{free: 10 * gib, daily: gib, keep: server.RetainConfig{Age: 15 * 24 * time.Hour}, want: "decision_log.retain.age is 360h0m0s, at 1 GiB a day"},
		{free: 10 * gib, daily: gib, keep: server.RetainConfig{Age: 15 * 24 * time.Hour, Bytes: 2 * gib}},
		{free: 10 * gib, keep: server.RetainConfig{Age: 15 * 24 * time.Hour}}, // nobody knows yet how fast it grows
	} {
		bitesWith(t, space(volume{free: c.free}, c.used, c.daily, c.keep), c.want)
	}
}

func TestSyncTime(t *testing.T) {
	t.Parallel()
	bitesWith(t, syncTime(4*time.Millisecond), "")
	bitesWith(t, syncTime(80*time.Millisecond), "a sync takes 80ms, and every answer in strict mode waits for one")
}

func TestReachable(t *testing.T) {
	t.Parallel()
	for listen, want := range map[string]string{
		":8180": "127.0.0.1:8180", "0.0.0.0:1": "127.0.0.1:1", "[::]:1": "[::1]:1", "10.0.0.7:1": "10.0.0.7:1", "localhost:1": "localhost:1",
	} {
		if got := reachable(listen); got != want {
			t.Errorf("%s: %s, want %s", listen, got, want)
		}
	}
}
