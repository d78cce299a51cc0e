package telemetry

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/server/auth"
)

// Requests counts requests and refusals. The door of the server counts with it.
type Requests struct {
	active      atomic.Int64 // being answered
	durations   histogram[answered]
	refused     Tally[string]
	limited     Tally[string]
	credentials Tally[auth.Credential]
	undecided   Tally[string]
}

// answered is a route, by its pattern, and the first digit of the status.
type answered struct {
	route string
	class int
}

func (r *Requests) make(i *instruments) {
	r.durations.instrument = i.seconds("policy_service.http.request.duration",
		"How long requests took, from their header to the end of the answer, by route and class of status.",
		0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
	r.durations.series.attributes = func(a answered) []attribute.KeyValue {
		return []attribute.KeyValue{
			attribute.String("http.route", a.route),
			attribute.String("status", fmt.Sprintf("%dxx", a.class)),
		}
	}
	i.tally("policy_service.http.refused", "{request}",
		"Requests that were answered with a problem, by what it was; limit and too_large are bounds that were exceeded.", r.refused.observe)
	r.refused.series.attributes = named[string]("reason")
	r.refused.begin("malformed", "too_large", "limit", "unauthenticated", "forbidden",
		"not_found", "rate_limited", "unavailable", "failed", "other")
	i.tally("policy_service.requests.limited", "{request}",
		"Requests and connections that were refused because there were too many of them, by limit.", r.limited.observe)
	r.limited.series.attributes = named[string]("limit")
	r.limited.begin(Limits()...)
	i.tally("policy_service.undecided", "{request}",
		"Questions that were refused because no decision came, by why.", r.undecided.observe)
	r.undecided.series.attributes = named[string]("reason")
	r.undecided.begin("log", "tenant", "bundle", "time", "limit", "failed")
	i.tally("policy_service.credentials.refused", "{request}",
		"Requests whose credential was not good, by its kind; none is a request without one.", r.credentials.observe)
	r.credentials.series.attributes = named[auth.Credential]("credential")
	r.credentials.begin(auth.ByNone, auth.ByKey, auth.ByToken, auth.ByCertificate, auth.ByOther)
}

// Begin counts a request that is being answered, until [Requests.End].
func (r *Requests) Begin() { r.active.Add(1) }

// End counts an answer, whatever it was.
func (r *Requests) End(ctx context.Context, route string, status int, took time.Duration) {
	r.active.Add(-1)
	r.durations.record(ctx, took.Seconds(), answered{route, status / 100})
}

// Limit counts a refusal of one request too many. The limit is one of [Limits].
func (r *Requests) Limit(limit string) { r.limited.Count(limit) }

// Credential counts a credential that was not good.
func (r *Requests) Credential(kind auth.Credential) { r.credentials.Count(kind) }

// Undecided counts a question of which no decision came.
func (r *Requests) Undecided(reason string) { r.undecided.Count(reason) }

// Limits are the words that refusals are counted by, see [Requests.Limit].
func Limits() []string {
	return []string{
		"large_bodies", "slow_bodies", "console", "exports", "slow_readers", "log_reads", "rate", "concurrency", "connections",
		"approvals", "approvals_share", "capabilities", "status", "waiting", "waiting_share", "pages", "work",
		string(decisionlog.BoundShare), string(decisionlog.BoundPerson), string(decisionlog.BoundIssuer), string(decisionlog.BoundAll),
	}
}

// refusedWhy are the words for the statuses of problems; a bound has a word of its own.
var refusedWhy = map[int]string{
	http.StatusBadRequest:            "malformed",
	http.StatusUnauthorized:          "unauthenticated",
	http.StatusForbidden:             "forbidden",
	http.StatusNotFound:              "not_found",
	http.StatusRequestEntityTooLarge: "too_large",
	http.StatusTooManyRequests:       "rate_limited",
	http.StatusInternalServerError:   "failed",
	http.StatusServiceUnavailable:    "unavailable",
}

// Problem counts a problem by its status. bound says that the request exceeded a bound.
func (r *Requests) Problem(status int, bound bool) {
	why := refusedWhy[status]
	switch {
	case why == "":
		why = "other"
	case bound && status != http.StatusRequestEntityTooLarge:
		why = "limit"
	}
	r.refused.Count(why)
}
