package server_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest"
)

// A search goes on after a restart with the same data directory, and nowhere else.
func TestPageTokensOutliveTheServerInItsDataDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := pdptest.Start(t, library(10), withData(dir))
	p, status := search(t, first, resources, books+`,"page":{"limit":1}}`)
	if status != 200 || p.Page == nil || *p.Page.Token == "" {
		t.Fatalf("got %d %+v, want a token", status, p)
	}
	stopAndWait(t, first)
	next := books + fmt.Sprintf(`,"page":{"token":%q}}`, *p.Page.Token)
	second := pdptest.Start(t, library(10), withData(dir))
	if p, status := search(t, second, resources, next); status != 200 || len(p.Results) != 1 || p.Results[0].ID != "b0003" {
		t.Errorf("after a restart: got %d %+v, want the next page", status, p)
	}
	if _, status := search(t, pdptest.Start(t, library(10), withData(t.TempDir())), resources, next); status != 400 {
		t.Errorf("at another server: got %d, want 400", status)
	}
	if info, err := os.Stat(filepath.Join(dir, "page.key")); err != nil || info.Mode() != 0o600 || info.Size() != 32 {
		t.Errorf("the key: %v, %v", info, err)
	}
	stopAndWait(t, second)
	must(t, os.WriteFile(filepath.Join(dir, "page.key"), []byte("cut"), 0o600))
	s, err := server.New(server.Config{Data: dir, Listen: "127.0.0.1:0", Program: server.Program{Source: library(10)}})
	must(t, err)
	if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "the key of page tokens cannot be used: ") || !strings.Contains(err.Error(), "; put the file back from a backup, or move it away ") {
		t.Errorf("with a key that was cut: got %v", err)
	}
	must(t, os.Remove(filepath.Join(dir, "page.key")))
	if _, status := search(t, pdptest.Start(t, library(10), withData(dir)), resources, next); status != 400 {
		t.Errorf("with a new key: got %d, want 400", status)
	}
}
