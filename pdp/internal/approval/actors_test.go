package approval_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"policy-service/evaluation"
	"policy-service/pdp/internal/approval"
)

// TestActors: those who take part are the same in the file as they were filed.
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
			q.Actors = want
		}))
		must(t, s.Close())
		s, err = approval.Open(data, r.options())
		must(t, err)
		read, found, err := s.Get(t.Context(), a.ID)
		must(t, err)
		must(t, s.Close())
		if got := cmp.Diff(want, read.Actors, cmpopts.EquateEmpty()); !found || got != "" {
			t.Errorf("%s: %t %s", name, found, got)
		}
	}
}
