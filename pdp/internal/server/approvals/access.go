package approvals

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/approval/broker"
	"policy-service/pdp/internal/server/door"
)

// longestKey bounds an Idempotency-Key.
const longestKey = 256

// submit answers POST /access/v1/requests and the same below /tenants/:tenant: a program asks for an approval
// after a denial.
func (a *Approvals) submit(c echo.Context, r door.Admitted) error {
	submission, err := evaluation.DecodeSubmission(r.Body, r.Tenant, a.Door.Options.Limits)
	if err != nil {
		return err
	}
	key := ""
	if keys := c.Request().Header.Values("Idempotency-Key"); len(keys) > 0 {
		if key = keys[0]; len(keys) > 1 || key == "" || len(key) > longestKey {
			return door.NewProblem(http.StatusBadRequest,
				"the header Idempotency-Key is empty, given twice, or of more than "+strconv.Itoa(longestKey)+
					" bytes; send one that you can send again")
		}
	}
	ctx, cancel := a.Door.Within(c)
	defer cancel()
	t, err := a.Broker.Submit(ctx, r.Caller, r.Tenant, key, submission)
	if err != nil {
		return err
	}
	task, err := a.Broker.Answer(c.Request().Context(), t)
	if err != nil {
		return err
	}
	status := http.StatusAccepted
	if task.Task.Status != string(approval.Pending) {
		status = http.StatusCreated
	}
	c.Response().Header().Set(echo.HeaderLocation, task.Task.StatusEndpoint)
	return answerTask(task, nil).write(c, status)
}

// taskStatus answers GET /access/v1/requests/:id. A request that waits takes no place among those that are worked for.
func (a *Approvals) taskStatus(c echo.Context, r door.Admitted) error {
	wait, err := longest(r.Given["wait"])
	if err != nil {
		return err
	}
	if wait == 0 {
		if err := a.Door.Enter(c, r.Caller); err != nil {
			return err
		}
	}
	t, err := a.Broker.Task(c.Param("id"), r.Caller.Name, r.Tenant)
	if err != nil {
		return err
	}
	return a.longPoll(c, r.Caller, question{
		wait: wait,
		look: func(ctx context.Context) answer { return answerTask(a.Broker.Answer(ctx, t)) },
		of:   func(n approval.Notice) bool { return slices.Contains(t.Items, n.ID) },
	})
}

var taskParameters = []string{"after", "limit", "wait"}

// tasks answers GET /access/v1/requests: which of the caller's own tasks wait, or the changes among them since a
// cursor. Only a request with a cursor waits: without one there is always something to answer.
func (a *Approvals) tasks(c echo.Context, r door.Admitted) error {
	wait, err := longest(r.Given["wait"])
	if err != nil {
		return err
	}
	limit, err := door.PageLimit(r.Given["limit"])
	if err != nil {
		return err
	}
	after := r.Given["after"]
	return a.longPoll(c, r.Caller, question{
		wait: wait,
		look: func(ctx context.Context) answer {
			t, err := a.waiting.turn(ctx, r.Caller.Name)
			if err != nil {
				return answer{err: fmt.Errorf("%w: %w", broker.ErrNoTurn, err)}
			}
			defer t.done()
			list, err := a.Broker.Tasks(ctx, r.Caller.Name, r.Tenant, after, limit, t.GoOn)
			if err != nil {
				return answer{err: err}
			}
			got := answerOf(list, after == "" || len(list.Tasks) > 0 || list.More)
			got.fresh = true
			return got
		},
		of: func(n approval.Notice) bool { return n.Caller == r.Caller.Name && n.Tenant == r.Tenant },
	})
}

// cancelTask answers POST /access/v1/requests/:id/cancel: the caller withdraws its own access request. A task that is
// not there is refused before a body that is wrong.
func (a *Approvals) cancelTask(c echo.Context, r door.Admitted) error {
	t, err := a.Broker.Task(c.Param("id"), r.Caller.Name, r.Tenant)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	f, err := a.Broker.Follow(ctx, t)
	if err != nil {
		return err
	}
	why, err := evaluation.DecodeCancellation(r.Body, a.Door.Options.Limits)
	if err != nil {
		return err
	}
	return answerTask(a.Broker.CancelTask(ctx, f, why)).write(c, http.StatusOK)
}

// answerTask is the answer about a task, for all routes that have one. It is final once the task is not pending, says
// until then when to ask again, and belongs in no cache.
func answerTask(task evaluation.TaskAnswer, err error) answer {
	if err != nil {
		return answer{err: err}
	}
	got := answerOf(task, task.Task.Status != string(approval.Pending))
	got.fresh, got.retry = true, !got.final
	return got
}
