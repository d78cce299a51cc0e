package approval_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"policy-service/pdp/approval"
)

// manyPending is how many wait where many do.
const manyPending = 100_000

func many(r *record) approval.Options {
	o := r.options()
	o.Limits = approval.Limits{MaxPendingPerSubject: 1 << 30, MaxPendingPerTenant: 1 << 30, NewPerMinutePerSubject: 1 << 30}
	return o
}

// filed is a directory with 100,000 pending of 1,000 subjects in 10 tenants.
func filed(b *testing.B, r *record) string {
	b.Helper()
	data := quick(b)
	s, err := approval.Open(data, many(r))
	must(b, err)
	questions := make([]approval.ApprovalRequest, 0, manyPending)
	for n := range manyPending {
		questions = append(questions, question(fmt.Sprint(n), of(fmt.Sprint("tenant", n%10), fmt.Sprint("subject", n%1000))))
	}
	for some := range slices.Chunk(questions, 500) { // bbolt is slow in one of them all
		must(b, s.FileAll(some))
	}
	must(b, s.Close())
	return data
}

// How long does a start take while 100,000 wait?
func BenchmarkOpenWith100kPending(b *testing.B) {
	r := newRecord()
	data := filed(b, r)
	b.ReportAllocs()
	for b.Loop() {
		s, err := approval.Open(data, many(r))
		must(b, err)
		if s.Pending() != manyPending {
			b.Fatal(s.Pending())
		}
		must(b, s.Close())
	}
}

// How long does an approver wait for a page, while 100,000 wait for approvers?
func BenchmarkListPageOf50Among100kPending(b *testing.B) {
	r := newRecord()
	s := mustOpen(b, filed(b, r), many(r))
	b.ReportAllocs()
	after := ""
	for b.Loop() {
		page, next, err := s.List(b.Context(), nil, approval.Pending, after, 50)
		must(b, err)
		if after = next; len(page) != 50 {
			b.Fatal(len(page))
		}
	}
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

// What does it cost to find an approval, as each call does that brings one?
func BenchmarkLiveAmong100kPending(b *testing.B) {
	r := newRecord()
	s := mustOpen(b, filed(b, r), many(r))
	q := question("mine")
	mustDecide(b, s, mustFile(b, s, q).ID, by("mia"))
	b.ReportAllocs()
	for b.Loop() {
		if _, live := s.Live(q.Digest, ""); !live {
			b.Fatal("it is not live")
		}
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
