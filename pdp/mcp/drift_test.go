package mcp

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"policy-service/evaluation"
	"policy-service/pdp/decisionlog"
	"policy-service/pdp/mcp/internal/gate"
	"policy-service/pdp/mcp/mcptest"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/server"
	"policy-service/pdp/server/auth"
)

// driftScene is a gateway in front of a PDP that keeps a log. What it finds, a test says.
type driftScene struct {
	t       *testing.T
	data    string
	pdp     *pdptest.Server
	gateway *Gateway
	log     *driftLog
	slept   chan time.Duration // each pause that the gateway makes, before it
	goOn    chan struct{}      // ends one
	clock   atomic.Int64
}

// driftLog is what the gateway's operator reads.
type driftLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *driftLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// has is the lines with a text.
func (l *driftLog) has(text string) (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, text) {
			lines = append(lines, line)
		}
	}
	return lines
}

func driftMust(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var driftBundle = map[string]string{
	"all.cedar":              `@id("all") permit (principal, action, resource);`,
	"bundle.yaml":            "allow_trivial: true\n",
	"tenants/acme/all.cedar": `@id("acme") permit (principal, action, resource);`,
}

// newDriftScene starts it. before stands before the PDP, nil is nobody.
func newDriftScene(t *testing.T, before func(pdp http.Handler) http.Handler, change func(*Config)) *driftScene {
	t.Helper()
	s := &driftScene{t: t, data: mcptest.QuickDir(t)}
	s.serve(before, change)
	return s
}

// serve starts a PDP and its gateway.
func (s *driftScene) serve(before func(pdp http.Handler) http.Handler, change func(*Config)) {
	t := s.t
	t.Helper()
	s.pdp = pdptest.Start(t, pdptest.Bundle(driftBundle), func(c *server.Config) { c.Data = s.data })
	asked := s.pdp.URL
	if before != nil {
		at, err := url.Parse(asked)
		driftMust(t, err)
		front := httptest.NewServer(before(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(at) }}))
		t.Cleanup(front.Close)
		asked = front.URL
	}
	c := driftConfig(asked)
	if change != nil {
		change(&c)
	}
	s.start(c, Deps{})
}

func driftConfig(pdp string) Config {
	return Config{
		Listen: "127.0.0.1:0", Resource: "http://127.0.0.1:8181/mcp",
		PDP:       PDPConfig{URL: pdp, Timeout: time.Minute}, // an answer that comes later is on record twice
		Identity:  IdentityConfig{Static: &StaticConfig{Sub: "alice"}},
		Upstreams: map[string]UpstreamConfig{"jira": {URL: "http://127.0.0.1:1/mcp", AllowNetworks: []string{"127.0.0.0/8"}}},
	}
}

func (s *driftScene) start(c Config, d Deps) {
	s.t.Helper()
	s.log, s.slept, s.goOn = &driftLog{}, make(chan time.Duration, 10_000), make(chan struct{})
	d.Logger = slog.New(slog.NewTextHandler(s.log, nil))
	d.Now = func() time.Time { return time.Unix(1_800_000_000, s.clock.Load()) }
	var err error
	s.gateway, err = New(s.t.Context(), c, d)
	driftMust(s.t, err)
	s.t.Cleanup(func() { driftMust(s.t, s.gateway.Close()) })
	s.gateway.drifts.sleep = func(ctx context.Context, d time.Duration) {
		if d <= 0 {
			return
		}
		s.slept <- d
		select {
		case <-s.goOn:
			s.clock.Add(int64(d))
		case <-ctx.Done():
		}
	}
}

// pauses ends pauses, and returns how long they would have been.
func (s *driftScene) pauses(n int) (all []time.Duration) {
	s.t.Helper()
	for range n {
		all = append(all, <-s.slept)
		s.goOn <- struct{}{}
	}
	return all
}

// closed closes the gateway, and returns what is on record then.
func (s *driftScene) closed() (found []decisionlog.Recorded) {
	s.t.Helper()
	driftMust(s.t, s.gateway.Close())
	driftMust(s.t, s.pdp.Stop(context.Background()))
	return driftsIn(s.t, s.data)
}

func driftsIn(t *testing.T, data string) (found []decisionlog.Recorded) {
	t.Helper()
	r, err := decisionlog.OpenReader(data)
	driftMust(t, err)
	defer func() { _ = r.Close() }()
	for line, err := range r.Records(t.Context(), 0, r.Size()) {
		driftMust(t, err)
		one, err := decisionlog.Parse(line.Line)
		driftMust(t, err)
		if one.Event == decisionlog.EventToolDrift {
			found = append(found, *one)
		}
	}
	return found
}

func driftOf(t *testing.T, r decisionlog.Recorded) (d evaluation.Drift) {
	t.Helper()
	driftMust(t, json.Unmarshal(r.Details, &d))
	return d
}

// driftTools are the tools of what is on record, in its order.
func driftTools(t *testing.T, all []decisionlog.Recorded) (names []string) {
	for _, r := range all {
		names = append(names, driftOf(t, r).Tool)
	}
	return names
}

func driftFinding(n int) gate.Drift {
	return gate.Drift{Server: "jira", Tool: fmt.Sprintf("tool_%04d", n), Change: "description", Locked: "sha256:a", Found: "sha256:b"}
}

// What is found is on record once, of the gateway's tenant and key, whatever a server calls its tools.
func TestDriftIsOnRecord(t *testing.T) {
	t.Parallel()
	s := newDriftScene(t, nil, func(c *Config) {
		c.PDP.Tenant = "acme"
		c.PDP.URL += "/"
	})
	long := strings.Repeat("é", 200)
	for _, d := range []gate.Drift{
		{Server: "jira", Tool: "reset_password", Change: "input_schema", Locked: "sha256:a", Found: "sha256:b"},
		{Server: "jira", Tool: "a\nb\u202e", Change: "new_tool", Found: "sha256:c"},
		{Server: "jira", Tool: long, Change: "renamed", With: long},
		{Server: "jira", Tool: "x", Change: "swapped", With: "y"},
		{Server: "jira", Change: "instructions", Locked: "sha256:d", Found: "sha256:e"},
		{Server: "jira", Change: "gone_server"},
		{Server: "jira", Tool: "z", Change: "gone_tool"},
		{Server: "jira", Change: "more"},
	} {
		s.gateway.drifts.noticed(d)
	}
	cut := strings.Repeat("é", 126) + "…"
	want := []evaluation.Drift{
		{Server: "jira", Tool: "reset_password", Change: "changed", Parts: []string{"input_schema"}, Locked: "sha256:a", Found: "sha256:b"},
		{Server: "jira", Tool: `a\u000ab\u202e`, Change: "new", Found: "sha256:c"},
		{Server: "jira", Tool: cut, Change: "renamed", With: cut},
		{Server: "jira", Tool: "x", Change: "swapped", With: "y"},
		{Server: "jira", Change: "instructions", Locked: "sha256:d", Found: "sha256:e"},
		{Server: "jira", Change: "gone"},
		{Server: "jira", Tool: "z", Change: "gone"},
		{Server: "jira", Change: "more"},
	}
	var got []evaluation.Drift
	ids := map[string]bool{}
	for _, r := range s.closed() {
		got = append(got, driftOf(t, r))
		ids[r.RequestID] = true
		if r.Kind != decisionlog.KindAdmin || r.Tenant != "acme" {
			t.Errorf("%+v", r)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if len(ids) != len(want) || len(s.log.has("level=ERROR")) != 0 {
		t.Errorf("ids %v, and the log is\n%s", ids, s.log.has(""))
	}
}

// While the PDP is away, what is found waits, is sent again more and more rarely, and is on record once, in order.
func TestDriftWhilePDPIsAway(t *testing.T) {
	t.Parallel()
	var away atomic.Bool
	away.Store(true)
	s := newDriftScene(t, func(pdp http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if away.Load() {
				panic(http.ErrAbortHandler)
			}
			pdp.ServeHTTP(w, r)
		})
	}, nil)
	for n := range 3 {
		for range 2 { // what waits already need not wait twice
			s.gateway.drifts.noticed(driftFinding(n))
		}
	}
	want := []time.Duration{1, 2, 4, 8, 16, 32, 60, 60}
	for n := range want {
		want[n] *= time.Second
	}
	if diff := cmp.Diff(want, s.pauses(len(want))); diff != "" {
		t.Error(diff)
	}
	<-s.slept
	away.Store(false)
	s.goOn <- struct{}{}
	if diff := cmp.Diff([]string{"tool_0000", "tool_0001", "tool_0002"}, driftTools(t, s.closed())); diff != "" {
		t.Error(diff)
	}
	if told := s.log.has("level=ERROR"); len(told) != 1 || !strings.Contains(told[0], "there is no answer") {
		t.Errorf("%q", told)
	}
}

// A PDP that is too busy says when to come again.
func TestDriftHeedsRetryAfter(t *testing.T) {
	t.Parallel()
	var busy atomic.Bool
	busy.Store(true)
	s := newDriftScene(t, func(pdp http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if busy.Swap(false) {
				w.Header().Set("Retry-After", "90")
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			pdp.ServeHTTP(w, r)
		})
	}, nil)
	s.gateway.drifts.noticed(driftFinding(1))
	if got := s.pauses(1); got[0] != 90*time.Second {
		t.Errorf("it waits %v", got)
	}
	if all := s.closed(); len(all) != 1 {
		t.Errorf("%d are on record", len(all))
	}
}

// A key that may not is told of once, and what was found is on record once it may.
func TestDriftNeedsThePermission(t *testing.T) {
	t.Parallel()
	data, file := mcptest.QuickDir(t), filepath.Join(t.TempDir(), "gateway.key")
	keys, err := auth.OpenKeys(data)
	driftMust(t, err)
	key := map[auth.Permission]string{}
	for _, may := range []auth.Permission{auth.Search, auth.Decide} {
		key[may], err = keys.Add(auth.KeySpec{Name: string(may), Grant: auth.Grant{Permissions: []auth.Permission{may}}})
		driftMust(t, err)
	}
	driftMust(t, os.WriteFile(file, []byte(key[auth.Search]), 0o600))
	taken := make(chan struct{})
	s := &driftScene{t: t, data: data}
	s.serve(func(pdp http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			pdp.ServeHTTP(w, r)
			if strings.HasSuffix(r.Header.Get("Authorization"), key[auth.Decide]) {
				close(taken)
			}
		})
	}, func(c *Config) { c.PDP.KeyFile = file })
	driftMust(t, os.Remove(file))
	s.gateway.drifts.noticed(driftFinding(1))
	s.pauses(1) // there is no file
	driftMust(t, os.WriteFile(file, []byte(key[auth.Search]+"\n"), 0o600))
	s.pauses(3)
	<-s.slept
	driftMust(t, os.WriteFile(file, []byte(key[auth.Decide]+"\n"), 0o600))
	s.goOn <- struct{}{}
	<-taken
	if all := s.closed(); len(all) != 1 || all[0].Caller != "key:decide" {
		t.Errorf("%+v", all)
	}
	if told := s.log.has("permission decide"); len(told) != 1 || !strings.Contains(told[0], "403") {
		t.Errorf("%q", told)
	}
}

// A PDP that does not know the path, or keeps no log, is told of once; nothing is sent again.
func TestDriftNobodyRecords(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusNotFound, http.StatusMethodNotAllowed} {
		var asked atomic.Int64
		s := newDriftScene(t, func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				asked.Add(1)
				w.WriteHeader(status)
			})
		}, nil)
		for n := range 5 {
			s.gateway.drifts.noticed(driftFinding(n))
		}
		if all := s.closed(); len(all) != 0 || asked.Load() != 5 || len(s.slept) != 0 {
			t.Errorf("%d: %d on record, %d sent", status, len(all), asked.Load())
		}
		if told := s.log.has("level=ERROR"); len(told) != 1 || !strings.Contains(told[0], fmt.Sprint(status)) {
			t.Errorf("%q", told)
		}
	}
}

type driftInProcess struct{}

func (driftInProcess) Authenticate(*http.Request) (auth.Caller, error) {
	return auth.Caller{Name: "key:mcp-gateway", AllTenants: true, Permissions: []auth.Permission{auth.Decide}}, nil
}

// A PDP in the process takes what is found if it keeps a log, and says so if it keeps none.
func TestDriftEmbedded(t *testing.T) {
	t.Parallel()
	for _, data := range []string{"", mcptest.QuickDir(t)} {
		config := server.Config{Data: data, Program: server.Program{
			Source: pdptest.Bundle(driftBundle), InProcess: true, Authenticator: driftInProcess{},
		}}
		pdp, err := server.New(config)
		driftMust(t, err)
		driftMust(t, pdp.Start(t.Context()))
		s := &driftScene{t: t}
		c := driftConfig("")
		c.PDP.Embedded = &EmbeddedConfig{Policies: t.TempDir(), Data: data}
		s.start(c, Deps{Transport: pdp.Transport()})
		s.gateway.drifts.noticed(driftFinding(1))
		s.gateway.drifts.noticed(driftFinding(2))
		driftMust(t, s.gateway.Close())
		driftMust(t, pdp.Stop(context.Background()))
		told := s.log.has("level=ERROR")
		if data == "" {
			if len(told) != 1 || !strings.Contains(told[0], "404") || !strings.Contains(told[0], "no decision log is kept here") {
				t.Errorf("%q", told)
			}
			continue
		}
		if got := driftTools(t, driftsIn(t, data)); len(got) != 2 || len(told) != 0 {
			t.Errorf("%q, %q", got, told)
		}
	}
}

// Close waits for a PDP that does not answer, and not for long; what is lost is told of.
func TestDriftCloseMeanwhile(t *testing.T) {
	t.Parallel()
	came := make(chan struct{}, 10)
	s := newDriftScene(t, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = bytes.NewBuffer(nil).ReadFrom(r.Body)
			came <- struct{}{}
			<-r.Context().Done()
		})
	}, nil)
	s.gateway.drifts.noticed(driftFinding(1))
	s.gateway.drifts.noticed(driftFinding(2))
	<-came
	began := time.Now()
	driftMust(t, s.gateway.Close())
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %v", took)
	}
	s.gateway.drifts.noticed(driftFinding(3)) // nobody takes it any more
	if told := s.log.has("findings=2"); len(told) != 1 {
		t.Errorf("%q", s.log.has(""))
	}
}

// A flood of findings waits for nobody. The first of them are put on record, no faster than they may be.
func TestDriftFlood(t *testing.T) {
	t.Parallel()
	held := make(chan struct{})
	s := newDriftScene(t, func(pdp http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-held
			pdp.ServeHTTP(w, r)
		})
	}, nil)
	const flood = mostDrifts + 500
	for n := range flood {
		s.gateway.drifts.noticed(driftFinding(n))
	}
	close(held)
	for _, pause := range s.pauses(mostDrifts - driftBurst) {
		if pause <= 0 || pause > driftEvery {
			t.Fatalf("it waits %v", pause)
		}
	}
	got := driftTools(t, s.closed())
	want := make([]string, mostDrifts)
	for n := range want {
		want[n] = driftFinding(n).Tool
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d are on record: %.3q", len(got), got)
	}
	if told := s.log.has(fmt.Sprintf("findings=%d", flood-mostDrifts)); len(told) != 1 {
		t.Errorf("%q", s.log.has("level=ERROR"))
	}
}
