package server_test

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	collectmetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collecttraces "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	metrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	traces "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// otelCollector takes traces and metrics over OTLP/HTTP.
type otelCollector struct {
	t   *testing.T
	url string

	mu      sync.Mutex
	raw     strings.Builder
	spans   []*traces.Span
	metrics map[string]*metrics.Metric // the last of each name
	header  http.Header
}

// newCollector starts one, and has servers send to it.
func newCollector(t *testing.T) *otelCollector {
	c := &otelCollector{t: t, metrics: map[string]*metrics.Metric{}}
	s := httptest.NewServer(c)
	t.Cleanup(s.Close)
	c.url = s.URL
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", s.URL)
	return c
}

func (c *otelCollector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the sender gave up
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw.Write(body)
	c.header = r.Header
	switch r.URL.Path {
	case "/v1/traces":
		err = c.takeTraces(body)
	case "/v1/metrics":
		err = c.takeMetrics(body)
	default:
		c.t.Errorf("%s is no place for telemetry", r.URL)
	}
	if err != nil {
		c.t.Error(err)
	}
}

func (c *otelCollector) takeTraces(body []byte) error {
	var export collecttraces.ExportTraceServiceRequest
	if err := proto.Unmarshal(body, &export); err != nil {
		return err
	}
	for _, of := range export.ResourceSpans {
		for _, scope := range of.ScopeSpans {
			c.spans = append(c.spans, scope.Spans...)
		}
	}
	return nil
}

func (c *otelCollector) takeMetrics(body []byte) error {
	var export collectmetrics.ExportMetricsServiceRequest
	if err := proto.Unmarshal(body, &export); err != nil {
		return err
	}
	for _, of := range export.ResourceMetrics {
		for _, scope := range of.ScopeMetrics {
			for _, m := range scope.Metrics {
				c.metrics[m.Name] = m
			}
		}
	}
	return nil
}

// span is what tests read of one.
type span struct {
	name, trace, id, parent string
	kind                    traces.Span_SpanKind
	failed                  bool
	attributes              string
}

// trace are the spans of a trace, by name, after the server has stopped.
func (c *otelCollector) trace(id string) map[string]span {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := map[string]span{}
	for _, s := range c.spans {
		if got := hex.EncodeToString(s.TraceId); got == id {
			var attributes strings.Builder
			for _, a := range s.Attributes {
				attributes.WriteString(a.Key + "=" + strings.NewReplacer("string_value:", "", "int_value:", "", `"`, "").Replace(a.Value.String()) + " ")
			}
			found[s.Name] = span{s.Name, got, hex.EncodeToString(s.SpanId), hex.EncodeToString(s.ParentSpanId), s.Kind, s.Status.GetCode() == traces.Status_STATUS_CODE_ERROR, strings.TrimSpace(attributes.String())}
		}
	}
	return found
}
