package main

import (
	"bytes"
	"context"
	"io"
	"maps"
	"math"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"policy-service/pdp/server/floor"
)

// service builds the real binary.
func service(t *testing.T) (binary string) {
	t.Helper()
	binary = filepath.Join(t.TempDir(), "policy-service")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "policy-service/cmd/policy-service")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	return binary
}

// The whole of it, for each way to prepare a case: shapes, batches, credentials and log.
func TestRun(t *testing.T) {
	o, err := parse([]string{"-binary", service(t), "-duration", "500ms", "-conns", "3", "-cases", "native,jwt,strict-batch,best-effort"})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := benchHTTP(t.Context(), o, &out); err != nil {
		t.Fatal(err)
	}
	t.Log(out.String())
	for want, times := range map[string]int{
		`\n    3  floor +[1-9][0-9]* +[0-9.]+ `:                                         4,
		`\n    3  ours  +[1-9][0-9]* +[0-9.]+ `:                                         4,
		`\n    3  ratio +[0-9.]+ +[0-9.]+ `:                                             4,
		`\n    3  ours  .* [1-9][0-9]*\.[0-9] +[1-9][0-9]*\.[0-9]\n`:                    2, // with a log
		`\nallocations a request: [1-9][0-9]+, of the floor [1-9][0-9]+ `:               4,
		`\nconnections +3\nnative +[0-9]+\.[0-9][0-9]\njwt +[0-9]+\.[0-9][0-9]\nstrict`: 1,
	} {
		if got := len(regexp.MustCompile(want).FindAllString(out.String(), -1)); got != times {
			t.Errorf("%q stands there %d times, want %d", want, got, times)
		}
	}
}

// A strict log has a record of every answer when the answer is there, and several
// connections share its commits.
func TestRecordsAndCommits(t *testing.T) {
	dir, binary := t.TempDir(), service(t)
	cases, err := chosen("strict-key")
	if err != nil {
		t.Fatal(err)
	}
	s, err := prepare(t.Context(), binary, cases[0], dir)
	if err != nil {
		t.Fatal(err)
	}
	bare := started(t, func(ctx context.Context) (*process, error) { return startFloor(ctx, dir) })
	ours := started(t, func(ctx context.Context) (*process, error) { return startService(ctx, binary, s) })
	const connections = 8
	sides := sides(bare, ours, s)
	if err := measure(t.Context(), sides, connections, 4*slice); err != nil {
		t.Fatal(err)
	}
	for i, one := range sides {
		if len(one.samples) != 2 {
			t.Fatalf("%d turns of side %d, want 2", len(one.samples), i)
		}
	}
	for _, sample := range sides[1].samples {
		// Checkpoints and a segment that is made ahead are commits without a record of ours.
		least := sample.requests / connections
		if sample.records != sample.requests || sample.commits < least || sample.commits > sample.records+10 || sample.cpu <= 0 {
			t.Errorf("%d answers, %d records, %d commits, %v of CPU", sample.requests, sample.records, sample.commits, sample.cpu)
		}
	}
	if missing := dropped(sides[1]); missing != 0 {
		t.Errorf("%d records dropped", missing)
	}
	for _, sample := range sides[0].samples {
		if sample.records != 0 || sample.commits != 0 || sample.cpu <= 0 {
			t.Errorf("the floor: %+v", sample)
		}
	}
}

func started(t *testing.T, start func(context.Context) (*process, error)) *process {
	t.Helper()
	p, err := start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// A generator that takes any answer would measure how fast a service is wrong.
func TestOnlyTheRightAnswerCounts(t *testing.T) {
	bare := started(t, func(ctx context.Context) (*process, error) { return startFloor(ctx, t.TempDir()) })
	path := testCases[0].path()
	for name, test := range map[string]struct {
		exchange
		want string
	}{
		"right":            {newExchange("127.0.0.1", path, "", "{}", floor.Answer), ""},
		"another answer":   {newExchange("127.0.0.1", path, "", "{}", []byte(`{"decision":false}`)), "{\"decision\":true}\nwhere\n{\"decision\":false}\nis right"},
		"a longer one":     {newExchange("127.0.0.1", path, "", "{}", append(slices.Clone(floor.Answer), '\n')), "is right"},
		"another status":   {newExchange("127.0.0.1", "/nosuch", "", "{}", floor.Answer), `the answer is "HTTP/1.1 404 Not Found"`},
		"malformed to all": {newExchange("127.0.0.1", path, "", "{", floor.Answer), `the answer is "HTTP/1.1 500`},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := dial(target{addr: bare.addr}, 2, []exchange{test.exchange})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.close() }()
			times, _, err := c.drive(t.Context(), slice/10)
			if test.want == "" && (err != nil || times.Count() < 2) {
				t.Errorf("%d answers, %v", times.Count(), err)
			}
			if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("the error is %v, want one with %s", err, test.want)
			}
		})
	}
}

// What the generator allocated would be counted as the server's.
func TestAskingAllocatesNothing(t *testing.T) {
	e := newExchange("127.0.0.1", "/", "Bearer x", "{}", floor.Answer)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { // answers without allocating, which no real server does
		conn, err := listener.Accept()
		request := make([]byte, len(e.request))
		answer := []byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 17\r\n\r\n" + string(floor.Answer))
		for err == nil {
			if _, err = io.ReadFull(conn, request); err == nil {
				_, err = conn.Write(answer)
			}
		}
	}()
	c, err := dial(target{addr: listener.Addr().String()}, 1, []exchange{e})
	if err != nil {
		t.Fatal(err)
	}
	allocated := testing.AllocsPerRun(1000, func() {
		if err := c.connections[0].ask(e); err != nil {
			t.Fatal(err)
		}
	})
	if allocated > 0 {
		t.Errorf("%v allocations a request", allocated)
	}
	if err := c.close(); err != nil {
		t.Error(err)
	}
	if err := listener.Close(); err != nil {
		t.Error(err)
	}
}

// A run in which a case costs more than it may ends with an error that says so.
func TestBounds(t *testing.T) {
	for name, test := range map[string]struct {
		connections []int
		ratios      map[string][]float64
		broken      []string
	}{
		"all hold": {[]int{1, 128}, map[string][]float64{"best-effort-key": {9, 3}, "strict-key": {9, 4.5}, "strict-batch": {9, 9}, "policies-10": {1, 2}, "policies-10000": {9, 3.2}}, nil},
		"each is broken": {[]int{128, 1}, map[string][]float64{"best-effort-key": {3.01, 1}, "strict-key": {4.51, 1}, "policies-10": {2, 1}, "policies-10000": {3.24, 1}},
			[]string{"best-effort-key, times the floor's CPU, is 3.01, the bound is 3", "strict-key, times the floor's CPU, is 4.51, the bound is 4.5", "10,000 policies against 10 is 1.62, the bound is 1.6"}},
		"no number":                {[]int{128}, map[string][]float64{"best-effort-key": {math.NaN()}}, []string{"best-effort-key, times the floor's CPU, is NaN, the bound is 3"}},
		"of another number, none":  {[]int{1, 32}, map[string][]float64{"best-effort-key": {9, 9}, "policies-10": {1, 1}, "policies-10000": {9, 9}}, nil},
		"without what is compared": {[]int{128}, map[string][]float64{"policies-10000": {9}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := comparison{report: report{io.Discard}, connections: test.connections, ratios: test.ratios, names: slices.Sorted(maps.Keys(test.ratios))}
			var got []string
			if err := r.end(); err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			var want []string
			for _, line := range test.broken {
				want = append(want, "over 128 connections, "+line)
			}
			if !slices.Equal(got, want) {
				t.Errorf("the errors are %q, want %q", got, want)
			}
		})
	}
}

func TestParse(t *testing.T) {
	for _, args := range [][]string{{"-conns", "0"}, {"-conns", "1,x"}, {"-conns", ""}, {"-cases", "nosuch"}, {"-duration", "100ms"}} {
		if _, err := parse(args); err == nil || !strings.Contains(err.Error(), "; try ") {
			t.Errorf("%q: %v", args, err)
		}
	}
	if o, err := parse(nil); err != nil || len(o.cases) != len(testCases) {
		t.Errorf("the default is %+v, %v", o, err)
	}
}
