package server

import (
	"context"
	"errors"
	"io"
	"iter"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// SinksConfig says where records go besides the decision log. None of it is the truth:
// a sink may lack records, and may have one twice.
type SinksConfig struct {
	// Stdout writes each record to [Program.Checkpoints] as the line that was hashed.
	// Such a line begins with {, and no line of a checkpoint does.
	Stdout *SinkConfig `yaml:"stdout" doc:"Writes each record to standard output, as the line that was hashed."`
	// OTLP sends each record over OTLP/HTTP, to where the environment variables of
	// OpenTelemetry say: OTEL_EXPORTER_OTLP_ENDPOINT and its like.
	OTLP *SinkConfig `yaml:"otlp" doc:"Sends each record over OTLP/HTTP, to the address that OpenTelemetry's environment variables name."`
}

// SinkConfig bounds a sink. The zero value is ready to use.
type SinkConfig struct {
	// Queue is how many records may wait to be handed on; of more the oldest are left
	// out. Waiting takes no memory. At least, because the items of one batch can come to
	// that many.
	Queue int64 `yaml:"queue" default:"10000" min:"1000" doc:"How many records may wait for the sink. If more wait, the sink leaves out the oldest."`
}

// sinksStopWithin is what sinks have at a stop to hand on what they have not yet.
const sinksStopWithin = 5 * time.Second

// all are those that are on, by their keys.
func (c SinksConfig) all() iter.Seq2[string, *SinkConfig] {
	return func(yield func(string, *SinkConfig) bool) {
		if c.Stdout != nil && !yield("stdout", c.Stdout) {
			return
		}
		if c.OTLP != nil {
			yield("otlp", c.OTLP)
		}
	}
}

// checkSinks refuses sinks that nothing would ever come to.
func (c *Config) checkSinks() error {
	sinks := c.DecisionLog.Sinks
	switch {
	case sinks != (SinksConfig{}) && c.Program.PDP.Recorder != nil:
		return errors.New("decision_log.sinks follow the decision log, and a Recorder takes its place; leave one of them out")
	case sinks.Stdout != nil && c.Program.Checkpoints == io.Discard:
		return errors.New("decision_log.sinks.stdout has nowhere to write; set Config.Program.Checkpoints")
	}
	return nil
}

// newSinks makes the sinks that are configured, and starts none.
func (s *Server) newSinks(ctx context.Context) (sinks []*sink, err error) {
	meter := s.telemetry.Meter
	handedOn, err := meter.Int64Counter("policy_service.sink.records", metric.WithUnit("{record}"), metric.WithDescription("Records that a sink handed on."))
	if err != nil {
		return nil, err
	}
	dropped, err := meter.Int64Counter("policy_service.sink.dropped", metric.WithUnit("{record}"), metric.WithDescription("Records that a sink left out; the decision log has them."))
	if err != nil {
		return nil, err
	}
	for name, config := range s.config.DecisionLog.Sinks.all() {
		one := &sink{name: name, queue: uint64(config.Queue), send: s.out.records, log: s.log, handedOn: handedOn, dropped: dropped}
		one.attributes = metric.WithAttributes(attribute.String("sink", name))
		handedOn.Add(ctx, 0, one.attributes) // there from the start; see [telemetry.Tally]
		dropped.Add(ctx, 0, one.attributes)
		if name == "otlp" {
			if one.send, err = s.newOTLP(ctx); err != nil {
				return nil, err
			}
		}
		sinks = append(sinks, one)
	}
	return sinks, nil
}

// startSinks has sinks follow the log from where it ends now.
func (s *Server) startSinks(sinks []*sink) {
	if len(sinks) == 0 {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopping, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	s.teardown.add("sinks", func(patience context.Context) error {
		defer cancel()
		patience, enough := context.WithTimeout(patience, s.config.Program.stopsWithin(sinksStopWithin))
		defer enough()
		stop()
		select {
		case <-done:
		case <-patience.Done(): // no error: the log has it all
		}
		cancel()
		for _, one := range sinks {
			one.ended()
		}
		return nil
	})
	var running sync.WaitGroup
	for _, one := range sinks {
		one.from, one.waiting = s.decisions, s.decisions.Size()
		running.Go(func() { one.run(ctx, stopping) })
	}
	go func() {
		defer close(done)
		running.Wait()
	}()
}
