package doctor_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"policy-service/pdp/internal/server/doctor"
	"policy-service/pdp/pdptest/memorydisk"
)

func TestDiskInMemory(t *testing.T) {
	t.Parallel()
	found := doctor.Examine(t.Context(), patient(memorydisk.New(t, "size=1g,mode=0700")))
	mustBite(t, found, "disk", "is on tmpfs: it is memory, and the log is gone when the machine restarts; put the data directory on a local disk")
}

func TestDiskFull(t *testing.T) {
	t.Parallel()
	found := doctor.Examine(t.Context(), patient(memorydisk.New(t, "size=3m,mode=0700")))
	mustBite(t, found, "disk", "3 MiB are free: when it is full, nothing is answered in strict mode")
	mustBite(t, found, "disk", "is on tmpfs: it is memory")
}

func TestDiskReadOnly(t *testing.T) {
	t.Parallel()
	dir := memorydisk.New(t, "size=1g,mode=0700")
	must(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	mustBite(t, doctor.Examine(t.Context(), patient(dir)), "disk", "is mounted read-only, and nothing can be recorded")
	mustBite(t, doctor.Examine(t.Context(), patient(filepath.Join(dir, "data"))), "data", "does not exist, and cannot be made in "+dir)
}

// TestBundleReadOnly: a ConfigMap is mounted with mode 0777, read-only, and nobody can write to it.
func TestBundleReadOnly(t *testing.T) {
	t.Parallel()
	dir := memorydisk.New(t, "size=16m,mode=0777")
	must(t, os.CopyFS(dir, os.DirFS(starter)))
	p := patient("")
	p.Config.Policies = dir
	mustBite(t, doctor.Examine(t.Context(), p), "bundle", "every user of this machine can change what is decided")
	must(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	if bites := biting(doctor.Examine(t.Context(), p), "bundle"); bites != "" {
		t.Error(bites)
	}
}
