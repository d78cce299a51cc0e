package server_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"policy-service/pdp/internal/cluster"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/clock"
	"policy-service/pdp/pdptest/etcdtest"
)

// group are replicas of one cluster, each with a way of its own to etcd.
type group struct {
	t    *testing.T
	etcd *etcdtest.Cluster
	all  []*counter
	net  []*etcdtest.Net
	key  map[string]string
	// Secrets are what all replicas have.
	secrets map[string][]byte
	// Hasty are the replicas that wait for etcd as long as others do that are configured so: 3 s. Those of most tests wait for
	// longer, so that etcd is there on a busy machine.
	hasty []int
}

// hurry starts replicas again as hasty ones, which soon find out that etcd is away.
func (g *group) hurry(replicas ...int) {
	g.t.Helper()
	g.hasty = replicas
	for _, n := range replicas {
		must(g.t, g.all[n].Stop(g.t.Context()))
		g.start(n)
	}
}

// copyOf keeps the data of all members of etcd. The replicas, which all run, reach etcd again afterwards.
func (g *group) copyOf() (dir string) {
	g.t.Helper()
	dir = g.etcd.CopyOf()
	for _, one := range g.all {
		eventually(g.t, "it reaches etcd again", func() bool {
			status, _, _ := one.retry("pep", "GET", keptRequests+"/none", "")
			return status != http.StatusServiceUnavailable
		})
	}
	return dir
}

func openGroup(t *testing.T, replicas int, etcd *etcdtest.Cluster) *group {
	t.Helper()
	g := &group{t: t, etcd: etcd, key: map[string]string{}, secrets: map[string][]byte{}}
	g.net = append(g.net, etcd.Client())
	config := server.Config{Data: t.TempDir()}
	g.config(0)(&config)
	apiKeys, done, err := server.OpenSharedKeys(t.Context(), config)
	must(t, err)
	defer done()
	grant := func(name, principal string, permissions ...auth.Permission) {
		spec := keys.Spec{Name: name, Grant: auth.Grant{Tenants: []string{"*"}, Permissions: permissions}}
		if principal != "" {
			spec.Principal, err = auth.ParsePrincipal(principal)
			must(t, err)
		}
		key, err := apiKeys.Add(spec)
		must(t, err)
		g.key[name] = "Bearer " + key
	}
	grant("pep", "", auth.Decide, auth.Request)
	grant("wallet", "", auth.Decide, auth.Capability)
	grant("warden", "", auth.CapabilityAdmin)
	grant("auditor", "", auth.LogRead, auth.Explain)
	grant("mia", `user::"mia"`, auth.Approve)
	grant("noah", `user::"noah"`, auth.Approve)
	g.net = nil
	g.secrets, err = readFiles(config.Data)
	must(t, err)
	for range replicas {
		g.add()
	}
	return g
}

// add starts one more replica. The first makes what all have.
func (g *group) add() *counter {
	g.t.Helper()
	c := &counter{t: g.t, data: g.t.TempDir(), key: g.key, Clock: clock.At(pdptest.Now)}
	g.all, g.net = append(g.all, c), append(g.net, g.etcd.Client())
	for name, content := range g.secrets {
		must(g.t, os.WriteFile(filepath.Join(c.data, name), content, 0o600))
	}
	g.start(len(g.all) - 1)
	for _, name := range []string{"approvals.key", "mask.key", "page.key", "signing.jwks"} {
		content, err := os.ReadFile(filepath.Join(c.data, name))
		must(g.t, err)
		g.secrets[name] = content
	}
	return c
}

func (g *group) start(n int, options ...pdptest.Option) {
	g.t.Helper()
	g.all[n].open(pdptest.Bundle(approvalFiles("a.cedar", `@id("free") permit(principal, action == Action::"read", resource);`)), append(options, g.config(n))...)
}

func (g *group) config(n int) pdptest.Option {
	return func(config *server.Config) {
		config.Cluster = &cluster.Config{}
		if !slices.Contains(g.hasty, n) {
			config.Cluster.Etcd.Timeout = etcdtest.Patience
		}
		for _, one := range g.net[n].Endpoints() {
			config.Cluster.Etcd.Endpoints = append(config.Cluster.Etcd.Endpoints, "http://"+one)
		}
	}
}

type clusterReady struct {
	Status  string `json:"status"`
	Cluster struct {
		Origin  string  `json:"origin"`
		Skew    float64 `json:"clock_skew_seconds"`
		Full    bool    `json:"full"`
		Members []struct {
			Origin string `json:"origin"`
		} `json:"members"`
	} `json:"cluster"`
	State *struct {
		Since string `json:"since"`
		Error string `json:"error"`
	} `json:"state"`
}

func (c *counter) ready() (status int, is clusterReady) {
	c.t.Helper()
	status, text := c.do("auditor", "GET", "/readyz", "")
	must(c.t, json.Unmarshal([]byte(text), &is))
	return status, is
}

const free = `{"subject":{"type":"agent","id":"a"},"action":{"name":"read"},"resource":{"type":"doc","id":"1"}}`

// An approval that is filed at one replica is approved at another, and used once at a third. While etcd is away decisions
// without state go on and ask etcd for nothing; what needs state is 503; and a replica that starts is not ready before it
// has read etcd once.
func TestClusterOfReplicas(t *testing.T) {
	t.Parallel()
	g := openGroup(t, 3, etcdtest.Start(t, etcdtest.Options{Members: 1}))
	a, b, c := g.all[0], g.all[1], g.all[2]
	first := a.asks("pep", tool("push", push))
	first.stands(t, "filed at one", "pending")
	b.says("mia", first.Approval.ID, "decision", yes, http.StatusOK)
	used := 0
	for range 2 {
		for _, one := range []*counter{c, a, b} {
			if one.may(tool("push", again)) {
				used++
			}
		}
	}
	if used != 1 {
		t.Errorf("it was used %d times", used)
	}
	g.hurry(0, 1, 2)
	for _, one := range g.all {
		eventually(t, "the others are seen", func() bool { _, is := one.ready(); return len(is.Cluster.Members) == 2 })
	}

	for _, net := range g.net {
		net.Cut()
	}
	for _, one := range g.all {
		eventually(t, "it says that etcd is away", func() bool { _, is := one.ready(); return is.State != nil })
		if status, is := one.ready(); status != http.StatusOK || is.Status != "degraded" || is.State.Since == "" {
			t.Errorf("away: got %d %+v", status, is)
		}
	}
	_, commits := server.ClusterCalls(a.Server.Server)
	eventually(t, "a decision without state reads nothing in etcd", func() bool {
		before, _ := server.ClusterCalls(a.Server.Server)
		if status, text := a.do("pep", "POST", "/access/v1/evaluation", free); status != http.StatusOK || !strings.Contains(text, `"decision":true`) {
			t.Fatalf("a decision without state: got %d %s", status, text)
		}
		after, _ := server.ClusterCalls(a.Server.Server)
		return after == before // or the watch read meanwhile
	})
	if status, text := a.do("pep", "POST", "/access/v1/evaluation", strings.Replace(free, "read", "write", 1)); status != http.StatusOK || !strings.Contains(text, `"decision":false`) {
		t.Errorf("a deny without state: got %d %s", status, text)
	}
	if _, now := server.ClusterCalls(a.Server.Server); now != commits {
		t.Errorf("decisions without state write to etcd %d times", now-commits)
	}
	for name, do := range map[string]func() (int, string, string){
		"to file": func() (int, string, string) { return b.retry("pep", "POST", "/v1/authorize", tool("stop", push)) },
		"to use":  func() (int, string, string) { return c.retry("pep", "POST", "/v1/authorize", tool("push", again)) },
		"to vote": func() (int, string, string) {
			return b.retry("mia", "POST", "/v1/approvals/"+first.Approval.ID+"/decision", yes)
		},
		"to look": func() (int, string, string) { return b.retry("mia", "GET", "/v1/approvals/"+first.Approval.ID, "") },
		"to list": func() (int, string, string) { return b.retry("mia", "GET", "/v1/approvals", "") },
	} {
		if status, after, text := do(); status != http.StatusServiceUnavailable || after == "" {
			t.Errorf("%s while etcd is away: got %d %s", name, status, text)
		}
	}
	for _, net := range g.net {
		net.Heal()
	}
	for _, one := range g.all {
		eventually(t, "it goes on", func() bool { _, is := one.ready(); return is.State == nil && is.Status == "ready" })
	}
	eventually(t, "it is filed afterwards", func() bool {
		r := a.reply("pep", "POST", "/v1/authorize", tool("stop", push))
		return r.status == http.StatusOK && strings.Contains(r.text, "pending")
	})
}

// What a replica must not do is refused at its start, and says what to do.
func TestClusterRefusals(t *testing.T) {
	t.Parallel()
	g := openGroup(t, 1, etcdtest.Start(t, etcdtest.Options{Members: 1}))
	refused := func(name string, change func(data string, config *server.Config), want ...string) {
		t.Helper()
		err := g.refusal(change)
		for _, one := range want {
			if err == nil || !strings.Contains(err.Error(), one) {
				t.Errorf("%s: got %v, want %s", name, err, one)
			}
		}
	}
	other := func(file string) func(string, *server.Config) {
		return func(data string, _ *server.Config) {
			must(t, os.WriteFile(filepath.Join(data, file), []byte(strings.Repeat("k", 32)), 0o600))
		}
	}
	for _, file := range slices.Sorted(maps.Keys(g.secrets)) {
		if file == "approvals.key" || file == "page.key" || file == "mask.key" || file == "signing.jwks" {
			refused("without "+file, func(data string, _ *server.Config) { must(t, os.Remove(filepath.Join(data, file))) },
				"has no "+file, "copy these files from another replica")
		}
	}
	refused("another page.key", other("page.key"), "page.key here is not that of the other replicas")
	refused("another mask.key", other("mask.key"), "mask.key here is not that of the other replicas")
	refused("another approvals.key", other("approvals.key"), "another approvals.key wrote them")
	refused("another signing.jwks", func(data string, c *server.Config) {
		must(t, os.Remove(filepath.Join(data, "signing.jwks")))
		s, err := server.New(server.Config{Listen: "127.0.0.1:0", Data: data, Program: c.Program})
		must(t, err)
		must(t, s.Start(t.Context()))
		must(t, s.Stop(t.Context()))
	}, "the signing keys here are not those of the other replicas")
	_, is := g.all[0].ready()
	refused("the origin of another log", func(_ string, c *server.Config) { c.Cluster.Origin = is.Cluster.Origin }, "is the name of another log", "take another origin")
	refused("no data directory", func(_ string, c *server.Config) { c.Data = "" }, "cluster needs a directory")
	refused("no credentials", func(_ string, c *server.Config) { c.Cluster.Etcd.Prefix = "/another/" }, "refusing to serve as a replica of a cluster")
	refused("http beyond loopback", func(_ string, c *server.Config) { c.Cluster.Etcd.Endpoints = []string{"http://192.0.2.1:2379"} }, "write https://192.0.2.1:2379")
}

// The signing key is rotated twice at one replica, which starts again. Another one does so once it has the file.
func TestClusterRotatesItsSigningKey(t *testing.T) {
	t.Parallel()
	g := openGroup(t, 1, etcdtest.Start(t, etcdtest.Options{Members: 1}))
	a := g.all[0]
	must(t, a.Stop(t.Context()))
	config := server.Config{Data: a.data}
	g.config(0)(&config)
	for range 2 {
		_, err := server.RotateSigning(t.Context(), config)
		must(t, err)
	}
	g.start(0)
	err := g.refusal(func(string, *server.Config) {})
	if err == nil || !strings.Contains(err.Error(), "the signing keys here are not those of the other replicas") {
		t.Errorf("with the key of before: %v", err)
	}
	rotated, err := os.ReadFile(filepath.Join(a.data, "signing.jwks"))
	must(t, err)
	must(t, g.refusal(func(data string, _ *server.Config) {
		must(t, os.WriteFile(filepath.Join(data, "signing.jwks"), rotated, 0o600))
	}))
}

// A replica takes from cluster.secrets the keys that its directory lacks, and replaces none: those of another cluster are refused.
func TestClusterSecrets(t *testing.T) {
	t.Parallel()
	g := openGroup(t, 1, etcdtest.Start(t, etcdtest.Options{Members: 1}))
	names := []string{"approvals.key", "mask.key", "page.key", "signing.jwks"}
	secrets := t.TempDir()
	for _, name := range names {
		must(t, os.WriteFile(filepath.Join(secrets, name), g.secrets[name], 0o440))
	}
	empty := func(change func(data string, c *server.Config)) (string, error) {
		var in string
		err := g.refusal(func(data string, c *server.Config) {
			for _, name := range names {
				must(t, os.Remove(filepath.Join(data, name)))
			}
			in, c.Cluster.Secrets = data, secrets
			change(data, c)
		})
		return in, err
	}
	data, err := empty(func(string, *server.Config) {})
	must(t, err)
	for _, name := range names {
		got, err := os.ReadFile(filepath.Join(data, name))
		info, _ := os.Stat(filepath.Join(data, name))
		if err != nil || !bytes.Equal(got, g.secrets[name]) || info.Mode() != 0o600 {
			t.Errorf("%s: %v %v", name, info.Mode(), err)
		}
	}
	own := bytes.Repeat([]byte("k"), 32)
	data, err = empty(func(data string, _ *server.Config) {
		must(t, os.WriteFile(filepath.Join(data, "page.key"), own, 0o600))
	})
	if err == nil || !strings.Contains(err.Error(), "page.key here is not that of the other replicas") {
		t.Errorf("got %v", err)
	}
	if got, err := os.ReadFile(filepath.Join(data, "page.key")); err != nil || !bytes.Equal(got, own) {
		t.Errorf("a key was replaced (%v)", err)
	}
	config := server.Config{Data: filepath.Join(t.TempDir(), "made"), Cluster: &cluster.Config{Secrets: secrets}}
	if missing := server.MissingShared(config.Data, config.Cluster); len(missing) > 0 {
		t.Errorf("doctor misses %v", missing)
	}
	g.config(0)(&config)
	config.Cluster.Secrets = secrets
	_, done, err := server.OpenSharedKeys(t.Context(), config) // as keys add does
	must(t, err)
	done()
	must(t, os.Chmod(filepath.Join(secrets, "mask.key"), 0o444))
	if _, err := empty(func(string, *server.Config) {}); err == nil || !strings.Contains(err.Error(), "cluster.secrets: ") || !strings.Contains(err.Error(), "open to every user") {
		t.Errorf("got %v", err)
	}
	must(t, os.Remove(filepath.Join(secrets, "mask.key")))
	if _, err := empty(func(string, *server.Config) {}); err == nil || !strings.Contains(err.Error(), "has no mask.key") {
		t.Errorf("got %v", err)
	}
}

// A replica that starts while etcd is away says that it is not ready, and goes on when etcd has come.
func TestClusterStartsWithoutEtcd(t *testing.T) {
	t.Parallel()
	g := openGroup(t, 1, etcdtest.Start(t, etcdtest.Options{Members: 1}))
	c := g.all[0]
	must(t, c.Stop(t.Context()))
	g.hasty = []int{0}
	g.net[0].Cut()
	socket := filepath.Join(t.TempDir(), "s")
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport}
	go func() {
		for {
			r, err := client.Get("http://pdp/readyz")
			if err == nil {
				_ = r.Body.Close()
				if r.StatusCode != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" {
					t.Errorf("not read yet: got %d", r.StatusCode)
				}
				g.net[0].Heal()
				return
			}
		}
	}()
	g.start(0, onSocket(socket, ""))
	if r, err := client.Get("http://pdp/readyz"); err != nil || r.StatusCode != http.StatusOK {
		t.Errorf("read: got %v, %v", r, err)
	}
}

// Etcd that was put back from a copy is found by the replicas. State stands still until each has compared its own log, and
// then a use that was made after the copy is still made.
func TestClusterRestored(t *testing.T) {
	t.Parallel()
	g := openGroup(t, 2, etcdtest.Start(t, etcdtest.Options{Members: 1}))
	a, b := g.all[0], g.all[1]
	a.approved()
	dir := g.copyOf()
	if !a.may(tool("push", again)) {
		t.Fatal("it cannot be used")
	}
	g.etcd.PutBack(dir)
	for _, one := range g.all {
		eventually(t, "it is found", func() bool {
			_, is := one.ready()
			return is.State != nil && strings.Contains(is.State.Error, "restart this replica")
		})
		if r := one.reply("pep", "POST", "/v1/authorize", tool("push", again)); r.status != http.StatusServiceUnavailable || !strings.Contains(r.text, "in etcd cannot be used") {
			t.Errorf("state stands still: got %d %s", r.status, r.text)
		}
	}
	must(t, a.Stop(t.Context()))
	g.start(0)
	eventually(t, "it waits for the other", func() bool {
		_, is := a.ready()
		return is.State != nil && strings.Contains(is.State.Error, "have not compared their logs")
	})
	if r := a.reply("pep", "POST", "/v1/authorize", tool("push", again)); r.status != http.StatusServiceUnavailable {
		t.Errorf("only one has compared: got %d %s", r.status, r.text)
	}
	must(t, b.Stop(t.Context()))
	g.start(1)
	for _, one := range g.all {
		eventually(t, "it goes on", func() bool { _, is := one.ready(); return is.State == nil && is.Status == "ready" })
		if one.may(tool("push", again)) {
			t.Error("a use that was made before etcd was put back was made once more")
		}
	}
}

// etcdutl can begin with a revision that is higher than any before, so that watchers notice nothing. Replicas find out all the same:
// those that run, and those that did not run meanwhile.
func TestClusterRestoredAhead(t *testing.T) {
	t.Parallel()
	for _, stopped := range []bool{false, true} {
		t.Run(fmt.Sprint("stopped meanwhile: ", stopped), func(t *testing.T) {
			t.Parallel()
			g := openGroup(t, 2, etcdtest.Start(t, etcdtest.Options{Members: 1}))
			a, b := g.all[0], g.all[1]
			a.approved()
			snapshot := g.etcd.Snapshot(0)
			if !a.may(tool("push", again)) {
				t.Fatal("it cannot be used")
			}
			if stopped {
				must(t, a.Stop(t.Context()))
				must(t, b.Stop(t.Context()))
			}
			g.etcd.Restore(snapshot, "--bump-revision=1000000000", "--mark-compacted")
			if stopped {
				g.start(1)
			}
			for range 2 {
				if r := b.reply("pep", "POST", "/v1/authorize", tool("push", again)); r.status != http.StatusServiceUnavailable {
					t.Errorf("a use at the other replica: got %d %s", r.status, r.text)
				}
			}
			for n, one := range g.all {
				if !stopped {
					must(t, one.Stop(t.Context()))
				}
				if !stopped || n == 0 {
					g.start(n)
				}
			}
			for _, one := range g.all {
				eventually(t, "it goes on", func() bool { _, is := one.ready(); return is.State == nil && is.Status == "ready" })
				if one.may(tool("push", again)) {
					t.Error("a use that was made before etcd was put back was made once more")
				}
			}
		})
	}
}

// A use that was made after the copy stands on the log of a replica that never comes back. So all that is open is revoked.
func TestClusterRestoredWithoutALog(t *testing.T) {
	t.Parallel()
	g := openGroup(t, 2, etcdtest.Start(t, etcdtest.Options{Members: 1}))
	a, b := g.all[0], g.all[1]
	a.approved()
	waiting := a.asks("pep", tool("stop", push))
	_, is := b.ready()
	gone := is.Cluster.Origin
	dir := g.copyOf()
	if !b.may(tool("push", again)) {
		t.Fatal("it cannot be used")
	}
	must(t, b.Stop(t.Context()))
	g.etcd.PutBack(dir)
	must(t, a.Stop(t.Context()))
	g.start(0)
	eventually(t, "it waits for the other", func() bool {
		_, is := a.ready()
		return is.State != nil && strings.Contains(is.State.Error, "have not compared their logs")
	})
	config := server.Config{Data: a.data}
	g.config(0)(&config)
	eventually(t, "the other is settled as lost", func() bool {
		err := server.SettleLost(t.Context(), config, gone, "its disk broke", true)
		return err == nil
	})
	if r := a.reply("pep", "POST", "/v1/authorize", tool("push", again)); r.status != http.StatusServiceUnavailable {
		t.Errorf("nothing is revoked yet: got %d %s", r.status, r.text)
	}
	must(t, a.Stop(t.Context()))
	g.start(0)
	eventually(t, "it goes on", func() bool { _, is := a.ready(); return is.State == nil && is.Status == "ready" })
	if a.may(tool("push", again)) {
		t.Error("a use that was made before etcd was put back was made once more")
	}
	_, text := a.do("mia", "GET", "/v1/approvals/"+waiting.Approval.ID, "")
	if !strings.Contains(text, `"status":"revoked"`) {
		t.Errorf("what waited is %s", text)
	}
}

// retry is the status of an answer, its Retry-After and its text.
func (c *counter) retry(who, method, path, body string) (status int, after, text string) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.URL+path, strings.NewReader(body))
	must(c.t, err)
	r.Header.Set("Authorization", c.key[who])
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := c.Client.Do(r)
	must(c.t, err)
	defer func() { _ = answer.Body.Close() }()
	read, err := io.ReadAll(answer.Body)
	must(c.t, err)
	return answer.StatusCode, answer.Header.Get("Retry-After"), string(read)
}

// may reports whether a call may be made.
func (c *counter) may(body string) bool {
	c.t.Helper()
	return c.answered(body).may()
}

// answered asks until the state can be used: until the last use is settled, a round after it is 503 at another replica, and
// another leader of etcd leaves open what became of a change.
func (c *counter) answered(body string) (a told) {
	c.t.Helper()
	eventually(c.t, "it is answered", func() bool {
		status, after, text := c.retry("pep", "POST", "/v1/authorize", body)
		if status == http.StatusServiceUnavailable && after != "" {
			return false
		}
		if status != http.StatusOK {
			c.t.Fatalf("%s\ngot %d %s", body, status, text)
		}
		must(c.t, json.Unmarshal([]byte(text), &a))
		return true
	})
	return a
}

// fillEtcd writes until etcd has used more than 80 % of its quota. A size is known some time after a write, so the last writes are small:
// many large ones at once would fill the rest of the quota as well.
func fillEtcd(t testing.TB, etcd *etcdtest.Cluster) {
	t.Helper()
	endpoints := etcd.Client().Endpoints()
	client, err := etcdtest.Dial(endpoints...)
	must(t, err)
	defer func() { _ = client.Close() }()
	size := 512 << 10
	for n := 0; ; n++ {
		_, err := client.Put(t.Context(), fmt.Sprint("/filling/", n), strings.Repeat("x", size))
		must(t, err)
		status, err := client.Status(t.Context(), endpoints[0])
		must(t, err)
		switch percent := status.DbSize * 100 / status.DbSizeQuota; {
		case percent > 82:
			return
		case percent > 50:
			size = 32 << 10
		}
	}
}

// At 80 % of etcd's quota nothing new is filed, and what was begun goes on.
func TestClusterFull(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, etcdtest.Options{Members: 1, Quota: 64 << 20})
	g := openGroup(t, 1, etcd)
	a := g.all[0]
	first := a.asks("pep", tool("push", push))
	fillEtcd(t, etcd)
	eventually(t, "it is full", func() bool { _, is := a.ready(); return is.Cluster.Full && is.Status == "degraded" })
	if status, after, text := a.retry("pep", "POST", "/v1/authorize", tool("stop", push)); status != http.StatusServiceUnavailable || after == "" {
		t.Errorf("filing: got %d %s", status, text)
	}
	eventually(t, "a vote counts", func() bool { // a disk that was just filled is slow for a moment
		status, after, text := a.retry("mia", "POST", "/v1/approvals/"+first.Approval.ID+"/decision", yes)
		counts := status == http.StatusOK || status == http.StatusConflict // it was counted, and the answer was lost
		if !counts && (status != http.StatusServiceUnavailable || after == "") {
			t.Fatalf("a vote: got %d %s", status, text)
		}
		return counts
	})
	if !a.may(tool("push", again)) {
		t.Error("what was approved is not used")
	}
}

// Whoever knew nothing of what is gone may write more than that before others look. They find out all the same: what they made
// themselves is gone.
func TestClusterRestoredAndWrittenOn(t *testing.T) {
	t.Parallel()
	g := openGroup(t, 2, etcdtest.Start(t, etcdtest.Options{Members: 1}))
	a, b := g.all[0], g.all[1]
	a.approved()
	g.net[1].Cut()
	dir := g.etcd.CopyOf()
	if !a.may(tool("push", again)) {
		t.Fatal("it cannot be used")
	}
	g.net[0].Cut()
	g.etcd.PutBack(dir)
	g.net[1].Heal()
	for n := range 10 { // more than the use was
		eventually(t, "the other one files", func() bool {
			r := b.reply("pep", "POST", "/v1/authorize", tool("stop", fmt.Sprintf(`"arguments":{"n":%d}`, n)))
			return r.status == http.StatusOK && strings.Contains(r.text, "pending")
		})
	}
	g.net[0].Heal()
	eventually(t, "it is found", func() bool {
		_, is := a.ready()
		return is.State != nil && strings.Contains(is.State.Error, "restored")
	})
	for n, one := range g.all {
		must(t, one.Stop(t.Context()))
		g.start(n)
	}
	for _, one := range g.all {
		eventually(t, "it goes on", func() bool { _, is := one.ready(); return is.State == nil && is.Status == "ready" })
		if one.may(tool("push", again)) {
			t.Error("a use that was made before etcd was put back was made once more")
		}
	}
}
