package server_test

import (
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	logs "go.opentelemetry.io/proto/otlp/logs/v1"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	collector "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/protobuf/proto"

	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/written"
)

// linesFrom are the lines of a log from a sequence on.
func linesFrom(t *testing.T, data string, from uint64) (all []string) {
	t.Helper()
	lines(t, data) // it verifies
	r, err := segment.OpenReader(data)
	must(t, err)
	defer func() { _ = r.Close() }()
	for record, err := range r.Records(t.Context(), from, r.Size()) {
		must(t, err)
		all = append(all, string(record.Line))
	}
	return all
}

// size is how many records there are of a server that has stopped.
func size(t *testing.T, data string) uint64 { return uint64(len(linesFrom(t, data, 0))) }

// meters collects what a server counts.
type meters struct {
	t      *testing.T
	reader *sdkmetric.ManualReader
}

func newMeters(t *testing.T) (meters, pdptest.Option) {
	m := meters{t, sdkmetric.NewManualReader()}
	return m, func(c *server.Config) {
		c.Program.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(m.reader))
	}
}

// count is the sum of a counter for a sink, or for another value of an attribute.
func (m meters) count(name, of string) (sum int64) {
	m.t.Helper()
	var all metricdata.ResourceMetrics
	must(m.t, m.reader.Collect(m.t.Context(), &all))
	for _, scope := range all.ScopeMetrics {
		for _, metric := range scope.Metrics {
			if metric.Name != name {
				continue
			}
			for _, point := range metric.Data.(metricdata.Sum[int64]).DataPoints {
				if slices.ContainsFunc(point.Attributes.ToSlice(), func(a attribute.KeyValue) bool { return a.Value.AsString() == of }) {
					sum += point.Value
				}
			}
		}
	}
	return sum
}

func equal(t *testing.T, got, want []string) {
	t.Helper()
	if slices.Equal(got, want) {
		return
	}
	for n := range max(len(got), len(want)) {
		if n >= len(got) || n >= len(want) || got[n] != want[n] {
			t.Fatalf("%d records, want %d; from number %d on:\n got %v\nwant %v", len(got), len(want), n, got[min(n, len(got)):], want[min(n, len(want)):])
		}
	}
}

// What is received is the log from the start of the server on: all of it, in order, byte
// for byte as it was hashed.
func TestOTLPHasTheLog(t *testing.T) {
	data := t.TempDir()
	before := pdptest.Start(t, telling(), withData(data), func(c *server.Config) { c.Program.PDP.NewID = nil })
	before.Post(evaluationPath, readQuestion)
	stopAndWait(t, before)
	first := size(t, data)

	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=for%20you")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
	r := newReceiver(t)
	m, withMeters := newMeters(t)
	s := pdptest.Start(t, telling(), withData(data), withOTLP(0), server.Unhurried, withMeters)
	ids := map[string]string{}
	for name, body := range map[string]string{
		"allow":  readQuestion,
		"deny":   strings.Replace(readQuestion, "read", "delete", 1),
		"secret": strings.TrimSuffix(readQuestion, "}") + `,"context":{"password":"hunter-2-zebra","note":"hunter-2-zebra"}}`,
	} {
		ids[name] = s.Post(evaluationPath, body, "X-Request-ID", "r-1", "Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").Header.Get("X-Decision-Id")
	}
	for _, id := range ids {
		r.has(id)
	}
	stopAndWait(t, s)

	want := linesFrom(t, data, first)
	equal(t, r.bodies(), want)
	if got := m.count("policy_service.sink.records", "otlp"); got != int64(len(want)) || m.count("policy_service.sink.dropped", "otlp") != 0 {
		t.Errorf("counted %d of %d", got, len(want))
	}
	checkAllowed(t, r, ids["allow"])
	if r.header.Get("X-Key") != "for you" || r.scope != "policy-service" {
		t.Errorf("got %v %s", r.header, r.scope)
	}
	if r.resource["service.name"] != "policy-service" || r.resource["service.version"] == "" || r.resource["deployment.environment.name"] != "test" {
		t.Errorf("got %v", r.resource)
	}
	if !slices.ContainsFunc(want, func(line string) bool {
		return strings.Contains(line, `"event":"configuration"`) && strings.Contains(line, `"sinks":{"otlp":{`)
	}) {
		t.Error("the sink is not on record")
	}
	if strings.Contains(fmt.Sprint(r.raw), "hunter") {
		t.Error("a secret was sent")
	}
}

func checkAllowed(t *testing.T, r *receiver, id string) {
	t.Helper()
	l := r.got[slices.IndexFunc(r.got, func(l *logs.LogRecord) bool { return attributes(l.Attributes)["log.record.uid"] == id })]
	at := uint64(pdptest.Now.UnixNano())
	if l.EventName != "policy_service.decision" || l.TimeUnixNano != at || l.ObservedTimeUnixNano != at ||
		l.SeverityNumber != logs.SeverityNumber_SEVERITY_NUMBER_INFO || l.SeverityText != "INFO" || hex.EncodeToString(l.TraceId) != "4bf92f3577b34da6a3ce929d0e0e4736" {
		t.Errorf("got %v", l)
	}
	got := attributes(l.Attributes)
	for name, want := range map[string]string{
		"kind": "decision", "tenant": "default", "decision": "allow", "determining": "read", "request_id": "r-1",
		"subject.type": "user", "subject.id": "alice", "action": "read", "resource.type": "doc", "resource.id": "plan",
	} {
		if got["policy_service."+name] != want {
			t.Errorf("%s: got %q, want %q", name, got["policy_service."+name], want)
		}
	}
	if got["policy_service.bundle"] == "" {
		t.Error("there is no bundle")
	}
}

// The receiver's certificate, and ours for it, are where OpenTelemetry's variables say.
func TestOTLPOverTLS(t *testing.T) {
	a := pdptest.NewAuthority(t)
	r := newReceiver(t)
	r.down()
	cert, key := a.Server()
	pair, err := tls.LoadX509KeyPair(cert, key)
	must(t, err)
	r.tls = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: a.Pool}
	r.up()
	t.Setenv("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "https://"+r.addr+"/v1/logs")
	t.Setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", a.File)
	t.Setenv("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", cert)
	t.Setenv("OTEL_EXPORTER_OTLP_CLIENT_KEY", key)
	s := pdptest.Start(t, telling(), withData(t.TempDir()), withOTLP(0), server.Unhurried)
	r.has(s.Post(evaluationPath, readQuestion).Header.Get("X-Decision-Id"))
}

// A receiver that is away at the start and again later misses nothing.
func TestOTLPReceiverAwayAndBack(t *testing.T) {
	r := newReceiver(t)
	r.down()
	var log written.Text
	m, withMeters := newMeters(t)
	data := t.TempDir()
	s := pdptest.Start(t, telling(), withData(data), withOTLP(0), server.Unhurried, withMeters, logTo(&log))
	first := s.Post(evaluationPath, readQuestion).Header.Get("X-Decision-Id")
	eventually(t, "it is told", func() bool { return strings.Contains(log.String(), "a sink does not take records") })
	r.up()
	r.has(first)
	// Whose answer does not arrive is sent the same once more.
	eventually(t, "its answers have arrived", func() bool { return uint64(m.count("policy_service.sink.records", "otlp")) == s.Log().Size()-1 })
	r.down()
	second := s.Post(evaluationPath, readQuestion).Header.Get("X-Decision-Id")
	r.up()
	r.has(second)
	stopAndWait(t, s)
	equal(t, r.bodies(), linesFrom(t, data, 1)) // record 0 was made before there was a server
	if !strings.Contains(log.String(), "a sink takes records again") {
		t.Error(log.String())
	}
}

// A receiver that cannot now is asked again; one that will not is not.
func TestOTLPReceiverSaysNo(t *testing.T) {
	r := newReceiver(t)
	var log written.Text
	m, withMeters := newMeters(t)
	data := t.TempDir()
	busy, refuse := true, true
	r.answers(func(w http.ResponseWriter, n int) bool { // one request at a time
		switch {
		case busy:
			busy = false
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusServiceUnavailable)
			return false
		case refuse:
			refuse = false
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, "I will not have your keys-of-the-kingdom")
			return false
		}
		return true
	})
	s := pdptest.Start(t, telling(), withData(data), withOTLP(0), server.Unhurried, withMeters, logTo(&log))
	eventually(t, "it is told", func() bool { return strings.Contains(log.String(), "the receiver answered 400 Bad Request") })
	r.has(s.Post(evaluationPath, readQuestion).Header.Get("X-Decision-Id"))
	stopAndWait(t, s)
	all := linesFrom(t, data, 1)
	got := r.bodies()
	lost := len(all) - len(got)
	if lost == 0 || m.count("policy_service.sink.dropped", "otlp") != int64(lost) || m.count("policy_service.sink.records", "otlp") != int64(len(got)) {
		t.Errorf("%d are missing, %d counted", lost, m.count("policy_service.sink.dropped", "otlp"))
	}
	if strings.Contains(log.String(), "kingdom") {
		t.Error("the log quotes the receiver")
	}
}

// What a receiver leaves out of a request that it takes is counted.
func TestOTLPPartialSuccess(t *testing.T) {
	r := newReceiver(t)
	m, withMeters := newMeters(t)
	rejected := int64(0)
	r.answers(func(w http.ResponseWriter, n int) bool {
		some := &collector.ExportLogsPartialSuccess{ErrorMessage: "(7 logs rejected)\nno"}
		if n > 1 && rejected == 0 {
			some.RejectedLogRecords, rejected = 2, 2
		}
		answer, err := proto.Marshal(&collector.ExportLogsServiceResponse{PartialSuccess: some})
		must(t, err)
		w.Header().Set("Content-Type", "application/x-protobuf")
		_, _ = w.Write(answer)
		return true
	})
	data := t.TempDir()
	s := pdptest.Start(t, telling(), withData(data), withOTLP(0), server.Unhurried, withMeters)
	r.has(s.Post("/access/v1/evaluations", batchOf(100)).Header.Get("X-Decision-Id") + ".99")
	stopAndWait(t, s)
	all := linesFrom(t, data, 1)
	equal(t, r.bodies(), all)
	if dropped := m.count("policy_service.sink.dropped", "otlp"); rejected != 2 || dropped != 2 || m.count("policy_service.sink.records", "otlp") != int64(len(all)-2) {
		t.Errorf("counted %d", dropped)
	}
}

// batchOf is a batch of n questions.
func batchOf(n int) string {
	return strings.TrimSuffix(readQuestion, "}") + `,"evaluations":[{}` + strings.Repeat(",{}", n-1) + `]}`
}

// A receiver that takes a request and never answers costs nobody anything but the sink,
// which keeps its bound, and the stop, which has one.
func TestOTLPReceiverHangs(t *testing.T) {
	r := newReceiver(t)
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "600000") // no end but the one that is looked for
	release := make(chan struct{})
	r.answers(func(http.ResponseWriter, int) bool { <-release; return false })
	t.Cleanup(func() { close(release) }) // before the receiver ends
	var log written.Text
	m, withMeters := newMeters(t)
	data := t.TempDir()
	s := pdptest.Start(t, telling(), withData(data), withOTLP(1000), withMeters, logTo(&log), server.Hurried)
	r.await("a request", func() bool { return r.requests > 0 })
	for range 5 {
		if got := s.Post("/access/v1/evaluations", batchOf(1000)); got.Status != 200 {
			t.Fatal(got)
		}
	}
	eventually(t, "what is too much is dropped", func() bool { return m.count("policy_service.sink.dropped", "otlp") >= 3000 })
	if got := s.Get("/readyz"); got.Status != 200 || !strings.Contains(got.Body, `"status":"ready"`) {
		t.Error(got)
	}
	stopsByItself(t, s)
	all := int64(size(t, data)) - 1
	if got := m.count("policy_service.sink.dropped", "otlp"); got != all {
		t.Errorf("%d of %d are counted as dropped", got, all)
	}
	if told := strings.Count(log.String(), "a sink left records out"); told < 1 || told > 3 {
		t.Errorf("it is told %d times", told)
	}
}

func TestOTLPInBestEffort(t *testing.T) {
	r := newReceiver(t)
	data := t.TempDir()
	s := pdptest.Start(t, telling(), withData(data), withOTLP(0), server.Unhurried, func(c *server.Config) { c.DecisionLog.Mode = decisionlog.BestEffort })
	id := s.Post("/access/v1/evaluations", batchOf(1000)).Header.Get("X-Decision-Id")
	r.has(id + ".999")
	stopAndWait(t, s)
	equal(t, r.bodies(), linesFrom(t, data, 1))
}
