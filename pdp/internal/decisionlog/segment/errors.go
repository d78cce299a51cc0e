package segment

import (
	"errors"

	"policy-service/pdp/internal/decisionlog/journal"
)

// The errors of a log that is read or written.
var (
	// ErrUnavailable: nothing can be written now. What was to be recorded must
	// not be acted upon. The log tries again by itself.
	ErrUnavailable = errors.New("the decision log cannot be written")
	ErrLocked      = errors.New("the decision log is in use by another process")
	// ErrCut: the end of the log is gone, or all of it.
	ErrCut      = errors.New("the decision log does not go on where it ended")
	ErrNotFound = errors.New("no such record")
	// ErrNewer: a later release wrote the log.
	ErrNewer = journal.ErrNewer
	// ErrGone: the record was redacted or retired; its leaf hash is still there.
	ErrGone = errors.New("the record's content is gone")
)
