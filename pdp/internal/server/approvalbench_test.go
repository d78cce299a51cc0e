package server_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"policy-service/evaluation"
	"policy-service/obligations"
	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/bound"
)

// manyWaiting is how many approval requests wait where many do.
const manyWaiting = 100_000

// withWaiting is a data directory in which some approval requests wait, in memory
// where there is such a place: what is measured does not write.
func withWaiting(b *testing.B, n int) string { return withTasks(b, n, false) }

// withTasks is the same, and a task may follow each.
func withTasks(b *testing.B, n int, tasks bool) string {
	b.Helper()
	return withApprovals(b, n, func(s *approval.Store, k int, a approval.Approval) (err error) {
		if tasks {
			_, err = s.Begin(approval.Task{ID: fmt.Sprint("task", k), Tenant: a.Tenant, Caller: a.Caller, Items: []string{a.ID}})
		}
		return err
	})
}

// withApprovals is a data directory with so many approval requests, with each of which something is done.
func withApprovals(b *testing.B, n int, then func(s *approval.Store, k int, a approval.Approval) error) string {
	b.Helper()
	data, err := os.MkdirTemp("/dev/shm", "approvals")
	if err != nil {
		data = b.TempDir()
	}
	b.Cleanup(func() { _ = os.RemoveAll(data) })
	key := bytes.Repeat([]byte("k"), 32)
	if err := os.WriteFile(filepath.Join(data, "approvals.key"), key, 0o600); err != nil {
		b.Fatal(err)
	}
	s, err := approval.Open(data, approval.Options{
		Key: key, Size: func() uint64 { return 0 },
		Attest: func(context.Context, string) (approval.Step, bool, error) { return approval.Step{}, false, nil },
		Steps:  func(context.Context, uint64, map[string]bool) (map[string][]approval.Step, error) { return nil, nil },
		Record: func(context.Context, approval.Step) error { return nil }, Recorded: func(string) (bool, error) { return true, nil }, Silent: true,
		Withdraw: func(context.Context, approval.Withdrawal) error { return nil },
		Limits:   approval.Limits{MaxPendingPerSubject: 1 << 30, MaxPendingPerTenant: 1 << 30, NewPerMinutePerSubject: 1 << 30},
	})
	if err != nil {
		b.Fatal(err)
	}
	for k := range n {
		q := approval.ApprovalRequest{
			Digest: sha256.Sum256([]byte(strconv.Itoa(k))), Tenant: "default", Caller: "key:pep", Decision: strconv.Itoa(k), Obligation: "ask",
			Terms:   obligations.Terms{Template: "owner", Quorum: 1, Uses: 1, Timeout: 300 * time.Hour, ValidFor: time.Hour},
			Subject: evaluation.Ref{Type: "agent", ID: fmt.Sprint("bot", k%1000)}, Resource: evaluation.Ref{Type: "tool", ID: "push"}, Action: "tool.invoke",
			Shown: []byte(`{"subject":{"type":"agent","id":"bot"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"push"},"context":{"arguments":{"branch":"main"}}}`),
		}
		a, err := s.File(context.Background(), q)
		if err == nil {
			err = then(s, k, a)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	return data
}

// benchCounter is a server on a data directory, with a PEP, and people who may decide
// about everything and about nothing.
func benchCounter(b *testing.B, data string, options ...pdptest.Option) (s *pdptest.Server, apiKeys map[string]string) {
	b.Helper()
	store, err := keys.Open(data)
	if err != nil {
		b.Fatal(err)
	}
	apiKeys = map[string]string{}
	for name, spec := range map[string]keys.Spec{
		"pep": {Grant: auth.Grant{Permissions: []auth.Permission{auth.Decide, auth.Request}}},
		"mia": {Principal: auth.Principal{Type: "user", ID: "mia"}, Grant: auth.Grant{Permissions: []auth.Permission{auth.Approve}}},
		"eve": {Principal: auth.Principal{Type: "user", ID: "eve"}, Grant: auth.Grant{Permissions: []auth.Permission{auth.Approve}}},
	} {
		spec.Name = name
		key, err := store.Add(spec)
		if err != nil {
			b.Fatal(err)
		}
		apiKeys[name] = "Bearer " + key
	}
	own := func(c *server.Config) { c.Data, c.Program.PDP.Now, c.Program.PDP.NewID = data, nil, nil }
	files := approvalFiles("a.cedar", `permit(principal, action == Action::"read", resource);`)
	return pdptest.Start(b, pdptest.Bundle(files), append([]pdptest.Option{own}, options...)...), apiKeys
}

// Of what costs something while 100,000 approval requests wait: the inbox of one who
// may decide about all of them, and of one for whom all are looked at in vain; a
// decision, beside one of a server where none wait; and a start.
func BenchmarkWith100kPending(b *testing.B) {
	data := withWaiting(b, manyWaiting)
	many, keys := benchCounter(b, data)
	for _, person := range []string{"mia", "eve"} {
		b.Run("inbox="+person, func(b *testing.B) {
			var pages bound.Passes
			b.ReportAllocs()
			for b.Loop() {
				start := time.Now()
				if got := many.Get("/v1/approvals?limit=50", "Authorization", keys[person]); got.Status != 200 {
					b.Fatal(got.Status, got.Body)
				}
				pages.Took(time.Since(start))
			}
			bound.Check(b, pages.Median(), "ms-median", 20)
		})
	}
	b.Run("decision", func(b *testing.B) {
		none, other := benchCounter(b, withWaiting(b, 0))
		inTurns(b, none, other["pep"], many, keys["pep"])
	})
	if err := many.Stop(context.Background()); err != nil {
		b.Fatal(err)
	}
	b.Run("start", func(b *testing.B) {
		var starts bound.Passes
		for b.Loop() {
			for range 3 { // one alone could be a disturbed one
				start := time.Now()
				s := pdptest.Start(b, pdptest.Bundle(approvalFiles()), func(c *server.Config) { c.Data, c.Program.PDP.Now, c.Program.PDP.NewID = data, nil, nil })
				starts.Took(time.Since(start))
				if err := s.Stop(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
		}
		bound.Check(b, starts.Median(), "ms-median", 2000)
		b.ReportMetric(0, "ns/op")
	})
}

// inTurns asks two servers the same, so that whatever else the machine does befalls both.
func inTurns(b *testing.B, none *pdptest.Server, noneKey string, many *pdptest.Server, manyKey string) {
	const question = `{"tenant_id":"default","actor":{"actor_id":"bot","actor_type":"agent"},"action":"read","resource":{"type":"tool","id":"push"}}`
	ask := func(s *pdptest.Server, key string) time.Duration {
		start := time.Now()
		if got := s.Post(authorizePath, question, "Authorization", key); got.Status != 200 {
			b.Fatal(got.Status, got.Body)
		}
		return time.Since(start)
	}
	var passes bound.Passes
	for b.Loop() {
		without := ask(none, noneKey)
		passes.Against(ask(many, manyKey), without)
	}
	bound.Check(b, passes.Median(), "x-of-none", 1.2) // "unchanged within noise"
}

// What do 10,000 approval requests that wait add to a start, where a million records
// came after them? All of these are read, and held against the signed tree.
func BenchmarkStartWith10kPendingBeforeAMillionRecords(b *testing.B) {
	const waiting, records = 10_000, 1_000_000
	data := withWaiting(b, 0) // for the key, and a place in memory
	apiKeys, err := keys.Open(data)
	must(b, err)
	pep, err := apiKeys.Add(keys.Spec{Name: "pep", Grant: auth.Grant{Tenants: []string{"*"}, Permissions: []auth.Permission{auth.Decide, auth.Explain}}})
	must(b, err)
	start := func() *pdptest.Server {
		return pdptest.Start(b, pdptest.Bundle(approvalFiles()), func(c *server.Config) {
			c.Data, c.Program.PDP.Now, c.Program.PDP.NewID = data, nil, nil
			c.Approvals.MaxPendingPerSubject, c.Approvals.MaxPendingPerTenant, c.Approvals.MaxPendingPerCaller, c.Approvals.NewPerMinutePerSubject = 1_000_000, 1_000_000, 1_000_000, 1_000_000
		})
	}
	s := start()
	var all sync.WaitGroup
	for client := range 16 {
		all.Go(func() {
			for n := client; n < waiting; n += 16 {
				if got := s.Post(authorizePath, tool("stop", fmt.Sprintf(`"arguments":{"n":%d}`, n)), "Authorization", "Bearer "+pep); !strings.Contains(got.Body, `"status":"pending"`) {
					b.Error(got.Status, got.Body)
				}
			}
		})
	}
	all.Wait()
	must(b, s.Stop(context.Background()))
	appendDecisions(b, data, records)

	file := filepath.Join(data, approval.FileName)
	took := func(lines int) time.Duration {
		began := time.Now()
		s := start()
		took := time.Since(began)
		if got := s.Get("/metrics", "Authorization", "Bearer "+pep); !strings.Contains(got.Body, fmt.Sprintf("\npolicy_service_approvals_pending %d\n", lines)) {
			b.Fatalf("not %d wait: %s", lines, got.Body)
		}
		must(b, s.Stop(context.Background()))
		return took
	}
	var with, without bound.Passes
	for b.Loop() {
		for range 3 { // one alone could be a disturbed one
			with.Took(took(waiting))
			must(b, os.Rename(file, file+".aside"))
			without.Took(took(0))
			must(b, os.Rename(file+".aside", file))
		}
	}
	b.ReportMetric(without.Median(), "ms-without")
	bound.Check(b, with.Median()-without.Median(), "ms-more", 2000)
	b.ReportMetric(0, "ns/op")
}

// How long after a vote does a program know, that follows so many tasks with one request that waits? And how often was
// looked for that?
func BenchmarkFollowing(b *testing.B) {
	for _, n := range []int{20, 2000} {
		b.Run(fmt.Sprint("tasks=", n), func(b *testing.B) {
			s, keys := benchCounter(b, withTasks(b, n, true))
			var ids []string
			list := func(query string) (cursor string, told int) {
				var list evaluation.TaskList
				got := s.Get("/access/v1/requests?"+query, "Authorization", keys["pep"])
				if err := json.Unmarshal([]byte(got.Body), &list); err != nil || got.Status != 200 {
					b.Fatal(got.Status, got.Body)
				}
				for _, t := range list.Tasks {
					for _, a := range t.Task.Approvals {
						ids = append(ids, a.ID)
					}
				}
				return list.Cursor, len(list.Tasks)
			}
			cursor, all := list("limit=200")
			for told := all; told > 0; all += told {
				cursor, told = list("limit=200&after=" + cursor)
			}
			if all != n {
				b.Fatalf("%d of %d tasks are told", all, n)
			}
			var passes bound.Passes
			looks := s.Looks()
			for round := 0; b.Loop(); round++ {
				begun, told := s.Looks(), make(chan int)
				go func() {
					var n int
					cursor, n = list("wait=30s&after=" + cursor)
					told <- n
				}()
				for s.Looks() == begun { // until it waits
					runtime.Gosched()
				}
				start := time.Now()
				if got := s.Do("POST", "/v1/approvals/"+ids[round]+"/decision", yes, "Authorization", keys["mia"], "Content-Type", "application/json"); got.Status != 200 {
					b.Fatal(got.Status, got.Body)
				}
				if n := <-told; n != 1 {
					b.Fatalf("%d are told", n)
				}
				passes.Took(time.Since(start))
			}
			b.ReportMetric(float64(s.Looks()-looks)/float64(b.N), "looks/op")
			bound.Check(b, passes.Median(), "ms-median", 250)
		})
	}
}

// appendDecisions puts decisions of some 700 bytes on record, whose index is made.
func appendDecisions(b *testing.B, data string, records int) {
	log, err := decisionlog.Open(data, decisionlog.Options{Index: true})
	must(b, err)
	bytes := log.Status().Bytes
	for n := 0; n < records; n += 1000 {
		entries := make([]record.Entry, 1000)
		for i := range entries {
			id := fmt.Sprintf("0197f0c0-0000-7000-8000-%012d", n+i)
			entries[i] = record.Entry{ID: id, Kind: format.KindDecision, Tenant: "default", Caller: "key:pep", RequestID: "r-" + id,
				Request: &record.Request{
					Subject: jsontext.Value(fmt.Sprintf(`{"type":"agent","id":"bot%d"}`, i)), Action: jsontext.Value(`{"name":"tool.invoke"}`),
					Resource: jsontext.Value(`{"type":"tool","id":"tickets:create_ticket","properties":{"impact":"write"}}`),
					Context:  jsontext.Value(`{"purpose":"to help a customer","arguments":{"title":"the printer burns","queue":"facilities","urgent":true}}`),
				},
				Decision: &record.Decision{Allow: true, Determining: []string{"tools/allow"}, Bundle: "h1:Vy6bjgwOaGRfFQKFTgbFza5WbMnsV4eAZp3XSA5RvK4="},
			}
		}
		err := log.Append(context.Background(), entries)
		must(b, err)
	}
	b.ReportMetric(float64(log.Status().Bytes-bytes)/float64(records), "disk-bytes/record")
	must(b, log.Close())
}
