package audit

import (
	"bufio"
	"context"
	"io"
	"net/http"

	"github.com/labstack/echo/v4"

	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/door"
)

// needsBackup is all that a backup asks of its caller: it holds the data of all tenants.
var needsBackup = door.Need{
	Permission: auth.Backup,
	AllTenants: "this needs the permission backup on all tenants; ask the operator for a credential that has it",
	Parameters: []string{"keys"},
}

// logBackup answers GET /v1/backup. The backup is of the moment of the request. It is sent as fast as its reader takes it.
func (a *Audit) logBackup(c echo.Context, who auditor) error {
	keys := false
	switch who.Given["keys"] {
	case "", "false":
	case "true":
		keys = true
	default:
		return door.BadParameter("keys", "is neither true nor false; give one of them")
	}
	w, leave, err := a.readsAll(c, who)
	if err != nil {
		return err
	}
	defer leave()
	write, done, err := a.Backup(w.ctx, who.Caller.Name, keys)
	if err != nil {
		a.Door.Options.Log.WarnContext(a.Door.Options.LogContext(c.Request()), "no backup could be made", "request_id", door.RequestID(c), "error", err)
		return door.NewProblem(http.StatusServiceUnavailable, "no backup can be made at the moment; see the service's log, and ask again later")
	}
	defer done()
	c.Response().Header().Set(echo.HeaderContentType, "application/x-tar")
	pieces := bufio.NewWriterSize(w, ExportPiece)
	if err = write(pieces); err == nil {
		err = pieces.Flush()
	}
	if err != nil {
		return a.cutOff(c, err)
	}
	return nil
}

// backUp makes a backup with all that it takes open, and writes it later, until done.
type backUp func(ctx context.Context, caller string, keys bool) (write func(io.Writer) error, done func(), err error)
