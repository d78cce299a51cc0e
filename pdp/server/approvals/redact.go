package approvals

import (
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/labstack/echo/v4"

	"policy-service/pdp/approval/broker"
	"policy-service/pdp/server/door"
)

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
	done, err := a.Broker.Redact(a.Door.Context(c), r.Caller, broker.Redaction{
		Approval: c.Param("id"),
		Reason:   said.Reason,
		End:      said.End,
	})
	if err != nil {
		return err
	}
	return write(c, done)
}
