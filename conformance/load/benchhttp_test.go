package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"policy-service/pdp/server/floor"
)

// This is `make bench-http`: the service over HTTP beside the floor, in every way to use it.
//
// Both are processes of their own; ours is the real binary, and the floor is the binary of this test with another
// argument. The right answers are those of the library, so that a fast wrong answer ends the run. The generator has one
// thread for Go code, and so at most one core; the servers have all. On two cores the two sides contend, which latency
// and requests a second show. CPU per request does not: it is what the kernel says that the server's process has used.
//
// Read cases_test.go for what is asked, and package floor for the floor.

// children are what the binary of this test can be, by its first argument: the floor, and what stands around an MCP
// gateway. Each serves until it is told to stop, and writes its address into the file that is the second argument.
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
	os.Exit(m.Run())
}

// TestBenchHTTP measures, as the words in BENCH_HTTP say. It fails if a bound is broken.
func TestBenchHTTP(t *testing.T) {
	args, is := os.LookupEnv("BENCH_HTTP")
	if !is {
		t.Skip("this takes minutes: make bench-http")
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

// options say what is measured.
type options struct {
	binary      string
	duration    time.Duration
	connections []int
	cases       []testCase
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("bench-http", flag.ContinueOnError)
	flags.StringVar(&o.binary, "binary", "bin/policy-service", "the service")
	flags.DurationVar(&o.duration, "duration", 5*time.Second, "for each case and number of connections")
	connections := flags.String("conns", "1,4,32,128", "numbers of connections")
	names := flags.String("cases", "all", "some of "+strings.Join(caseNames(), ","))
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.connections, err = parseConnections(*connections, o.duration); err != nil {
		return o, err
	}
	o.cases, err = chosen(*names)
	return o, err
}

// benchHTTP measures case after case. What it makes is in a directory of its own, below TMPDIR: the disk of that is the
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

	c := comparison{report: report{out}, connections: o.connections}
	c.begin(o, dir)
	for _, one := range o.cases {
		if err := c.runCase(ctx, o, one, dir, bare); err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
	}
	return c.end()
}

// comparison is the report over all cases, with what compares them in the end.
type comparison struct {
	report
	connections []int
	names       []string
	ratios      map[string][]float64 // by case: CPU per request to the floor's, by connections
}

func (c *comparison) begin(o options, dir string) {
	c.ratios = map[string][]float64{}
	c.print("%d cores, %s; %v for each case and number of connections, in turns of %v; the log is in %s", runtime.NumCPU(), runtime.Version(), o.duration, slice, dir)
	c.print("requests/s, CPU and ratios of both are medians of turns, latencies are of all turns; CPU is the server's and gen. the generator's, in µs a request, and CPU/commit in µs")
}

func (c *comparison) runCase(ctx context.Context, o options, one testCase, dir string, bare *process) (err error) {
	s, err := prepare(ctx, o.binary, one, dir)
	if err != nil {
		return err
	}
	service, err := startService(ctx, o.binary, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, service.stop()) }()
	c.names = append(c.names, one.name)
	c.print("\n%s: %s", one.name, one.what)
	c.head(one.log != "")
	both := sides(bare, service, s)
	for _, n := range o.connections {
		if err := measure(ctx, both, n, o.duration); err != nil {
			return err
		}
		c.measured(n, both)
		c.ratios[one.name] = append(c.ratios[one.name], ratio(both, sample.cpuPerRequest))
	}
	if err := service.stop(); err != nil { // its data directory is needed now
		return err
	}
	ours, floors, err := allocations(ctx, s)
	if err != nil {
		return fmt.Errorf("counting allocations: %w", err)
	}
	c.print("allocations a request: %.0f, of the floor %.0f (counted in one process, over 32 connections)", ours, floors)
	return nil
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
		all[i] = exchange{e.request, answer}
	}
	return all
}

// boundConnections is over how many connections the bounds hold.
const boundConnections = 128

// bounds are how many times the floor's CPU per request a case may cost.
var bounds = map[string]float64{"best-effort-key": 3, "strict-key": 4.5}

// manyPolicies is how many times as much 10,000 policies may cost as 10.
const manyPolicies = 1.6

// end compares the cases. It is an error that one of them costs more than it may.
func (c *comparison) end() (err error) {
	c.print("\nCPU per request, times the floor's")
	c.print("%-18s%s", "connections", row("%7d", c.connections))
	for _, name := range c.names {
		c.print("%-18s%s", name, row("%7.2f", c.ratios[name]))
		if most, is := bounds[name]; is {
			err = errors.Join(err, c.check(name+", times the floor's CPU,", c.ratios[name], most))
		}
	}
	few, many := c.ratios["policies-10"], c.ratios["policies-10000"]
	if few == nil || many == nil {
		return err
	}
	against := make([]float64, len(few))
	for i := range few {
		against[i] = many[i] / few[i]
	}
	c.print("%-18s%s", "10,000 against 10", row("%7.2f", against))
	return errors.Join(err, c.check("10,000 policies against 10", against, manyPolicies))
}

// check holds a row to its bound.
func (c *comparison) check(what string, ratios []float64, most float64) error {
	i := slices.Index(c.connections, boundConnections)
	if i < 0 || ratios[i] <= most {
		return nil
	}
	return fmt.Errorf("over %d connections, %s is %.2f, the bound is %g", boundConnections, what, ratios[i], most)
}

func row[T any](format string, of []T) (line string) {
	for _, v := range of {
		line += fmt.Sprintf(format, v)
	}
	return line
}
