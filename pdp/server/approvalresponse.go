package server

import (
	"bytes"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/pdp/server/auth"
	"policy-service/pdp/server/door"
)

// respondApproval answers POST /v1/approvals/:id/response: an approver's word, as an MCP
// client sends it. Who that is the credential says, and nothing in the body.
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
		if changed(answer.Reviewed, call.arguments) {
			return door.NewProblem(http.StatusConflict, "these are other arguments than those that were shown, so nothing was approved, and the request still waits; have the call asked for again with the changed arguments")
		}
	}
	r.said, r.via = answer.Ruling, "mcp"
	return s.decide(c, &r)
}

// changed reports whether what somebody reviewed are other arguments than those that
// were shown. A form that has one argument has all: one that does not come back was
// taken out.
func changed(reviewed, shown evaluation.Object) bool {
	came := 0
	for name, value := range reviewed.Members {
		if name == "arguments" {
			if !equal(value, shown.Value()) {
				return true
			}
			continue
		}
		argument, ofForm := strings.CutPrefix(name, evaluation.ArgumentPrefix)
		was, known := shown.Get(argument)
		switch {
		case !known && !ofForm: // none of ours
		case !known, !equal(value, was) && !equal(value, offered(was)):
			return true
		case ofForm:
			came++
		}
	}
	return came > 0 && came < shown.Len()
}

// equal reports whether two values are one, however they are written.
func equal(v, w evaluation.Value) bool {
	one, ok1 := v.AppendCanonical(nil)
	other, ok2 := w.AppendCanonical(nil)
	return ok1 && ok2 && bytes.Equal(one, other)
}
