package server

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp/approval"
	"policy-service/pdp/approval/broker"
)

// approvalView is an approval request as approvers, and who asked, are shown it.
type approvalView struct {
	ID       string          `json:"id"`
	Status   approval.Status `json:"status"`
	Version  int             `json:"version"`
	Tenant   string          `json:"tenant"`
	Template string          `json:"template"`
	Message  string          `json:"message,omitempty"`
	// Request is what is asked, masked; Decision is the id of the record of it.
	Request jsontext.Value `json:"request"`
	// Unbound is what of it may be otherwise when it is done.
	Unbound  []string `json:"unbound,omitempty"`
	Decision string   `json:"decision"`
	// Justification is what was said for it, and no part of what is approved; Via how it
	// was asked for, where that is not the native form.
	Justification jsontext.Value `json:"justification,omitzero"`
	Via           string         `json:"via,omitzero"`
	Requester     string         `json:"requester"`
	Quorum        int            `json:"quorum"`
	Approvals     int            `json:"approvals"`
	Uses          int            `json:"uses"`
	Used          int            `json:"used"`
	Delegable     bool           `json:"delegable"`
	FiledAt       time.Time      `json:"filed_at"`
	ExpiresAt     time.Time      `json:"expires_at,omitzero"`
	DecidedAt     time.Time      `json:"decided_at,omitzero"`
	Said          []voteView     `json:"said"`
}

type voteView struct {
	By         string            `json:"by"`
	Decision   approval.VoteKind `json:"decision"`
	Reason     string            `json:"reason,omitempty"`
	To         string            `json:"to,omitempty"`
	ValidUntil time.Time         `json:"valid_until,omitzero"`
	At         time.Time         `json:"at"`
}

func viewOf(a approval.Approval) approvalView {
	v := approvalView{
		ID: a.ID, Status: a.Status, Version: a.Version, Tenant: a.Tenant, Template: a.Terms.Template, Message: a.Terms.Message,
		Request: a.Shown, Unbound: broker.Unbound(a), Justification: a.Said, Via: a.Via, Decision: a.Decision, Requester: a.Caller, Quorum: a.Terms.Quorum, Uses: a.Terms.Uses, Used: len(a.Used) + len(a.Reserved),
		Delegable: a.Terms.Delegable, FiledAt: a.FiledAt, ExpiresAt: a.ExpiresAt, DecidedAt: a.DecidedAt, Said: []voteView{},
	}
	for _, vote := range a.Votes {
		v.Said = append(v.Said, voteView{vote.By, vote.Kind, vote.Reason, vote.To, vote.ValidUntil, vote.At})
		if vote.Kind == approval.Approve {
			v.Approvals++
		}
	}
	return v
}
