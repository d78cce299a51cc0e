package pdp

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The page for operators says how much a tenant may edit.
func TestTheLimitsPageSaysWhatATenantMayEdit(t *testing.T) {
	page, err := os.ReadFile("server/LIMITS.md")
	must(t, err)
	a := newAllowance()
	want := fmt.Sprintf("more than %d MiB of new files at once, or %d KiB a second in the long run; each\n  edit counts as %d KiB at least",
		a.most>>20, a.second>>10, a.least>>10)
	if !strings.Contains(string(page), want) {
		t.Errorf("it does not say %s", want)
	}
}
