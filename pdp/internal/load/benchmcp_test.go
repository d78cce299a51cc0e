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

	"policy-service/pdp/pdptest/night"
)

// This is `make bench-mcp`: the MCP gateway beside a bare reverse proxy, before the same upstream.
//
// Each is a process of its own: the gateway is the real binary, the proxy and the upstream are the binary of this test with
// another argument. The measure is the CPU of the gateway's process, times that of the proxy's, in turns that lie side by
// side. Cold, no token has been seen before; warm, all have.

// With -before, the gateway of another program takes the place of the proxy: what counts then is how the costs have changed.

// The calls have 1 KiB of arguments, over 32 connections, warm. A list is the first of a person.
const (
	mcpConnections = 32
	mcpArguments   = 1 << 10
	mcpTools       = 200
	// mcpListMost is the time that the gateway may add to a list of all tools: it asks the PDP about each.
	mcpListMost = 15 * time.Millisecond
)

// mcpMost is how many times the CPU of a bare proxy a call may cost.
const mcpMost = 2.0

// mcpCases are the ways in which a gateway can ask a PDP. Before is how many times the CPU that a call costs with the program
// given by -before.
var mcpCases = []struct {
	name   string
	before float64
	pdp    func(s *mcpStage, ctx context.Context) (config string, err error)
}{
	{"PDP over loopback", 0.97, (*mcpStage).startPDP},
	{"PDP embedded", 0.9, (*mcpStage).embedPDP},
}

// TestBenchMCP measures, as the words in BENCH_MCP say. It fails if a bound is broken.
func TestBenchMCP(t *testing.T) {
	args, is := os.LookupEnv("BENCH_MCP")
	if !is {
		t.Skip("it measures for minutes; run make bench-mcp")
	}
	flags := flag.NewFlagSet("bench-mcp", flag.ContinueOnError)
	binary := flags.String("binary", "bin/policy-service", "the program with the gateway")
	before := flags.String("before", "", "the program to compare with in turns, such as one of the commit before")
	duration := flags.Duration("duration", 5*time.Second, "for each case, warm")
	if err := flags.Parse(strings.Fields(args)); err != nil {
		t.Fatal(err)
	}
	if _, err := parseLoads("32", "", *duration); err != nil {
		t.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	t.Run("plain/capabilities", func(t *testing.T) {
		if err := benchCapability(ctx, newMCPStage(ctx, t, *binary, &mcpPlain), *before, *duration, os.Stdout); err != nil {
			t.Error(err)
		}
	})
	for _, upstream := range []*mcpUpstream{&mcpPlain, &mcpEverything} {
		for _, c := range mcpCases {
			t.Run(upstream.name+"/"+c.name, func(t *testing.T) {
				s := newMCPStage(ctx, t, *binary, upstream)
				if *before != "" {
					if err := s.compare(ctx, *before, c.pdp, *duration, c.before, os.Stdout); err != nil {
						t.Error(err)
					}
					return
				}
				pdp, err := c.pdp(s, ctx)
				if err != nil {
					t.Fatal(err)
				}
				if err := benchMCP(ctx, s, func() (*process, error) { return s.startGateway(ctx, pdp) }, *duration, mcpColdCalls, mcpMost, os.Stdout); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// benchMCP measures one passage to the upstream beside the bare proxy, for d, with so many calls that come once.
func benchMCP(ctx context.Context, s *mcpStage, through func() (*process, error), d time.Duration, cold int, most float64, out io.Writer) (err error) {
	bare, err := s.startProxy(ctx)
	if err != nil {
		return err
	}
	ours, err := s.started(through())
	if err != nil {
		return err
	}
	r, over := report{out}, load{connections: mcpConnections}
	r.print("\n%s: calls with %d bytes of arguments, ES256", s.t.Name(), mcpArguments)
	r.head(false)
	warm, err := s.sides(ctx, bare, ours, s.calls(1, mcpWarmCalls))
	if err != nil {
		return err
	}
	unseen := []*side{{name: "floor"}, {name: "cold"}}
	calls := s.calls(cold, cold)
	for i, c := range unseen {
		c.target, c.pid, c.exchanges = warm[i].target, warm[i].pid, answeredBy(calls, warm[i].exchanges[0].answer)
	}
	if err := measure(ctx, warm, over, d); err != nil {
		return err
	}
	r.measured(over, warm)
	if err := measure(ctx, unseen, over, min(d, mcpColdAtMost)); err != nil {
		return err
	}
	r.measured(over, unseen)
	if ratio := ratio(warm, sample.cpuPerRequest); ratio > most {
		err = fmt.Errorf("a call costs %.2f times the CPU of a bare proxy, the bound is %g", ratio, most)
	}
	if s.of.lists {
		err = errors.Join(err, s.lists(ctx, bare.addr, ours.addr, r))
	}
	return err
}

// compare measures the gateway beside that of another program, each with a PDP of its own program, for d.
func (s *mcpStage) compare(
	ctx context.Context, other string, pdp func(*mcpStage, context.Context) (string, error), d time.Duration, most float64, out io.Writer,
) error {
	var gateways [2]*process
	for n, at := range []*mcpStage{s.withProgram(other), s} {
		config, err := pdp(at, ctx)
		if err != nil {
			return err
		}
		if gateways[n], err = at.started(at.startGateway(ctx, config)); err != nil {
			return err
		}
	}
	both, err := s.sides(ctx, gateways[0], gateways[1], s.calls(1, mcpWarmCalls))
	if err != nil {
		return err
	}
	both[0].name = "before"
	r, over := report{out}, load{connections: mcpConnections}
	r.print("\n%s: calls with %d bytes of arguments, ES256, beside %s", s.t.Name(), mcpArguments, other)
	r.head(false)
	if err := measure(ctx, both, over, d); err != nil {
		return err
	}
	r.measured(over, both)
	if ratio := ratio(both, sample.cpuPerRequest); ratio > most {
		err = fmt.Errorf("a call costs %.2f times the CPU that it costs with %s, the bound is %g", ratio, other, most)
	}
	if s.of.lists {
		err = errors.Join(err, s.lists(ctx, gateways[0].addr, gateways[1].addr, r))
	}
	return err
}

// Warm, a few calls go round. Cold, each is made once: there are more of them than can be made in that time.
const (
	mcpWarmCalls  = 1024
	mcpColdCalls  = 24_000
	mcpColdAtMost = time.Second
)

// sides are the proxy and the gateway beside it, asked the same. Each has answered once, and the same answer is right
// for all of the calls.
func (s *mcpStage) sides(ctx context.Context, bare, ours *process, calls []exchange) ([]*side, error) {
	both := []*side{{name: "floor", target: target{addr: bare.addr}, pid: bare.Process.Pid}, {name: "ours", target: target{addr: ours.addr}, pid: ours.Process.Pid}}
	for _, one := range both {
		answer, err := s.ask(ctx, one.target.addr, calls[0])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", one.name, err)
		}
		if !strings.Contains(string(answer), s.of.ran) {
			return nil, fmt.Errorf("%s: the answer is %s", one.name, answer)
		}
		one.exchanges = answeredBy(calls, answer)
	}
	return both, nil
}

// lists has people ask for the list of tools, each for the first time, in turns at the addresses of a bare proxy and a gateway.
func (s *mcpStage) lists(ctx context.Context, bare, ours string, r report) error {
	const people = 64
	took := map[string][]time.Duration{}
	for n := range people {
		list := s.exchange("tools/list", "", fmt.Sprintf(`{%s}`, mcpMeta), s.token(fmt.Sprintf("person-%d", n), 0))
		for _, at := range []string{bare, ours} {
			begin := time.Now()
			answer, err := s.ask(ctx, at, list)
			if err != nil {
				return err
			}
			took[at] = append(took[at], time.Since(begin))
			if got := strings.Count(string(answer), `"inputSchema"`); got != mcpTools {
				return fmt.Errorf("a list has %d tools, not %d: %.200s", got, mcpTools, answer)
			}
		}
	}
	first := took[ours][0]
	slices.Sort(took[bare])
	slices.Sort(took[ours])
	added := took[ours][people/2] - took[bare][people/2]
	r.print("a list of %d tools: median %v, %v more than beside it, slowest %v, the very first %v",
		mcpTools, took[ours][people/2], added, took[ours][people-1], first)
	if added > mcpListMost {
		return fmt.Errorf("the gateway adds %v to a list of %d tools, the bound is %v", added, mcpTools, mcpListMost)
	}
	return nil
}

// The driver finds a gateway that costs too much, and one that lists too few: here another bare proxy stands for it.
func TestBenchMCPDriver(t *testing.T) {
	night.Measures(t)
	s := newMCPStage(t.Context(), t, "", &mcpPlain)
	var out strings.Builder
	through := func() (*process, error) { return s.startProxyTo(t.Context(), "other") }
	if err := benchMCP(t.Context(), s, through, 4*slice, 2000, 100, &out); err != nil {
		t.Fatal(err)
	}
	t.Log(out.String())
	if err := benchMCP(t.Context(), s, through, 2*slice, 2000, 0.01, &out); err == nil || !strings.Contains(err.Error(), "times the CPU of a bare proxy") {
		t.Errorf("with a bound that nobody keeps: %v", err)
	}
}
