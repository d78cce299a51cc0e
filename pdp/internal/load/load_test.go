package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"policy-service/pdp/internal/server/floor"
	"policy-service/pdp/pdptest/night"
)

// service is the real binary, which is built for the first test that needs it.
func service(t *testing.T) (binary string) {
	t.Helper()
	binary, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

var (
	buildDir string // TestMain removes it
	built    = sync.OnceValues(func() (binary string, err error) {
		if buildDir, err = os.MkdirTemp("", "loadtest-service-"); err != nil {
			return "", err
		}
		binary = filepath.Join(buildDir, "policy-service")
		build := exec.Command("go", "build", "-o", binary, "policy-service/cmd/policy-service")
		if out, err := build.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%v: %w\n%s", build, err, out)
		}
		return binary, nil
	})
)

// The whole of it, for each way to prepare a case: shapes, batches, credentials and log; closed and open.
func TestRun(t *testing.T) {
	night.Measures(t)
	o, err := parse([]string{"-binary", service(t), "-duration", "500ms", "-conns", "3", "-rates", "200", "-runs", "2", "-cases", "native,jwt,strict-batch,best-effort"})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := benchHTTP(t.Context(), o, &out); err != nil {
		t.Fatal(err)
	}
	t.Log(out.String())
	stand(t, out.String(), map[string]int{
		`\n      3  floor +[1-9][0-9]* +[0-9.]+ `:                                                     4, // nothing is bounded here: one run
		`\n      3  ours  +[1-9][0-9]* +[0-9.]+ `:                                                     4,
		`\n      3  ratio +[0-9.]+ +[0-9.]+ `:                                                         4,
		`\n  200/s  floor +([1-9][0-9]|1[0-9][0-9]|200) +[0-9.]+ `:                                    3, // no batches
		`\n      3  ours  .* [1-9][0-9]*\.[0-9] +[1-9][0-9]*\.[0-9]\n`:                                2, // with a log
		`\n\| CPU of a request.* \| 3 \| 200/s \|\n\|---\|---\|---\|\n\| the floor, µs \| [0-9.]+ \(`: 1,
		`\n\| (native|jwt|best-effort) \| [0-9.]+ \| ([0-9.]+|∞) \|`:                                  3,
		`\n\| strict-batch \| [0-9.]+ \|  \|`:                                                         1,
		`\n\| (native|jwt|best-effort) at 200/s( \| [0-9.]+){5} \|`:                                   3,
		`: allocations a request \| [1-9][0-9]+[^|]* \| [1-9][0-9]+[^|]* \|`:                          4,
	})
}

// stand counts the matches of patterns in a text.
func stand(t *testing.T, text string, wants map[string]int) {
	t.Helper()
	for want, times := range wants {
		if got := len(regexp.MustCompile(want).FindAllString(text, -1)); got != times {
			t.Errorf("%q stands there %d times, want %d", want, got, times)
		}
	}
}

// A strict log has a record of every answer when the answer is there, and several
// connections share its commits.
func TestRecordsAndCommits(t *testing.T) {
	night.Measures(t)
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
	if err := measure(t.Context(), sides, load{connections: connections}, 4*slice); err != nil {
		t.Fatal(err)
	}
	for i, one := range sides {
		if len(one.samples) != 2 {
			t.Fatalf("%d turns of side %d, want 2", len(one.samples), i)
		}
	}
	for _, sample := range sides[1].samples {
		// Checkpoints are commits without an answer of ours.
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
	ends(t, p.stop)
	return p
}

// ends has the end of a test end something, in good order.
func ends(t testing.TB, end func() error) {
	t.Helper()
	t.Cleanup(func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	})
}

// A generator that takes any answer would measure how fast a service is wrong.
func TestOnlyTheRightAnswerCounts(t *testing.T) {
	t.Parallel()
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
			c, err := dial(target{addr: bare.addr}, load{connections: 2}, []exchange{test.exchange})
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

// Allocations of the generator would be counted as the server's.
func TestAskingAllocatesNothing(t *testing.T) {
	night.Measures(t)
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
	c, err := dial(target{addr: listener.Addr().String()}, load{connections: 1, rate: 1}, []exchange{e})
	if err != nil {
		t.Fatal(err)
	}
	due := time.Now()
	allocated := testing.AllocsPerRun(1000, func() {
		due = due.Add(20 * time.Microsecond) // so that it waits now and then
		if err := errors.Join(c.connections[0].alarm.wait(due), c.askNext(c.connections[0])); err != nil {
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

// A bound is broken if the median of the runs exceeds it, and four of five.
func TestJudge(t *testing.T) {
	t.Parallel()
	m := metric{"strict-key", "128", cpuTimes}
	for name, test := range map[string]struct {
		runs   []float64
		broken string
	}{
		"holds":                     {[]float64{3.1, 3.3, 3.2, 3.0, 3.6}, ""},
		"just holds":                {[]float64{4.5, 4.5, 4.5, 4.5, 4.5}, ""},
		"one run is noisy":          {[]float64{3.1, 12.7, 3.2, 3.0, 3.6}, ""},
		"so are two":                {[]float64{3.1, 12.7, 9.2, 3.0, 3.6}, ""},
		"median, but three of five": {[]float64{4.1, 4.6, 4.2, 4.7, 4.6}, ""},
		"four of five":              {[]float64{4.6, 4.4, 4.9, 4.7, 4.6}, "4.60 (4.40–4.90)"},
		"all":                       {[]float64{4.6, 4.51, 4.9, 4.7, 4.6}, "4.60 (4.51–4.90)"},
		"a single run":              {[]float64{4.51}, "4.51"},
		"it does not keep up":       {[]float64{math.Inf(1), math.Inf(1), 2.7, math.Inf(1), math.Inf(1)}, "∞ (2.70–∞)"},
		"no number":                 {[]float64{math.NaN(), math.NaN(), math.NaN(), math.NaN(), 2}, "2.00"},
		"was not measured":          {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			c := newComparison(&out)
			for _, v := range test.runs {
				c.add(m, v, 1)
			}
			want, judged := "<nil>", "holds"
			if test.broken != "" {
				want, judged = m.String()+" is "+test.broken+", the bound of issue 7 is 4.5", "broken"
			}
			if err := c.judge([]bound{{m, 4.5, 7}}); fmt.Sprint(err) != want {
				t.Errorf("the error is %v, want %s", err, want)
			}
			line := fmt.Sprintf("| strict-key at 128: CPU of a request, times the floor's | 4.5 | 7 | %s | %s |\n", spread(test.runs), judged)
			if got := strings.Count(out.String(), line); got != min(1, len(test.runs)) {
				t.Errorf("%d times\n%sin\n%s", got, line, out.String())
			}
		})
	}
}

// Two cases are compared run by run: a noisy run was so for both.
func TestAgainst(t *testing.T) {
	t.Parallel()
	c := newComparison(io.Discard)
	for _, v := range []float64{2, 6, 3} {
		c.add(metric{"policies-10", "128", cpuTimes}, v, 1)
		c.add(metric{"policies-10000", "128", cpuTimes}, 1.5*v, 1)
	}
	c.add(metric{"policies-10000", "4", cpuTimes}, 9, 1)
	c.add(metric{"policies-10", "5000/s", cpuTimes}, math.Inf(1), 1)
	c.add(metric{"policies-10000", "5000/s", cpuTimes}, 9, 1)
	c.against("policies-10000", manyTimes, "policies-10", cpuTimes)
	if got := c.ours[metric{"policies-10000", "128", manyTimes}]; !slices.Equal(got, []float64{1.5, 1.5, 1.5}) {
		t.Errorf("%v", got)
	}
	if got := c.ours[metric{"policies-10000", "5000/s", manyTimes}]; len(got) != 1 || !math.IsNaN(got[0]) {
		t.Errorf("against what did not keep up: %v", got)
	}
	if got, is := c.ours[metric{"policies-10000", "4", manyTimes}]; is {
		t.Errorf("against nothing: %v", got)
	}
}

// A bound on a metric that is not measured would hold for ever.
func TestEachBoundIsMeasured(t *testing.T) {
	t.Parallel()
	o, err := parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range bounds {
		i := slices.Index(caseNames(), b.of)
		if i < 0 {
			t.Errorf("%v: there is no such case", b.metric)
			continue
		}
		at := slices.ContainsFunc(o.loads, func(l load) bool { return l.String() == b.at })
		var is bool
		switch b.what {
		case cpuTimes:
			is = at && testCases[i].measure == nil
		case manyTimes:
			is = at && b.of == "policies-10000"
		case allocationCount:
			is = b.at == "" && testCases[i].measure == nil
		case idleMemory:
			is = b.at == "" && testCases[i].measure != nil
		case reloadP99:
			is = b.of == "reload" && b.at == reloadLoad.String()
		}
		if !is {
			t.Errorf("%v is not measured", b.metric)
		}
	}
}

// Memory, and a reload while the service is asked, on a small bundle. Every file of it is edited each time.
func TestMemoryAndReloads(t *testing.T) {
	night.Measures(t)
	o, err := parse([]string{"-binary", service(t), "-duration", "500ms", "-runs", "2", "-cases", "idle,reload"})
	if err != nil {
		t.Fatal(err)
	}
	o.cases = slices.Clone(o.cases)
	o.cases[1].policies, o.cases[1].entities = 600, 1000
	o.bounds = slices.Clone(bounds)
	for i := range o.bounds {
		o.bounds[i].most = 1e9 // half a second says little, and other tests run beside
	}
	var out bytes.Buffer
	if err := benchHTTP(t.Context(), o, &out); err != nil {
		t.Fatal(err)
	}
	t.Log(out.String())
	stand(t, out.String(), map[string]int{
		` 1000/s  from the edit until it is in force, [0-9.]+ s: p99 \S+s, max \S+s; before: p99 \S+s; peak [0-9]+ MB\n`: 2,
		`\n\| reload at 1000/s( \| [0-9]+\.[0-9][0-9]){5} \|`:                                                            1,
		`\n\| the floor at 1000/s( \| [0-9]+\.[0-9][0-9]){5} \|`:                                                         1,
		`\n\| idle: RSS idle, MB \| [1-9][0-9.]+[^|]* \|  \|`:                                                            1,
		`\n\| reload: RSS idle, MB \| [1-9][0-9.]+[^|]* \|  \|`:                                                          1,
		`\| reload at 1000/s: (p99 before a reload|p99 in a reload), ms \| [0-9.]+[^|]* \| [0-9.]+[^|]* \|\n`:            2,
		`\| reload at 1000/s: RSS (in a reload at its peak|after a reload), MB \| [1-9][0-9.]+[^|]* \|  \|`:              2,
		`\n\| idle: RSS idle, MB \| 1e\+09 \| 49 \| `:                                                                    1,
		`\n\| reload at 1000/s: p99 in a reload, ms \| 1e\+09 \| 52 \| `:                                                 1,
	})
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-conns", "0"}, {"-conns", "1,x"}, {"-conns=", "-rates="}, {"-rates", "x"}, {"-rates", "3"}, {"-cases", "nosuch"}, {"-duration", "100ms"}, {"-runs", "0"}} {
		if _, err := parse(args); err == nil || !strings.Contains(err.Error(), "; try ") {
			t.Errorf("%q: %v", args, err)
		}
	}
	if o, err := parse(nil); err != nil || len(o.cases) != len(testCases) || fmt.Sprint(o.loads) != "[4 32 128 1000/s 5000/s]" || o.runs != 5 {
		t.Errorf("the default is %+v, %v", o, err)
	}
}
