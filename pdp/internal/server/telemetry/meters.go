package telemetry

import (
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/metric"

	"policy-service/pdp/internal/approval"
)

// Meters are what the service counts as it happens. What it only looks up when its metrics are
// read is a [State]. No attribute is anything that was sent: routes are patterns, tenants are
// those of the bundle, and all else is one of a few words of ours. No policy and no caller is
// named either; the decision log names them.
type Meters struct {
	Requests  Requests
	Decisions Decisions
	Log       Log
	// Loads are attempts to load a bundle, by [Loaded] or [Refused].
	Loads Tally[string]
	// Approvals are the steps of approval requests, by their names.
	Approvals Tally[string]
	// Grants are answers to requests for capabilities, by [Granted], [Waiting] or [Denied].
	Grants Tally[string]
}

// The results of an attempt to load a bundle.
const (
	Loaded  = "loaded"
	Refused = "refused"
)

// The answers to a request for a capability.
const (
	Granted = "granted"
	Waiting = "waiting" // for people
	Denied  = "denied"
)

// NewMeters makes the instruments.
func NewMeters(meter metric.Meter) (*Meters, error) {
	i, m := &instruments{meter: meter}, &Meters{}
	m.Requests.make(i)
	m.Decisions.make(i)
	i.tally("policy_service.bundle.loads", "{load}",
		"Bundles that were loaded, and that were refused.", m.Loads.observe)
	m.Loads.series.attributes = named[string]("result")
	m.Loads.begin(Loaded, Refused)
	i.tally("policy_service.approvals.steps", "{step}",
		"Steps of approval requests, by what happened.", m.Approvals.observe)
	m.Approvals.series.attributes = named[string]("step")
	m.Approvals.begin(approval.StepNames()...)
	i.tally("policy_service.capabilities.grants", "{request}",
		"Requests for capabilities that were decided, by what came of them.", m.Grants.observe)
	m.Grants.series.attributes = named[string]("outcome")
	m.Grants.begin(Granted, Waiting, Denied)
	m.Log.make(i)
	if i.err != nil {
		return nil, fmt.Errorf("cannot make the instruments of what is counted: %w", i.err)
	}
	return m, nil
}

// instruments makes instruments, and keeps the errors.
type instruments struct {
	meter      metric.Meter
	observable []metric.Observable // those that show a state
	err        error
}

func (i *instruments) counter(name, unit, about string) metric.Int64Counter {
	c, err := i.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(about))
	i.err = errors.Join(i.err, err)
	return c
}

// tally makes an instrument of a count by kinds.
func (i *instruments) tally(name, unit, about string, counted metric.Int64Callback) {
	_, err := i.meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(about), metric.WithInt64Callback(counted))
	i.err = errors.Join(i.err, err)
}

func (i *instruments) seconds(name, about string, bounds ...float64) metric.Float64Histogram {
	h, err := i.meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(about),
		metric.WithExplicitBucketBoundaries(bounds...))
	i.err = errors.Join(i.err, err)
	return h
}

func (i *instruments) sizes(name, unit, about string, bounds ...float64) metric.Int64Histogram {
	h, err := i.meter.Int64Histogram(name, metric.WithUnit(unit), metric.WithDescription(about),
		metric.WithExplicitBucketBoundaries(bounds...))
	i.err = errors.Join(i.err, err)
	return h
}

func (i *instruments) gauge(name, unit, about string) metric.Int64ObservableGauge {
	g, err := i.meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(about))
	i.observable, i.err = append(i.observable, g), errors.Join(i.err, err)
	return g
}

func (i *instruments) secondsGauge(name, about string) metric.Float64ObservableGauge {
	g, err := i.meter.Float64ObservableGauge(name, metric.WithUnit("s"), metric.WithDescription(about))
	i.observable, i.err = append(i.observable, g), errors.Join(i.err, err)
	return g
}

// total is a counter of records that is looked up.
func (i *instruments) total(name, about string) metric.Int64ObservableCounter {
	c, err := i.meter.Int64ObservableCounter(name, metric.WithUnit("{record}"), metric.WithDescription(about))
	i.observable, i.err = append(i.observable, c), errors.Join(i.err, err)
	return c
}
