package server_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"policy-service/pdp/internal/approval"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/bound"
)

// benchBrowser is a browser in which somebody has logged in, with the cookie of the session.
func benchBrowser(b *testing.B, s *pdptest.Server, key string) (by *http.Client, cookie string) {
	b.Helper()
	jar, err := cookiejar.New(nil)
	must(b, err)
	by = consoleBrowser(nil)
	by.Jar = jar
	got := consolePost(b, by, s.ConsoleURL()+"/login", url.Values{"key": {strings.TrimPrefix(key, "Bearer ")}})
	if got.status != http.StatusSeeOther {
		b.Fatal(got.status, got.body)
	}
	cookie, _, _ = strings.Cut(got.header.Get("Set-Cookie"), ";")
	return by, cookie
}

// What does a page of the inbox cost while 10,000 approval requests wait, and beside 20,000 that ended? Mia has said something
// about ten of these, the oldest, so that much is looked through for them; eve may decide about none, and nothing of it is hers.
func BenchmarkInboxWith10kPending(b *testing.B) {
	const pending, ended, mine = 10_000, 20_000, 10
	data := withApprovals(b, pending+ended, func(s *approval.Store, k int, a approval.Approval) error {
		if k >= ended {
			return nil
		}
		vote := approval.Vote{Statement: approval.Statement{By: `user::"noah"`, Reason: "no"}, Caller: "key:noah", Kind: approval.Deny}
		if k < mine {
			vote.By, vote.Caller = `user::"mia"`, "key:mia"
		}
		_, err := s.Decide(context.Background(), a.ID, 0, vote, func(approval.Vote) bool { return true }, func(a, b string) bool { return a == b })
		return err
	})
	s, keys := benchCounter(b, data, withConsole(server.ConsoleConfig{}))
	for _, who := range []string{"mia", "eve"} {
		by, _ := benchBrowser(b, s, keys[who])
		for _, tab := range []string{"mine", "said", "done"} {
			b.Run(who+"="+tab, func(b *testing.B) {
				var pages bound.Passes
				size := 0
				for b.Loop() {
					start := time.Now()
					got := consoleGet(b, by, s.ConsoleURL()+"/approvals?tab="+tab)
					pages.Took(time.Since(start))
					if got.status != http.StatusOK {
						b.Fatal(got.status, got.body)
					}
					if some := strings.Contains(got.body, "data-row"); !some && !strings.Contains(got.body, "the list goes on") && who == "mia" {
						b.Fatal(got.body)
					}
					size = max(size, len(got.body))
				}
				b.ReportMetric(0, "ns/op")
				bound.Check(b, pages.Median(), "ms-median", 300)
				bound.Check(b, float64(size)/1024, "KiB", 200)
			})
		}
	}
}

// How much longer does a decision take, at worst, beside 50 streams whose readers read nothing? Meanwhile approval requests
// come, so that there is something to tell.
func BenchmarkDecisionBesideStalledStreams(b *testing.B) {
	const streams = 50
	open := func() (*pdptest.Server, map[string]string) {
		return benchCounter(b, withWaiting(b, 0), withConsole(server.ConsoleConfig{}), func(c *server.Config) {
			c.Approvals = server.ApprovalsConfig{MaxPendingPerSubject: 1_000_000, MaxPendingPerTenant: 1_000_000, MaxPendingPerCaller: 1_000_000, NewPerMinutePerSubject: 1_000_000}
		})
	}
	none, noneKeys := open()
	many, manyKeys := open()
	at := strings.TrimSuffix(strings.TrimPrefix(many.ConsoleURL(), "http://"), "/console")
	for range streams {
		_, cookie := benchBrowser(b, many, manyKeys["mia"])
		conn, err := net.Dial("tcp", at)
		must(b, err)
		defer func() { _ = conn.Close() }()
		_, err = fmt.Fprintf(conn, "GET /console/approvals/stream HTTP/1.1\r\nHost: %s\r\nCookie: %s\r\nSec-Fetch-Site: same-origin\r\nSec-Fetch-Dest: empty\r\n\r\n", at, cookie)
		must(b, err)
		status := make([]byte, len("HTTP/1.1 200"))
		if _, err := conn.Read(status); err != nil || string(status) != "HTTP/1.1 200" {
			b.Fatalf("got %q, %v", status, err)
		}
	}
	asks := func(s *pdptest.Server, key, action string) time.Duration {
		start := time.Now()
		body := fmt.Sprintf(`{"tenant_id":"default","actor":{"actor_id":"bot","actor_type":"agent"},"action":%q,"resource":{"type":"tool","id":"push"}}`, action)
		if got := s.Post(authorizePath, body, "Authorization", key); got.Status != 200 {
			b.Fatal(got.Status, got.Body)
		}
		return time.Since(start)
	}
	var alone, beside []time.Duration
	for n := 0; b.Loop(); n++ {
		if n%100 == 0 {
			asks(none, noneKeys["pep"], "tool.invoke")
			asks(many, manyKeys["pep"], "tool.invoke")
		}
		alone = append(alone, asks(none, noneKeys["pep"], "read"))
		beside = append(beside, asks(many, manyKeys["pep"], "read"))
	}
	if len(alone) < 1000 {
		return // of so few there is no p99
	}
	p99 := func(all []time.Duration) float64 {
		slices.Sort(all)
		return all[len(all)*99/100].Seconds() * 1000
	}
	b.ReportMetric(p99(alone), "ms-p99-alone")
	b.ReportMetric(p99(beside), "ms-p99-beside")
	bound.Check(b, p99(beside)/p99(alone), "x-of-alone", 1.2)
}
