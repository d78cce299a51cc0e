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

// The page for PEP developers says what approvals may cost in a batch.
func TestThePageSaysWhatABatchMayUse(t *testing.T) {
	page, err := os.ReadFile("../evaluation/README.md")
	must(t, err)
	for _, want := range []string{
		fmt.Sprintf("\n| items that use an approval | %d |", MaxUses),
		fmt.Sprintf("\n| what the answer says of how to ask for approvals | %d MiB |", maxOffered>>20),
		fmt.Sprintf("\n| items that lack only an approval, with what they inherit | %d MiB |", maxBound>>20),
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("it does not say %s", want)
		}
	}
}
