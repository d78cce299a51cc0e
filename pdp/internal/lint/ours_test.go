package lint_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"policy-service/pdp"
	"slices"
	"strings"
	"testing"
)

// TestCheckOurs: each bundle of the repository loads, and Check has nothing to say about it. A bundle is a directory with
// a bundle.yaml, or with policies, that lies in no other.
func TestCheckOurs(t *testing.T) {
	t.Parallel()
	var dirs []string
	err := filepath.WalkDir("../../..", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if strings.HasPrefix(d.Name(), ".") && name != "../../.." || d.Name() == "node_modules" {
			return fs.SkipDir
		}
		policies, _ := filepath.Glob(filepath.Join(name, "*.cedar"))
		if _, err := os.Stat(filepath.Join(name, "bundle.yaml")); err == nil || len(policies) > 0 {
			dirs = append(dirs, filepath.ToSlash(name))
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"../../../policies/starter", "../../../policies/mcp", "../../../conformance/bundle", "../../../pdp/internal/server/testdata/answers/bundle", "../../../cmd/policy-service/deploy/kubernetes/bundle"} {
		if !slices.Contains(dirs, dir) {
			t.Errorf("%s is not found", dir)
		}
	}
	for _, dir := range dirs {
		if b, problems := pdp.Check(pdp.Dir(dir), lintNow); b == nil || len(problems) > 0 {
			t.Errorf("%s: %v", dir, []pdp.Problem(problems))
		}
	}
}
