package doctor_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"policy-service/pdp/pdptest/memorydisk"
	"policy-service/pdp/server/doctor"
)

func TestDiskInMemory(t *testing.T) {
	t.Parallel()
	found := doctor.Examine(t.Context(), patient(memorydisk.New(t, "size=1g,mode=0700")))
	mustBite(t, found, "disk", "is on tmpfs: it is memory, and the log is gone when the machine restarts; put the data directory on a local disk")
	if text := fmt.Sprint(found); !strings.Contains(text, "a sync takes ") {
		t.Error(text)
	}
}

func TestDiskFull(t *testing.T) {
	t.Parallel()
	mustBite(t, doctor.Examine(t.Context(), patient(memorydisk.New(t, "size=3m,mode=0700"))), "disk", "3 MiB are free: when it is full, nothing is answered in strict mode")
	dir := memorydisk.New(t, "size=64k,mode=0700")
	if err := os.WriteFile(filepath.Join(dir, "ballast"), make([]byte, 60<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	mustBite(t, doctor.Examine(t.Context(), patient(dir)), "disk", "what is written does not get to the disk: ")
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the probe is left behind: %v %v", entries, err)
	}
}

// What the log may take by the configuration is held against what is free.
func TestDiskOfARetention(t *testing.T) {
	t.Parallel()
	p := patient(memorydisk.New(t, "size=200m,mode=0700"))
	for bytes, want := range map[int64]string{64 << 20: "", 1 << 30: "MiB are free, and the log may take 1 GiB more by decision_log.retain.bytes; free as much, or lower it"} {
		p.Config.DecisionLog.Retain.Bytes = bytes
		if got := biting(doctor.Examine(t.Context(), p), "disk"); !strings.Contains(got, want) || strings.Contains(got, "may take") != (want != "") {
			t.Errorf("%d: got %q, want %q", bytes, got, want)
		}
	}
	p.Config.DecisionLog.Retain.Share = 0.6
	mustBite(t, doctor.Examine(t.Context(), p), "disk", "decision_log.retain.share is 0.6: one caller can fill so much")
}

func TestDiskReadOnly(t *testing.T) {
	t.Parallel()
	dir := memorydisk.New(t, "size=1g,mode=0700")
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	mustBite(t, doctor.Examine(t.Context(), patient(dir)), "disk", "is mounted read-only, and nothing can be recorded")
	mustBite(t, doctor.Examine(t.Context(), patient(filepath.Join(dir, "data"))), "data", "does not exist, and cannot be made in "+dir)
}

// TestBundleReadOnly: a ConfigMap is mounted with mode 0777, read-only, and nobody can write to it.
func TestBundleReadOnly(t *testing.T) {
	t.Parallel()
	dir := memorydisk.New(t, "size=16m,mode=0777")
	if err := os.CopyFS(dir, os.DirFS(starter)); err != nil {
		t.Fatal(err)
	}
	p := patient("")
	p.Policies = dir
	mustBite(t, doctor.Examine(t.Context(), p), "bundle", "every user of this machine can change what is decided")
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if bites := biting(doctor.Examine(t.Context(), p), "bundle"); bites != "" {
		t.Error(bites)
	}
}
