package server

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"policy-service/pdp/server/auth"
	"policy-service/pdp/server/door"
)

// metricsPath is where Prometheus looks.
const metricsPath = "/metrics"

// metrics answers GET /metrics. It is about all tenants, so who may see it is who may see
// the details of /readyz.
func (s *Server) metrics(c echo.Context) error {
	need := door.Need{
		Permission: auth.Explain,
		AllTenants: "metrics are of all tenants; ask the operator for a credential that is for all",
	}
	if s.telemetry.Scrape == nil {
		need.Absent = door.NewProblem(http.StatusNotFound, "the program that this service is part of takes its metrics; ask that")
	}
	if _, err := s.door.Admit(c, need); err != nil {
		return err
	}
	s.telemetry.Scrape.ServeHTTP(c.Response(), c.Request())
	return nil
}
