package audit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"policy-service/pdp/internal/decisionlog/report"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/server/door"
)

// sampleMost is how many decisions a sample over HTTP has at most: it is one answer.
const sampleMost = 1000

// logStats answers GET /v1/log/stats.
func logStats(ctx context.Context, log *segment.Snapshot, _ auditor) (any, error) {
	stats, err := report.Count(ctx, log)
	if stats.WholeLog != nil {
		stats.Uncovered = 0 // the server signs for them in a moment
	}
	return stats, err
}

// logReport answers GET /v1/log/report.
func logReport(ctx context.Context, log *segment.Snapshot, who auditor) (any, error) {
	o, err := who.reportOptions()
	if err != nil {
		return nil, err
	}
	return report.Make(ctx, log, o)
}

func (who auditor) reportOptions() (o report.Options, err error) {
	o = report.Options{By: who.Given["by"], Top: report.TopUsual}
	if o.From, o.To, err = who.times(); err != nil {
		return o, err
	}
	switch o.By {
	case "", report.ByPolicy, report.BySubject:
	default:
		return o, door.BadParameter("by", "is neither policy nor subject; give one of them")
	}
	if o.Decision = who.Given["decision"]; o.Decision != "" && o.By == "" {
		return o, door.BadParameter("decision", "is of what is counted by the parameter by; give both, or leave it out")
	} else if o.Check() != nil {
		return o, door.BadParameter("decision", "is no answer; give allow, waiting, deny, possible or impossible")
	}
	text := who.Given["top"]
	if text == "" {
		return o, nil
	}
	if o.By == "" {
		return o, door.BadParameter("top", "is how many names are counted by the parameter by; give both, or leave it out")
	}
	if o.Top, err = strconv.Atoi(text); err != nil || o.Check() != nil {
		return o, door.BadParameter("top", fmt.Sprintf("is no number of names; give one from 1 to %d", report.TopMost))
	}
	return o, nil
}

// logSample answers GET /v1/log/sample with the files of a sample.
func logSample(ctx context.Context, log *segment.Snapshot, who auditor) (any, error) {
	o, err := who.sampleOptions()
	if err != nil {
		return nil, err
	}
	sample, err := report.Choose(ctx, log, o)
	switch {
	case errors.Is(err, report.ErrNoPopulation):
		return nil, door.NewProblem(http.StatusNotFound,
			"there is no decision in this time that is there for you; try another from and to")
	case errors.Is(err, report.ErrSampleTooLarge):
		return nil, door.NewProblem(http.StatusBadRequest,
			"the parameter n is too large for records of this size; ask for fewer")
	}
	return sample, err
}

func (who auditor) sampleOptions() (o report.SampleOptions, err error) {
	o = report.SampleOptions{N: 25, Seed: who.Given["seed"]}
	if o.From, o.To, err = who.times(); err != nil {
		return o, err
	}
	if text := who.Given["n"]; text != "" {
		if o.N, err = strconv.Atoi(text); err != nil || o.N < 1 || o.N > sampleMost {
			return o, door.BadParameter("n",
				fmt.Sprintf("is no number of decisions; give one from 1 to %d", sampleMost))
		}
	}
	if o.Check() != nil { // all that is left to be wrong
		return o, door.BadParameter("seed", "is missing, too long or not in one line; "+
			"give some text that nobody could know before, such as the result of a lottery")
	}
	return o, nil
}

// reading makes an answer from all records that an auditor sees and the parameters of the query.
type reading func(ctx context.Context, log *segment.Snapshot, who auditor) (any, error)

// once answers with what one pass over all records that the auditor sees finds. Few requests do that at a time.
func (a *Audit) once(read reading) handler {
	return func(c echo.Context, who auditor) error {
		w, leave, err := a.readsAll(c, who)
		if err != nil {
			return err
		}
		defer leave()
		ctx, cancel := context.WithTimeout(w.ctx, a.Door.Options.Load.RequestTime)
		defer cancel()
		snapshot, err := a.signed(ctx)
		if err != nil {
			return err
		}
		found, err := read(ctx, snapshot.For(who.tenants), who)
		if err != nil {
			return noTimeFor(err,
				"the whole log takes longer to read than a request may take; policy-service log report, sample and "+
					"stats with --data have all the time there is, beside the server or on a copy of its data directory")
		}
		body, err := door.Marshal(found)
		if err != nil {
			return err
		}
		w.turn.End() // for good
		c.Response().Header().Set(echo.HeaderContentType, echo.MIMEApplicationJSON)
		c.Response().WriteHeader(http.StatusOK)
		_, err = w.Write(body)
		return err
	}
}
