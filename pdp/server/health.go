package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"policy-service/pdp"
	"policy-service/pdp/decisionlog"
	"policy-service/pdp/server/auth"
	"policy-service/pdp/server/door"
	"policy-service/pdp/server/telemetry"
)

// readiness is the body of /readyz. An outsider's monitoring reads it: members
// may be added, never renamed.
type readiness struct {
	Status  string        `json:"status"`
	Bundle  *bundleState  `json:"bundle"`
	Refused *refusedState `json:"refused"`
	// Log is null where there is none.
	Log *logReadiness `json:"log"`
}

// refusedState is what was refused, as far as it is told.
type refusedState struct {
	At       time.Time    `json:"at"`
	Problems pdp.Problems `json:"problems"`
	// More is how many problems more there are.
	More int `json:"more,omitzero"`
}

// mostProblems are told at once, in the log and in /readyz: the tenants together may have
// made many, and each is a line.
const mostProblems = 100

func firstOf(problems pdp.Problems) (first pdp.Problems, more int) {
	first = problems[:min(len(problems), mostProblems)]
	return first, len(problems) - len(first)
}

type bundleState struct {
	Digest   string    `json:"digest"`
	LoadedAt time.Time `json:"loaded_at"`
	Later    []string  `json:"later,omitzero"`
}

// livez says that the process runs and answers, nothing about what it answers.
func (s *Server) livez(c echo.Context) error {
	if _, err := s.healthProber(c); err != nil {
		return err
	}
	return c.Blob(http.StatusOK, "application/json", []byte(`{"status":"ok"}`))
}

// readyz says whether to send requests here: not while stopping, nor without a
// bundle; but an old bundle that answers is better than none, so a refused load
// leaves it 200.
func (s *Server) readyz(c echo.Context) error {
	caller, err := s.healthProber(c)
	if err != nil {
		return err
	}
	code, state := s.readiness()
	var body []byte
	if caller.AllTenants && caller.May(auth.Explain) {
		body, err = door.Marshal(state)
	} else { // digests and file names are no stranger's business
		body, err = door.Marshal(struct {
			Status string `json:"status"`
		}{state.Status})
	}
	if err != nil {
		return err
	}
	return c.Blob(code, "application/json", body)
}

func (s *Server) readiness() (int, readiness) {
	if s.pdp.Bundle() == nil {
		return http.StatusServiceUnavailable, readiness{Status: "unavailable"}
	}
	status := s.pdp.Status()
	state := readiness{Status: "ready", Bundle: &bundleState{status.Digest, status.LoadedAt.UTC(), s.pdp.Later()}}
	if r := status.Refused; r != nil {
		state.Status = "degraded"
		first, more := firstOf(r.Problems)
		state.Refused = &refusedState{r.At.UTC(), first, more}
	}
	state.Log = s.logReadiness()
	if state.Log != nil && (!state.Log.OK || state.Log.Altered > 0) {
		state.Status = "degraded"
	}
	if s.door.Stopping.Load() || state.Log != nil && (state.Log.Full || !state.Log.OK && state.Log.Mode != decisionlog.BestEffort) {
		state.Status = "unavailable"
		return http.StatusServiceUnavailable, state
	}
	return http.StatusOK, state
}

// healthProber is the caller of a request about health. A proxy sends one, too, before it sends any other here.
func (s *Server) healthProber(c echo.Context) (auth.Caller, error) {
	caller, err := s.door.Recognize(c)
	if errors.Is(err, auth.ErrForwarded) {
		return auth.Caller{}, nil
	}
	return caller, err
}

// loaded logs the outcome of every load after the first.
func (s *Server) loaded(status pdp.Status) {
	if r := status.Refused; r != nil {
		s.telemetry.Loads.Count(context.Background(), telemetry.Refused)
		s.log.Error("bundle refused; the one before it stays in force", "in_force", status.Digest, "problems", len(r.Problems))
		first, more := firstOf(r.Problems)
		for _, p := range first {
			s.log.Error(p.String())
		}
		if more > 0 {
			s.log.Error("more problems than these were found; policy-service check tells of them", "more", more)
		}
		if s.events != nil {
			s.events.Soon(refusedEvent(status.Digest, r.Problems))
		}
	} else {
		s.telemetry.Loads.Count(context.Background(), telemetry.Loaded)
		s.log.Info("bundle in force", "digest", status.Digest)
	}
	if s.config.Program.PDP.OnLoad != nil {
		s.config.Program.PDP.OnLoad(status)
	}
}
