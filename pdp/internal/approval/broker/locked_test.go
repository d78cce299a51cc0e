package broker_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/approval/broker"
)

// TestOpenSays: an error that says itself what to do gets no advice about something else.
func TestOpenSays(t *testing.T) {
	t.Parallel()
	w := open(t)
	if _, err := broker.Open(w.options); err == nil || !strings.HasSuffix(err.Error(), ": "+approval.ErrLocked.Error()) {
		t.Error(err)
	}
	o := w.options
	o.Data = t.TempDir()
	w.must(os.Mkdir(filepath.Join(o.Data, "approvals.db"), 0o700))
	const advice = "; see that the disk has room, and that the data directory belongs to the user that serve runs as"
	if _, err := broker.Open(o); err == nil || !strings.HasSuffix(err.Error(), advice) {
		t.Error(err)
	}
}
