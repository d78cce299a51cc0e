package evaluation

import "time"

// Decision is the answer to a [Request]. The zero Decision is a deny.
type Decision struct {
	// ID names the decision's record. It never enters a body.
	ID string
	// Allow is the answer.
	Allow bool
	// Possible is the answer to a request with [Request.Unknown]. Allow is false then.
	Possible Possibility
	// Reason is set where the service, not a policy, has something to say.
	Reason Reason
	// ReasonUser is the @reason_user text of the first determining policy.
	ReasonUser string
	// Determining holds the ids of the policies that made the answer, sorted:
	// every satisfied permit of an allow, every satisfied forbid of a deny.
	Determining []string
	// Overruled holds, if Reason made a deny of an allow, the ids of the policies that
	// would have determined the allow, sorted.
	Overruled []string
	// Errors holds the considered policies that could not be evaluated, sorted.
	Errors []PolicyError
	// Obligations are the acts that the PEP must do besides.
	Obligations []Obligation
	// Required are the types of obligations that an allow would have come with,
	// had the PEP declared them. October's draft does not send them.
	Required []string
	// Draft is the draft by which the request was read, July or October. If it is October, Adopted reports whether the PEP
	// adopted it.
	Draft   Draft
	Adopted bool
	// LeftOut are obligations that a determining policy names and that could not
	// be met, or by October's draft not be sent.
	LeftOut []LeftOut
	// Met are obligations of an allow that an approval has met: they are not owed.
	Met []Met
	// Approval is the result of asking for the approval that is owed, where it was
	// asked for.
	Approval *Approval
	// Access has the members of the profile for access requests, for a caller that
	// speaks it.
	Access *Access
	// Capability says more about the capability that the request showed, or that it lacks.
	Capability *CapabilityAnswer
	// Refused says, where an approval is owed, why people cannot be asked for it. Allow is false then.
	Refused *Mismatch
	// Mismatch says what of the request has no form that the policies could be asked
	// with, by the places in the body that was sent: why it could not be put to them, or
	// what of it counts as an error where they read it.
	Mismatch []Mismatch
	// Pointer is where in the request a value is that the policies could not read, for a caller that asks for others and
	// tells them; see [Decision.PointOut].
	Pointer string
	// Bundle is the digest of the policies that decided.
	Bundle string
	// Malformed is set on an item of a batch that was no request, and is a deny.
	Malformed *Error
	// Explain says how the answer came about, where that was asked for.
	Explain *Explanation
}

// Possibility is the answer to a question with unknown places: see [Unknown]. It permits nothing.
type Possibility uint8

// The possibilities.
const (
	// Decided: the question had no unknown places.
	Decided Possibility = iota
	// Impossible: no values are permitted.
	Impossible
	// Possible: some values may be permitted.
	Possible
)

// PossibilityOf is the answer to such a question.
func PossibilityOf(possible bool) Possibility {
	if possible {
		return Possible
	}
	return Impossible
}

// Bool is whether it is possible, nil if the question had no unknown places.
func (p Possibility) Bool() *bool {
	if p == Decided {
		return nil
	}
	return new(p == Possible)
}

// Deny turns an allow into a deny for a reason: nothing that came with the allow
// comes with it. It is Overruled then.
func (d *Decision) Deny(reason Reason) {
	if d.Allow {
		d.Overruled = d.Determining
	}
	d.Allow, d.Reason, d.ReasonUser, d.Determining, d.Obligations, d.Met = false, reason, "", nil, nil, nil
}

// Reason is the reason of an answer, where no policy alone has it.
type Reason string

// The reasons a decision can carry.
const (
	UnknownType    Reason = "unknown_type"
	SchemaMismatch Reason = "schema_mismatch"
	UnknownEntity  Reason = "unknown_entity"
	ErroredPolicy  Reason = "policy_error"

	ObligationConflict    Reason = "obligation_conflict"
	ObligationUnfilled    Reason = "obligation_unfilled"
	ObligationUnsupported Reason = "obligation_unsupported"
	ApprovalRequired      Reason = "approval_required"

	CapabilityInvalid  Reason = "capability_invalid"
	CapabilityRequired Reason = "capability_required"

	OwnRequest Reason = "own_request"
)

// PolicyError says that a policy could not be evaluated. It holds no text of
// the evaluator's, because such texts quote values.
type PolicyError struct {
	Policy   string    `json:"policy"`
	Position string    `json:"position"`
	Kind     ErrorKind `json:"kind"`
}

// ErrorKind classifies why a policy could not be evaluated.
type ErrorKind string

// The kinds of a [PolicyError].
const (
	MissingAttribute ErrorKind = "missing_attribute"
	WrongType        ErrorKind = "type"
	Overflow         ErrorKind = "overflow"
	ParseFailure     ErrorKind = "parse"
	UnusableValue    ErrorKind = "unusable"
	OtherError       ErrorKind = "other"
)

// Obligation is something the PEP must do besides enforcing the answer.
type Obligation struct {
	ID         string   `json:"id"`
	Type       string   `json:"type"`
	Properties Object   `json:"properties"`
	Policies   []string `json:"policies"`
	// Written is the size of what the bundle has in the place of Properties: what they
	// are longer by is the request's.
	Written int `json:"-"`
}

// LeftOut is an obligation that could not be met, and why.
type LeftOut struct {
	ID     string `json:"id"`
	Reason Reason `json:"reason"`
}

// Met is an obligation that was met before the answer, and the approval that met it.
type Met struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Approval string `json:"approval"`
	// Continues is the round that the decision is, if it goes on from a use of the approval. Then
	// it is no use of its own.
	Continues Continuation `json:"continues,omitzero"`
	// Shares is the decision whose use of the approval this one is a part of, if people approved several questions as
	// one. Then it is no use of its own either.
	Shares string `json:"shares,omitzero"`
}

// Approval is a request for a person's approval, as its caller sees it.
type Approval struct {
	// ID is empty where there was no asking: then RetryAfter says when there can be.
	ID        string    `json:"id,omitzero"`
	Status    string    `json:"status"`
	ExpiresAt time.Time `json:"expires_at,omitzero"` // zero where it does not
	StatusURL string    `json:"status_url,omitzero"`
	// RetryAfter is in seconds.
	RetryAfter int `json:"retry_after,omitzero"`
}

// Mismatch is a place in a request, a JSON Pointer into the body that was sent, and what
// is wrong there: names and types, and never a value. If the decision is explained, the detail
// suggests the name that is near, of what the request's tenant sees.
type Mismatch struct {
	Pointer string `json:"pointer"`
	Detail  string `json:"detail"`
	// Place is the pointer into the [Request], whichever shape it came in: what the
	// patterns of masks address.
	Place string `json:"-"`
}

// Explanation says, policy by policy, how a decision came about.
type Explanation struct {
	// Policies is nil if, and only if, Omitted is set.
	Policies []PolicyExplanation `json:"policies,omitzero"`
	Mismatch []Mismatch          `json:"mismatch,omitzero"`
	// Dropped are places that no policy can see, because the schema does not declare them.
	Dropped []Mismatch `json:"dropped,omitzero"`
	// Ignored is the place of what the request was not decided by, although it looks as if it meant something.
	Ignored string `json:"ignored,omitzero"`
	// Omitted is set, and nothing else is, where there was no more room in the answer.
	Omitted bool `json:"omitted,omitzero"`
}

// PolicyExplanation is one policy's part in a decision.
type PolicyExplanation struct {
	ID       string  `json:"id"`
	Effect   string  `json:"effect"`
	Verdict  Verdict `json:"verdict"`
	Position string  `json:"position"`
	// Failed is the clause that kept a permit from applying: given for the
	// permits that came nearest, where no policy determined the decision.
	Failed     string          `json:"failed,omitempty"`
	Attributes []AttributeRead `json:"attributes"`
	// Clauses are given only if they were asked for.
	Clauses []Clause `json:"clauses,omitzero"`
}

// Clause is one clause of a policy, and its result. All of them must hold, and they are asked in order.
type Clause struct {
	Text   string       `json:"text"`
	Result ClauseResult `json:"result"`
}

// ClauseResult is the result of a clause.
type ClauseResult string

// The results of a clause. After the first clause that does not hold, no other is reached.
const (
	Held          ClauseResult = "held"
	ClauseFailed  ClauseResult = "failed"
	ClauseErred   ClauseResult = "error"
	UnknownResult ClauseResult = "unknown" // it reads a value that is not known
	NotReached    ClauseResult = "not_reached"
)

// Verdict is the verdict of a policy about a request.
type Verdict string

// The verdicts of a policy.
const (
	Satisfied    Verdict = "satisfied"
	NotSatisfied Verdict = "not_satisfied"
	Errored      Verdict = "error"
	// UnknownVerdict is that of a policy that reads an unknown place; see [Unknown].
	UnknownVerdict Verdict = "unknown"
)

// AttributeRead is one attribute a policy reads and where its value came from.
type AttributeRead struct {
	Path   string `json:"path"`
	Source Source `json:"source"`
}

// Source is where the value of an attribute came from.
type Source string

// The sources of an attribute.
const (
	// Sent: the request's value is in force.
	Sent Source = "sent"
	// Stored: the bundle's value is in force and the request sent none.
	Stored Source = "stored"
	// ByPDP: the PDP supplied it.
	ByPDP Source = "pdp"
	// PassedOver: the bundle's value is in force; the one sent was passed over.
	PassedOver Source = "passed_over"
	// Dropped: it was sent, but the schema does not declare it.
	Dropped Source = "dropped"
	// Unusable: it was sent as something Cedar has no value for.
	Unusable Source = "unusable"
	// Missing: there is no such attribute.
	Missing Source = "missing"
	// UnknownSource: the value is not known yet; see [Unknown].
	UnknownSource Source = "unknown"
)
