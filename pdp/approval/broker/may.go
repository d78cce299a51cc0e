package broker

import (
	"policy-service/pdp/approval"
	"policy-service/pdp/server/auth"
)

// Act is something that a caller may do with an approval request.
type Act string

// The acts: the votes, and the two that end an approval request.
const (
	ActApprove  = Act(approval.Approve)
	ActDeny     = Act(approval.Deny)
	ActDelegate = Act(approval.Delegate)
	ActRevoke   = Act("revoke")
	ActCancel   = Act("cancel")
)

// acts are all of them, in the order of the answer.
var acts = []Act{ActApprove, ActDeny, ActDelegate, ActRevoke, ActCancel}

// LacksError says that a caller lacks the permission that an act needs.
type LacksError struct{ Permission auth.Permission }

func (e *LacksError) Error() string { return "the caller lacks the permission " + string(e.Permission) }

// You is the acts that a caller may do with an approval request now, and the others.
type You struct {
	May []Act
	Not []Refused
}

// Refused is an act that a caller may not do, and the reason.
type Refused struct {
	Act Act
	Err error
}

// You lists the acts of the caller. The same method refuses them when the caller does them.
func (s *Seen) You() (you You) {
	for _, act := range acts {
		if err := s.refusal(act); err != nil {
			you.Not = append(you.Not, Refused{act, err})
		} else {
			you.May = append(you.May, act)
		}
	}
	return you
}

// refusal is why the caller may not do something with the approval request as it stands now, whatever else would be said
// with it; nil if the caller may.
func (s *Seen) refusal(act Act) error {
	if act == ActCancel {
		if !s.asked || s.by.caller.Way.Gateway != "" { // no gateway cancels for a program
			return ErrNotAsker
		}
		return s.by.Store.MayEnd(s.Approval, approval.Cancelled)
	}
	if err := s.mayDecide(); err != nil {
		return err
	}
	if act == ActRevoke {
		return s.by.Store.MayEnd(s.Approval, approval.Revoked)
	}
	return s.by.Store.MayVote(s.Approval, approval.Vote{
		By:     s.by.caller.Principal.String(),
		Caller: s.by.caller.Name,
		Kind:   approval.VoteKind(act),
	}, s.same)
}

// mayDecide refuses a caller who sees the approval request and has no vote.
func (s *Seen) mayDecide() error {
	switch {
	case !s.by.caller.May(auth.Approve):
		return &LacksError{auth.Approve}
	case s.own:
		return ErrOwn
	case !s.decides:
		return ErrNoVote
	}
	return nil
}
