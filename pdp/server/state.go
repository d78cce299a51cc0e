package server

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// state is what is looked up when somebody asks for metrics.
type state struct {
	active, exports, queue, logOK, refused, size, disk, segments, pending metric.Int64ObservableGauge
	bundle, recent, full                                                  metric.Int64ObservableGauge
	age                                                                   metric.Float64ObservableGauge
	dropped, unrecorded                                                   metric.Int64ObservableCounter
}

// tellState has metrics say how the service is, from now until it stops.
func (s *Server) tellState() error {
	meter := s.config.Program.MeterProvider.Meter(scopeName)
	t, all, err := newState(meter)
	if err != nil {
		return err
	}
	registration, err := meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s.look(t, o)
		return nil
	}, all...)
	if err != nil {
		return err
	}
	// What it looks at is taken down before the metrics are sent for the last time.
	s.teardown.add("state in metrics", closing(registration.Unregister))
	return nil
}

func newState(meter metric.Meter) (t state, all []metric.Observable, err error) {
	gauge := func(name, unit, about string) metric.Int64ObservableGauge {
		g, e := meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(about))
		all, err = append(all, g), errors.Join(err, e)
		return g
	}
	counter := func(name, about string) metric.Int64ObservableCounter {
		c, e := meter.Int64ObservableCounter(name, metric.WithUnit("{record}"), metric.WithDescription(about))
		all, err = append(all, c), errors.Join(err, e)
		return c
	}
	t.active = gauge("policy_service.http.requests.active", "{request}", "Requests being answered.")
	t.exports = gauge("policy_service.exports.active", "{export}", "Readers of the whole decision log; there may be 4, and 2 of one caller.")
	t.bundle = gauge("policy_service.bundle.info", "", "1, with the digest of the bundle in force.")
	t.refused = gauge("policy_service.bundle.refused", "", "1 while a later bundle than the one in force is refused, else 0.")
	t.logOK = gauge("policy_service.log.ok", "", "1 while the decision log can be written, else 0.")
	t.queue = gauge("policy_service.log.queue", "{call}", "Calls that wait to be written to the decision log.")
	t.size = gauge("policy_service.log.size", "{record}", "Records in the decision log, those without content too.")
	t.disk = gauge("policy_service.log.disk", "By", "What the files of the decision log take on disk.")
	t.recent = gauge("policy_service.log.recent", "By", "What records take that are too young to be dropped, of decision_log.retain.bytes; 0 without it.")
	t.full = gauge("policy_service.log.full", "", "1 while that is all that there may be, and nothing is decided, else 0.")
	t.segments = gauge("policy_service.log.segments", "{segment}", "Files of the decision log.")
	t.pending = gauge("policy_service.approvals.pending", "{request}", "Approval requests that wait for people.")
	t.dropped = counter("policy_service.log.dropped", "Records of decisions that were answered and are not on record; best effort only.")
	t.unrecorded = counter("policy_service.log.refused", "Records that could not be written, and whose decisions were not answered.")
	age, e := meter.Float64ObservableGauge("policy_service.bundle.age", metric.WithUnit("s"), metric.WithDescription("How long the bundle has been in force."))
	t.age = age
	return t, append(all, age), errors.Join(err, e)
}

func (s *Server) look(t state, o metric.Observer) {
	o.ObserveInt64(t.active, s.meters.active.Load())
	o.ObserveInt64(t.exports, int64(s.exports.Inside()))
	bundle := s.pdp.Status()
	o.ObserveInt64(t.bundle, 1, metric.WithAttributes(attribute.String("bundle", bundle.Digest)))
	o.ObserveFloat64(t.age, s.now().Sub(bundle.LoadedAt).Seconds())
	o.ObserveInt64(t.refused, oneIf(bundle.Refused != nil))
	if s.decisions == nil {
		return
	}
	if s.approvals != nil {
		o.ObserveInt64(t.pending, int64(s.approvals.store.Pending()))
	}
	log := s.decisions.Status()
	o.ObserveInt64(t.logOK, oneIf(log.OK))
	o.ObserveInt64(t.queue, int64(log.Queued))
	o.ObserveInt64(t.size, int64(log.Size))
	o.ObserveInt64(t.disk, log.Bytes)
	o.ObserveInt64(t.recent, log.Recent)
	o.ObserveInt64(t.full, oneIf(log.Full))
	o.ObserveInt64(t.segments, int64(log.Segments))
	o.ObserveInt64(t.dropped, int64(log.Dropped))
	o.ObserveInt64(t.unrecorded, int64(log.Refused))
}

func oneIf(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}
