//go:build linux

package server_test

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"policy-service/pdp/internal/decisionlog"
)

// While the log cannot be written no drift is taken, whatever the mode, and each that was answered is there.
func TestDriftWaitsForTheDisk(t *testing.T) {
	for _, mode := range []decisionlog.Mode{decisionlog.Strict, decisionlog.BestEffort} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			c := startChild(t, mode)
			report := func(n int) (int, string) {
				return c.ask(driftPath, strings.Replace(driftFound, "reset_password", fmt.Sprint("tool_", n), 1))
			}
			const rounds = 3
			for n := range rounds {
				c.limit(0)
				if status, text := report(n); status != 503 || !strings.Contains(text, "drift may not be on record") {
					t.Errorf("got %d %s", status, text)
				}
				c.limit(unix.RLIM_INFINITY)
				eventually(t, "it takes drifts again", func() bool { status, _ := report(n); return status == 204 })
			}
			c.stop()
			there := map[string]bool{}
			for _, l := range driftsOf(lines(t, c.data)) {
				there[fmt.Sprint(l.Details["tool"])] = true
			}
			if len(there) != rounds {
				t.Errorf("got %v", there)
			}
		})
	}
}
