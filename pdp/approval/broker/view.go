package broker

import (
	"net/url"

	"policy-service/evaluation"
	"policy-service/pdp/approval"
)

// ViewOf is the view of an approval.
func ViewOf(a approval.Approval) evaluation.ApprovalView {
	v := evaluation.ApprovalView{
		ID:            a.ID,
		Status:        string(a.Status),
		Version:       a.Version,
		Tenant:        a.Tenant,
		Template:      a.Terms.Template,
		Message:       a.Terms.Message,
		Request:       a.ForPeople(),
		Unbound:       Unbound(a),
		Decision:      a.Decision,
		Justification: a.Said,
		Asked:         a.Asked,
		Requester:     a.Caller,
		Quorum:        a.Terms.Quorum,
		Uses:          a.Terms.Uses,
		Used:          len(a.Used) + len(a.Reserved),
		Rounds:        a.Terms.Rounds,
		Continued:     a.Continued,
		Delegable:     a.Terms.Delegable,
		FiledAt:       a.FiledAt,
		ExpiresAt:     a.ExpiresAt,
		DecidedAt:     a.DecidedAt,
		RedactedAt:    a.RedactedAt,
		Said:          []evaluation.ApprovalVote{},
	}
	if v.Rounds > 0 {
		v.RoundsWithin = span(a.Terms.RoundsWithin)
	}
	for _, vote := range a.Votes {
		way := vote.Way()
		v.Said = append(v.Said, evaluation.ApprovalVote{
			By:         vote.By,
			Decision:   string(vote.Kind),
			Reason:     vote.Reason,
			To:         vote.To,
			Via:        way.Via,
			Gateway:    way.Gateway,
			ValidUntil: vote.ValidUntil,
			At:         vote.At,
		})
		if vote.Kind == approval.Approve {
			v.Approvals++
		}
	}
	return v
}

// ViewOf is the view of an approval for the caller, who sees it. The link is for people who decide: a program
// could have another person follow it.
func (s *Seen) ViewOf(a approval.Approval) evaluation.ApprovalView {
	if s.decides || s.voted {
		return s.by.linked(a)
	}
	return ViewOf(a)
}

// linked is the view of an approval for people who may decide about it.
func (b *Broker) linked(a approval.Approval) evaluation.ApprovalView {
	v := ViewOf(a)
	v.Link = b.Link(a.ID)
	return v
}

// Link is where people decide about an approval request; "" if there is no console.
func (b *Broker) Link(id string) string {
	console := b.options.ConsoleURL()
	if console == "" {
		return ""
	}
	return console + "/approvals/" + url.PathEscape(id)
}
