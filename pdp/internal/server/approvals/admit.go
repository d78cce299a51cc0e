package approvals

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/approval/broker"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/door"
)

// handler handles a request that was let in. Its errors may be those of the broker and of the store.
type handler func(echo.Context, door.Admitted) error

// admit lets a request in and handles it.
func (a *Approvals) admit(need door.Need, handle handler) echo.HandlerFunc {
	return func(c echo.Context) error {
		need := need
		if a.Broker == nil {
			need.Absent = door.NewProblem(http.StatusNotFound,
				"there are no approvals here; the operator gives the server a data directory with --data")
			if need.Permission == auth.Approve { // every caller hears that, whether it may approve or not
				need.Permission = ""
			}
		}
		admitted, err := a.Door.Admit(c, need)
		if err != nil {
			return err
		}
		defer admitted.Shift.End()
		return problem(handle(c, admitted))
	}
}

// problem is an error of the broker or of the store as callers see it. Any other error stays as it is.
func problem(err error) error {
	var access *broker.AccessError
	var limit *approval.LimitError
	var state *approval.StateError
	var lacks *broker.LacksError
	switch {
	case errors.As(err, &lacks):
		return door.Lacks(lacks.Permission)
	case errors.As(err, &access):
		return accessProblem(access.Name, access.Detail, access.Pointer)
	case errors.As(err, &limit):
		return door.TooMany(limitWord(limit), limit.RetryAfter, http.StatusTooManyRequests,
			"too many approval requests wait, or too many tasks follow this one; ask again after Retry-After seconds, "+
				"with the same Idempotency-Key if you send the same again")
	case errors.Is(err, approval.ErrOtherBody):
		return accessProblem(evaluation.DuplicateRequest,
			"this Idempotency-Key came with another body; use a new one for a new request", "")
	case errors.Is(err, approval.ErrTooLarge):
		return accessProblem(evaluation.NotRequestable, "the request is too large to be shown to a person", "")
	case errors.Is(err, broker.ErrNoTurn):
		return door.TooMany("pages", time.Second, http.StatusServiceUnavailable,
			"more pages of approval requests are asked for at once than can be made in time; "+
				"ask again after Retry-After seconds")
	case errors.As(err, &state):
		return door.NewProblem(http.StatusConflict, fmt.Sprintf(
			"this approval request is %s, in version %d; look at it again", state.Status, state.Version))
	}
	for _, known := range problems {
		if errors.Is(err, known.err) {
			return door.NewProblem(known.status, known.detail)
		}
	}
	return err
}

// problems are those of errors that say no more than which they are. The first one that fits counts.
var problems = []struct {
	err    error
	status int
	detail string
}{
	{broker.ErrOwn, http.StatusForbidden,
		"this is your own approval request, or one of somebody who acts for you; another person must decide about it"},
	{broker.ErrNoVote, http.StatusForbidden, "you may see this approval request, but you have no vote on it"},
	{broker.ErrNotAsker, http.StatusForbidden,
		"only the caller that filed an approval request can cancel it; an approver can deny it"},
	{approval.ErrVoted, http.StatusConflict,
		"you have voted on this approval request already, perhaps by another name of yours; each person counts once"},
	{approval.ErrInUse, http.StatusConflict,
		`this approval request waits, or what it allows can be done; cancel, deny or revoke it first, or send "end": true`},
	{approval.ErrNotDelegable, http.StatusConflict,
		"this approval request cannot be delegated; approve or deny it"},
	{approval.ErrReplaced, http.StatusConflict,
		"this request for a tool was changed since that revision, or its time is up; look at it again"},
	{approval.ErrNotFound, http.StatusNotFound,
		"no such approval request, or none that you may see; GET /v1/approvals lists those you may decide about"},
	{approval.ErrInvalid, http.StatusBadRequest,
		"this can never be done, perhaps because valid_until has passed; leave it out, or look at the approval request " +
			"again"},
	{broker.ErrCursor, http.StatusBadRequest,
		"the parameter after is no cursor of yours here; send the one of the answer before, byte for byte, or leave it " +
			"out to begin again"},
	{broker.ErrBeginAgain, http.StatusGone,
		"from this cursor nobody can tell any more what has changed since; begin again without after, and look at each " +
			"task that you follow and do not find"},
	{approval.ErrUnavailable, http.StatusServiceUnavailable, notStored},
	{approval.ErrClosed, http.StatusServiceUnavailable, notStored},
	{approval.ErrUnrecorded, http.StatusServiceUnavailable,
		"this could not be recorded, and does not count until it is; look at the approval request again later"},
	{broker.ErrHalf, http.StatusServiceUnavailable,
		"this approval request has no words any more, and not all of its records could be redacted; ask again later, or " +
			"the next start goes on"},
	{context.Canceled, http.StatusServiceUnavailable, noTime},
	{context.DeadlineExceeded, http.StatusServiceUnavailable, noTime},
}

const (
	notStored = "this cannot be stored at the moment; look at the approval request again later"
	noTime    = "there was no time to answer; ask again later"
)

// accessStatus are the statuses of the problems that AuthZEN's profile for access requests names. The profile has no
// name for that of an actor whom the denied request does not know.
var accessStatus = map[string]int{
	"":                              http.StatusForbidden,
	evaluation.NotRequestable:       http.StatusBadRequest,
	evaluation.InvalidDenialBinding: http.StatusBadRequest,
	evaluation.UnknownTask:          http.StatusNotFound,
	evaluation.DuplicateRequest:     http.StatusConflict,
	evaluation.InvalidTaskState:     http.StatusConflict,
	evaluation.ExpiredDenial:        http.StatusGone,
	evaluation.TaskExpired:          http.StatusGone,
}

// accessProblem is a problem of an access request. A name that is not in accessStatus is a mistake of ours.
func accessProblem(name, detail, pointer string) *door.Problem {
	p := door.NewProblem(cmp.Or(accessStatus[name], http.StatusInternalServerError), detail)
	if name != "" {
		p.Type = evaluation.AccessRequestProblem + name
	}
	p.Pointer = pointer
	return p
}

// limitWord is the word that a refused approval request is counted by.
func limitWord(limit *approval.LimitError) string {
	if limit.OfCaller {
		return "approvals_share"
	}
	return "approvals"
}

// Refused counts an approval request that a limit refused.
func (a *Approvals) Refused(limit *approval.LimitError) { a.Door.Refused(limitWord(limit)) }
