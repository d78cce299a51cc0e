package evaluation

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// ApprovalView is an approval request as the server shows it to its approvers and to its caller. The server writes it, and
// clients and webhook receivers read it. Readers ignore members that they do not know: the server may be a later version.
type ApprovalView struct {
	ID       string `json:"id"`
	Status   string `json:"status"`
	Version  int    `json:"version"`
	Tenant   string `json:"tenant"`
	Template string `json:"template"`
	Message  string `json:"message,omitempty"`
	// Request is the masked request, and Decision the id of its record. Request is nil after a redaction.
	Request jsontext.Value `json:"request,omitzero"`
	// Unbound names the parts of the request that may differ when the approval is used.
	Unbound  []string `json:"unbound,omitempty"`
	Decision string   `json:"decision"`
	// Justification came with the request, and is no part of what is approved. Asked is the form of the approval request,
	// "" for the native one.
	Justification jsontext.Value `json:"justification,omitzero"`
	Asked         string         `json:"asked,omitzero"`
	Requester     string         `json:"requester"`
	// Person is for whom it was asked, as Request.Person has it. The program that asked alone sees it.
	Person string `json:"person,omitzero"`
	// Quorum is how many people must approve. Approvals is how many do by votes that count now; once it is decided, by those
	// that counted then.
	Quorum    int `json:"quorum"`
	Approvals int `json:"approvals"`
	Uses      int `json:"uses"`
	Used      int `json:"used"`
	// Rounds is how many follow-up questions belong to each use. RoundsWithin is the time that they have, as policies write
	// it, such as 10m; "" if there are none. Continued counts the rounds that followed on uses.
	Rounds       int    `json:"rounds"`
	RoundsWithin string `json:"rounds_within,omitzero"`
	Continued    int    `json:"continued,omitzero"`
	// InFlight are the uses of which it is not known yet if they are on record, where several replicas share approvals.
	InFlight  []InFlight `json:"in_flight,omitzero"`
	Delegable bool       `json:"delegable"`
	FiledAt   time.Time  `json:"filed_at"`
	ExpiresAt time.Time  `json:"expires_at,omitzero"`
	DecidedAt time.Time  `json:"decided_at,omitzero"`
	// RedactedAt is the time of the redaction; zero if there was none.
	RedactedAt time.Time      `json:"redacted_at,omitzero"`
	Said       []ApprovalVote `json:"said"`
	// Link leads approvers to the server's console; "" if there is none.
	Link string `json:"link,omitempty"`
}

// InFlight is a use that a decision of a replica is to have, and may have: only the log of its origin says that.
type InFlight struct {
	Decision string    `json:"decision"`
	Origin   string    `json:"origin"`
	Since    time.Time `json:"since"`
}

// Redacted reports whether the words of the approval request were removed.
func (v *ApprovalView) Redacted() bool { return !v.RedactedAt.IsZero() }

// Pending reports whether people have yet to decide.
func (v *ApprovalView) Pending() bool { return v.Status == "pending" }

// ApprovalVote is a vote, or another ruling, in an [ApprovalView].
type ApprovalVote struct {
	By       string `json:"by"`
	Decision string `json:"decision"`
	Reason   string `json:"reason,omitempty"`
	To       string `json:"to,omitempty"`
	// Via is the way by which the vote came, and Gateway the caller that relayed it.
	Via        Via       `json:"via"`
	Gateway    string    `json:"gateway,omitempty"`
	ValidUntil time.Time `json:"valid_until,omitzero"`
	At         time.Time `json:"at"`
}

// ApprovalWhy is the reason why people are asked, and what the caller may do.
type ApprovalWhy struct {
	// Obligation demands the approval. At is its place, file:line:column, "" if it is not known.
	Obligation struct {
		Name string `json:"name"`
		At   string `json:"at,omitempty"`
	} `json:"obligation"`
	// Policies determined the decision that waits. They are nil if the caller may not know them, or if the record of the
	// decision is gone or cannot be read.
	Policies []PolicyPlace `json:"policies,omitzero"`
	Decision string        `json:"decision"`
	// ValidFor is how long an approval counts after its last vote, as policies write it, such as 10m.
	ValidFor string `json:"valid_for"`
	// Alike are texts in the request that look like a known id. It is empty if the caller may not know such ids.
	Alike []AlikeText  `json:"alike"`
	You   ApprovalActs `json:"you"`
}

// PolicyPlace is a policy by its id. At is its place, as that of an obligation.
type PolicyPlace struct {
	ID string `json:"id"`
	At string `json:"at,omitempty"`
}

// AlikeText is a text in a request that looks like a known id and is another. Pointer is its place in the request that
// people are shown.
type AlikeText struct {
	Pointer string `json:"pointer"`
	Known   string `json:"known"`
}

// ApprovalActs are the acts of approve, deny, delegate, revoke and cancel that a caller may do now, and those that it may
// not.
type ApprovalActs struct {
	May []string     `json:"may"`
	Not []ActRefused `json:"not"`
}

// ActRefused is an act that a caller may not do now, and the reason.
type ActRefused struct {
	Decision string `json:"decision"`
	Detail   string `json:"detail"`
}

// Deciders are people who may decide about an approval request and have not voted, as policies name them, in order. The
// caller is not among them. More says that there may be others.
type Deciders struct {
	Items []string `json:"items"`
	More  bool     `json:"more"`
}
