package approval_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"policy-service/evaluation"
	"policy-service/pdp/approval"
)

// TestActors: who takes part is the same in the file as it was filed. The requester is one of the chain to who does not
// know of one, and to who does is none of it.
func TestActors(t *testing.T) {
	t.Parallel()
	bot, ann, ben := evaluation.Ref{Type: "agent", ID: "bot"}, evaluation.Ref{Type: "user", ID: "ann"}, evaluation.Ref{Type: "user", ID: "ben"}
	data, r := quick(t), newRecord()
	for name, want := range map[string]evaluation.Actors{
		"nobody":               {},
		"an agent":             {Agent: &bot},
		"a chain":              {Chain: []evaluation.Ref{ann, ben}},
		"a requester":          {Requester: &ben},
		"a chain, a requester": {Agent: &bot, Chain: []evaluation.Ref{ann}, Requester: &ben},
		"one who is both":      {Chain: []evaluation.Ref{ben}, Requester: &ben},
	} {
		s, err := approval.Open(data, r.options())
		must(t, err)
		a := mustFile(t, s, question(name, func(q *approval.ApprovalRequest) {
			if q.Members = []string{"arguments"}; want.Requester != nil {
				q.Members = append(q.Members, evaluation.RequesterMember)
			}
			q.SetActors(want)
		}))
		must(t, s.Close())
		s, err = approval.Open(data, r.options())
		must(t, err)
		read, found, err := s.Get(t.Context(), a.ID)
		must(t, err)
		must(t, s.Close())
		if got := cmp.Diff(want, read.Actors(), cmpopts.EquateEmpty()); !found || got != "" {
			t.Errorf("%s: %t %s", name, found, got)
		}
		if known := len(want.Chain); want.Requester != nil && (len(read.Chain) != known+1 || read.Chain[known] != ben) {
			t.Errorf("%s: the file has %v", name, read.Chain)
		}
	}
}

// TestActorsOfBefore: a member of this name in an approval request of before takes nobody away from those who take part.
func TestActorsOfBefore(t *testing.T) {
	t.Parallel()
	ann, ben := evaluation.Ref{Type: "user", ID: "ann"}, evaluation.Ref{Type: "user", ID: "ben"}
	for _, chain := range [][]evaluation.Ref{nil, {ann}, {ann, ben}} {
		q := question("before", func(q *approval.ApprovalRequest) {
			q.Members, q.Chain = []string{evaluation.RequesterMember}, chain
		})
		got := q.Actors()
		all := append([]evaluation.Ref{}, got.Chain...)
		if got.Requester != nil {
			all = append(all, *got.Requester)
		}
		if cmp.Diff(append([]evaluation.Ref{}, chain...), all) != "" {
			t.Errorf("of %v there are %v", chain, all)
		}
	}
}
