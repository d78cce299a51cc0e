package recorder

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/decisionlog"
)

// What does it cost to put a usual decision on record, until it is durable and in the index?
func BenchmarkRecord(b *testing.B) {
	log, err := decisionlog.Open(b.TempDir(), decisionlog.Options{Index: true})
	if err != nil {
		b.Fatal(err)
	}
	r, _ := testRecorder(b)
	r.Log, r.Waits, r.GoOn = log, func(context.Context) {}, nil
	request, err := evaluation.DecodeAuthZEN([]byte(`{"subject":{"type":"user","id":"alice","properties":{"department":"sales","level":3}},"action":{"name":"tool.invoke"},`+
		`"resource":{"type":"tool","id":"tickets:create_ticket","properties":{"impact":"write"}},`+
		`"context":{"arguments":{"title":"Server outage","body":"The server in Frankfurt is down."},"workflow_id":"wf-abc","supported_obligations":["log"]}}`), "acme", evaluation.DefaultLimits())
	if err != nil {
		b.Fatal(err)
	}
	const callers = 128
	var left atomic.Int64
	left.Store(int64(b.N))
	cpu := func() time.Duration {
		var u syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := cpu()
	b.ReportAllocs()
	b.ResetTimer()
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for n := left.Add(-1); n >= 0; n = left.Add(-1) {
				record := pdp.Record{
					ID: fmt.Sprintf("0197f0c0-0000-7000-8000-%012d", n), Time: time.Now(), Bundle: "h1:Vy6bjgwOaGRfFQKFTgbFza5WbMnsV4eAZp3XSA5RvK4=",
					Call:     pdp.Call{Request: request, Asker: evaluation.Asker{Name: "key:gateway", RequestID: "r-1"}},
					Decision: evaluation.Decision{Allow: true, Determining: []string{"tools/allow"}, Bundle: "h1:Vy6bjgwOaGRfFQKFTgbFza5WbMnsV4eAZp3XSA5RvK4="},
				}
				if err := r.Record(context.Background(), []pdp.Record{record}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.StopTimer()
	b.ReportMetric(float64((cpu()-before).Nanoseconds())/float64(b.N)/1000, "cpu-µs/record")
	if err := log.Close(); err != nil {
		b.Fatal(err)
	}
}

// What does an ordinary decision cost on its way to the log? It has one determining policy and one obligation, and is in no
// batch, has no unknown place, and shows no capability.
func BenchmarkOrdinary(b *testing.B) {
	r, k := testRecorder(b)
	request, err := evaluation.DecodeAuthZEN([]byte(`{"subject":{"type":"user","id":"alice","properties":{"department":"sales","level":3}},"action":{"name":"tool.invoke"},`+
		`"resource":{"type":"tool","id":"tickets:create_ticket","properties":{"impact":"write"}},`+
		`"context":{"arguments":{"title":"Server outage","body":"The server in Frankfurt is down."},"workflow_id":"wf-abc","supported_obligations":["log"]}}`), "acme", evaluation.DefaultLimits())
	if err != nil {
		b.Fatal(err)
	}
	level, err := evaluation.NewObject(map[string]any{"level": "info"})
	if err != nil {
		b.Fatal(err)
	}
	records := []pdp.Record{{
		ID: "0197f0c0-0000-7000-8000-000000000000", Time: time.Now(), Bundle: "h1:Vy6bjgwOaGRfFQKFTgbFza5WbMnsV4eAZp3XSA5RvK4=",
		Call: pdp.Call{Request: request, Asker: evaluation.Asker{Name: "key:gateway", RequestID: "r-1"}},
		Decision: evaluation.Decision{
			Allow: true, Determining: []string{"tools/allow"}, Bundle: "h1:Vy6bjgwOaGRfFQKFTgbFza5WbMnsV4eAZp3XSA5RvK4=",
			Obligations: []evaluation.Obligation{{ID: "tools/allow", Type: "log", Properties: level}},
		},
	}}
	var line []byte
	b.ReportAllocs()
	for b.Loop() {
		if err := r.Record(b.Context(), records); err != nil {
			b.Fatal(err)
		}
		if line, err = k.entries[0].AppendBody(line[:0]); err != nil {
			b.Fatal(err)
		}
		k.entries, k.calls = k.entries[:0], k.calls[:0]
	}
}
