package server

import (
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/cluster"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/server/audit"
	"policy-service/pdp/internal/server/door"
)

// TenantUnavailable is the type of a [door.Problem]: the files of the tenant do not load, and nothing of them is in force.
const TenantUnavailable = "urn:policy-service:tenant_unavailable"

// explain is [door.Options.Explain]: what errors of routing, of the PDP and of the log are to the outside.
func explain(err error, shape evaluation.Shape) *door.Problem {
	var routing *echo.HTTPError
	var none *decisionlog.RoomError
	switch {
	case errors.As(err, &routing) && routing.Code == http.StatusNotFound:
		return door.NewProblem(http.StatusNotFound, "nothing is served here; try POST /access/v1/evaluation, POST /v1/authorize, GET /readyz or GET /livez; GET /openapi.yaml has every path, GET /.well-known/authzen-configuration those of AuthZEN")
	case errors.As(err, &none):
		return noRoom(none)
	case errors.Is(err, pdp.ErrUnknownTenant):
		return door.UnknownTenant(shape)
	case errors.Is(err, pdp.ErrTenantUnavailable):
		p := door.NewProblem(http.StatusServiceUnavailable,
			"the policies of this tenant do not load, so nothing is decided in it; have their author run policy-service check, which names the errors, as /readyz does")
		p.Type, p.Undecided = TenantUnavailable, "tenant"
		return p
	case errors.Is(err, pdp.ErrNoBundle):
		p := door.NewProblem(http.StatusServiceUnavailable, "no bundle is loaded; see /readyz")
		p.Undecided = "bundle"
		return p
	case errors.Is(err, pdp.ErrUnsettled) && errors.Is(err, approval.ErrWithdrawn):
		p := unrecorded(err, "the use of an approval or a capability that the answer hangs on was given back before it was settled, as it is where two processes run under one name, so there is no answer; ask again, and have the operator see that one process runs for each data directory")
		p.Undecided = "state"
		return p
	case errors.Is(err, pdp.ErrUnsettled):
		p := unrecorded(err, "the use of an approval or a capability that the answer hangs on could not be settled, so there is no answer; ask again later: if the use turns out to count, ask for another approval or capability")
		p.Undecided = "state"
		return p
	case errors.Is(err, pdp.ErrNotRecorded) && errors.Is(err, cluster.ErrState):
		p := unrecorded(err, "the approvals and capabilities in etcd cannot be used now, so what needs them is not decided; ask again later, or ask another replica")
		p.Undecided = "state"
		return p
	case errors.Is(err, pdp.ErrNotRecorded) && errors.Is(err, approval.ErrUnrecorded):
		p := unrecorded(err, "a use or a vote of the same approval or capability is not on the log of its replica yet, so what needs it is not decided; ask again in a moment")
		p.Undecided = "state"
		return p
	case errors.Is(err, pdp.ErrNotRecorded):
		return unrecorded(err, "the decision could not be recorded, so there is none; ask again later")
	case errors.Is(err, audit.ErrReceipt):
		return unrecorded(err, "the receipt may not be on record; send it again later, and 409 says that it was")
	case errors.Is(err, audit.ErrDrift):
		return unrecorded(err, "the drift may not be on record; send it again later with the same X-Request-ID, by which two records of one drift are known")
	}
	return nil
}

// unrecorded is a failure of the decision log. Its error quotes no request, and the operator needs the whole of it.
func unrecorded(err error, detail string) *door.Problem {
	p := door.NewProblem(http.StatusServiceUnavailable, detail)
	p.Cause, p.Undecided = err.Error(), "log"
	return p
}
