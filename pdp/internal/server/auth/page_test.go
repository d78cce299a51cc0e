package auth

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// TestPagePermissions: the page says of each permission what it is, and of no other.
func TestPagePermissions(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../server/auth/README.md")
	must(t, err)
	var told []Permission
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z.]+)` \\| ").FindAllSubmatch(text, -1) {
		told = append(told, Permission(row[1]))
	}
	if !slices.Equal(told, []Permission{Decide, Search, Explain, Request, Approve, Relay, Capability, CapabilityAdmin, LogRead, LogAdmin, Backup}) || len(told) != len(permissions) {
		t.Errorf("the page has %q, and there are %q", told, permissions)
	}
}
