package process_test

import (
	"log/slog"
	"os"
	"testing"

	"policy-service/pdp/internal/command/process"
)

// TestSupervisorIsOurs: programs that this process starts do not have its supervisor's address.
func TestSupervisorIsOurs(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "/run/systemd/notify")
	process.TakeSupervisor(slog.New(slog.DiscardHandler))
	if address, ok := os.LookupEnv("NOTIFY_SOCKET"); ok {
		t.Errorf("children get NOTIFY_SOCKET=%s", address)
	}
}
