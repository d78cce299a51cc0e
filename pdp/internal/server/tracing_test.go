package server_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	traces "go.opentelemetry.io/proto/otlp/trace/v1"

	"policy-service/pdp"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/written"
)

const (
	callersTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	callersSpan  = "00f067aa0ba902b7"
	traceparent  = "00-" + callersTrace + "-" + callersSpan + "-01"
)

// A request is a span of the caller's trace, and what happens to it are spans below; the
// record has the trace; and nothing that was sent is in any of it, nor in a metric.
func TestTracesAndMetricsOverOTLP(t *testing.T) {
	c := newCollector(t)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=k3y")
	data := t.TempDir()
	s := pdptest.Start(t, telling(), withData(data), server.Unhurried)
	secret := strings.NewReplacer("alice", "s3cret", "plan", "s3cret").Replace(strings.TrimSuffix(readQuestion, "}")) + `,"context":{"note":"s3cret"}}`
	for _, path := range []string{evaluationPath, "/access/v1/search/action", "/access/v1/evaluations"} {
		body := secret
		if strings.HasSuffix(path, "s") {
			body = strings.TrimSuffix(secret, "}") + `,"evaluations":[{},{}]}`
		}
		replied(t, s.Post(path, body, "Traceparent", traceparent, "Tracestate", "v=s3cret", "Baggage", "a=s3cret", "X-Request-ID", "s3cret", "User-Agent", "s3cret"), 200)
	}
	s.Do("S3CRET", "/s3cret?s3cret", "")
	s.Post("/tenants/s3cret/access/v1/evaluation", "{", "Authorization", "Bearer s3cret")
	s.Get("/livez", "Traceparent", traceparent)
	alone := s.Post(authorizePath, nativeQuestion)
	stopAndWait(t, s)

	checkSteps(t, c, callersTrace, callersSpan, "POST "+evaluationPath)
	own, _, _ := strings.Cut(strings.TrimPrefix(alone.Header.Get("Traceresponse"), "00-"), "-")
	checkSteps(t, c, own, "", "POST "+authorizePath)
	for name := range c.trace(callersTrace) {
		if strings.Contains(name, "livez") {
			t.Error("a probe is traced")
		}
	}
	all := byID(lines(t, data))
	if got := all[alone.Header.Get("X-Decision-Id")].TraceID; got != own || own == "" {
		t.Errorf("on record in trace %q, answered in %q", got, own)
	}
	for _, name := range []string{"policy_service.decisions", "policy_service.http.request.duration", "policy_service.log.records", "go.goroutines"} {
		if c.metrics[name] == nil {
			t.Errorf("no metric %s came", name)
		}
	}
	if strings.Contains(strings.ToLower(c.raw.String()), "s3cret") {
		t.Error("what was sent is in telemetry")
	}
	if c.header.Get("X-Key") != "k3y" {
		t.Errorf("the headers are %v", c.header)
	}
}

// checkSteps wants the span of a request below its parent, and its steps below it.
func checkSteps(t *testing.T, c *otelCollector, trace, parent, name string) {
	t.Helper()
	spans := c.trace(trace)
	request := spans[name]
	if request.parent != parent || request.kind != traces.Span_SPAN_KIND_SERVER || request.failed {
		t.Fatalf("got %+v of %v", request, spans)
	}
	method, route, _ := strings.Cut(name, " ")
	if want := "http.request.method=" + method + " http.route=" + route + " http.response.status_code=200"; request.attributes != want {
		t.Errorf("got %s, want %s", request.attributes, want)
	}
	below := map[string]bool{}
	for _, s := range c.spans {
		if fmt.Sprintf("%x", s.ParentSpanId) == request.id {
			below[s.Name] = true
		}
	}
	for _, step := range []string{"decode", "authorize", "record"} {
		if !below[step] {
			t.Errorf("%s: no span %s", name, step)
		}
	}
}

// What was decided is in the span, in words of ours.
func TestSpansSayWhatWasDecided(t *testing.T) {
	c := newCollector(t)
	s := pdptest.Start(t, bundle(t), server.Unhurried)
	s.Post(evaluationPath, strings.Replace(readQuestion, `"user"`, `"Action"`, 1), "Traceparent", traceparent)
	stopAndWait(t, s)
	if got, want := c.trace(callersTrace)["authorize"].attributes, "policy_service.decision=deny policy_service.policy_errors=0 policy_service.reason=unknown_type"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Whose trace is taken is for OpenTelemetry's variables to say. The record has the trace
// all the same: the caller may have taken it.
func TestSampling(t *testing.T) {
	for name, test := range map[string]struct {
		sampler, flags string
		want           bool
	}{
		"the default, sampled by the caller":     {"", "01", true},
		"the default, not sampled by the caller": {"", "00", false},
		"off":                                    {"always_off", "01", false},
		"on":                                     {"always_on", "00", true},
		"none of a ratio":                        {"traceidratio", "01", false},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCollector(t)
			t.Setenv("OTEL_TRACES_SAMPLER", test.sampler)
			t.Setenv("OTEL_TRACES_SAMPLER_ARG", "0")
			data := t.TempDir()
			s := pdptest.Start(t, telling(), withData(data), server.Unhurried)
			got := s.Post(evaluationPath, readQuestion, "Traceparent", traceparent[:53]+test.flags)
			stopAndWait(t, s)
			if taken := len(c.trace(callersTrace)) > 0; taken != test.want || (got.Header.Get("Traceresponse") != "") != test.want {
				t.Errorf("taken %v, answered %v, want %v", taken, got.Header, test.want)
			}
			if id := byID(lines(t, data))[got.Header.Get("X-Decision-Id")].TraceID; id != callersTrace {
				t.Errorf("on record in trace %q", id)
			}
		})
	}
}

// Each signal can be switched off in OpenTelemetry's own ways, and nothing is sent anywhere
// that nobody named.
func TestTelemetryIsSentWhereAskedOnly(t *testing.T) {
	for name, test := range map[string]struct {
		set             map[string]string
		traces, metrics bool
	}{
		"both":       {nil, true, true},
		"no traces":  {map[string]string{"OTEL_TRACES_EXPORTER": "none"}, false, true},
		"no metrics": {map[string]string{"OTEL_METRICS_EXPORTER": "none"}, true, false},
		"disabled":   {map[string]string{"OTEL_SDK_DISABLED": "true"}, false, false},
		"one named":  {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "URL/v1/traces"}, true, false},
		"unnamed":    {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCollector(t)
			for name, to := range test.set {
				t.Setenv(name, strings.Replace(to, "URL", c.url, 1))
			}
			s := pdptest.Start(t, telling(), server.Unhurried)
			s.Post(evaluationPath, readQuestion)
			if got := s.Get("/metrics"); got.Status != 200 { // always
				t.Errorf("got %d", got.Status)
			}
			stopAndWait(t, s)
			if traces, metrics := len(c.spans) > 0, len(c.metrics) > 0; traces != test.traces || metrics != test.metrics {
				t.Errorf("traces %v, metrics %v", traces, metrics)
			}
		})
	}
}

// What is wrong with a variable is said by its name: its value may be a key. The sink of records refuses what other
// telemetry does.
func TestTelemetryRefusesVariables(t *testing.T) {
	for name, test := range map[string]struct {
		set, to, want string
		sink          bool
	}{
		"no scheme":     {set: "OTEL_EXPORTER_OTLP_ENDPOINT", to: "s3cret:4318", want: "OTEL_EXPORTER_OTLP_ENDPOINT is no address"},
		"of traces":     {set: "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", to: "http://s3cret:x", want: "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is no address"},
		"gRPC":          {set: "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", to: "grpc", want: "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL says otherwise"},
		"exporter":      {set: "OTEL_TRACES_EXPORTER", to: "s3cret", want: "OTEL_TRACES_EXPORTER names an exporter that there is not; set"},
		"headers":       {set: "OTEL_EXPORTER_OTLP_HEADERS", to: "authorization s3cret", want: "OTEL_EXPORTER_OTLP_HEADERS; correct"},
		"header name":   {set: "OTEL_EXPORTER_OTLP_HEADERS", to: "s3cret x=1", want: "OTEL_EXPORTER_OTLP_HEADERS; correct"},
		"timeout":       {set: "OTEL_EXPORTER_OTLP_TIMEOUT", to: "s3cret", want: "OTEL_EXPORTER_OTLP_TIMEOUT; correct"},
		"certificate":   {set: "OTEL_EXPORTER_OTLP_CERTIFICATE", to: "/s3cret", want: "OTEL_EXPORTER_OTLP_CERTIFICATE"},
		"interval":      {set: "OTEL_METRIC_EXPORT_INTERVAL", to: "s3cret", want: "OTEL_METRIC_EXPORT_INTERVAL; correct"},
		"sampler":       {set: "OTEL_TRACES_SAMPLER", to: "s3cret", want: "OTEL_TRACES_SAMPLER; correct"},
		"ratio":         {set: "OTEL_TRACES_SAMPLER_ARG", to: "s3cret", want: "OTEL_TRACES_SAMPLER_ARG; correct"},
		"resource":      {set: "OTEL_RESOURCE_ATTRIBUTES", to: "s3cret", want: "OTEL_RESOURCE_ATTRIBUTES cannot be read"},
		"resource, %z":  {set: "OTEL_RESOURCE_ATTRIBUTES", to: "a=%zzs3cret", want: "OTEL_RESOURCE_ATTRIBUTES", sink: true},
		"nowhere":       {set: "OTEL_EXPORTER_OTLP_ENDPOINT", to: "", want: "does not know where to send records; set OTEL_EXPORTER_OTLP_ENDPOINT", sink: true},
		"of logs":       {set: "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", to: "http://s3cret:x", want: "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT is no address", sink: true},
		"gRPC, of logs": {set: "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL", to: "grpc", want: "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL says otherwise", sink: true},
		"logs timeout":  {set: "OTEL_EXPORTER_OTLP_LOGS_TIMEOUT", to: "s3cret", want: "cannot be read: OTEL_EXPORTER_OTLP_LOGS_TIMEOUT;", sink: true},
		"compression":   {set: "OTEL_EXPORTER_OTLP_COMPRESSION", to: "s3cret", want: "cannot be read: OTEL_EXPORTER_OTLP_COMPRESSION;", sink: true},
		"logs headers":  {set: "OTEL_EXPORTER_OTLP_LOGS_HEADERS", to: "authorization s3cret", want: "cannot be read: OTEL_EXPORTER_OTLP_LOGS_HEADERS; correct", sink: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
			t.Setenv("OTEL_TRACES_SAMPLER", "traceidratio")
			t.Setenv(test.set, test.to)
			var log written.Text
			config := server.Config{Program: server.Program{Source: telling()}, Listen: "127.0.0.1:0"}
			logTo(&log)(&config)
			if test.sink {
				config.Data = t.TempDir()
				withOTLP(0)(&config)
			}
			s, err := server.New(config)
			must(t, err)
			if err = s.Start(t.Context()); err == nil {
				stopAndWait(t, &pdptest.Server{Server: s})
				t.Fatal("it starts")
			}
			if !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "; ") {
				t.Errorf("got %v", err)
			}
			if all := err.Error() + log.String(); strings.Contains(all, "s3cret") {
				t.Errorf("the value is told: %s", all)
			}
		})
	}
}

// A receiver that refuses all, in words that quote a key, costs a line in the log.
func TestTelemetryReceiverSaysNo(t *testing.T) {
	c := newCollector(t)
	no := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no key k3y in the kingdom", 400) })
	refusing := httptest.NewServer(no)
	t.Cleanup(refusing.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", refusing.URL)
	var log written.Text
	s := pdptest.Start(t, telling(), logTo(&log), server.Unhurried)
	s.Post(evaluationPath, readQuestion)
	stopAndWait(t, s)
	if text := log.String(); strings.Contains(text, "kingdom") || strings.Count(text, "telemetry is not taken") != 2 || !strings.Contains(text, "400 Bad Request") {
		t.Error(text)
	}
	if len(c.spans) > 0 {
		t.Error("it went elsewhere")
	}
}

// A line in the log about a request has its trace: ours, or where nobody traces the caller's.
func TestLogLinesHaveTheTrace(t *testing.T) {
	for _, traced := range []bool{true, false} {
		if newCollector(t); !traced {
			t.Setenv("OTEL_SDK_DISABLED", "true")
		}
		var log written.Text
		s := pdptest.Start(t, bundle(t), logTo(&log), func(c *server.Config) {
			c.Program.PDP = pdp.Options{Recorder: recorder(func() error { return errors.New("disk full") })}
		})
		replied(t, s.Post(evaluationPath, readQuestion, "Traceparent", traceparent), 503)
		stopAndWait(t, s)
		if text := log.String(); !strings.Contains(text, "trace_id="+callersTrace) || strings.Contains(text, "span_id="+callersSpan) == traced {
			t.Errorf("traced %v: %s", traced, text)
		}
	}
}

// A receiver that takes a request and never answers costs nobody anything but the stop,
// which has a bound.
func TestTelemetryReceiverHangs(t *testing.T) {
	release := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	t.Cleanup(hanging.Close)
	t.Cleanup(func() { close(release) }) // before that
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", hanging.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "600000") // no end but the one that is looked for
	var log written.Text
	s := pdptest.Start(t, telling(), logTo(&log), server.Hurried)
	for range 3000 { // more than wait for a receiver
		replied(t, s.Post(evaluationPath, readQuestion), 200)
	}
	stopsByItself(t, s)
	if !strings.Contains(log.String(), "not all telemetry was taken before the stop") {
		t.Error(log.String())
	}
}
