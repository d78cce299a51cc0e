package server

import (
	"bytes"
	"errors"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"policy-service/pdp/decisionlog"
	"policy-service/pdp/server/auth"
	"policy-service/pdp/server/door"
)

// logCheckpoint answers GET /v1/log/checkpoint.
func (s *Server) logCheckpoint(c echo.Context) error {
	a, err := s.auditor(c, door.Need{Permission: auth.LogRead, Parameters: door.NoParameters})
	if err != nil {
		return err
	}
	ctx, done, err := s.reads(c, a)
	if err != nil {
		return err
	}
	defer done()
	snapshot, err := s.signed(ctx)
	if err != nil {
		return err
	}
	checkpoint, err := snapshot.Checkpoint(ctx)
	if err != nil {
		return logProblem(err)
	}
	return c.Blob(http.StatusOK, echo.MIMETextPlainCharsetUTF8, checkpoint)
}

// logKeys answers GET /v1/log/keys.
func (s *Server) logKeys(c echo.Context) error {
	if _, err := s.auditor(c, door.Need{Permission: auth.LogRead, Parameters: door.NoParameters}); err != nil {
		return err
	}
	keys, err := decisionlog.VerifierKeys(s.config.Data)
	if err != nil {
		return err
	}
	return c.Blob(http.StatusOK, echo.MIMETextPlainCharsetUTF8, []byte(strings.Join(keys, "\n")+"\n"))
}

// rotateLogKey answers POST /v1/log/keys. The key signs for all tenants, so that one
// of them alone cannot have it changed.
func (s *Server) rotateLogKey(c echo.Context) error {
	a, err := s.auditor(c, door.Need{
		Permission: auth.LogAdmin,
		AllTenants: "this needs the permission log.admin on all tenants; ask the operator for a credential that has it",
		Parameters: door.NoParameters,
	})
	if err != nil {
		return err
	}
	key, err := s.decisions.RotateKeyAs(c.Request().Context(), a.Caller.Name)
	if err != nil {
		return logProblem(err)
	}
	return c.Blob(http.StatusOK, echo.MIMETextPlainCharsetUTF8, []byte(key+"\n"))
}

// logConsistency answers POST /v1/log/consistency, whose body is the old checkpoint.
func (s *Server) logConsistency(c echo.Context) error {
	a, err := s.auditor(c, door.Need{
		Permission: auth.LogRead,
		Parameters: door.NoParameters,
		Body:       door.AnyBody,
	})
	if err != nil {
		return err
	}
	old, err := decisionlog.ParseCheckpoint(a.Body, nil)
	if err != nil {
		return door.NewProblem(http.StatusBadRequest, "the body is no checkpoint; send one as it was given, whole and unchanged")
	}
	ctx, done, err := s.reads(c, a)
	if err != nil {
		return err
	}
	defer done()
	snapshot, err := s.signed(ctx)
	if err != nil {
		return err
	}
	var proof bytes.Buffer
	err = snapshot.Consistency(ctx, &proof, a.Body)
	switch {
	case errors.Is(err, decisionlog.ErrForked):
		return door.NewProblem(http.StatusConflict, "the checkpoint is not of this log's history; keep it, and see whether it is of this log at all: if so, the history was replaced")
	case err != nil && old.Size > 0 && !snapshot.Covers(old.Size-1):
		return door.NewProblem(http.StatusConflict, "the checkpoint covers more records than there are; keep it: the log was cut, or an older copy of it put back")
	case err != nil:
		return logProblem(err)
	}
	return c.Blob(http.StatusOK, ndjsonType, proof.Bytes())
}
