package audit

import (
	"bytes"
	"errors"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"policy-service/pdp/internal/decisionlog/export"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/server/door"
)

// logCheckpoint answers GET /v1/log/checkpoint.
func (a *Audit) logCheckpoint(c echo.Context, who auditor) error {
	ctx, done, err := a.reads(c, who)
	if err != nil {
		return err
	}
	defer done()
	newest, err := a.checkpoint(ctx)
	if err != nil {
		return err
	}
	return c.Blob(http.StatusOK, echo.MIMETextPlainCharsetUTF8, newest)
}

// logKeys answers GET /v1/log/keys: the public keys, a line each, with which an auditor verifies the signatures of
// checkpoints.
func (a *Audit) logKeys(c echo.Context, _ auditor) error {
	keys, err := segment.VerifierKeys(a.Data)
	if err != nil {
		return err
	}
	return c.Blob(http.StatusOK, echo.MIMETextPlainCharsetUTF8, []byte(strings.Join(keys, "\n")+"\n"))
}

// anyway is the parameter that has the key rotated though witnesses may not know the new one.
const anyway = "anyway"

// rotateLogKey answers POST /v1/log/keys. A witness ignores the signatures of keys that it does not know, so nothing that
// it cosigned says whether it knows the new key: the operator has to.
func (a *Audit) rotateLogKey(c echo.Context, who auditor) error {
	switch given := c.QueryParam(anyway); {
	case given != "" && given != "true":
		return door.NewProblem(http.StatusBadRequest, "the parameter anyway is true, or not there")
	case a.Witnessed && given == "":
		return door.NewProblem(http.StatusConflict,
			"decision_log.witnesses.required is set: once witnesses that do not know the new key are missing for longer than patience, "+
				"nothing is answered; set required to false and restart, or ask with ?anyway=true (log key rotate --anyway) and have each witness add the new key at once")
	}
	key, err := a.Log.RotateKey(c.Request().Context(), who.Caller.Name)
	if err != nil {
		return logProblem(err)
	}
	return c.Blob(http.StatusOK, echo.MIMETextPlainCharsetUTF8, []byte(key+"\n"))
}

// logConsistency answers POST /v1/log/consistency, whose body is the old checkpoint.
func (a *Audit) logConsistency(c echo.Context, who auditor) error {
	old, err := segment.ParseCheckpoint(who.Body, nil)
	if err != nil {
		return door.NewProblem(http.StatusBadRequest,
			"the body is no checkpoint; send one as it was given, whole and unchanged")
	}
	ctx, done, err := a.reads(c, who)
	if err != nil {
		return err
	}
	defer done()
	snapshot, err := a.signed(ctx)
	if err != nil {
		return err
	}
	var proof bytes.Buffer
	err = export.Log{Snapshot: snapshot}.Consistency(ctx, &proof, who.Body)
	switch {
	case errors.Is(err, segment.ErrForked):
		return door.NewProblem(http.StatusConflict,
			"the checkpoint is not of this log's history; keep it, and see whether it is of this log at all: if "+
				"so, the history was replaced")
	case err != nil && old.Size > 0 && !snapshot.Covers(old.Size-1):
		return door.NewProblem(http.StatusConflict,
			"the checkpoint covers more records than there are; keep it: the log was cut, or an older copy of it "+
				"put back")
	case err != nil:
		return logProblem(err)
	}
	return c.Blob(http.StatusOK, ndjsonType, proof.Bytes())
}
