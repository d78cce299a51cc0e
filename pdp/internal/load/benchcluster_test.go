package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
	"policy-service/pdp/internal/latency"
	"policy-service/pdp/pdptest/etcdtest"
	"policy-service/pdp/pdptest/night"
)

// This is `make bench-cluster`: three replicas on three members of etcd beside one server, in turns that lie side by side. Each is
// a process of its own, the real binary, and all of them keep their files on one disk, that of TMPDIR.
//
// Of decisions without state a replica is asked alone. What needs state is asked of all three: a request is filed at one, approved
// at another and used at the third, and CPU is that of all of them.

const (
	clusterBundle = `
@id("free") permit(principal, action == Action::"read", resource);
@id("once") @obligation("once") permit(principal, action == Action::"tool.invoke", resource == tool::"once");
@id("held") permit(principal, action == Action::"tool.invoke", resource == tool::"b:read") when { context.pdp.capability.held };
@id("grants") permit(principal, action == Action::"capability.grant", resource is tool);
@id("people") permit(principal is user, action == Action::"approval.decide", resource is Approval);
`
	clusterDuties = "once: {type: approval_required, properties: {template: owner, timeout: 24h, valid_for: 24h}}\n"
	clusterLimits = `public_url: https://pdp.example
approvals: {new_per_minute_per_subject: 1000000, max_pending_per_subject: 1000000, max_pending_per_tenant: 1000000}
capabilities: {clock_skew: 1s, max_live_per_holder: 1000, new_per_minute_per_holder: 100000}
`
	clusterFree = `{"subject":{"type":"agent","id":"a"},"action":{"name":"read"},"resource":{"type":"doc","id":"1"}}`
	// perWorker is how many operations of one kind a worker makes before the next kind.
	perWorker = 8
)

// clusterKinds are the operations that need state, in the order in which one needs the other.
var clusterKinds = [...]string{"file a request", "approve it", "use the approval", "spend a capability"}

// clusterSide is one server, or the replicas.
type clusterSide struct {
	name    string
	servers []*process
	others  []int // processes of etcd
	commits func() (uint64, error)
	calls   func() (uint64, error) // of etcd, those that read with those that write
	key     map[string]string
	client  http.Client
	ids     atomic.Int64
	again   atomic.Int64 // requests that were answered 503, and sent again
	holder  *capability.Holder
	held    []struct{ ID, Token string } // a capability for each worker
	kinds   [len(clusterKinds)]struct {
		times                       latency.Histogram
		cpu, others, commits, calls []float64 // of one operation, by turn
	}
}

func TestBenchCluster(t *testing.T) {
	args, is := os.LookupEnv("BENCH_CLUSTER")
	if !is {
		t.Skip("it measures for a minute; run make bench-cluster")
	}
	flags := flag.NewFlagSet("bench-cluster", flag.ContinueOnError)
	binary := flags.String("binary", "bin/policy-service", "the service")
	duration := flags.Duration("duration", 5*time.Second, "of a run")
	if err := flags.Parse(strings.Fields(args)); err != nil {
		t.Fatal(err)
	}
	if _, err := parseLoads("4", "", *duration); err != nil {
		t.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	if err := benchCluster(ctx, t, *binary, *duration, os.Stdout); err != nil {
		t.Fatal(err)
	}
}

func benchCluster(ctx context.Context, t *testing.T, binary string, d time.Duration, out io.Writer) error {
	dir := t.TempDir()
	members := etcdtest.Start(t, etcdtest.Options{Dir: func(int) string { return dir }})
	one, err := startClusterSide(ctx, t, binary, filepath.Join(dir, "one"), nil)
	if err != nil {
		return err
	}
	three, err := startClusterSide(ctx, t, binary, filepath.Join(dir, "three"), members)
	if err != nil {
		return err
	}
	r := report{out}
	r.print("%d cores, %s; runs of %v in turns; all files are in %s", runtime.NumCPU(), runtime.Version(), d, dir)
	r.print("\ndecisions without state, each on record, with an API key: one server, and one of three replicas; CPU in µs")
	r.head(false)
	var both []*side
	for _, s := range []*clusterSide{one, three} {
		status, answer, err := s.ask(ctx, 0, "pep", "/access/v1/evaluation", clusterFree)
		if err != nil || status != http.StatusOK {
			return fmt.Errorf("a decision of %s: %d %s, %v", s.name, status, answer, err)
		}
		p := s.servers[0]
		both = append(both, &side{name: s.name, target: target{addr: p.addr}, pid: p.Process.Pid,
			exchanges: []exchange{newExchange(p.addr, "/access/v1/evaluation", s.key["pep"], clusterFree, answer)}})
	}
	for _, connections := range []int{4, 32} {
		l := load{connections: connections}
		if err := measure(ctx, both, l, d); err != nil {
			return err
		}
		r.measured(l, both)
	}
	if err := printIdle(ctx, r, one, three); err != nil {
		return err
	}
	for _, workers := range []int{1, 8} {
		for _, s := range []*clusterSide{one, three} {
			if err := s.begin(ctx, workers); err != nil {
				return err
			}
		}
		for turn, end := 0, time.Now().Add(d); turn < 2 || time.Now().Before(end); turn++ {
			for n := range 2 {
				if err := []*clusterSide{one, three}[(turn+n)%2].turn(ctx, workers); err != nil {
					return err
				}
			}
		}
		printCluster(r, workers, one, three)
	}
	return nil
}

// startClusterSide starts one server, or three replicas if there are members.
func startClusterSide(ctx context.Context, t *testing.T, binary, dir string, members *etcdtest.Cluster) (s *clusterSide, err error) {
	s = &clusterSide{name: "one", key: map[string]string{}}
	s.client.Transport = &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(s.client.CloseIdleConnections)
	policies, limits, all := filepath.Join(dir, "policies"), clusterLimits, 1
	if members != nil {
		s.name, all = "three", 3
		limits += `cluster: {etcd: {endpoints: ["http://` + strings.Join(members.Client().Endpoints(), `", "http://`) + "\"]}}\n"
		client, err := etcdtest.Dial(members.Client().Endpoints()...)
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { _ = client.Close() })
		s.commits = func() (uint64, error) {
			got, err := client.Get(ctx, "nothing")
			if err != nil {
				return 0, err
			}
			return uint64(got.Header.Revision), nil
		}
		ways := members.Client().Endpoints()
		s.calls = func() (uint64, error) { return etcdCalls(ctx, ways) }
		for n := range 3 {
			s.others = append(s.others, members.PID(n))
		}
	} else {
		s.commits = func() (sum uint64, err error) {
			for _, name := range []string{"approvals.db", "capabilities.db"} {
				n, err := boltCommits(filepath.Join(dir, "data0", name))
				if err != nil {
					return 0, err
				}
				sum += n
			}
			return sum, nil
		}
		s.calls = func() (uint64, error) { return 0, nil }
	}
	seed := make([]byte, ed25519.SeedSize)
	if s.holder, err = capability.NewHolder(ed25519.NewKeyFromSeed(seed)); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(policies, 0o700); err != nil {
		return nil, err
	}
	for name, text := range map[string]string{"a.cedar": clusterBundle, "obligations.yaml": clusterDuties} {
		if err := os.WriteFile(filepath.Join(policies, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	for n := range all {
		config, data, addr := filepath.Join(dir, fmt.Sprint(n, ".yaml")), filepath.Join(dir, fmt.Sprint("data", n)), filepath.Join(dir, fmt.Sprint(n, ".addr"))
		text := fmt.Sprintf("policies: %s\ndata: %s\nlisten: 127.0.0.1:0\n%s", policies, data, limits)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			return nil, err
		}
		if n == 0 {
			where := []string{"--config", config}
			if members == nil {
				where = []string{"--data", data}
			}
			if err := s.addKeys(ctx, binary, where); err != nil {
				return nil, err
			}
		} else {
			if err := os.Mkdir(data, 0o700); err != nil {
				return nil, err
			}
			for _, name := range []string{"approvals.key", "mask.key", "page.key", "signing.jwks"} {
				secret, err := os.ReadFile(filepath.Join(dir, "data0", name))
				if err != nil {
					return nil, err
				}
				if err := os.WriteFile(filepath.Join(data, name), secret, 0o600); err != nil {
					return nil, err
				}
			}
		}
		p, err := start(ctx, exec.Command(binary, "serve", "--config", config, "--addr-file", addr), addr)
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() {
			if err := p.stop(); err != nil {
				t.Error(err)
			}
		})
		s.servers = append(s.servers, p)
	}
	return s, nil
}

func (s *clusterSide) addKeys(ctx context.Context, binary string, where []string) error {
	for name, flags := range map[string][]string{
		"pep": {"--permission", "decide", "--permission", "request", "--permission", "capability"},
		"mia": {"--permission", "approve", "--principal", `user::"mia"`},
	} {
		add := exec.CommandContext(ctx, binary, append(append([]string{"keys", "add", "--name", name}, where...), flags...)...)
		add.Stderr = os.Stderr
		key, err := add.Output()
		if err != nil {
			return fmt.Errorf("%v: %w; try make build", add, err)
		}
		s.key[name] = "Bearer " + string(bytes.TrimSpace(key))
	}
	return nil
}

// boltCommits is the number of the last transaction of a file of bbolt: the higher one of its two meta pages.
func boltCommits(name string) (last uint64, err error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	for _, page := range []int64{0, int64(os.Getpagesize())} {
		number := make([]byte, 8)
		if _, err := f.ReadAt(number, page+16+48); err != nil {
			return 0, err
		}
		last = max(last, binary.LittleEndian.Uint64(number))
	}
	return last, nil
}

var etcdCall = regexp.MustCompile(`(?m)^grpc_server_handled_total\{.*grpc_method="(?:Range|Txn|Put)".*\} (\S+)$`)

// etcdCalls is how many calls that read or write all members have answered.
func etcdCalls(ctx context.Context, members []string) (sum uint64, err error) {
	for _, one := range members {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+one+"/metrics", nil)
		if err != nil {
			return 0, err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return 0, err
		}
		text, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil {
			return 0, err
		}
		for _, found := range etcdCall.FindAllSubmatch(text, -1) {
			n, err := strconv.ParseFloat(string(found[1]), 64)
			if err != nil {
				return 0, err
			}
			sum += uint64(n)
		}
	}
	return sum, nil
}

// ask sends a request to one of the servers, and again while that answers 503.
func (s *clusterSide) ask(ctx context.Context, at int, who, path, body string) (status int, answer []byte, err error) {
	for late := time.Now().Add(patience); ; s.again.Add(1) {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.servers[at%len(s.servers)].addr+path, strings.NewReader(body))
		if err != nil {
			return 0, nil, err
		}
		request.Header.Set("Authorization", s.key[who])
		request.Header.Set("Content-Type", "application/json")
		response, err := s.client.Do(request)
		if err != nil {
			return 0, nil, err
		}
		answer, err = io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != http.StatusServiceUnavailable || time.Now().After(late) {
			return response.StatusCode, answer, err
		}
	}
}

func clusterUse(tool, id, more string) string {
	return fmt.Sprintf(`{"tenant_id":"default","actor":{"actor_id":"bot","actor_type":"agent"},"action":"tool.invoke","resource":{"type":"tool","id":%q},"context":{"arguments":{"of":%q}%s}}`,
		tool, id, more)
}

// begin has a capability for each worker, and waits until each server takes its proofs.
func (s *clusterSide) begin(ctx context.Context, workers int) error {
	s.again.Store(0)
	for i := range s.kinds {
		k := &s.kinds[i]
		k.times, k.cpu, k.others, k.commits, k.calls = latency.Histogram{}, nil, nil, nil, nil
	}
	s.held = nil
	for range workers {
		var got struct{ ID, Token string }
		err := poll(ctx, patience, func() (bool, error) { // just after a start an old proof counts no longer
			a := capability.Ask{Tenant: "default", Holder: evaluation.Ref{Type: "agent", ID: "bot"}, Audience: "b", Tools: []string{"read"},
				Duration: time.Hour, MaxUses: 1_000_000}
			if err := s.holder.Request(&a, "https://pdp.example", time.Now()); err != nil {
				return false, err
			}
			body, err := json.Marshal(a)
			if err != nil {
				return false, err
			}
			status, answer, err := s.ask(ctx, 0, "pep", "/v1/capabilities", string(body))
			if err != nil || status != http.StatusCreated && !strings.Contains(string(answer), "nonce") && !strings.Contains(string(answer), "clock_skew") {
				return false, fmt.Errorf("a capability: %d %s, %w", status, answer, err)
			}
			return status == http.StatusCreated, json.Unmarshal(answer, &got)
		})
		if err != nil {
			return err
		}
		s.held = append(s.held, got)
	}
	for at := range s.servers {
		if err := poll(ctx, patience, func() (bool, error) { return s.spend(ctx, at, 0) == nil, nil }); err != nil {
			return err
		}
	}
	return nil
}

func (s *clusterSide) spend(ctx context.Context, at, worker int) error {
	held, id := s.held[worker], fmt.Sprint("spent ", s.ids.Add(1))
	arguments, err := evaluation.ParseWithNulls(fmt.Appendf(nil, `{"of":%q}`, id), evaluation.DefaultLimits())
	if err != nil {
		return err
	}
	proof, err := s.holder.Prove(capability.Claim{Capability: held.ID, Audience: "b", Tool: "b:read", Arguments: arguments})
	if err != nil {
		return err
	}
	return s.passes(ctx, at, clusterUse("b:read", id, fmt.Sprintf(`,"capability":{"token":%q,"proof":%q}`, held.Token, proof)))
}

func (s *clusterSide) passes(ctx context.Context, at int, body string) error {
	status, answer, err := s.ask(ctx, at, "pep", "/v1/authorize", body)
	if err != nil || status != http.StatusOK || !strings.HasPrefix(string(answer), `{"allow":true`) || strings.Contains(string(answer), "approval_required") {
		return fmt.Errorf("a use: %d %s, %w", status, answer, err)
	}
	return nil
}

// turn makes some operations of each kind.
func (s *clusterSide) turn(ctx context.Context, workers int) error {
	type request struct{ name, id string }
	filed := make([][perWorker]request, workers)
	for kind := range clusterKinds {
		before, err := s.spent()
		if err != nil {
			return err
		}
		times, _, err := latency.Together(workers, func(worker int, times *latency.Histogram) error {
			for n := range perWorker {
				one, began := &filed[worker][n], time.Now()
				switch kind {
				case 0:
					one.name = fmt.Sprint("request ", s.ids.Add(1))
					var got struct{ Approval struct{ ID string } }
					status, answer, err := s.ask(ctx, n, "pep", "/v1/authorize", clusterUse("once", one.name, ""))
					if err != nil || status != http.StatusOK || json.Unmarshal(answer, &got) != nil || got.Approval.ID == "" {
						return fmt.Errorf("a request: %d %s, %w", status, answer, err)
					}
					one.id = got.Approval.ID
				case 1:
					status, answer, err := s.ask(ctx, n+1, "mia", "/v1/approvals/"+one.id+"/decision", `{"decision":"approve","reason":"fine"}`)
					if err != nil || status != http.StatusOK {
						return fmt.Errorf("a vote: %d %s, %w", status, answer, err)
					}
				case 2:
					if err := s.passes(ctx, n+2, clusterUse("once", one.name, fmt.Sprintf(`,"approval_id":%q`, one.id))); err != nil {
						return err
					}
				case 3:
					if err := s.spend(ctx, n, worker); err != nil {
						return err
					}
				}
				times.Record(time.Since(began))
			}
			return nil
		})
		if err != nil {
			return err
		}
		after, err := s.spent()
		if err != nil {
			return err
		}
		k, all := &s.kinds[kind], float64(workers*perWorker)
		k.times.Add(times)
		k.cpu = append(k.cpu, float64(after.cpu-before.cpu)/all)
		k.others = append(k.others, float64(after.others-before.others)/all)
		k.commits = append(k.commits, float64(after.commits-before.commits)/all)
		k.calls = append(k.calls, float64(after.calls-before.calls)/all)
	}
	return nil
}

// spending is what all processes of a side have used.
type spending struct {
	cpu, others    time.Duration
	commits, calls uint64
}

func (s *clusterSide) spent() (now spending, err error) {
	for _, p := range s.servers {
		one, err := cpu(p.Process.Pid)
		if err != nil {
			return now, err
		}
		now.cpu += one
	}
	for _, pid := range s.others {
		one, err := cpu(pid)
		if err != nil {
			return now, err
		}
		now.others += one
	}
	if now.commits, err = s.commits(); err == nil {
		now.calls, err = s.calls()
	}
	return now, err
}

// printIdle prints what all of them use while nothing is asked.
func printIdle(ctx context.Context, r report, one, three *clusterSide) error {
	const still = 2 * time.Second
	var before, after [2]spending
	for _, at := range []*[2]spending{&before, &after} {
		for n, s := range []*clusterSide{one, three} {
			var err error
			if at[n], err = s.spent(); err != nil {
				return err
			}
		}
		if at == &before {
			select {
			case <-time.After(still):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) / still.Seconds() }
	r.print("\nidle, CPU in ms a second: one server %.1f; three replicas %.1f, and etcd %.1f with %.0f calls; all is counted below, too",
		ms(after[0].cpu-before[0].cpu), ms(after[1].cpu-before[1].cpu), ms(after[1].others-before[1].others),
		float64(after[1].calls-before[1].calls)/still.Seconds())
	return nil
}

func printCluster(r report, workers int, one, three *clusterSide) {
	r.print("\n%d at once, as a table of pdp/PERFORMANCE.md: times and CPU in ms; answered 503 and sent again: %d, %d", workers, one.again.Load(), three.again.Load())
	r.print("| %d at once | one: p50, p99 | CPU | commits | three: p50, p99 | CPU, and of etcd | commits, calls | times p50 | times CPU |", workers)
	r.print("|---|---|---|---|---|---|---|---|---|")
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	for i, name := range clusterKinds {
		a, b := &one.kinds[i], &three.kinds[i]
		ratios := make([]float64, len(a.cpu))
		for n := range ratios {
			ratios[n] = b.cpu[n] / a.cpu[n]
		}
		r.print("| %s | %.1f, %.1f | %.2f | %.1f | %.1f, %.1f | %.2f, %.2f | %.1f, %.1f | %.1f | %.1f |", name,
			ms(a.times.Quantile(.5)), ms(a.times.Quantile(.99)), median(a.cpu)/1e6, median(a.commits),
			ms(b.times.Quantile(.5)), ms(b.times.Quantile(.99)), median(b.cpu)/1e6, median(b.others)/1e6, median(b.commits), median(b.calls),
			float64(b.times.Quantile(.5))/float64(a.times.Quantile(.5)), median(ratios))
	}
}

// TestClusterBench holds the benchmark to what it prints.
func TestClusterBench(t *testing.T) {
	night.Measures(t)
	var out bytes.Buffer
	if err := benchCluster(t.Context(), t, service(t), 500*time.Millisecond, &out); err != nil {
		t.Fatal(err)
	}
	t.Log(out.String())
	stand(t, out.String(), map[string]int{
		`\n      4  three +[1-9][0-9]* +[0-9.]+ `:                              1,
		`\n     32  ratio +[0-9.]+ +[0-9.]+ `:                                  1,
		`\nidle, .*; three replicas [1-9][0-9.]*, and etcd [1-9][0-9.]* with `: 1,
		`\n\| (file|approve|use|spend) .* \| [0-9.]+, [0-9.]+ \| [0-9.]+ \| [0-9]+\.[0-9] \| .*, [1-9][0-9.]*( \| [0-9.]+){2} \|`: 8,
	})
}
