package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/go-json-experiment/json"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"policy-service/evaluation"
	"policy-service/evaluation/capability"
	"policy-service/pdp/decisionlog/verify"
	"policy-service/pdp/pdptest/counted"
	"policy-service/pdp/pdptest/etcdtest"
	"policy-service/pdp/pdptest/inside/auth"
	state "policy-service/pdp/pdptest/inside/cluster"
	"policy-service/pdp/pdptest/inside/record"
	"policy-service/pdp/pdptest/inside/server"
	"policy-service/pdp/pdptest/memorydisk"
	"policy-service/pdp/pdptest/night"
	"policy-service/pdp/pdptest/written"
)

// Three replicas, each a process with a log and a disk of its own, share three members of etcd. They are asked by HTTP alone.
//
// A use that was answered is on exactly one log, and a use that was refused is on none. What was not answered, or with 503, may
// be on one. So each operation has an id that its record has, too.

const (
	clusterPolicies = `
@id("free") permit(principal, action == Action::"read", resource);
@id("once") @obligation("once") permit(principal, action == Action::"tool.invoke", resource == tool::"once");
@id("five") @obligation("five") permit(principal, action == Action::"tool.invoke", resource == tool::"five");
@id("held") permit(principal, action == Action::"tool.invoke", resource == tool::"b:read") when { context.pdp.capability.held };
@id("grants") permit(principal, action == Action::"capability.grant", resource is tool);
@id("people") permit(principal is user, action == Action::"approval.decide", resource is Approval);
`
	clusterObligations = `
once: {type: approval_required, properties: {template: owner, timeout: 24h, valid_for: 24h}}
five: {type: approval_required, properties: {template: owner, uses: 5, timeout: 24h, valid_for: 24h}}
`
	clusterIssuer = "https://pdp.example"
	// smallMember is the member of etcd that has a disk of its own.
	smallMember = 2
	// someUses is how many uses an item has that has more than one.
	someUses = 5
)

// clusterReplica is a process.
type clusterReplica struct {
	n       int
	command string // of the program: "serve", or another one that says where it listens
	data    string
	config  string // file
	program string // what the next start starts
	way     *etcdtest.Net
	said    written.Text
	mu      sync.Mutex // guards what follows
	url     string
	process *exec.Cmd
	ended   chan struct{}
	killed  bool // by its last process
}

// troubled are the replicas, and all that was asked of them.
type troubled struct {
	*testing.T
	etcd     *etcdtest.Cluster
	policies string
	replicas []*clusterReplica
	random   *rand.Rand
	shared   server.Config // of a program that is no replica
	key      map[string]string
	holder   *capability.Holder
	client   *http.Client
	began    time.Time
	ids      atomic.Int64

	mu      sync.Mutex // guards what follows
	asked   []operation
	items   map[string]item // by the id of an approval or a capability
	states  []string        // the errors of operations without an answer
	all, ok int
}

// item is an approval or a capability. Of one without uses they are not counted.
type item struct {
	id, name   string
	uses       int
	capability bool
	token      string
}

// operation is a question that wants a use of an item. Known is an answer, and got that it has the use.
type operation struct {
	id, item   string
	call, end  time.Duration
	got, known bool
}

func openTroubled(t *testing.T, seed uint64) *troubled {
	t.Helper()
	return openReplicas(t, seed, map[string]string{"a.cedar": clusterPolicies, "obligations.yaml": clusterObligations, "bundle.yaml": "volatile: [trace]\n"},
		"public_url: "+clusterIssuer+"\napprovals: {new_per_minute_per_subject: 100000}\ncapabilities: {clock_skew: 1s, max_live_per_holder: 100000, new_per_minute_per_holder: 100000}\n")
}

// openReplicas starts replicas with a bundle, and with more in the configuration of each.
func openReplicas(t *testing.T, seed uint64, bundle map[string]string, more string) *troubled {
	t.Helper()
	disk := memorydisk.New(t, "size=512m")
	s := &troubled{
		T: t, key: map[string]string{}, items: map[string]item{}, began: time.Now(), random: rand.New(rand.NewPCG(seed, 0)), policies: t.TempDir(),
		client: &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: 100}},
	}
	t.Cleanup(s.client.CloseIdleConnections)
	s.etcd = etcdtest.Start(t, etcdtest.Options{Quota: 128 << 20, Dir: func(n int) string {
		if n == smallMember {
			return disk
		}
		return ""
	}})
	var err error
	s.holder, err = capability.NewHolder(ed25519.NewKeyFromSeed(binary.BigEndian.AppendUint64(make([]byte, ed25519.SeedSize-8), seed)))
	must(t, err)
	for name, text := range bundle {
		must(t, os.WriteFile(filepath.Join(s.policies, name), []byte(text), 0o600))
	}
	for n := range 3 {
		r := &clusterReplica{n: n, command: "serve", program: "policy-service", data: memorydisk.New(t, "size=64m"), config: filepath.Join(t.TempDir(), "config.yaml"), way: s.etcd.Client()}
		s.replicas = append(s.replicas, r)
		must(t, os.WriteFile(r.config, fmt.Appendf(nil, `policies: %s
data: %s
listen: 127.0.0.1:0
cluster: {keys_stale: 5s, etcd: {endpoints: ["http://%s"]}}
%s`, s.policies, r.data, strings.Join(r.way.Endpoints(), `", "http://`), more), 0o600))
	}
	s.shared = server.Config{Data: s.replicas[0].data, Cluster: &state.Config{}}
	for _, one := range s.etcd.Client().Endpoints() {
		s.shared.Cluster.Etcd.Endpoints = append(s.shared.Cluster.Etcd.Endpoints, "http://"+one)
	}
	s.grant("pep", "", auth.Decide, auth.Request, auth.Capability, auth.Explain)
	s.grant("warden", "", auth.CapabilityAdmin, auth.LogRead)
	s.grant("mia", `user::"mia"`, auth.Approve)
	for n, r := range s.replicas {
		if n > 0 {
			for _, name := range []string{"approvals.key", "mask.key", "page.key", "signing.jwks"} {
				content, err := os.ReadFile(filepath.Join(s.replicas[0].data, name))
				must(t, err)
				must(t, os.WriteFile(filepath.Join(r.data, name), content, 0o600))
			}
		}
		s.start(r)
		t.Cleanup(r.kill)
	}
	s.ready()
	return s
}

// grant makes a key, and returns its name in etcd. If etcd is away for a moment, it is made again under another name, as the first
// may be there.
func (s *troubled) grant(name, principal string, permissions ...auth.Permission) (taken string) {
	s.Helper()
	spec := auth.KeySpec{Name: name, Grant: auth.Grant{Tenants: []string{"*"}, Permissions: permissions}}
	if principal != "" {
		var err error
		spec.Principal, err = auth.ParsePrincipal(principal)
		must(s.T, err)
	}
	more := 0
	etcdtest.Succeeds(s, "a key is made", func() error {
		keys, done, err := server.OpenSharedKeys(s.Context(), s.shared) // each time anew: etcd may have been put back
		if err != nil {
			return err
		}
		defer done()
		secret, err := keys.Add(spec)
		switch {
		case errors.Is(err, auth.ErrKeysAway):
			more++
			spec.Name = fmt.Sprint(name, "-", more)
			return err
		case err != nil:
			s.Fatal(err)
		}
		s.key[name], s.key[spec.Name] = "Bearer "+secret, "Bearer "+secret
		return nil
	})
	return spec.Name
}

// start starts a process, and waits until it answers.
func (s *troubled) start(r *clusterReplica) {
	s.Helper()
	file := filepath.Join(s.TempDir(), "addr")
	process := exec.Command(r.program, r.command, "--config", r.config, "--addr-file", file)
	process.Stderr = &r.said
	must(s.T, process.Start())
	ended := make(chan struct{})
	r.mu.Lock()
	r.process, r.ended, r.killed, r.url = process, ended, false, ""
	r.mu.Unlock()
	go func() {
		_ = process.Wait()
		close(ended)
	}()
	etcdtest.Eventually(s, fmt.Sprint(r.command, " ", r.n, " starts"), func() bool {
		select {
		case <-ended:
			s.Fatalf("%s %d does not start: %s", r.command, r.n, r.said.String())
		default:
		}
		line, err := os.ReadFile(file)
		if err != nil {
			return false
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.url = "http://" + strings.TrimSpace(string(line))
		return true
	})
}

// kill ends the process as kill -9 does.
func (r *clusterReplica) kill() { r.end(syscall.SIGKILL) }

func (r *clusterReplica) end(by syscall.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process == nil {
		return
	}
	_ = r.process.Process.Signal(by)
	<-r.ended
	status, _ := r.process.ProcessState.Sys().(syscall.WaitStatus)
	r.killed, r.process = status.Signaled() && status.Signal() == syscall.SIGKILL, nil
}

func (r *clusterReplica) address() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.url
}

// wasKilled reports whether the last process was killed.
func (r *clusterReplica) wasKilled() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.killed
}

// ask sends a request; a status of 0 is no answer.
func (s *troubled) ask(r *clusterReplica, who, method, path, body string) (status int, text string) {
	request, err := http.NewRequestWithContext(s.Context(), method, r.address()+path, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	request.Header.Set("Authorization", s.key[who])
	request.Header.Set("Content-Type", "application/json")
	answer, err := s.client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = answer.Body.Close() }()
	read, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err.Error()
	}
	if answer.StatusCode == http.StatusServiceUnavailable && answer.Header.Get("Retry-After") == "" && !strings.HasPrefix(path, "/readyz") {
		s.Errorf("503 without Retry-After: %s", read)
	}
	return answer.StatusCode, string(read)
}

// state is the error of the state of a replica by /readyz, and by how much its clock may differ. Once API keys are not known any
// more it has no more than a word for their callers.
func (s *troubled) state(r *clusterReplica) (ready bool, text string, skew float64) {
	status, text := s.ask(r, "pep", "GET", "/readyz", "")
	var is struct {
		Status  string `json:"status"`
		Cluster struct {
			Skew float64 `json:"clock_skew_seconds"`
		} `json:"cluster"`
		State *struct {
			Error string `json:"error"`
		} `json:"state"`
	}
	if status == 0 || json.Unmarshal([]byte(text), &is) != nil {
		return false, "", 0
	}
	if is.State != nil {
		return false, cmp.Or(is.State.Error, "away"), is.Cluster.Skew
	}
	if is.Status != "ready" {
		return false, is.Status, is.Cluster.Skew
	}
	return status == http.StatusOK, "", is.Cluster.Skew
}

// ready waits until all replicas are as they should be.
func (s *troubled) ready() {
	s.Helper()
	for _, r := range s.replicas {
		etcdtest.Eventually(s, fmt.Sprint("replica ", r.n, " is ready"), func() bool { is, _, _ := s.state(r); return is })
	}
}

// clusterQuestion asks for a tool. Its record has the id.
func clusterQuestion(tool, name, id, more string) string {
	return fmt.Sprintf(`{"tenant_id":"default","actor":{"actor_id":"bot","actor_type":"agent"},"action":"tool.invoke","resource":{"type":"tool","id":%q},"context":{"arguments":{"of":%q},"trace":%q%s}}`,
		tool, name, id, more)
}

// use is the body of a question that wants a use of an item.
func (s *troubled) use(i item, id string) string {
	if !i.capability {
		return clusterQuestion(map[int]string{1: "once", someUses: "five"}[i.uses], i.name, id, fmt.Sprintf(`,"approval_id":%q`, i.id))
	}
	arguments, err := evaluation.ParseWithNulls(fmt.Appendf(nil, `{"of":%q}`, i.name), evaluation.DefaultLimits())
	must(s.T, err)
	proof, err := s.holder.Prove(capability.Claim{Capability: i.id, Audience: "b", Tool: "b:read", Arguments: arguments, IssuedAt: time.Now(), ID: "proof-of-" + id})
	must(s.T, err)
	return clusterQuestion("b:read", i.name, id, fmt.Sprintf(`,"capability":{"token":%q,"proof":%q}`, i.token, proof))
}

func (s *troubled) newID(item string) string { return fmt.Sprintf("%s.%06d", item, s.ids.Add(1)) }

// spend wants a use of an item.
func (s *troubled) spend(r *clusterReplica, i item) operation {
	id := s.newID(i.id)
	return s.send(r, i, id, s.use(i, id))
}

func (s *troubled) send(r *clusterReplica, i item, id, body string) operation {
	o := operation{id: id, item: i.id, call: time.Since(s.began)}
	status, text := s.ask(r, "pep", "POST", "/v1/authorize", body)
	o.end = time.Since(s.began)
	var a struct {
		Allow      bool            `json:"allow"`
		Reason     string          `json:"reason"`
		Owes       map[string]bool `json:"obligations"`
		Capability struct {
			Reason string `json:"reason"`
		} `json:"capability"`
	}
	why := ""
	switch {
	case status == http.StatusOK:
		must(s.T, json.Unmarshal([]byte(text), &a))
		o.got = a.Allow && len(a.Owes) == 0
		why = a.Capability.Reason
		o.known = o.got || why != "unavailable" && a.Reason != "unavailable"
		if want := map[bool][]string{true: {"used_up", "proof_replayed"}, false: {""}}[i.capability]; o.known && !o.got && !slices.Contains(want, why) && !slices.Contains([]string{"nonce_required", "proof_stale", "clock_skew"}, why) {
			s.Errorf("a use of %s %s: %s", i.name, i.id, text)
		}
	case status != 0 && status != http.StatusServiceUnavailable && status != http.StatusInternalServerError:
		s.Errorf("a use of %s %s: %d %s", i.name, i.id, status, text)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all++; o.known {
		s.ok++
	} else {
		s.states = append(s.states, fmt.Sprint(r.n, " ", status, " ", text))
	}
	s.asked = append(s.asked, o)
	return o
}

// untilThere posts until the replica reaches etcd: on a busy machine it may not for a moment.
func (s *troubled) untilThere(r *clusterReplica, who, path, body string) (status int, text string) {
	s.Helper()
	etcdtest.Eventually(s, "it reaches etcd", func() bool {
		status, text = s.ask(r, who, "POST", path, body)
		return status != http.StatusServiceUnavailable
	})
	return status, text
}

// approved is an approval that is filed at one replica and approved at another.
func (s *troubled) approved(name string, uses int) item {
	s.Helper()
	tool, at := map[int]string{1: "once", someUses: "five"}[uses], s.random.IntN(3)
	status, text := s.untilThere(s.replicas[at], "pep", "/v1/authorize", clusterQuestion(tool, name, "filed", ""))
	var a struct {
		Approval struct {
			ID string `json:"id"`
		} `json:"approval"`
	}
	if status != http.StatusOK || json.Unmarshal([]byte(text), &a) != nil || a.Approval.ID == "" {
		s.Fatalf("an approval: %d %s", status, text)
	}
	vote := "/v1/approvals/" + a.Approval.ID + "/decision"
	status, text = s.untilThere(s.replicas[(at+1)%3], "mia", vote, `{"decision":"approve","reason":"fine"}`)
	if status != http.StatusOK && status != http.StatusConflict { // a vote that was answered 503 may have counted
		s.Fatalf("a vote: %d %s", status, text)
	}
	return s.kept(item{id: a.Approval.ID, name: name, uses: uses})
}

// granted is a capability; without uses they are not counted.
func (s *troubled) granted(name string, uses int) item {
	s.Helper()
	a := capability.Ask{
		Tenant: "default", Holder: evaluation.Ref{Type: "agent", ID: "bot"}, Audience: "b", Tools: []string{"read"}, Duration: 24 * time.Hour, MaxUses: uses,
	}
	r := s.replicas[s.random.IntN(3)]
	var g struct {
		ID    string `json:"id"`
		Token string `json:"token"`
	}
	etcdtest.Eventually(s, "a capability is granted", func() bool { // just after a start an old proof counts no longer
		must(s.T, s.holder.Request(&a, clusterIssuer, time.Now()))
		body, err := json.Marshal(a)
		must(s.T, err)
		status, text := s.ask(r, "pep", "POST", "/v1/capabilities", string(body))
		if status == http.StatusServiceUnavailable { // see untilThere
			return false
		}
		if status != http.StatusCreated && !strings.Contains(text, "nonce") {
			s.Fatalf("a capability: %d %s", status, text)
		}
		return status == http.StatusCreated && json.Unmarshal([]byte(text), &g) == nil && g.Token != ""
	})
	return s.kept(item{id: g.ID, name: name, uses: uses, capability: true, token: g.Token})
}

func (s *troubled) kept(i item) item {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.items[i.id] = i
	return i
}

// proved is a question with one proof, which is taken once by all replicas together.
type proved struct {
	item
	proof, body string
}

// wanted is all that is asked for in one part of a round.
type wanted struct {
	counted []item
	proofs  []proved
	tools   []*kept
}

// kept is a request for a tool that a gateway keeps, and which of its processes have taken it by an answer.
type kept struct {
	id, revision string

	mu    sync.Mutex
	taken []string
}

// keeps is a request for a tool that waits.
func (s *troubled) keeps() *kept {
	s.Helper()
	k := new(kept)
	etcdtest.Eventually(s, "a request for a tool is kept", func() bool {
		k.id = fmt.Sprint("request-", s.ids.Add(1))
		status, text := s.ask(s.replicas[s.random.IntN(3)], "pep", "POST", "/v1/tools/requests/"+k.id, `{"open":true,"seconds":3600,"text":"waits"}`)
		var is struct {
			Revision string `json:"revision"`
		}
		if status == http.StatusOK {
			must(s.T, json.Unmarshal([]byte(text), &is))
		}
		k.revision = is.Revision
		return k.revision != ""
	})
	return k
}

// take wants a request. It is known if it was answered.
func (s *troubled) take(r *clusterReplica, k *kept) (known bool) {
	by := fmt.Sprint("process ", s.ids.Add(1))
	status, text := s.ask(r, "pep", "POST", "/v1/tools/requests/"+k.id, fmt.Sprintf(`{"revision":%q,"open":false,"seconds":3600,"text":%q}`, k.revision, by))
	switch status {
	case http.StatusOK:
		k.mu.Lock()
		k.taken = append(k.taken, by)
		k.mu.Unlock()
	case http.StatusConflict:
	case 0, http.StatusServiceUnavailable, http.StatusTooManyRequests:
		return false
	default:
		s.Errorf("a request for a tool is taken: got %d %s", status, text)
	}
	return true
}

// isTaken checks that one process has a request, and no other had it by an answer. A request of before etcd was restored is gone.
func (s *troubled) isTaken(k *kept, gone bool) {
	s.Helper()
	for _, r := range s.replicas {
		etcdtest.Eventually(s, "a request for a tool is taken", func() bool { return s.take(r, k) })
		etcdtest.Eventually(s, "a request for a tool is read", func() bool {
			status, text := s.ask(r, "pep", "GET", "/v1/tools/requests/"+k.id, "")
			var is struct {
				Open bool   `json:"open"`
				Text string `json:"text"`
			}
			switch {
			case status == http.StatusNotFound && gone:
			case status != http.StatusOK:
				return false
			default:
				must(s.T, json.Unmarshal([]byte(text), &is))
				if is.Open || len(k.taken) == 1 && k.taken[0] != is.Text {
					s.Errorf("%s was taken by %q, and is %+v", k.id, k.taken, is)
				}
			}
			return true
		})
	}
	if len(k.taken) > 1 {
		s.Errorf("%s was taken by %q", k.id, k.taken)
	}
}

func (s *troubled) wants(part string) (w wanted) {
	s.Helper()
	w.counted = []item{
		s.approved(part+" last", 1), s.approved(part+" some", someUses), s.granted(part+" last of a capability", 1), s.granted(part+" some of a capability", someUses),
	}
	for n := range 4 {
		w.proofs = append(w.proofs, proved{item: s.granted(fmt.Sprint(part, " proof ", n), 0)})
		w.tools = append(w.tools, s.keeps())
	}
	return w
}

// race has 16 callers at once want each use, shows each proof to all replicas at once, and takes each request for a tool there. After some operations it calls in.
func (s *troubled) race(w wanted, in func()) {
	s.Helper()
	var wait, begun sync.WaitGroup
	var done atomic.Int32
	enough := make(chan struct{})
	step := func() {
		if done.Add(1) == 8 {
			close(enough)
		}
	}
	begun.Add(1)
	for n := range 16 {
		for _, i := range w.counted {
			wait.Go(func() {
				begun.Wait()
				s.spend(s.replicas[n%3], i)
				step()
			})
		}
	}
	for n := range w.proofs {
		p := &w.proofs[n]
		p.proof = s.newID(p.id)
		p.body = s.use(p.item, p.proof)
		for _, r := range s.replicas {
			wait.Go(func() {
				begun.Wait()
				s.send(r, p.item, p.proof, p.body)
				step()
			})
		}
	}
	for _, k := range w.tools {
		for _, r := range s.replicas {
			wait.Go(func() {
				begun.Wait()
				s.take(r, k)
				step()
			})
		}
	}
	begun.Done()
	<-enough
	in()
	wait.Wait()
}

// replays shows all proofs once more, and a new one.
func (s *troubled) replays(w wanted) {
	var wait sync.WaitGroup
	for _, p := range w.proofs {
		for _, r := range s.replicas {
			wait.Go(func() { s.send(r, p.item, p.proof, p.body) })
		}
	}
	wait.Wait()
}

// fresh waits until each replica takes a new proof without a nonce, which it does a little after its start.
func (s *troubled) fresh(i item) {
	s.Helper()
	for _, r := range s.replicas {
		etcdtest.Eventually(s, fmt.Sprint("replica ", r.n, " takes proofs"), func() bool { return s.spend(r, i).got })
	}
}

// clusterFault goes wrong in a round: took says whether it has taken effect. Replica away does not reach etcd meanwhile, or is
// not there; -1 is none, and 3 is all of them.
type clusterFault struct {
	name       string
	away       int
	before     func()
	begin      func()
	took       func() bool
	end        func()
	cut        bool // its connections are
	restores   bool
	everywhere bool // nothing in etcd can be changed
}

const (
	none = -1
	all  = 3
)

func (s *troubled) faults() []clusterFault {
	c, first, second, third := s.etcd, s.replicas[0], s.replicas[1], s.replicas[2]
	var term, leader, refused = uint64(0), 0, int64(0)
	var of []int64
	var empty func()
	var copied string
	grew := func() bool { _, now := c.Leader(); return now > term }
	away := func(r *clusterReplica) bool { _, text, _ := s.state(r); return text != "" }
	put := func(times int, key func(n int) string, enough func() bool) {
		client, err := etcdtest.Dial(c.Client().Endpoints()...)
		must(s.T, err)
		defer func() { _ = client.Close() }()
		for n := 0; n < times && !enough(); n++ {
			ctx, cancel := context.WithTimeout(s.Context(), 5*time.Second)
			_, _ = client.Put(ctx, "/ballast/"+key(n), strings.Repeat("x", 1<<20))
			cancel()
		}
	}
	room := func() { etcdtest.Succeeds(s, "there is room in etcd", s.shrink) }
	return []clusterFault{
		{name: "the leader is cut off", away: none, begin: func() {
			leader, term = c.Leader()
			refused = c.Refused()
			c.Isolate(leader)
		}, took: func() bool { return grew() && c.Refused() > refused }, end: c.Join},
		{name: "a replica is with the minority", away: 0, cut: true, begin: func() {
			leader, _ = c.Leader()
			alone := (leader + 1) % 3
			refused = first.way.Refused()
			c.Isolate(alone)
			first.way.Cut(leader, (leader+2)%3)
		}, took: func() bool { return first.way.Refused() > refused && away(first) }, end: func() { c.Join(); first.way.Heal() }},
		{name: "all are cut off", away: all, everywhere: true, begin: func() {
			of = nil
			for _, r := range s.replicas {
				of = append(of, r.way.Refused())
				r.way.Cut()
			}
		}, took: func() bool {
			return !slices.ContainsFunc(s.replicas, func(r *clusterReplica) bool { return r.way.Refused() == of[r.n] || !away(r) })
		}, end: func() {
			for _, r := range s.replicas {
				r.way.Heal()
			}
		}},
		{name: "a member is killed", away: none, begin: func() {
			leader, term = c.Leader()
			c.Kill(leader)
		}, took: func() bool { return grew() && !c.Runs(leader) }, end: func() { c.Restart(leader) }},
		{name: "a replica is killed", away: 0, begin: first.kill, took: first.wasKilled, end: func() { s.start(first) }},
		{name: "the disk of a replica is full", away: none, begin: func() {
			empty = etcdtest.Fill(s, second.data)
		}, took: func() bool { // the log needs no more room than it has
			s.ask(second, "pep", "POST", "/v1/authorize", clusterQuestion("none", strings.Repeat("x", 30_000), "ballast", ""))
			return strings.Contains(second.said.String(), syscall.ENOSPC.Error())
		}, end: func() { empty(); second.said.Take() }},
		{name: "the disk of a member is full", away: none, begin: func() {
			empty = c.Fill(smallMember)
			put(80, func(int) string { return "" }, func() bool { return !c.Runs(smallMember) }) // or it needs no more room than it has
		}, took: func() bool {
			return !c.Runs(smallMember) && strings.Contains(c.Said(smallMember), syscall.ENOSPC.Error())
		},
			end: func() { empty(); c.Restart(smallMember); c.Settled(); room() }},
		{name: "the quota of the members is used up", away: none, everywhere: true, begin: func() {
			put(300, func(n int) string { return fmt.Sprint(n) }, func() bool { return len(c.Alarms()) > 0 })
		}, took: func() bool {
			return slices.ContainsFunc(c.Alarms(), func(a *etcdserverpb.AlarmMember) bool { return a.Alarm == etcdserverpb.AlarmType_NOSPACE })
		}, end: room},
		{name: "a replica is half a second away", away: none, begin: func() { third.way.Delay(500 * time.Millisecond) },
			took: func() bool { _, _, skew := s.state(third); return skew >= 0.5 }, end: third.way.Heal},
		{name: "the answers to a replica are held", away: 2, begin: func() { third.way.Hold() }, took: func() bool { return away(third) }, end: third.way.Heal},
		{name: "etcd is put back from a copy", away: all, restores: true, everywhere: true, before: func() {
			copied = c.CopyOf()
			s.ready()
			for _, r := range s.replicas {
				r.said.Take()
			}
		}, begin: func() { c.PutBack(copied) }, took: func() bool {
			return !slices.ContainsFunc(s.replicas, func(r *clusterReplica) bool {
				return !strings.Contains(r.said.String(), "restart this replica")
			})
		}, end: func() {
			for _, r := range s.replicas {
				r.kill()
				s.start(r)
			}
		}},
	}
}

// shrink takes the ballast out of etcd, and the room that it took.
func (s *troubled) shrink() error {
	endpoints := s.etcd.Client().Endpoints()
	client, err := etcdtest.Dial(endpoints...)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	gone, err := client.Delete(ctx, "/ballast/", clientv3.WithPrefix())
	if err != nil {
		return err
	}
	if _, err = client.Compact(ctx, gone.Header.Revision, clientv3.WithCompactPhysical()); err != nil && !strings.Contains(err.Error(), "compacted") {
		return err
	}
	for _, one := range endpoints {
		if _, err = client.Defragment(ctx, one); err != nil {
			return err
		}
	}
	_, err = client.AlarmDisarm(ctx, &clientv3.AlarmMember{})
	return err
}

const readFree = `{"subject":{"type":"agent","id":"a"},"action":{"name":"read"},"resource":{"type":"doc","id":"1"}}`

// revoked is an API key, and where it was refused since it was revoked.
type revoked struct {
	name    string
	refused [3]bool
	cut     int // the replica whose connections are cut: an answer of before does not come later
}

// revoke has the command revoke a key, by the way of one replica.
func (s *troubled) revoke(r *clusterReplica, k *revoked) (answered bool) {
	said, err := exec.CommandContext(s.Context(), "policy-service", "keys", "revoke", "--config", r.config, k.name).CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		s.Fatal(err)
	}
	if err != nil {
		s.Logf("keys revoke by replica %d: %s", r.n, said)
	}
	return err == nil || strings.Contains(string(said), "revoked") && strings.Contains(string(said), "already")
}

// refuses asks with the key. A replica that has refused it never takes it again. One that only knew that what it knows is old may,
// for as long as keys_stale, once it has an older answer.
func (s *troubled) refuses(r *clusterReplica, k *revoked) (is bool, status int) {
	status, text := s.ask(r, k.name, "POST", "/access/v1/evaluation", readFree)
	old := status == http.StatusServiceUnavailable && strings.Contains(text, "keys")
	if status == http.StatusOK && k.refused[r.n] {
		s.Errorf("replica %d took a revoked key after it had refused it", r.n)
	}
	if status == http.StatusUnauthorized || old && r.n == k.cut {
		k.refused[r.n] = true
	}
	return k.refused[r.n] || old, status
}

// round is a fault that begins while much is asked, and ends before as much is asked again.
func (s *troubled) round(n int, f clusterFault) {
	s.Helper()
	firstPart, secondPart := s.wants(fmt.Sprint(n, ".1")), s.wants(fmt.Sprint(n, ".2"))
	probe := s.granted(fmt.Sprint(n, " probe"), 0)
	key := &revoked{name: s.grant(fmt.Sprint("ends-", n), "", auth.Decide), cut: none}
	if f.cut {
		key.cut = f.away
	}
	for _, r := range s.replicas {
		etcdtest.Eventually(s, "a new key counts", func() bool {
			status, _ := s.ask(r, key.name, "POST", "/access/v1/evaluation", readFree)
			return status == http.StatusOK
		})
	}
	s.fresh(probe)
	if f.before != nil {
		f.before()
	}
	isRevoked := false
	if f.restores { // each log has it before the copy is put back, which has it not
		isRevoked = s.revoke(s.replicas[n%3], key)
		for _, r := range s.replicas {
			etcdtest.Eventually(s, "a revoked key is on record", func() bool {
				is, _ := s.refuses(r, key)
				return is && s.onRecord(r, key.name)
			})
		}
	}
	s.race(firstPart, f.begin)
	etcdtest.Eventually(s, "it takes effect: "+f.name, func() bool { return f.took() })
	if !f.everywhere {
		by := s.replicas[1+n%2]
		etcdtest.Eventually(s, "a key is revoked", func() bool {
			for by.n == f.away {
				by = s.replicas[(by.n+1)%3]
			}
			return s.revoke(by, key)
		})
		isRevoked = true
		for _, r := range s.replicas {
			if r.wasKilled() {
				continue
			}
			etcdtest.Eventually(s, fmt.Sprint("replica ", r.n, " refuses a revoked key"), func() bool { is, _ := s.refuses(r, key); return is })
		}
	}
	s.late(firstPart)
	f.end()
	s.etcd.Settled()
	s.ready()
	if !isRevoked && !s.revoke(s.replicas[n%3], key) {
		s.Error("a key cannot be revoked")
	}
	for _, r := range s.replicas {
		etcdtest.Eventually(s, fmt.Sprint("replica ", r.n, " refuses a revoked key for good"), func() bool {
			_, status := s.refuses(r, key)
			return status == http.StatusUnauthorized
		})
	}
	s.fresh(probe)
	s.race(secondPart, func() {})
	s.replays(firstPart)
	s.replays(secondPart)
	for _, i := range slices.Concat(firstPart.counted, secondPart.counted) {
		etcdtest.Eventually(s, "all uses are settled: "+i.name, func() bool {
			for o := range 2 {
				s.spend(s.replicas[(n+o)%3], i)
			}
			return s.isUsedUp(s.replicas[s.random.IntN(3)], i)
		})
	}
	for _, k := range firstPart.tools {
		s.isTaken(k, f.restores)
	}
	for _, k := range secondPart.tools {
		s.isTaken(k, f.restores)
	}
	if s.mu.Lock(); len(s.states) > 0 {
		s.Logf("%d operations were not answered, such as %.300s", len(s.states), s.states[0])
	}
	s.states = nil
	s.mu.Unlock()
}

// late wants what is left while the fault holds.
func (s *troubled) late(w wanted) {
	var wait sync.WaitGroup
	for _, i := range w.counted {
		for _, r := range s.replicas {
			wait.Go(func() { s.spend(r, i) })
		}
	}
	for _, k := range w.tools {
		for _, r := range s.replicas {
			wait.Go(func() { s.take(r, k) })
		}
	}
	wait.Wait()
}

// onRecord reports whether the log of a replica has the revocation of a key.
func (s *troubled) onRecord(r *clusterReplica, name string) bool {
	status, text := s.ask(r, "warden", "GET", "/v1/decisions?event=api_key_revoked", "")
	return status == http.StatusOK && strings.Contains(text, `"`+name+`"`)
}

// isUsedUp reports whether no use of an item is left, and none is in doubt.
func (s *troubled) isUsedUp(r *clusterReplica, i item) bool {
	var is struct {
		Status   string `json:"status"` // of an approval
		State    string `json:"state"`  // of a capability
		Used     int    `json:"used"`
		InFlight []any  `json:"in_flight"`
	}
	who, path := "mia", "/v1/approvals/"+i.id
	if i.capability {
		who, path = "warden", "/v1/capabilities/"+i.id
	}
	status, text := s.ask(r, who, "GET", path, "")
	return status == http.StatusOK && json.Unmarshal([]byte(text), &is) == nil && cmp.Or(is.Status, is.State) == "used_up" && is.Used == i.uses && len(is.InFlight) == 0
}

// logsOfAll are the logs of all replicas together.
type logsOfAll struct {
	uses     map[string][]string // of each item the operations that used it
	released map[string]int      // of each item
}

var traced = regexp.MustCompile(`"trace":"([^"]*)"`)

// read ends all replicas, and reads their logs, which verify.
func (s *troubled) read() logsOfAll {
	s.Helper()
	said, seen := logsOfAll{uses: map[string][]string{}, released: map[string]int{}}, map[string]int{}
	for _, r := range s.replicas {
		r.end(syscall.SIGTERM)
		report := verify.Directory(r.data, verify.Options{Record: func(_ int64, line []byte) {
			record, err := record.Parse(slices.Clone(line))
			must(s.T, err)
			if other, is := seen[record.ID]; is {
				s.Errorf("record %s is on the logs of %d and %d", record.ID, other, r.n)
			}
			seen[record.ID] = r.n
			id := ""
			if found := traced.FindSubmatch(line); found != nil {
				id = string(found[1])
			}
			for _, d := range record.Discharged {
				said.uses[d.Approval] = append(said.uses[d.Approval], id)
			}
			if c := record.Capability; c != nil && record.Decision != nil && *record.Decision && c.Proof != nil && !c.Grants {
				if said.uses[c.ID] = append(said.uses[c.ID], id); c.Proof.ID != "proof-of-"+id {
					s.Errorf("operation %s is on record with the proof %s", id, c.Proof.ID)
				}
			}
			if record.Event == "released" {
				var of struct {
					Approval   string `json:"approval"`
					Capability string `json:"capability"`
				}
				must(s.T, json.Unmarshal(record.Details, &of))
				said.released[cmp.Or(of.Approval, of.Capability)]++
			}
		}})
		if report.Code != verify.Verified {
			s.Errorf("the log of replica %d does not verify: %+v", r.n, report.Problem)
		}
	}
	return said
}

// check holds all answers against the logs.
func (s *troubled) check(said logsOfAll) {
	s.Helper()
	contended := 0
	for _, id := range slices.Sorted(maps.Keys(s.items)) {
		i, on := s.items[id], said.uses[id]
		slices.Sort(on)
		if len(slices.Compact(slices.Clone(on))) != len(on) {
			s.Errorf("%s: an operation used it more than once: %v", i.name, on)
		}
		if i.uses > 0 && len(on) != i.uses {
			s.Errorf("%s grants %d uses, and on record are %v", i.name, i.uses, on)
		}
		got := map[string]int{}
		for _, o := range s.asked {
			if o.item != id || !o.known {
				continue
			}
			_, is := slices.BinarySearch(on, o.id)
			if o.got {
				got[o.id]++
			}
			if o.got && (!is || got[o.id] > 1) || !o.got && is && i.uses > 0 {
				s.Errorf("%s: operation %s was answered %v, and on record it is %v", i.name, o.id, o.got, is)
			}
		}
		if i.uses > 0 && s.linearizable(i, on, said.released[id]) {
			contended++
		}
	}
	for id := range said.uses {
		if _, is := s.items[id]; !is {
			s.Errorf("%s was used, and is lost", id)
		}
	}
	if s.ok*10 < s.all*3 {
		s.Errorf("of %d operations %d were answered", s.all, s.ok)
	}
	if contended == 0 {
		s.Error("no last use was contended")
	}
	s.Logf("of %d operations %d were answered; %d last uses were contended", s.all, s.ok, contended)
}

// linearizable checks that the uses of an item have an order in which each answer is true, and reports whether operations have
// contended for the last use. An operation without an answer is open to the end.
func (s *troubled) linearizable(i item, on []string, released int) (contended bool) {
	s.Helper()
	var history []porcupine.Operation
	latest, openSince := time.Duration(0), time.Duration(math.MaxInt64)
	put := func(e counted.Event, call, end time.Duration, known bool) {
		if !known {
			end = math.MaxInt64
		}
		history = append(history, porcupine.Operation{ClientId: len(history), Input: e, Call: int64(call), Return: int64(end)})
	}
	for _, o := range s.asked {
		if o.item != i.id {
			continue
		}
		if _, is := slices.BinarySearch(on, o.id); is {
			put(counted.Event{Kind: counted.Use}, o.call, o.end, o.known)
			latest = max(latest, o.end)
		} else if o.known {
			put(counted.Event{Kind: counted.None}, o.call, o.end, true)
		} else {
			openSince = min(openSince, o.call)
		}
	}
	if released > counted.Most || released > 0 && openSince == math.MaxInt64 {
		s.Errorf("%s: %d uses were given back", i.name, released)
		return false
	}
	for n := range released {
		put(counted.Event{Kind: counted.Take, Of: n}, openSince, 0, false)
		put(counted.Event{Kind: counted.Give, Of: n}, openSince, 0, false)
	}
	for _, o := range s.asked {
		_, is := slices.BinarySearch(on, o.id)
		contended = contended || o.item == i.id && o.known && !is && o.call < latest
	}
	if got := counted.Judge(i.uses, history, 2*patience); got != porcupine.Ok {
		s.Errorf("the history of %s, which grants %d uses, is %s: %+v", i.name, i.uses, got, history)
	}
	return contended
}

// clusterRounds has a round with each of some faults.
func clusterRounds(t *testing.T, pick func(all int, random *rand.Rand) []int) {
	t.Helper()
	seed := rand.Uint64()
	if given, err := strconv.ParseUint(os.Getenv("CLUSTER_SEED"), 10, 64); err == nil {
		seed = given
	}
	t.Logf("seed %d", seed)
	s := openTroubled(t, seed)
	faults := s.faults()
	for n, one := range pick(len(faults), s.random) {
		f := faults[one]
		if !t.Run(fmt.Sprint(n, " ", f.name), func(part *testing.T) {
			s.T = part
			defer func() { s.T = t }()
			s.round(n, f)
		}) {
			return
		}
	}
	said := s.read()
	s.check(said)
	s.merges(said)
}

// merges joins the exports of the replicas: they verify as one, and are read as one.
func (s *troubled) merges(said logsOfAll) {
	s.Helper()
	dir := s.TempDir()
	run := func(args ...string) string {
		s.Helper()
		printed, err := exec.CommandContext(s.Context(), "policy-service", args...).Output()
		if err != nil {
			s.Fatalf("policy-service %q: %v, %s", args, err, printed)
		}
		return string(printed)
	}
	merged, policy, keys, command := filepath.Join(dir, "all.ndjson"), filepath.Join(dir, "policy"), "", []string{"log", "merge", "-o", filepath.Join(dir, "all.ndjson")}
	for _, r := range s.replicas {
		name := filepath.Join(dir, fmt.Sprint(r.n, ".ndjson"))
		run("log", "export", "--bundles", "--data", r.data, "-o", name)
		command = append(command, name)
		keys += strings.ReplaceAll(run("log", "key", "--policy", "--data", r.data), "quorum none", "")
	}
	must(s.T, os.WriteFile(policy, []byte(keys+"quorum none\n"), 0o600))
	run(command...)
	if printed := run("log", "verify", merged, "--policy", policy); !strings.Contains(printed, "a merge of 3 exports") {
		s.Error(printed)
	}
	content, err := os.ReadFile(merged)
	must(s.T, err)
	trusted, err := verify.ParsePolicy([]byte(keys + "quorum none\n"))
	must(s.T, err)
	for range 50 {
		at, bit := s.random.IntN(len(content)), byte(1)<<s.random.IntN(8)
		content[at] ^= bit
		if r := verify.Export(bytes.NewReader(content), verify.Options{Policy: trusted}); r.Code == verify.Verified {
			s.Errorf("it verifies with another bit in byte %d", at)
		}
		content[at] ^= bit
	}
	var rechecked struct {
		Decisions  int            `json:"decisions"`
		Same       int            `json:"same"`
		Incomplete map[string]int `json:"incomplete"`
	}
	must(s.T, json.Unmarshal([]byte(run("log", "recheck", "--export", merged, "--json")), &rechecked))
	if rechecked.Decisions == 0 || rechecked.Same != rechecked.Decisions || len(rechecked.Incomplete) > 0 {
		s.Errorf("of all decisions some are not what their policies say: %+v", rechecked)
	}
	used, between := 0, 0
	for line := range strings.Lines(run("log", "approvals", "--export", merged, "--json")) {
		var one struct {
			Approval string `json:"approval"`
			Status   string `json:"status"`
			Steps    []struct {
				Event  string `json:"event"`
				Origin string `json:"origin"`
				UsedBy string `json:"used_by"`
			} `json:"steps"`
		}
		must(s.T, json.Unmarshal([]byte(line), &one))
		if _, is := s.items[one.Approval]; !is { // a call that came too late asked for another one
			continue
		}
		origins, uses := map[string]bool{}, map[string]bool{}
		for _, step := range one.Steps {
			if origins[step.Origin] = true; step.Event == "used" {
				uses[step.UsedBy] = true
			}
		}
		if want := s.items[one.Approval].uses; len(uses) != want || len(said.uses[one.Approval]) != want || one.Status != "used_up" || one.Steps[0].Event != "filed" {
			s.Errorf("the merge has %d uses of %d: %s", len(uses), want, line)
		}
		if used += len(uses); len(origins) > 1 {
			between++
		}
	}
	var report struct {
		Approvals map[string]struct {
			Used int `json:"used"`
		} `json:"approvals"`
		Logs []any `json:"logs"`
	}
	must(s.T, json.Unmarshal([]byte(run("log", "report", "--export", merged, "--json")), &report))
	if report.Approvals["native"].Used != used || used == 0 || between == 0 || len(report.Logs) != 3 {
		s.Errorf("the report has %+v, and used were %d; %d approvals are on several logs", report, used, between)
	}
}

// TestClusterFaults: under each fault of three processes and three members of etcd, a use is one use, a proof and a request for
// a tool are taken once, and a revoked key is refused.
func TestClusterFaults(t *testing.T) {
	t.Parallel()
	const killed = 4 // the others are asked of three stores in pdp/internal/approval, too
	clusterRounds(t, func(int, *rand.Rand) []int { return []int{killed} })
}

// TestClusterFaultsWhole is TestClusterFaults with each fault.
func TestClusterFaultsWhole(t *testing.T) {
	night.Whole(t, "it has eleven faults, each for some seconds")
	t.Parallel()
	clusterRounds(t, func(all int, random *rand.Rand) []int { return random.Perm(all) })
}

// TestSoakClusterFaults is TestClusterFaults with many rounds.
func TestSoakClusterFaults(t *testing.T) {
	night.Soaks(t)
	clusterRounds(t, func(all int, random *rand.Rand) (rounds []int) {
		for range 8 {
			rounds = append(rounds, random.Perm(all)...)
		}
		return rounds
	})
}
