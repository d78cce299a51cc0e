package approval

import (
	"context"
	"errors"

	"policy-service/pdp/internal/ledger"
)

// purpose has the facts that approval requests for the same thing share: one subject, one action on one resource, one
// template in one tenant.
type purpose struct{ tenant, template, subjectType, subject, action, resourceType, resource string }

func (q *ApprovalRequest) purpose() purpose {
	return purpose{q.Tenant, q.Terms.Template, q.Subject.Type, q.Subject.ID, q.Action, q.Resource.Type, q.Resource.ID}
}

// wasRuled reports whether people approved or denied it, and its purpose is still there: that of a redacted one is not. One
// that was withdrawn or ran out of time before is nothing to compare with: a program can file as many as it likes.
func (a *Approval) wasRuled() bool {
	switch a.Status {
	case Approved, Denied, UsedUp, Revoked:
	case Expired:
		if a.Agreed == "" {
			return false
		}
	default:
		return false
	}
	return a.ID != "" && a.RedactedAt.IsZero()
}

// alikePrefix begins the keys of approvals that were for the same, and alikeKey is that of this one.
func (a *Approval) alikePrefix() string {
	p := a.purpose()
	return prefixAlike + hash(p.tenant, p.template, p.subjectType, p.subject, p.action, p.resourceType, p.resource) + "/"
}

func (a *Approval) alikeKey() string { return a.alikePrefix() + a.ID }

// mostBefore is how many approval requests Previous looks at.
const mostBefore = 25

// Previous finds the newest approval request that was for the same as another, was filed before it, and was approved or
// denied by people. Picks says whether it is wanted. If many that were are not, those before them are not looked at.
func (s *Store) Previous(
	ctx context.Context, a Approval, picks func(Approval) (bool, error),
) (before Approval, found bool, err error) {
	var ids []string
	err = s.ledger.View(func(tx *ledger.Tx) {
		for id := range tx.Back(a.alikePrefix(), a.ID) {
			if ids = append(ids, id); len(ids) == mostBefore {
				return
			}
		}
	})
	if err != nil {
		return before, false, err
	}
	for _, id := range ids {
		one, known, err := s.Get(ctx, id)
		if errors.Is(err, ErrUnrecorded) || err == nil && (!known || !one.wasRuled() || one.purpose() != a.purpose()) {
			continue
		}
		if err != nil {
			return before, false, err
		}
		if picked, err := picks(one); err != nil || picked {
			return one, picked && err == nil, err
		}
	}
	return before, false, nil
}
