package server

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"policy-service/pdp/approval"
	"policy-service/pdp/approval/broker"
	"policy-service/pdp/mcp/wire"
	"policy-service/pdp/server/door"
)

// authorizationRequest answers GET /v1/approvals/:id/authorization-request: what a gateway
// answers the call with until a person has approved it.
func (s *Server) authorizationRequest(c echo.Context) error {
	a, given, err := s.asked(c, []string{"call"})
	if err != nil {
		return err
	}
	id, ok := wire.CallID(given["call"], a.ID)
	if !ok {
		return door.BadParameter("call", "is no id of JSON-RPC; give a whole number, or a string in double quotes")
	}
	switch a.Status {
	case approval.Pending:
		call, err := toolCallOf(a)
		if err != nil {
			return err
		}
		return send(c, call.AuthorizationRequired(id))
	case approval.Approved, approval.UsedUp:
		return otherState(a)
	}
	return send(c, wire.AuthorizationDenied(id, a.ID, string(a.Status), whyNot(a)))
}

// whyNot is why a call will not happen: if a person denied it, the reason that the person gave.
func whyNot(a approval.Approval) string {
	if a.Status == approval.Denied {
		return a.Votes[len(a.Votes)-1].Reason
	}
	return map[approval.Status]string{
		approval.Expired:   "its time was up",
		approval.Cancelled: "whoever asked no longer wants it",
		approval.Revoked:   "an approver took it back",
	}[a.Status]
}

// authorizationNotification answers GET /v1/approvals/:id/authorization-notification.
func (s *Server) authorizationNotification(c echo.Context) error {
	call, _, err := s.pendingCall(c, door.NoParameters)
	if err != nil {
		return err
	}
	return send(c, call.Notification())
}

// elicitation answers GET /v1/approvals/:id/elicitation: a whole elicitation/create, for
// the MCP client of an approver.
func (s *Server) elicitation(c echo.Context) error {
	call, given, err := s.pendingCall(c, []string{"form"})
	if err != nil {
		return err
	}
	form, ok := call.Form(given["form"], s.config.Program.Limits.Detail)
	if !ok {
		return door.BadParameter("form", "is no form; give approve, choose or review")
	}
	return send(c, call.Elicitation(form, s.now()))
}

// pendingCall is the call that waits for the approval that a request names.
func (s *Server) pendingCall(c echo.Context, known []string) (call wire.Call, given map[string]string, err error) {
	a, given, err := s.asked(c, known)
	if err != nil {
		return call, nil, err
	}
	if a.Status != approval.Pending {
		return call, nil, otherState(a)
	}
	call, err = toolCallOf(a)
	return call, given, err
}

// asked is the approval request that a request names, if the caller may see it.
func (s *Server) asked(c echo.Context, known []string) (a approval.Approval, given map[string]string, err error) {
	v, err := s.approver(c, door.Need{Parameters: known})
	if err != nil {
		return a, nil, err
	}
	if a, _, err = v.find(c.Request().Context(), c.Param("id")); err != nil {
		return a, nil, approvalProblem(err)
	}
	return a, v.Given, nil
}

func otherState(a approval.Approval) error {
	return approvalProblem(&approval.StateError{Status: a.Status, Version: a.Version})
}

func send(c echo.Context, m wire.Message) error {
	body, err := door.Marshal(m)
	if err != nil {
		return err
	}
	return c.Blob(http.StatusOK, echo.MIMEApplicationJSON, body)
}

// toolCallOf reads an approval request as the call of a tool.
func toolCallOf(a approval.Approval) (wire.Call, error) {
	return wire.ReadCall(wire.ApprovalRequest{
		ID:        a.ID,
		Decision:  a.Decision,
		Tenant:    a.Tenant,
		Subject:   a.Subject,
		Action:    a.Action,
		Resource:  a.Resource,
		Agent:     a.Agent,
		Chain:     a.Chain,
		Message:   a.Terms.Message,
		Uses:      a.Terms.Uses,
		ExpiresAt: a.ExpiresAt,
		Request:   a.Shown,
		Unbound:   broker.Unbound(a),
	})
}
