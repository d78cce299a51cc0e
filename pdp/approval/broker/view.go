package broker

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/approval"
)

// View is an approval request as its approvers and its caller are shown it.
type View struct {
	ID       string          `json:"id"`
	Status   approval.Status `json:"status"`
	Version  int             `json:"version"`
	Tenant   string          `json:"tenant"`
	Template string          `json:"template"`
	Message  string          `json:"message,omitempty"`
	// Request is the masked request, and Decision the id of its record.
	Request jsontext.Value `json:"request"`
	// Unbound names the parts of the request that may differ when it is done.
	Unbound  []string `json:"unbound,omitempty"`
	Decision string   `json:"decision"`
	// Justification was given with the request and is no part of what is approved. Via is the form in which it was
	// asked for, "" for the native one.
	Justification jsontext.Value `json:"justification,omitzero"`
	Via           string         `json:"via,omitzero"`
	Requester     string         `json:"requester"`
	Quorum        int            `json:"quorum"`
	Approvals     int            `json:"approvals"`
	Uses          int            `json:"uses"`
	Used          int            `json:"used"`
	// Continued is how many rounds went on from its uses.
	Continued int        `json:"continued,omitzero"`
	Delegable bool       `json:"delegable"`
	FiledAt   time.Time  `json:"filed_at"`
	ExpiresAt time.Time  `json:"expires_at,omitzero"`
	DecidedAt time.Time  `json:"decided_at,omitzero"`
	Said      []VoteView `json:"said"`
}

// VoteView is a vote in a [View].
type VoteView struct {
	By         string            `json:"by"`
	Decision   approval.VoteKind `json:"decision"`
	Reason     string            `json:"reason,omitempty"`
	To         string            `json:"to,omitempty"`
	ValidUntil time.Time         `json:"valid_until,omitzero"`
	At         time.Time         `json:"at"`
}

// ViewOf is the view of an approval.
func ViewOf(a approval.Approval) View {
	v := View{
		ID:            a.ID,
		Status:        a.Status,
		Version:       a.Version,
		Tenant:        a.Tenant,
		Template:      a.Terms.Template,
		Message:       a.Terms.Message,
		Request:       a.Shown,
		Unbound:       Unbound(a),
		Decision:      a.Decision,
		Justification: a.Said,
		Via:           a.Via,
		Requester:     a.Caller,
		Quorum:        a.Terms.Quorum,
		Uses:          a.Terms.Uses,
		Used:          len(a.Used) + len(a.Reserved),
		Continued:     a.Continued,
		Delegable:     a.Terms.Delegable,
		FiledAt:       a.FiledAt,
		ExpiresAt:     a.ExpiresAt,
		DecidedAt:     a.DecidedAt,
		Said:          []VoteView{},
	}
	for _, vote := range a.Votes {
		v.Said = append(v.Said, VoteView{vote.By, vote.Kind, vote.Reason, vote.To, vote.ValidUntil, vote.At})
		if vote.Kind == approval.Approve {
			v.Approvals++
		}
	}
	return v
}
