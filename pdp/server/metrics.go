package server

import (
	"net/http"

	"github.com/labstack/echo/v4"
)

// metricsPath is where Prometheus looks.
const metricsPath = "/metrics"

// metrics answers GET /metrics. It is about all tenants, so who may see it is who may see
// the details of /readyz.
func (s *Server) metrics(c echo.Context) error {
	caller, err := s.authenticate(c)
	if err != nil {
		return err
	}
	if !caller.AllTenants {
		return newProblem(http.StatusForbidden, "metrics are of all tenants; ask the operator for a credential that is for all")
	}
	if err := need(caller, Explain); err != nil {
		return err
	}
	if err := s.pace(c, caller); err != nil {
		return err
	}
	if s.scrape == nil {
		return newProblem(http.StatusNotFound, "the program that this service is part of takes its metrics; ask that")
	}
	s.scrape.ServeHTTP(c.Response(), c.Request())
	return nil
}
