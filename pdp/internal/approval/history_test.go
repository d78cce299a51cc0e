package approval_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp/internal/approval"
)

// Of all that were for the same the newest before is found, also after a start and after some were forgotten.
func TestPreviousIsTheNewestBefore(t *testing.T) {
	t.Parallel()
	r, random := newRecord(), rand.New(rand.NewPCG(1, 2))
	data := quick(t)
	s, err := approval.Open(data, r.options())
	must(t, err)
	defer func() { must(t, s.Close()) }()
	r.Pass(time.Hour)
	var all []approval.Approval
	found := 0
	for n := range 150 {
		a := mustFile(t, s, question(fmt.Sprint(n), func(q *approval.ApprovalRequest) {
			q.Subject = evaluation.Ref{Type: "user", ID: fmt.Sprint("u", random.IntN(8))}
			q.Resource.ID = fmt.Sprint("r", random.IntN(2))
			q.Tenant = []string{"acme", "other"}[random.IntN(2)]
			q.Terms.Template = []string{"owner", "lead"}[random.IntN(2)]
		}))
		all = append(all, a)
		switch random.IntN(4) {
		case 3:
			_, err := s.Cancel(t.Context(), a.ID, 0, "", "key:pep", "")
			must(t, err)
		case 0:
			mustDecide(t, s, a.ID, by("mia"))
		case 1:
			mustDecide(t, s, a.ID, approval.Vote{Statement: approval.Statement{By: "mia"}, Caller: "key:mia", Kind: approval.Deny})
		}
		if n == 75 {
			must(t, s.Close())
			s, err = approval.Open(data, r.options())
			must(t, err)
		}
		one := all[random.IntN(len(all))]
		want := ""
		for _, other := range all {
			now, known, err := s.Get(t.Context(), other.ID)
			must(t, err)
			same := other.Tenant == one.Tenant && other.Terms.Template == one.Terms.Template && other.Subject == one.Subject && other.Resource == one.Resource
			if known && same && other.ID < one.ID && now.Status == approval.Approved {
				want = other.ID
			}
		}
		got, is, err := s.Previous(t.Context(), one, func(a approval.Approval) (bool, error) { return a.Status != approval.Denied, nil })
		must(t, err)
		if is != (want != "") || got.ID != want {
			t.Fatalf("%d: got %v %q, want %q", n, is, got.ID, want)
		}
		if is {
			found++
		}
	}
	if found < 10 {
		t.Errorf("only %d were found", found)
	}
}
