package server

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/pdp/approval"
	"policy-service/pdp/approval/broker"
	"policy-service/pdp/server/door"
)

// followed is a task with its approvals.
type followed struct {
	approval.Task
	of []approval.Approval
}

// follow reads what a task asked for.
func (a *approvals) follow(ctx context.Context, t approval.Task) (f followed, err error) {
	f.Task = t
	if f.of, err = a.Store.Of(ctx, t); errors.Is(err, approval.ErrNotFound) {
		return f, accessProblem(http.StatusGone, evaluation.TaskExpired, "what this task asked for ended long ago, and nothing is left of it; ask anew where it is still wanted")
	}
	return f, approvalProblem(err)
}

// taskStatus is what an approval is to the task that asked for it: a task ends once, and
// what becomes of an approval afterwards is said when it is used. It has not ended
// before that is on record.
func taskStatus(a approval.Approval) string {
	switch {
	case a.Unrecorded:
		return string(approval.Pending)
	case a.Status == approval.UsedUp, a.Status == approval.Revoked, a.Status == approval.Expired && a.DecidedAt.Before(a.EndedAt):
		return string(approval.Approved)
	}
	return string(a.Status)
}

// status is that of the whole.
func (f followed) status() string {
	status := taskStatus(f.of[0])
	for _, one := range f.of {
		switch s := taskStatus(one); {
		case s == string(approval.Pending):
			return s
		case s != status:
			status = evaluation.TaskPartial
		}
	}
	return status
}

// handle is the task as its program is told of it.
func (a *approvals) handle(f followed) (h evaluation.TaskHandle, err error) {
	endpoint := a.server.issuerURL(f.Tenant) + broker.RequestsPath + "/" + f.ID
	h = evaluation.TaskHandle{ID: f.ID, Status: f.status(), StatusEndpoint: endpoint}
	if h.Status == string(approval.Pending) {
		h.Links = map[string]string{"cancel": endpoint + "/cancel"}
		for _, one := range f.of {
			if one.Status == approval.Pending && one.ExpiresAt.After(h.ExpiresAt) {
				h.ExpiresAt = broker.Seconds(one.ExpiresAt)
			}
		}
	}
	if !f.Bulk {
		return h, nil
	}
	for _, one := range f.of {
		item := evaluation.TaskItem{Status: taskStatus(one)}
		if item.Resource, item.Action, err = shownParts(one.Shown); err != nil {
			return h, err
		}
		if item.Result, err = a.result(one); err != nil {
			return h, err
		}
		h.Items = append(h.Items, item)
	}
	return h, nil
}

// result says how what was approved is used; nil is not approved.
func (a *approvals) result(one approval.Approval) (*evaluation.TaskResult, error) {
	if taskStatus(one) != string(approval.Approved) {
		return nil, nil
	}
	until := one.ExpiresAt
	if one.Status.Final() {
		until = one.EndedAt
	}
	state, err := a.State(one, until)
	reference := evaluation.ApprovalReference{ID: one.ID, ApprovedAt: broker.Seconds(one.DecidedAt), ApprovedUntil: broker.Seconds(until), State: state}
	return &evaluation.TaskResult{Mode: evaluation.ReevaluateMode, Approval: reference}, err
}

// answer is the whole of what there is to say of a task.
func (a *approvals) answer(f followed) (answer evaluation.TaskAnswer, err error) {
	if answer.Task, err = a.handle(f); err == nil && !f.Bulk {
		answer.Result, err = a.result(f.of[0])
	}
	return answer, err
}

// seen is a task as it is answered, whoever asks for it how often.
func (a *approvals) seen(f followed) (saw seen) {
	answer, err := a.answer(f)
	if err != nil {
		return seen{err: err}
	}
	if saw.done = answer.Task.Status != string(approval.Pending); !saw.done {
		saw.retry = strconv.Itoa(broker.RetryLater)
	}
	saw.body, saw.err = door.Marshal(answer)
	return saw
}

// tell answers with a task.
func (a *approvals) tell(c echo.Context, status int, saw seen) error {
	if saw.err != nil {
		return saw.err
	}
	if saw.retry != "" {
		c.Response().Header().Set(echo.HeaderRetryAfter, saw.retry)
	}
	c.Response().Header().Set(echo.HeaderCacheControl, "no-store")
	return c.Blob(status, echo.MIMEApplicationJSON, saw.body)
}

func shownParts(shown jsontext.Value) (resource, action jsontext.Value, err error) {
	var r struct {
		Resource jsontext.Value `json:"resource"`
		Action   jsontext.Value `json:"action"`
	}
	err = json.Unmarshal(shown, &r)
	return r.Resource, r.Action, err
}

// accessProblem is one of the profile's own.
func accessProblem(status int, name, detail string) *door.Problem {
	p := door.NewProblem(status, detail)
	p.Type = evaluation.AccessRequestProblem + name
	return p
}
