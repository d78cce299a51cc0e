package doctor_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"policy-service/pdp/decisionlog"
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

func TestDiskWithoutInodes(t *testing.T) {
	t.Parallel()
	mustBite(t, doctor.Examine(t.Context(), patient(memorydisk.New(t, "size=1g,nr_inodes=20,mode=0700"))), "disk", "files can still be made on it")
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

// TestDiskFills: a log of two hours with 2 MB an hour says when 200 MB are full.
func TestDiskFills(t *testing.T) {
	t.Parallel()
	dir := memorydisk.New(t, "size=200m,mode=0700")
	var passed atomic.Int64
	now := func() time.Time { return later.Add(-2*time.Hour + time.Duration(passed.Load())) }
	log, err := decisionlog.Open(dir, decisionlog.Options{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 40 {
		passed.Add(int64(3 * time.Minute))
		hundred := make([]decisionlog.Entry, 100)
		for i := range hundred {
			hundred[i] = decisionlog.Entry{ID: fmt.Sprint(n, ".", i), Kind: decisionlog.KindAdmin, Event: strings.Repeat("x", 600)}
		}
		if err := log.Append(t.Context(), hundred); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	mustBite(t, doctor.Examine(t.Context(), patient(dir)), "disk", " days: nothing is answered then in strict mode; set decision_log.retain")
	kept := patient(dir)
	kept.Config.DecisionLog.Retain.Bytes = 1 << 30
	mustBite(t, doctor.Examine(t.Context(), kept), "disk", " more before anything of it is dropped: decision_log.retain.bytes is 1 GiB")
	mustBite(t, doctor.Examine(t.Context(), kept), "disk", "decision_log.retain.bytes stands alone: no record younger than 24h0m0s is dropped for it any more, ")
}
