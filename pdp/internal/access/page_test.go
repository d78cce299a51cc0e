package access

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The pages for authors say what a declaration may hold.
func TestThePagesSayWhatADeclarationMayHold(t *testing.T) {
	thousands := func(n int) string { return fmt.Sprintf("%d,%03d", n/1000, n%1000) }
	rules, tools, id := thousands(maxRules), thousands(maxTools), thousands(maxID)
	for page, says := range map[string]string{
		"REFERENCE.md": fmt.Sprintf("| %s; %s; %s bytes; %d | `access_bound` |", rules, tools, id, maxSubjects),
		"ACCESS.md":    fmt.Sprintf("%s rules a file, %s tools a rule, %s bytes a name", rules, tools, id),
	} {
		text, err := os.ReadFile("../../../policies/" + page)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(strings.Join(strings.Fields(string(text)), " "), says) {
			t.Errorf("%s does not say %q", page, says)
		}
	}
}
