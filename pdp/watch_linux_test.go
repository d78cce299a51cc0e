package pdp

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// While the queue of events is full, an edit makes none. The flood is of events
// that do not matter, so nothing but the overflow can tell.
func TestWatchSurvivesAnOverflow(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	must(t, err)
	queue, err := strconv.Atoi(strings.TrimSpace(string(data)))
	must(t, err)
	top := t.TempDir()
	dir := filepath.Join(top, "policies")
	tree{"policies/a.cedar": smallest, "noise1": "", "noise2": ""}.Write(t, top)
	flood := func() {
		for n := range queue + 10_000 { // what was read from the queue and not yet taken is a few thousand
			must(t, os.Chmod(filepath.Join(top, "noise"+strconv.Itoa(n%2+1)), 0o644))
		}
	}
	first := true
	w := watch(t, dir, func(Status) {
		if first {
			first = false
			flood()
			tree{"a.cedar": numbered(2)}.Write(t, dir)
		}
	})
	tree{"a.cedar": numbered(1)}.Write(t, dir)
	w.until("the edit before the flood", func(Status) bool { return true })
	w.sees("the edit that made no event")
}
