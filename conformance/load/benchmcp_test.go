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

// The calls have 1 KiB of arguments, over 32 connections, warm. A list is the first of a person.
const (
	mcpConnections = 32
	mcpArguments   = 1 << 10
	mcpTools       = 200
	// mcpListMost is how many times as long as the proxy's a list of a person's tools may take: 200 questions to the PDP.
	mcpListMost = 20
)

// mcpCases are the ways in which a gateway can ask a PDP, with the bounds: most is how many times the CPU of a proxy a call
// may cost, by the upstream.
var mcpCases = []struct {
	name string
	most map[*mcpUpstream]float64
	pdp  func(s *mcpStage, ctx context.Context) (config string, err error)
}{
	{"PDP over loopback", map[*mcpUpstream]float64{&mcpPlain: 2.0, &mcpEverything: 1.5}, (*mcpStage).startPDP},
	{"PDP embedded", map[*mcpUpstream]float64{&mcpPlain: 1.4, &mcpEverything: 1.4}, (*mcpStage).embedPDP},
}

// TestBenchMCP measures, as the words in BENCH_MCP say. It fails if a bound is broken.
func TestBenchMCP(t *testing.T) {
	args, is := os.LookupEnv("BENCH_MCP")
	if !is {
		t.Skip("it measures for minutes; run make bench-mcp")
	}
	flags := flag.NewFlagSet("bench-mcp", flag.ContinueOnError)
	binary := flags.String("binary", "bin/policy-service", "the program with the gateway")
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
		if err := benchCapability(ctx, newMCPStage(ctx, t, *binary, &mcpPlain), *duration, os.Stdout); err != nil {
			t.Error(err)
		}
	})
	for _, upstream := range []*mcpUpstream{&mcpPlain, &mcpEverything} {
		for _, c := range mcpCases {
			t.Run(upstream.name+"/"+c.name, func(t *testing.T) {
				s := newMCPStage(ctx, t, *binary, upstream)
				pdp, err := c.pdp(s, ctx)
				if err != nil {
					t.Fatal(err)
				}
				if err := benchMCP(ctx, s, func() (*process, error) { return s.startGateway(ctx, pdp) }, *duration, mcpColdCalls, c.most[upstream], os.Stdout); err != nil {
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
		err = errors.Join(err, s.lists(ctx, bare, ours, r))
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

// lists has people ask for the list of tools, of whom each asks for the first time, and the bare proxy in turns with them.
func (s *mcpStage) lists(ctx context.Context, bare, ours *process, r report) error {
	const people = 64
	took := map[*process][]time.Duration{}
	for n := range people {
		list := s.exchange("tools/list", "", fmt.Sprintf(`{%s}`, mcpMeta), s.token(fmt.Sprintf("person-%d", n), 0))
		for _, p := range []*process{bare, ours} {
			begin := time.Now()
			answer, err := s.ask(ctx, p.addr, list)
			if err != nil {
				return err
			}
			took[p] = append(took[p], time.Since(begin))
			if got := strings.Count(string(answer), `"inputSchema"`); got != mcpTools {
				return fmt.Errorf("a list has %d tools, not %d: %.200s", got, mcpTools, answer)
			}
		}
	}
	first := took[ours][0]
	slices.Sort(took[bare])
	slices.Sort(took[ours])
	ratio := float64(took[ours][people/2]) / float64(took[bare][people/2])
	r.print("a list of %d tools: median %v, %.1f times the floor's, slowest %v, the very first %v",
		mcpTools, took[ours][people/2], ratio, took[ours][people-1], first)
	if ratio > mcpListMost {
		return fmt.Errorf("a list of %d tools takes %.1f times as long as by a bare proxy, the bound is %d", mcpTools, ratio, mcpListMost)
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
