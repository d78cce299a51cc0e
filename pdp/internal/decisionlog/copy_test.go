package decisionlog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"sync"
	"testing"
)

// unpack writes copied files into a directory of their own.
func unpack(t *testing.T, files []Copied) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, f := range files {
		path := filepath.Join(dir, f.Name)
		content, err := io.ReadAll(f)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(path), 0o700)
		}
		if err == nil {
			err = os.WriteFile(path, content, 0o600)
		}
		must(t, err)
	}
	CloseAll(files)
	return dir
}

// A copy has all that was answered before it, and stays as it was while others append and content is removed.
func TestCopy(t *testing.T) {
	t.Parallel()
	l := mustOpen(t, t.TempDir(), Options{})
	var appends sync.WaitGroup
	for n := range 8 {
		appends.Go(func() {
			for k := range 25 {
				if err := l.Append(t.Context(), []record.Entry{entry(fmt.Sprintf("at-once-%d-%d", n, k))}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	mustAppend(t, l, entry("before"), entry("to-go"))
	last, files, err := l.Copy(t.Context())
	must(t, err)
	appends.Wait()
	mustAppend(t, l, entry("after"))
	if err := l.Redact(t.Context(), "", "to-go", "r"); err != nil { // before any byte was read
		t.Fatal(err)
	}
	dir := unpack(t, files)
	lines := verify(t, dir)
	if uint64(len(lines)) != last.Size {
		t.Errorf("the checkpoint covers %d records, and the copy has %d", last.Size, len(lines))
	}
	has := map[string]bool{}
	for _, line := range lines {
		has[idOf(line)] = true
	}
	if !has["before"] || !has["to-go"] || has["after"] {
		t.Errorf("before %v, to-go %v, after %v", has["before"], has["to-go"], has["after"])
	}
	if _, err := os.Stat(filepath.Join(dir, format.KeyFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the private key is in it: %v", err)
	}
}

// A log that a process has is not copied as it is, and no process opens one that is being copied.
func TestCopyStopped(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	l := mustOpen(t, data, Options{})
	mustAppend(t, l, entry("one"))
	if _, _, _, err := CopyStopped(data); !errors.Is(err, segment.ErrLocked) {
		t.Errorf("while it is open: %v", err)
	}
	must(t, l.Close())
	last, files, release, err := CopyStopped(data)
	must(t, err)
	if _, err := Open(data, Options{LockTimeout: 1}); !errors.Is(err, segment.ErrLocked) {
		t.Errorf("while it is copied: %v", err)
	}
	release()
	if lines := verify(t, unpack(t, files)); uint64(len(lines)) != last.Size {
		t.Errorf("the checkpoint covers %d records, and the copy has %d", last.Size, len(lines))
	}
	if _, _, _, err := CopyStopped(t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a log: %v", err)
	}
}
