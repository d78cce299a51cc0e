package source_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"policy-service/pdp"
	"policy-service/pdp/pdptest/night"
)

// swapping exchanges two names in a directory again and again, until the test ends.
func swapping(t *testing.T, a, b string) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-quit:
				return
			default:
			}
			if err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	t.Cleanup(func() { close(quit); <-done })
}

// readings is enough for what is swapped to be met between any two steps of a reading.
const readings = 1_000

func TestAFIFOSwappedInBlocksNoReading(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a.cedar", "entities", "tenants/acme", "MANIFEST"} {
		t.Run(strings.ReplaceAll(name, "/", "-"), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			tree{"a.cedar": smallest, "entities/e.json": "[]\n", "tenants/acme/b.cedar": renamed(smallest, "b")}.Write(t, dir)
			must(t, pdp.Dir(dir).WriteManifest())
			must(t, syscall.Mkfifo(filepath.Join(dir, ".fifo"), 0o644))
			swapping(t, filepath.Join(dir, ".fifo"), filepath.Join(dir, name))
			read := make(chan struct{})
			go func() {
				defer close(read)
				for range night.Cases(readings) {
					pdp.Dir(dir).Read()
				}
			}()
			select {
			case <-read:
			case <-time.After(time.Minute):
				t.Fatal("a reading waits for somebody to write to a FIFO")
			}
		})
	}
}

func TestALinkSwappedInReachesNoOtherTenant(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	twoTenants.Write(t, dir)
	tree{"tenants/a/d/b.cedar": renamed(smallest, "own2"), "tenants/a/x.cedar": "-> d/b.cedar", "tenants/a/.d": "-> ../b"}.Write(t, dir)
	swapping(t, filepath.Join(dir, "tenants/a/.d"), filepath.Join(dir, "tenants/a/d"))
	var right, wrong int
	for n := 0; n < night.Cases(readings) || right == 0 || wrong == 0; n++ {
		files := pdp.Dir(dir).Read()
		switch content := string(files.Content["tenants/a/x.cedar"]); {
		case strings.Contains(content, "kept"):
			t.Fatal("tenant a has a policy of tenant b")
		case content == "":
			wrong++
		default:
			right++
		}
	}
}
