// Package approval keeps approval requests and the votes on them in a file of its own,
// so that they outlive the process that filed them.
//
// An approval request goes through these states, and no others:
//
//	pending ─► approved | denied | expired | cancelled
//	approved ─► used_up | revoked | expired
//	approved ─► pending, if too few of the votes still count
//
// [Open] opens the file, and [Store.Run] expires approvals. The caller hands a recorder
// to Open: each step is recorded before it counts, because a step without a record is no
// reason to allow anything.
//
// The rule when a change counts, the file, and the comparison with the log are those of package
// ledger. This package knows neither policies nor HTTP. The caller says which persons may decide,
// and gives the digest that an approval is bound to.
package approval

import (
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/obligations"
	"policy-service/pdp/internal/ledger"
)

// Status is how far an approval request has come.
type Status string

// The states of an approval request.
const (
	Pending   Status = "pending"
	Approved  Status = "approved"
	Denied    Status = "denied"
	Expired   Status = "expired"
	Cancelled Status = "cancelled"
	UsedUp    Status = "used_up"
	Revoked   Status = "revoked"
)

// Statuses are all states there are.
func Statuses() []Status {
	return []Status{Pending, Approved, Denied, Expired, Cancelled, UsedUp, Revoked}
}

// Final reports whether nothing comes after a state.
func (s Status) Final() bool { return s != Pending && s != Approved }

// ApprovalRequest is a request for approval as it is filed: the question, the caller, and the terms.
type ApprovalRequest struct {
	// Digest binds the approval. Two requests with the same digest are one.
	Digest [32]byte `json:"digest"`
	Tenant string   `json:"tenant"`
	// Caller is the PEP that asks, and the only one that may go by the answer.
	Caller string `json:"caller"`
	// Principal is whom the caller was authenticated as, as policies name it.
	Principal evaluation.Ref `json:"principal,omitzero"`
	// Decision is the id of the record of the decision that waits.
	Decision string `json:"decision"`
	// Bundle is the digest of the policies that asked.
	Bundle string `json:"bundle"`
	// Obligation is the name of the obligation, and Terms its properties.
	Obligation string            `json:"obligation"`
	Terms      obligations.Terms `json:"terms"`
	// OfTenant says that only policies and obligations of the tenant demand it. False means
	// that the root does.
	OfTenant bool `json:"of_tenant,omitzero"`

	Subject  evaluation.Ref `json:"subject"`
	Resource evaluation.Ref `json:"resource"`
	Action   string         `json:"action"`
	// Actors are those for whom the subject acts, and the agent and the requester.
	Actors evaluation.Actors `json:"actors,omitzero"`
	// Shown is the request as records have it: in the AuthZEN form, masked.
	Shown jsontext.Value `json:"shown,omitzero"`
	// Drawn is the same with facts about each masked value, such as its length; nil if nothing is masked. No record
	// has it.
	Drawn jsontext.Value `json:"drawn,omitzero"`
	// Members are the members of the context that were part of the request.
	Members []string `json:"members,omitzero"`
	// Said is the justification of the caller, masked as records have it: an object, and no part of what is
	// approved. Asked is the form in which it was asked for, "" for the native one.
	Said  jsontext.Value `json:"said,omitzero"`
	Asked string         `json:"via,omitzero"`
	// Person is for whom it was asked, as evaluation.Request.Person has it: several are in one text.
	Person string `json:"person,omitzero"`
}

// ForPeople is the request as approvers are shown it.
func (q *ApprovalRequest) ForPeople() jsontext.Value {
	if q.Drawn != nil {
		return q.Drawn
	}
	return q.Shown
}

// Approval is one approval request, with its state. It is a copy: changing
// it changes nothing.
type Approval struct {
	ApprovalRequest `json:",inline"`
	ID              string    `json:"id"`
	Version         int       `json:"version"` // of each change one more, from 1
	Status          Status    `json:"status"`
	FiledAt         time.Time `json:"filed_at"`
	// ExpiresAt is when the state ends by itself: of a pending one its timeout, of an
	// approved one the end of its validity. Zero in a final state.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	// DecidedAt is when it ceased to be pending, EndedAt when its state became final.
	DecidedAt time.Time `json:"decided_at,omitzero"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	Votes     []Vote    `json:"votes,omitzero"`
	// Used are the decisions that used it.
	Used []string `json:"used,omitzero"`
	// Reserved are decisions that are to use it, and may be on record or not.
	Reserved []string `json:"reserved,omitzero"`
	// Spendings are the uses from which decisions may go on, and Continued is how many rounds did.
	Spendings []Spending `json:"spendings,omitzero"`
	Continued int        `json:"continued,omitzero"`
	// RedactedAt is when the words were removed for good; see [Store.Redact].
	RedactedAt time.Time `json:"redacted_at,omitzero"`
	// Agreed is the id of the record that says that enough people approved.
	Agreed string `json:"agreed,omitzero"`
	// After is how long the log was when this was written, and Origin its name. Later steps of it stand
	// there or later.
	After  uint64 `json:"after,omitzero"`
	Origin string `json:"origin,omitzero"`
	// Written says which steps in the log of an origin it has.
	Written ledger.Written `json:"written,omitzero"`
	// Origins are those of reserved decisions, and of the records that it counts by, if they have names.
	Origins map[string]string `json:"origins,omitzero"`
	// Since is when decisions of such origins were reserved.
	Since map[string]time.Time `json:"since,omitzero"`
	// Revision is of what was read, 0 of a new one.
	Revision uint64 `json:"-"`
	// Unrecorded says that a step of it is not on record yet. Until then it counts for
	// nothing, whatever its state, and the state is not shown.
	Unrecorded bool `json:"-"`
}

// WhyDenied is the reason that a person gave for denying it, "" for none.
func (a *Approval) WhyDenied() string {
	if a.Status != Denied {
		return ""
	}
	return a.Votes[len(a.Votes)-1].Reason
}

// Statement is the word of a person about an approval, and the way by which it came.
type Statement struct {
	// By is the person, in Cedar's words: User::"mia". It is empty in steps that the service takes by itself.
	By     string `json:"by,omitzero"`
	Reason string `json:"reason,omitzero"`
	// To is the person named in the place of By, if By delegates. From is the person that named By in their place, if that
	// is why By may speak.
	To   string `json:"to,omitzero"`
	From string `json:"from,omitzero"`
	// Via is the way by which it came, Gateway the caller that relayed it, and Client the client of the person that
	// answered. Without Via it came by the API; see [Statement.Way].
	Via     evaluation.Via `json:"via,omitzero"`
	Gateway string         `json:"gateway,omitzero"`
	Client  evaluation.Ref `json:"client,omitzero"`
	// ValidUntil is the end of validity that By asked for; zero is none.
	ValidUntil time.Time `json:"valid_until,omitzero"`
}

// Vote is a statement that counts for or against an approval.
type Vote struct {
	Statement `json:",inline"`
	Caller    string    `json:"caller"` // the credential
	Kind      VoteKind  `json:"kind"`
	At        time.Time `json:"at"`
	// Step is the id of the record of it.
	Step string `json:"step,omitzero"`
}

// Way is how the statement came.
func (v Statement) Way() evaluation.Way {
	if v.Via == "" {
		return evaluation.Way{Via: evaluation.ViaAPI}
	}
	return evaluation.Way{Via: v.Via, Gateway: v.Gateway, Client: v.Client}
}

// by reports whether one of some votes is of the same name.
func (v Vote) by(votes []Vote) bool {
	return slices.ContainsFunc(votes, func(one Vote) bool { return one.By == v.By })
}

// isOfOne reports whether the person of a vote is one of those of other votes. A credential has one
// holder, whatever names it has had; same reports whether two names are of one person.
func (v Vote) isOfOne(others []Vote, same func(a, b string) bool) bool {
	return slices.ContainsFunc(others, func(other Vote) bool {
		return v.Caller != "" && v.Caller == other.Caller || same(other.By, v.By)
	})
}

// Passed reports whether a vote approves until a moment that has passed: whoever gave it may vote again.
func (v Vote) Passed(now time.Time) bool {
	return v.Kind == Approve && !v.ValidUntil.IsZero() && !now.Before(v.ValidUntil)
}

// names reports whether a vote names the person of another vote, if that is why this one may speak.
func (v Vote) names(other Vote) bool {
	return v.Kind == Delegate && v.By == other.From && v.To == other.By
}

// VoteKind is approve, deny or delegate.
type VoteKind string

// The kinds of votes.
const (
	Approve  VoteKind = "approve"
	Deny     VoteKind = "deny"
	Delegate VoteKind = "delegate"
)

// open reports whether an approval waits, or can be used.
func (a *Approval) open() bool { return !a.Status.Final() }

// at is an approval as of a moment. If its time is up, it is expired, at the very instant
// already.
func (a Approval) at(now time.Time) Approval {
	if !a.open() || now.Before(a.ExpiresAt) {
		return a
	}
	a.end(Expired, a.ExpiresAt)
	return a
}

// left is how many uses there are. A use that is in doubt is not left.
func (a *Approval) left() int { return a.Terms.Uses - len(a.Used) - len(a.Reserved) }

// usable reports whether an approval can be used now by a request with this digest.
func (a *Approval) usable(now time.Time, digest [32]byte) bool {
	return a.Status == Approved && now.Before(a.ExpiresAt) && a.Digest == digest && a.left() > 0
}

// next is a copy that shares nothing that is appended to, one version on.
func (a Approval) next() Approval {
	a.Version++
	a.Origins, a.Since = maps.Clone(a.Origins), maps.Clone(a.Since)
	a.Votes, a.Used, a.Reserved = slices.Clone(a.Votes), slices.Clone(a.Used), slices.Clone(a.Reserved)
	a.Spendings = slices.Clone(a.Spendings)
	for n := range a.Spendings {
		a.Spendings[n].Rounds = slices.Clone(a.Spendings[n].Rounds)
	}
	return a
}

// has reports whether a decision used an approval or went on from a use, or is to.
func (a *Approval) has(decision string) bool {
	return a.Settled(decision) || slices.Contains(a.reserved(), decision)
}

// countsBy are the records for which a log must vouch before a decision uses the approval, or goes on from a use of it.
func (a *Approval) countsBy() (records []string) {
	if !a.open() && a.continuesUntil().IsZero() {
		return nil
	}
	if a.Agreed != "" {
		records = append(records, a.Agreed)
	}
	for _, v := range a.Votes {
		if v.Step != "" {
			records = append(records, v.Step)
		}
	}
	for _, s := range a.Spendings {
		if slices.Contains(a.Used, s.Decision) {
			records = append(records, s.Decision)
		}
	}
	return records
}

// namedOrigins are the origins that are still to be known.
func (a *Approval) namedOrigins() (origins map[string]string) {
	if len(a.Origins) == 0 {
		return nil
	}
	origins = map[string]string{}
	for _, record := range append(a.reserved(), a.countsBy()...) {
		if origin := a.Origins[record]; origin != "" {
			origins[record] = origin
		}
	}
	return origins
}

// words are the part of an approval request that people are shown. They may be long, and never change: so they stand
// apart from the state.
type words struct {
	Actors  evaluation.Actors `json:"actors,omitzero"`
	Shown   jsontext.Value    `json:"shown,omitzero"`
	Drawn   jsontext.Value    `json:"drawn,omitzero"`
	Members []string          `json:"members,omitzero"`
	Said    jsontext.Value    `json:"said,omitzero"`
}

// cut takes the words away.
func (q *ApprovalRequest) cut() (w words) {
	w = words{q.Actors, q.Shown, q.Drawn, q.Members, q.Said}
	q.add(words{})
	return w
}

func (q *ApprovalRequest) add(w words) {
	q.Actors, q.Shown, q.Drawn, q.Members, q.Said = w.Actors, w.Shown, w.Drawn, w.Members, w.Said
}

// reserved are the decisions that are to use an approval, or to go on from a use.
func (a *Approval) reserved() []string {
	all := slices.Clone(a.Reserved)
	for _, s := range a.Spendings {
		if s.Reserved != "" {
			all = append(all, s.Reserved)
		}
	}
	return all
}

// InFlight are the decisions of origins with names that are to use an approval, or to go on from a use, and may be on record or not.
func (a *Approval) InFlight() (all []evaluation.InFlight) {
	for _, d := range a.reserved() {
		if origin := a.Origins[d]; origin != "" {
			all = append(all, evaluation.InFlight{Decision: d, Origin: origin, Since: a.Since[d]})
		}
	}
	return all
}

// end makes the state a final one. After a use, and after the time was up, decisions may go on from the uses.
func (a *Approval) end(as Status, now time.Time) {
	if as != UsedUp && as != Expired {
		a.close(every)
	}
	if a.Status == Pending {
		a.DecidedAt = now
	}
	a.Status, a.EndedAt, a.ExpiresAt = as, now, time.Time{}
}
