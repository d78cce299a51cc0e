package approval_test

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"policy-service/pdp/internal/approval"
)

// pages are the ids of all pages, and how many pages there were.
func pages(t *testing.T, s *approval.Store, f approval.Filter, limit int) (ids []string, n int) {
	t.Helper()
	for after := ""; ; n++ {
		page, next, err := s.List(t.Context(), f, after, limit)
		must(t, err)
		if len(page) > limit {
			t.Errorf("a page of %d has %d", limit, len(page))
		}
		for _, a := range page {
			ids = append(ids, a.ID)
		}
		if after = next; next == "" {
			return ids, n + 1
		}
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	r := newRecord()
	s := mustOpen(t, quick(t), r.options())
	of := map[string][]string{} // by tenant and status
	for n := range 150 {
		tenant := []string{"acme", "other"}[n%3/2]
		a := mustFile(t, s, question(fmt.Sprint(n), func(q *approval.ApprovalRequest) { q.Tenant = tenant }))
		status := approval.Pending
		if n%5 == 0 {
			status = approval.Denied
			mustDecide(t, s, a.ID, approval.Vote{Statement: approval.Statement{By: "mia"}, Kind: approval.Deny})
		}
		names := []string{tenant + " " + string(status), tenant + " ", " " + string(status), " "}
		if status != approval.Pending {
			names = append(names, tenant+" ended", " ended")
		}
		for _, name := range names {
			of[name] = append(of[name], a.ID)
		}
	}
	limits := []int{1, 7, 1000}
	if os.Getenv(onEtcd) != "" { // each page is several calls of etcd
		limits = limits[1:]
	}
	for _, limit := range limits {
		for _, status := range []approval.Status{"", approval.Pending, approval.Denied, approval.Ended} {
			for _, tenant := range []string{"", "acme", "other"} {
				var tenants []string
				if tenant != "" {
					tenants = []string{"none", tenant}
				}
				want := of[tenant+" "+string(status)]
				for _, newest := range []bool{false, true} {
					got, n := pages(t, s, approval.Filter{Tenants: tenants, Status: status, Newest: newest}, limit)
					if newest {
						slices.Reverse(got)
					}
					if !slices.Equal(got, want) || limit == 1000 && n > 1 {
						t.Errorf("%s %q by %d, newest %t: got %d in %d pages, want %d", tenant, status, limit, newest, len(got), n, len(want))
					}
				}
			}
		}
	}
	if got, n := pages(t, s, approval.Filter{Tenants: []string{}}, 1); len(got) != 0 || n != 38 { // 4 are read for each
		t.Errorf("of no tenant there are %d, in %d pages", len(got), n)
	}
	r.Pass(time.Hour)
	if got, _ := pages(t, s, approval.Filter{Status: approval.Pending}, 50); len(got) != 0 {
		t.Errorf("%d are pending whose time is up", len(got))
	}
	if got, _ := pages(t, s, approval.Filter{Status: approval.Expired}, 50); !slices.Equal(got, of[" pending"]) {
		t.Errorf("%d have expired", len(got))
	}
	if _, _, err := s.List(t.Context(), approval.Filter{}, "", 0); err == nil {
		t.Error("a page of nothing is a page")
	}
}

// TestUntold: people are told of each thing that happened, also after a restart, until
// they were.
func TestUntold(t *testing.T) {
	t.Parallel()
	r, data := newRecord(), quick(t)
	s := mustOpen(t, data, r.options())
	a, b := mustFile(t, s, question("a")), mustFile(t, s, question("b"))
	mustDecide(t, s, a.ID, by("mia"))
	want := []approval.Told{{Approval: a.ID, Event: approval.Filed}, {Approval: a.ID, Event: approval.Completed}, {Approval: b.ID, Event: approval.Filed}}
	must(t, s.Close())
	s = mustOpen(t, data, r.options())
	for len(want) > 0 {
		if got := s.Untold(10, 10); !slices.Equal(got, want) {
			t.Fatalf("untold is %v, want %v", got, want)
		}
		if got := s.Untold(1, 1); !slices.Equal(got, want[:1]) {
			t.Errorf("the first is %v", got)
		}
		must(t, s.Told(want[0]))
		must(t, s.Told(want[0])) // twice is once
		want = want[1:]
	}
	r.Pass(time.Hour)
	s.Work(t.Context())
	if got := s.Untold(10, 10); len(got) != 1 || got[0] != (approval.Told{Approval: b.ID, Event: approval.Completed}) {
		t.Errorf("untold is %v", got)
	}
}

// Where nobody is to be told, nothing is kept for telling.
func TestSilence(t *testing.T) {
	t.Parallel()
	options := newRecord().options()
	options.Silent = true
	s := mustOpen(t, quick(t), options)
	mustFile(t, s, question("a"))
	if told := s.Untold(10, 10); len(told) > 0 {
		t.Errorf("got %v", told)
	}
}
