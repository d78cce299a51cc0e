package approvals

import (
	"cmp"
	"net/http"

	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/approval/broker"
	"policy-service/pdp/internal/server/door"
	"policy-service/pdp/mcp/wire"
)

// authorizationRequest answers GET /v1/approvals/:id/authorization-request: the error with which a gateway answers the
// call until a person has approved it.
func (a *Approvals) authorizationRequest(c echo.Context, r door.Admitted, seen broker.Seen) error {
	one := seen.Approval
	id, ok := wire.CallID(r.Given["call"], one.ID)
	if !ok {
		return door.BadParameter("call", "is no id of JSON-RPC; give a whole number, or a string in double quotes")
	}
	switch one.Status {
	case approval.Pending:
		call, err := toolCallOf(one)
		if err != nil {
			return err
		}
		return write(c, call.AuthorizationRequired(id))
	case approval.Approved, approval.UsedUp:
		return &approval.StateError{Status: one.Status, Version: one.Version}
	}
	return write(c, wire.AuthorizationDenied(id, one.ID, string(one.Status), whyNot(one)))
}

// whyNot is why a call will not happen: if a person denied it, the reason that the person gave.
func whyNot(a approval.Approval) string {
	return cmp.Or(a.WhyDenied(), map[approval.Status]string{
		approval.Expired:   "its time was up",
		approval.Cancelled: "whoever asked no longer wants it",
		approval.Revoked:   "an approver took it back",
	}[a.Status])
}

// asker makes a message that asks a person about a call.
type asker func(r door.Admitted, seen broker.Seen, call wire.Call) (wire.Message, error)

// asks answers with a message that asks a person. If a gateway fetches it for that person, it goes on record before it is
// answered.
func (a *Approvals) asks(ask asker) func(echo.Context, door.Admitted, broker.Seen) error {
	return func(c echo.Context, r door.Admitted, seen broker.Seen) error {
		call, err := pendingCall(seen.Approval)
		if err != nil {
			return err
		}
		message, err := ask(r, seen, call)
		if err != nil {
			return err
		}
		if r.Caller.Way.Gateway != "" {
			if err := a.Door.Options.Room(&r.Caller); err != nil {
				return err
			}
			if err := seen.Offer(c.Request().Context()); err != nil {
				return err
			}
		}
		return write(c, message)
	}
}

// notification makes the answer to GET /v1/approvals/:id/authorization-notification.
func (a *Approvals) notification(_ door.Admitted, _ broker.Seen, call wire.Call) (wire.Message, error) {
	return call.Notification(), nil
}

// urlForm is the name of no form: it asks for the address where the person decides.
const urlForm = "url"

// elicitation makes what GET /v1/approvals/:id/elicitation answers: a whole elicitation/create, for the MCP client of an
// approver. The person is asked in a form or at an address. The address is only for people who may decide.
func (a *Approvals) elicitation(r door.Admitted, seen broker.Seen, call wire.Call) (m wire.Message, err error) {
	if name := r.Given["form"]; name != urlForm {
		form, ok := call.Form(name, a.Door.Options.Limits.Detail)
		if !ok {
			return m, door.BadParameter("form", "is no form; give approve, choose, review or url")
		}
		return call.Elicitation(form, a.Door.Options.Now()), nil
	}
	link := a.Broker.Link(seen.Approval.ID)
	switch {
	case link == "":
		return m, door.BadParameter("form", "is url, and there is no console here; give approve, choose or review, or have the operator configure console")
	case !seen.MayDecide():
		return m, broker.ErrNoVote
	}
	return call.AtAddress(link), nil
}

// respond answers POST /v1/approvals/:id/response: an approver's ruling, as an MCP client sends it. The credential
// names the approver, and nothing in the body does.
func (a *Approvals) respond(c echo.Context, r door.Admitted, seen broker.Seen) error {
	one := seen.Approval
	answer, err := evaluation.DecodeResponse(r.Body, one.ID, a.Door.Options.Limits)
	if err != nil {
		return err
	}
	switch answer.Ruling.Decision {
	case "":
		return write(c, seen.ViewOf(c.Request().Context(), one))
	case "deny": // whatever else was filled in
	default:
		call, err := toolCallOf(one)
		if err != nil {
			return err
		}
		if call.Changed(answer.Reviewed) {
			return door.NewProblem(http.StatusConflict, "these are other arguments than those that were shown, "+
				"so nothing was approved, and the request still waits; have the call asked for again with the changed arguments")
		}
	}
	decided, err := seen.Decide(c.Request().Context(), answer.Ruling)
	if err != nil {
		return err
	}
	return write(c, seen.ViewOf(c.Request().Context(), decided))
}

// pendingCall is the call that waits for an approval.
func pendingCall(a approval.Approval) (wire.Call, error) {
	if a.Status != approval.Pending {
		return wire.Call{}, &approval.StateError{Status: a.Status, Version: a.Version}
	}
	return toolCallOf(a)
}

// toolCallOf reads an approval request as the call of a tool.
func toolCallOf(a approval.Approval) (wire.Call, error) {
	return wire.ReadCall(wire.ApprovalRequest{
		ID:           a.ID,
		Decision:     a.Decision,
		Tenant:       a.Tenant,
		Subject:      a.Subject,
		Action:       a.Action,
		Resource:     a.Resource,
		Actors:       a.Actors,
		Message:      a.Terms.Message,
		Uses:         a.Terms.Uses,
		Rounds:       a.Terms.Rounds,
		RoundsWithin: a.Terms.RoundsWithin,
		Review:       a.Terms.Review,
		Delegable:    a.Terms.Delegable,
		ExpiresAt:    a.ExpiresAt,
		Request:      a.ForPeople(),
		Unbound:      broker.Unbound(a),
	})
}
