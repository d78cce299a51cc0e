package server_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"policy-service/pdp"
	"policy-service/pdp/internal/server"
	"policy-service/policies"
)

// TestCheckKeys: what it finds keeps a server from starting, and what it does not find is made.
func TestCheckKeys(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"mask.key", "approvals.key", "signing.jwks"} {
		data := t.TempDir()
		if errs := server.CheckKeys(data); len(errs) > 0 {
			t.Fatal(errs)
		}
		if entries, _ := os.ReadDir(data); len(entries) > 0 {
			t.Fatalf("it made %v", entries)
		}
		must(t, os.WriteFile(filepath.Join(data, name), []byte("garbage"), 0o600))
		if errs := server.CheckKeys(data); len(errs) != 1 {
			t.Errorf("%s is garbage: %v", name, errs)
		}
		s, err := server.New(server.Config{Program: server.Program{Source: pdp.FS(policies.Starter())}, Data: data, Listen: "127.0.0.1:0"})
		must(t, err)
		if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is garbage, and a server that starts says %v", name, err)
		}
	}
}
