package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"policy-service/pdp/decisionlog"
)

// auditor is who asks about the decision log, and whose records there are for them.
// Everything else is answered like what does not exist.
type auditor struct {
	caller Caller
	// tenants are those whose records they see; nil is all, and those of no tenant.
	tenants []string
}

// auditor does what comes before anything of a request about the log is looked at.
func (s *Server) auditor(c echo.Context, p Permission) (auditor, error) {
	caller, err := s.authenticate(c)
	if err != nil {
		return auditor{}, err
	}
	if err := need(caller, p); err != nil {
		return auditor{}, err
	}
	if s.decisions == nil {
		return auditor{}, newProblem(http.StatusNotFound, "no decision log is kept here; the operator gives the server a data directory with --data")
	}
	if err := s.pace(c, caller); err != nil {
		return auditor{}, err
	}
	a := auditor{caller: caller}
	if !caller.AllTenants {
		a.tenants = append([]string{}, caller.Tenants...) // never nil: that would be all
	}
	return a, nil
}

// sees reports whether a record is there for the auditor.
func (a auditor) sees(line []byte) (bool, error) {
	return decisionlog.Filter{Tenants: a.tenants}.Matches(line)
}

// record finds a record by its id, also one that no checkpoint covers yet.
func (s *Server) record(a auditor, id string) (decisionlog.Record, error) {
	record, err := s.decisions.ByID(id)
	if errors.Is(err, decisionlog.ErrGone) && a.tenants != nil {
		return record, noSuchRecord() // whose it was nobody knows any more
	}
	if err != nil {
		return record, logProblem(err)
	}
	sees, err := a.sees(record.Line)
	if err == nil && !sees {
		err = noSuchRecord()
	}
	return record, err
}

// signed is the log up to a checkpoint that covers all there is now. Where none can
// be made, as while the disk fails, it is the log up to the newest there is.
func (s *Server) signed(ctx context.Context) (*decisionlog.Snapshot, error) {
	s.sign(ctx)
	snapshot, err := s.decisions.Snapshot()
	return snapshot, checkpointProblem(err)
}

// checkpointProblem is about a log that could not be signed for even once.
func checkpointProblem(err error) error {
	if errors.Is(err, decisionlog.ErrNotFound) {
		return newProblem(http.StatusServiceUnavailable, "there is no checkpoint yet, and none can be made at the moment; ask again later")
	}
	return logProblem(err)
}

func (s *Server) sign(ctx context.Context) {
	if last, err := s.decisions.LastCheckpoint(); err != nil || last.Size < s.decisions.Size() {
		_, _ = s.decisions.Checkpoint(ctx)
	}
}

func noSuchRecord() *Problem {
	return newProblem(http.StatusNotFound, "no such record, or none of yours; GET /v1/decisions lists those there are")
}

// logProblem says what an error of the log is to the outside. What the log's own text
// says may quote a request, or somebody else's record.
func logProblem(err error) error {
	switch {
	case errors.Is(err, decisionlog.ErrNotFound):
		return noSuchRecord()
	case errors.Is(err, decisionlog.ErrGone):
		return newProblem(http.StatusGone, "the content of this record was removed, and its hash is left; GET /v1/log/stats says where and why, and an earlier export may hold it")
	case errors.Is(err, decisionlog.ErrNotRedactable):
		return newProblem(http.StatusConflict, "an administrative record cannot be redacted; it says what was done to the log, and stays")
	case errors.Is(err, decisionlog.ErrNoSuchCursor):
		return newProblem(http.StatusBadRequest, "the parameter cursor is beyond the end of the log: it belongs to another log, or to one that was rolled back; begin without it")
	case errors.Is(err, decisionlog.ErrUnavailable), errors.Is(err, decisionlog.ErrClosed):
		return newProblem(http.StatusServiceUnavailable, "this part of the decision log is not to be had at the moment; ask again later")
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, errBusy):
		return newProblem(http.StatusServiceUnavailable, "there was no time to answer; ask again later")
	}
	return err
}

// pathValue is a part of the path as it was meant. echo hands it over as it was
// written where anything in the path was escaped that need not be.
func pathValue(c echo.Context, name string) (string, error) {
	value := c.Param(name)
	if c.Request().URL.RawPath == "" {
		return value, nil
	}
	value, err := url.PathUnescape(value)
	if err != nil {
		return "", newProblem(http.StatusBadRequest, "the path is escaped in no legal way; write what is no letter or digit as % and two hexadecimal digits")
	}
	return value, nil
}

// parameters reads a query string: each parameter known, given once and not empty. A
// slip of the pen must not widen what is asked for.
func parameters(c echo.Context, known []string) (map[string]string, error) {
	values, err := url.ParseQuery(c.Request().URL.RawQuery)
	if err != nil {
		return nil, newProblem(http.StatusBadRequest, "the query cannot be read; write what is no letter or digit as % and two hexadecimal digits")
	}
	given := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		value := values[name][0]
		switch {
		case !slices.Contains(known, name):
			return nil, newProblem(http.StatusBadRequest, fmt.Sprintf("there is no parameter %s; there are %s", harmlessName(name), strings.Join(known, ", ")))
		case len(values[name]) > 1:
			return nil, badParameter(name, "is given more than once; give it once")
		case value == "":
			return nil, badParameter(name, "is empty; leave it out, or give it a value")
		case !utf8.ValidString(value):
			return nil, badParameter(name, "is not UTF-8; write it so, and percent-encoded")
		}
		given[name] = value
	}
	return given, nil
}

// harmlessName is an unknown name where it looks like one: errors quote nothing else
// of what was sent.
func harmlessName(name string) string {
	other := func(r rune) bool { return (r < 'a' || r > 'z') && r != '_' && r != '-' }
	if name == "" || len(name) > 32 || strings.ContainsFunc(name, other) {
		return "of that name"
	}
	return name
}

func badParameter(name, what string) *Problem {
	return newProblem(http.StatusBadRequest, "the parameter "+name+" "+what)
}

// filterNames are the parameters that pick records.
var filterNames = []string{"from", "to", "tenant", "kind", "decision", "subject", "resource", "action", "policy", "event", "of", "approval"}

// filter is what the parameters pick of what the auditor sees.
func (a auditor) filter(given map[string]string) (f decisionlog.Filter, err error) {
	f = decisionlog.Filter{
		Tenants: a.tenants, Tenant: given["tenant"], Kind: given["kind"], Decision: given["decision"], Subject: given["subject"],
		Resource: given["resource"], Action: given["action"], Policy: given["policy"], Event: given["event"], Of: given["of"],
		Approval: given["approval"],
	}
	if d := f.Decision; d != "" && d != "allow" && d != "deny" {
		return f, badParameter("decision", "is neither allow nor deny; give one of them")
	}
	f.From, f.To, err = times(given)
	return f, err
}

// times are the parameters that say from when to when.
func times(given map[string]string) (from, to time.Time, err error) {
	if from, err = moment(given, "from"); err != nil {
		return from, to, err
	}
	if to, err = moment(given, "to"); err != nil {
		return from, to, err
	}
	if (decisionlog.Filter{From: from, To: to}).Check() != nil {
		err = badParameter("from", "is not before to; nothing is at or after the one and before the other")
	}
	return from, to, err
}

func moment(given map[string]string, name string) (time.Time, error) {
	if given[name] == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, given[name])
	if err != nil {
		return at, badParameter(name, "is no time; write it like 2026-01-02T15:04:05Z, and the + of a time zone as %2B")
	}
	return at.UTC(), nil
}
