package server_test

import (
	"io"
	"strings"
	"testing"

	"policy-service/pdp"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/written"
)

// withStdout turns the sink on, and says what standard output is.
func withStdout(queue int64, out io.Writer) pdptest.Option {
	return func(c *server.Config) {
		server.Unhurried(c)
		c.Program.Checkpoints = out
		c.DecisionLog.Sinks.Stdout = &server.SinkConfig{Queue: queue}
	}
}

// apart takes records and checkpoints apart, as README.md tells: by their first letter.
func apart(t *testing.T, out string) (records []string, checkpoints []segment.Checkpoint) {
	t.Helper()
	note := ""
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "{") {
			records = append(records, strings.TrimSuffix(line, "\n"))
			continue
		}
		if note += line; !strings.HasPrefix(line, "— ") {
			continue
		}
		c, err := segment.ParseCheckpoint([]byte(note), nil)
		must(t, err)
		checkpoints, note = append(checkpoints, c), ""
	}
	if note != "" {
		t.Errorf("half a checkpoint: %q", note)
	}
	return records, checkpoints
}

func TestStdoutHasTheLog(t *testing.T) {
	t.Parallel()
	var out written.Text
	data := t.TempDir()
	s := pdptest.Start(t, telling(), withData(data), withStdout(0, &out), func(c *server.Config) {
		server.TuneLog(c, func(o *decisionlog.Options, _ *decisionlog.Retention) { o.Checkpoints.Records = 1 })
	})
	for range 50 {
		s.Post(evaluationPath, readQuestion)
		must(t, s.Log().Flush(t.Context())) // the segment is filled, and so there is a checkpoint
	}
	s.Post("/access/v1/evaluations", batchOf(1000))
	stopAndWait(t, s)
	records, checkpoints := apart(t, out.String())
	equal(t, records, linesFrom(t, data, 1))
	if len(checkpoints) < 10 || checkpoints[len(checkpoints)-1].Size != uint64(len(records))+1 {
		t.Errorf("got %d checkpoints", len(checkpoints))
	}
}

// stuck is a pipe that nobody reads until it is released.
type stuck struct {
	written.Text
	entered, release chan struct{}
}

func (s *stuck) Write(p []byte) (int, error) {
	select {
	case s.entered <- struct{}{}:
	default:
	}
	<-s.release
	return s.Text.Write(p)
}

func TestStdoutThatNobodyReads(t *testing.T) {
	t.Parallel()
	out := &stuck{entered: make(chan struct{}, 1), release: make(chan struct{})}
	m, withMeters := newMeters(t)
	data := t.TempDir()
	s := pdptest.Start(t, telling(), withData(data), withStdout(1000, out), withMeters)
	<-out.entered
	for range 5 {
		if got := s.Post("/access/v1/evaluations", batchOf(1000)); got.Status != 200 {
			t.Fatal(got)
		}
	}
	eventually(t, "what is too much is left out", func() bool { return m.count("policy_service.sink.dropped", "stdout") > 3000 })
	close(out.release)
	stopAndWait(t, s)
	records, _ := apart(t, out.String())
	all := linesFrom(t, data, 1)
	dropped := m.count("policy_service.sink.dropped", "stdout")
	if len(records)+int(dropped) != len(all) || m.count("policy_service.sink.records", "stdout") != int64(len(records)) {
		t.Errorf("%d and %d are not %d", len(records), dropped, len(all))
	}
	// What is left out is the oldest of what waited.
	equal(t, records[len(records)-1000:], all[len(all)-1000:])
}

func TestSinksThatCannotBe(t *testing.T) {
	t.Parallel()
	sinks := server.SinksConfig{Stdout: &server.SinkConfig{}}
	for want, config := range map[string]server.Config{
		"needs a directory to be kept in":                   {DecisionLog: server.DecisionLogConfig{Sinks: sinks}, Program: server.Program{Checkpoints: &written.Text{}}},
		"nowhere to write; set Config.Program.Checkpoints":  {DecisionLog: server.DecisionLogConfig{Sinks: sinks}, Data: "d"},
		"sinks.otlp.queue is less than 1000":                {DecisionLog: server.DecisionLogConfig{Sinks: server.SinksConfig{OTLP: &server.SinkConfig{Queue: 999}}}, Data: "d"},
		"a Recorder takes its place; leave one of them out": {DecisionLog: server.DecisionLogConfig{Sinks: sinks}, Program: server.Program{Checkpoints: &written.Text{}, PDP: pdp.Options{Recorder: recorder(func() error { return nil })}}, Data: "d"},
	} {
		config.Program.Source = telling()
		if _, err := server.New(config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
