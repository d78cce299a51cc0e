package capability_test

import (
	"os"
	"os/exec"
	"testing"
)

// onEtcd is the name of a variable. Where it is set all stores are in etcd.
const onEtcd = "CAPABILITIES_ON_ETCD"

// TestOnEtcd runs the other tests in etcd, but those that do something to the file, or run in a bubble of synctest.
func TestOnEtcd(t *testing.T) {
	t.Parallel()
	but := "-test.skip=^(TestOnEtcd|TestOlderValue|TestLimits|TestOlderFile|TestDamage|TestRun|TestOpenRefused)$"
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.short", "-test.timeout=5m", but)
	again.Env = append(os.Environ(), onEtcd+"=1")
	if said, err := again.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
}
