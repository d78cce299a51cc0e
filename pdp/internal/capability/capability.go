// Package capability keeps the capabilities that were granted in a file of its own, so that they outlive the process that
// granted them, and remembers which proofs were seen.
//
// A capability goes through these states, and no others:
//
//	asked ─► active, or released if the decision that was to grant it is not on record
//	active ◄─► suspended
//	any of them ─► revoked | returned | expired | used_up | renewed
//
// [Open] opens the file, and [Store.Run] expires capabilities. [Store.Grant] grants one, [Store.Live] finds one that can be
// used, and [Store.Reserve] takes a use of one whose uses are counted. [Seen] takes each proof once.
//
// The rule when a change counts, the file, and the comparison with the log are those of package ledger. This package knows
// neither policies nor HTTP, and it signs nothing: of a token it has the claims, and never the text.
package capability

import (
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
	"policy-service/pdp/internal/ledger"
)

// State is how far a capability has come.
type State string

// The states of a capability.
const (
	Asked     State = "asked"     // the decision that is to grant it may be on record or not: it cannot be used
	Active    State = "active"    // it can be used
	Suspended State = "suspended" // policies would not grant it now
	Revoked   State = "revoked"
	Returned  State = "returned" // the holder gave it back
	Expired   State = "expired"
	UsedUp    State = "used_up"
	Renewed   State = "renewed"  // the log says that it was renewed, and the file does not have the token that is in force
	Released  State = "released" // it was never granted
)

// States are all states there are.
func States() []State {
	return []State{Asked, Active, Suspended, Revoked, Returned, Expired, UsedUp, Renewed, Released}
}

// Final reports whether nothing comes after a state.
func (s State) Final() bool { return s != Asked && s != Active && s != Suspended }

// New is a capability as it is to be granted, or as it is to be from its renewal on.
type New struct {
	Tenant string
	// Caller is the credential that asked for it, and Person is for whom it asked, "" for no person. One that is handed on, or
	// renewed, stays that of its person.
	Caller, Person string
	// Token has an id of [Store.NewID], or that of the capability to be renewed.
	Token capability.Token
	// Grant has the questions that were decided, so that they can be asked again: JSON, of which the store knows no more.
	Grant jsontext.Value
	// Approval is the id of the approval that it was granted by, or "". Ask is the digest of what was asked. With both
	// [Store.Granted] finds it.
	Approval, Ask string
	// Bundle is the digest of the policies that decided.
	Bundle string
}

// Words are the part of a capability that changes only when it is renewed.
type Words struct {
	Claims   jsontext.Value `json:"claims,omitzero"` // of the token
	Grant    jsontext.Value `json:"grant,omitzero"`  // this and the rest as New has them
	Approval string         `json:"approval,omitzero"`
	Ask      string         `json:"ask,omitzero"`
}

// renewal is what a capability is to be once the decision that renews it is on record.
type renewal struct {
	Words  `json:",inline"`
	Bundle string `json:"bundle"`
}

// Reserved is a use of a capability that a decision is to have. Only the log of its origin says whether it has it.
type Reserved struct {
	Decision string `json:"decision"`
	// Origin and Since, when it was reserved, are there if origins have names.
	Origin string    `json:"origin,omitzero"`
	Since  time.Time `json:"since,omitzero"`
	// By is the capability that the decision uses, if that was made from this one.
	By string `json:"by,omitzero"`
}

// Capability is one capability, with its state. It is a copy: changing it changes nothing.
type Capability struct {
	ID       string         `json:"id"`
	Tenant   string         `json:"tenant"`
	Caller   string         `json:"caller"`
	Person   string         `json:"person,omitzero"`
	Holder   evaluation.Ref `json:"holder"`
	JKT      string         `json:"jkt"` // the thumbprint of the holder's key
	Audience string         `json:"audience"`
	Begins   time.Time      `json:"begins,omitzero"`
	Expires  time.Time      `json:"expires"`
	// MaxUses is how often it can be used, 0 for any number, which is not counted.
	MaxUses int `json:"max_uses,omitzero"`
	// Ancestors are the capabilities that it was made from, the parent first, and Grantor is the holder of the parent, who
	// handed it on. MaxDepth is how many ancestors what is made from it may have.
	Ancestors []string       `json:"ancestors,omitzero"`
	Grantor   evaluation.Ref `json:"grantor,omitzero"`
	MaxDepth  int            `json:"max_depth,omitzero"`
	// Offline says that gateways may verify it that do not ask the service.
	Offline bool `json:"offline,omitzero"`
	// Listed is when the last of the tokens ends that it ever had with a place in a status list. Until then the list has to
	// say what became of it.
	Listed time.Time `json:"listed,omitzero"`
	// Digest is of the claims.
	Digest string `json:"digest"`
	// Bundle is the digest of the policies that granted, renewed, suspended or resumed it last.
	Bundle string `json:"bundle"`

	Version int   `json:"version"` // of each change one more, from 1
	State   State `json:"state"`
	Used    int   `json:"used,omitzero"`
	// Recent are the last decisions that used it.
	Recent []string `json:"recent,omitzero"`
	// Reserved are decisions that are to use it, and may be on record or not. Granting is the one of them that is to grant
	// or to renew it.
	Reserved []Reserved `json:"reserved,omitzero"`
	Granting string     `json:"granting,omitzero"`
	// Decision granted it, or renewed it last, and Granted is the id of the record that says so, in the log of GrantedIn if
	// that has a name.
	Decision  string    `json:"decision,omitzero"`
	Granted   string    `json:"granted,omitzero"`
	GrantedIn string    `json:"granted_in,omitzero"`
	Renewals  int       `json:"renewals,omitzero"`
	EndedAt   time.Time `json:"ended_at,omitzero"` // when its state became final
	// After is how long the log was when this was written, and Origin its name. Later steps of it stand there or later.
	After  uint64 `json:"after,omitzero"`
	Origin string `json:"origin,omitzero"`
	// Written says which steps in the log of an origin it has.
	Written ledger.Written `json:"written,omitzero"`

	Words `json:",inline"`
	// Token is made of the claims.
	Token capability.Token `json:"-"`
	next  *renewal
	above []Capability // the ancestors, where it can be used

	// Revision is of what was read, 0 of a new one.
	Revision uint64 `json:"-"`
	// Unrecorded says that a step of it is not on record yet. Until then it counts for nothing, whatever its state.
	Unrecorded bool `json:"-"`
}

// OwnerOf returns the one by whom limits count: a person, or a holder that has no person. No holder is without a type.
func OwnerOf(person string, holder evaluation.Ref) evaluation.Ref {
	if person != "" {
		return evaluation.Ref{ID: person}
	}
	return holder
}

// grantor returns the holder that a capability counts for: the one that handed it on, or else its own. Otherwise others could use up
// what a holder may have.
func (c *Capability) grantor() evaluation.Ref {
	if len(c.Ancestors) > 0 {
		return c.Grantor
	}
	return c.Holder
}

// Owner returns the one by whom limits count.
func (c *Capability) Owner() evaluation.Ref { return OwnerOf(c.Person, c.grantor()) }

// mostRecent is how many of the last decisions are kept. A change settles fewer, so no step of the last change is of one
// that is not among them.
const mostRecent = 32

// open reports whether a capability can change.
func (c *Capability) open() bool { return c.ID != "" && !c.State.Final() }

// at is a capability as of a moment. If its time is up, it is expired, at the very instant already.
func (c Capability) at(now time.Time) Capability {
	if c.open() && !now.Before(c.Expires) {
		c.end(Expired, c.Expires)
	}
	return c
}

func (c *Capability) end(as State, now time.Time) { c.State, c.EndedAt = as, now }

// following is a copy that shares nothing that is appended to, one version on.
func (c Capability) following() Capability {
	c.Version++
	c.Recent, c.Reserved = slices.Clone(c.Recent), slices.Clone(c.Reserved)
	return c
}

// use notes a decision that used it.
func (c *Capability) use(decision string) {
	c.Used++
	c.Recent = append(c.Recent, decision)
	c.Recent = c.Recent[max(0, len(c.Recent)-mostRecent):]
}

// release takes a reservation away.
func (c *Capability) release(decision string) {
	c.Reserved = slices.DeleteFunc(c.Reserved, func(r Reserved) bool { return r.Decision == decision })
	if c.Granting == decision {
		c.Granting = ""
	}
}

// InFlight are the decisions of origins with names that are to use, grant or renew it, and may be on record or not.
func (c *Capability) InFlight() (all []evaluation.InFlight) {
	for _, r := range c.Reserved {
		if r.Origin != "" {
			all = append(all, evaluation.InFlight{Decision: r.Decision, Origin: r.Origin, Since: r.Since})
		}
	}
	return all
}

// MayHaveUses reports whether a renewal may have so many uses, those included that were used: no more than before, and one at
// least that is left.
func (c *Capability) MayHaveUses(most int) bool {
	return c.MaxUses == 0 || most > c.MaxUses-c.Left() && most <= c.MaxUses
}

func (c *Capability) reserves(decision string) bool {
	return slices.ContainsFunc(c.Reserved, func(r Reserved) bool { return r.Decision == decision })
}

// Left is how many uses there are of a counted one. A use that is in doubt is not left.
func (c *Capability) Left() int {
	taken := c.Used + len(c.Reserved)
	if c.Granting != "" {
		taken--
	}
	return c.MaxUses - taken
}

// refusals has the code for each state in which a capability cannot be used. One that was never granted is as an id
// that does not exist.
var refusals = map[State]capability.Code{
	Asked: capability.BadSignature, Released: capability.BadSignature, Suspended: capability.Suspended,
	Revoked: capability.Revoked, Returned: capability.Revoked, Renewed: capability.Expired,
	Expired: capability.Expired, UsedUp: capability.UsedUp,
}

// refusal says why a capability cannot be used now, nil if it can.
func (c Capability) refusal(now time.Time) error {
	code, refused := refusals[c.at(now).State]
	if !refused && c.MaxUses > 0 && c.Left() <= 0 {
		code, refused = capability.UsedUp, true
	}
	if refused {
		return &capability.Refusal{Code: code}
	}
	return nil
}

// Settled implements [ledger.Item].
func (c Capability) Settled(reservation string) bool {
	decision := decisionOf(reservation)
	return c.Decision == decision || slices.Contains(c.Recent, decision)
}

// Standing implements [ledger.Item].
func (c Capability) Standing() ledger.Standing {
	is := ledger.Standing{
		ID: c.ID, Tenant: c.Tenant, Caller: c.Caller, Open: c.open(), Ends: c.EndedAt,
		After: c.After, Origin: c.Origin, Revision: c.Revision,
	}
	switch {
	case is.Open:
		is.Ends = c.Expires
	case c.Listed.After(is.Ends): // or it would be forgotten, and be valid where it is listed
		is.Ends = c.Listed
	}
	for _, r := range c.Reserved {
		is.Reserved = append(is.Reserved, ledger.Reserved{Decision: c.reservation(r), Origin: r.Origin})
	}
	if is.Open && c.GrantedIn != "" {
		is.By = map[string]string{c.Granted: c.GrantedIn}
	}
	return is
}
