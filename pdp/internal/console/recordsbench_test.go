package console_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"policy-service/pdp"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/decisionlog/format"
	"policy-service/pdp/internal/decisionlog/record"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/internal/server/auth"
	"policy-service/pdp/internal/server/auth/keys"
	"policy-service/pdp/pdptest"
	"policy-service/pdp/pdptest/bound"
	"policy-service/pdp/pdptest/clock"
)

// How long does a page of records take, of a million records, and how large is it?
func BenchmarkRecordsOfAMillion(b *testing.B) {
	p := &pages{t: b, secret: map[string]string{}, Clock: clock.At(pdptest.Now)}
	c := server.Config{Listen: "127.0.0.1:0", Data: b.TempDir(), Program: server.Program{Source: pdptest.Txtar(recordsBundle)}}
	c.Console = &server.ConsoleConfig{Session: server.SessionConfig{Max: 8 * time.Hour, Idle: time.Hour}}
	var err error
	p.keys, err = keys.Open(c.Data)
	coreMust(b, err)
	p.key("auditor", auth.Principal{}, auth.LogRead, auth.Explain)
	fillWithDecisions(b, &c, 1_000_000)
	s, err := server.New(c)
	coreMust(b, err)
	coreMust(b, s.Start(b.Context())) // which takes a while, because it looks for records of keys
	p.Server = &pdptest.Server{Server: s, URL: "http://" + s.Addr()}
	b.Cleanup(func() { coreMust(b, s.Stop(context.Background())) })
	auditor := p.logIn("auditor")
	for name, path := range map[string]string{
		"list":     "/console/decisions",
		"older":    "/console/decisions?cursor=500000",
		"newer":    "/console/decisions?cursor=500000&order=oldest",
		"subject":  "/console/decisions?subject=user/user-77&decision=allow",
		"resource": "/console/decisions?resource=doc/doc-77&policy=readers&action=read",
		"nothing":  "/console/decisions?subject=nobody",
		"decision": "/console/decisions/0197f0c0-0000-7000-8000-000000500001",
	} {
		b.Run("page="+name, func(b *testing.B) {
			var took bound.Passes
			size := 0
			for b.Loop() {
				begun := time.Now()
				size = len(auditor.page(path))
				took.Took(time.Since(begun))
			}
			bound.Check(b, took.Median(), "ms-median", 300)
			bound.Check(b, float64(size)/1000, "KB", 200)
			b.ReportMetric(0, "ns/op")
		})
	}
}

// fillWithDecisions puts so many decisions on record, before a server starts.
func fillWithDecisions(b *testing.B, c *server.Config, many int) {
	bundle, problems := pdp.Load(c.Program.Source)
	if bundle == nil {
		b.Fatal(problems)
	}
	log, err := decisionlog.Open(c.Data, decisionlog.Options{Index: true, SegmentBytes: 64 << 20})
	coreMust(b, err)
	for n := 0; n < many; n += 1000 {
		entries := make([]record.Entry, 1000)
		for i := range entries {
			at := n + i
			id := fmt.Sprintf("0197f0c0-0000-7000-8000-%012d", at)
			entries[i] = record.Entry{ID: id, Kind: format.KindDecision, Tenant: "default", Caller: "key:searcher", RequestID: "r-" + id,
				Request: &record.Request{
					Subject: jsontext.Value(fmt.Sprintf(`{"type":"user","id":"user-%d","properties":{"role":"reader"}}`, at%10_000)), Action: jsontext.Value(`{"name":"read"}`),
					Resource: jsontext.Value(fmt.Sprintf(`{"type":"doc","id":"doc-%d"}`, at%1000)),
					Context:  jsontext.Value(`{"purpose":"to help a customer","arguments":{"title":"the printer burns","queue":"facilities","urgent":true}}`),
				},
				Decision: &record.Decision{Allow: at%7 != 0, Determining: []string{"readers"}, Bundle: bundle.Digest()},
			}
		}
		coreMust(b, log.Append(b.Context(), entries))
	}
	coreMust(b, log.Close())
}
