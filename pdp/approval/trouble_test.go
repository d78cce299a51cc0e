package approval_test

import (
	"os"
	"os/exec"
	"testing"
)

// inTrouble is the name of a variable. Where it is set all stores have an engine that refuses one of three changes as if
// another process had made one before.
const inTrouble = "APPROVALS_IN_TROUBLE"

// TestInTrouble runs the other tests where changes are made again, but one: what the rates take is not given back where
// another process takes the last place in between.
func TestInTrouble(t *testing.T) {
	t.Parallel()
	but := "-test.skip=^(TestInTrouble|TestTheRatesAreForWhatIsFiled)$"
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.short", "-test.timeout=5m", but)
	again.Env = append(os.Environ(), inTrouble+"=1")
	if said, err := again.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
}
