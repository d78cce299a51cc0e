package audit

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"policy-service/pdp/decisionlog"
	"policy-service/pdp/server/door"
)

// auditor is an admitted request about the decision log, and whose records its caller sees. All other records are
// answered as if they did not exist.
type auditor struct {
	door.Admitted
	tenants []string // nil is all, and the records of no tenant
}

// handler handles the request of an auditor that was let in.
type handler func(echo.Context, auditor) error

// admit lets an auditor in and handles the request. The need says what the route needs besides a log.
func (a *Audit) admit(need door.Need, handle handler) echo.HandlerFunc {
	return func(c echo.Context) error {
		need := need
		if a.Log == nil {
			need.Absent = door.NewProblem(http.StatusNotFound,
				"no decision log is kept here; the operator gives the server a data directory with --data")
		}
		admitted, err := a.Door.Admit(c, need)
		if err != nil {
			return err
		}
		who := auditor{Admitted: admitted}
		if !who.Caller.AllTenants {
			who.tenants = append([]string{}, who.Caller.Tenants...) // never nil: that would be all
		}
		return handle(c, who)
	}
}

// sees reports whether a record is there for the auditor.
func (who auditor) sees(line []byte) (bool, error) {
	return decisionlog.Filter{Tenants: who.tenants}.Matches(line)
}

// record finds a record by its id, also one that no checkpoint covers yet.
func (a *Audit) record(who auditor, id string) (decisionlog.Record, error) {
	record, err := a.Log.ByID(id)
	if errors.Is(err, decisionlog.ErrGone) && who.tenants != nil {
		return record, noSuchRecord() // the tenant is gone with the content
	}
	if err != nil {
		return record, logProblem(err)
	}
	sees, err := who.sees(record.Line)
	if err == nil && !sees {
		err = noSuchRecord()
	}
	return record, err
}

// signed is the log up to a checkpoint that covers every record. If no checkpoint can be made, as while the disk
// fails, it is the log up to the newest checkpoint.
func (a *Audit) signed(ctx context.Context) (*decisionlog.Snapshot, error) {
	a.sign(ctx)
	snapshot, err := a.Log.Snapshot()
	return snapshot, checkpointProblem(err)
}

// checkpointProblem is the problem of an error of a snapshot. The log may have no checkpoint at all.
func checkpointProblem(err error) error {
	if errors.Is(err, decisionlog.ErrNotFound) {
		return door.NewProblem(http.StatusServiceUnavailable,
			"there is no checkpoint yet, and none can be made at the moment; ask again later")
	}
	return logProblem(err)
}

func (a *Audit) sign(ctx context.Context) {
	if last, err := a.Log.LastCheckpoint(); err != nil || last.Size < a.Log.Size() {
		_, _ = a.Log.Checkpoint(ctx)
	}
}

func noSuchRecord() *door.Problem {
	return door.NewProblem(http.StatusNotFound,
		"no such record, or none of yours; GET /v1/decisions lists those there are")
}

// logProblem is the problem of an error of the log. The text of the error stays inside: it may quote a request, or a
// record of another tenant.
func logProblem(err error) error {
	switch {
	case errors.Is(err, decisionlog.ErrNotFound):
		return noSuchRecord()
	case errors.Is(err, decisionlog.ErrGone):
		return door.NewProblem(http.StatusGone,
			"the content of this record was removed, and its hash is left; GET /v1/log/stats says where and why, "+
				"and an earlier export may hold it")
	case errors.Is(err, decisionlog.ErrNotRedactable):
		return door.NewProblem(http.StatusConflict,
			"an administrative record cannot be redacted; it says what was done to the log, and stays")
	case errors.Is(err, decisionlog.ErrNoSuchCursor):
		return door.NewProblem(http.StatusBadRequest,
			"the parameter cursor is beyond the end of the log: it belongs to another log, or to one that was "+
				"rolled back; begin without it")
	case errors.Is(err, decisionlog.ErrUnavailable), errors.Is(err, decisionlog.ErrClosed):
		return door.NewProblem(http.StatusServiceUnavailable,
			"this part of the decision log is not to be had at the moment; ask again later")
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, door.ErrBusy):
		return door.NewProblem(http.StatusServiceUnavailable, "there was no time to answer; ask again later")
	}
	return err
}

// filterNames are the parameters that pick records.
var filterNames = []string{
	"from", "to", "tenant", "kind", "decision", "subject", "resource", "action", "policy", "event", "of", "approval",
}

// filter picks, by the parameters, from the records that the auditor sees.
func (who auditor) filter() (f decisionlog.Filter, err error) {
	f = decisionlog.Filter{
		Tenants:  who.tenants,
		Tenant:   who.Given["tenant"],
		Kind:     who.Given["kind"],
		Decision: who.Given["decision"],
		Subject:  who.Given["subject"],
		Resource: who.Given["resource"],
		Action:   who.Given["action"],
		Policy:   who.Given["policy"],
		Event:    who.Given["event"],
		Of:       who.Given["of"],
		Approval: who.Given["approval"],
	}
	if d := f.Decision; d != "" && d != "allow" && d != "deny" {
		return f, door.BadParameter("decision", "is neither allow nor deny; give one of them")
	}
	f.From, f.To, err = times(who.Given)
	return f, err
}

// times reads the parameters from and to.
func times(given map[string]string) (from, to time.Time, err error) {
	if from, err = moment(given, "from"); err != nil {
		return from, to, err
	}
	if to, err = moment(given, "to"); err != nil {
		return from, to, err
	}
	if (decisionlog.Filter{From: from, To: to}).Check() != nil {
		err = door.BadParameter("from", "is not before to; nothing is at or after the one and before the other")
	}
	return from, to, err
}

func moment(given map[string]string, name string) (time.Time, error) {
	if given[name] == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, given[name])
	if err != nil {
		return at, door.BadParameter(name,
			"is no time; write it like 2026-01-02T15:04:05Z, and the + of a time zone as %2B")
	}
	return at.UTC(), nil
}
