package mcp_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"policy-service/pdp/internal/mcp"
	"policy-service/pdp/pdptest/mcptest"
)

// waitingIn is how many calls wait for people, as the gateway's metric has it.
func waitingIn(counts *sdkmetric.ManualReader) int64 {
	return gaugeIn(counts, "policy_service.mcp.waiting")
}

// gaugeIn is a gauge that has one value, -1 if it has none.
func gaugeIn(counts *sdkmetric.ManualReader, name string) int64 {
	if all := points(counts, name); len(all) == 1 {
		return all[0].Value
	}
	return -1
}

// waiter is a call that waits for people, until it is answered or given up.
type waiter struct {
	leave context.CancelFunc
	ended chan echo     // has one if it was answered
	over  chan struct{} // closed when nothing comes any more
}

// waits calls a tool, and does not wait for the answer.
func (v *visitor) waits(tool, arguments string) *waiter {
	return v.waitsFor("tools/call", `{"name":"`+tool+`","arguments":`+arguments+`}`)
}

func (v *visitor) waitsFor(method, params string) *waiter {
	ctx, cancel := context.WithCancel(v.s.t.Context())
	w := &waiter{cancel, make(chan echo, 1), make(chan struct{})}
	text := v.text(method, params)
	go func() {
		defer close(w.over)
		defer cancel()
		if got, err := v.try(ctx, http.MethodPost, text, v.headers(method, params)...); err == nil {
			w.ended <- got
		}
	}()
	return w
}

// goes has the client go away, and fails if it was answered before.
func (w *waiter) goes(t testing.TB) {
	t.Helper()
	w.leave()
	w.lost(t)
}

// lost fails unless the call ends without an answer.
func (w *waiter) lost(t testing.TB) {
	t.Helper()
	<-w.over
	if len(w.ended) > 0 {
		t.Errorf("it was answered %s", <-w.ended)
	}
}

// required reports whether an answer says that people were not heard in time.
func (a echo) required() bool {
	return a.status == http.StatusOK && a.code() == -32001 && strings.Contains(a.text, `"authorizationRequest"`)
}

// limited reports whether an answer says that there are too many already.
func (a echo) limited() bool {
	return a.status == http.StatusOK && a.code() == -32001 && a.kind() == "rate_limited" && retryAfter(a) >= 1 && !strings.Contains(a.text, "authorizationRequest")
}

// panicking is a way to the PDP that does not survive to have people asked, while it is set.
type panicking struct{ does atomic.Bool }

func (p *panicking) RoundTrip(r *http.Request) (*http.Response, error) {
	if p.does.Load() && r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/requests") {
		panic(http.ErrAbortHandler)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// Who waits beyond what a principal may, or all may together, is refused before anybody is asked. A place comes free by
// whatever ends a wait.
func TestWaitingFlood(t *testing.T) {
	inEras(t, func(t *testing.T, era string) {
		const own, all, flood = 3, 5, 50
		counts, way := sdkmetric.NewManualReader(), &panicking{}
		w := newPeople(t, land{
			change: func(c *mcp.Config) { c.Approvals = mcp.ApprovalsConfig{PerPrincipal: own, Waiting: all} },
			deps:   mcp.Deps{Transport: way, MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(counts))},
		})
		n := 0
		call := func(v *visitor) *waiter { // each is another call
			n++
			return v.waits("second-person", fmt.Sprintf(`{"n":%d}`, n))
		}
		fills := func(what string, is int64) {
			t.Helper()
			mcptest.Until(t, what, func() bool { return waitingIn(counts) == is })
		}
		filed := func() int { return len(w.approvals("")) }
		tooMany := func(what string, v *visitor) {
			t.Helper()
			before := filed()
			var floods []*waiter
			for range flood {
				floods = append(floods, call(v))
			}
			for _, one := range floods {
				if got := <-one.ended; !got.limited() {
					t.Errorf("%s: %s", what, got)
				}
			}
			if after := filed(); after != before {
				t.Errorf("%s: people are asked %d times more", what, after-before)
			}
		}

		alice, bob := w.visitor(era, nil), w.visitor(era, mcptest.Claims{"sub": "bob"})
		var waiting []*waiter
		for range own {
			waiting = append(waiting, call(alice))
		}
		fills("alice has as many as she may", own)
		tooMany("of alice", alice)
		if got := alice.call("free", `{}`); !got.ran() { // who waits is in nobody's way
			t.Errorf("beside them: %s", got)
		}
		theirs := []*waiter{call(bob), call(bob)}
		fills("all have as many as they may", all)
		tooMany("of all", bob)

		waiting[0].leave()
		fills("alice has left one", all-1)
		theirs = append(theirs, call(bob))
		fills("bob has it", all)
		tooMany("of all again", alice)

		ids := w.pending("second-person")
		for _, id := range ids[:own] { // each of alice's, of which she has left one
			w.approve("mia", id)
		}
		for _, one := range waiting[1:] {
			if got := <-one.ended; !got.ran() {
				t.Errorf("approved: %s", got)
			}
		}
		fills("what was decided waits no more", own)

		way.does.Store(true)
		for range all {
			one := call(alice)
			<-one.over
			select {
			case got := <-one.ended:
				if got.ran() || got.limited() {
					t.Errorf("what panicked: %s", got)
				}
			default: // its connection was cut
			}
		}
		way.does.Store(false)

		for _, one := range theirs {
			one.leave()
		}
		fills("nobody waits", 0)
		for range own {
			call(alice)
		}
		fills("alice has all her places again", own)
		for range all - own {
			call(bob)
		}
		fills("and bob the others", all)
		tooMany("at last", bob)
		if forwarded := w.forwarded("second-person"); len(forwarded) != own-1 {
			t.Errorf("forwarded: %v", forwarded)
		}
	})
}

// countedBy is what a gateway has counted, or measured last, by the values of an attribute.
func countedBy(counts *sdkmetric.ManualReader, name, by string) map[string]int64 {
	of := map[string]int64{}
	for _, p := range points(counts, name) {
		value, _ := p.Attributes.Value(attribute.Key(by))
		of[value.AsString()] += p.Value
	}
	return of
}

// callsCounted are the requests of a method, by how they ended.
func callsCounted(counts *sdkmetric.ManualReader, method string) map[string]int64 {
	of := map[string]int64{}
	for _, p := range points(counts, "policy_service.mcp.calls") {
		if is, _ := p.Attributes.Value("method"); is.AsString() == method {
			how, _ := p.Attributes.Value("outcome")
			of[how.AsString()] += p.Value
		}
	}
	return of
}

// points are the values of a metric of a gateway, none if it has no such metric.
func points(counts *sdkmetric.ManualReader, name string) (all []metricdata.DataPoint[int64]) {
	var got metricdata.ResourceMetrics
	if counts.Collect(context.Background(), &got) != nil {
		return nil
	}
	for _, scope := range got.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != name {
				continue
			}
			switch of := m.Data.(type) {
			case metricdata.Sum[int64]:
				all = append(all, of.DataPoints...)
			case metricdata.Gauge[int64]:
				all = append(all, of.DataPoints...)
			}
		}
	}
	return all
}
