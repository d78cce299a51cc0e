package broker

import (
	"net/url"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
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
	// Request is the masked request, and Decision the id of its record. It is nil once it was redacted.
	Request jsontext.Value `json:"request,omitzero"`
	// Unbound names the parts of the request that may differ when it is done.
	Unbound  []string `json:"unbound,omitempty"`
	Decision string   `json:"decision"`
	// Justification was given with the request and is no part of what is approved. Asked is the form in which it was
	// asked for, "" for the native one.
	Justification jsontext.Value `json:"justification,omitzero"`
	Asked         string         `json:"asked,omitzero"`
	Requester     string         `json:"requester"`
	Quorum        int            `json:"quorum"`
	Approvals     int            `json:"approvals"`
	Uses          int            `json:"uses"`
	Used          int            `json:"used"`
	// Rounds is how many follow-up questions belong to each use, and RoundsWithin how long after it they may come, as policies
	// write it: 10m; "" if there are none. Continued is how many rounds went on from its uses.
	Rounds       int       `json:"rounds"`
	RoundsWithin string    `json:"rounds_within,omitzero"`
	Continued    int       `json:"continued,omitzero"`
	Delegable    bool      `json:"delegable"`
	FiledAt      time.Time `json:"filed_at"`
	ExpiresAt    time.Time `json:"expires_at,omitzero"`
	DecidedAt    time.Time `json:"decided_at,omitzero"`
	// RedactedAt is when the words were removed for good.
	RedactedAt time.Time  `json:"redacted_at,omitzero"`
	Said       []VoteView `json:"said"`
	// Link is where people decide, for those who may; "" if there is no console.
	Link string `json:"link,omitempty"`
}

// VoteView is a vote in a [View].
type VoteView struct {
	By       string            `json:"by"`
	Decision approval.VoteKind `json:"decision"`
	Reason   string            `json:"reason,omitempty"`
	To       string            `json:"to,omitempty"`
	// Via is the way by which the vote came, and Gateway the caller that relayed it.
	Via        evaluation.Via `json:"via"`
	Gateway    string         `json:"gateway,omitempty"`
	ValidUntil time.Time      `json:"valid_until,omitzero"`
	At         time.Time      `json:"at"`
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
		Said:          []VoteView{},
	}
	if v.Rounds > 0 {
		v.RoundsWithin = span(a.Terms.RoundsWithin)
	}
	for _, vote := range a.Votes {
		way := vote.Way()
		v.Said = append(v.Said, VoteView{
			By:         vote.By,
			Decision:   vote.Kind,
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

// ViewOf is the view of an approval for the caller, who sees it. Only people are shown where people decide: a program
// could have somebody else follow the link.
func (s *Seen) ViewOf(a approval.Approval) View {
	if s.decides || s.voted {
		return s.by.linked(a)
	}
	return ViewOf(a)
}

// linked is the view of an approval for people who may decide about it.
func (b *Broker) linked(a approval.Approval) View {
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
