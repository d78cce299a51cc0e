package server

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"policy-service/evaluation"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/server/telemetry"
	"policy-service/pdp/pdptest/night"
)

// counting is a server that counts, and a request to it.
func counting(t testing.TB) (*Server, echo.Context) {
	t.Helper()
	s, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	meter := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())).Meter("test")
	if s.telemetry.Meters, err = telemetry.NewMeters(meter); err != nil {
		t.Fatal(err)
	}
	public, _, err := s.handlers()
	if err != nil {
		t.Fatal(err)
	}
	c := public.(*echo.Echo).NewContext(httptest.NewRequest(http.MethodPost, "/access/v1/evaluation", nil), httptest.NewRecorder())
	c.SetPath("/access/v1/evaluation")
	return s, c
}

// What is counted of a request takes no memory, and neither does tracing that is off:
// a thousand requests are counted without one allocation.
func TestMeasuringTakesNoMemory(t *testing.T) {
	night.Measures(t)
	s, c := counting(t)
	m := s.telemetry.Meters
	all := &around{door: s.door, telemetry: s.telemetry, log: s.log, live: &s.live}
	route := func(c echo.Context) error {
		telemetry.EndStage(telemetry.Stage(c.Request().Context(), "decode"), nil)
		return nil
	}
	allow := evaluation.Decision{Allow: true, Determining: []string{"a"}, Obligations: []evaluation.Obligation{{Type: "log"}}}
	deny := evaluation.Decision{Errors: []evaluation.PolicyError{{Kind: evaluation.Overflow}}}
	for name, one := range map[string]struct {
		most    float64
		measure func()
	}{
		"decisions": {0, func() { m.Decisions.Answered("default", &allow); m.Decisions.Answered("default", &deny) }},
		"commits":   {0, func() { m.Log.Committed(decisionlog.Commit{Records: 3, Bytes: 1000, Took: time.Millisecond}) }},
		"requests":  {6, func() { _ = all.request(c, route) }}, // those of the request's visit and context
	} {
		if n := testing.AllocsPerRun(1000, one.measure); n > one.most {
			t.Errorf("%s: %v allocations, and %v at most", name, n, one.most)
		}
	}
}

// What does counting a request take of a processor, next to the 17 µs of a request to the
// bare framework?
func BenchmarkCountingARequest(b *testing.B) {
	s, c := counting(b)
	d := evaluation.Decision{Allow: true, Determining: []string{"a"}}
	all := &around{door: s.door, telemetry: s.telemetry, log: s.log, live: &s.live}
	route := func(c echo.Context) error {
		telemetry.EndStage(telemetry.Stage(c.Request().Context(), "decode"), nil)
		s.telemetry.Decisions.Answered("default", &d)
		return nil
	}
	b.ReportAllocs()
	for b.Loop() {
		_ = all.request(c, route)
	}
}
