package approvals

import (
	"errors"
	"testing"

	"policy-service/evaluation"
	"policy-service/pdp/internal/approval/broker"
	"policy-service/pdp/internal/server/door"
)

// The problem without a name is the one of a strange actor. A name that nobody gave a status is a mistake of ours, and
// no refusal of the caller.
func TestAccessRequestProblems(t *testing.T) {
	for name, want := range map[string]struct {
		status int
		kind   string
	}{
		"":                       {403, "about:blank"},
		evaluation.UnknownTask:   {404, evaluation.AccessRequestProblem + "unknown_task"},
		evaluation.ExpiredDenial: {410, evaluation.AccessRequestProblem + "expired_denial"},
		"never_heard_of":         {500, evaluation.AccessRequestProblem + "never_heard_of"},
	} {
		var p *door.Problem
		err := problem(&broker.AccessError{Name: name, Pointer: "/x"})
		if !errors.As(err, &p) || p.Status != want.status || p.Type != want.kind || p.Pointer != "/x" {
			t.Errorf("%q: got %+v", name, err)
		}
	}
}
