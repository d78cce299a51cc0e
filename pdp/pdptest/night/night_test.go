package night

import (
	"os"
	"strings"
	"testing"
)

// TestOthers: a name in the Makefile that no test has would leave out nothing.
func TestOthers(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("../../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	if line := "\nWITHOUT ?= " + strings.Join(others, " ") + "\n"; !strings.Contains(string(makefile), line) {
		t.Errorf("the Makefile does not have the line%s", line)
	}
}
