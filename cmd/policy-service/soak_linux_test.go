package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"policy-service/pdp"
	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/pdptest/inside/auth"
	"policy-service/pdp/pdptest/inside/export"
	"policy-service/pdp/pdptest/inside/format"
	"policy-service/pdp/pdptest/inside/httpclient"
	"policy-service/pdp/pdptest/inside/remote"
	"policy-service/pdp/pdptest/inside/segment"
	"policy-service/pdp/pdptest/night"
	"policy-service/pdp/pdptest/organisation"
)

// TestSoakServe has a server answer for a long time while everything happens to it that
// an operator does, or that happens to an operator: bundles change, good and bad ones,
// keys come, go and are rotated, the log is exported and verified, segments fill up and
// are retired, and more is asked than can be answered. It looks for wrong answers, for
// answers that are not on record, for records that nobody was answered from, and for
// leaks. At the end the server is told to stop under full load.
//
// SOAKTIME says for how long.
func TestSoakServe(t *testing.T) {
	night.Soaks(t)
	duration := soakTime(t)
	s := newSoak(t, duration)
	s.start(t)
	following := s.follow(t)

	s.load(t, duration/3)
	first := s.atRest(t)
	s.load(t, duration-duration/3)
	last := s.atRest(t)
	t.Logf("after a third: %v", first)
	t.Logf("at the end:    %v", last)
	if duration < time.Minute { // a heap is still growing to its size
		first.private, first.memory = -1, -1
	}
	if text := first.leaked(last); text != "" {
		t.Errorf("the server has grown: %s", text)
	}

	s.stopUnderLoad(t, following)
	s.finish(t)
	s.report(t)
}

func soakTime(t *testing.T) time.Duration {
	t.Helper()
	text := cmp.Or(os.Getenv("SOAKTIME"), "5m")
	duration, err := time.ParseDuration(text)
	if err != nil || duration < time.Second {
		t.Fatalf("SOAKTIME is %q; write a time of a second or more, like 30m", text)
	}
	if end, bounded := t.Deadline(); bounded && time.Until(end) < duration+5*time.Minute {
		t.Fatalf("SOAKTIME is %v, and go test ends before that; raise -timeout", duration)
	}
	return duration
}

const (
	soakClients  = 32
	burstClients = 160
	// soakConfig makes segments as small as they can be: 8 MiB, of which eight are kept; and
	// it has a part of each burst refused.
	soakConfig = "decision_log: {retain: {bytes: 67108864}}\nmax_concurrent: 16\nqueue_time: 5ms\n"
)

// soak is a server, what it was asked, and what became of that.
type soak struct {
	duration time.Duration
	dir      string // holds the data directory, the bundles and the keys
	peps     map[string]*pep
	variants []string // directories of bundles
	digests  []string // of them; "" for the one that does not load
	supply   supply
	judge    *judge

	server   *exec.Cmd
	url      string
	client   *http.Client
	going    context.Context // until something is wrong
	end      context.CancelFunc
	stopping atomic.Bool
	seeds    atomic.Uint64 // of clients
	reloads  atomic.Int64
	visitors atomic.Int64 // who had a key for a while

	firstKey   string // of the log, and the newest checkpoint that was taken home
	mu         sync.Mutex
	checkpoint []byte
	counts     map[string]int
	wrongs     []string
	most       int // descriptors
}

func newSoak(t *testing.T, duration time.Duration) *soak {
	s := &soak{duration: duration, dir: t.TempDir(), counts: map[string]int{}, supply: supply{organisation: organisation.New(500, 200)}}
	s.going, s.end = context.WithCancel(t.Context())
	t.Cleanup(s.end)
	s.judge = newJudge(s.wrong)
	s.client = &http.Client{Timeout: patience, Transport: &http.Transport{
		MaxIdleConnsPerHost:   soakClients + burstClients,
		IdleConnTimeout:       20 * time.Second, // sooner than the server, who would else close one that is being used again
		ExpectContinueTimeout: patience,
	}}
	t.Cleanup(s.client.CloseIdleConnections)
	s.variant(t, 0)
	s.broken(t) // it comes first, so that it and another come in the shortest soak
	for n := range 3 {
		s.variant(t, n+1)
	}
	must(t, os.Symlink(s.variants[0], s.path("bundle")))
	must(t, os.WriteFile(s.path("config.yaml"), []byte(soakConfig), 0o600))
	s.peps = map[string]*pep{
		"gateway":      {tenants: []string{"default", "acme"}, explains: true},
		"acme":         {tenants: []string{"acme"}},
		"notifier":     {tenants: []string{"default", "acme"}, obligations: []string{"notification"}},
		"auditor":      {},
		"acme-auditor": {},
	}
	for name, grant := range map[string]auth.Grant{
		"gateway":      {Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Decide, auth.Search, auth.Explain}},
		"acme":         {Tenants: []string{"acme"}, Permissions: []auth.Permission{auth.Decide, auth.Search}},
		"notifier":     {Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Decide, auth.Search}, Obligations: []string{"notification"}},
		"auditor":      {Tenants: []string{"*"}, Permissions: []auth.Permission{auth.LogRead, auth.LogAdmin}},
		"acme-auditor": {Tenants: []string{"acme"}, Permissions: []auth.Permission{auth.LogRead}},
	} {
		keys, err := auth.OpenKeys(s.path("data"))
		must(t, err)
		key, err := keys.Add(auth.KeySpec{Name: name, Grant: grant})
		must(t, err)
		s.peps[name].name, s.peps[name].key = name, key
		must(t, os.WriteFile(s.path(name+".key"), []byte(key), 0o600))
	}
	return s
}

func (s *soak) path(name string) string { return filepath.Join(s.dir, name) }

// variant writes a bundle that differs from the others in what it forbids, in what it
// permits whom, and in what it says to it.
func (s *soak) variant(t *testing.T, n int) {
	t.Helper()
	files := s.supply.organisation.Files()
	put := func(name, text string, args ...any) {
		files[name] = &fstest.MapFile{Data: fmt.Appendf(nil, text, args...)}
	}
	put("obligations.yaml", "tell: {type: notification, on: both, properties: {to: \"#variant-%d\", body: \"${principal.id} and ${resource.id}\"}}\n", n)
	put("variant.cedar", `@id("variant-some") @obligation("tell") permit (principal is user, action in [Action::"action-%d", Action::"action-10"], resource);
@id("variant-none") @reason_user("not by variant %d") @obligation("tell") forbid (principal is agent, action in [Action::"action-%d", Action::"action-11"], resource);
@id("variant-odd") forbid (principal is service, action, resource is type1) when { context.arguments.limit %s 50 };
`, n, n, n+4, []string{"<", ">", "<=", ">="}[n])
	put("tenants/acme/own.cedar", `@id("acme-own") @obligation("log") permit (principal is user, action == Action::"action-%d", resource) when { context.pdp.caller != "key:nobody" };`, n+12)
	s.write(t, fmt.Sprintf("variant-%d", n), files)
	bundle, problems := pdp.Load(pdp.Dir(s.path(fmt.Sprintf("variant-%d", n))))
	if problems.Refuse() {
		t.Fatal(problems)
	}
	s.judge.know(bundle)
	s.digests = append(s.digests, bundle.Digest())
}

// broken writes a bundle that does not load.
func (s *soak) broken(t *testing.T) {
	t.Helper()
	files := s.supply.organisation.Files()
	files["broken.cedar"] = &fstest.MapFile{Data: []byte("permit (principal, action, resource")}
	s.write(t, "broken", files)
	s.digests = append(s.digests, "")
}

func (s *soak) write(t *testing.T, name string, files fstest.MapFS) {
	t.Helper()
	must(t, os.CopyFS(s.path(name), files))
	s.variants = append(s.variants, s.path(name))
}

// start starts the server, and takes the first key of its log home.
func (s *soak) start(t *testing.T) {
	t.Helper()
	s.judge.comes(s.digests[0])
	s.server = exec.Command("policy-service", "serve", "--policies", s.path("bundle"), "--data", s.path("data"),
		"--config", s.path("config.yaml"), "--listen", "127.0.0.1:0", "--addr-file", s.path("addr"))
	said, err := os.Create(s.path("stderr"))
	must(t, err)
	t.Cleanup(func() { _ = said.Close() })
	s.server.Stderr = said
	must(t, s.server.Start())
	t.Cleanup(func() { _ = s.server.Process.Kill() })
	err = untilDone(t.Context(), "the server starts", func() (bool, error) {
		addr, err := os.ReadFile(s.path("addr"))
		s.url = "http://" + strings.TrimSpace(string(addr))
		return err == nil, nil
	})
	if err != nil {
		text, _ := os.ReadFile(s.path("stderr"))
		t.Fatalf("%v\n%s", err, text)
	}
	keys, err := segment.VerifierKeys(s.path("data"))
	must(t, err)
	s.firstKey = keys[0]
}

// follow hands the records to the judge as they come, until what it returns is called.
func (s *soak) follow(t *testing.T) (stop func()) {
	t.Helper()
	log, err := remote.New(s.url, httpclient.Options{Credential: s.peps["auditor"].key})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var reading sync.WaitGroup
	reading.Go(func() {
		defer log.Close()
		_, err := log.Tail(ctx, export.TailOptions{After: -1, Every: 50 * time.Millisecond}, s.judge.record)
		if err != nil && ctx.Err() == nil {
			s.wrong("the log cannot be followed: %v", err)
		}
	})
	return func() { cancel(); reading.Wait() }
}

// load has clients ask for a while, and everything else happen meanwhile.
func (s *soak) load(t *testing.T, span time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(s.going, span)
	defer cancel()
	var everything sync.WaitGroup
	everything.Go(func() { s.ask(ctx.Done(), soakClients) })
	for name, u := range s.upsets() {
		everything.Go(func() {
			if err := u.happen(ctx, s, name); err != nil {
				s.wrong("%s: %v", name, err)
			}
		})
	}
	everything.Wait()
	s.stopIfWrong(t)
}

// ask has so many clients ask until stop is closed, or the server is gone.
func (s *soak) ask(stop <-chan struct{}, clients int) {
	var asking sync.WaitGroup
	for range clients {
		seed := s.seeds.Add(1)
		asking.Go(func() {
			(&client{soak: s, Rand: rand.New(rand.NewPCG(seed, seed))}).run(stop)
		})
	}
	asking.Wait()
}

// stopUnderLoad tells the server to stop in the middle of everything, once all that is
// asked was asked. What is not answered then was not accepted: it is on no record, and
// nobody was told to go on.
func (s *soak) stopUnderLoad(t *testing.T, following func()) {
	t.Helper()
	before := s.judge.answers()
	var asking sync.WaitGroup
	ended := make(chan struct{})
	asking.Go(func() { s.ask(ended, soakClients+burstClients) })
	defer func() {
		if t.Failed() {
			t.Logf("%d more were answered, and there were no %v", s.judge.answers()-before, s.unasked())
		}
	}()
	until(t, "the last clients are answered", func() (bool, error) {
		return s.going.Err() != nil || s.judge.answers() > before+burstClients && len(s.unasked()) == 0, nil
	})
	following() // the rest is read from the directory
	s.stopping.Store(true)
	took, err := terminate(s.server)
	close(ended)
	asking.Wait()
	if err != nil {
		t.Errorf("told to stop under load, the server ends with %v after %v", err, took)
	}
	s.counts["stopped after ms"] = int(took.Milliseconds())
}

// finish reads the rest of the log, and verifies it as whoever kept its first key and a
// checkpoint.
func (s *soak) finish(t *testing.T) {
	t.Helper()
	_, err := export.Tail(t.Context(), s.path("data"), export.TailOptions{After: s.judge.last}, s.judge.record)
	must(t, err)
	s.judge.close()
	for _, checkpoint := range []string{string(s.checkpoint), ""} {
		report := verify.Directory(s.path("data"), verify.Options{Key: s.firstKey, Checkpoint: checkpoint})
		if !report.Verified() {
			t.Errorf("%v: %v", report.Code, report.Problem)
		}
	}
	s.complaints(t)
	s.stopIfWrong(t)
	s.happened(t)
}

// complaints are what the server says is wrong, but for the bundle that does not load.
func (s *soak) complaints(t *testing.T) {
	t.Helper()
	said, err := os.ReadFile(s.path("stderr"))
	must(t, err)
	for line := range strings.Lines(string(said)) {
		if strings.Contains(line, "level=ERROR") && !strings.Contains(line, `msg="bundle refused`) && !strings.Contains(line, `msg="broken.cedar:`) {
			s.wrong("the server says %s", line)
		}
	}
}

// happened fails a soak in which something did not happen: it would have shown nothing.
func (s *soak) happened(t *testing.T) {
	t.Helper()
	for _, what := range s.unasked() {
		t.Errorf("there were no %s", what)
	}
	for name := range s.upsets() {
		if s.counts[name] == 0 {
			t.Errorf("no %s has happened", name)
		}
	}
	j := s.judge
	needs := map[string]int{"rotations of the log's key": j.events[format.EventKeyRotated], "bundles": j.events["bundle_loaded"] - 1, "bundles refused": j.events["bundle_refused"]}
	if s.duration >= 10*time.Minute {
		needs["segments retired"] = j.retired
	}
	for what, n := range needs {
		if n <= 0 {
			t.Errorf("there were no %s", what)
		}
	}
}

// unasked is what clients have not done yet, or has not become of it.
func (s *soak) unasked() (missing []string) {
	s.mu.Lock()
	needs := map[string]int{"log pages": s.counts["log page"], "requests refused": s.counts["refused"], "requests that were told to go on": s.counts["told to go on"]}
	s.mu.Unlock() // the judge locks the other way round
	s.judge.mu.Lock()
	defer s.judge.mu.Unlock()
	needs["allows"], needs["receipts"] = s.judge.allowed, s.judge.judged["receipt"]
	for _, kind := range soakKinds {
		needs["answers to a "+kind.name] = s.judge.judged[kind.name]
	}
	for what, n := range needs {
		if n == 0 {
			missing = append(missing, what)
		}
	}
	return missing
}

func (s *soak) report(t *testing.T) {
	t.Helper()
	j := s.judge
	t.Logf("%v of load, %d answers, %d of them with an allow, none of them wrong: %s", s.duration, j.answers(), j.allowed, tallied(j.judged))
	t.Logf("besides: %s", tallied(s.counts))
	t.Logf("on record: %d records, of them %s; %d segments retired", j.last+1, tallied(j.events), j.retired)
	t.Logf("%d descriptors at most", s.most)
}

func tallied(counts map[string]int) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, fmt.Sprintf("%s %d", name, counts[name]))
	}
	return strings.Join(all, ", ")
}

func (s *soak) count(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[what]++
}

// wrong keeps what is wrong, from any goroutine, and ends the load: it shows nothing more.
func (s *soak) wrong(format string, args ...any) {
	s.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts["wrong"]++; len(s.wrongs) < 10 {
		s.wrongs = append(s.wrongs, fmt.Sprintf(format, args...))
	}
}

func (s *soak) stopIfWrong(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, text := range s.wrongs {
		t.Errorf("%.4000s", text)
	}
	if len(s.wrongs) > 0 {
		t.Fatalf("%d things are wrong", s.counts["wrong"])
	}
}

// home is the newest checkpoint that was taken away from the server.
func (s *soak) home(checkpoint []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkpoint = checkpoint
}

// run runs a command of ours to its end.
func (s *soak) run(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*patience)
	defer cancel()
	command := exec.CommandContext(ctx, "policy-service", args...)
	var out, said bytes.Buffer
	command.Stdout, command.Stderr = &out, &said
	if err := command.Run(); err != nil {
		return "", errors.Join(ctx.Err(), fmt.Errorf("policy-service %s: %w: %s%s", strings.Join(args, " "), err, &out, &said))
	}
	return out.String(), nil
}
