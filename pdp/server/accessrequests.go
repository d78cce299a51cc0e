package server

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/approval"
	"policy-service/pdp/approval/broker"
	"policy-service/pdp/server/auth"
	"policy-service/pdp/server/door"
)

// viaAuthZEN marks what was asked for by AuthZEN's profile for access requests.
const viaAuthZEN = "authzen"

// submitRequest answers POST /access/v1/requests and the same below /tenants/:tenant:
// a program asks for an approval of what it was denied.
func (s *Server) submitRequest(c echo.Context) error {
	need := door.Need{
		Permission: auth.Request,
		Tenant:     true,
		Body:       door.JSON,
		Records:    true,
		Work:       door.WorkBySize,
	}
	if s.approvals == nil {
		need.Absent = noApprovals()
	}
	admitted, err := s.door.Admit(c, need)
	if err != nil {
		return err
	}
	defer admitted.Shift.End()
	caller, tenant := admitted.Caller, admitted.Tenant
	submission, err := evaluation.DecodeSubmission(admitted.Body, tenant, s.config.Program.Limits)
	if err != nil {
		return err
	}
	key, err := s.idempotency(c, caller, tenant)
	if err != nil {
		return err
	}
	known, found, err := s.approvals.Store.Known(key, submission.Hash)
	if err == nil && !found {
		known, err = s.begin(c, caller, submission, approval.Task{
			Tenant: tenant,
			Caller: caller.Name,
			Key:    key,
			Body:   submission.Hash,
			Bulk:   submission.Bulk,
		})
	}
	if err != nil {
		return submissionProblem(err)
	}
	f, err := s.approvals.follow(c.Request().Context(), known)
	if err != nil {
		return err
	}
	status := http.StatusAccepted
	if f.status() != string(approval.Pending) {
		status = http.StatusCreated
	}
	c.Response().Header().Set(echo.HeaderLocation, s.issuerURL(tenant)+broker.RequestsPath+"/"+known.ID)
	return s.approvals.tell(c, status, s.approvals.seen(f))
}

func noApprovals() *door.Problem {
	return door.NewProblem(http.StatusNotFound, "there are no approvals here; the operator gives the server a data directory with --data")
}

// longestKey bounds an Idempotency-Key.
const longestKey = 256

// idempotency is what the caller's own name of the asking is known by; zero is none.
func (s *Server) idempotency(c echo.Context, caller auth.Caller, tenant string) (key [32]byte, err error) {
	values := c.Request().Header.Values("Idempotency-Key")
	if len(values) == 0 {
		return key, nil
	}
	if len(values) > 1 || values[0] == "" || len(values[0]) > longestKey {
		return key, door.NewProblem(http.StatusBadRequest, "the header Idempotency-Key is empty, given twice, or of more than "+strconv.Itoa(longestKey)+" bytes; send one that you can send again")
	}
	mac := hmac.New(sha256.New, s.kept.key)
	for _, part := range []string{"idempotency", caller.Name, tenant, values[0]} {
		_, _ = mac.Write([]byte(strconv.Itoa(len(part)) + ":" + part))
	}
	return [32]byte(mac.Sum(nil)), nil
}

// begin looks at everything before anybody is asked for anything.
func (s *Server) begin(c echo.Context, caller auth.Caller, submission evaluation.Submission, t approval.Task) (approval.Task, error) {
	ctx, cancel := s.door.Within(c)
	defer cancel()
	if callback := submission.Callback; callback != nil {
		if s.approvals.callbacks[callbackOf{caller.Name, callback.Endpoint}] == nil {
			p := door.NewProblem(http.StatusBadRequest, "this caller has no such callback; the operator lists it in approvals.callbacks")
			p.Pointer = "/callback/endpoint"
			return t, p
		}
		t.Callback, t.CallbackState, t.Events = callback.Endpoint, callback.State, callback.Events
	}
	questions := make([]approval.ApprovalRequest, 0, len(submission.Items))
	for n, item := range submission.Items {
		q, err := s.requested(ctx, asker(c, caller), submission, item)
		if err != nil {
			return t, atItem(err, submission.Bulk, n)
		}
		questions = append(questions, q)
	}
	for _, q := range questions {
		filed, err := s.approvals.Store.File(context.WithoutCancel(ctx), q)
		if err != nil {
			return t, err // what was filed before waits, and is joined when it is asked for again
		}
		t.Items = append(t.Items, filed.ID)
	}
	t.ID = uuid.NewString()
	return s.approvals.Store.Begin(t)
}

// atItem says of which item a problem is.
func atItem(err error, bulk bool, n int) error {
	var p *door.Problem
	if bulk && errors.As(err, &p) {
		p.Pointer = "/items/" + strconv.Itoa(n) + p.Pointer
	}
	return err
}

// requested is what a person is asked, where the submission follows a denial of ours that
// is still one.
func (s *Server) requested(ctx context.Context, by evaluation.Asker, submission evaluation.Submission, item evaluation.SubmissionItem) (q approval.ApprovalRequest, err error) {
	claims, err := s.denial(item)
	if err != nil {
		return q, err
	}
	r, said := s.asDenied(item.Request, claims)
	if submission.Actor != "" && !acts(&r, submission.Actor) {
		p := door.NewProblem(http.StatusForbidden, "client.actor was not named in the request that was denied; name the actor in the context.agent of that request, or leave client.actor out")
		p.Pointer = "/client/actor"
		return q, p
	}
	a, ok, err := s.pdp.Requestable(ctx, pdp.Call{Request: r, Asker: by})
	if err != nil {
		return q, err
	}
	if !ok {
		return q, accessProblem(http.StatusBadRequest, evaluation.NotRequestable, "this is not denied for want of an approval, or no more; ask for the decision again")
	}
	a.Decision = claims.EvaluationID
	digest := s.approvals.Digest(a)
	if hex.EncodeToString(digest[:]) != claims.Binding {
		return q, invalidBinding("the denial was of another request, or other policies are in force since; ask for the decision again")
	}
	if q, err = s.approvals.ApprovalRequest(ctx, a, digest); err != nil {
		return q, err
	}
	q.Via = viaAuthZEN
	if said = s.shownBeside(ctx, r, said, submission.Said); said.Len() > 0 {
		q.Said, err = said.MarshalJSON()
	}
	return q, err
}

// shownBeside is what was said for a request, in its context and beside it, without
// secrets: neither its own, nor the request's.
func (s *Server) shownBeside(ctx context.Context, r evaluation.Request, within, beside evaluation.Object) evaluation.Object {
	denied := r.Context
	r.Context = denied.Beside(within)
	masked := s.live.pinned(ctx).mask.Of(r, beside)
	added := masked.Request().Context.Without(func(name string) bool {
		_, ok := denied.Get(name)
		return ok
	})
	return added.Beside(masked.Object(beside))
}

// denial is what the binding token says, where it is ours, of this place, and fresh.
func (s *Server) denial(item evaluation.SubmissionItem) (claims evaluation.BindingClaims, err error) {
	d, point := item.Denial, s.issuerURL(item.Request.Tenant)
	switch {
	case !d.Given || d.BindingToken == "":
		return claims, invalidBinding("there is no denial.binding_token; send the one that the denial came with")
	case point == "" || !s.approvals.Verify(d.BindingToken, broker.BindingType, &claims) || claims.Issuer != point || claims.Audience != point+broker.RequestsPath:
		return claims, invalidBinding("denial.binding_token is none of ours; send the one that the denial came with, byte for byte")
	case d.EvaluationID != "" && d.EvaluationID != claims.EvaluationID, !d.ExpiresAt.Equal(claims.DenialExpiresAt):
		return claims, invalidBinding("the denial is of another evaluation than its binding_token, or has another expires_at; send both as they came")
	}
	if now := s.now(); !now.Before(claims.DenialExpiresAt) || now.Unix() >= claims.Expires {
		return claims, accessProblem(http.StatusGone, evaluation.ExpiredDenial, "the denial is too old; ask for the decision again")
	}
	return claims, nil
}

func invalidBinding(detail string) *door.Problem {
	return accessProblem(http.StatusBadRequest, evaluation.InvalidDenialBinding, detail)
}

// asDenied is a submitted request as it was when it was denied, and what was added since.
// Which obligations the program can meet says what is missing, and so is part of it.
func (s *Server) asDenied(r evaluation.Request, claims evaluation.BindingClaims) (evaluation.Request, evaluation.Object) {
	bundle := s.pdp.Bundle()
	ours := func(name string) bool {
		return slices.Contains(claims.Members, name) || bundle.Volatile(name) || name == "supported_obligations"
	}
	said := r.Context.Without(func(name string) bool { return ours(name) || evaluation.Protocol(name) })
	r.Context = r.Context.Without(func(name string) bool { return !ours(name) })
	return r, said
}

// acts reports whether somebody is known to act for the subject of a request, or is it.
func acts(r *evaluation.Request, id string) bool {
	actors, ok := r.Actors()
	return ok && (r.Subject.ID == id || actors.Agent != nil && actors.Agent.ID == id)
}

// submissionProblem says what keeps a submission from being taken.
func submissionProblem(err error) error {
	var limit *approval.LimitError
	switch {
	case errors.As(err, &limit):
		return door.TooMany(limitOf(limit), limit.RetryAfter, http.StatusTooManyRequests, "too many approval requests wait, or too many tasks follow this one; ask again after Retry-After seconds, with the same Idempotency-Key if you send the same again")
	case errors.Is(err, approval.ErrOtherBody):
		return accessProblem(http.StatusConflict, evaluation.DuplicateRequest, "this Idempotency-Key came with another body; use a new one for a new request")
	case errors.Is(err, approval.ErrTooLarge):
		return accessProblem(http.StatusBadRequest, evaluation.NotRequestable, "the request is too large to be shown to a person")
	}
	return approvalProblem(err)
}

// follower admits a request about a task, in the tenant of its path.
func (s *Server) follower(c echo.Context, need door.Need) (door.Admitted, error) {
	need.Permission, need.Tenant = auth.Request, true
	if s.approvals == nil {
		need.Absent = noApprovals()
	}
	return s.door.Admit(c, need)
}

// task finds a task of the caller's. Whether there is another's, nobody learns.
func (s *Server) task(c echo.Context, a door.Admitted) (approval.Task, error) {
	t, found, err := s.approvals.Store.Task(c.Param("id"))
	if err == nil && (!found || t.Caller != a.Caller.Name || t.Tenant != a.Tenant) {
		err = accessProblem(http.StatusNotFound, evaluation.UnknownTask, "no such task, or none of yours; use the status_endpoint that you were given")
	}
	return t, approvalProblem(err)
}

// requestStatus answers GET /access/v1/requests/:id. Who waits takes nobody's place who
// is worked for.
func (s *Server) requestStatus(c echo.Context) error {
	a, err := s.follower(c, door.Need{})
	if err != nil {
		return err
	}
	wait, err := patience(map[string]string{"wait": c.QueryParam("wait")})
	if err != nil {
		return err
	}
	if wait == 0 {
		if err := s.door.Enter(c, a.Caller); err != nil {
			return err
		}
	}
	t, err := s.task(c, a)
	if err != nil {
		return err
	}
	saw, err := s.longPoll(c, a.Caller, awaited{
		wait: wait,
		look: func(ctx context.Context) seen {
			f, err := s.approvals.follow(ctx, t)
			if err != nil {
				return seen{err: err}
			}
			return s.approvals.seen(f)
		},
		of: func(_, id string) bool { return slices.Contains(t.Items, id) },
	})
	if err != nil {
		return err
	}
	return s.approvals.tell(c, http.StatusOK, saw)
}

// cancelRequest answers POST /access/v1/requests/:id/cancel.
func (s *Server) cancelRequest(c echo.Context) error {
	a, err := s.follower(c, door.Need{Body: door.OptionalJSON, Work: door.ShortWork})
	if err != nil {
		return err
	}
	t, err := s.task(c, a)
	if err != nil {
		return err
	}
	f, err := s.approvals.follow(c.Request().Context(), t)
	if err != nil {
		return err
	}
	said, err := evaluation.DecodeWithdrawal(a.Body, s.config.Program.Limits)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	reason := s.unsecret(ctx, said.Reason, f.of...)
	cancelled, err := s.approvals.cancel(context.WithoutCancel(ctx), f, a.Caller.Name, reason)
	if err != nil {
		return approvalProblem(err)
	}
	if !cancelled {
		return accessProblem(http.StatusConflict, evaluation.InvalidTaskState, "the task came to its end before; nothing of it waits any more")
	}
	if f, err = s.approvals.follow(ctx, f.Task); err != nil {
		return err
	}
	return s.approvals.tell(c, http.StatusOK, s.approvals.seen(f))
}

// cancel gives up whatever of a task waits, and reports whether anything did.
func (a *approvals) cancel(ctx context.Context, f followed, caller, reason string) (cancelled bool, err error) {
	for _, one := range f.of {
		if taskStatus(one) != string(approval.Pending) {
			continue
		}
		_, err := a.Store.Cancel(ctx, one.ID, 0, "", caller, reason)
		var state *approval.StateError
		if err != nil && !errors.As(err, &state) {
			return cancelled, err
		}
		cancelled = cancelled || err == nil
	}
	return cancelled, nil
}
