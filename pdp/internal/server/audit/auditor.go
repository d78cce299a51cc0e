package audit

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/server/door"
	"policy-service/pdp/internal/when"
)

// auditor is an admitted request about the decision log, and whose records its caller sees. All other records are
// answered as if they did not exist.
type auditor struct {
	door.Admitted
	tenants []string  // nil is all, and the records of no tenant
	now     time.Time // that ages count from
}

// handler handles the request of an auditor that was let in.
type handler func(echo.Context, auditor) error

// admit lets an auditor in and handles the request. The need says what the route needs besides a log.
func (a *Audit) admit(need door.Need, handle handler) echo.HandlerFunc {
	return func(c echo.Context) error {
		need := need
		if a.Log == nil {
			need.Absent = noLog()
		}
		admitted, err := a.Door.Admit(c, need)
		if err != nil {
			return err
		}
		who := auditor{Admitted: admitted, now: a.Door.Options.Now().UTC()}
		if !who.Caller.AllTenants {
			who.tenants = append([]string{}, who.Caller.Tenants...) // never nil: that would be all
		}
		return handle(c, who)
	}
}

// sees reports whether a record is there for the auditor.
func (who auditor) sees(line []byte) (bool, error) {
	return record.Filter{Tenants: who.tenants}.Matches(line)
}

// record finds a record by its id, or that of a question in it, also one that no checkpoint covers yet.
func (a *Audit) record(who auditor, id string) (record.Record, error) {
	record, err := a.Log.Find(id)
	if errors.Is(err, segment.ErrGone) && who.tenants != nil {
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
func (a *Audit) signed(ctx context.Context) (*segment.Snapshot, error) {
	a.sign(ctx)
	snapshot, err := a.Log.Snapshot()
	return snapshot, checkpointProblem(err)
}

// checkpointProblem is the problem of an error of a snapshot. The log may have no checkpoint at all.
func checkpointProblem(err error) error {
	if errors.Is(err, segment.ErrNotFound) {
		return door.NewProblem(http.StatusServiceUnavailable,
			"there is no checkpoint yet, and none can be made at the moment; ask again later")
	}
	return logProblem(err)
}

func (a *Audit) sign(ctx context.Context) {
	_ = a.Log.Flush(ctx) // what was answered a moment ago counts, too
	if last, err := a.Log.LastCheckpoint(); err != nil || last.Size < a.Log.Size() {
		_, _ = a.Log.Checkpoint(ctx)
	}
}

func noLog() error {
	return door.NewProblem(http.StatusNotFound,
		"no decision log is kept here; the operator gives the server a data directory with --data")
}

func noSuchRecord() *door.Problem {
	return door.NewProblem(http.StatusNotFound,
		"no such record, or none of yours; GET /v1/decisions lists those there are")
}

// logProblem is the problem of an error of the log. The text of the error stays inside: it may quote a request, or a
// record of another tenant.
func logProblem(err error) error {
	switch {
	case errors.Is(err, segment.ErrNotFound):
		return noSuchRecord()
	case errors.Is(err, segment.ErrGone):
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
	case errors.Is(err, segment.ErrUnavailable), errors.Is(err, decisionlog.ErrClosed):
		return door.NewProblem(http.StatusServiceUnavailable,
			"this part of the decision log is not to be had at the moment; ask again later")
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, door.ErrBusy):
		return door.NewProblem(http.StatusServiceUnavailable, "there was no time to answer; ask again later")
	}
	return err
}

// filterNames are the parameters that pick records.
var filterNames = []string{
	"from", "to", "since", "tenant", "kind", "decision", "subject", "resource", "action", "policy", "event", "of", "approval", "capability", "text",
}

// filter picks, by the parameters, from the records that the auditor sees.
func (who auditor) filter() (f record.Filter, err error) {
	f = record.Filter{
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

		Capability: who.Given["capability"],

		Text: who.Given["text"],
	}
	switch err := f.Check(); {
	case errors.Is(err, record.ErrText):
		return f, door.BadParameter("text", record.ErrText.Error())
	case err != nil:
		return f, door.BadParameter("decision", "is none of allow, waiting, deny, possible and impossible; give one of them")
	}
	f.From, f.To, err = who.times()
	f, _ = f.Bounded(who.now)
	return f, err
}

// spanNames are the parameters that say of which time the records are.
var spanNames = []string{"from", "to", "since"}

// span reads what these parameters say.
func (who auditor) span() (s when.Span, err error) {
	for n, into := range []*when.Time{&s.From, &s.To, &s.Since} {
		if text := who.Given[spanNames[n]]; text != "" {
			if *into, err = when.ParseTime(text); err != nil {
				return s, door.BadParameter(spanNames[n], err.Error()+"; write the + of a time zone as %2B")
			}
		}
	}
	return s, nil
}

// times are the bounds that these parameters set.
func (who auditor) times() (from, to time.Time, err error) {
	span, err := who.span()
	if err != nil {
		return from, to, err
	}
	if from, to, err = span.At(who.now); err != nil {
		return from, to, door.NewProblem(http.StatusBadRequest, "the parameter "+err.Error())
	}
	if (record.Filter{From: from, To: to}).Check() != nil {
		name := "from"
		if span.From.IsZero() {
			name = "since"
		}
		err = door.BadParameter(name, "is not before to; nothing is at or after the one and before the other")
	}
	return from, to, err
}

// An answer that has a next part, such as a page, is for one span of time, however long its parts take. So if ages are
// asked for, the name by which a client asks for the next part ends with the moment that the ages count from: a hyphen,
// and nanoseconds since 1970.

// named adds that moment to the name of a next part if ages are asked for.
func (who auditor) named(part string) string {
	if span, err := who.span(); err == nil && (span.Moves() || who.boundsText(span)) {
		part += "-" + strconv.FormatInt(who.now.UnixNano(), 10)
	}
	return part
}

// boundsText reports whether the time of a text that is sought begins where the server says.
func (who auditor) boundsText(asked when.Span) bool {
	return who.Given["text"] != "" && asked.From.IsZero() && asked.Since.IsZero()
}

// goesOn takes that moment from the name of a part.
func (who *auditor) goesOn(nanos string) (ok bool) {
	n, err := strconv.ParseInt(nanos, 10, 64)
	if err == nil && n >= 0 {
		who.now = time.Unix(0, n).UTC()
	}
	return err == nil && n >= 0
}
