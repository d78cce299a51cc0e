package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// footprint is what a process holds. A leak of anything shows in one of these.
type footprint struct {
	descriptors, threads int
	// private is memory that belongs to no file: the log's files are mapped, and how
	// much of them is in memory is the kernel's affair.
	private int64
	// goroutines and memory, all that Go uses, are -1 where the server does not tell.
	goroutines, memory int64
}

func (f footprint) String() string {
	text := fmt.Sprintf("%d descriptors, %d threads, %d MiB of private memory", f.descriptors, f.threads, f.private>>20)
	if f.goroutines >= 0 {
		text += fmt.Sprintf(", %d goroutines, %d MiB that Go uses", f.goroutines, f.memory>>20)
	}
	return text
}

// What may come on top between two moments of rest: a thread or a connection that
// happens to be there, and what the allocator has not given back.
const (
	moreDescriptors = 8
	moreThreads     = 12
	moreGoroutines  = 12
	moreMemory      = 48 << 20
)

// leaked says what grew from one moment of rest to another, "" for nothing.
func (f footprint) leaked(later footprint) string {
	var grown []string
	check := func(what string, before, after, more int64) {
		if before >= 0 && after > before+more {
			grown = append(grown, fmt.Sprintf("%s from %d to %d", what, before, after))
		}
	}
	check("descriptors", int64(f.descriptors), int64(later.descriptors), moreDescriptors)
	check("threads", int64(f.threads), int64(later.threads), moreThreads)
	check("private memory", f.private, later.private, f.private/4+moreMemory)
	check("goroutines", f.goroutines, later.goroutines, moreGoroutines)
	check("Go's memory", f.memory, later.memory, f.memory/4+moreMemory)
	return strings.Join(grown, ", ")
}

// TestSoakFindsLeaks holds leaked to finding each of them.
func TestSoakFindsLeaks(t *testing.T) {
	rest := footprint{descriptors: 30, threads: 20, private: 100 << 20, goroutines: 50, memory: 20 << 20}
	if text := rest.leaked(rest); text != "" {
		t.Errorf("nothing has grown, and it finds %s", text)
	}
	for what, grow := range map[string]func(*footprint){
		"descriptors":    func(f *footprint) { f.descriptors += 20 },
		"threads":        func(f *footprint) { f.threads += 20 },
		"private memory": func(f *footprint) { f.private *= 2 },
		"goroutines":     func(f *footprint) { f.goroutines += 50 },
		"Go's memory":    func(f *footprint) { f.memory *= 4 },
	} {
		later := rest
		if grow(&later); !strings.HasPrefix(rest.leaked(later), what+" from ") {
			t.Errorf("%s have grown, and it finds %q", what, rest.leaked(later))
		}
	}
	silent, after := rest, rest
	silent.goroutines = -1
	if after.goroutines = 9999; silent.leaked(after) != "" {
		t.Error("it compares with what nobody told")
	}
}

var (
	statusNumber = regexp.MustCompile(`(?m)^(Threads|RssAnon):\s+(\d+)`)
	metricNumber = regexp.MustCompile(`(?m)^(go_goroutines|go_memory_used_bytes)(?:\{[^}]*\})? ([0-9.e+]+)$`)
)

// footprint reads /proc and, where there is one, /metrics.
func (s *soak) footprint() (f footprint, err error) {
	f.descriptors, err = descriptors(s.server.Process.Pid)
	if err != nil {
		return f, err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.server.Process.Pid))
	if err != nil {
		return f, err
	}
	for _, found := range statusNumber.FindAllSubmatch(status, -1) {
		n, err := strconv.ParseInt(string(found[2]), 10, 64)
		if err != nil {
			return f, err
		}
		if bytes.Equal(found[1], []byte("Threads")) {
			f.threads = int(n)
		} else {
			f.private = n << 10
		}
	}
	f.goroutines, f.memory, err = s.metrics()
	return f, err
}

// metrics reads goroutines and memory from /metrics, whose series have the names of
// OpenTelemetry's semantic conventions. A server without /metrics answers 404: then
// the footprint is what /proc says.
func (s *soak) metrics() (goroutines, memory int64, err error) {
	r, err := s.get(s.peps["gateway"], "/metrics")
	if err != nil || r.status == http.StatusNotFound {
		return -1, -1, err
	}
	goroutines = -1
	for _, found := range metricNumber.FindAllStringSubmatch(r.body, -1) {
		n, err := strconv.ParseFloat(found[2], 64)
		if err != nil {
			return -1, -1, err
		}
		if found[1] == "go_goroutines" {
			goroutines = int64(n)
		} else {
			memory += int64(n) // a series for stacks, and one for all other memory
		}
	}
	if r.status != http.StatusOK || goroutines < 0 || memory == 0 {
		return -1, -1, fmt.Errorf("/metrics answers %d and has no go_goroutines or no go_memory_used_bytes:\n%.1000s", r.status, r.body)
	}
	return goroutines, memory, nil
}

func descriptors(pid int) (int, error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(entries), err
}

// atRest closes the test's own connections and waits until nothing has become less for
// longer than what /metrics says can be old. What it returns is the least that was seen
// of each.
func (s *soak) atRest(t *testing.T) footprint {
	t.Helper()
	least, err := s.footprint()
	must(t, err)
	still, since := 0, time.Now()
	until(t, "the server comes to rest", func() (bool, error) {
		s.client.CloseIdleConnections()
		f, err := s.footprint()
		if still++; f.descriptors < least.descriptors || f.threads < least.threads || f.goroutines < least.goroutines {
			still, since = 0, time.Now()
		}
		least = footprint{
			min(least.descriptors, f.descriptors), min(least.threads, f.threads),
			min(least.private, f.private), min(least.goroutines, f.goroutines), min(least.memory, f.memory),
		}
		return still >= 10 && time.Since(since) > 3*time.Second, err
	})
	return least
}
