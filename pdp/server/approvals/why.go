package approvals

import (
	"errors"
	"fmt"

	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/pdp/approval"
	"policy-service/pdp/approval/broker"
	"policy-service/pdp/server/door"
)

// why answers GET /v1/approvals/:id/why.
func (a *Approvals) why(c echo.Context, _ door.Admitted, seen broker.Seen) error {
	view, you := seen.Why(), seen.You()
	view.You = evaluation.ApprovalActs{May: []string{}, Not: []evaluation.ActRefused{}}
	for _, act := range you.May {
		view.You.May = append(view.You.May, string(act))
	}
	for _, not := range you.Not {
		detail, err := refusal(not)
		if err != nil {
			return err
		}
		view.You.Not = append(view.You.Not, evaluation.ActRefused{Decision: string(not.Act), Detail: detail})
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

// refusal says in words why a caller may not do something. What is no reason of that kind is an error.
func refusal(not broker.Refused) (string, error) {
	if state := (*approval.StateError)(nil); errors.As(not.Err, &state) {
		waits := "can be decided about"
		switch not.Act {
		case broker.ActRevoke:
			return fmt.Sprintf("it is %s; only what is approved can be revoked", state.Status), nil
		case broker.ActCancel:
			waits = "can be cancelled"
		}
		return fmt.Sprintf("it is %s; only what is pending %s", state.Status, waits), nil
	}
	err := problem(not.Err)
	if p := (*door.Problem)(nil); errors.As(err, &p) {
		return p.Detail, nil
	}
	return "", err
}
