package signing_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"policy-service/pdp/internal/signing"
)

// TestCheck asks before the keys are opened, and then opens them: both say the same, and asking makes nothing.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, signing.File)
	if err := signing.Check(dir); err != nil {
		t.Errorf("before there are keys: %v", err)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("Check made the keys")
	}
	open := func() error { _, err := signing.Open(dir, slog.New(slog.DiscardHandler)); return err }
	if err := open(); err != nil {
		t.Fatal(err)
	}
	if err := signing.Check(dir); err != nil {
		t.Errorf("of keys that are good: %v", err)
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func() error{
		"cut":         func() error { return os.WriteFile(file, whole[:len(whole)/2], 0o600) },
		"empty":       func() error { return os.WriteFile(file, nil, 0o600) },
		"open to all": func() error { return os.Chmod(file, 0o644) },
	} {
		if err := os.WriteFile(file, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if checked, opened := signing.Check(dir), open(); checked == nil || opened == nil {
			t.Errorf("%s: Check says %v, Open says %v", name, checked, opened)
		}
	}
}
