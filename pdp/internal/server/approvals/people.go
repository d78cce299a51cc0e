package approvals

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/approval/broker"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/door"
)

var inboxParameters = []string{
	"status", "order", "tenant", "template", "subject", "resource", "action", "voted", "cursor", "limit", "wait",
}

// inbox answers GET /v1/approvals: the approval requests that the caller may decide about.
func (a *Approvals) inbox(c echo.Context, r door.Admitted) error {
	q, wait, err := query(r)
	if err != nil {
		return err
	}
	return a.longPoll(c, r.Caller, question{
		wait: wait,
		has:  c.Request().Header.Values(ifNoneMatch),
		look: func(ctx context.Context) answer { return a.page(ctx, r.Caller, q) },
		of:   func(n approval.Notice) bool { return q.Tenants == nil || slices.Contains(q.Tenants, n.Tenant) },
	})
}

// page makes a page when it is the caller's turn. A page that ends before all was looked at is an answer also if it
// has no approval requests: the client goes on behind it.
func (a *Approvals) page(ctx context.Context, caller auth.Caller, q broker.Query) answer {
	t, err := a.waiting.turn(ctx, caller.Name)
	if err != nil {
		return answer{err: fmt.Errorf("%w: %w", broker.ErrNoTurn, err)}
	}
	defer t.done()
	page, err := a.Broker.Inbox(ctx, caller, q, t.GoOn)
	if err != nil {
		return answer{err: err}
	}
	got := answerOf(page, len(page.Items) > 0 || page.Next != "")
	if got.err == nil {
		got.tag = door.EntityTag(got.body)
	}
	return got
}

// allStatuses is the status of a query for approval requests in any state.
const allStatuses = "all"

// query reads which approval requests a page has, and how long to wait for them.
func query(r door.Admitted) (q broker.Query, wait time.Duration, err error) {
	given := r.Given
	q = broker.Query{
		Filter:   approval.Filter{Status: approval.Pending},
		Template: given["template"],
		Subject:  given["subject"],
		Resource: given["resource"],
		Action:   given["action"],
		Cursor:   given["cursor"],
	}
	switch status := approval.Status(given["status"]); {
	case status == "":
	case status == allStatuses:
		q.Status = ""
	case status == approval.Ended, slices.Contains(approval.Statuses(), status):
		q.Status = status
	default:
		return q, 0, door.BadParameter("status",
			"is no status; give pending, approved, denied, expired, cancelled, used_up, revoked, ended or all")
	}
	switch given["order"] {
	case "", "oldest":
	case "newest":
		q.Newest = true
	default:
		return q, 0, door.BadParameter("order", "is no order; give oldest or newest")
	}
	switch text := given["voted"]; text {
	case "":
	case "true", "false":
		voted := text == "true"
		q.Voted = &voted
	default:
		return q, 0, door.BadParameter("voted", "is neither true nor false; give one of them, or leave it out for both")
	}
	if q.Limit, err = door.PageLimit(given["limit"]); err != nil {
		return q, 0, err
	}
	if !r.Caller.AllTenants {
		q.Tenants = append([]string{}, r.Caller.Tenants...) // never nil: that would be all
	}
	if tenant := given["tenant"]; tenant != "" {
		q.Tenants = []string{}
		if r.Caller.Serves(tenant) { // else it is as if there were no tenant of that name
			q.Tenants = append(q.Tenants, tenant)
		}
	}
	wait, err = longest(given["wait"])
	return q, wait, err
}

// status answers GET /v1/approvals/:id.
func (a *Approvals) status(c echo.Context, r door.Admitted) error {
	wait, err := longest(r.Given["wait"])
	if err != nil {
		return err
	}
	id := c.Param("id")
	return a.longPoll(c, r.Caller, question{
		wait: wait,
		look: func(ctx context.Context) answer {
			seen, err := a.Broker.See(ctx, r.Caller, id)
			if err != nil {
				return answer{err: err}
			}
			return answerOf(seen.ViewOf(ctx, seen.Approval), seen.Approval.Status != approval.Pending)
		},
		of: func(n approval.Notice) bool { return n.ID == id },
	})
}

// see has a handler handle the approval request that the path names, if the caller may see it.
func (a *Approvals) see(handle func(echo.Context, door.Admitted, broker.Seen) error) handler {
	return func(c echo.Context, r door.Admitted) error {
		seen, err := a.Broker.See(c.Request().Context(), r.Caller, c.Param("id"))
		if err != nil {
			return err
		}
		return handle(c, r, seen)
	}
}

// ruling handles what an approver, or the program that asked, says about an approval request. The body is the ruling,
// in this service's own form.
func (a *Approvals) ruling(
	decode func([]byte, evaluation.Limits) (evaluation.Ruling, error),
	rule func(*broker.Seen, context.Context, evaluation.Ruling) (approval.Approval, error),
) handler {
	return a.see(func(c echo.Context, r door.Admitted, seen broker.Seen) error {
		said, err := decode(r.Body, a.Door.Options.Limits)
		if err != nil {
			return err
		}
		ruled, err := rule(&seen, c.Request().Context(), said)
		if err != nil {
			return err
		}
		return write(c, seen.ViewOf(c.Request().Context(), ruled))
	})
}

// redaction answers POST /v1/approvals/:id/redaction.
func (a *Approvals) redaction(c echo.Context, r door.Admitted) error {
	var said struct {
		Reason string `json:"reason"`
		End    bool   `json:"end"`
	}
	if err := json.Unmarshal(r.Body, &said); err != nil {
		return door.NewProblem(http.StatusBadRequest, `the body cannot be read; send {"reason": "…"}, and "end": true to end it`)
	}
	if err := door.CheckReason(said.Reason); err != nil {
		return err
	}
	done, err := a.Broker.Redact(c.Request().Context(), r.Caller, broker.Redaction{
		Approval: c.Param("id"),
		Reason:   said.Reason,
		End:      said.End,
	})
	if err != nil {
		return err
	}
	return write(c, done)
}

// why answers GET /v1/approvals/:id/why.
func (a *Approvals) why(c echo.Context, _ door.Admitted, seen broker.Seen) error {
	view := seen.Why()
	view.You = evaluation.ApprovalActs{May: []string{}, Not: []evaluation.ActRefused{}}
	for act, reason := range seen.Acts() {
		if reason == nil {
			view.You.May = append(view.You.May, string(act))
			continue
		}
		detail, err := refusal(act, reason)
		if err != nil {
			return err
		}
		view.You.Not = append(view.You.Not, evaluation.ActRefused{Decision: string(act), Detail: detail})
	}
	return write(c, view)
}

// deciders answers GET /v1/approvals/:id/deciders when it is the caller's turn.
func (a *Approvals) deciders(c echo.Context, r door.Admitted, seen broker.Seen) error {
	ctx, cancel := a.Door.Within(c)
	defer cancel()
	t, err := a.waiting.turn(ctx, r.Caller.Name)
	if err != nil {
		return fmt.Errorf("%w: %w", broker.ErrNoTurn, err)
	}
	defer t.done()
	found, err := seen.Deciders(ctx, t.GoOn)
	if err != nil {
		return err
	}
	return write(c, found)
}

// previous answers GET /v1/approvals/:id/previous with one approval request, or none.
func (a *Approvals) previous(c echo.Context, _ door.Admitted, seen broker.Seen) error {
	ctx, cancel := a.Door.Within(c)
	defer cancel()
	before, found, err := seen.Previous(ctx)
	if err != nil {
		return err
	}
	items := []evaluation.ApprovalView{}
	if found {
		items = append(items, before)
	}
	return write(c, struct {
		Items []evaluation.ApprovalView `json:"items"`
	}{items})
}

// refusal puts the reason why a caller may not do an act into words. An error of another kind is returned.
func refusal(act broker.Act, reason error) (string, error) {
	if state := (*approval.StateError)(nil); errors.As(reason, &state) {
		waits := "can be decided about"
		switch act {
		case broker.ActRevoke:
			return fmt.Sprintf("it is %s; only what is approved can be revoked", state.Status), nil
		case broker.ActCancel:
			waits = "can be cancelled"
		}
		return fmt.Sprintf("it is %s; only what is pending %s", state.Status, waits), nil
	}
	err := problem(reason)
	if p := (*door.Problem)(nil); errors.As(err, &p) {
		return p.Detail, nil
	}
	return "", err
}
