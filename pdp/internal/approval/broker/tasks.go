package broker

import (
	"context"
	"errors"

	"github.com/go-json-experiment/json"

	"policy-service/evaluation"
	"policy-service/pdp/internal/approval"
)

// Followed is a task with its approvals.
type Followed struct {
	approval.Task
	approvals []approval.Approval
}

// Task finds a task of a caller in a tenant. No caller learns whether there is a task of another.
func (b *Broker) Task(id, caller, tenant string) (approval.Task, error) {
	if err := b.available(tenant); err != nil {
		return approval.Task{}, err
	}
	t, found, err := b.Store.Task(id)
	if err == nil && (!found || t.Caller != caller || t.Tenant != tenant) {
		err = refused(evaluation.UnknownTask,
			"no such task, or none of yours; use the status_endpoint that you were given")
	}
	return t, err
}

// Follow reads the approvals of a task.
func (b *Broker) Follow(ctx context.Context, t approval.Task) (f Followed, err error) {
	f.Task = t
	if f.approvals, err = b.Store.Of(ctx, t); errors.Is(err, approval.ErrNotFound) {
		err = refused(evaluation.TaskExpired,
			"what this task asked for ended long ago, and nothing is left of it; ask anew where it is still wanted")
	}
	return f, err
}

// CancelTask cancels the approvals of a task that wait. Reason is the caller's.
func (b *Broker) CancelTask(ctx context.Context, f Followed, reason string) (answer evaluation.TaskAnswer, err error) {
	reason = b.unsecret(ctx, reason, f.approvals...)
	cancelled := false
	for _, one := range f.approvals {
		if taskStatus(one) != string(approval.Pending) {
			continue
		}
		// The caller may go away: an approval is cancelled whole or not at all.
		_, err := b.Store.Cancel(context.WithoutCancel(ctx), one.ID, 0, "", f.Caller, reason)
		var state *approval.StateError
		if err != nil && !errors.As(err, &state) {
			return answer, err
		}
		cancelled = cancelled || err == nil
	}
	if !cancelled {
		return answer, refused(evaluation.InvalidTaskState,
			"the task came to its end before; nothing of it waits any more")
	}
	return b.Answer(ctx, f.Task)
}

// taskStatus is the status of an approval in the task that asked for it. A task ends once, and what becomes of an approval
// after that is said when the approval is used. A task has not ended before its end is on record.
func taskStatus(a approval.Approval) string {
	switch {
	case a.Unrecorded:
		return string(approval.Pending)
	case a.Status == approval.UsedUp, a.Status == approval.Revoked,
		a.Status == approval.Expired && a.DecidedAt.Before(a.EndedAt):
		return string(approval.Approved)
	}
	return string(a.Status)
}

// status is the status of the whole task.
func (f *Followed) status() string {
	status := taskStatus(f.approvals[0])
	for _, one := range f.approvals {
		switch s := taskStatus(one); {
		case s == string(approval.Pending):
			return s
		case s != status:
			status = evaluation.TaskPartial
		}
	}
	return status
}

// Answer is a task as its program is answered.
func (b *Broker) Answer(ctx context.Context, t approval.Task) (answer evaluation.TaskAnswer, err error) {
	f, err := b.Follow(ctx, t)
	if err != nil {
		return answer, err
	}
	return b.answer(f)
}

func (b *Broker) answer(f Followed) (answer evaluation.TaskAnswer, err error) {
	if answer.Task, err = b.handle(f); err == nil && !f.Bulk {
		answer.Result, err = b.result(f.approvals[0])
	}
	return answer, err
}

func (b *Broker) statusEndpoint(t approval.Task) string {
	return b.options.IssuerURL(t.Tenant) + RequestsPath + "/" + t.ID
}

func (b *Broker) handle(f Followed) (h evaluation.TaskHandle, err error) {
	endpoint := b.statusEndpoint(f.Task)
	h = evaluation.TaskHandle{ID: f.ID, Status: f.status(), StatusEndpoint: endpoint}
	pending := h.Status == string(approval.Pending)
	if pending {
		h.Links = map[string]string{"cancel": endpoint + "/cancel"}
	}
	for n, one := range f.approvals {
		if pending && one.Status == approval.Pending && one.ExpiresAt.After(h.ExpiresAt) {
			h.ExpiresAt = seconds(one.ExpiresAt)
		}
		status := taskStatus(one)
		if !pending && status == string(approval.Approved) {
			continue // its result has its id
		}
		named := evaluation.TaskApproval{ID: one.ID}
		if f.Bulk {
			named.Item = &n
		}
		if status == string(approval.Denied) {
			named.Reason = one.WhyDenied()
		}
		h.Approvals = append(h.Approvals, named)
	}
	if !f.Bulk {
		return h, nil
	}
	for _, one := range f.approvals {
		var item evaluation.TaskItem
		if one.RedactedAt.IsZero() {
			err = json.Unmarshal(one.Shown, &item) // its resource and its action
		}
		if err != nil {
			return h, err
		}
		item.Status = taskStatus(one)
		if item.Result, err = b.result(one); err != nil {
			return h, err
		}
		h.Items = append(h.Items, item)
	}
	return h, nil
}

// result says how an approval is used, nil if the approval was not given.
func (b *Broker) result(one approval.Approval) (*evaluation.TaskResult, error) {
	if taskStatus(one) != string(approval.Approved) {
		return nil, nil
	}
	until := one.ExpiresAt
	if one.Status.Final() {
		until = one.EndedAt
	}
	state, err := b.state(one, until)
	return &evaluation.TaskResult{
		Mode: evaluation.ReevaluateMode,
		Approval: evaluation.ApprovalReference{
			ID:            one.ID,
			ApprovedAt:    seconds(one.DecidedAt),
			ApprovedUntil: seconds(until),
			State:         state,
		},
	}, err
}
