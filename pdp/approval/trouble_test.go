package approval_test

import (
	"os"
	"os/exec"
	"testing"
)

// inTrouble is the name of a variable. Where it is set all stores have an engine that refuses one of three changes as if
// another process had made one before.
const inTrouble = "APPROVALS_IN_TROUBLE"

// TestInTrouble runs the other tests where changes are made again.
func TestInTrouble(t *testing.T) {
	t.Parallel()
	if os.Getenv(inTrouble) != "" {
		t.Skip("it is in trouble")
	}
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.short", "-test.timeout=5m")
	again.Env = append(os.Environ(), inTrouble+"=1")
	if said, err := again.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
}
