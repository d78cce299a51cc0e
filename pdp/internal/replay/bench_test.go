package replay_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"policy-service/evaluation"
	"policy-service/pdp"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/mask"
	"policy-service/pdp/internal/decisionlog/recorder"
	"policy-service/pdp/internal/decisionlog/segment"
	"policy-service/pdp/internal/replay"
)

// manyPolicies are a thousand, each about the resources of one group, of which an edit changes one.
func manyPolicies(edited bool) map[string]string {
	var text, entities strings.Builder
	for n := range 1000 {
		condition := "context.level > 2"
		if edited && n == 7 {
			condition = "context.level > 9"
		}
		fmt.Fprintf(&text, "@id(\"p%d\") permit (principal, action == Action::\"read\", resource in Folder::\"f%d\") when { %s };\n", n, n, condition)
		fmt.Fprintf(&entities, "%s{\"uid\":{\"type\":\"Doc\",\"id\":\"d%d\"},\"attrs\":{},\"parents\":[{\"type\":\"Folder\",\"id\":\"f%d\"}]}", map[bool]string{true: "[", false: ",\n"}[n == 0], n, n)
	}
	return map[string]string{"p.cedar": text.String(), "entities/docs.json": entities.String() + "]"}
}

func benchSide(b *testing.B, edited bool) *replay.Side {
	fsys := fstest.MapFS{}
	for name, content := range manyPolicies(edited) {
		fsys[name] = &fstest.MapFile{Data: []byte(content)}
	}
	side, err := replay.ReadSide(pdp.FS(fsys))
	must(b, err)
	return side
}

// benchRecords is how many records the log of the benchmarks has: REPLAY_RECORDS, or 20,000.
func benchRecords() int {
	if n, err := strconv.Atoi(os.Getenv("REPLAY_RECORDS")); err == nil {
		return n
	}
	return 20_000
}

// many makes a log in which a tenth of the questions are different, or all.
func many(b *testing.B, distinct int) (dir string) {
	dir = b.TempDir()
	log, err := decisionlog.Open(dir, decisionlog.Options{})
	must(b, err)
	side := benchSide(b, false)
	bundles, err := segment.OpenBundles(dir)
	must(b, err)
	_, err = bundles.Put(side.Files)
	must(b, err)
	masker, err := mask.New(make([]byte, mask.KeySize), nil)
	must(b, err)
	record := recorder.Recorder{
		Log: log, Mask: func(context.Context) *mask.Masker { return masker },
		GoOn: func(context.Context) error { return nil }, Waits: func(context.Context) {},
	}
	ids := 0
	p := pdp.Of(side.Bundle, pdp.Options{Recorder: nil, NewID: func() string { return "" }})
	var all []pdp.Record
	for n := range benchRecords() {
		call := benchCall(b, n%distinct)
		d, err := p.Evaluate(b.Context(), call)
		must(b, err)
		ids++
		d.ID = fmt.Sprintf("d%08d", ids)
		all = append(all, pdp.Record{Call: call, Decision: d, ID: d.ID, Time: time.Unix(int64(n), 0), Bundle: d.Bundle})
		if len(all) == 500 {
			record := record
			must(b, eachAlone(b.Context(), &record, all))
			all = nil
		}
	}
	must(b, log.Close())
	return dir
}

// eachAlone records decisions side by side, as callers of a server come.
func eachAlone(ctx context.Context, r *recorder.Recorder, all []pdp.Record) error {
	var wait sync.WaitGroup
	errs := make(chan error, len(all))
	for n := range all {
		wait.Go(func() { errs <- r.Record(ctx, all[n:n+1]) })
	}
	wait.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func benchCall(b *testing.B, n int) pdp.Call {
	context, err := evaluation.NewObject(map[string]any{"level": n % 7, "note": "as a request has it", "trace": fmt.Sprint("t", n)})
	must(b, err)
	return pdp.Call{
		Request: evaluation.Request{
			Tenant: "default", Subject: evaluation.Entity{Type: "User", ID: fmt.Sprint("u", n%5000)},
			Action: evaluation.Action{Name: "read"}, Resource: evaluation.Entity{Type: "Doc", ID: fmt.Sprint("d", n%1000)}, Context: context,
		},
		Asker: evaluation.Asker{Name: "key:gateway"}, Now: time.Unix(1700000000, 0),
	}
}

// spent is the CPU time of this process.
func spent() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// BenchmarkReplay compares a log with a candidate of a thousand policies, one of which is edited, and decides as many calls beside it:
// "decides" is how many decisions a record costs.
func BenchmarkReplay(b *testing.B) {
	for _, c := range []struct {
		name     string
		distinct int
	}{{"tenth", benchRecords() / 10}, {"all", benchRecords()}} {
		b.Run(c.name, func(b *testing.B) {
			dir := many(b, c.distinct)
			base, candidate := benchSide(b, false), benchSide(b, true)
			began := spent()
			p, calls := pdp.Of(base.Bundle, pdp.Options{}), 20_000
			for n := range calls {
				_, err := p.Evaluate(b.Context(), benchCall(b, n))
				must(b, err)
			}
			decide := (spent() - began) / time.Duration(calls)
			b.ResetTimer()
			began = spent()
			for b.Loop() {
				must(b, segment.Read(dir, func(s *segment.Snapshot) error {
					got, err := replay.Compare(b.Context(), replay.OfLog(s), base, candidate, replay.Options{}, nil)
					if err == nil && (got.Decisions != int64(benchRecords()) || got.Changed[replay.Narrowed] == 0) {
						b.Fatalf("got %+v", got)
					}
					return err
				}))
			}
			perRecord := float64((spent() - began).Nanoseconds()) / float64(b.N) / float64(benchRecords())
			b.ReportMetric(perRecord, "CPU-ns/record")
			b.ReportMetric(perRecord/float64(decide.Nanoseconds()), "decides/record")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(benchRecords()), "ns/record")
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			b.ReportMetric(float64(m.Sys)/(1<<20), "MB")
		})
	}
}
