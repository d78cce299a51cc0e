package approval

import (
	"time"

	"policy-service/evaluation"
)

// Step is one step of an approval as it goes on record.
type Step struct {
	ID   string    `json:"id"` // of the record
	At   time.Time `json:"at"`
	Name string    `json:"name"`
	// Statement is of a person, and Caller the credential; both are empty for steps that the service does by itself.
	Statement `json:",inline"`
	Caller    string `json:"caller,omitzero"`
	// Decision is the one that used the approval or went on from a use, or that was to. Continues
	// says from which use it went on, and in which round.
	Decision  string                  `json:"decision,omitzero"`
	Continues evaluation.Continuation `json:"continues,omitzero"`
	// Lost is the origin that reserved what Decision is said to have used, and whose log will never say if it has.
	Lost string `json:"lost,omitzero"`
	// Seal is made with the key of approvals, of all that the step brings about. Without the
	// key no program writes a step that counts.
	Seal string `json:"seal,omitzero"`
	// Approval is as it is after the step.
	Approval Approval `json:"approval"`
}

// The names of steps. A vote is a step, named as its kind; the state that it brings about is
// the next, and a step that ends an approval is named as the state.
const (
	StepFiled    = "filed"    // an approval request was filed, for the caller that asked
	StepOffered  = "offered"  // a gateway was given the form to show By; it changes nothing
	StepApprove  = "approve"  // a person approved
	StepDeny     = "deny"     // a person denied
	StepDelegate = "delegate" // a person named another in their place

	StepApproved  = "approved"  // enough people approved
	StepDenied    = "denied"    // it was denied
	StepCancelled = "cancelled" // the requester no longer wants it
	StepRevoked   = "revoked"   // a person took the approval back
	StepExpired   = "expired"   // its time was up
	StepUsed      = "used"      // a decision was made by it
	StepUsedUp    = "used_up"   // that was the last use
	StepLapsed    = "lapsed"    // a vote counts no longer: that of By
	StepReopened  = "reopened"  // too few votes are left: it is pending again
	StepCaughtUp  = "caught_up" // the file was behind the log, and is not any more
	StepReleased  = "released"  // a decision that was to use it is not on record: the use, or the round, is there again
	StepContinued = "continued" // a decision went on from a use: a round of it
	StepRedacted  = "redacted"  // the words were removed for good; it changes nothing else
)

// StepGone stands among the steps of [Options].Steps for a record without content, which may
// have been any step. If there are several such records, it stands for the last one. The
// number of the record is in Approval.After. This step is never recorded.
const StepGone = "gone"

// StepNames are the names of all steps there are.
func StepNames() []string {
	return []string{
		StepFiled, StepOffered, StepApprove, StepDeny, StepDelegate, StepApproved, StepDenied, StepCancelled, StepRevoked, StepExpired,
		StepUsed, StepUsedUp, StepContinued, StepReleased, StepLapsed, StepReopened, StepCaughtUp, StepRedacted,
	}
}
