package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"policy-service/pdp/internal/server/floor"
)

// This is `make bench-http`: the service over HTTP beside the floor, in every way to use it.
//
// Both are processes of their own; ours is the real binary, and the floor is the binary of this test with another
// argument. The right answers are those of the library, so that a fast wrong answer ends the run. The generator has one
// thread for Go code, and so at most one core; the servers have all. On two cores the two sides contend, which latency
// and requests a second show. CPU per request does not: it is that of the server's process, by the kernel.
//
// The cases are in cases_test.go, the bounds in bounds_test.go, and the floor in package floor.

// children are the servers that the binary of this test can be, by its first argument: the floor, and those around an MCP
// gateway. Each serves until it gets a signal, and writes its address into the file that is the second argument.
var children = map[string]func(ctx context.Context, addrFile string, args []string) error{
	floorCommand: func(ctx context.Context, addrFile string, _ []string) error {
		return floor.Serve(ctx, addrFile, floor.Handler())
	},
	upstreamCommand: serveUpstream,
	proxyCommand:    serveProxy,
}

const floorCommand = "floor"

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && children[os.Args[1]] != nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		if err := children[os.Args[1]](ctx, os.Args[2], os.Args[3:]); err != nil {
			fmt.Fprintln(os.Stderr, os.Args[1]+":", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if err := os.RemoveAll(buildDir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// TestBenchHTTP measures, as the words in BENCH_HTTP say. It fails if a bound is broken.
func TestBenchHTTP(t *testing.T) {
	args, is := os.LookupEnv("BENCH_HTTP")
	if !is {
		t.Skip("it measures for minutes; run make bench-http")
	}
	o, err := parse(strings.Fields(args))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	if err := benchHTTP(ctx, o, os.Stdout); err != nil {
		t.Fatal(err)
	}
}

// options choose the measurements.
type options struct {
	binary   string
	duration time.Duration
	loads    []load
	cases    []testCase
	runs     int
	bounds   []bound // break the run
}

func parse(args []string) (o options, err error) {
	o.bounds = bounds
	flags := flag.NewFlagSet("bench-http", flag.ContinueOnError)
	flags.StringVar(&o.binary, "binary", "bin/policy-service", "the service")
	flags.DurationVar(&o.duration, "duration", 5*time.Second, "of a run")
	flags.IntVar(&o.runs, "runs", 5, "of what has a bound")
	connections := flags.String("conns", "4,32,128", "numbers of connections")
	rates := flags.String("rates", "1000,5000", "requests a second")
	names := flags.String("cases", "all", "some of "+strings.Join(caseNames(), ","))
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.runs < 1 {
		return o, fmt.Errorf("nothing is measured in %d runs; try RUNS=5", o.runs)
	}
	if o.loads, err = parseLoads(*connections, *rates, o.duration); err != nil {
		return o, err
	}
	o.cases, err = chosen(*names)
	return o, err
}

// benchHTTP measures case after case. Its files are in a directory of their own, below TMPDIR: the disk of that is the
// disk of the decision log.
func benchHTTP(ctx context.Context, o options, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "loadtest-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	bare, err := startFloor(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bare.stop()) }()

	c := newComparison(out)
	c.print("%d cores, %s; runs of %v in turns of %v, %d where there is a bound; the log is in %s", runtime.NumCPU(), runtime.Version(), o.duration, slice, o.runs, dir)
	c.print("requests/s, CPU and ratios of both are medians of turns, latencies are of all turns; CPU is the server's and gen. the generator's, in µs a request, and CPU/commit in µs")
	for _, one := range o.cases {
		if err := c.runCase(ctx, o, one, dir, bare); err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
	}
	c.against("policies-10000", manyTimes, "policies-10", cpuTimes)
	c.tables(o.loads)
	return c.judge(o.bounds)
}

func (c *comparison) runCase(ctx context.Context, o options, one testCase, dir string, bare *process) (err error) {
	s, err := prepare(ctx, o.binary, one, dir)
	if err != nil {
		return err
	}
	debug.FreeOSMemory() // of the library, which gave the right answers
	c.print("\n%s: %s", one.name, one.what)
	c.names = append(c.names, one.name)
	if one.measure != nil {
		return one.measure(c, ctx, o, s, bare)
	}
	service, err := startService(ctx, o.binary, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, service.stop()) }()
	c.head(one.log != "")
	both := sides(bare, service, s)
	for run := range o.runs { // the runs of one load lie apart, so that other work of the machine befalls few of them
		for _, l := range o.loads {
			if run > 0 && !o.hasBound(one.name, l) || l.rate > 0 && one.batch { // rates are of single decisions
				continue
			}
			if err := measure(ctx, both, l, o.duration); err != nil {
				return err
			}
			c.measured(l, both)
			c.keep(one.name, l, both)
		}
	}
	if err := service.stop(); err != nil { // its data directory is needed now
		return err
	}
	ours, floors, err := allocations(ctx, s, o.runs)
	if err != nil {
		return fmt.Errorf("counting allocations: %w", err)
	}
	for i := range ours {
		c.add(metric{one.name, "", allocationCount}, ours[i].objects, floors[i].objects)
		c.add(metric{one.name, "", allocationBytes}, ours[i].bytes/1000, floors[i].bytes/1000)
	}
	return nil
}

// keptUp is the part of a rate that must be answered in its time. A server that lags behind is not measured at that rate.
const keptUp = .9

// keep keeps the numbers of a run.
func (c *comparison) keep(name string, l load, both []*side) {
	times := ratio(both, sample.cpuPerRequest)
	if got := both[1].median(sample.perSecond); l.rate > 0 && got < keptUp*float64(l.rate) {
		c.print("%7s  it does not keep up: %.0f of %d a second", l, got, l.rate)
		times = math.Inf(1)
	}
	c.add(metric{name, l.String(), cpuTimes}, times, both[0].median(sample.cpuPerRequest)/1000)
	c.addTimes(name, l, &both[0].times, &both[1].times)
}

// sides are the floor and the service. Both are asked the same requests.
func sides(bare, service *process, s *setup) []*side {
	ours := &side{
		name:      "ours",
		target:    target{addr: service.addr},
		exchanges: s.exchanges,
		pid:       service.Process.Pid,
	}
	if s.log != "" {
		wait := func(ctx context.Context, records uint64) (logState, error) { return caughtUp(ctx, service, s, records) }
		ours.log = &logged{s.perRequest(), wait}
	}
	floors := &side{
		name:      "floor",
		target:    target{addr: bare.addr},
		exchanges: answeredBy(s.exchanges, floor.Answer),
		pid:       bare.Process.Pid,
	}
	return []*side{floors, ours}
}

func answeredBy(exchanges []exchange, answer []byte) []exchange {
	all := make([]exchange, len(exchanges))
	for i, e := range exchanges {
		all[i] = exchange{request: e.request, answer: answer}
	}
	return all
}
