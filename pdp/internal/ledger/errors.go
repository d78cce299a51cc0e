package ledger

import (
	"errors"
	"fmt"
)

// Errors are the owner's errors, in the words of its users.
type Errors struct {
	// Unavailable: nothing can be written now, or not even read.
	Unavailable error
	Closed      error
	// Locked: another process has the file.
	Locked   error
	Damaged  error
	NotFound error
}

// The errors that need no words of the owner.
var (
	// ErrUnrecorded: the change is not on record yet, and counts for nothing until it is.
	ErrUnrecorded = errors.New("the step is not on record yet")
	// ErrElsewhere is the [ErrUnrecorded] of a step that another process is to record.
	ErrElsewhere = fmt.Errorf("%w: it is to be recorded by another process", ErrUnrecorded)
	// ErrWithdrawn: the decision is on record, and its use of the item is neither reserved nor counted any more: another process
	// has given it back. Nobody may be answered by the decision.
	ErrWithdrawn = errors.New("the use was given back before it was settled, as it is where two processes have one name; " +
		"run one process for each data directory")
	// ErrShort: the log is shorter than the file says.
	ErrShort = errors.New("the log was cut, or an older copy of it put in its place")
	// ErrInvalid: the change can never be made, whenever it is tried.
	ErrInvalid = errors.New("not valid")
	// ErrNewer: a later release wrote the values.
	ErrNewer = errors.New("a newer version made it")
)
