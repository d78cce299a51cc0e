package record

import "policy-service/evaluation"

// Explained says, policy by policy, how a recorded decision came about, by the policies that were in force.
type Explained struct {
	Bundle string `json:"bundle"`
	// Answer and Reason are those of the policies for the request on record, and Same reports if the record says so too.
	// They are absent if DependsOn is set.
	Answer string            `json:"answer,omitzero"`
	Reason evaluation.Reason `json:"reason,omitzero"`
	Same   *bool             `json:"same,omitzero"`
	// DependsOn names the masked values on which the answer may depend.
	DependsOn *Dependence `json:"depends_on,omitzero"`
	// Policies begins with those that had a part in the decision. More is the number of policies left out.
	Policies []ExplainedPolicy     `json:"policies"`
	More     int                   `json:"more,omitzero"`
	Mismatch []evaluation.Mismatch `json:"mismatch,omitzero"`
	Dropped  []evaluation.Mismatch `json:"dropped,omitzero"`
}

// Dependence names masked places of a request and the policies that read them.
type Dependence struct {
	Paths    []string `json:"paths"`
	Policies []string `json:"policies"`
}

// ExplainedPolicy is one policy, with its text at the time.
type ExplainedPolicy struct {
	evaluation.PolicyExplanation
	Part Part   `json:"part,omitzero"`
	Text string `json:"text,omitzero"`
}

// Part is the part that a policy had in a recorded decision.
type Part string

// The parts.
const (
	Determining Part = "determining"
	Overruled   Part = "overruled"
	Erred       Part = "error"
	Near        Part = "near" // a permit that did not apply, and came nearest
)
