package server

import (
	"context"
	"errors"

	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/approval"
	"policy-service/pdp/server/auth"
	"policy-service/pdp/server/door"
)

// approver is an admitted request about approval requests: of a person, by their own credential, or of the program
// that asked for one. Nothing but the credential says whose request it is.
type approver struct {
	door.Admitted
	server    *Server
	reviewers map[reviewerOf]*pdp.Reviewer
}

type reviewerOf struct {
	tenant, caller string
	person         auth.Principal
}

// approver admits a request about approvals, which says what it needs besides approvals.
func (s *Server) approver(c echo.Context, need door.Need) (*approver, error) {
	if s.approvals == nil { // every caller hears that, whatever it may do
		need.Permission, need.Absent = "", noApprovals()
	}
	a, err := s.door.Admit(c, need)
	return &approver{Admitted: a, server: s, reviewers: map[reviewerOf]*pdp.Reviewer{}}, err
}

// decides reports whether this is a person who may decide about anything at all.
func (v *approver) decides() bool {
	return v.Caller.May(auth.Approve)
}

// standing is what somebody is to an approval request.
type standing struct {
	// decides may say something about it; own is that it would be about themselves.
	decides, own bool
	// from is who named them, where it is by that alone that they decide.
	from string
	// asked is the program that asked for it, voted who said something.
	asked, voted bool
}

// sees reports whether it is there for them.
func (s standing) sees() bool { return s.decides || s.asked || s.voted }

// standing says what whoever asks is to an approval request.
func (v *approver) standing(ctx context.Context, a approval.Approval) (s standing, err error) {
	if !v.Caller.Serves(a.Tenant) {
		return s, nil
	}
	s.asked = v.Caller.Name == a.Caller
	if !v.decides() {
		return s, nil
	}
	me := v.Caller.Principal
	for _, vote := range a.Votes {
		s.voted = s.voted || vote.By == me.String()
	}
	may, err := v.may(ctx, a, me, v.Caller.Name)
	s.decides, s.own, s.from = may.decides, may.own, may.from
	return s, err
}

// may says whether a person may decide: because the policies let them, and they did not
// name another in their place; or because somebody whom they let did name them, by a
// credential that is in force. Nobody may about their own request.
func (v *approver) may(ctx context.Context, a approval.Approval, person auth.Principal, caller string) (s standing, err error) {
	review, err := v.review(ctx, a, person, caller)
	if err != nil || review.Own {
		return standing{own: review.Own}, err
	}
	s.decides = review.May
	for _, vote := range a.Votes {
		if vote.Kind != approval.Delegate || !v.server.approvals.inForce(a.Tenant, vote.Caller) {
			continue
		}
		by, err := auth.ParsePrincipal(vote.By)
		if err != nil {
			return standing{}, err
		}
		if v.same(a.Tenant, vote.By, person.String()) {
			return standing{}, nil
		}
		if vote.To == person.String() && !s.decides {
			from, err := v.review(ctx, a, by, vote.Caller)
			if err != nil {
				return standing{}, err
			}
			if from.May {
				s.decides, s.from = true, vote.By
			}
		}
	}
	return s, nil
}

// review asks the policies in force. Of a tenant that there is no more nobody decides
// about anything; that keeps nobody from the others.
func (v *approver) review(ctx context.Context, a approval.Approval, person auth.Principal, caller string) (pdp.Review, error) {
	reviewer, err := v.reviewer(a.Tenant, person, caller)
	if errors.Is(err, pdp.ErrUnknownTenant) {
		return pdp.Review{}, nil
	}
	if err != nil {
		return pdp.Review{}, err
	}
	return reviewer.Review(ctx, pdp.Reviewed{
		ID:       a.ID,
		Template: a.Terms.Template,
		Subject:  a.Subject,
		Resource: a.Resource,
		Action:   a.Action,
		Actors:   evaluation.Actors{Agent: a.Agent, Chain: a.Chain},
		OfTenant: a.OfTenant,
		Asker:    a.Caller,
	})
}

func (v *approver) reviewer(tenant string, person auth.Principal, caller string) (*pdp.Reviewer, error) {
	key := reviewerOf{tenant, caller, person}
	if known := v.reviewers[key]; known != nil {
		return known, nil
	}
	r, err := v.server.pdp.Reviewer(tenant, evaluation.Ref(person), caller)
	if err == nil {
		v.reviewers[key] = r
	}
	return r, err
}

// same reports whether two names are of one person. Where that cannot be said, they are.
func (v *approver) same(tenant, one, other string) bool {
	a, err1 := auth.ParsePrincipal(one)
	b, err2 := auth.ParsePrincipal(other)
	reviewer, err3 := v.reviewer(tenant, a, v.Caller.Name)
	return err1 != nil || err2 != nil || err3 != nil || reviewer.SamePerson(evaluation.Ref(a), evaluation.Ref(b))
}
