package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"policy-service/evaluation"
	"policy-service/obligations"
	"policy-service/pdp/approval"
	"policy-service/pdp/decisionlog"
	"policy-service/pdp/server/auth"
)

// meters are what the service counts as it happens; what it only has to look up when it is
// asked is in state.go. No attribute is anything that was sent: routes are patterns,
// tenants are those of the bundle, and all else is one of a few words of ours. No
// policy and no caller is named either; the decision log names them.
type meters struct {
	active  atomic.Int64 // requests being answered
	tenants tenantNames

	requests    histogram[answered]
	refused     tally[string]
	limited     tally[string]
	credentials tally[auth.Credential]

	decisions    tally[outcome]
	policyErrors tally[evaluation.ErrorKind]
	// The difference of these two is what nobody discharged.
	owed     tally[string]
	reported tally[discharge]

	loads     tally[string]
	approvals tally[string]

	records, rotations, replacements, indexFailures, retentionFailures, retired metric.Int64Counter

	commits                   metric.Float64Histogram
	commitRecords, commitSize metric.Int64Histogram
	pauses                    histogram[string]
}

type (
	// answered is a route, by its pattern, and the first digit of the status.
	answered struct {
		route string
		class int
	}
	// outcome is what was decided for whom, and by what.
	outcome struct {
		tenant, reason string
		allow          bool
	}
	// discharge is what a caller said of an obligation, by the type of the obligation.
	discharge struct {
		obligation string
		status     evaluation.ReceiptStatus
	}
)

// What a decision is put down to that has no reason: policies that determined it, or that
// none did, or, in a batch, that the item was no request.
const (
	byPolicy    = "policy"
	byNoPolicy  = "no_policy"
	byMalformed = "malformed"
)

// Where the service says that a load was refused, and that it was not.
const (
	loadAccepted = "loaded"
	loadRefused  = "refused"
)

// instruments makes instruments, and keeps what goes wrong with it.
type instruments struct {
	meter metric.Meter
	err   error
}

func (i *instruments) counter(name, unit, about string) metric.Int64Counter {
	c, err := i.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(about))
	i.err = errors.Join(i.err, err)
	return c
}

func (i *instruments) seconds(name, about string, bounds ...float64) metric.Float64Histogram {
	h, err := i.meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(about), metric.WithExplicitBucketBoundaries(bounds...))
	i.err = errors.Join(i.err, err)
	return h
}

func (i *instruments) sizes(name, unit, about string, bounds ...float64) metric.Int64Histogram {
	h, err := i.meter.Int64Histogram(name, metric.WithUnit(unit), metric.WithDescription(about), metric.WithExplicitBucketBoundaries(bounds...))
	i.err = errors.Join(i.err, err)
	return h
}

func newMeters(meter metric.Meter) (*meters, error) {
	i, m := &instruments{meter: meter}, &meters{}
	m.aboutRequests(i)
	m.aboutDecisions(i)
	m.aboutLog(i)
	if i.err != nil {
		return nil, fmt.Errorf("cannot make the instruments of what is counted: %w", i.err)
	}
	return m, nil
}

func (m *meters) aboutRequests(i *instruments) {
	m.requests.instrument = i.seconds("policy_service.http.request.duration", "How long requests took, from their header to the end of the answer, by route and class of status.",
		0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
	m.requests.series.attributes = func(a answered) []attribute.KeyValue {
		return []attribute.KeyValue{attribute.String("http.route", a.route), attribute.String("status", fmt.Sprintf("%dxx", a.class))}
	}
	m.refused.instrument = i.counter("policy_service.http.refused", "{request}", "Requests that were answered with a problem, by what it was; limit and too_large are bounds that were exceeded.")
	m.refused.series.attributes = named[string]("reason")
	m.refused.begin("malformed", "too_large", "limit", "unauthenticated", "forbidden", "not_found", "rate_limited", "unavailable", "failed", "other")
	m.limited.instrument = i.counter("policy_service.requests.limited", "{request}", "Requests and connections that were refused because there were too many of them, by limit.")
	m.limited.series.attributes = named[string]("limit")
	m.limited.begin(limits...)
	m.credentials.instrument = i.counter("policy_service.credentials.refused", "{request}", "Requests whose credential was not good, by its kind; none is a request without one.")
	m.credentials.series.attributes = named[auth.Credential]("credential")
	m.credentials.begin(auth.ByNone, auth.ByKey, auth.ByToken, auth.ByCertificate, auth.ByOther)
}

func (m *meters) aboutDecisions(i *instruments) {
	m.decisions.instrument = i.counter("policy_service.decisions", "{decision}", "Decisions answered, by answer, tenant and reason; no_policy is a deny that no policy determined.")
	m.decisions.series.attributes = func(o outcome) []attribute.KeyValue {
		decision := "deny"
		if o.allow {
			decision = "allow"
		}
		return []attribute.KeyValue{attribute.String("decision", decision), attribute.String("tenant", o.tenant), attribute.String("reason", o.reason)}
	}
	m.policyErrors.instrument = i.counter("policy_service.policy.errors", "{error}", "Policies that could not be evaluated, by kind of error.")
	m.policyErrors.series.attributes = named[evaluation.ErrorKind]("kind")
	m.policyErrors.begin(evaluation.MissingAttribute, evaluation.WrongType, evaluation.Overflow, evaluation.ParseFailure, evaluation.UnusableValue, evaluation.OtherError)

	m.owed.instrument = i.counter("policy_service.obligations.owed", "{obligation}", "Obligations in answers to evaluations, by type.")
	m.owed.series.attributes = named[string]("type")
	m.owed.begin(obligations.Types()...)
	m.reported.instrument = i.counter("policy_service.obligations.reported", "{obligation}", "Obligations of which a PEP said what became of them, by type and status.")
	m.reported.series.attributes = func(r discharge) []attribute.KeyValue {
		return []attribute.KeyValue{attribute.String("type", r.obligation), attribute.String("status", string(r.status))}
	}
	for _, t := range obligations.Types() {
		m.reported.begin(discharge{t, evaluation.Discharged}, discharge{t, evaluation.NotDischarged})
	}
	m.loads.instrument = i.counter("policy_service.bundle.loads", "{load}", "Bundles that were loaded, and that were refused.")
	m.loads.series.attributes = named[string]("result")
	m.loads.begin(loadAccepted, loadRefused)
	m.approvals.instrument = i.counter("policy_service.approvals.steps", "{step}", "Steps of approval requests, by what happened.")
	m.approvals.series.attributes = named[string]("step")
	m.approvals.begin(approval.StepNames()...)
}

func (m *meters) aboutLog(i *instruments) {
	ctx := context.Background()
	m.records = i.counter("policy_service.log.records", "{record}", "Records written to the decision log.")
	m.rotations = i.counter("policy_service.log.rotations", "{segment}", "Segments of the decision log that were sealed.")
	m.replacements = i.counter("policy_service.log.replacements", "{segment}", "Segments from which redaction or retention took content.")
	m.indexFailures = i.counter("policy_service.log.index.failures", "{attempt}", "Attempts to make an index of the decision log that failed.")
	m.retentionFailures = i.counter("policy_service.log.retention.failures", "{attempt}", "Runs of retention that failed.")
	m.retired = i.counter("policy_service.log.retention.records", "{record}", "Records whose content retention dropped.")
	for _, c := range []metric.Int64Counter{m.records, m.rotations, m.replacements, m.indexFailures, m.retentionFailures, m.retired} {
		c.Add(ctx, 0)
	}
	m.commits = i.seconds("policy_service.log.commit.duration", "How long a transaction of the decision log took to be durable.",
		0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
	m.commitRecords = i.sizes("policy_service.log.commit.records", "{record}", "Records that a transaction of the decision log wrote together.",
		0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
	m.commitSize = i.sizes("policy_service.log.commit.size", "By", "Bytes of records that a transaction of the decision log wrote together.",
		512, 1<<10, 4<<10, 16<<10, 64<<10, 256<<10, 1<<20, 4<<20)
	m.pauses.instrument = i.seconds("policy_service.log.pause.duration", "How long the writer of the decision log was kept from writing, by rotation or by putting a segment in the place of another.",
		0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1)
	m.pauses.series.attributes = named[string]("cause")
}

// limits are the words that refusals are counted by.
var limits = []string{
	"large_bodies", "slow_bodies", "exports", "slow_readers", "log_reads", "rate", "concurrency", "connections",
	"approvals", "approvals_share", "waiting", "waiting_share", "pages", "work",
	string(decisionlog.BoundShare), string(decisionlog.BoundIssuer), string(decisionlog.BoundAll),
}

// Limit implements [door.Meters]. The limit is one of a few words.
func (m *meters) Limit(ctx context.Context, limit string) { m.limited.add(ctx, 1, limit) }

// Credential implements [door.Meters].
func (m *meters) Credential(ctx context.Context, kind auth.Credential) {
	m.credentials.add(ctx, 1, kind)
}

// answer counts an answer that was given, whichever it was.
func (m *meters) answer(ctx context.Context, route string, status int, took time.Duration) {
	m.requests.record(ctx, took.Seconds(), answered{route, status / 100})
}

// refusedWhy are the words for the statuses of problems; a limit has a word of its own.
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

// Problem implements [door.Meters].
func (m *meters) Problem(ctx context.Context, status int, bound bool) {
	why := refusedWhy[status]
	switch {
	case why == "":
		why = "other"
	case bound && status != http.StatusRequestEntityTooLarge:
		why = "limit"
	}
	m.refused.add(ctx, 1, why)
}

// decided counts decisions that were answered, and what they oblige to. A search's results are
// not counted: what comes with them is on no record, and cannot be reported.
func (m *meters) decided(ctx context.Context, tenant string, decisions ...evaluation.Decision) {
	tenant = m.tenants.name(tenant)
	for i := range decisions {
		d := &decisions[i]
		m.decisions.add(ctx, 1, outcome{tenant, determinedBy(d), d.Allow})
		for _, e := range d.Errors {
			m.policyErrors.add(ctx, 1, e.Kind)
		}
		for _, o := range d.Obligations {
			m.owed.add(ctx, 1, o.Type)
		}
	}
}

func determinedBy(d *evaluation.Decision) string {
	switch {
	case d.Malformed != nil:
		return byMalformed
	case d.Reason != "":
		return string(d.Reason)
	case len(d.Determining) > 0:
		return byPolicy
	}
	return byNoPolicy
}

func (m *meters) commit(c decisionlog.Commit) {
	ctx := context.Background()
	m.records.Add(ctx, int64(c.Records))
	m.commits.Record(ctx, c.Took.Seconds())
	m.commitRecords.Record(ctx, int64(c.Records))
	m.commitSize.Record(ctx, int64(c.Bytes))
}

func (m *meters) rotated(_ uint64, kept time.Duration) {
	m.rotations.Add(context.Background(), 1)
	m.pauses.record(context.Background(), kept.Seconds(), "rotation")
}

func (m *meters) replaced(_ uint64, kept time.Duration) {
	m.replacements.Add(context.Background(), 1)
	m.pauses.record(context.Background(), kept.Seconds(), "replacement")
}

// retention counts a run of it.
func (m *meters) retention(done decisionlog.Retired, err error) {
	if err != nil {
		m.retentionFailures.Add(context.Background(), 1)
	}
	m.retired.Add(context.Background(), int64(done.Records))
}
