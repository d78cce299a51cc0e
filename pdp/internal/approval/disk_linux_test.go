package approval_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"policy-service/pdp/internal/approval"
)

// A full disk is played by a limit on the size of files. It is one of a process, so
// these tests run in one of their own.
func alone(t *testing.T) bool {
	t.Helper()
	if os.Getenv("APPROVAL_ALONE") != "" {
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), "APPROVAL_ALONE=1")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("%v\n%s", err, out)
	}
	return false
}

func limit(t *testing.T, n uint64) {
	t.Helper()
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: n, Max: unix.RLIM_INFINITY}))
}

// TestDiskFull: what cannot be written is refused, what was written stays, and when
// there is room again it goes on.
func TestDiskFull(t *testing.T) {
	if !alone(t) {
		return
	}
	r, data := newRecord(), quick(t)
	o := r.options()
	o.Limits.MaxPendingPerSubject = 10_000
	s := mustOpen(t, data, o)
	q := question("approved")
	a := mustFile(t, s, q)
	mustDecide(t, s, a.ID, by("mia"))
	limit(t, 1<<20)
	filed, failed := []string{}, 0
	for n := 0; failed < 3; n++ {
		b, err := s.File(t.Context(), question(fmt.Sprint(n), func(q *approval.ApprovalRequest) { q.Shown = []byte(`"` + strings.Repeat("x", 20_000) + `"`) }))
		switch {
		case err == nil: // also after a failure: where pages were freed there may be room for one more
			filed, failed = append(filed, b.ID), 0
		case errors.Is(err, approval.ErrUnavailable):
			failed++
		default:
			t.Fatalf("after %d failures: %v", failed, err)
		}
	}
	if _, live, _ := s.Live(q.Digest, ""); !live || s.Pending() != len(filed) {
		t.Errorf("live %v, pending %d of %d", live, s.Pending(), len(filed))
	}
	limit(t, 4096) // now nothing at all can be written
	if spent, err := spend(t.Context(), s, a.ID, q.Digest, "d", r.decide("d")); spent || !errors.Is(err, approval.ErrUnavailable) || r.IDs["d"] {
		t.Errorf("spent %v, on record %v: %v", spent, r.IDs["d"], err)
	}
	if _, err := s.Decide(t.Context(), filed[0], 0, by("mia"), all, equal); !errors.Is(err, approval.ErrUnavailable) {
		t.Error(err)
	}
	limit(t, unix.RLIM_INFINITY)
	r.uses(t, "there is room again", s, a.ID, q.Digest, "e")
	filed = append(filed, mustFile(t, s, question("after")).ID)
	must(t, s.Close())
	s = mustOpen(t, data, o)
	for _, id := range filed {
		if got, _, _ := s.Get(t.Context(), id); got.Status != approval.Pending || got.Unrecorded {
			t.Errorf("%s is %+v", id, got)
		}
	}
	if got, _, _ := s.Get(t.Context(), a.ID); got.Status != approval.UsedUp || s.Pending() != len(filed) {
		t.Errorf("it is %s, and %d of %d are pending", got.Status, s.Pending(), len(filed))
	}
}

// TestDiskFailsAfterRecord: the decision is on record when the disk fails. It is not answered, its use stays reserved, and what
// is to be written of it comes later.
func TestDiskFailsAfterRecord(t *testing.T) {
	if !alone(t) {
		return
	}
	r := newRecord()
	s := mustOpen(t, quick(t), r.options())
	q := question("a", func(q *approval.ApprovalRequest) { q.Terms.Uses = 2 })
	a := mustFile(t, s, q)
	mustDecide(t, s, a.ID, by("mia"))
	spent, err := spend(t.Context(), s, a.ID, q.Digest, "d", func(ctx context.Context) error { limit(t, 4096); return r.decide("d")(ctx) })
	if spent || !errors.Is(err, approval.ErrUnavailable) || !r.IDs["d"] {
		t.Fatal(spent, err, r.IDs)
	}
	if got, _, _ := s.Get(t.Context(), a.ID); len(got.Reserved) != 1 || len(got.Used) != 0 {
		t.Errorf("it is %+v", got)
	}
	limit(t, unix.RLIM_INFINITY)
	s.Work(t.Context())
	if got, _, _ := s.Get(t.Context(), a.ID); len(got.Reserved) != 0 || len(got.Used) != 1 || len(r.Withdrawn) != 0 {
		t.Errorf("it is %+v, and withdrawn are %v", got, r.Withdrawn)
	}
}

// TestLostWrites: a file that has lost what was written to it is not gone on with.
func TestLostWrites(t *testing.T) {
	if !alone(t) {
		return
	}
	r, data := newRecord(), quick(t)
	s := mustOpen(t, data, r.options())
	q := question("a")
	a := mustFile(t, s, q)
	mustDecide(t, s, a.ID, by("mia"))
	path := filepath.Join(data, approval.FileName)
	before, err := os.ReadFile(path)
	must(t, err)
	_, err = s.Revoke(t.Context(), a.ID, 0, by("mia"))
	must(t, err)
	must(t, os.Rename(path, path+".true"))
	must(t, os.WriteFile(path, before, 0o600))
	limit(t, 4096)
	for range 2 {
		if _, err := s.File(t.Context(), question("b")); !errors.Is(err, approval.ErrUnavailable) {
			t.Error(err)
		}
	}
	limit(t, unix.RLIM_INFINITY)
	if _, found, err := s.Get(t.Context(), a.ID); found || !errors.Is(err, approval.ErrUnavailable) {
		t.Errorf("what cannot be read is said not to be: %v, %v", found, err)
	}
	isLive(t, "a file of yesterday brings back what was revoked", s, q.Digest, "", false)
	if _, err := s.File(t.Context(), question("b")); !errors.Is(err, approval.ErrUnavailable) || !errors.Is(err, approval.ErrDamaged) {
		t.Error(err)
	}
	must(t, os.Rename(path+".true", path))
	mustFile(t, s, question("b"))
	hasStatus(t, "it is", s, a.ID, approval.Revoked)
}
