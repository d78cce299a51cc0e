package approval_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"policy-service/pdp/internal/approval"
)

func many(r *stepLog) approval.Options {
	o := r.options()
	o.Limits = approval.Limits{MaxPendingPerSubject: 1 << 30, MaxPendingPerTenant: 1 << 30, NewPerMinutePerSubject: 1 << 30}
	return o
}

// What does it cost to ask for an approval, on a disk?
func BenchmarkFile(b *testing.B) {
	r := newRecord()
	s := mustOpen(b, b.TempDir(), many(r))
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		mustFile(b, s, question(fmt.Sprint(n)))
	}
}

// What does it cost to spend one, on a disk, besides the decision's record?
func BenchmarkSpend(b *testing.B) {
	r := newRecord()
	s := mustOpen(b, b.TempDir(), many(r))
	var q approval.ApprovalRequest
	var a approval.Approval
	b.ReportAllocs()
	const uses = 100 // an approval grows with its uses
	for n := 0; b.Loop(); n++ {
		if n%uses == 0 {
			b.StopTimer()
			q = question(fmt.Sprint(n), func(q *approval.ApprovalRequest) { q.Terms.Uses = uses })
			a = mustFile(b, s, q)
			mustDecide(b, s, a.ID, by("mia"))
			b.StartTimer()
		}
		d := fmt.Sprint("d", n)
		if spent, err := spend(b.Context(), s, a.ID, q.Digest, d, r.decide(d)); !spent {
			b.Fatal(err)
		}
	}
}

// What a limit refuses must cost little, because the limit is there for a flood of it.
func BenchmarkRefused(b *testing.B) {
	r := newRecord()
	o := r.options()
	o.Limits.MaxPendingPerSubject = 1
	s := mustOpen(b, quick(b), o)
	mustFile(b, s, question("first"))
	shown := []byte(`{"subject":{"type":"user","id":"alice"},"context":{"purpose":"` + strings.Repeat("x", 60000) + `"}}`)
	q := question("second", func(q *approval.ApprovalRequest) { q.Shown = shown })
	b.ReportAllocs()
	for b.Loop() {
		var limit *approval.LimitError
		if _, err := s.File(b.Context(), q); !errors.As(err, &limit) {
			b.Fatal(err)
		}
	}
}

// What does it cost the processor to ask for an approval, to give it, and to use it, on a disk?
func BenchmarkFiledToUsed(b *testing.B) {
	r := newRecord()
	s := mustOpen(b, b.TempDir(), many(r))
	b.ReportAllocs()
	before := processor(b)
	for n := 0; b.Loop(); n++ {
		q := question(fmt.Sprint(n))
		a := mustFile(b, s, q)
		mustDecide(b, s, a.ID, by("mia"))
		if spent, err := spend(b.Context(), s, a.ID, q.Digest, q.Decision, r.decide(q.Decision)); !spent {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(processor(b)-before)/float64(b.N), "cpu-ns/op")
}

// processor is the time that the process has had.
func processor(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	must(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
