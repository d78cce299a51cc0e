package server_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric/noop"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"policy-service/pdp"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/bound"
)

// What does a decision of a batch of 1,000 cost beside a single request? Both
// take turns over one kept-alive connection, so that whatever else the machine
// does befalls both.
func BenchmarkBatchOf1000AgainstSingles(b *testing.B) {
	s := pdptest.Start(b, pdp.Dir("../../../policies/starter"))
	const size = 1000
	one := `{"subject":{"type":"user","id":"alice"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"wiki:search_pages"}}`
	var items strings.Builder
	for n := range size {
		fmt.Fprintf(&items, `,{"resource":{"type":"tool","id":"wiki:search_pages-%d"}}`, n)
	}
	batch := strings.TrimSuffix(one, "}") + `,"evaluations":[` + items.String()[1:] + `]}`
	var together time.Duration
	var passes bound.Passes
	for b.Loop() {
		start := time.Now()
		for range size {
			post(b, s.URL+"/access/v1/evaluation", one)
		}
		singles := time.Since(start)
		start = time.Now()
		post(b, s.URL+"/access/v1/evaluations", batch)
		took := time.Since(start)
		together += took
		passes.Against(took, singles)
	}
	bound.Check(b, passes.Median(), "x-of-singles", .2)
	b.ReportMetric(float64(together.Nanoseconds())/float64(b.N)/size, "ns/decision")
	b.ReportMetric(0, "ns/op")
}

// What does it cost over HTTP that a decision comes with obligations? Policies
// and requests are the same but for three of them, one with a template, and both
// take turns, one by one, over one kept-alive connection.
func BenchmarkObligationsAgainstNone(b *testing.B) {
	const obliging = `@id("p") %s permit (principal is user, action == Action::"%s", resource is doc) when { context.level > 1 };`
	s := pdptest.Start(b, pdptest.Bundle(map[string]string{
		"policy.cedar": fmt.Sprintf(obliging, "", "plain") + strings.Replace(fmt.Sprintf(obliging, `@obligation("approval_required, tell, hide")`, "obliging"), `"p"`, `"q"`, 1),
		"obligations.yaml": `tell: {type: notification, properties: {to: security, body: "${principal.id} did ${action.name} to ${resource.id}"}}
hide: {type: redact, properties: {fields: [/email, /phone]}}`,
	}))
	const size = 100
	body := func(action string) string {
		return `{"subject":{"type":"user","id":"alice"},"action":{"name":"` + action + `"},"resource":{"type":"doc","id":"plan"},"context":{"level":2,"supported_obligations":["approval_required","notification","redact"]}}`
	}
	timed := func(action string) time.Duration {
		start := time.Now()
		post(b, s.URL+"/access/v1/evaluation", body(action))
		return time.Since(start)
	}
	var all time.Duration
	var passes bound.Passes
	for b.Loop() {
		var with, without time.Duration
		for range size {
			without += timed("plain")
			with += timed("obliging")
		}
		all += with
		passes.Against(with, without)
	}
	bound.Check(b, passes.Median(), "x-of-without", 1.3)
	b.ReportMetric(float64(all.Nanoseconds())/float64(b.N)/size, "ns/decision")
	b.ReportMetric(0, "ns/op")
}

// What does it cost over HTTP that all is counted, and what that every request is traced
// besides? The same question goes to three servers in turn, each over one
// kept-alive connection, without a log: beside a disk nothing of it would show.
func BenchmarkTelemetryAgainstNone(b *testing.B) {
	none := func(c *server.Config) { c.Program.MeterProvider = noop.NewMeterProvider() }
	counted := func(*server.Config) {}
	traced := func(c *server.Config) {
		c.Program.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithBatcher(tracetest.NewNoopExporter()))
	}
	names := []string{"none", "counted", "traced"}
	var urls []string
	for _, option := range []pdptest.Option{none, counted, traced} {
		urls = append(urls, pdptest.Start(b, pdp.Dir("../../../policies/starter"), option).URL)
	}
	const size = 500
	const one = `{"subject":{"type":"user","id":"alice"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"wiki:search_pages"}}`
	took := make([]time.Duration, len(urls))
	for b.Loop() {
		for range size {
			for n, url := range urls {
				start := time.Now()
				post(b, url+"/access/v1/evaluation", one)
				took[n] += time.Since(start)
			}
		}
	}
	for n := range urls[1:] {
		b.ReportMetric(float64(took[n+1])/float64(took[0]), names[n+1]+"/none")
	}
	b.ReportMetric(float64(took[0].Nanoseconds())/float64(b.N)/size, "ns/none")
	b.ReportMetric(0, "ns/op")
}

func post(b *testing.B, url, body string) {
	resp, err := http.Post(url, "application/json", bytes.NewReader([]byte(body)))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
		b.Fatal(resp.Status, err)
	}
}
