package sink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/log"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/server/telemetry"
	"policy-service/pdp/pdptest/night"
)

func openTestLog(t *testing.T, options decisionlog.Options) *decisionlog.Log {
	t.Helper()
	l, err := decisionlog.Open(t.TempDir(), options)
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func appendRecords(t *testing.T, l *decisionlog.Log, n int) {
	t.Helper()
	entries := make([]record.Entry, n)
	for i := range entries {
		entries[i] = record.Entry{Kind: format.KindAdmin, Event: "test"}
	}
	must(t, l.Append(t.Context(), entries))
}

// follow is a sink on a log, and what it counts.
func follow(t *testing.T, l *decisionlog.Log, queue uint64, send func(context.Context, []record.Record) error) (*sink, func() map[string]int64) {
	t.Helper()
	reader := sdkmetric.NewManualReader()
	meter := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test")
	one := &sink{name: "test", queue: queue, send: send, from: l, waiting: l.Size(), log: slog.New(slog.DiscardHandler)}
	one.handedOn, _ = meter.Int64Counter("handed on")
	one.dropped, _ = meter.Int64Counter("dropped")
	one.attributes = metric.WithAttributes(attribute.String("sink", "test"))
	return one, func() map[string]int64 {
		counts := map[string]int64{}
		var all metricdata.ResourceMetrics
		must(t, reader.Collect(t.Context(), &all))
		for _, scope := range all.ScopeMetrics {
			for _, m := range scope.Metrics {
				counts[m.Name] = m.Data.(metricdata.Sum[int64]).DataPoints[0].Value
			}
		}
		return counts
	}
}

// Whatever a receiver does, and however fast records come: each record is handed on
// once, in order, or counted as dropped, and of those at the end none is missing.
func TestSinkLosesNothingUncounted(t *testing.T) {
	t.Parallel()
	for seed := range uint64(night.Cases(20)) {
		random := rand.New(rand.NewPCG(seed, 1))
		l := openTestLog(t, decisionlog.Options{})
		first := l.Size()
		var got []uint64
		failures := 1
		one, counts := follow(t, l, 20, func(_ context.Context, records []record.Record) error {
			switch n := random.IntN(10); {
			case n == 0 && failures > 0:
				failures--
				return errors.New("not now")
			case n == 1:
				return &telemetry.Refusal{Records: len(records), Why: "no"}
			}
			for _, r := range records {
				got = append(got, r.Sequence)
			}
			return nil
		})
		stopping, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { one.run(t.Context(), stopping) })
		for n := range 100 {
			appendRecords(t, l, 1+n*7%30)
		}
		stop()
		running.Wait()
		one.ended()
		for n := 1; n < len(got); n++ {
			if got[n] <= got[n-1] {
				t.Fatalf("seed %d: record %d comes after %d", seed, got[n], got[n-1])
			}
		}
		c := counts()
		if c["handed on"] != int64(len(got)) || c["handed on"]+c["dropped"] != int64(l.Size()-first) {
			t.Errorf("seed %d: %d came, %v counted, of %d", seed, len(got), c, l.Size()-first)
		}
	}
}

// What is gone from the log before its turn is not sent, and no reason to wait.
func TestSinkPassesOverWhatIsGone(t *testing.T) {
	t.Parallel()
	l := openTestLog(t, decisionlog.Options{})
	var got []uint64
	one, _ := follow(t, l, 1000, func(_ context.Context, records []record.Record) error {
		for _, r := range records {
			got = append(got, r.Sequence)
		}
		return nil
	})
	appendRecords(t, l, 5)
	must(t, l.Rotate(t.Context()))
	kept := l.Size() - 1 // segment_opened, the first record of the new segment
	if _, err := l.Retain(t.Context(), decisionlog.Retention{Age: time.Nanosecond}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	stopping, stop := context.WithCancel(t.Context())
	stop() // it goes on to the end
	one.run(t.Context(), stopping)
	one.ended()
	if len(got) == 0 || got[0] != kept || got[len(got)-1] != l.Size()-1 {
		t.Errorf("got %v, want from %d to %d", got, kept, l.Size()-1)
	}
}

// A sink does not wait for the next attempt when there is little time left.
func TestSinkHurriesAtTheStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := openTestLog(t, decisionlog.Options{})
		failed := make(chan struct{}, 100)
		var back atomic.Bool
		one, counts := follow(t, l, 1000, func(context.Context, []record.Record) error {
			if back.Load() {
				return nil
			}
			failed <- struct{}{}
			return errors.New("away")
		})
		appendRecords(t, l, 3)
		stopping, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { one.run(t.Context(), stopping) })
		for range 4 {
			<-failed
		}
		synctest.Wait() // the next attempt is two seconds away
		began := time.Now()
		back.Store(true)
		stop()
		running.Wait()
		if took := time.Since(began); took > 0 || counts()["handed on"] != 3 {
			t.Errorf("%v, %v", took, counts())
		}
	})
}

// torn is a disk that takes half of some writes.
type torn struct {
	bytes.Buffer
	random *rand.Rand
}

func (d *torn) Write(p []byte) (int, error) {
	if len(p) > 1 && d.random.IntN(3) == 0 {
		n, _ := d.Buffer.Write(p[:d.random.IntN(len(p))])
		return n, errors.New("no space left")
	}
	return d.Buffer.Write(p)
}

// A write that fails half-way spoils its own line and no other.
func TestOutputKeepsLinesApart(t *testing.T) {
	t.Parallel()
	const rec, note = `{"sequence":1,"salt":"s"}`, "origin\n1\n\n— origin s\n"
	for seed := range uint64(20) {
		disk := &torn{random: rand.New(rand.NewPCG(seed, 2))}
		out := &Output{To: disk}
		want := 0
		for range 20 {
			if err := out.Send(t.Context(), []record.Record{{Line: []byte(rec)}}); err == nil {
				want++
			}
			_, _ = out.Write([]byte(note))
		}
		got := 0
		for line := range strings.Lines(disk.String()) {
			line = strings.TrimSuffix(line, "\n")
			switch {
			case line == rec:
				got++
			case strings.HasPrefix(rec, line), strings.HasPrefix("origin", line), strings.HasPrefix("— origin s", line), line == "1":
			default:
				t.Errorf("seed %d: got %q", seed, line)
			}
		}
		if got < want {
			t.Errorf("seed %d: %d of %d are whole", seed, got, want)
		}
	}
}

// Before an item goes the record of the batch that it inherits from, also where that was
// left out because too many waited; nothing is counted twice for it.
func TestSinkSendsTheRecordOfABatchBeforeItsItems(t *testing.T) {
	t.Parallel()
	l := openTestLog(t, decisionlog.Options{})
	first := l.Size()
	for n := range 3 {
		id := fmt.Sprintf("b%d", n)
		entries := []record.Entry{{ID: id, Kind: format.KindBatch, Request: &record.Request{Context: jsontext.Value(`{"x":1}`)}}}
		for i := range 400 { // all of them are not sent together
			e := record.Entry{ID: fmt.Sprintf("%s.%d", id, i), Kind: format.KindDecision, Decision: &record.Decision{}}
			if i%2 == 0 {
				e.Inherits = []string{"context"}
			}
			entries = append(entries, e)
		}
		must(t, l.Append(t.Context(), entries))
	}
	within, err := l.ByID("b1.7")
	must(t, err)
	for _, test := range []struct {
		name       string
		from       uint64 // those before it were left out
		redacted   string
		want, lack []string
	}{
		{"all", first, "", []string{"b0", "b1", "b2"}, nil},
		{"the oldest are left out", within.Sequence, "", []string{"b1", "b2"}, nil},
		{"the record is gone", within.Sequence, "b1", []string{"b2"}, []string{"b1"}},
	} {
		if test.redacted != "" {
			must(t, l.Redact(t.Context(), "", test.redacted, "on request"))
		}
		var sent record.Inheritance
		var batches, lack []string
		failures, seen := 3, map[string]int{}
		one, counts := follow(t, l, 10_000, func(_ context.Context, records []record.Record) error {
			if failures--; failures%2 == 0 { // in the middle, too
				return errors.New("not now")
			}
			for _, r := range records {
				id, err := sent.MissingBatch(r.Line)
				if err != nil {
					t.Error(err)
				}
				if id != "" {
					lack = append(lack, id)
				}
				item, err := record.Parse(r.Line)
				if err != nil {
					t.Error(err)
				}
				if item.Kind == format.KindBatch {
					batches = append(batches, item.ID)
				}
				seen[item.ID]++
			}
			return nil
		})
		one.waiting = test.from
		stopping, stop := context.WithCancel(t.Context())
		stop() // it goes on to the end
		one.run(t.Context(), stopping)
		one.ended()
		if c := counts(); c["handed on"] != int64(l.Size()-test.from) || c["dropped"] != 0 {
			t.Errorf("%s: %v, of %d", test.name, c, l.Size()-test.from)
		}
		if !slices.Equal(batches, test.want) || !slices.Equal(lack, test.lack) || seen["b1.8"] != 1 || seen["b2.399"] != 1 {
			t.Errorf("%s: the records of %v were sent, and %v lack theirs", test.name, batches, lack)
		}
	}
}

// What is lost is for an operator to see.
func TestSeverity(t *testing.T) {
	t.Parallel()
	for event, want := range map[string]log.Severity{
		format.EventStart: log.SeverityInfo, format.EventCrash: log.SeverityWarn, format.EventDropped: log.SeverityWarn, format.EventLoss: log.SeverityWarn,
	} {
		if got := severityOf(&record.Recorded{Event: event}); got != want {
			t.Errorf("%s: %v, and not %v", event, got, want)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
