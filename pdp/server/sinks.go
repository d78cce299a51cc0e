package server

import (
	"context"
	"errors"
	"io"
	"time"

	"policy-service/pdp/server/sink"
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

// checkSinks refuses sinks that no record would ever come to.
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
func (s *Server) newSinks(ctx context.Context) (*sink.Sinks, error) {
	sinks, err := sink.New(s.telemetry.Meter, s.log)
	if err != nil {
		return nil, err
	}
	on := s.config.DecisionLog.Sinks
	if on.Stdout != nil {
		sinks.Add(ctx, "stdout", on.Stdout.Queue, s.out.Send)
	}
	if on.OTLP != nil {
		send, err := sink.OTLP(ctx, s.telemetry, s.now)
		if err != nil {
			return nil, err
		}
		sinks.Add(ctx, "otlp", on.OTLP.Queue, send)
	}
	return sinks, nil
}

// startSinks has sinks follow the log from its end.
func (s *Server) startSinks(sinks *sink.Sinks) {
	sinks.Start(s.decisions)
	s.lifetime.add("sinks", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, s.config.Program.stopsWithin(sinksStopWithin))
		defer cancel()
		sinks.Stop(ctx)
		return nil
	})
}
