package server_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"policy-service/pdp"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/server"
	"policy-service/policies"
)

// TestPrivateFiles holds the list to what a server makes: a file of 0600 that it does not name would be looked after by nobody.
func TestPrivateFiles(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	pdptest.Start(t, pdp.FS(policies.Starter()), func(c *server.Config) { c.Data = data })
	named := map[string]bool{}
	for _, name := range server.PrivateFiles() {
		named[name] = true
	}
	entries, err := os.ReadDir(data)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		// log.pub is for everybody to have, though not to find here.
		if private := info.Mode().Perm() == 0o600 && e.Name() != "log.pub"; private != named[e.Name()] {
			t.Errorf("%s has mode %o, in the list: %v", e.Name(), info.Mode().Perm(), named[e.Name()])
		}
		delete(named, e.Name())
	}
	if len(named) != 3 || !named["log.key.next"] || !named["api-keys.json"] || !named["api-keys.revoked"] { // made by a rotation, and by keys
		t.Errorf("also in the list: %v", named)
	}
}

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
		if err := os.WriteFile(filepath.Join(data, name), []byte("garbage"), 0o600); err != nil {
			t.Fatal(err)
		}
		if errs := server.CheckKeys(data); len(errs) != 1 {
			t.Errorf("%s is garbage: %v", name, errs)
		}
		s, err := server.New(server.Config{Program: server.Program{Source: pdp.FS(policies.Starter())}, Data: data, Listen: "127.0.0.1:0"})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is garbage, and a server that starts says %v", name, err)
		}
	}
}
