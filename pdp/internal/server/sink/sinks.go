// Package sink hands the records of the decision log on as they are made, to standard output and over
// OTLP/HTTP. Make [Sinks], add to them with [Sinks.Add], and start them once the log is open. [Checkpoints] hands on
// the log's checkpoints.
//
// A sink is never the truth: it may lack records, and may have one twice. The package refuses to hold
// anything up for a receiver. A sink follows the log by itself, and leaves records out if too many
// wait. It counts those, and the log has them.
package sink

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/record"
)

// Send hands records on, all or none. It is called again with the same records after an error that is
// no [telemetry.Refusal]. It ends when the context does, or soon after.
type Send func(context.Context, []record.Record) error

// Sinks are the sinks of one log.
type Sinks struct {
	all               []*sink
	log               *slog.Logger
	handedOn, dropped metric.Int64Counter

	cancel, stop context.CancelFunc
	done         chan struct{}
}

// New makes no sink yet. What sinks do is counted with the meter, and logged now and then.
func New(meter metric.Meter, log *slog.Logger) (*Sinks, error) {
	handedOn, err := meter.Int64Counter("policy_service.sink.records", metric.WithUnit("{record}"),
		metric.WithDescription("Records that a sink handed on."))
	dropped, failed := meter.Int64Counter("policy_service.sink.dropped", metric.WithUnit("{record}"),
		metric.WithDescription("Records that a sink left out; the decision log has them."))
	return &Sinks{log: log, handedOn: handedOn, dropped: dropped}, errors.Join(err, failed)
}

// Add adds a sink. Of more than queue records that wait it leaves the oldest out.
func (s *Sinks) Add(ctx context.Context, name string, queue int64, send Send) {
	one := &sink{
		name:       name,
		queue:      uint64(queue),
		send:       send,
		log:        s.log,
		handedOn:   s.handedOn,
		dropped:    s.dropped,
		attributes: metric.WithAttributes(attribute.String("sink", name)),
	}
	s.handedOn.Add(ctx, 0, one.attributes) // there from the start; see telemetry.Tally
	s.dropped.Add(ctx, 0, one.attributes)
	s.all = append(s.all, one)
}

// Start has the sinks follow the log from its end.
func (s *Sinks) Start(log *decisionlog.Log) {
	ctx, cancel := context.WithCancel(context.Background())
	stopping, stop := context.WithCancel(ctx)
	s.cancel, s.stop, s.done = cancel, stop, make(chan struct{})
	var running sync.WaitGroup
	for _, one := range s.all {
		one.from, one.waiting = log, log.Size()
		running.Go(func() { one.run(ctx, stopping) })
	}
	go func() {
		defer close(s.done)
		running.Wait()
	}()
}

// Stop hands on what is left, for as long as the context lasts. What is left then is no error: the
// log has it all.
func (s *Sinks) Stop(ctx context.Context) {
	defer s.cancel()
	s.stop()
	select {
	case <-s.done:
	case <-ctx.Done():
	}
	s.cancel()
	for _, one := range s.all {
		one.ended()
	}
}
