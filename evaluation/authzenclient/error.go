package authzenclient

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Error says why there is no answer that permits. It never holds a credential.
type Error struct {
	// Op is the call: "evaluate", "batch", "search", "discover", "enforce", "report", "keys", "status",
	// "request", "await", "watch", "resume", "continue", "cancel", "form", "respond".
	Op string
	// Kind is the class of the error.
	Kind Kind
	// Status is the HTTP status, or that of an item of a batch; 0 if there was none.
	Status int
	// Detail says more, and may be empty.
	Detail string
	// RetryAfter is how long the PDP asked to be left alone; 0 if it did not.
	RetryAfter time.Duration

	// Spent reports whether the question presented an approval or a capability, and may have reached the PDP, which then may
	// have counted a use: the answer was lost. The same question asked again would need another use.
	Spent bool
	// Cause is the error of the network, the context or a function of the caller's; it may be nil.
	Cause error

	again repeatable
}

// Kind classifies an [Error].
type Kind string

// The kinds of an [Error].
const (
	// NotAsked: nothing was sent. The request or the credentials cannot be, or
	// the PDP does not offer the call.
	NotAsked Kind = "not asked"
	// Open: nothing was sent. The breaker is open: see [WithBreaker].
	Open Kind = "circuit breaker open"
	// Unreachable: no connection, or it broke.
	Unreachable Kind = "unreachable"
	// TimedOut: no answer in time.
	TimedOut Kind = "timed out"
	// Cancelled: the caller's context was.
	Cancelled Kind = "cancelled"
	// Refused: the PDP says that the request is at fault (a 4xx status).
	Refused Kind = "refused"
	// Unavailable: the PDP says that it cannot answer (429 or a 5xx status).
	Unavailable Kind = "unavailable"
	// Odd: something came back that is no answer.
	Odd Kind = "not an answer"
	// Unsupported: the PDP answers another question than the one that was asked.
	Unsupported Kind = "not supported"
	// BadItem: the PDP could not decide this item of a batch.
	BadItem Kind = "item refused"
	// Skipped: this item of a batch was not decided, because an earlier one was enough.
	Skipped Kind = "not decided"
	// Obligated: the PDP obliges to something that was not discharged.
	Obligated Kind = "obligations not discharged"
	// NotApproved: people did not approve, or not in time, or the approval has ended.
	NotApproved Kind = "not approved"
)

// Kinds are all of them.
func Kinds() []Kind {
	return []Kind{NotAsked, Open, Unreachable, TimedOut, Cancelled, Refused, Unavailable, Odd, Unsupported, BadItem, Skipped, Obligated, NotApproved}
}

// Undecided reports whether no decision came, for a reason that lies with the PDP, the way to it, or the question. It is not
// so if the PDP did decide, or if its answer was not waited for.
func (k Kind) Undecided() bool {
	return !slices.Contains([]Kind{"", Cancelled, Skipped, Obligated, NotApproved}, k)
}

// Error makes the one-line text of the facts.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("authzen " + e.Op + ": " + string(e.Kind))
	if e.Status != 0 {
		b.WriteString(" (status " + strconv.Itoa(e.Status) + ")")
	}
	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	}
	return b.String()
}

// Unwrap returns the error of the network or the context, so that errors.Is finds
// context.DeadlineExceeded.
func (e *Error) Unwrap() error { return e.Cause }

// ErrPerson is the cause of an [Error] if the PDP does not take the token of a person of package approvals. The client's own
// credential is not at fault then.
var ErrPerson = errors.New("the PDP does not take the person's token")

// ofCaller reports whether the PDP refuses its caller, whatever is asked: then there is nothing to be had from it.
func (e *Error) ofCaller() bool {
	return e != nil && e.Kind == Refused && slices.Contains([]int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound}, e.Status)
}

// lost reports whether the PDP may have decided, and only its answer is missing.
func (e *Error) lost() bool {
	switch e.Kind {
	case Unreachable:
		return e.again != unsent
	case TimedOut, Cancelled, Odd:
		return true
	case Unavailable: // that is the PDP's own word with 429 and 503; with another status it may be a proxy's
		return e.Status != http.StatusTooManyRequests && e.Status != http.StatusServiceUnavailable
	}
	return false
}

func notAsked(detail string) *Error { return &Error{Kind: NotAsked, Detail: detail} }

func odd(detail string) *Error { return &Error{Kind: Odd, Detail: detail} }
