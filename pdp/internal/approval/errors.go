package approval

import (
	"errors"
	"fmt"
	"time"

	"policy-service/pdp/internal/ledger"
)

// The errors of a store.
var (
	// ErrUnavailable: nothing can be written now, or not even read. It is not known whether
	// the change was made. The next call tries again.
	ErrUnavailable = errors.New("the approvals cannot be written")
	// ErrUnrecorded: the step is not on record yet, and counts for nothing until it is.
	ErrUnrecorded = ledger.ErrUnrecorded
	// ErrWithdrawn: another process with the name of this one gave the use back, so the decision that has it is not answered.
	ErrWithdrawn = ledger.ErrWithdrawn
	ErrClosed    = errors.New("the approvals are closed")
	ErrLocked    = errors.New("the approvals are in use by another process: stop it, or use another data directory")
	ErrDamaged   = errors.New("the file of the approvals is damaged: restore it from a backup, " +
		"or move it away to begin without any approval")
	// ErrShort: the log is shorter than the file knows it.
	ErrShort    = ledger.ErrShort
	ErrNotFound = errors.New("no such approval")
	ErrTooLarge = errors.New("the request is too large to be shown to approvers")
	ErrVoted    = errors.New("this person has already voted, or named another in their place")
	// ErrNotDelegable: the terms do not let an approver name another, or not this one.
	ErrNotDelegable = errors.New("this vote cannot be delegated")
	// ErrInUse: the approval waits for a person or can be used, so it cannot be redacted.
	ErrInUse = errors.New("the approval waits or can be used: cancel, deny or revoke it first")
	// ErrInvalid: the request can never be done, whenever it is tried.
	ErrInvalid = ledger.ErrInvalid
)

// known are those that the ledger returns.
var known = ledger.Errors{
	Unavailable: ErrUnavailable,
	Closed:      ErrClosed,
	Locked:      ErrLocked,
	Damaged:     ErrDamaged,
	NotFound:    ErrNotFound,
}

// StateError says that something cannot be done in the state, or not to the version,
// that an approval is in.
type StateError struct {
	Status  Status
	Version int
}

// Error says which state that is.
func (e *StateError) Error() string {
	return fmt.Sprintf("the approval is %s in version %d: read it again", e.Status, e.Version)
}

// LimitError says that too many approval requests wait, or came at once.
type LimitError struct {
	RetryAfter time.Duration
	// OfCaller says that it is the share of the caller, and others may still.
	OfCaller bool
}

// Error says when to try again.
func (e *LimitError) Error() string {
	return fmt.Sprintf("too many approval requests: try again in %v, or have those that wait decided", e.RetryAfter)
}

// EngineErrors are the errors that an engine for [Options] is to return.
func EngineErrors() ledger.Errors { return known }
