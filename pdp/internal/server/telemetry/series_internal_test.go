package telemetry

import (
	"fmt"
	"testing"
)

// However many tenants come and go, only so many are told apart.
func TestTenantsAreBounded(t *testing.T) {
	t.Parallel()
	var names tenantNames
	seen := map[string]int{}
	for n := range 3 * maxTenantsNamed {
		seen[names.name(fmt.Sprintf("tenant-%d", n))]++
	}
	if len(seen) != maxTenantsNamed+1 || seen[otherTenants] != 2*maxTenantsNamed {
		t.Errorf("%d names, %d others", len(seen), seen[otherTenants])
	}
	if names.name("tenant-7") != "tenant-7" {
		t.Error("one that had a name lost it")
	}
}
