package capability

import (
	"errors"
	"fmt"
	"time"

	"policy-service/pdp/internal/ledger"
)

// The errors of a store. That a capability cannot be used is none of them, but a [*capability.Refusal].
var (
	// ErrUnavailable: nothing can be written now, or not even read. It is not known whether the change was made.
	ErrUnavailable = errors.New("the capabilities cannot be written")
	// ErrUnrecorded: the step is not on record yet, and counts for nothing until it is.
	ErrUnrecorded = ledger.ErrUnrecorded
	// ErrWithdrawn: another process with the name of this one gave back what the decision has, so it is not answered.
	ErrWithdrawn = ledger.ErrWithdrawn
	ErrClosed    = errors.New("the capabilities are closed")
	ErrLocked    = errors.New("the capabilities are in use by another process: stop it, or use another data directory")
	ErrDamaged   = errors.New("the file of the capabilities is damaged: restore it from a backup, " +
		"or move it away to begin without any capability")
	// ErrShort: the log is shorter than the file knows it.
	ErrShort    = ledger.ErrShort
	ErrNotFound = errors.New("no such capability")
	// ErrGranted: the approval has granted what was asked before; [Store.Granted] finds it.
	ErrGranted = errors.New("this was granted before by the same approval")
	// ErrInvalid: the request can never be done, whenever it is tried.
	ErrInvalid = ledger.ErrInvalid
	// ErrRenewals: it was renewed as often as can be.
	ErrRenewals = fmt.Errorf("%w: it was renewed %d times, and no more is possible: ask for another", ErrInvalid, MostRenewals)
)

// known are those that the ledger returns.
var known = ledger.Errors{
	Unavailable: ErrUnavailable,
	Closed:      ErrClosed,
	Locked:      ErrLocked,
	Damaged:     ErrDamaged,
	NotFound:    ErrNotFound,
}

// StateError says that something cannot be done in the state that a capability is in.
type StateError struct{ State State }

// Error says which state that is.
func (e *StateError) Error() string { return fmt.Sprintf("the capability is %s", e.State) }

// LimitError says that a person, a holder or a tenant has too many capabilities, or that too many were asked for at once.
type LimitError struct{ RetryAfter time.Duration }

// Error says when to try again.
func (e *LimitError) Error() string {
	return fmt.Sprintf("too many capabilities: try again in %v, or have some returned or revoked", e.RetryAfter)
}

// EngineErrors are the errors that an engine for [Options] is to return.
func EngineErrors() ledger.Errors { return known }
