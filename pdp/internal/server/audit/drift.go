package audit

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/door"
	"policy-service/pdp/internal/server/telemetry"
)

// ErrDrift is the error of a drift that may not be on record.
var ErrDrift = errors.New("the drift could not be recorded")

// toolDrift answers POST /v1/tools/drift: a gateway found a tool that differs from the lock. The record has the body as
// sent, for the tenant of the path, and changes nothing. No mask applies to names and digests: a masker would take a tool
// called reset_password for a secret.
//
// In best effort it waits for the write as well: no later record says that this one was dropped.
func (a *Audit) toolDrift(c echo.Context) error {
	need := door.Need{
		Permission: auth.Decide,
		Tenant:     true,
		Records:    true,
		Parameters: door.NoParameters,
		Body:       door.JSON,
		Work:       door.ShortWork,
	}
	if a.Log == nil {
		need.Absent = door.NewProblem(http.StatusNotFound,
			"no decision log is kept here, so what becomes of tools is not recorded; the operator can give the service a "+
				"data directory")
	}
	who, err := a.Door.Admit(c, need)
	if err != nil {
		return err
	}
	drift, err := evaluation.DecodeDrift(who.Body, a.Door.Options.Limits)
	if err != nil {
		return err
	}
	details, err := door.Marshal(drift)
	if err != nil {
		return err
	}
	ctx := context.WithoutCancel(c.Request().Context()) // a caller that leaves cannot stop a record halfway
	entry := record.Entry{
		Kind:      format.KindAdmin,
		Tenant:    who.Tenant,
		Caller:    who.Caller.Name,
		RequestID: door.RequestID(c),
		TraceID:   telemetry.TraceID(ctx, c.Request().Header),
		Event:     format.EventToolDrift,
		Details:   details,
	}
	if err := a.Log.Append(ctx, []record.Entry{entry}); err != nil {
		return fmt.Errorf("%w: %w", ErrDrift, err)
	}
	return c.NoContent(http.StatusNoContent)
}
