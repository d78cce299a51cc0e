package server

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/pdp/server/auth"
	"policy-service/pdp/server/door"
)

// respondApproval answers POST /v1/approvals/:id/response: an approver's ruling, as an MCP
// client sends it. The credential names the approver, and nothing in the body does.
func (s *Server) respondApproval(c echo.Context) error {
	r, err := s.admitRuling(c, auth.Approve)
	if err != nil {
		return err
	}
	answer, err := evaluation.DecodeResponse(r.Body, r.of.ID, s.config.Program.Limits)
	if err != nil {
		return err
	}
	switch answer.Ruling.Decision {
	case "":
		return showApproval(c, r.of)
	case "deny": // whatever else was filled in
	default:
		call, err := toolCallOf(r.of)
		if err != nil {
			return err
		}
		if call.Changed(answer.Reviewed) {
			return door.NewProblem(http.StatusConflict, "these are other arguments than those that were shown, "+
				"so nothing was approved, and the request still waits; have the call asked for again with the changed arguments")
		}
	}
	r.said, r.via = answer.Ruling, "mcp"
	return s.decide(c, &r)
}
