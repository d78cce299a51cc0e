package server_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"policy-service/pdp"
	"policy-service/pdp/internal/decisionlog"
	"policy-service/pdp/internal/server"
	"policy-service/pdp/pdptest"
)

// What does the decision log cost an answer over HTTP? The same clients ask a server
// without a log, one in best effort and a strict one in turns, so that whatever else
// the machine does befalls all three.
func BenchmarkDecisionLogOverHTTP(b *testing.B) {
	const rounds, perClient = 3, 50
	body := `{"subject":{"type":"user","id":"alice"},"action":{"name":"tool.invoke"},"resource":{"type":"tool","id":"wiki:search_pages"}}`
	for _, clients := range []int{1, 16, 128} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			servers := map[string]*pdptest.Server{"off": benchServer(b, ""), "best_effort": benchServer(b, decisionlog.BestEffort), "strict": benchServer(b, decisionlog.Strict)}
			took := map[string]time.Duration{}
			for b.Loop() {
				for range rounds {
					for mode, s := range servers {
						start := time.Now()
						askTogether(b, s, clients, perClient, body)
						took[mode] += time.Since(start)
					}
				}
			}
			asked := float64(b.N * rounds * clients * perClient)
			for mode, d := range took {
				b.ReportMetric(asked/d.Seconds(), mode+"/s")
			}
			b.ReportMetric(float64(took["strict"])/float64(took["off"]), "strict-x-of-off")
			b.ReportMetric(float64(took["best_effort"])/float64(took["off"]), "best_effort-x-of-off")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func benchServer(b *testing.B, mode decisionlog.Mode) *pdptest.Server {
	s := pdptest.Start(b, pdp.Dir("../../../policies/starter"), func(c *server.Config) {
		if mode != "" {
			c.Data, c.DecisionLog.Mode = b.TempDir(), mode
		}
		c.Program.PDP.Now = nil
	})
	// A PEP keeps its connections; the default client keeps two.
	transport := &http.Transport{MaxIdleConnsPerHost: 128}
	b.Cleanup(transport.CloseIdleConnections)
	s.Client = &http.Client{Transport: transport}
	return s
}

func askTogether(b *testing.B, s *pdptest.Server, clients, each int, body string) {
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for range each {
				if got := s.Post(evaluationPath, body); got.Status != 200 {
					b.Error(got.Status, got.Body)
				}
			}
		})
	}
	all.Wait()
}
