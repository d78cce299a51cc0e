// Loadtest measures the service over HTTP beside the floor: what the bare framework
// takes to read a body and write a constant answer. `make bench-http` runs it.
//
// Both are processes of their own, ours is the real binary. One generator asks them
// in turns, in slices of a quarter of a second, so that a noisy machine befalls both
// alike; what is compared are slices that lie side by side. Read measure.go for what
// is measured, cases.go for what is asked, floor.go for the floor.
//
// The generator writes requests that were made before and compares every answer, byte
// for byte, with what the library says: a fast wrong answer ends the run. It has one
// thread for Go code, and so at most one core; the servers have all. On two cores the
// two sides contend, which latency and requests a second show. CPU per request does
// not: it is what the kernel says that the server's process has used.
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
	"strconv"
	"strings"
	"syscall"
	"time"
)

// options say what is measured.
type options struct {
	binary      string
	duration    time.Duration
	connections []int
	cases       []testCase
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) == 3 && os.Args[1] == floorCommand {
		exit(serveFloor(ctx, os.Args[2]))
	}
	o, err := parse(os.Args[1:])
	if err != nil {
		exit(err)
	}
	runtime.GOMAXPROCS(1)
	exit(run(ctx, o, os.Stdout))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "loadtest:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func parse(args []string) (options, error) {
	flags := flag.NewFlagSet("loadtest", flag.ContinueOnError)
	binary := flags.String("binary", "bin/policy-service", "the service")
	duration := flags.Duration("duration", 5*time.Second, "for each case and number of connections")
	connections := flags.String("conns", "1,4,32,128", "numbers of connections")
	names := flags.String("cases", "all", "some of "+strings.Join(caseNames(), ","))
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	o := options{binary: *binary, duration: *duration}
	for _, text := range strings.Split(*connections, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return o, fmt.Errorf("%q is no number of connections; try CONNS=1,32", text)
		}
		o.connections = append(o.connections, n)
	}
	if o.duration < 2*slice {
		return o, fmt.Errorf("in %v nobody gets a turn; try DURATION=5s", o.duration)
	}
	var err error
	o.cases, err = chosen(*names)
	return o, err
}

// run measures case after case. What it makes is in a directory of its own, below
// TMPDIR: the disk of that is the disk of the decision log.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "loadtest-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	floor, err := startFloor(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, floor.stop()) }()

	r := report{out: out, connections: o.connections}
	r.begin(o, dir)
	for _, c := range o.cases {
		if err := runCase(ctx, o, c, dir, floor, &r); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return r.end()
}

func runCase(ctx context.Context, o options, c testCase, dir string, floor *process, r *report) (err error) {
	s, err := prepare(ctx, o.binary, c, dir)
	if err != nil {
		return err
	}
	service, err := startService(ctx, o.binary, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, service.stop()) }()
	r.beginCase(c)
	for _, n := range o.connections {
		m, err := measure(ctx, floor, service, s, n, o.duration)
		if err != nil {
			return err
		}
		r.measured(c, n, m)
	}
	if err := service.stop(); err != nil { // its data directory is needed now
		return err
	}
	ours, floors, err := allocations(ctx, s)
	if err != nil {
		return fmt.Errorf("counting allocations: %w", err)
	}
	r.allocated(ours, floors)
	return nil
}
