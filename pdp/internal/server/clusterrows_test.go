package server_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"policy-service/pdp/internal/approval/broker"
	"policy-service/pdp/internal/ledger"
	"policy-service/pdp/internal/ledger/etcd"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/etcdtest"
	"policy-service/pdp/pdptest/night"
)

// etcdRows has the test of each row of the operator's table of etcd, by its first cell.
var etcdRows = map[string]func(*testing.T){
	"away, or without a majority":                                               TestClusterOfReplicas,
	"away when a replica starts":                                                TestClusterStartsWithoutEtcd,
	"restored from a copy, or another cluster":                                  TestClusterRestored,
	"one of three members is away, cut off from the others, or has a full disk": TestClusterWithoutOneMember,
	"80 % of its quota":                                                         TestClusterFull,
	"at its quota":                                                              TestClusterAtItsQuota,
	"slow":                                                                      TestClusterSlow,
	"older than 3.6":                                                            TestClusterOfAnOlderEtcd,
	"values of a format that this version does not read":                        TestClusterOfAnotherFormat,
}

func TestEachRowOfTheTableHasATest(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../server/CLUSTER.md")
	must(t, err)
	_, table, _ := strings.Cut(string(page), "| etcd | decisions without state |")
	table, _, _ = strings.Cut(table, "\n\n")
	found := regexp.MustCompile(`(?m)^\| ([^|]+) \|`).FindAllStringSubmatch(table, -1)
	for _, row := range found {
		if etcdRows[row[1]] == nil {
			t.Errorf("no test is of the row %q", row[1])
		}
	}
	if len(found) != len(etcdRows) {
		t.Errorf("the page has %d rows, and %d have tests", len(found), len(etcdRows))
	}
}

// While etcd is slow, what needs state is slow. While it does not answer in time, that is 503, and decisions without state go on.
func TestClusterSlow(t *testing.T) {
	t.Parallel()
	g := openGroup(t, 2, etcdtest.Start(t, etcdtest.Options{Members: 1}))
	g.hurry(0)
	a, patient := g.all[0], g.all[1]
	g.net[1].Delay(100 * time.Millisecond)
	first := patient.asks("pep", tool("push", push))
	first.stands(t, "filed at a slow etcd", "pending")
	g.net[1].Heal()
	g.net[0].Hold()
	if status, after, text := a.retry("mia", "POST", "/v1/approvals/"+first.Approval.ID+"/decision", yes); status != http.StatusServiceUnavailable || after == "" {
		t.Errorf("a vote: got %d %s", status, text)
	}
	if status, after, text := a.retry("pep", "POST", "/v1/authorize", tool("push", again)); status != http.StatusServiceUnavailable || after == "" {
		t.Errorf("a use: got %d %s", status, text)
	}
	if status, text := a.do("pep", "POST", "/access/v1/evaluation", free); status != http.StatusOK || !strings.Contains(text, `"decision":true`) {
		t.Errorf("a decision without state: got %d %s", status, text)
	}
	eventually(t, "it is degraded", func() bool {
		status, is := a.ready()
		return status == http.StatusOK && is.Status == "degraded" && is.State != nil
	})
	g.net[0].Heal()
	eventually(t, "it is ready", func() bool { _, is := a.ready(); return is.State == nil })
	patient.says("mia", first.Approval.ID, "decision", yes, http.StatusOK)
	patient.asks("pep", tool("push", again)).passes(t, "a use of what was approved")
}

// refusal is the error of a start of one more replica.
func (g *group) refusal(change func(data string, config *server.Config)) error {
	g.t.Helper()
	data := g.t.TempDir()
	for file, content := range g.secrets {
		must(g.t, os.WriteFile(filepath.Join(data, file), content, 0o600))
	}
	config := server.Config{Listen: "127.0.0.1:0", Data: data}
	g.config(0)(&config)
	config.Program.Source = pdptest.Bundle(approvalFiles())
	change(data, &config)
	s, err := server.New(config)
	if err == nil {
		if err = s.Start(g.t.Context()); err == nil {
			must(g.t, s.Stop(g.t.Context()))
		}
	}
	return err
}

func TestClusterOfAnOlderEtcd(t *testing.T) {
	t.Parallel()
	g := openGroup(t, 1, etcdtest.Start(t, etcdtest.Options{Members: 1}))
	to := g.net[0].Endpoints()[0]
	client, err := etcdtest.Dial(to)
	must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	status, err := client.Status(t.Context(), to)
	must(t, err)
	older := says(t, to, status.Version, "3.5.9")
	err = g.refusal(func(_ string, c *server.Config) { c.Cluster.Etcd.Endpoints = []string{"http://" + older} })
	if err == nil || !strings.Contains(err.Error(), older+" is etcd 3.5.9, and 3.6 is the least; upgrade etcd first") {
		t.Errorf("got %v", err)
	}
}

// says is a way to a server whose answers have other bytes in place of some.
func says(t *testing.T, to, was, is string) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	pass := func(to, from net.Conn, change func([]byte) []byte) {
		defer func() { _, _ = to.Close(), from.Close() }()
		for some := make([]byte, 64<<10); ; {
			n, err := from.Read(some)
			if _, failed := to.Write(change(some[:n])); err != nil || failed != nil {
				return
			}
		}
	}
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			there, err := net.Dial("tcp", to)
			if err != nil {
				_ = from.Close()
				continue
			}
			go pass(there, from, bytes.Clone)
			go pass(from, there, func(b []byte) []byte { return bytes.ReplaceAll(b, []byte(was), []byte(is)) })
		}
	}()
	return l.Addr().String()
}

func TestClusterOfAnotherFormat(t *testing.T) {
	t.Parallel()
	g := openGroup(t, 1, etcdtest.Start(t, etcdtest.Options{Members: 1}))
	a := g.all[0]
	key, err := broker.OpenKey(a.data)
	must(t, err)
	client, err := etcdtest.Dial(g.net[0].Endpoints()...)
	must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	const prefix = "/policy-service/v1/cluster/"
	etcdtest.Succeeds(t, "the newer version is there first, and not the replica's next beat", func() error {
		if _, err := client.Delete(t.Context(), prefix, clientv3.WithPrefix()); err != nil {
			return err
		}
		newer := ledger.NewValues(etcd.New(etcd.Options{Client: client, Prefix: prefix}), ledger.Form{
			Items: "the cluster", Key: ledger.DeriveKey(key, "policy-service cluster values"), Version: 99,
		})
		return errors.Join(newer.Open(t.Context()), newer.Close())
	})
	err = g.refusal(func(string, *server.Config) {})
	if err == nil || !strings.Contains(err.Error(), "99") || !strings.Contains(err.Error(), "format") {
		t.Errorf("got %v", err)
	}
	if status, text := a.do("pep", "POST", "/access/v1/evaluation", free); status != http.StatusOK {
		t.Errorf("a replica that runs: got %d %s", status, text)
	}
}

// At its quota etcd refuses each write until its alarm is disarmed. Nothing is allowed meanwhile, and no use is lost or made twice.
func TestClusterAtItsQuota(t *testing.T) {
	night.Whole(t, "it waits for two looks of a replica at the quota")
	t.Parallel()
	etcd := etcdtest.Start(t, etcdtest.Options{Members: 1, Quota: 64 << 20})
	g := openGroup(t, 1, etcd)
	a := g.all[0]
	a.approved()
	waiting := a.asks("pep", tool("stop", push))
	endpoint := etcd.Client().Endpoints()[0]
	client, err := etcdtest.Dial(endpoint)
	must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	text := strings.Repeat("x", 1<<20)
	for n := 0; err == nil; n++ {
		_, err = client.Put(t.Context(), fmt.Sprint("/filling/", n), text)
	}
	if !errors.Is(err, rpctypes.ErrNoSpace) || len(etcd.Alarms()) == 0 {
		t.Fatalf("etcd has no alarm: %v", err)
	}

	for name, do := range map[string]func() (int, string, string){
		"to file": func() (int, string, string) {
			return a.retry("pep", "POST", "/v1/authorize", tool("push", `"arguments":{"branch":"other"}`))
		},
		"to use": func() (int, string, string) { return a.retry("pep", "POST", "/v1/authorize", tool("push", again)) },
		"to vote": func() (int, string, string) {
			return a.retry("mia", "POST", "/v1/approvals/"+waiting.Approval.ID+"/decision", yes)
		},
	} {
		if status, after, text := do(); status != http.StatusServiceUnavailable || after == "" {
			t.Errorf("%s at the quota: got %d %s", name, status, text)
		}
	}
	if status, text := a.do("pep", "POST", "/access/v1/evaluation", free); status != http.StatusOK || !strings.Contains(text, `"decision":true`) {
		t.Errorf("a decision without state: got %d %s", status, text)
	}
	eventually(t, "it is degraded", func() bool {
		status, is := a.ready()
		return status == http.StatusOK && is.Status == "degraded" && is.Cluster.Full
	})

	// What the page says is done: compact, defragment, disarm.
	gone, err := client.Delete(t.Context(), "/filling/", clientv3.WithPrefix())
	must(t, err)
	_, err = client.Compact(t.Context(), gone.Header.Revision, clientv3.WithCompactPhysical())
	must(t, err)
	_, err = client.Defragment(t.Context(), endpoint)
	must(t, err)
	_, err = client.AlarmDisarm(t.Context(), &clientv3.AlarmMember{})
	must(t, err)
	eventually(t, "it is ready", func() bool { _, is := a.ready(); return is.Status == "ready" && !is.Cluster.Full })
	a.says("mia", waiting.Approval.ID, "decision", yes, http.StatusOK)
	used := 0
	for range 2 {
		if a.may(tool("push", again)) {
			used++
		}
	}
	if used != 1 {
		t.Errorf("it was used %d times", used)
	}
}

// Two of three members are enough: what needs state goes on without the leader, killed or cut off from the others. Of a full
// disk, TestClusterFaults has the test.
func TestClusterWithoutOneMember(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, etcdtest.Options{Members: 3})
	g := openGroup(t, 1, etcd)
	g.hurry(0)
	a := g.all[0]
	files := func(branch string) {
		t.Helper()
		eventually(t, "it goes on", func() bool {
			status, _, text := a.retry("pep", "POST", "/v1/authorize", tool("push", `"arguments":{"branch":"`+branch+`"}`))
			return status == http.StatusOK && strings.Contains(text, `"status":"pending"`)
		})
		eventually(t, "it is ready", func() bool { status, is := a.ready(); return status == http.StatusOK && is.State == nil })
	}
	leader, term := etcd.Leader()
	etcd.Kill(leader)
	files("killed")
	if _, now := etcd.Leader(); now <= term {
		t.Errorf("the term is %d still", now)
	}
	etcd.Restart(leader)
	etcd.Settled()
	leader, term = etcd.Leader()
	etcd.Isolate(leader)
	files("isolated")
	etcd.Join()
	etcd.Settled()
	if _, now := etcd.Leader(); now <= term {
		t.Errorf("the term is %d still", now)
	}
}

// Without two of three members what needs state is 503, and all goes on once one of them runs again with its disk.
func TestClusterWithoutMajority(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, etcdtest.Options{Members: 3})
	g := openGroup(t, 2, etcd)
	g.hurry(0)
	a, patient := g.all[0], g.all[1]
	first := patient.answered(tool("push", push))
	etcd.Kill(0)
	etcd.Kill(1)
	if status, after, text := a.retry("mia", "POST", "/v1/approvals/"+first.Approval.ID+"/decision", yes); status != http.StatusServiceUnavailable || after == "" {
		t.Errorf("a vote: got %d %s", status, text)
	}
	if status, text := a.do("pep", "POST", "/access/v1/evaluation", free); status != http.StatusOK || !strings.Contains(text, `"decision":true`) {
		t.Errorf("a decision without state: got %d %s", status, text)
	}
	eventually(t, "it is degraded", func() bool {
		status, is := a.ready()
		return status == http.StatusOK && is.Status == "degraded" && is.State != nil
	})
	etcd.Restart(1)
	etcd.Settled()
	for _, one := range g.all {
		eventually(t, "it is ready", func() bool { _, is := one.ready(); return is.State == nil })
	}
	eventually(t, "mia has voted", func() bool { // a new leader leaves open what became of a vote
		status, _, _ := patient.retry("mia", "POST", "/v1/approvals/"+first.Approval.ID+"/decision", yes)
		return status != http.StatusServiceUnavailable
	})
	if !patient.may(tool("push", again)) {
		t.Error("what was filed before is not used")
	}
}
