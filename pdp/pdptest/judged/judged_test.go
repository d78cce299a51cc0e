package judged_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"policy-service/pdp/pdptest/judged"
)

// A refusal is an error with its reason, and an answer is none.
func TestJudge(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "policy")
	for text, refused := range map[string]string{
		"log example.com/log+a06c8792+AQABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f\nquorum none\n": "",
		"quorum all\n": `quorum "all" not defined`,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		said, err := judged.Judge(t, "policy", file)
		if (err != nil) != (refused != "") || err != nil && !strings.Contains(err.Error(), refused) {
			t.Errorf("%q: said %q, %v", text, said, err)
		}
	}
}
