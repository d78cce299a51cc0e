package server_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/internal/cluster"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/etcdtest"
)

// importing is the directory of one server with state of every kind, and etcd.
type importing struct {
	*wallet
	g *group
	// What the server has left: requests that wait for two votes and have one, or none; one with 3 of 5 uses; one that was denied.
	half, filed, five, denied string
	counted, spent, revoked   granted // capabilities: with 2 of 3 uses, without any, and taken back
}

func openImporting(t *testing.T) *importing {
	t.Helper()
	files := approvalFiles("a.cedar", strings.ReplaceAll(capabilityPolicies, `@id("leads") permit(principal in team::"leads", action == Action::"approval.decide", resource is Approval);`, "")+
		`@id("five") @obligation("five") permit(principal, action == Action::"tool.invoke", resource == tool::"five");`,
		"obligations.yaml", "five: {type: approval_required, properties: {template: owner, uses: 5, timeout: 10h, valid_for: 10h}}\n")
	w := openWalletOn(t, pdptest.Bundle(files))
	w.Advance(time.Minute)
	i := &importing{wallet: w, g: &group{t: t, etcd: etcdtest.Start(t, etcdtest.Options{Members: 1}), key: w.key}}
	i.g.net = []*etcdtest.Net{i.g.etcd.Client()}
	asked := func(id string) string { return w.counter.asks("pep", tool(id, push)).Approval.ID }
	i.half, i.filed, i.five, i.denied = asked("stop"), asked("list"), asked("five"), asked("push")
	w.says("mia", i.half, "decision", yes, http.StatusOK)
	w.says("mia", i.five, "decision", yes, http.StatusOK)
	w.says("mia", i.denied, "decision", no, http.StatusOK)
	for range 2 {
		w.counter.asks("pep", tool("five", again)).passes(t, "a use")
	}
	i.counted, i.spent, i.revoked = w.asksFor(201, uses(3), "read"), w.asksFor(201, uses(1), "read"), w.asksFor(201, uses(5), "read")
	w.is("allow", w.call(i.counted, "b:read"))
	w.is("allow", w.call(i.spent, "b:read"))
	if status, text := w.do("warden", "POST", "/v1/capabilities/"+i.revoked.ID+"/revoke", `{"reason":"lost"}`); status != http.StatusOK {
		t.Fatal(status, text)
	}
	w.redacts(i.denied, "", http.StatusOK) // its records may have said anything, for a replica that has not read them before
	return i
}

func (i *importing) config() (c server.Config) {
	c.Listen, c.Program.PDP.Now = "127.0.0.1:0", i.Now
	i.g.config(0)(&c)
	return c
}

func (i *importing) take(data string) (server.Imported, error) {
	return server.Import(i.t.Context(), data, i.config())
}

// goOn starts the directory as the first replica, and another one beside it.
func (i *importing) goOn() (a, b *wallet) {
	i.t.Helper()
	one := *i.wallet
	one.options = append(one.options, i.g.config(0))
	one.open(one.source, one.options...)
	other := &wallet{holder: i.holder, source: i.source, options: one.options, n: 1000}
	other.counter = &counter{t: i.t, data: i.t.TempDir(), key: i.key, Clock: i.Clock}
	for _, name := range []string{"approvals.key", "mask.key", "page.key", "signing.jwks"} {
		content, err := os.ReadFile(filepath.Join(i.data, name))
		must(i.t, err)
		must(i.t, os.WriteFile(filepath.Join(other.data, name), content, 0o600))
	}
	other.open(other.source, other.options...)
	i.Advance(time.Minute)
	return &one, other
}

// The state of one server goes on at replicas: the second vote is said at another one, uses end where they were granted, and
// items that were revoked or used up stay so. It is taken once: neither the directory nor an older copy of it gives anything back.
func TestImport(t *testing.T) {
	t.Parallel()
	i := openImporting(t)
	refused := func(name, data, want string) {
		t.Helper()
		if done, err := i.take(data); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %+v, %v; want %s", name, done, err, want)
		}
	}
	refused("in use", i.data, "stop the server that runs there")
	if begun, err := cluster.Begun(t.Context(), *i.config().Cluster); begun || err != nil {
		t.Errorf("a cluster was begun: %v, %v", begun, err)
	}
	refused("no directory", t.TempDir(), "has no decision log")
	must(t, i.Stop(t.Context()))
	old := filepath.Join(t.TempDir(), "old")
	must(t, os.CopyFS(old, os.DirFS(i.data)))
	done, err := i.take(i.data)
	must(t, err)
	if want := (server.Imported{Keys: len(i.key), Approvals: 2, Capabilities: 1}); done != want {
		t.Errorf("got %+v, want %+v", done, want)
	}
	for _, name := range []string{"approvals.db", "capabilities.db"} {
		if _, err := os.Lstat(filepath.Join(i.data, name)); err == nil {
			t.Errorf("a backup has %s", name)
		}
	}
	refused("a second time", i.data, "is taken once")
	refused("an older copy", old, "is taken once")

	a, b := i.goOn()
	b.stands(t, "one vote of two", "noah", i.half, "pending")
	b.says("noah", i.half, "decision", yes, http.StatusOK)
	a.counter.asks("pep", tool("stop", again)).passes(t, "what one approved before, and one at another replica")
	b.stands(t, "filed", "mia", i.filed, "pending")
	b.says("mia", i.filed, "decision", yes, http.StatusOK)
	a.counter.asks("pep", tool("list", again)).passes(t, "filed before, approved at another replica")
	b.stands(t, "denied", "mia", i.denied, "denied")
	b.counter.asks("pep", tool("push", again)).isStopped(t, "denied")
	theRest(t, a, b)
	used := 0
	for n := range 4 {
		one := []*wallet{b, a}[n%2]
		if got, _ := one.shoot(one.call(i.counted, "b:read")); got == "allow" {
			used++
		}
	}
	if used != 2 {
		t.Errorf("of 3 uses, of which one was made before, %d were made", used)
	}
	for _, one := range []*wallet{b, a} {
		one.is("used_up", one.call(i.spent, "b:read"))
		one.is("revoked", one.call(i.revoked, "b:read"))
	}
	if _, text := a.do("auditor", "GET", "/v1/decisions?event=imported", ""); !strings.Contains(text, `"approvals":2`) {
		t.Errorf("the import is not on record: %s", text)
	}
	for _, one := range []*wallet{a, b} {
		must(t, one.Stop(t.Context()))
	}
	refused("an older copy after the uses", old, "is taken once")
	refused("the directory after the uses", i.data, "is taken once")
	s, err := server.New(server.Config{Listen: "127.0.0.1:0", Data: i.data})
	must(t, err)
	if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "the directory of a replica") {
		t.Errorf("without the cluster: got %v", err)
	}
}

// An import that ends in the middle can be run again, and nothing is counted twice. Until then no replica starts.
func TestImportCut(t *testing.T) {
	t.Parallel()
	i := openImporting(t)
	must(t, i.Stop(t.Context()))
	old := filepath.Join(t.TempDir(), "old")
	must(t, os.CopyFS(old, os.DirFS(i.data)))
	client, err := etcdtest.Dial(i.g.net[0].Endpoints()...)
	must(t, err)
	defer func() { _ = client.Close() }()
	const between = "/policy-service/v1/capabilities/v/foreign" // approvals are taken before that
	_, err = client.Put(t.Context(), between, "x")
	must(t, err)
	for range 2 {
		if _, err := i.take(i.data); err == nil || !strings.Contains(err.Error(), "foreign") {
			t.Fatalf("got %v", err)
		}
	}
	config := i.config()
	config.Data, config.Program.Source = i.data, i.source
	s, err := server.New(config)
	must(t, err)
	if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "has not ended") {
		t.Errorf("a replica starts: %v", err)
	}
	other := openCounter(t)
	must(t, other.Stop(t.Context()))
	if _, err := i.take(other.data); err == nil {
		t.Error("another directory is taken")
	}
	if _, err := i.take(old); err == nil || !strings.Contains(err.Error(), "put the right log back") {
		t.Errorf("an older copy is taken: %v", err)
	}
	i.g.net[0].Cut()
	i.g.hasty = []int{0}
	if _, err := i.take(i.data); err == nil {
		t.Error("without etcd")
	}
	i.g.hasty = nil
	i.g.net[0].Heal()
	_, err = client.Delete(t.Context(), between)
	must(t, err)
	if done, err := i.take(i.data); err != nil || done.Approvals != 2 || done.Capabilities != 1 {
		t.Fatalf("got %+v, %v", done, err)
	}
	a, b := i.goOn()
	theRest(t, a, b)
	b.is("allow", b.call(i.counted, "b:read"))
	b.is("allow", b.call(i.counted, "b:read"))
	a.is("used_up", a.call(i.counted, "b:read"))
}

// theRest checks that of an approval's 5 uses, of which 2 were made before the import, 3 are left at both replicas together.
func theRest(t *testing.T, a, b *wallet) {
	t.Helper()
	used := 0
	for range 3 {
		for _, one := range []*wallet{b, a} {
			if one.counter.may(tool("five", again)) {
				used++
			}
		}
	}
	if used != 3 {
		t.Errorf("of 5 uses, of which 2 were made before, %d were made", used)
	}
}
